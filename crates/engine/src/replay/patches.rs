//! Questions whether a change of the code applies (rule P40): yes, once the journal says so. No, if it goes on with a call that
//! the body has not made while it waits for the answer: then code without the change was here before.
//!
//! What is answered depends on the journal alone, so every replay answers the same. One change has one answer in an instance.

use std::collections::{BTreeMap, HashMap};

use everstep_protocol::CallName;

/// The questions of one body.
#[derive(Debug, Default)]
pub(super) struct Patches {
    /// Those without an answer, by number.
    open: BTreeMap<u64, CallName>,
    /// What was answered, by change.
    answers: HashMap<CallName, bool>,
}

impl Patches {
    /// The body asks.
    pub(super) fn asked(&mut self, number: u64, change: CallName) {
        self.open.insert(number, change);
    }

    /// The call has its answer, or the body has dropped it.
    pub(super) fn over(&mut self, number: u64) {
        self.open.remove(&number);
    }

    /// The journal says that the change applies.
    pub(super) fn recorded(&mut self, change: &CallName) {
        self.answers.insert(change.clone(), true);
    }

    /// Whether a question has no answer yet.
    pub(super) fn are_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// The call to be answered with no before the next entry is fed. `is_unknown` says that the entry is about a call that the
    /// body has not made.
    pub(super) fn refuse(&mut self, is_unknown: bool) -> Option<u64> {
        let answers = &self.answers;
        let refused = |(_, change): &(&u64, &CallName)| match answers.get(*change) {
            Some(applies) => !applies,
            None => is_unknown,
        };
        let (&number, change) = self.open.iter().find(refused)?;
        self.answers.insert(change.clone(), false);
        self.open.remove(&number);
        Some(number)
    }
}
