//! Draws that come out the same in every replay, and that nobody can guess without the seed (rule W33).

use everstep_protocol::{CallHash, Token};

use crate::host::Shared;

/// A type of which a random value can be drawn: the integers, `bool`, and arrays of bytes. Not for implementing.
pub trait Random: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! random_integer {
    ($($integer:ty),*) => {$(
        impl sealed::Sealed for $integer {}

        impl Random for $integer {
            fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                fill(&mut bytes);
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}

random_integer!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl sealed::Sealed for bool {}

impl Random for bool {
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        u8::draw(fill) & 1 == 1
    }
}

impl<const N: usize> sealed::Sealed for [u8; N] {}

impl<const N: usize> Random for [u8; N] {
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut bytes = [0; N];
        fill(&mut bytes);
        bytes
    }
}

/// One draw: the keyed hash of the draw's number, as long as asked for. Never changes, or replays would differ.
pub(crate) fn fill(shared: &Shared, bytes: &mut [u8]) {
    let draw = {
        let mut state = shared.lock();
        let draw = state.draws;
        state.draws += 1;
        draw
    };
    let mut hasher = blake3::Hasher::new_keyed(&shared.seed);
    hasher.update(b"draw").update(&draw.to_le_bytes());
    hasher.finalize_xof().fill(bytes);
}

/// The token of a hook that is given none: it follows from the call, so that other draws do not change it. Never changes, like a draw.
pub(crate) fn token(shared: &Shared, call: CallHash) -> Option<Token> {
    let mut hasher = blake3::Hasher::new_keyed(&shared.seed);
    let mut bytes = [0; 16];
    hasher.update(b"hook").update(&call.0).finalize_xof().fill(&mut bytes);
    Token::new(uuid::Uuid::from_bytes(bytes).simple().to_string()).ok()
}
