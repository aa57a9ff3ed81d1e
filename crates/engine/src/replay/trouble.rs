//! What is said when code and journal disagree, and the failures that calls end with for no doing of their own.

use everstep_protocol::{
    BuildName, Call, Failure, FailureKind, Fingerprint,
    journal::{Cancelled, Entry, ParkCode, Parked},
};

/// Whether the code gives a call another input than is recorded; an error if the very build that recorded it does (rule P8).
pub(super) fn is_changed(
    entry: &Entry,
    call: &Call,
    now: (Fingerprint, &BuildName),
    recorded: (Fingerprint, Option<&BuildName>),
) -> Result<bool, Parked> {
    let changed = now.0 != recorded.0;
    if changed && recorded.1 == Some(now.1) {
        return Err(mismatch(entry, &format!("the same build now gives {call} another input")));
    }
    Ok(changed)
}

pub(super) fn input_changed(call: &Call, what: &str) -> Parked {
    let message = format!("{call} {what} but has no outcome, and the code now gives it another input");
    Parked::new(ParkCode::InputChanged, message)
}

pub(super) fn mismatch(entry: &Entry, what: &str) -> Parked {
    let message = format!("the code disagrees with entry {} ({}): {what}", entry.position, entry.fact.word());
    Parked::new(ParkCode::JournalMismatch, message)
}

/// The failure of a call for which no event came in time: of the kind of a step's timeout, under a name of its own (rule P21).
#[must_use]
pub fn event_timed_out(call: &Call) -> Failure {
    let message = format!("no event came for {call} in time");
    Failure { name: EVENT_TIMED_OUT.to_owned(), ..Failure::new(FailureKind::TimedOut, message) }
}

/// The name of an event's timeout.
pub const EVENT_TIMED_OUT: &str = "EventTimedOut";

/// The error of the calls that were open when the instance was cancelled.
#[must_use]
pub fn cancelled_failure(cancelled: &Cancelled) -> Failure {
    let message = match &cancelled.reason {
        Some(reason) => format!("the instance was cancelled: {reason}"),
        None => "the instance was cancelled".to_owned(),
    };
    Failure::new(FailureKind::Cancelled, message)
}

/// The failure of an attempt that a history which was lost may have made.
#[must_use]
pub fn restored_failure() -> Failure {
    Failure::new(
        FailureKind::WorkerLost,
        "an older database was restored, and the history that was lost may have called this step",
    )
}

/// The failure that a lost attempt is recorded with.
#[must_use]
pub fn lost_failure() -> Failure {
    Failure::new(FailureKind::WorkerLost, "the worker that ran it was lost")
}
