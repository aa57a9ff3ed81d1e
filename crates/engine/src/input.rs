//! The inputs: every cause of work.

use std::sync::Arc;

use everstep_protocol::{
    BuildName, CallHash, Class, Epoch, EventType, InstanceUid, Millis, Payload, Pin, Reference, SessionId,
    journal::{Awaiting, Progress},
    message::{Again, AttemptOutcome, Have, OpenWait, Report, Then},
};

use crate::{
    access::Asker,
    breach::Breach,
    hook::SentPayload,
    letter::{Letter, Said},
    mailbox::SentEvent,
    rows::Needs,
    start::Start,
};

/// One input of a batch.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "nearly every input is the large one")]
pub enum Input {
    /// Somebody wants a new instance.
    Start(Box<Start>),
    /// Something happened to an instance.
    On {
        /// The instance.
        instance: InstanceUid,
        /// What happened.
        what: What,
    },
    /// Somebody asks for an operation on an instance, which is recorded with them (rule A6).
    Asked {
        /// Who.
        by: Arc<Asker>,
        /// The instance.
        instance: InstanceUid,
        /// The operation.
        what: What,
    },
    /// A letter cannot be delivered: whoever waits for an answer gets this failure.
    Undelivered(Box<Letter>, everstep_protocol::Failure),
}

/// What happened to an instance.
#[derive(Clone, Debug)]
pub enum What {
    /// A session asks for the lease.
    Claim {
        /// Who asks.
        session: SessionId,
        /// What it has kept of the instance (rule W27).
        have: Option<Have>,
    },
    /// The holder reports.
    Report {
        /// Who reports.
        session: SessionId,
        /// The build of its code.
        build: BuildName,
        /// What it reports.
        report: Report,
    },
    /// A session gives the lease back.
    GiveBack {
        /// Who gives it back.
        session: SessionId,
        /// Which lease.
        epoch: Epoch,
    },
    /// The wait of a call may be due.
    Due {
        /// The call.
        call: CallHash,
    },
    /// The lease's session has ended, or its holder never confirmed it (rules W6, W11).
    LeaseEnded {
        /// Whose lease.
        session: SessionId,
        /// Which lease; any of that session if none.
        epoch: Option<Epoch>,
        /// How many steps the session ran at once.
        slots: u32,
        /// Whether the loss counts against the steps that were open.
        counts: bool,
        /// What the attempts that ran under it had told of their progress.
        progress: Vec<Progress>,
    },
    /// A session asks for the lease of a remote step.
    StepClaim {
        /// Who asks.
        session: SessionId,
        /// The call.
        call: CallHash,
    },
    /// The holder of a remote step reports the end of an attempt.
    StepReport {
        /// Who reports.
        session: SessionId,
        /// The build of its code.
        build: BuildName,
        /// The call.
        call: CallHash,
        /// Which lease.
        epoch: Epoch,
        /// How long the attempt ran.
        ran_for: Millis,
        /// How it ended.
        outcome: AttemptOutcome,
        /// What it told last of its progress.
        progress: Option<Payload>,
        /// The output was found by looking (rule L6).
        found: bool,
        /// What its service calls what it did (rule L14).
        reference: Option<Reference>,
    },
    /// The lease of a remote step has ended without a report.
    StepLeaseEnded {
        /// Whose lease.
        session: SessionId,
        /// The build of its code.
        build: BuildName,
        /// The call.
        call: CallHash,
        /// Which lease; any of that session if none.
        epoch: Option<Epoch>,
        /// Whether it counts as an attempt.
        counts: bool,
        /// The worker says that its attempt never began.
        unstarted: bool,
        /// What the attempt that ran under it had told of its progress.
        progress: Option<Payload>,
    },
    /// Somebody sends an event.
    Event(SentEvent),
    /// Somebody resumes a hook (rule H45).
    Payload(SentPayload),
    /// Another instance has written (rule W22).
    Letter(Letter),
    /// Somebody ends the instance.
    Terminate {
        /// The operation's id.
        operation: String,
        /// Who and why.
        reason: Option<String>,
    },
    /// Somebody answers that a parked instance is to be ended (rule L8); one that goes on meanwhile is left alone.
    Abandon {
        /// The operation's id.
        operation: String,
        /// Who and why.
        reason: Option<String>,
    },
    /// Somebody ends the instance after its compensations (rule P38).
    Rollback {
        /// The operation's id.
        operation: String,
        /// Who and why.
        reason: Option<String>,
    },
    /// Somebody wants nothing more to begin (rule P29).
    Pause {
        /// The operation's id.
        operation: String,
    },
    /// Somebody lets a paused instance go on (rule P29).
    Resume {
        /// The operation's id.
        operation: String,
    },
    /// Somebody asks the instance to end by itself (rule P30).
    Cancel {
        /// The operation's id.
        operation: String,
        /// Who and why.
        reason: Option<String>,
        /// How long it may take.
        within: Millis,
        /// Whether compensations run when it ends with the cancel (rule P38).
        rollback: bool,
    },
    /// The deadline of a cancel may be over.
    Overdue,
    /// Somebody wants it run again (rule P31).
    Restart {
        /// The operation's id.
        operation: String,
        /// The new journal, unless it begins from nothing.
        prepared: Option<crate::decide::Prepared>,
    },
    /// Somebody wants it deleted (rule P32).
    Delete {
        /// The operation's id.
        operation: String,
        /// Whether an open one is terminated first.
        terminate: bool,
    },
    /// The retention of an ended instance may be over (rule P32).
    Expire,
    /// Nothing will move it, or not as it should (promise 5).
    Breach(Breach),
    /// The store would not take what a decision about the instance wrote: it is parked (rule W20).
    Unwritable {
        /// What the store said.
        message: String,
    },
    /// Somebody tells a parked instance to go on.
    Retry {
        /// The operation's id.
        operation: String,
    },
    /// Somebody decides under which key a step goes on whose input has changed (rule P8).
    Rekey {
        /// The operation's id.
        operation: String,
        /// The decision.
        rekeying: Box<crate::decide::Rekeying>,
    },
    /// Somebody decides about an attempt of which nobody knows what came of it (rule L8).
    Resolve {
        /// The operation's id.
        operation: String,
        /// The decision.
        resolution: Box<crate::decide::Resolution>,
    },
    /// Somebody pins it to a build, or lets any build have it (rule P40).
    Pin {
        /// The operation's id.
        operation: String,
        /// The build.
        pin: Option<Pin>,
    },
}

impl Input {
    /// Adds the rows that the decision on this input reads.
    pub fn needs(&self, needs: &mut Needs) {
        match self {
            Self::Start(start) => start.needs(needs),
            Self::On { instance, what } | Self::Asked { instance, what, .. } => {
                needs.heads.push(*instance);
                what.needs(*instance, needs);
            }
            Self::Undelivered(letter, _) => needs.letters.push(letter.number),
        }
    }

    /// The instance that it is about, if that exists already.
    #[must_use]
    pub const fn instance(&self) -> Option<InstanceUid> {
        match self {
            Self::Start(_) | Self::Undelivered(..) => None,
            Self::On { instance, .. } | Self::Asked { instance, .. } => Some(*instance),
        }
    }
}

impl What {
    fn needs(&self, instance: InstanceUid, needs: &mut Needs) {
        match self {
            Self::Report { report, .. } => of_report(instance, report, needs),
            Self::Event(event) => of_event(instance, event, needs),
            Self::Payload(payload) => of_payload(instance, payload, needs),
            Self::Letter(letter) => of_letter(instance, letter, needs),
            Self::Breach(breach) => of_breach(instance, breach, needs),
            Self::GiveBack { .. } | Self::LeaseEnded { .. } => {}
            Self::Expire => needs.expiries.push(instance),
            Self::Claim { .. } | Self::Overdue | Self::Unwritable { .. } => needs.runnable.push(instance),
            Self::Due { call } => {
                needs.runnable.push(instance);
                needs.waits.push((instance, *call));
                needs.remotes.push((instance, *call));
            }
            Self::StepClaim { call, .. }
            | Self::StepReport { call, .. }
            | Self::StepLeaseEnded { call, .. } => {
                needs.runnable.push(instance);
                needs.remotes.push((instance, *call));
                needs.waits.push((instance, *call));
            }
            Self::Restart { operation, .. } => {
                needs.runnable.push(instance);
                needs.operations.push((instance, operation.clone()));
                needs.firsts.push(instance);
                needs.start_hooks.push(instance);
            }
            Self::Resolve { operation, resolution } => {
                needs.runnable.push(instance);
                needs.operations.push((instance, operation.clone()));
                needs.remotes.extend(resolution.call.map(|call| (instance, call)));
                needs.waits.extend(resolution.call.map(|call| (instance, call)));
            }
            Self::Terminate { operation, .. }
            | Self::Abandon { operation, .. }
            | Self::Rollback { operation, .. }
            | Self::Retry { operation }
            | Self::Rekey { operation, .. }
            | Self::Pin { operation, .. }
            | Self::Pause { operation }
            | Self::Resume { operation }
            | Self::Cancel { operation, .. }
            | Self::Delete { operation, .. } => {
                needs.runnable.push(instance);
                needs.operations.push((instance, operation.clone()));
            }
        }
    }
}

fn of_event(instance: InstanceUid, event: &SentEvent, needs: &mut Needs) {
    needs.runnable.push(instance);
    needs.event_ids.push((instance, event.id.clone()));
    needs.waiters.push((instance, event.kind.clone(), event.key.clone()));
}

fn of_payload(instance: InstanceUid, payload: &SentPayload, needs: &mut Needs) {
    needs.runnable.push(instance);
    needs.event_ids.push((instance, payload.event_id()));
    needs.waiters.push((instance, EventType::of_hook(payload.hook), None));
    needs.tokens_of.push((instance, payload.token.clone()));
}

fn of_letter(instance: InstanceUid, letter: &Letter, needs: &mut Needs) {
    needs.runnable.push(instance);
    needs.letters.push(letter.number);
    match &letter.said {
        Said::Start { .. } => {}
        Said::Watch => needs.lasts.push(instance),
        Said::Event(event) => of_event(instance, event, needs),
        Said::Resume { sent, .. } => of_payload(instance, sent, needs),
        Said::Returned { .. } => needs.waits.push((instance, letter.caller.call)),
        Said::Terminate { .. } | Said::Cancel { .. } => needs.parents.push(instance),
        Said::Claim(claim) => {
            needs.tokens_of.push((instance, claim.asked.token.clone()));
            needs.waiters.push((instance, EventType::of_hook(claim.held), None));
        }
        Said::Claimed { claim, .. } => {
            needs.waits.push((instance, letter.caller.call));
            needs.tokens_of.push((instance, claim.asked.token.clone()));
        }
    }
}

fn of_breach(instance: InstanceUid, breach: &Breach, needs: &mut Needs) {
    needs.runnable.push(instance);
    match breach {
        Breach::Idle(calls) | Breach::WaitsMiscounted(calls) => {
            needs.tallies.push(instance);
            needs.waits.extend(calls.waits.keys().map(|call| (instance, *call)));
        }
        Breach::SessionUnknown { subject, .. } => {
            let call = subject.call().map(|call| (instance, call));
            needs.remotes.extend(call);
            needs.waits.extend(call);
        }
        Breach::StepUnoffered(call) | Breach::StepMissing(call) => {
            needs.remotes.push((instance, *call));
            needs.waits.push((instance, *call));
        }
        Breach::EventUnheard { call, awaited } => {
            needs.waits.push((instance, *call));
            let topic = |kind: &EventType| (instance, kind.clone(), awaited.key.clone());
            needs.unread.extend(awaited.types.iter().map(topic));
        }
        Breach::HookMissing(call) => {
            needs.tallies.push(instance);
            needs.waits.push((instance, *call));
        }
        Breach::ChildUnwatched { call, .. } => needs.waits.push((instance, *call)),
    }
}

/// A report of attempts needs no side rows. The wait of an event takes the oldest that fits, and what is closed is looked up.
fn of_report(instance: InstanceUid, report: &Report, needs: &mut Needs) {
    for open in &report.opened {
        match &open.wait {
            OpenWait::Event { types, key, .. } => {
                needs.unread.extend(types.iter().map(|kind| (instance, kind.clone(), key.clone())));
            }
            OpenWait::Hook(hook) => needs.tokens_of.push((instance, hook.token.clone())),
            OpenWait::Payload(Awaiting { hook, token }) => {
                needs.unread.push((instance, EventType::of_hook(*hook), None));
                needs.tokens_of.push((instance, token.clone()));
            }
            OpenWait::Child(_) => needs.parents.push(instance),
            OpenWait::Sleep(_)
            | OpenWait::SleepUntil(_)
            | OpenWait::Remote(_)
            | OpenWait::Patch
            | OpenWait::Instance(_)
            | OpenWait::Send(_)
            | OpenWait::Reply(_)
            | OpenWait::Resume(_)
            | OpenWait::Rollback { .. } => {}
        }
    }
    // A report that comes too late may say what came of an attempt that a person is asked about.
    let once = report.results.iter().filter(|end| end.policy.class == Class::AtMostOnce);
    needs.waits.extend(once.map(|end| (instance, end.call.hash())));
    if let Then::Again(Again { hook: Some(token), .. }) = &report.then {
        needs.tokens_of.push((instance, token.clone()));
    }
    for closed in &report.closed {
        let call = closed.call.hash();
        needs.waits.push((instance, call));
        needs.remotes.push((instance, call));
        needs.returns.push((instance, call));
        needs.tokens_of.extend(closed.hook.iter().map(|token| (instance, token.clone())));
    }
}
