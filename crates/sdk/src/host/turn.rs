//! Whose turn it is on this thread: the guard that rules W29 and W30 rest on.
//!
//! A flag in the context itself would let another thread slip in while the body is polled; this is kept per thread.
//! Turns nest: a poll of one body inside the poll of another restores the outer one.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static CURRENT: Cell<Option<(Token, Act)>> = const { Cell::new(None) };
}

/// One body in this process. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(u64);

impl Token {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the host does on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It polls the body: the only act in which the context answers and a drop means something.
    Poll,
    /// It feeds an outcome or throws the body away: wakes are its own.
    Tend,
}

/// Ends the turn when dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    before: Option<(Token, Act)>,
}

impl Turn {
    pub(crate) fn begin(token: Token, act: Act) -> Self {
        Self { before: CURRENT.replace(Some((token, act))) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A destructor that runs while the thread is torn down finds no turn to end.
        let _ = CURRENT.try_with(|current| current.set(self.before));
    }
}

/// What this thread does for that body right now.
pub(crate) fn act(token: Token) -> Option<Act> {
    let current = CURRENT.try_with(Cell::get).ok().flatten();
    current.filter(|(owner, _)| *owner == token).map(|(_, act)| act)
}
