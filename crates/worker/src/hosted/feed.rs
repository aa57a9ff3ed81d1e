//! The journal is fed to the body, one entry at a time, polling to stillness between them.
//!
//! The time that the body sees is the same live and in every replay. An outcome of an inline step may be seen before the
//! database has given it a time (rule W36), so its time is when its attempt could begin plus how long it ran; every other
//! entry brings its own. It never goes back.

use everstep_engine::replay::{Fed, Replay};
use everstep_protocol::message::Again;
use everstep_protocol::{
    CallKind, Failure, Payload, Position, Timestamp,
    journal::{Attempted, Delivered, Entry, Fact, ParkCode, Parked, Wait},
};
use everstep_sdk::host::{BodyState, Host, Made, Misfit};
use everstep_telemetry::label;
use tracing::dispatcher::{Dispatch, with_default};

use super::{Asked, Hosted, Life, Out, Traced, Waiting, call::Known, linger::Linger};

impl Hosted {
    /// Feeds everything that is here.
    pub(super) fn feed(&mut self, out: &mut Vec<Out>) {
        while !matches!(self.life, Life::Parked(_)) {
            let Some(entry) = self.journal.take(self.replay.position()) else { break };
            self.linger = Linger::No;
            self.used.entry(entry.position, entry.fact.payload_bytes());
            if matches!(self.life, Life::Unborn) {
                self.birth(&entry, out);
            } else {
                self.feed_one(&entry, out);
            }
        }
    }

    fn birth(&mut self, entry: &Entry, out: &mut Vec<Out>) {
        let Fact::Started(started) = &entry.fact else {
            let message = format!("entry {} ({}) is no first entry", entry.position, entry.fact.word());
            return self.park(Parked::new(ParkCode::Unreadable, message), out);
        };
        self.info.generation = started.generation;
        let mut replay = Replay::new(self.env.build.clone(), entry.position);
        replay.inherit(&mut self.replay);
        self.replay = replay;
        self.clock = entry.at;
        let Some(definition) = self.env.registry.definition(&self.info.workflow) else {
            let message = format!("workflow {} is not registered here", self.info.workflow);
            return self.park(Parked::new(ParkCode::Broken, message), out);
        };
        let host = Host::new(self.info.clone(), started.seed);
        host.begin_with(&started.attributes);
        host.limit_input(self.env.limits.input_bytes);
        host.begin_with_hook(started.hook.clone());
        let body = definition.begin(host.workflow(), &started.input);
        self.life = Life::Waiting(host, body);
        self.trace = Traced::of(started);
        self.lease_begins();
        self.listen();
        self.poll(entry.position, out);
    }

    fn feed_one(&mut self, entry: &Entry, out: &mut Vec<Out>) {
        let fed = loop {
            match self.replay.feed(entry) {
                Ok(Fed::Unpatched { number }) => {
                    let refused = Ok(Payload::from_trusted("false".to_owned()));
                    self.resolve(number, refused, self.replay.position(), out);
                    if matches!(self.life, Life::Parked(_)) {
                        return;
                    }
                }
                Ok(fed) => break fed,
                Err(parked) => return self.park(parked, out),
            }
        };
        self.note(entry, &fed);
        match fed {
            // The refusal of a patch was handed over above.
            Fed::Nothing | Fed::Unpatched { .. } => {}
            Fed::Resolve { number, result } => self.resolve(number, result, entry.position, out),
            Fed::Deliver { number, event } => self.deliver(number, event, entry.position, out),
            Fed::Registered { number, outcome } => {
                self.calls.remove(&number);
                self.tend(entry.position, out, |host| host.registered(number, outcome));
            }
            Fed::LetGo { number } => self.tend(entry.position, out, |host| host.released(number)),
            Fed::Cancel { numbers, failure } => self.cancel(numbers, &failure, entry.position, out),
            Fed::Rollback => self.roll_back(entry.position, out),
        }
    }

    /// The calls that were open end with the error of the cancel, one after the other: what the body does after each is the same
    /// in every replay.
    fn cancel(&mut self, numbers: Vec<u64>, failure: &Failure, seen: Position, out: &mut Vec<Out>) {
        if let Life::Waiting(host, _) = &self.life {
            host.cancel();
            if self.cancelled.as_ref().is_some_and(|cancelled| cancelled.rollback) {
                host.roll_back_on_cancel();
            }
        }
        for number in numbers {
            if !self.replay.is_open(number) {
                continue;
            }
            self.replay.cancelled_at(number, seen);
            self.forget(number, out);
            let Life::Waiting(host, _) = &self.life else { return };
            host.resolve(number, Err(failure.clone()));
            self.poll(seen, out);
        }
    }

    /// Keeps what an entry says about times.
    fn note(&mut self, entry: &Entry, fed: &Fed) {
        self.note_key(&entry.fact);
        match &entry.fact {
            Fact::Attempted(attempted) => self.note_attempt(entry.at, attempted, fed),
            Fact::Opened(opened) => {
                let (due, remote) = match &opened.wait {
                    Wait::Sleep { until } | Wait::Event { until, .. } => (Some(*until), false),
                    Wait::Remote(_) => (None, true),
                    Wait::Child(_)
                    | Wait::Instance(_)
                    | Wait::Send(_)
                    | Wait::Resume(_)
                    | Wait::Hook(_)
                    | Wait::Reply(_)
                    | Wait::Payload(_) => (None, false),
                };
                self.waits.insert(opened.call.clone(), Waiting { due, at: entry.at, remote });
                self.clock = self.clock.max(entry.at);
            }
            // An attempt that is announced begins now.
            Fact::Intended(intended) => {
                let waiting = Waiting { due: None, at: entry.at, remote: false };
                self.waits.insert(intended.call.clone(), waiting);
                self.clock = self.clock.max(entry.at);
            }
            Fact::Fired { call } => {
                // What was waited for is over; of a step only its retry delay is, and the next attempt begins now.
                if call.kind != CallKind::Step {
                    self.waits.remove(call);
                } else if let Some(waiting) = self.waits.get_mut(call) {
                    *waiting = Waiting { due: None, at: entry.at, remote: false };
                }
                self.clock = self.clock.max(entry.at);
            }
            Fact::Cancelled(cancelled) => {
                self.cancelled = Some(cancelled.clone());
                self.clock = self.clock.max(entry.at);
            }
            Fact::Rollback(rollback) => {
                self.rollback = Some(Asked { rollback: rollback.clone(), thrown_away: false });
                self.waits.clear();
                self.clock = self.clock.max(entry.at);
            }
            Fact::Delivered(delivered) => {
                self.waits.remove(&delivered.call);
                self.clock = self.clock.max(entry.at);
            }
            Fact::Returned(returned) => {
                self.waits.remove(&returned.call);
                self.clock = self.clock.max(entry.at);
            }
            Fact::Registered(registered) => {
                self.waits.remove(&registered.call);
                self.clock = self.clock.max(entry.at);
            }
            Fact::Received(received) => {
                self.waits.remove(&received.call);
                self.clock = self.clock.max(entry.at);
            }
            Fact::Closed(closed) => {
                self.waits.remove(&closed.call);
                self.clock = self.clock.max(entry.at);
            }
            // An entry of an earlier run: it tells the body nothing, not even the time.
            Fact::Reusable(_) => {}
            Fact::Started(_)
            | Fact::TakenOver(_)
            | Fact::Withdrawn(_)
            | Fact::Resolved(_)
            | Fact::Patched(_)
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Rekeyed(_)
            | Fact::Continued(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Ended(_) => {
                self.clock = self.clock.max(entry.at);
            }
        }
    }

    fn note_attempt(&mut self, at: Timestamp, attempted: &Attempted, fed: &Fed) {
        let known = match fed {
            Fed::Resolve { number, .. } => self.calls.get(number),
            Fed::Nothing
            | Fed::Deliver { .. }
            | Fed::Registered { .. }
            | Fed::LetGo { .. }
            | Fed::Unpatched { .. }
            | Fed::Cancel { .. }
            | Fed::Rollback => None,
        };
        match (attempted.retry_at(), known) {
            (Some(due), _) => {
                self.clock = self.clock.max(at);
                // A remote step's retries are the coordinator's business: its wait has no time here.
                let remote = self.waits.get(&attempted.call).is_some_and(|waiting| waiting.remote);
                let due = (!remote && due > at).then_some(due);
                self.waits.insert(attempted.call.clone(), Waiting { due, at, remote });
            }
            (None, Some(known)) if known.is_inline() => {
                let ran_for = Timestamp(at.0.saturating_sub(attempted.started_at.0));
                let begin = self.waits.remove(&attempted.call).map_or(known.made_at, |waiting| waiting.at);
                self.clock = self.clock.max(Timestamp(begin.0.saturating_add(ran_for.0)));
            }
            (None, Some(_)) => {
                self.waits.remove(&attempted.call);
                self.clock = self.clock.max(at);
            }
            // Folded: the body has seen its time already. Dropped: the body sees nothing.
            (None, None) => {}
        }
    }

    pub(super) fn resolve(
        &mut self,
        number: u64,
        result: Result<Payload, Failure>,
        seen: Position,
        out: &mut Vec<Out>,
    ) {
        self.calls.remove(&number);
        if self.running.remove(&number) {
            out.push(Out::Cancel { number });
        }
        if let Life::Waiting(host, _) = &self.life {
            host.resolve(number, result);
            self.poll(seen, out);
        }
    }

    /// Hands the body what is no outcome of a call.
    fn tend(&mut self, seen: Position, out: &mut Vec<Out>, hand_over: impl FnOnce(&Host) -> bool) {
        if let Life::Waiting(host, _) = &self.life
            && hand_over(host)
        {
            self.poll(seen, out);
        }
    }

    fn deliver(&mut self, number: u64, event: Delivered, seen: Position, out: &mut Vec<Out>) {
        self.calls.remove(&number);
        if let Life::Waiting(host, _) = &self.life {
            host.deliver(number, event);
            self.poll(seen, out);
        }
    }

    /// Polls the body until it is still, and takes note of what it made and dropped.
    pub(super) fn poll(&mut self, seen: Position, out: &mut Vec<Out>) {
        let (clock, quiet) = (self.clock, seen < self.quiet_until);
        let in_trace = self.in_trace(quiet);
        let Life::Waiting(host, body) = &mut self.life else { return };
        let (polled, took) = self.env.watch.during(&self.who, || {
            if quiet {
                with_default(&Dispatch::none(), || host.poll(body, seen, clock))
            } else {
                label::within(&self.label, || host.poll(body, seen, clock))
            }
        });
        drop(in_trace);
        let undone = matches!(polled.state, BodyState::Done(Err(_))).then(|| host.undone()).flatten();
        if let Some(asked) = &mut self.rollback {
            asked.thrown_away = host.is_interrupted();
        }
        self.env.metrics.polls.observe(took.as_secs_f64());
        self.shown.add(polled.published, polled.attributes);
        for made in polled.made {
            self.made(made);
        }
        for number in polled.dropped {
            self.dropped(number, seen, out);
        }
        for (call, position) in polled.untaken {
            self.replay.untaken(call, position);
        }
        // What a rollback throws away the body did not let go (rule W29): its retention holds.
        if self.rollback.is_none() {
            for (number, call, token) in polled.let_go {
                self.replay.let_go(number, call, token, seen);
            }
        }
        match polled.state {
            BodyState::Pending => {}
            BodyState::Done(Ok(output)) => self.over(Life::Done(Ok(output)), out),
            BodyState::Done(Err(failure)) => self.has_failed(failure, undone, out),
            BodyState::Again(input) => self.again(input, out),
            BodyState::Panicked(message) => {
                let message = format!("the body panicked after entry {seen}: {message}");
                self.park(Parked::new(ParkCode::BodyPanicked, message), out);
            }
            BodyState::Misfit(misfit) => {
                let Misfit { position, reason } = misfit;
                let message = format!("the code disagrees with entry {position} (attempted): {reason}");
                self.park(Parked::new(ParkCode::JournalMismatch, message), out);
            }
            BodyState::Foreign => self.park_foreign_body(out),
            BodyState::Spinning => {
                let message = format!("{} wakes itself without end and awaits nothing", self.name());
                self.park(Parked::new(ParkCode::ForeignAwait, message), out);
            }
        }
    }

    /// The body goes on as new.
    fn again(&mut self, input: Payload, out: &mut Vec<Out>) {
        let Life::Waiting(host, _) = &self.life else { return };
        // Why it was cancelled is known when it is reported.
        let (seed, attributes, hook) = (host.next_seed(), host.attributes(), host.start_hook());
        let trace = self.trace.as_ref().map(|traced| Box::new(traced.started()));
        self.over(Life::Again(Again { input, seed, cancelled: None, attributes, hook, trace }), out);
    }

    fn made(&mut self, made: Made) {
        let number = made.number;
        if made.call.kind == everstep_protocol::CallKind::Step {
            self.used.steps += 1;
        }
        let known = Known::new(made, &self.info, self.clock, self.used, &self.env.limits);
        if known.spec.marks().compensated {
            self.replay.registers(&known.call);
            self.undo_keys.insert(known.call.clone(), known.key());
        }
        self.replay.made(number, known.call.clone(), known.asked());
        let class = known.policy().class;
        if class.is_intended() {
            self.replay.of_class(number, class);
        }
        self.calls.insert(number, known);
    }

    fn dropped(&mut self, number: u64, seen: Position, out: &mut Vec<Out>) {
        // What a rollback throws away has nothing left to close.
        if self.rollback.is_some() {
            self.replay.cancelled_at(number, seen);
        } else {
            self.replay.dropped(number, seen);
        }
        self.forget(number, out);
    }

    /// A call that is over without an outcome of its own: nothing of it begins, and what runs is cancelled.
    fn forget(&mut self, number: u64, out: &mut Vec<Out>) {
        if let Some(known) = self.calls.remove(&number) {
            self.waits.remove(&known.call);
        }
        self.told.starts.retain(|start| *start != number);
        self.told.opens.retain(|open| *open != number);
        self.told.intents.retain(|intent| *intent != number);
        self.told.charges.retain(|(charged, _)| *charged != number);
        if self.running.remove(&number) {
            out.push(Out::Cancel { number });
        }
    }

    /// Something woke the body from outside since the last turn.
    pub(super) fn park_foreign(&mut self, out: &mut Vec<Out>) {
        if self.foreign && matches!(self.life, Life::Waiting(..)) {
            self.park_foreign_body(out);
        }
    }

    pub(super) fn park_foreign_body(&mut self, out: &mut Vec<Out>) {
        let message =
            format!("{} awaits something that is not a step, sleep or wait of its own context", self.name());
        self.park(Parked::new(ParkCode::ForeignAwait, message), out);
    }

    pub(super) fn park(&mut self, parked: Parked, out: &mut Vec<Out>) {
        self.over(Life::Parked(parked), out);
    }

    /// The body will not be polled again: what it had under way is cancelled.
    pub(super) fn over(&mut self, life: Life, out: &mut Vec<Out>) {
        self.cancel_all(out);
        self.throw_away();
        self.told = super::Told::default();
        self.life = life;
    }

    fn name(&self) -> String {
        format!("workflow {} instance {}", self.info.workflow, self.info.id)
    }
}
