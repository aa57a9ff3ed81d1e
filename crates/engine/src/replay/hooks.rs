//! Hooks: what came of one that the body created, what it was resumed with, who has taken it, and that the body lets it go.

use std::collections::HashMap;

use everstep_protocol::{
    Call, Failure, FailureKind, HookId, Payload, Position, Token,
    journal::{Closed, Delivered, Entry, HookOutcome, Other, Received, Registered, TakenOver},
};
use serde::{Deserialize, Serialize};

use super::{
    Asked, Fed, Replay,
    made::{Closing, State},
    trouble::mismatch,
};
use everstep_protocol::{
    EventType,
    hook::{HOOK_DISPOSED, HOOK_TAKEN},
    journal::Parked,
};

/// What the error of an await says of the instance that has taken its hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimant {
    /// Its workflow and id.
    #[serde(flatten)]
    pub instance: Other,
    /// Its hook.
    pub hook: String,
}

/// Which hooks of the instance others have taken.
pub(super) type Taken = HashMap<HookId, TakenOver>;

impl Replay {
    pub(super) fn registered(&mut self, entry: &Entry, registered: &Registered) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &registered.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.state != State::Waiting || !matches!(made.asked, Asked::Hook(_)) {
            return Err(mismatch(entry, &format!("{} does not wait for a hook", registered.call)));
        }
        self.calls.remove(&number);
        Ok(Fed::Registered { number, outcome: registered.outcome.clone() })
    }

    /// To the body a payload is an event: one that it did not look at returns to its place in line (rule P22).
    pub(super) fn received(&mut self, entry: &Entry, received: &Received) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &received.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.state != State::Waiting || made.asked != Asked::Payload(received.hook) {
            let what = format!("{} does not wait for a payload of hook {}", received.call, received.hook);
            return Err(mismatch(entry, &what));
        }
        self.calls.remove(&number);
        let event = Delivered {
            call: received.call.clone(),
            kind: EventType::of_hook(received.hook),
            sequence: received.sequence,
            id: received.id.clone(),
            key: None,
            received_at: received.received_at,
            payload: received.payload.clone(),
        };
        Ok(Fed::Deliver { number, event })
    }

    pub(super) fn taken_over(&mut self, taken: &TakenOver) {
        self.taken.insert(taken.hook, taken.clone());
    }

    /// The hook of an await is over, and nothing unread is left of it (rule H60).
    pub(super) fn over(&self, hook: HookId) -> Failure {
        match self.taken.get(&hook) {
            Some(taken) => hook_taken(taken),
            None => {
                hook_disposed("the hook is not this instance's any more, and nothing unread is left of it")
            }
        }
    }

    /// The body lets go of a hook that it has, when it had seen the entry at `seen` (rule H52). One that is not registered yet it
    /// [drops](Replay::dropped) instead.
    pub fn let_go(&mut self, number: u64, call: Call, token: Token, seen: Position) {
        // The call of the hook that the instance was started with was never begun.
        self.numbers.entry(call.clone()).or_insert(number);
        self.closing
            .insert(call, Closing { after: seen, told: false, hook: Some(token), let_go: Some(number) });
    }

    /// A hook that was let go of is on record as free.
    pub(super) fn closed_hook(&mut self, entry: &Entry, closed: &Closed) -> Result<Fed, Parked> {
        if let Some(closing) = self.closing.remove(&closed.call) {
            return Ok(closing.let_go.map_or(Fed::Nothing, |number| Fed::LetGo { number }));
        }
        let dropped = |number| self.calls.get(number).is_some_and(|made| made.state == State::Dropped);
        if self.numbers.get(&closed.call).is_some_and(dropped) {
            return Ok(Fed::Nothing);
        }
        Err(mismatch(entry, &format!("the code has not let go of {} by then", closed.call)))
    }

    /// What an entry says of a hook whose creation the body has dropped before it was registered.
    pub(super) fn of_dropped_hook(&mut self, registered: &Registered) {
        let has_it = matches!(registered.outcome, HookOutcome::Owned { .. });
        if !has_it && self.closing.get(&registered.call).is_some_and(|closing| !closing.told) {
            self.closing.remove(&registered.call);
        }
    }
}

/// The failure of an await of a hook that another instance has taken.
#[must_use]
pub fn hook_taken(taken: &TakenOver) -> Failure {
    let Other { workflow, id } = &taken.by;
    let message =
        format!("the hook was taken by {workflow}/{id}, which receives what it is resumed with now");
    let claimant = Claimant { instance: taken.by.clone(), hook: taken.by_hook.to_string() };
    let data = Payload::encode(&claimant).ok();
    Failure {
        name: HOOK_TAKEN.to_owned(),
        data,
        permanent: true,
        ..Failure::new(FailureKind::Error, message)
    }
}

/// The failure of an await of a hook that is the instance's no more.
#[must_use]
pub fn hook_disposed(message: &str) -> Failure {
    Failure { name: HOOK_DISPOSED.to_owned(), permanent: true, ..Failure::new(FailureKind::Error, message) }
}
