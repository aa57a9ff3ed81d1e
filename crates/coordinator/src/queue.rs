//! The one queue before the transactions: adaptive group commit (rules W19, W20, W21).
//!
//! A batch begins at once when none is under way; while one is, inputs gather; a second begins only when enough wait. Inputs of
//! an instance that is in a running batch are held back, in order.

use std::collections::{HashMap, HashSet, VecDeque};

use everstep_engine::Input;
use everstep_protocol::InstanceUid;

use crate::arrival::Arrival;

/// Bytes of reports and inputs in one batch, so that a transaction stays short (rule W20).
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Transactions at once.
const RUNNING_MAX: usize = 2;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<Arrival>,
    /// Inputs that go alone: their head was locked elsewhere three times, or their batch was refused.
    alone: VecDeque<Arrival>,
    /// Instances in running batches, with the inputs that came for them meanwhile.
    busy: HashMap<InstanceUid, VecDeque<Arrival>>,
    running: usize,
    batch: usize,
    second_at: usize,
}

impl Queue {
    pub(crate) fn new(batch: usize, second_at: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            alone: VecDeque::new(),
            busy: HashMap::new(),
            running: 0,
            batch,
            second_at,
        }
    }

    pub(crate) fn push(&mut self, arrival: Arrival) {
        match arrival.input.instance().and_then(|uid| self.busy.get_mut(&uid)) {
            Some(held) => held.push_back(arrival),
            None if arrival.held >= 3 => self.alone.push_back(arrival),
            None => self.waiting.push_back(arrival),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len() + self.alone.len()
    }

    /// The next batch, if one may begin now.
    pub(crate) fn next(&mut self) -> Option<Vec<Arrival>> {
        let may_begin = match self.running {
            0 => !self.waiting.is_empty() || !self.alone.is_empty(),
            running => running < RUNNING_MAX && self.waiting.len() >= self.second_at,
        };
        if !may_begin {
            return None;
        }
        let batch = match self.next_alone() {
            Some(arrival) => vec![arrival],
            None => self.gather(),
        };
        if batch.is_empty() {
            return None;
        }
        for uid in batch.iter().filter_map(|arrival| arrival.input.instance()) {
            self.busy.entry(uid).or_default();
        }
        self.running += 1;
        Some(batch)
    }

    fn next_alone(&mut self) -> Option<Arrival> {
        let arrival = self.alone.pop_front()?;
        match arrival.input.instance().and_then(|uid| self.busy.get_mut(&uid)) {
            Some(held) => {
                held.push_back(arrival);
                None
            }
            None => Some(arrival),
        }
    }

    fn gather(&mut self) -> Vec<Arrival> {
        let mut batch = Vec::with_capacity(self.batch.min(self.waiting.len()));
        let mut bytes = 0;
        while batch.len() < self.batch
            && let Some(arrival) = self.waiting.pop_front()
        {
            if let Some(held) = arrival.input.instance().and_then(|uid| self.busy.get_mut(&uid)) {
                held.push_back(arrival);
                continue;
            }
            bytes += size(&arrival.input);
            if bytes > BATCH_BYTES && !batch.is_empty() {
                self.waiting.push_front(arrival);
                break;
            }
            batch.push(arrival);
        }
        batch
    }

    /// A batch is over: what was held back for its instances goes first.
    pub(crate) fn finished(&mut self, instances: &HashSet<InstanceUid>) {
        self.running -= 1;
        for uid in instances {
            for arrival in self.busy.remove(uid).unwrap_or_default().into_iter().rev() {
                if arrival.held >= 3 {
                    self.alone.push_front(arrival);
                } else {
                    self.waiting.push_front(arrival);
                }
            }
        }
    }

    /// Inputs whose heads were locked elsewhere go first, in order: nothing of their instances may overtake them (rule P22).
    pub(crate) fn again(&mut self, arrivals: Vec<Arrival>) {
        for arrival in arrivals.into_iter().rev() {
            match arrival.input.instance().and_then(|uid| self.busy.get_mut(&uid)) {
                Some(held) => held.push_front(arrival),
                None if arrival.held >= 3 => self.alone.push_front(arrival),
                None => self.waiting.push_front(arrival),
            }
        }
    }

    /// Everything that waits, for a coordinator that stops.
    pub(crate) fn drain(&mut self) -> Vec<Arrival> {
        let mut rest: Vec<_> = self.waiting.drain(..).chain(self.alone.drain(..)).collect();
        rest.extend(self.busy.drain().flat_map(|(_, held)| held));
        rest
    }
}

fn size(input: &Input) -> usize {
    use everstep_engine::{What, letter::Said};
    use everstep_protocol::journal::{Choice, Outcome};
    use everstep_protocol::message::{AttemptOutcome, OpenWait, Then};
    let outcome = |outcome: &AttemptOutcome| match outcome {
        AttemptOutcome::Succeeded(output) => output.len(),
        AttemptOutcome::Failed { failure, .. } | AttemptOutcome::Unknown { failure, .. } => {
            failure.message.len()
        }
    };
    match input {
        Input::Start(start) => start.input.len(),
        Input::On { what: What::Report { report, .. }, .. } => {
            let results: usize = report.results.iter().map(|end| outcome(&end.outcome)).sum();
            let opened: usize = report
                .opened
                .iter()
                .map(|open| match &open.wait {
                    OpenWait::Remote(remote) => remote.input.len(),
                    OpenWait::Child(child) => child.input.len(),
                    OpenWait::Send(sending) => sending.payload.len(),
                    OpenWait::Hook(hook) => hook.bytes(),
                    OpenWait::Reply(reply) => reply.response.bytes(),
                    OpenWait::Resume(resuming) => resuming.payload.len(),
                    OpenWait::Sleep(_)
                    | OpenWait::SleepUntil(_)
                    | OpenWait::Event { .. }
                    | OpenWait::Instance(_)
                    | OpenWait::Payload(_)
                    | OpenWait::Rollback { .. }
                    | OpenWait::Patch => 0,
                })
                .sum();
            let then = match &report.then {
                Then::End(everstep_protocol::journal::End::Complete(output)) => output.len(),
                Then::Again(again) => again.input.len(),
                _ => 0,
            };
            results + opened + then + report.state.as_ref().map_or(0, everstep_protocol::Payload::len)
        }
        Input::On { what: What::Event(event), .. } => event.payload.len(),
        Input::On { what: What::Payload(sent), .. } => sent.payload.len(),
        Input::On { what: What::Letter(letter), .. } => match &letter.said {
            Said::Event(event) => event.payload.len(),
            Said::Resume { sent, .. } => sent.payload.len(),
            Said::Returned { outcome: Outcome::Succeeded(output), .. } => output.len(),
            _ => 0,
        },
        Input::On { what: What::StepReport { outcome: ended, .. }, .. } => outcome(ended),
        Input::On { what: What::Restart { prepared: Some(prepared), .. }, .. }
        | Input::Asked { what: What::Restart { prepared: Some(prepared), .. }, .. } => {
            prepared.entries.iter().map(|entry| entry.fact.payload_bytes() as usize).sum()
        }
        Input::Asked { what: What::Resolve { resolution, .. }, .. } => match &resolution.choice {
            Choice::Done(output) => output.len(),
            Choice::Again | Choice::Fail(_) => 0,
        },
        Input::Undelivered(..) | Input::On { .. } | Input::Asked { .. } => 0,
    }
}
