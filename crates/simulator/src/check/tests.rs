//! Each checker is shown a history that must not be, and one that may. Not: whether production code can come to such a history.

mod schedules;

use std::collections::{BTreeMap, BTreeSet};

use everstep_engine::{
    batch::JournalRow,
    head::Head,
    hook::HookRow,
    mailbox::{EventId, EventRow, SentEvent},
    rows::{Control, Lease, Subject},
    start::NameKey,
    status::StatusWord,
};
use everstep_protocol::{
    Attempt, BuildName, CallHash, CallKind, CallName, Epoch, EventType, Fingerprint, Generation, HookId,
    Namespace, Payload, Policy, Position, Timestamp, Token,
    journal::{
        Attempted, Closed, Delivered, End, HookOutcome, Marks, Other, Outcome, ParkCode, Parked, Registered,
        Started,
    },
};
use everstep_sdk::{Error, Workflow};
use uuid::Uuid;

use super::{
    Attempting, Call, Checker, Commit, Entry, Fact, InstanceUid, InstanceView, Registry, Rest, Run, Seen,
    SessionId, StepKey, events::Events, hooks::Hooks, journal::Journal, moves::Moves, replay::Replay,
    schedules::Schedules, sessions::Sessions, silence::Silence, starts::Starts, steps::Steps, writer::Writer,
    written::Written,
};
use crate::workload::effects::{Class, Counted, Effect};

const SECOND: i64 = 1_000_000;
const ONE: InstanceUid = InstanceUid(Uuid::from_u128(1));
const OTHER: InstanceUid = InstanceUid(Uuid::from_u128(2));

fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(number))
}

fn name() -> NameKey {
    NameKey {
        namespace: Namespace::default(),
        workflow: "w".parse().expect("a name"),
        id: "one".parse().expect("an id"),
    }
}

fn head(uid: InstanceUid) -> Head {
    let NameKey { namespace, workflow, id } = name();
    Head::new(uid, namespace, workflow, id, Timestamp(0))
}

fn call(word: &str, count: u32) -> Call {
    Call { kind: CallKind::Step, name: CallName::new(word).expect("a name"), count }
}

fn key(digit: char) -> StepKey {
    digit.to_string().repeat(64).parse().expect("a key")
}

fn null() -> Fingerprint {
    Fingerprint::of(&Payload::null()).expect("null has a form")
}

fn attempted(call: Call, key: StepKey, session: SessionId) -> Attempted {
    Attempted {
        call,
        attempt: Attempt::FIRST,
        called_after: Position(1),
        started_at: Timestamp(0),
        key,
        input: null(),
        policy: Policy::default(),
        build: BuildName::new("b").expect("a name"),
        session,
        outcome: Outcome::Succeeded(Payload::null()),
        progress: None,
        marks: Marks::default(),
        reference: None,
    }
}

fn entry(position: u64, fact: Fact) -> Entry {
    Entry { position: Position(position), at: Timestamp(0), fact }
}

fn started() -> Fact {
    Fact::Started(Started {
        input: Payload::null(),
        seed: [0; 32],
        generation: Generation(1),
        attributes: Vec::new(),
        hook: None,
        trace: None,
    })
}

fn row(position: u64, fact: Fact) -> JournalRow {
    JournalRow { uid: ONE, run: Run(1), entry: entry(position, fact) }
}

/// A commit of these entries.
fn of(journal: Vec<JournalRow>) -> Commit {
    let mut commit = Commit::default();
    commit.writes.journal = journal;
    commit
}

fn leases(uid: InstanceUid, session: SessionId, epoch: u64) -> Commit {
    let mut commit = Commit::default();
    commit.writes.leases.push((uid, Subject::INSTANCE, Lease { session, epoch: Epoch(epoch) }));
    commit
}

fn sees(checker: &mut dyn Checker, commit: &Commit) -> Result<(), String> {
    checker.sees(&Seen::Committed(commit))
}

fn view() -> InstanceView {
    InstanceView {
        uid: ONE,
        namespace: Namespace::default(),
        workflow: name().workflow,
        id: name().id,
        run: Run(1),
        generation: Generation(1),
        status: StatusWord::Waiting,
        created_at: Timestamp(0),
        ended_at: None,
        position: Position(1),
        steps: 0,
        epoch: Epoch(0),
        holder: None,
        ready_at: None,
        pin: None,
        served: true,
        waiting: Vec::new(),
        waits: 0,
        events: 0,
        unread: Vec::new(),
        never_sent: Vec::new(),
        control: Control::default(),
        parked: None,
        end: None,
        compensated: None,
        attributes: Vec::new(),
        state: None,
        parent: None,
        children: Vec::new(),
        children_total: 0,
    }
}

/// What a checker says of this end.
fn rests(
    checker: &mut dyn Checker,
    effects: &Counted,
    instances: &[InstanceView],
    entries: &[Entry],
) -> Result<(), String> {
    let mut journals = BTreeMap::new();
    if !entries.is_empty() {
        journals.insert((ONE, Run(1)), entries.to_vec());
    }
    let code = async |_: Workflow, (): ()| Ok::<u32, Error>(1);
    let registry = Registry::new().workflow_fn("w", code);
    checker.at_rest(&Rest { effects, instances, journals: &journals, registry: &registry, unanswered: 0 })
}

/// The error, which has this in it.
fn says(result: Result<(), String>, part: &str) {
    let said = result.expect_err("it must not be");
    assert!(said.contains(part), "{said}");
}

#[test]
fn starts_are_neither_lost_nor_doubled() {
    let mut starts = Starts::default();
    starts.sees(&Seen::Accepted(&name())).expect("nothing is wrong yet");
    assert_eq!(rests(&mut starts, &Counted::default(), &[view()], &[]), Ok(()));
    says(rests(&mut starts, &Counted::default(), &[], &[]), "w/one is lost");
    let mut commit = Commit::default();
    let row = |uid| everstep_engine::batch::NameRow { key: name(), uid, fingerprint: null() };
    commit.writes.names = vec![row(ONE), row(OTHER)];
    says(sees(&mut starts, &commit), "created twice");
}

#[test]
fn a_lease_is_held_once() {
    let mut writer = Writer::default();
    assert_eq!(sees(&mut writer, &leases(ONE, session(1), 1)), Ok(()));
    says(sees(&mut writer, &leases(ONE, session(2), 2)), "while");
}

#[test]
fn an_epoch_only_grows() {
    let mut writer = Writer::default();
    let with = |epoch| {
        let mut commit = Commit::default();
        commit.writes.heads.push(Head { epoch: Epoch(epoch), ..head(ONE) });
        commit
    };
    assert_eq!(sees(&mut writer, &with(3)), Ok(()));
    says(sees(&mut writer, &with(2)), "went back");
}

#[test]
fn an_outcome_is_taken_from_the_holder_alone() {
    let mut writer = Writer::default();
    let fact = |by| Fact::Attempted(attempted(call("keyed", 1), key('a'), session(by)));
    assert_eq!(sees(&mut writer, &leases(ONE, session(1), 1)), Ok(()));
    assert_eq!(sees(&mut writer, &of(vec![row(2, fact(1))])), Ok(()));
    says(sees(&mut writer, &of(vec![row(3, fact(2))])), "holds no lease");
}

#[test]
fn positions_have_no_gaps() {
    let mut journal = Journal::default();
    assert_eq!(sees(&mut journal, &of(vec![row(1, started())])), Ok(()));
    says(sees(&mut journal, &of(vec![row(3, Fact::Retried)])), "entry 3");
}

#[test]
fn an_outcome_is_recorded_once() {
    let mut journal = Journal::default();
    let fact = || Fact::Attempted(attempted(call("keyed", 1), key('a'), session(1)));
    assert_eq!(sees(&mut journal, &of(vec![row(1, started()), row(2, fact())])), Ok(()));
    says(sees(&mut journal, &of(vec![row(3, fact())])), "after its outcome");
}

#[test]
fn nothing_is_parked_but_for_deaths() {
    let parked = |code| Fact::Parked(Parked::new(code, "why".to_owned()));
    let mut journal = Journal::default();
    assert_eq!(sees(&mut journal, &of(vec![row(1, started()), row(2, parked(ParkCode::Poison))])), Ok(()));
    says(sees(&mut journal, &of(vec![row(3, parked(ParkCode::JournalMismatch))])), "was parked");
}

#[test]
fn what_is_stored_is_what_was_written() {
    let mut journal = Journal::default();
    assert_eq!(sees(&mut journal, &of(vec![row(1, started())])), Ok(()));
    let effects = Counted::default();
    assert_eq!(rests(&mut journal, &effects, &[view()], &[entry(1, started())]), Ok(()));
    says(rests(&mut journal, &effects, &[view()], &[entry(1, Fact::Retried)]), "not what was written");
    says(rests(&mut journal, &effects, &[view()], &[]), "not what was written");
}

#[test]
fn a_completed_step_is_not_run_again_by_who_holds_the_instance() {
    let mut steps = Steps::default();
    let mut commit = of(vec![row(2, Fact::Attempted(attempted(call("keyed", 1), key('a'), session(1))))]);
    commit.writes.created.push(head(ONE));
    commit.writes.leases = leases(ONE, session(1), 1).writes.leases;
    assert_eq!(sees(&mut steps, &commit), Ok(()));
    let attempting = |by| Attempting {
        workflow: name().workflow,
        id: name().id,
        call: call("keyed", 1),
        key: key('a'),
        session: Some(session(by)),
    };
    assert_eq!(steps.sees(&Seen::Attempting(&attempting(2))), Ok(()), "it has lost the lease");
    says(steps.sees(&Seen::Attempting(&attempting(1))), "run again");
}

#[test]
fn a_key_is_that_of_one_call() {
    let mut steps = Steps::default();
    let fact = |count| Fact::Attempted(attempted(call("keyed", count), key('a'), session(1)));
    assert_eq!(sees(&mut steps, &of(vec![row(2, fact(1))])), Ok(()));
    says(sees(&mut steps, &of(vec![row(3, fact(2))])), "has the key of");
}

/// The last entry of a run that was restarted is written together with the beginning of the next generation.
#[test]
fn a_key_is_that_of_the_generation_of_its_journal() {
    let fact = || Fact::Attempted(attempted(call("keyed", 1), key('a'), session(1)));
    let at = |run, generation| Head { run: Run(run), generation: Generation(generation), ..head(ONE) };
    let written = |run, heads| {
        let mut commit = of(vec![JournalRow { run: Run(run), ..row(2, fact()) }]);
        commit.writes.heads = heads;
        commit
    };
    let mut steps = Steps::default();
    assert_eq!(sees(&mut steps, &written(1, vec![at(1, 1)])), Ok(()));
    assert_eq!(sees(&mut steps, &written(2, vec![at(2, 1)])), Ok(()), "restarted");
    assert_eq!(sees(&mut steps, &written(2, vec![at(3, 2)])), Ok(()), "it goes on as new");
    says(sees(&mut steps, &written(3, vec![at(3, 2)])), "has the key of");
}

fn counted(class: Class, keys: &[char], times: u32) -> Counted {
    let keys: BTreeSet<_> = keys.iter().map(|digit| key(*digit).to_string()).collect();
    let mut counted = Counted::default();
    counted.by_key.extend(keys.iter().map(|key| (key.clone(), "what".to_owned())));
    counted.effects.insert("what".to_owned(), Effect { class, keys, times, past_a_freeze: 0 });
    counted
}

#[test]
fn an_effect_comes_once() {
    for class in Class::ALL {
        let mut steps = Steps::default();
        assert_eq!(rests(&mut steps, &counted(class, &['a'], 1), &[], &[]), Ok(()));
        says(rests(&mut steps, &counted(class, &['a'], 2), &[], &[]), "came 2 times");
    }
    says(rests(&mut Steps::default(), &counted(Class::Keyed, &['a', 'b'], 1), &[], &[]), "2 keys");
}

#[test]
fn a_completed_step_had_its_effect() {
    let fact = Fact::Attempted(attempted(call("keyed", 1), key('a'), session(1)));
    let entries = [entry(1, started()), entry(2, fact)];
    let mut steps = Steps::default();
    assert_eq!(rests(&mut steps, &counted(Class::Keyed, &['a'], 1), &[], &entries), Ok(()));
    says(rests(&mut steps, &Counted::default(), &[], &entries), "never came");
}

fn accepts(sequence: u64, id: &str) -> Commit {
    let event = SentEvent {
        id: EventId { app_id: String::new(), id: id.to_owned() },
        kind: EventType::new("e").expect("a type"),
        key: None,
        payload: Payload::null(),
        fingerprint: null(),
    };
    let mut commit = Commit::default();
    commit.writes.events.push((ONE, EventRow { sequence, event, received_at: Timestamp(0), delivery: None }));
    commit
}

fn delivers(sequence: u64) -> Commit {
    let delivered = Delivered {
        call: call("e", 1),
        kind: EventType::new("e").expect("a type"),
        sequence,
        id: sequence.to_string(),
        key: None,
        received_at: Timestamp(0),
        payload: Payload::null(),
    };
    of(vec![row(2, Fact::Delivered(delivered))])
}

#[test]
fn events_are_accepted_and_delivered_once() {
    let mut events = Events::default();
    says(sees(&mut events, &delivers(1)), "never accepted");
    assert_eq!(sees(&mut events, &accepts(1, "a")), Ok(()));
    assert_eq!(sees(&mut events, &delivers(1)), Ok(()));
    says(sees(&mut events, &delivers(1)), "delivered twice");
    says(sees(&mut events, &accepts(2, "a")), "accepted before");
}

#[test]
fn what_a_dropped_call_got_and_nobody_saw_may_come_again() {
    let mut events = Events::default();
    let closes = |after| {
        let closed = Closed { call: call("e", 1), after: Position(after), hook: None };
        of(vec![row(3, Fact::Closed(closed))])
    };
    assert_eq!(sees(&mut events, &accepts(1, "a")), Ok(()));
    assert_eq!(sees(&mut events, &delivers(1)), Ok(()));
    assert_eq!(sees(&mut events, &closes(1)), Ok(()));
    assert_eq!(sees(&mut events, &delivers(1)), Ok(()));
    assert_eq!(sees(&mut events, &closes(2)), Ok(()), "it was seen");
    says(sees(&mut events, &delivers(1)), "delivered twice");
}

#[test]
fn no_event_is_passed_over() {
    let mut events = Events::default();
    assert_eq!(sees(&mut events, &accepts(1, "a")), Ok(()));
    assert_eq!(sees(&mut events, &accepts(2, "b")), Ok(()));
    says(sees(&mut events, &delivers(2)), "before event 1");
}

fn claims(uid: InstanceUid) -> Commit {
    let hook = HookRow {
        owner: uid,
        name: Other { workflow: name().workflow, id: name().id },
        id: HookId { run: Run(1), position: Position(2) },
        since: Timestamp(0),
        retain_until: None,
        ended: false,
        webhook: None,
        metadata: None,
        schema: None,
        from: None,
        unheard: false,
    };
    let mut commit = Commit::default();
    commit.writes.hooks.push(((Namespace::default(), Token::new("t").expect("a token")), hook));
    commit
}

#[test]
fn a_token_has_one_owner() {
    let mut hooks = Hooks::default();
    assert_eq!(sees(&mut hooks, &claims(ONE)), Ok(()));
    says(sees(&mut hooks, &claims(OTHER)), "owned it");
}

#[test]
fn a_token_moves_by_a_decision_of_its_owner() {
    let mut hooks = Hooks::default();
    assert_eq!(sees(&mut hooks, &claims(ONE)), Ok(()));
    let mut commit = claims(OTHER);
    let token = commit.writes.hooks[0].0.clone();
    commit.writes.hook_deletes.push((token, ONE, everstep_engine::hook::HookEnd::Own));
    says(sees(&mut hooks, &commit), "without its own decision");
}

#[test]
fn who_is_told_that_it_owns_a_hook_does() {
    let outcome = HookOutcome::Owned { hook: HookId { run: Run(1), position: Position(2) }, from: None };
    let told =
        || of(vec![row(3, Fact::Registered(Registered { call: call("h", 1), outcome: outcome.clone() }))]);
    let mut hooks = Hooks::default();
    says(sees(&mut hooks, &told()), "does not");
    let mut hooks = Hooks::default();
    assert_eq!(sees(&mut hooks, &claims(ONE)), Ok(()));
    assert_eq!(sees(&mut hooks, &told()), Ok(()));
}

#[test]
fn an_open_instance_has_a_reason_to_move_and_at_rest_none_is_open() {
    let (effects, mut moves) = (Counted::default(), Moves);
    let waits = InstanceView { waits: 1, ..view() };
    assert_eq!(moves.sees(&Seen::Audited(std::slice::from_ref(&waits))), Ok(()));
    says(moves.sees(&Seen::Audited(&[view()])), "nothing will ever move w/one");
    says(rests(&mut moves, &effects, &[waits], &[]), "w/one");
    let ended = InstanceView { ended_at: Some(Timestamp(1)), ..view() };
    assert_eq!(rests(&mut moves, &effects, &[ended], &[]), Ok(()));
}

#[test]
fn w08_a_session_ends_only_where_its_process_could_not_be_heard() {
    let (mut sessions, one, other) = (Sessions::default(), session(1), session(2));
    let ended = |session, at| Seen::SessionEnded { session, at, early: true };
    says(sessions.sees(&ended(one, 1)), "was ended, though its process lives");
    assert_eq!(sessions.sees(&Seen::Troubled { session: Some(one), until: 1_000_000 }), Ok(()));
    assert_eq!(sessions.sees(&ended(one, 20_000_000)), Ok(()));
    says(sessions.sees(&ended(one, 60_000_000)), "was ended");
    says(sessions.sees(&ended(other, 20_000_000)), "was ended");
    assert_eq!(sessions.sees(&Seen::Troubled { session: None, until: i64::MAX }), Ok(()));
    assert_eq!(sessions.sees(&ended(other, 60_000_000)), Ok(()));
}

/// A session that was heard at the beginning, and beats each second in these.
fn beating(beats: impl IntoIterator<Item = i64>) -> Silence {
    let mut silence = Silence::default();
    for second in beats {
        assert_eq!(silence.sees(&Seen::Beat { at: second * SECOND }), Ok(()));
        if second == 0 {
            assert_eq!(silence.sees(&Seen::Heard { session: session(1), at: 0 }), Ok(()));
        }
    }
    silence
}

#[test]
fn w08_silence_counts_only_while_it_could_be_heard() {
    let ends = |silence: &mut Silence, second| {
        silence.sees(&Seen::SessionEnded { session: session(1), at: second * SECOND, early: false })
    };
    assert_eq!(ends(&mut beating(0..=10), 10), Ok(()));
    says(ends(&mut beating(0..=9), 9), "9000 ms after a gap");
    let mut heard = beating(0..=12);
    assert_eq!(heard.sees(&Seen::Heard { session: session(1), at: 3 * SECOND }), Ok(()));
    says(ends(&mut heard, 12), "silent 9000 ms after it was heard");
    says(ends(&mut beating((0..=3).chain(7..=16)), 16), "9000 ms after a gap");
    assert_eq!(ends(&mut beating((0..=3).chain(7..=17)), 17), Ok(()));
    says(ends(&mut beating(0..=10), 14), "while nobody could be heard");
    says(ends(&mut Silence::default(), 20), "before anybody could be heard");
}

#[test]
fn w09_after_a_gap_only_what_was_heard_since_ends_early() {
    let early = |second| Seen::SessionEnded { session: session(1), at: second * SECOND, early: true };
    says(beating((0..=3).chain(7..=9)).sees(&early(9)), "2000 ms after a gap");
    let mut silence = beating((0..=3).chain(7..=9));
    assert_eq!(silence.sees(&Seen::Heard { session: session(1), at: 8 * SECOND }), Ok(()));
    assert_eq!(silence.sees(&early(9)), Ok(()));
    assert_eq!(beating(0..=10).sees(&early(10)), Ok(()));
}

#[test]
fn w08_a_session_whose_process_is_gone_is_ended() {
    let gone = Seen::Gone { session: session(1), at: 5 * SECOND };
    let passed = Seen::Passed { at: 60 * SECOND };
    let mut silence = beating(0..=60);
    assert_eq!(silence.sees(&passed), Ok(()), "it lives");
    assert_eq!(silence.sees(&gone), Ok(()));
    says(silence.sees(&passed), "gone for 55 s");
    assert_eq!(silence.sees(&Seen::Goodbye { session: session(1) }), Ok(()));
    assert_eq!(silence.sees(&passed), Ok(()));
    // While nobody could be heard, and for a lease after that, it may stay.
    for beats in [0..=50, 40..=60] {
        let mut silence = beating((0..=1).chain(beats.filter(|second| *second != 0)));
        assert_eq!(silence.sees(&gone), Ok(()));
        assert_eq!(silence.sees(&passed), Ok(()));
    }
}

#[test]
fn what_is_decided_can_be_written() {
    says(Written.sees(&Seen::Unwritable { reason: "a key is there twice" }), "a key is there twice");
}

#[test]
fn a_journal_is_replayed_to_its_end() {
    let end = |output: &str| {
        let output = Payload::from_text(output).expect("it is JSON");
        [entry(1, started()), entry(2, Fact::Ended(End::Complete(output)))]
    };
    let effects = Counted::default();
    assert_eq!(rests(&mut Replay, &effects, &[view()], &end("1")), Ok(()));
    says(rests(&mut Replay, &effects, &[view()], &end("2")), "completes with 1");
}

/// A hash of a call is what a step's lease bears.
#[test]
fn a_remote_step_is_reported_under_its_own_lease() {
    let step = call("keyed", 1);
    let mut commit = Commit::default();
    let subject = Subject::step(step.hash());
    commit.writes.leases.push((ONE, subject, Lease { session: session(7), epoch: Epoch(1) }));
    let mut writer = Writer::default();
    assert_eq!(sees(&mut writer, &commit), Ok(()));
    let fact = Fact::Attempted(attempted(step, key('a'), session(7)));
    assert_eq!(sees(&mut writer, &of(vec![row(2, fact)])), Ok(()));
    assert_ne!(subject, Subject::step(CallHash([0; 16])));
}
