//! Reports of one lease that are not acknowledged yet: kept whole, sent again in order (rule W7).

use std::{collections::VecDeque, time::Duration};

use everstep_protocol::{
    Attempt, Call,
    message::{AttemptEnd, Report, Taken, Then},
};
use tokio::time::Instant;

use super::Finish;
use crate::clock::Resend;

/// Two answers "out of order" within this time speak of the same gap.
const SAME_GAP: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Reports {
    next: u64,
    /// With when each was sent first.
    unanswered: VecDeque<(Report, Instant)>,
    resend: Option<Resend>,
    rewound: Option<Instant>,
    finish: Option<Finish>,
}

impl Reports {
    /// Begins after the last report of the lease that was taken.
    pub(super) const fn after(taken: u64) -> Self {
        Self {
            next: taken.saturating_add(1),
            unanswered: VecDeque::new(),
            resend: None,
            rewound: None,
            finish: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// A report that is unanswered says what came of this attempt.
    pub(super) fn tell(&self, call: &Call, attempt: Attempt) -> bool {
        if everstep_protocol::planted("loser_told_twice") {
            return false;
        }
        let is_it = |end: &AttemptEnd| end.call == *call && end.attempt == attempt;
        self.unanswered.iter().any(|(report, _)| report.results.iter().any(is_it))
    }

    /// A fold, suspend, end or park is unanswered: nothing may move until it is.
    pub(super) fn is_settling(&self) -> bool {
        self.unanswered.back().is_some_and(|(report, _)| report.folded || report.then != Then::Continue)
    }

    /// A suspend is unanswered.
    pub(super) fn is_suspending(&self) -> bool {
        self.unanswered.back().is_some_and(|(report, _)| report.then == Then::Suspend)
    }

    /// The lease is over by an acknowledged report.
    pub(super) const fn finish(&self) -> Option<Finish> {
        self.finish
    }

    pub(super) const fn next_number(&self) -> u64 {
        self.next
    }

    /// The number of the last report that was answered, as were all before it.
    pub(super) fn answered(&self) -> u64 {
        self.unanswered.front().map_or(self.next, |(first, _)| first.number).saturating_sub(1)
    }

    /// Keeps a report that is sent now.
    pub(super) fn push(&mut self, report: Report, now: Instant) {
        if self.unanswered.is_empty() {
            self.resend = Some(Resend::begin(now));
        }
        self.next = self.next.saturating_add(1);
        self.unanswered.push_back((report, now));
    }

    /// The report of that number is answered. Says how long after it was sent first.
    pub(super) fn take(&mut self, number: u64, taken: Taken, now: Instant) -> Option<(Report, Duration)> {
        let at = self.unanswered.iter().position(|(report, _)| report.number == number)?;
        let (report, sent) = self.unanswered.remove(at)?;
        self.resend = (!self.unanswered.is_empty()).then(|| Resend::begin(now));
        if taken == Taken::Whole {
            self.finish = match report.then {
                Then::Continue => None,
                Then::Suspend => Some(Finish::Suspended),
                Then::End(_) => Some(Finish::Ended),
                Then::Park(_) => Some(Finish::Parked),
                Then::Again(_) => Some(Finish::Continued),
            };
        }
        Some((report, now.saturating_duration_since(sent)))
    }

    /// Everything up to that number was taken before, and its answers were lost. Whether a fold was among it.
    pub(super) fn taken_to(&mut self, number: u64, now: Instant) -> bool {
        let mut folded = false;
        while self.unanswered.front().is_some_and(|(report, _)| report.number <= number) {
            folded |= self.unanswered.pop_front().is_some_and(|(report, _)| report.folded);
        }
        self.resend = (!self.unanswered.is_empty()).then(|| Resend::begin(now));
        folded
    }

    /// An earlier report is missing: everything from there is due at once. False if it is not here either.
    pub(super) fn rewind(&mut self, expected: u64, now: Instant) -> bool {
        if self.rewound.is_some_and(|at| now.saturating_duration_since(at) < SAME_GAP) {
            return true;
        }
        self.rewound = Some(now);
        self.hurry(now);
        self.unanswered.front().is_none_or(|(first, _)| first.number <= expected)
    }

    /// The coordinator has forgotten what it took: the lease is given back.
    pub(super) fn forsake(&mut self) {
        self.finish = Some(Finish::GivenBack);
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        if let Some(resend) = &mut self.resend {
            resend.hurry(now);
        }
    }

    /// What is due to be sent again, and for how long it is worth something.
    pub(super) fn due(&mut self, now: Instant) -> Option<(Vec<Report>, Duration)> {
        let resend = self.resend.as_mut()?;
        if !resend.is_due(now) || everstep_protocol::planted("report_sent_once") {
            return None;
        }
        Some((self.unanswered.iter().map(|(report, _)| report.clone()).collect(), resend.interval()))
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.resend.as_ref().map(Resend::at)
    }
}
