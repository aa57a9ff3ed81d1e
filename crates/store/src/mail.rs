//! Pages of letters: what bounds one, and what happens to a letter that this version cannot read. Not: who carries them.

use crate::Posted;

/// The bytes of the letters of a page: their bodies hold inputs and outputs. The first is there whatever its size.
pub(crate) const PAGE_BYTES: usize = 8 << 20;

/// A page of letters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mail {
    /// The letters that can be read, in their order.
    pub letters: Vec<Posted>,
    /// After which number there may be more; none if this page is the last. A page may be short or empty though another follows.
    pub next: Option<u64>,
}

impl Mail {
    /// A page of what was found: numbers, and the letters that could be read. One that cannot stays where it is, for a version
    /// that can or for a person, and stops no other.
    pub(crate) fn of(found: Vec<(u64, Option<Posted>)>, more: bool) -> Self {
        let next = found.last().filter(|_| more).map(|(number, _)| *number);
        let unread: Vec<u64> =
            found.iter().filter(|(_, posted)| posted.is_none()).map(|(number, _)| *number).collect();
        if let Some(number) = unread.first() {
            let count = unread.len();
            tracing::warn!(number, count, "letters between instances cannot be read and are passed over");
        }
        Self { letters: found.into_iter().filter_map(|(_, posted)| posted).collect(), next }
    }
}
