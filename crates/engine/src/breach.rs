//! Breaches of promise 5: an open instance that nothing will move, though the engine never writes one. Damage from outside, a
//! restore of a part, or a bug of the engine can.
//!
//! A store finds suspects without locks, in one snapshot each. What is mended is decided under the head's lock, by an input like all
//! others ([`What::Breach`](crate::What)): what has moved on meanwhile is left alone.
//!
//! | kind | what is wrong | how it is mended |
//! | --- | --- | --- |
//! | `idle` | no lease, ready row, wait, pause or question | waits that its journal has open are opened; else it is runnable |
//! | `waits_miscounted` | the head counts other waits than there are | counted anew; waits that its journal has open are opened |
//! | `session_unknown` | a lease of a session that was never opened | the lease ends like one given back |
//! | `step_unoffered` | a remote step that nobody has and nothing offers | it is offered; one that is called at most once and had been taken up asks |
//! | `step_missing` | a wait for a remote step that is not there | a person is asked |
//! | `event_unheard` | a wait that no event finds, or that an unread event fits | the event is delivered, or the wait is found again |
//! | `hook_missing` | a wait for a hook, and the instance owns none | the wait ends, like that of a hook which is over |
//! | `child_unwatched` | a wait for a child that tells nobody | the child is asked again how it ends |

use std::collections::BTreeMap;

use everstep_protocol::{
    BuildName, Call, CallHash, Position, Run, SessionId,
    journal::{Choice, Entry, Fact, Opened, Wait},
};

use crate::{
    mailbox::Awaited,
    rows::{Subject, WaitKind, WaitRow},
    start::NameKey,
};

/// What is wrong with an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum Breach {
    /// Nothing at all will move it. With what its journal has open.
    Idle(Calls),
    /// Its head counts other waits than there are. With what its journal has open.
    WaitsMiscounted(Calls),
    /// A lease is held by a session that nobody knows.
    SessionUnknown {
        /// The session.
        session: SessionId,
        /// The instance, or one of its remote steps.
        subject: Subject,
        /// What is recorded as the build of its code.
        build: BuildName,
    },
    /// Nobody has a remote step, and nothing offers it.
    StepUnoffered(CallHash),
    /// The remote step that a call waits for is not there.
    StepMissing(CallHash),
    /// No event will find a wait, or one that fits it is unread.
    EventUnheard {
        /// The call that waits.
        call: CallHash,
        /// What for.
        awaited: Awaited,
    },
    /// A call waits for a hook, and the instance owns none.
    HookMissing(CallHash),
    /// A call waits for a child that does not know of it.
    ChildUnwatched {
        /// The call.
        call: CallHash,
        /// The child.
        child: NameKey,
    },
}

/// The kinds of breaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreachKind {
    /// See [`Breach::Idle`].
    Idle,
    /// See [`Breach::WaitsMiscounted`].
    WaitsMiscounted,
    /// See [`Breach::SessionUnknown`].
    SessionUnknown,
    /// See [`Breach::StepUnoffered`].
    StepUnoffered,
    /// See [`Breach::StepMissing`].
    StepMissing,
    /// See [`Breach::EventUnheard`].
    EventUnheard,
    /// See [`Breach::HookMissing`].
    HookMissing,
    /// See [`Breach::ChildUnwatched`].
    ChildUnwatched,
}

everstep_protocol::every! {
    /// Every kind.
    pub BreachKind: Idle, WaitsMiscounted, SessionUnknown, StepUnoffered, StepMissing, EventUnheard, HookMissing, ChildUnwatched
}

impl BreachKind {
    /// The word in metrics, logs and records. Never changes its meaning.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::WaitsMiscounted => "waits_miscounted",
            Self::SessionUnknown => "session_unknown",
            Self::StepUnoffered => "step_unoffered",
            Self::StepMissing => "step_missing",
            Self::EventUnheard => "event_unheard",
            Self::HookMissing => "hook_missing",
            Self::ChildUnwatched => "child_unwatched",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// What was wrong, for people.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Idle => {
                "it was open, and no lease, ready row, wait, pause or question would ever have moved it"
            }
            Self::WaitsMiscounted => "its head counted other waits than there were rows of",
            Self::SessionUnknown => {
                "its lease was held by a session that was never opened, so that nothing would have ended it"
            }
            Self::StepUnoffered => "nobody had one of its remote steps, and nothing would have offered it",
            Self::StepMissing => "a call waited for a remote step of which there was no row",
            Self::EventUnheard => "a call waited for an event, and none would have found it",
            Self::HookMissing => "a call waited for a hook to be resumed, and the instance owned none",
            Self::ChildUnwatched => "a call waited for a child that would not have told it of its end",
        }
    }

    /// How it is mended, for people.
    #[must_use]
    pub const fn mending(self) -> &'static str {
        match self {
            Self::Idle => {
                "waits that its journal has open were opened again; without any it was made runnable"
            }
            Self::WaitsMiscounted => {
                "they were counted anew, and waits that its journal has open were opened again"
            }
            Self::SessionUnknown => "the lease was ended like one that is given back",
            Self::StepUnoffered => {
                "the step was offered to its pool; one that is called at most once and had been taken up asks a person"
            }
            Self::StepMissing => "nothing is left to run",
            Self::EventUnheard => {
                "the oldest unread event that fits was delivered; without any the wait is found by the next"
            }
            Self::HookMissing => "the wait was ended, like that for a hook which is over",
            Self::ChildUnwatched => "the child was asked again how it ends",
        }
    }
}

impl Breach {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> BreachKind {
        match self {
            Self::Idle(_) => BreachKind::Idle,
            Self::WaitsMiscounted(_) => BreachKind::WaitsMiscounted,
            Self::SessionUnknown { .. } => BreachKind::SessionUnknown,
            Self::StepUnoffered(_) => BreachKind::StepUnoffered,
            Self::StepMissing(_) => BreachKind::StepMissing,
            Self::EventUnheard { .. } => BreachKind::EventUnheard,
            Self::HookMissing(_) => BreachKind::HookMissing,
            Self::ChildUnwatched { .. } => BreachKind::ChildUnwatched,
        }
    }

    /// What is to be filled with the instance's journal before it is decided on.
    pub const fn calls(&mut self) -> Option<&mut Calls> {
        match self {
            Self::Idle(calls) | Self::WaitsMiscounted(calls) => Some(calls),
            Self::SessionUnknown { .. }
            | Self::StepUnoffered(_)
            | Self::StepMissing(_)
            | Self::EventUnheard { .. }
            | Self::HookMissing(_)
            | Self::ChildUnwatched { .. } => None,
        }
    }
}

/// What the store says of an instance's waits and hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// How many wait rows there are.
    pub waits: u32,
    /// How many its head says there are.
    pub noted: u32,
    /// It owns a token.
    pub has_hook: bool,
}

/// The calls that a journal has open, of those that wait for something: read entry by entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The run.
    pub run: Run,
    /// The last entry that was read.
    pub last: Position,
    /// Open calls with what their wait rows say.
    pub(crate) waits: BTreeMap<CallHash, Expected>,
    /// Where a cancel or rollback has ended what was open: calls made before it open nothing.
    ended: Option<Position>,
}

/// The wait of an open call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    /// Its row follows from the journal.
    Row(Box<WaitRow>),
    /// Its row would not be enough: what it waits for has rows of its own.
    More(Call),
}

impl Calls {
    /// Of this run, of which nothing is read yet.
    #[must_use]
    pub fn of(run: Run) -> Self {
        Self { run, ..Self::default() }
    }

    /// The next entry.
    pub fn read(&mut self, entry: &Entry) {
        self.last = entry.position;
        match &entry.fact {
            Fact::Opened(opened) => self.open(entry, opened),
            Fact::Attempted(attempted) => {
                let is_remote = self.is_remote(attempted.call.hash());
                let asked = crate::decide::asked(entry, attempted);
                let is_over = self.is_over(attempted.called_after);
                let expected = match (asked, attempted.retry_at()) {
                    _ if is_over => None,
                    (Some(wait), _) => Some(Expected::Row(Box::new(wait))),
                    (None, Some(_)) if is_remote => Some(Expected::More(attempted.call.clone())),
                    (None, Some(due_at)) if due_at > entry.at => {
                        Some(Expected::Row(Box::new(timed(&attempted.call, WaitKind::Retry, entry, due_at))))
                    }
                    (None, _) => None,
                };
                self.expect(&attempted.call, expected);
            }
            // Of a remote step that is to be run again the row was kept, and so the call still waits for more than its wait.
            Fact::Resolved(resolved) if resolved.choice == Choice::Again => {
                self.waits.remove(&resolved.call.hash());
            }
            Fact::Cancelled(_) | Fact::Rollback(_) => {
                self.waits.clear();
                self.ended = Some(entry.position);
            }
            Fact::Ended(_) | Fact::Continued(_) => self.waits.clear(),
            Fact::Fired { .. }
            | Fact::Delivered(_)
            | Fact::Received(_)
            | Fact::Closed(_)
            | Fact::Returned(_)
            | Fact::Registered(_)
            | Fact::Resolved(_) => {
                if let Some(call) = entry.fact.call() {
                    self.waits.remove(&call.hash());
                }
            }
            Fact::Started(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Rekeyed(_)
            | Fact::Patched(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Reusable(_)
            | Fact::TakenOver(_)
            | Fact::Intended(_)
            | Fact::Withdrawn(_) => {}
        }
    }

    fn open(&mut self, entry: &Entry, opened: &Opened) {
        if self.is_over(opened.called_after) {
            return;
        }
        let expected = match &opened.wait {
            Wait::Sleep { until } => {
                Some(Expected::Row(Box::new(timed(&opened.call, WaitKind::Sleep, entry, *until))))
            }
            Wait::Event { .. } | Wait::Payload(_) => {
                crate::decide::awaiting(entry).map(|wait| Expected::Row(Box::new(wait)))
            }
            Wait::Remote(_)
            | Wait::Child(_)
            | Wait::Instance(_)
            | Wait::Send(_)
            | Wait::Resume(_)
            | Wait::Hook(_) => Some(Expected::More(opened.call.clone())),
            Wait::Reply(_) => None,
        };
        self.expect(&opened.call, expected);
    }

    fn expect(&mut self, call: &Call, expected: Option<Expected>) {
        match expected {
            Some(expected) => drop(self.waits.insert(call.hash(), expected)),
            None => drop(self.waits.remove(&call.hash())),
        }
    }

    fn is_remote(&self, call: CallHash) -> bool {
        matches!(self.waits.get(&call), Some(Expected::More(_)))
    }

    fn is_over(&self, called_after: Position) -> bool {
        self.ended.is_some_and(|ended| called_after < ended)
    }
}

fn timed(call: &Call, kind: WaitKind, entry: &Entry, due_at: everstep_protocol::Timestamp) -> WaitRow {
    let (since, due_at) = (entry.at, Some(due_at));
    WaitRow { call: call.clone(), kind, since, due_at, awaited: None, question: None }
}
