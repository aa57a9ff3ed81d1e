//! Proves that inputs decided together come to the same as inputs decided one by one (rule W21), and that no sequence of
//! inputs, however stale, doubled or disordered, breaks an invariant of the model store (see support). Not: that workers
//! behave; the model worker reports each attempt once per lease, as the real one does.

mod support;

use everstep_engine::{
    Answer, Effect, Input, What,
    letter::{NewLetter, Said},
    rows::{Subject, WaitKind},
};
use everstep_protocol::{
    Attempt, Call, CallHash, CallKind, Epoch, InstanceUid, Millis, Namespace, Policy, Position, SessionId,
    Timestamp,
    hook::StartHook,
    journal::{Attempted, Child, End, Fact, Resuming, Sending},
    limits::Limits,
    message::{AttemptEnd, AttemptOutcome, OpenWait, Report, Then},
    policy::Limit,
};
use proptest::prelude::*;
use support::*;

/// One choice of the model world: a kind of input and three numbers that say which.
#[derive(Clone, Copy, Debug)]
struct Choice {
    kind: u8,
    a: u8,
    b: u8,
    c: u8,
}

fn choices() -> impl Strategy<Value = Vec<Vec<Choice>>> {
    let choice =
        (0..34u8, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(kind, a, b, c)| Choice { kind, a, b, c });
    prop::collection::vec(prop::collection::vec(choice, 1..6), 1..40)
}

fn start_hook() -> StartHook {
    StartHook::new("t".parse().expect("a valid token"))
}

fn resuming() -> Resuming {
    let StartHook { token, .. } = start_hook();
    Resuming { token, payload: json("0"), fingerprint: fingerprint(0) }
}

fn session(n: u8) -> SessionId {
    [S1, S2, S3][usize::from(n % 3)]
}

fn pick<T>(items: Vec<T>, n: u8) -> Option<T> {
    let len = items.len();
    items.into_iter().nth(usize::from(n) % len.max(1))
}

/// What makes inputs out of choices, looking at the store as workers and services would.
#[derive(Debug, Default)]
struct World {
    calls: u32,
    starts: u128,
    past: Vec<Input>,
    /// Letters that could be taken when the batch began.
    mail: Vec<Input>,
}

impl World {
    fn input(&mut self, choice: Choice, store: &Store) -> Option<Input> {
        let Choice { kind, a, b, c } = choice;
        let input = match kind {
            0 | 1 => {
                self.starts += 1;
                let mut start = start(self.starts, &format!("i{}", a % 3), c % 8 / 7);
                start.message = (b.is_multiple_of(3)).then(|| message(&format!("m{}", b % 9)));
                Some(Input::Start(Box::new(start)))
            }
            2 => pick(self.past.clone(), a).map(|input| self.redelivered(input)),
            28..=33 => pick(self.mail.clone(), a),
            _ => {
                let instance = pick(store.tables.heads.keys().copied().collect(), a)?;
                Some(on(instance, self.what(kind, b, c, instance, store)?))
            }
        }?;
        self.past.push(input.clone());
        Some(input)
    }

    /// A start that comes again is given another internal id.
    fn redelivered(&mut self, mut input: Input) -> Input {
        if let Input::Start(start) = &mut input {
            self.starts += 1;
            start.uid = uid(self.starts);
        }
        input
    }

    fn what(&mut self, kind: u8, b: u8, c: u8, instance: InstanceUid, store: &Store) -> Option<What> {
        let tables = &store.tables;
        let lease = tables.leases.get(&(instance, Subject::INSTANCE)).copied();
        let remote: Option<(Call, SessionId, Epoch)> = {
            let of = tables.remotes.iter().filter(|((uid, _), _)| *uid == instance).map(|(_, row)| row);
            let held = |row: &everstep_engine::rows::RemoteRow| {
                let lease = tables.leases.get(&(instance, Subject::step(row.call.hash())));
                let who = lease.map_or(session(c), |lease| lease.session);
                (
                    row.call.clone(),
                    if c > 230 { session(c) } else { who },
                    Epoch(row.epoch.0.saturating_sub(u64::from(c.is_multiple_of(7)))),
                )
            };
            pick(of.map(held).collect(), b)
        };
        match kind {
            3..=5 => Some(What::Claim { session: session(b), have: None }),
            6..=11 => {
                let lease = lease?;
                let who = if b > 240 { session(c) } else { lease.session };
                Some(reported(who, self.report(b, c, instance, lease.epoch, store)))
            }
            12 => lease.map(|lease| What::GiveBack { session: lease.session, epoch: lease.epoch }),
            13 | 14 => {
                let waits = tables.waits.keys().filter(|(uid, _)| *uid == instance).map(|(_, call)| *call);
                Some(What::Due { call: pick(waits.collect(), b).unwrap_or(CallHash([b; 16])) })
            }
            15 => Some(What::LeaseEnded {
                session: lease.map_or(session(b), |lease| lease.session),
                epoch: (c.is_multiple_of(2)).then_some(lease.map_or(Epoch(1), |lease| lease.epoch)),
                slots: u32::from(c % 4),
                counts: b.is_multiple_of(2),
                progress: Vec::new(),
            }),
            16 | 17 => remote.map(|(call, ..)| What::StepClaim { session: session(c), call: call.hash() }),
            18 | 19 => remote.map(|(call, who, epoch)| {
                let outcome = if c.is_multiple_of(2) { ok() } else { failed(None) };
                step_reported(who, &call, epoch.0, outcome)
            }),
            20 => remote.map(|(call, who, _)| step_ended(who, &call, c.is_multiple_of(2))),
            21 if b.is_multiple_of(4) => {
                Some(What::Terminate { operation: format!("o{}", c % 4), reason: None })
            }
            23 => Some(self.control(b, c)),
            21 | 22 => Some(What::Retry { operation: format!("r{}", c % 16) }),
            24..=27 => {
                let name = ["a", "b"][usize::from(b % 2)];
                let id = format!("e{}", c % 32);
                Some(What::Event(match b % 3 {
                    0 => sent_key(&id, name, "k"),
                    1 => sent_key(&id, name, "l"),
                    _ => support::sent(&id, name, c % 3),
                }))
            }
            _ if b.is_multiple_of(4) => Some(What::Unwritable { message: "refused".to_owned() }),
            _ => None,
        }
    }

    /// What people do: rarely what ends everything.
    fn control(&mut self, b: u8, c: u8) -> What {
        self.calls += 1;
        let operation = if c > 240 { "again".to_owned() } else { format!("c{}", self.calls) };
        match b % 16 {
            0..=4 => What::Pause { operation },
            5..=9 => What::Resume { operation },
            10 | 11 => {
                let within = Millis(u64::from(c % 8));
                What::Cancel { operation, reason: None, within, rollback: c.is_multiple_of(2) }
            }
            12 | 13 => What::Overdue,
            14 if c.is_multiple_of(2) => What::Rollback { operation, reason: None },
            14 => What::Restart { operation, prepared: None },
            _ if c.is_multiple_of(4) => What::Delete { operation, terminate: c.is_multiple_of(8) },
            _ => What::Expire,
        }
    }

    /// A report as a worker could make it: new calls, and further attempts of steps whose retry delay is over.
    fn report(&mut self, b: u8, c: u8, instance: InstanceUid, epoch: Epoch, store: &Store) -> Report {
        let head = &store.tables.heads[&instance];
        let mut report = report(instance, epoch.0, head.reports + 1, head.position.0);
        if b.is_multiple_of(16) {
            report.number = report.number.saturating_sub(1);
        }
        if b % 16 == 1 {
            report.seen = Position(report.seen.0 - 1);
        }
        if b % 16 == 2 {
            report.epoch = Epoch(epoch.0 - 1);
        }
        if b % 32 == 3 {
            report.epoch = epoch.next();
        }
        let mut next = |kind| {
            self.calls += 1;
            call(kind, "c", self.calls)
        };
        if c & 1 != 0 {
            report.results.push(end(&next(CallKind::Step), 1, outcome(b)));
        }
        if c & 2 != 0
            && let Some(attempted) = pick(retriable(instance, store), b)
        {
            report.results.push(AttemptEnd {
                attempt: Attempt(attempted.attempt.0 + 1),
                ..end(&attempted.call, 1, outcome(c))
            });
        }
        if c & 4 != 0 {
            let event = |names: &[&str], key: Option<&str>, timeout| OpenWait::Event {
                types: names.iter().map(|name| support::kind(name)).collect(),
                key: key.map(|key| everstep_protocol::EventKey::new(key).expect("a valid key")),
                timeout: Millis(timeout),
            };
            let id = format!("i{}", b % 5);
            let wait = match b % 16 {
                8 | 9 => OpenWait::Child(Child {
                    detached: c > 200,
                    only_started: c % 3 == 1,
                    hook: (c % 5 == 1).then(start_hook),
                    ..child(&format!("c{}", b / 16 % 4))
                }),
                10 => OpenWait::Instance(other(&id)),
                12 => OpenWait::Reply(support::reply("t", &(c % 3).to_string(), 200 + u16::from(b / 16))),
                11 => OpenWait::Send(Sending {
                    to: other(&id),
                    kind: support::kind("a"),
                    key: None,
                    payload: json("0"),
                    fingerprint: fingerprint(0),
                }),
                13 => OpenWait::Resume(resuming()),
                3 => event(&["a"], None, u64::from(c % 3)),
                4 => event(&["a", "b"], None, 5),
                5 => event(&["b"], Some("k"), 5),
                7 if c.is_multiple_of(5) => OpenWait::Rollback { failure: None, steps: 1 },
                0 => OpenWait::Sleep(Millis(u64::from(b % 3))),
                1 => OpenWait::SleepUntil(Timestamp(store.now.0 + i64::from(b % 3) * 1000 - 1000)),
                _ => {
                    let policy = Policy {
                        limit: Limit::Times(1),
                        delay: Millis(u64::from(b % 3)),
                        ..Policy::default()
                    };
                    OpenWait::Remote(remote(policy))
                }
            };
            let kind = match wait {
                OpenWait::Remote(_) => CallKind::Step,
                OpenWait::Event { .. } => CallKind::Event,
                OpenWait::Sleep(_) | OpenWait::SleepUntil(_) => CallKind::Sleep,
                OpenWait::Patch => CallKind::Patch,
                OpenWait::Child(_) => CallKind::Child,
                OpenWait::Instance(_) => CallKind::Instance,
                OpenWait::Send(_) => CallKind::Send,
                OpenWait::Resume(_) => CallKind::Resume,
                OpenWait::Hook(_) => CallKind::Hook,
                OpenWait::Payload(_) => CallKind::Payload,
                OpenWait::Reply(_) => CallKind::Reply,
                OpenWait::Rollback { .. } => CallKind::Rollback,
            };
            report.opened.push(open(&next(kind), wait));
        }
        if c.is_multiple_of(3)
            && let Some(call) = pick(closable(instance, store), b)
        {
            let seen = report.seen.0;
            report.closed.push(dropped(&call, seen.saturating_sub(u64::from(b % 3))));
        }
        report.folded = report.results.len() == 1 && c & 8 != 0;
        report.then = match (c >> 4, b % 5) {
            (0..=5, _) => Then::Continue,
            (6..=12, _) => Then::Suspend,
            (_, 0) => Then::End(End::Complete(json("1"))),
            (_, 1) => Then::Park(parked()),
            (14.., 2) => Then::Again(again(b)),
            _ => Then::Suspend,
        };
        report
    }
}

fn outcome(n: u8) -> AttemptOutcome {
    match n % 5 {
        0 | 1 => ok(),
        2 => failed(None),
        3 => failed(Some(0)),
        _ => failed(Some(2)),
    }
}

/// Calls that wait or have got an event, and were not closed.
fn closable(instance: InstanceUid, store: &Store) -> Vec<Call> {
    let of =
        store.tables.waits.iter().filter(|((uid, _), wait)| *uid == instance && wait.kind != WaitKind::Retry);
    let mut calls: Vec<_> = of.map(|(_, wait)| wait.call.clone()).collect();
    for entry in &store.tables.journal[&instance] {
        match &entry.fact {
            Fact::Delivered(delivered) => calls.push(delivered.call.clone()),
            Fact::Closed(closed) => calls.retain(|call| *call != closed.call),
            _ => {}
        }
    }
    calls
}

/// Inline steps whose last attempt failed and whose next may start.
fn retriable(instance: InstanceUid, store: &Store) -> Vec<Attempted> {
    let mut last = std::collections::BTreeMap::new();
    for entry in &store.tables.journal[&instance] {
        if let Fact::Attempted(attempted) = &entry.fact {
            last.insert(attempted.call.clone(), attempted.clone());
        }
    }
    let waits = |call: &Call| store.tables.waits.contains_key(&(instance, call.hash()));
    last.into_values().filter(|attempted| attempted.retry_at().is_some() && !waits(&attempted.call)).collect()
}

/// Both stores know the same sessions; with credits, some of what becomes runnable is granted at once.
fn world_with_room(credits: u64) -> Store {
    let mut store = Store::default();
    store.rules.deaths_max = 3;
    store.rules.limits = Limits { output_bytes: 64, ..Limits::default() };
    store.room.serve(S2, &Namespace::default(), &[workflow()]);
    store.room.credit(S2, credits);
    store
}

/// The letters that can be taken. A child gets an id of its own whenever its letter comes.
fn takeable(store: &Store) -> Vec<Input> {
    let mut mail = store.mail(&mut (0..));
    for input in &mut mail {
        if let Input::Start(start) = input
            && let Some(letter) = &start.letter
        {
            start.uid = uid(10_000 + u128::from(letter.number));
        }
    }
    mail
}

/// Whether both stores have this letter.
fn is_in(single: &Tables, batched: &Tables, input: &Input) -> bool {
    let mut same = as_in(single, batched, input.clone());
    number_of(&mut same).is_some_and(|number| *number != u64::MAX)
}

fn number_of(input: &mut Input) -> Option<&mut u64> {
    match input {
        Input::Start(start) => start.letter.as_mut().map(|letter| &mut letter.number),
        Input::On { what: What::Letter(letter), .. } => Some(&mut letter.number),
        Input::Undelivered(letter, _) => Some(&mut letter.number),
        Input::On { .. } | Input::Asked { .. } => None,
    }
}

/// The same letter has another number where letters are written in another order.
fn as_in(single: &Tables, batched: &Tables, mut input: Input) -> Input {
    if let Some(number) = number_of(&mut input) {
        let letter = batched.mailbox.get(number);
        let same = single.mailbox.iter().find(|(_, other)| Some(*other) == letter);
        *number = same.map_or(u64::MAX, |(number, _)| *number);
    }
    input
}

/// Everything that is stored, but the numbers of letters, and letters that mean nothing: a cascade may write to children that
/// the same batch knows to be over.
fn told(tables: &Tables) -> (Tables, Vec<String>) {
    let mut tables = tables.clone();
    let means = |letter: &&NewLetter| !matches!(letter.said, Said::Terminate { .. } | Said::Cancel { .. });
    let mut mail: Vec<_> =
        tables.mailbox.values().filter(means).map(|letter| format!("{letter:?}")).collect();
    mail.sort_unstable();
    tables.mailbox.clear();
    tables.letters = 0;
    (tables, mail)
}

fn sent(effects: &[Effect]) -> Vec<&'static str> {
    let words = effects.iter().map(effect_word);
    // Offers are decided for a batch as a whole, by what is still ready at its end.
    // Holders of steps that end with their instance are told after everything else.
    words.filter(|word| !word.starts_with("offer") && *word != "step fence").collect()
}

/// Who is told that the lease of which step is over, in whatever order.
fn step_fences(effects: &[Effect]) -> Vec<String> {
    let fences = effects.iter().filter(|effect| effect_word(effect) == "step fence");
    fences.map(|effect| format!("{effect:?}")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn w21_a_batch_equals_its_inputs_one_by_one(batches in choices(), credits in 0..6u64) {
        let mut world = World::default();
        let (mut single, mut batched) = (world_with_room(credits), world_with_room(credits));
        for batch in batches {
            let mut inputs = Vec::new();
            let (mut answers, mut effects): (Vec<Answer>, Vec<_>) = (Vec::new(), Vec::new());
            let mut fences = Vec::new();
            world.mail = takeable(&batched).into_iter().filter(|input| is_in(&single.tables, &batched.tables, input)).collect();
            for choice in batch {
                let Some(input) = world.input(choice, &single) else { continue };
                let out = single.batch(&[as_in(&single.tables, &batched.tables, input.clone())]);
                answers.extend(out.answers());
                effects.extend(sent(&out.effects));
                fences.extend(step_fences(&out.effects));
                inputs.push(input);
            }
            let out = batched.batch(&inputs);
            prop_assert_eq!(out.answers(), answers, "{:#?}", inputs);
            prop_assert_eq!(sent(&out.effects), effects, "{:#?}", inputs);
            let mut together = step_fences(&out.effects);
            together.sort_unstable();
            fences.sort_unstable();
            prop_assert_eq!(together, fences, "{:#?}", inputs);
            prop_assert_eq!(told(&single.tables), told(&batched.tables), "{:#?}", inputs);
            single.pass(1);
            batched.pass(1);
        }
    }
}

/// The property is worth little if its worlds stay shallow.
#[test]
fn the_model_world_reaches_every_state() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<&str, u32>::new();
    for _ in 0..400 {
        let batches = choices().new_tree(&mut runner).unwrap().current();
        let (mut world, mut store) = (World::default(), world_with_room(2));
        for choice in batches.into_iter().flatten() {
            world.mail = takeable(&store);
            if let Some(input) = world.input(choice, &store) {
                let out = store.batch(&[input]);
                for word in out.entries().into_iter().chain(out.sent()) {
                    *seen.entry(word).or_default() += 1;
                }
            }
            store.pass(1);
        }
    }
    let expected = [
        "started",
        "attempted",
        "opened",
        "delivered",
        "closed",
        "returned",
        "fired",
        "lost",
        "parked",
        "retried",
        "ended",
        "ack",
        "fence",
        "grant",
        "not granted",
        "push",
        "offer",
        "offer step",
        "step grant",
        "step ack",
        "step fence",
    ];
    for word in expected {
        assert!(seen.get(word).is_some_and(|count| *count > 20), "{word} is rare: {seen:?}");
    }
}
