//! What each kind of entry does to the calls that the body has open.

use everstep_protocol::{
    Call, CallKind, Payload,
    journal::{
        Attempted, Cancelled, Child, Choice, Closed, Delivered, Entry, Fact, Lost, Opened, Outcome, Parked,
        Patched, Progress, Resuming, Returned, Sending, Wait,
    },
};

use super::{
    Asked, Fed, Replay,
    made::{Closing, Made, State},
    trouble::{cancelled_failure, event_timed_out, is_changed, mismatch},
};

/// How many of its open calls the message of a mismatch names.
const CALLS_NAMED: usize = 3;

impl Replay {
    /// The call that an entry is about; none if the body made and dropped it, an error if it never made it.
    pub(super) fn target(&mut self, entry: &Entry, call: &Call) -> Result<Option<(u64, &mut Made)>, Parked> {
        let Some(number) = self.numbers.get(call).copied() else {
            let what = format!("the code has not called {call} by then; {}", self.asks_for());
            return Err(mismatch(entry, &what));
        };
        match self.calls.get_mut(&number) {
            Some(made) if made.state == State::Dropped => Ok(None),
            Some(made) => Ok(Some((number, made))),
            None => Err(mismatch(entry, &format!("{call} has its outcome already"))),
        }
    }

    /// What the code asks for where the journal says otherwise.
    fn asks_for(&self) -> String {
        let wanted = |made: &&Made| !matches!(made.state, State::Dropped | State::Folded);
        let mut open = self.calls.values().filter(wanted).map(|made| made.call.to_string());
        let named: Vec<String> = open.by_ref().take(CALLS_NAMED).collect();
        match (named.is_empty(), open.count()) {
            (true, _) => "it asks for nothing more".to_owned(),
            (false, 0) => format!("it asks for {}", named.join(", ")),
            (false, more) => format!("it asks for {} and {more} more", named.join(", ")),
        }
    }

    /// What an entry says of the wait of a call that the body has dropped: it is open, or it is over and need not be closed. An
    /// event that came to such a call is no end of it: it has to return (rule P22).
    pub(super) fn of_dropped(&mut self, entry: &Entry) {
        let made = entry
            .fact
            .call()
            .and_then(|call| self.numbers.get(call))
            .and_then(|number| self.calls.get(number));
        let Some(made) = made.filter(|made| made.state == State::Dropped) else { return };
        let opens = match &entry.fact {
            // Opened after the cancel that ended it: it never got the token, which another hook may have by now.
            Fact::Opened(_) if made.over_by_cancel && made.token().is_some() => return,
            Fact::Opened(_) => true,
            Fact::Registered(registered) => return self.of_dropped_hook(registered),
            // Of a remote step that is run again the wait goes on.
            Fact::Resolved(resolved)
                if resolved.choice == Choice::Again && matches!(made.asked, Asked::Remote(_)) =>
            {
                return;
            }
            Fact::Fired { .. } | Fact::Returned(_) | Fact::Resolved(_) => false,
            Fact::Attempted(attempted) if attempted.goes_on() && attempted.retry_at().is_none() => {
                // After a cancel nobody is asked.
                if made.over_by_cancel || matches!(made.asked, Asked::Remote(_)) {
                    return;
                }
                true
            }
            Fact::Attempted(attempted) => match attempted.retry_at() {
                // The coordinator retries a remote step, whose wait goes on.
                Some(_) if matches!(made.asked, Asked::Remote(_)) => return,
                Some(retry_at) => retry_at > entry.at,
                None => false,
            },
            Fact::Started(_)
            | Fact::Delivered(_)
            | Fact::Received(_)
            | Fact::TakenOver(_)
            | Fact::Closed(_)
            | Fact::Patched(_)
            | Fact::Cancelled(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Rekeyed(_)
            | Fact::Continued(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Rollback(_)
            | Fact::Reusable(_)
            | Fact::Intended(_)
            | Fact::Withdrawn(_)
            | Fact::Ended(_) => return,
        };
        if opens {
            let hook = made.token().cloned();
            let closing = Closing { after: made.dropped_after, told: false, hook, let_go: None };
            self.closing.entry(made.call.clone()).or_insert(closing);
        } else if self.closing.get(&made.call).is_some_and(|closing| !closing.told) {
            self.closing.remove(&made.call);
        }
    }

    pub(super) fn attempted(&mut self, entry: &Entry, attempted: &Attempted) -> Result<Fed, Parked> {
        self.ledger.written(&attempted.call, entry.at);
        let build = self.build.clone();
        let Some((number, made)) = self.target(entry, &attempted.call)? else {
            return Ok(Fed::Nothing);
        };
        // A child, an event or a payload that is refused here has its outcome like a step.
        let (Asked::Step(input)
        | Asked::Remote(input)
        | Asked::Child(input)
        | Asked::Send(input)
        | Asked::Resume(input)) = made.asked
        else {
            return Err(mismatch(entry, &format!("the code calls {} as {}", attempted.call, made.asked)));
        };
        // What a remote step was given was compared when it was opened: its attempts bear the builds of the pool.
        let changed = if made.state == State::Waiting || made.is_before_decision(attempted.attempt) {
            made.input_changed
        } else {
            is_changed(entry, &attempted.call, (input, &build), (attempted.input, Some(&attempted.build)))?
        };
        made.attempt = made.attempt.max(attempted.attempt.next());
        made.losses.retain(|(lost, _)| *lost > attempted.attempt);
        made.pin(attempted.attempt, (attempted.key, attempted.policy), attempted.input);
        if !made.is_before_decision(attempted.attempt) {
            made.first_at.get_or_insert(attempted.started_at);
        }
        if made.intent.as_ref().is_some_and(|intent| intent.is_of(attempted.attempt)) {
            made.intent = None;
        }
        let result = match &attempted.outcome {
            Outcome::Succeeded(output) => Ok(output.clone()),
            Outcome::Unknown { asks: true, .. } => {
                made.changes(changed, attempted.input);
                made.state = State::Waiting;
                return Ok(Fed::Nothing);
            }
            Outcome::Unknown { asks: false, .. } => {
                return Err(mismatch(entry, &format!("the code has not dropped {} by then", attempted.call)));
            }
            Outcome::Failed { failure, retry_at: None } => Err(failure.clone()),
            Outcome::Failed { retry_at: Some(retry_at), .. } => {
                made.changes(changed, attempted.input);
                if attempted.progress.is_some() {
                    made.progress.clone_from(&attempted.progress);
                }
                made.retry(*retry_at, entry.at);
                if made.state == State::Ready {
                    self.ready.insert(number);
                }
                return Ok(Fed::Nothing);
            }
        };
        let folded = made.state == State::Folded;
        self.calls.remove(&number);
        self.changed.remove(&number);
        self.drifted += u64::from(changed);
        Ok(if folded { Fed::Nothing } else { Fed::Resolve { number, result } })
    }

    pub(super) fn opened(&mut self, entry: &Entry, opened: &Opened) -> Result<Fed, Parked> {
        let build = self.build.clone();
        let mut drifted = 0;
        let Some((number, made)) = self.target(entry, &opened.call)? else {
            return Ok(Fed::Nothing);
        };
        made.input_changed = match (&opened.wait, &made.asked) {
            (Wait::Sleep { .. }, Asked::Sleep) | (Wait::Instance(_), Asked::Instance) => false,
            (Wait::Event { key, .. }, Asked::Event(asked)) if key == asked => false,
            (Wait::Hook(hook), Asked::Hook(token)) if hook.token == *token => false,
            (Wait::Payload(awaiting), Asked::Payload(hook)) if awaiting.hook == *hook => false,
            // What was answered then was answered: the sender has it.
            (Wait::Reply(reply), Asked::Reply(id)) if reply.id == *id => false,
            (Wait::Remote(remote), Asked::Remote(input)) => {
                let recorded = (remote.fingerprint, opened.build.as_ref());
                is_changed(entry, &opened.call, (*input, &build), recorded)?
            }
            // What was asked for then stands: the other instance has it.
            (Wait::Child(Child { fingerprint, .. }), Asked::Child(input))
            | (Wait::Send(Sending { fingerprint, .. }), Asked::Send(input))
            | (Wait::Resume(Resuming { fingerprint, .. }), Asked::Resume(input)) => {
                let recorded = (*fingerprint, opened.build.as_ref());
                let changed = is_changed(entry, &opened.call, (*input, &build), recorded)?;
                drifted = u64::from(changed);
                false
            }
            (
                Wait::Sleep { .. }
                | Wait::Remote(_)
                | Wait::Event { .. }
                | Wait::Child(_)
                | Wait::Instance(_)
                | Wait::Hook(_)
                | Wait::Payload(_)
                | Wait::Reply(_)
                | Wait::Resume(_)
                | Wait::Send(_),
                _,
            ) => {
                return Err(mismatch(entry, &format!("the code calls {} as {}", opened.call, made.asked)));
            }
        };
        made.state = State::Waiting;
        if made.input_changed {
            self.changed.insert(number);
        }
        self.drifted += drifted;
        Ok(Fed::Nothing)
    }

    pub(super) fn fired(&mut self, entry: &Entry, call: &Call) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, call)? else {
            return Ok(Fed::Nothing);
        };
        match (made.state, &made.asked) {
            (State::Waiting, Asked::Sleep | Asked::Reply(_)) => {
                self.calls.remove(&number);
                Ok(Fed::Resolve { number, result: Ok(Payload::null()) })
            }
            (State::Waiting, Asked::Event(_)) => {
                self.calls.remove(&number);
                Ok(Fed::Resolve { number, result: Err(event_timed_out(call)) })
            }
            (State::Waiting, Asked::Payload(hook)) => {
                let hook = *hook;
                self.calls.remove(&number);
                Ok(Fed::Resolve { number, result: Err(self.over(hook)) })
            }
            (State::Retrying, Asked::Step(_)) => {
                made.state = State::Ready;
                self.ready.insert(number);
                Ok(Fed::Nothing)
            }
            _ => Err(mismatch(entry, &format!("{call} does not wait for a time"))),
        }
    }

    pub(super) fn delivered(&mut self, entry: &Entry, delivered: &Delivered) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &delivered.call)? else {
            return Ok(Fed::Nothing);
        };
        if made.state != State::Waiting || !matches!(made.asked, Asked::Event(_)) {
            return Err(mismatch(entry, &format!("{} does not wait for an event", delivered.call)));
        }
        self.calls.remove(&number);
        Ok(Fed::Deliver { number, event: delivered.clone() })
    }

    pub(super) fn returned(&mut self, entry: &Entry, returned: &Returned) -> Result<Fed, Parked> {
        let Some((number, made)) = self.target(entry, &returned.call)? else {
            return Ok(Fed::Nothing);
        };
        let asks =
            matches!(made.asked, Asked::Child(_) | Asked::Instance | Asked::Send(_) | Asked::Resume(_));
        if made.state != State::Waiting || !asks {
            return Err(mismatch(entry, &format!("{} does not wait for another instance", returned.call)));
        }
        self.calls.remove(&number);
        let result = match &returned.outcome {
            Outcome::Succeeded(output) => Ok(output.clone()),
            Outcome::Failed { failure, .. } | Outcome::Unknown { failure, .. } => Err(failure.clone()),
        };
        Ok(Fed::Resolve { number, result })
    }

    /// A closed wait never ends: code that has not dropped the call would wait for ever.
    pub(super) fn closed(&mut self, entry: &Entry, closed: &Closed) -> Result<Fed, Parked> {
        if closed.hook.is_some() {
            return self.closed_hook(entry, closed);
        }
        let known = self.closing.remove(&closed.call).is_some();
        if known || self.target(entry, &closed.call)?.is_none() {
            return Ok(Fed::Nothing);
        }
        Err(mismatch(entry, &format!("the code has not dropped {} by then", closed.call)))
    }

    pub(super) fn patched(&mut self, entry: &Entry, patched: &Patched) -> Result<Fed, Parked> {
        self.patches.recorded(&patched.call.name);
        let Some((number, _)) = self.target(entry, &patched.call)? else {
            return Ok(Fed::Nothing);
        };
        self.calls.remove(&number);
        self.patches.over(number);
        Ok(Fed::Resolve { number, result: Ok(Payload::from_trusted("true".to_owned())) })
    }

    /// The beginning of compensations is on record: that is all its call waits for.
    pub(super) fn recorded(&mut self, entry: &Entry, call: &Call) -> Result<Fed, Parked> {
        let Some((number, _)) = self.target(entry, call)? else {
            return Ok(Fed::Nothing);
        };
        self.calls.remove(&number);
        Ok(Fed::Resolve { number, result: Ok(Payload::null()) })
    }

    /// Compensations are no work that a cancel could end: their body is over.
    pub(super) fn cancelled(&self, cancelled: &Cancelled) -> Fed {
        let is_work = |made: &Made| !matches!(made.call.kind, CallKind::Rollback | CallKind::Compensation);
        let numbers = self.calls.iter().filter(|(number, made)| self.is_open(**number) && is_work(made));
        let numbers = numbers.map(|(number, _)| *number).collect();
        Fed::Cancel { numbers, failure: cancelled_failure(cancelled) }
    }

    /// Charges a loss to the steps that can have been running: the first `slots` that were ready, in order of call.
    pub(super) fn lost(&mut self, lost: &Lost) {
        self.keep_progress(&lost.progress);
        if !lost.counts {
            return;
        }
        // What gets the output of an earlier run does not run, so it cannot have been lost (rule L4).
        let reusable = &self.reusable;
        let is_reused = |made: &Made| {
            let output =
                reusable.get(&made.call).filter(|_| made.attempt == everstep_protocol::Attempt::FIRST);
            matches!((made.asked.clone(), output), (Asked::Step(input), Some((recorded, _))) if input == *recorded)
        };
        // Of those with an intent that entry says that they ran, and those without one never began (rule L7).
        // One that another had announced before took none of its slots.
        let is_theirs =
            |made: &&Made| made.intent.as_ref().is_some_and(|intent| intent.is_of_session(lost.session));
        let intended = self.calls.values().filter(is_theirs).count();
        let running = self.calls.values_mut().filter(|made| {
            matches!(made.asked, Asked::Step(_))
                && matches!(made.state, State::Ready | State::Told)
                && !made.is_intended()
                && !is_reused(made)
        });
        for made in running.take((lost.slots as usize).saturating_sub(intended)) {
            made.losses.push((made.attempt, made.running()));
            made.attempt = made.attempt.next();
        }
    }

    /// What the attempts of a lost worker had told goes to the attempts after them. It may have told of one that it then
    /// recorded, which is over.
    fn keep_progress(&mut self, progress: &[Progress]) {
        for Progress { call, attempt, told } in progress {
            let is_theirs = |made: &&mut Made| made.attempt == *attempt && made.call.hash() == *call;
            if let Some(made) = self.calls.values_mut().find(is_theirs) {
                made.progress = Some(told.clone());
            }
        }
    }
}
