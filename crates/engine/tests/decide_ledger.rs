//! Proves what coordinators do about attempts that may not simply be made again (rules L5 to L9): what reports become, questions and
//! their answers, late reports, and every operation with an open question or intent. Not: that workers report so; see their rules.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::{
    Answer, Status, StatusWord, What,
    decide::{Prepared, Rekeying, Resolution, Unparking},
    keep::{keep, unsettled},
    reuse::reuse,
    rows::{EVIDENCE_BYTES, Question, Told, WaitKind},
};
use everstep_protocol::{
    Attempt, Call, Class, Epoch, Failure, FailureKind, Millis, Policy, Position, Run, SessionId, Timestamp,
    journal::{
        Changed, Choice, End, Entry, Fact, Intended, KeyChoice, Marks, Outcome, ParkCode, Parked, QuestionId,
        Rekeyed, Withdrawn,
    },
    message::{AttemptEnd, AttemptOutcome, Intent, LedgerItem, OpenWait, Report, Then},
};
use support::*;

const ONCE: Class = Class::AtMostOnce;

fn of(class: Class) -> Policy {
    Policy { class, ..Policy::default() }
}

fn pay() -> Call {
    step("pay")
}

fn intent(attempt: u32) -> LedgerItem {
    LedgerItem::Intend(Intent {
        call: pay(),
        attempt: Attempt(attempt),
        called_after: Position(1),
        key: key(1),
        input: fingerprint(1),
        policy: of(ONCE),
        marks: Marks::default(),
    })
}

fn slow() -> Failure {
    Failure::new(FailureKind::TimedOut, "slow")
}

fn unknown(attempt: u32, epoch: u64) -> AttemptEnd {
    let outcome = AttemptOutcome::Unknown { failure: slow(), asks: true, epoch: Epoch(epoch) };
    AttemptEnd { policy: of(ONCE), ..end(&pay(), attempt, outcome) }
}

/// Held, with attempt 1 of `pay` announced.
fn announced() -> Store {
    let mut store = Store::held();
    let out = store.report(|report| report.ledger = vec![intent(1)]);
    assert_eq!((out.entries(), out.sent()), (vec!["intended"], vec!["ack"]));
    store
}

/// Nobody holds it; a person is asked about attempt 1.
fn asking() -> Store {
    let mut store = announced();
    let out = store.report(|report| {
        report.results = vec![unknown(1, 1)];
        report.then = Then::Suspend;
    });
    assert_eq!((out.entries(), store.state()), (vec!["attempted"], "waiting"));
    store
}

fn question(store: &Store) -> Question {
    let wait = &store.tables.waits[&(uid(1), pay().hash())];
    assert_eq!((wait.kind, wait.due_at), (WaitKind::Person, None));
    *wait.question.clone().unwrap()
}

fn resolve_as(id: &str, position: u64, choice: Choice) -> What {
    let question = QuestionId { run: Run(1), position: Position(position) };
    let (call, by, why) = (Some(pay().hash()), Some("ann".to_owned()), None);
    let resolution = Box::new(Resolution { question, call, choice, by, why });
    What::Resolve { operation: id.to_owned(), resolution }
}

fn resolve(choice: Choice) -> What {
    resolve_as("r", 3, choice)
}

fn last(store: &Store) -> Fact {
    store.tables.journal[&uid(1)].last().unwrap().fact.clone()
}

#[test]
fn l05_an_intent_is_an_entry_and_no_row() {
    let store = announced();
    assert_eq!((store.head().waits, store.state()), (0, "held"));
    let Fact::Intended(intended) = last(&store) else { panic!() };
    assert_eq!((intended.session, intended.epoch, intended.policy.class), (S1, Epoch(1), ONCE));
    // A suspend does not hold while something is to begin.
    let mut store = Store::held();
    let out = store.report(|report| {
        report.ledger = vec![intent(1)];
        report.then = Then::Suspend;
    });
    assert_eq!((out.taken(), store.state()), (vec![everstep_protocol::message::Taken::Kept], "held"));
    // Nor is it written of a fold that is refused.
    let mut store = Store::held();
    store.tell(What::Event(sent("e", "x", 1)));
    let (session, report) = store.next_report(|report| {
        report.results = vec![end(&step("a"), 1, ok())];
        report.ledger = vec![intent(1)];
        report.folded = true;
        report.seen = Position(0);
    });
    let out = store.tell(reported(session, report));
    assert_eq!(out.entries(), ["attempted"], "only the result");
}

#[test]
fn l05_a_keyed_step_costs_no_entry_and_no_row() {
    let mut store = Store::held();
    let out = store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    assert_eq!((out.entries(), out.writes.waits.len()), (vec!["attempted"], 0));
    let mut needs = everstep_engine::rows::Needs::default();
    let mut report = report(uid(1), 1, 1, 1);
    report.results = vec![end(&step("a"), 1, ok())];
    on(uid(1), reported(S1, report.clone())).needs(&mut needs);
    assert!(needs.waits.is_empty(), "no look-up");
    report.results = vec![unknown(1, 1)];
    on(uid(1), reported(S1, report)).needs(&mut needs);
    assert_eq!(needs.waits.len(), 1);
}

#[test]
fn l07_an_unknown_outcome_asks_and_other_branches_go_on() {
    let store = asking();
    assert_eq!((store.head().waits, store.head().steps), (1, 0), "it has no outcome yet");
    let asked = question(&store);
    assert_eq!(
        (asked.position, asked.attempt, asked.epoch, asked.failure),
        (Position(3), Attempt(1), Epoch(1), slow())
    );
    assert_eq!(store.status(), StatusWord::Attention);
    // Another branch: it is held, and then queued again, and says so.
    let mut store = announced();
    store.report(|report| {
        report.results = vec![unknown(1, 1)];
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
    });
    assert_eq!(store.status(), StatusWord::Running);
    store.report(|report| report.then = Then::Suspend);
    assert_eq!(store.status(), StatusWord::Attention, "it waits for nothing that comes by itself alone");
    store.pass(9);
    store.tell(What::Due { call: sleep("s").hash() });
    assert_eq!(store.status(), StatusWord::Queued);
}

#[test]
fn l07_an_output_over_the_limit_is_unknown_too() {
    let mut store = announced();
    store.rules.limits.output_bytes = 3;
    let done = AttemptOutcome::Succeeded(json("12345"));
    store.report(|report| report.results = vec![AttemptEnd { policy: of(ONCE), ..end(&pay(), 1, done) }]);
    let Fact::Attempted(attempted) = last(&store) else { panic!() };
    assert!(matches!(attempted.outcome, Outcome::Unknown { asks: true, .. }), "{attempted:?}");
    assert_eq!(question(&store).failure.kind, FailureKind::TooLarge);
}

#[test]
fn l08_a_person_decides_once() {
    let mut store = asking();
    let out = store.tell(resolve(Choice::Done(json("9"))));
    assert_eq!((out.answer(), out.entries(), store.state()), (Answer::Done, vec!["resolved"], "ready"));
    assert_eq!((store.head().waits, store.head().steps), (0, 1));
    let Fact::Resolved(resolved) = last(&store) else { panic!() };
    assert_eq!((resolved.attempt, resolved.by.as_deref()), (Attempt(1), Some("ann")));
    // The same operation again gets its first answer, another one is refused.
    assert_eq!(store.tell(resolve(Choice::Done(json("9")))).answer(), Answer::Done);
    let out = store.tell(resolve_as("r2", 3, Choice::Again));
    assert_eq!((out.answer(), out.entries()), (Answer::NotAsked, vec![]));

    let mut store = asking();
    store.tell(resolve(Choice::Fail(error("no"))));
    assert_eq!((store.head().steps, store.state()), (1, "ready"));

    let mut store = asking();
    store.tell(resolve(Choice::Again));
    assert_eq!((store.head().steps, store.head().waits, store.state()), (0, 0, "ready"));
    // What is asked next is another question: the answer to the first does not fit it.
    store.tell(What::Claim { session: S1, have: None });
    store.report(|report| report.ledger = vec![intent(2)]);
    store.report(|report| report.results = vec![unknown(2, 2)]);
    assert_eq!(question(&store).attempt, Attempt(2));
    assert_eq!(store.tell(resolve_as("late", 3, Choice::Again)).answer(), Answer::NotAsked);
    // A holder is pushed the decision.
    let out = store.tell(resolve_as("r3", 6, Choice::Again));
    assert_eq!((out.answer(), out.sent()), (Answer::Done, vec!["push"]));
}

#[test]
fn l08_what_is_not_asked_is_refused() {
    let wrong = |change: fn(&mut Resolution)| {
        let mut store = asking();
        let What::Resolve { operation, mut resolution } = resolve(Choice::Again) else { panic!() };
        change(&mut resolution);
        let out = store.tell(What::Resolve { operation, resolution });
        (out.answer(), out.entries())
    };
    for change in [
        (|it| it.question.position = Position(2)) as fn(&mut Resolution),
        |it| it.question.run = Run(2),
        |it| it.call = None,
        |it| it.call = Some(step("b").hash()),
    ] {
        assert_eq!(wrong(change), (Answer::NotAsked, vec![]));
    }
}

/// A report of the attempt by its worker, which has lost its lease meanwhile.
fn late(store: &mut Store, session: SessionId, epoch: u64, outcome: AttemptOutcome) {
    let mut report = Report { instance: uid(1), ..report(uid(1), epoch, 2, 2) };
    report.results = vec![AttemptEnd { policy: of(ONCE), ..end(&pay(), 1, outcome) }];
    let out = store.tell(reported(session, report));
    assert_eq!((out.answer(), out.sent()), (Answer::Fenced, vec!["fence"]));
}

#[test]
fn l07_a_late_report_is_evidence_and_decides_nothing() {
    // The holder dies, another one replays and asks.
    let mut store = announced();
    store.tell(lease_ended(S1, true));
    store.tell(What::Claim { session: S2, have: None });
    store.report(|report| {
        report.results = vec![unknown(1, 1)];
        report.then = Then::Suspend;
    });
    late(&mut store, S1, 1, ok());
    let evidence = question(&store).evidence.unwrap();
    assert_eq!((evidence.session, evidence.told), (S1, Told::Succeeded(json("1"))));
    assert_eq!(store.status(), StatusWord::Attention);
    // The first word stands; that of another lease says nothing of this attempt.
    late(&mut store, S1, 1, failed(None));
    assert_eq!(question(&store).evidence.unwrap().told, Told::Succeeded(json("1")));
    // What is large is not kept beside the head: only how large it was.
    let mut store = asking();
    store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    let large = json(&format!("\"{}\"", "x".repeat(EVIDENCE_BYTES)));
    late(&mut store, S1, 1, AttemptOutcome::Succeeded(large));
    assert_eq!(question(&store).evidence.unwrap().told, Told::Large(EVIDENCE_BYTES as u64 + 2));
    let mut store = asking();
    store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    late(&mut store, S1, 0, ok());
    assert_eq!(question(&store).evidence, None);
    late(&mut store, S1, 1, failed(None));
    assert_eq!(question(&store).evidence.unwrap().told, Told::Failed(error("no")));
}

/// Every operation with an open question, and with an attempt that is announced: what becomes of them.
#[test]
fn l07_every_operation_with_an_open_question_or_intent() {
    let op = || "o".to_owned();
    let operations: [(&str, What, StatusWord, StatusWord); 6] = [
        (
            "terminate",
            What::Terminate { operation: op(), reason: None },
            StatusWord::Terminated,
            StatusWord::Terminated,
        ),
        (
            "cancel",
            What::Cancel { operation: op(), reason: None, within: Millis(9), rollback: false },
            StatusWord::Queued,
            StatusWord::Running,
        ),
        (
            "rollback",
            What::Rollback { operation: op(), reason: None },
            StatusWord::Queued,
            StatusWord::Running,
        ),
        ("pause", What::Pause { operation: op() }, StatusWord::Paused, StatusWord::Pausing),
        (
            "restart",
            What::Restart { operation: op(), prepared: None },
            StatusWord::Queued,
            StatusWord::Queued,
        ),
        (
            "delete",
            What::Delete { operation: op(), terminate: true },
            StatusWord::Complete,
            StatusWord::Complete,
        ),
    ];
    for (word, what, asked_then, announced_then) in operations {
        let (mut asked, mut held) = (asking(), announced());
        assert_eq!(asked.tell(what.clone()).answer(), Answer::Done, "{word}");
        assert_eq!(held.tell(what).answer(), Answer::Done, "{word}");
        if word == "delete" {
            assert_eq!((asked.state(), held.state()), ("gone", "gone"));
            assert!(asked.tables.waits.is_empty());
            continue;
        }
        assert_eq!((asked.status(), held.status()), (asked_then, announced_then), "{word}");
        let still_asks = asked.tables.waits.contains_key(&(uid(1), pay().hash()));
        assert_eq!(still_asks, word == "pause", "{word}");
        let answer = asked.tell(resolve_as("r", 3, Choice::Again)).answer();
        assert_eq!(answer, if word == "pause" { Answer::Done } else { Answer::NotAsked }, "{word}");
        if word == "pause" {
            // What is decided while it is paused goes on at the resume.
            assert_eq!(asked.status(), StatusWord::Paused);
            asked.tell(What::Resume { operation: "on".to_owned() });
            assert_eq!(asked.status(), StatusWord::Queued);
        }
    }
    // The next generation has none of the questions of the one before.
    let mut store = announced();
    store.report(|report| report.results = vec![unknown(1, 1)]);
    store.report(|report| report.then = Then::Again(again(2)));
    assert_eq!((store.head().waits, store.tables.waits.len()), (0, 0));
    // An end with an open question leaves none, and it is not told that it is retried.
    let mut store = announced();
    store.report(|report| report.results = vec![unknown(1, 1)]);
    store.report(|report| report.then = Then::End(End::Complete(json("1"))));
    assert_eq!((store.head().status, store.tables.waits.len()), (Status::Complete, 0));
    assert_eq!(asking().tell(What::Retry { operation: op() }).answer(), Answer::NotParked);
}

#[test]
fn l07_a_report_after_a_cancel_that_it_has_not_seen_asks_nobody() {
    let mut store = announced();
    let (session, report) = store.next_report(|report| report.results = vec![unknown(1, 1)]);
    store.tell(What::Cancel { operation: "c".to_owned(), reason: None, within: Millis(9), rollback: false });
    store.tell(reported(session, report));
    assert_eq!((store.head().waits, store.tables.waits.len()), (0, 0));
}

#[test]
fn l07_a_dropped_call_takes_its_question_along() {
    let mut store = asking();
    store.tell(What::Event(sent("e", "x", 1)));
    store.tell(What::Pause { operation: "p".to_owned() });
    store.tell(What::Resume { operation: "q".to_owned() });
    store.tell(What::Claim { session: S1, have: None });
    let out = store.report(|report| {
        report.closed = vec![dropped(&pay(), 3)];
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
    });
    assert_eq!(out.entries(), ["closed", "opened"]);
    assert_eq!((store.head().waits, store.tables.waits.len()), (1, 1));
    // One that ran when it was dropped is recorded, and asks nobody.
    let mut store = announced();
    let outcome = AttemptOutcome::Unknown { failure: slow(), asks: false, epoch: Epoch(1) };
    let lost_race = AttemptEnd { policy: of(ONCE), ..end(&pay(), 1, outcome) };
    let out = store.report(|report| report.ledger = vec![LedgerItem::Dropped(lost_race)]);
    assert_eq!((out.entries(), store.head().waits), (vec!["attempted"], 0));
    let withdrawn = Withdrawn { call: pay(), attempt: Attempt(1) };
    let out = store.report(|report| report.ledger = vec![LedgerItem::Withdraw(withdrawn)]);
    assert_eq!(out.entries(), ["withdrawn"]);
}

/// A remote step whose worker holds it.
fn remote_held(class: Class) -> Store {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![open(&pay(), OpenWait::Remote(remote(of(class))))];
        report.then = Then::Suspend;
    });
    assert_eq!(store.tell(What::StepClaim { session: S2, call: pay().hash() }).answer(), Answer::Granted);
    store
}

fn remote_ended(counts: bool, unstarted: bool) -> What {
    let (build, call) = (build(), pay().hash());
    What::StepLeaseEnded { session: S2, build, call, epoch: None, counts, unstarted, progress: None }
}

#[test]
fn l07_the_lease_of_a_remote_step_is_its_intent() {
    for counts in [true, false] {
        let mut store = remote_held(ONCE);
        let out = store.tell(remote_ended(counts, false));
        assert_eq!((out.entries(), store.status()), (vec!["attempted"], StatusWord::Attention), "{counts}");
        assert_eq!((question(&store).epoch, store.head().waits), (Epoch(1), 1));
        // What its worker says too late stands with the question.
        store.tell(step_reported(S2, &pay(), 1, ok()));
        assert_eq!(question(&store).evidence.unwrap().told, Told::Succeeded(json("1")));
        // Again: the pool is offered the next attempt, under another lease.
        let out = store.tell(resolve(Choice::Again));
        assert_eq!((out.entries(), out.sent()), (vec!["resolved"], vec!["offer step"]));
        store.tell(What::StepClaim { session: S2, call: pay().hash() });
        let out = store.tell(step_reported(S2, &pay(), 2, ok()));
        let Fact::Attempted(attempted) = last(&store) else { panic!() };
        assert_eq!((out.answer(), attempted.attempt, store.state()), (Answer::Taken, Attempt(2), "ready"));
    }
    // It never began: it is offered again, and no attempt is used up.
    let mut store = remote_held(ONCE);
    let out = store.tell(remote_ended(false, true));
    assert_eq!((out.entries(), out.sent()), (vec![], vec!["offer step"]));
    // Keyed, a stop costs nothing.
    let out = remote_held(Class::Keyed).tell(remote_ended(false, false));
    assert_eq!((out.entries(), out.sent()), (vec![], vec!["offer step"]));
    // Looked up, the next attempt waits until what this one did would show.
    let mut store = remote_held(Class::Lookup { visibility_lag: Millis(60_000) });
    store.tell(remote_ended(false, false));
    let Fact::Attempted(attempted) = last(&store) else { panic!() };
    assert_eq!(attempted.retry_at(), Some(store.now.plus(Millis(60_000))));
    assert_eq!(store.tables.waits[&(uid(1), pay().hash())].kind, WaitKind::Remote);
}

#[test]
fn l07_after_a_restore_a_remote_step_asks_before_it_is_called() {
    let opened = |class| {
        let mut store = Store::held();
        store.report(|report| {
            report.opened = vec![open(&pay(), OpenWait::Remote(remote(of(class))))];
            report.then = Then::Suspend;
        });
        store.rules.restored_at = Some(store.now);
        store.now = store.now.plus(Millis(1_000));
        store
    };
    let claim = || What::StepClaim { session: S2, call: pay().hash() };
    let mut store = opened(ONCE);
    let out = store.tell(claim());
    assert_eq!((out.answer(), out.sent()), (Answer::NotGranted, vec!["step fence"]));
    assert_eq!((out.entries(), store.status()), (vec!["attempted"], StatusWord::Attention));
    assert!(question(&store).failure.message.contains("restored"), "{:?}", question(&store).failure);
    store.tell(claim());
    assert_eq!(store.status(), StatusWord::Attention, "asked once");
    // Said to be called again it is, and asks no second time.
    store.tell(resolve(Choice::Again));
    assert_eq!(store.tell(claim()).answer(), Answer::Granted);
    // Its key, or a look, says what was done.
    for class in [Class::Keyed, Class::Lookup { visibility_lag: Millis(60_000) }] {
        assert_eq!(opened(class).tell(claim()).answer(), Answer::Granted);
    }
    // An instance of this life has done nothing before.
    let mut store = opened(ONCE);
    store.rules.restored_at = Some(Timestamp(store.head().created_at.0 - 1));
    assert_eq!(store.tell(claim()).answer(), Answer::Granted);
    // But a child that its older parent starts anew may have.
    let mut store = opened(ONCE);
    store.rules.restored_at = Some(Timestamp(store.head().created_at.0 - 1));
    store.tables.heads.get_mut(&uid(1)).expect("it is there").links = 1;
    assert_eq!(store.tell(claim()).answer(), Answer::NotGranted);
    assert_eq!(store.status(), StatusWord::Attention);
    // What was held when the backup was taken asks as ever, and once.
    let mut store = remote_held(ONCE);
    store.rules.restored_at = Some(store.now);
    store.now = store.now.plus(Millis(1_000));
    store.tell(remote_ended(false, false));
    assert_eq!(store.status(), StatusWord::Attention);
    store.tell(resolve(Choice::Again));
    assert_eq!(store.tell(claim()).answer(), Answer::Granted);
}

#[test]
fn l08_the_question_of_a_remote_step_is_answered() {
    for choice in [Choice::Done(json("9")), Choice::Fail(error("no"))] {
        let mut store = remote_held(ONCE);
        store.tell(remote_ended(true, false));
        store.tell(resolve(choice));
        assert_eq!((store.head().waits, store.head().steps, store.state()), (0, 1, "ready"));
        assert!(store.tables.remotes.is_empty());
    }
    // Paused: it is offered at the resume.
    let mut store = remote_held(ONCE);
    store.tell(remote_ended(true, false));
    store.tell(What::Pause { operation: "p".to_owned() });
    let out = store.tell(resolve(Choice::Again));
    assert_eq!((out.answer(), out.sent()), (Answer::Done, vec![]));
    store.tell(What::Resume { operation: "q".to_owned() });
    let out = store.tell(What::Due { call: pay().hash() });
    assert_eq!(out.sent(), ["offer step"]);
}

/// Whoever answers that a parked instance is to be ended does not end one that goes on.
#[test]
fn l08_only_what_is_parked_is_ended_by_the_answer_to_its_question() {
    let abandon = || What::Abandon { operation: "a".to_owned(), reason: Some("ann".to_owned()) };
    let mut store = announced();
    let out = store.tell(abandon());
    assert_eq!((out.answer(), store.status()), (Answer::NotParked, StatusWord::Running));
    let mut store = Store::held();
    store.report(|report| {
        let message = "it does not fit".to_owned();
        report.then = Then::Park(Parked::new(ParkCode::JournalMismatch, message));
    });
    assert_eq!(store.tell(abandon()).answer(), Answer::Done);
    assert_eq!(store.status(), StatusWord::Terminated);
}

#[test]
fn l09_a_remote_attempt_without_an_effect_is_a_failure_like_others() {
    let ended = |failure: Failure| {
        let mut store = remote_held(ONCE);
        let outcome = AttemptOutcome::Failed { failure, retry_in: None };
        store.tell(step_reported(S2, &pay(), 1, outcome));
        let Fact::Attempted(attempted) = last(&store) else { panic!() };
        attempted.outcome
    };
    assert!(matches!(ended(slow().not_sent()), Outcome::Failed { retry_at: Some(_), .. }));
    let refused = Failure { permanent: true, sent: everstep_protocol::Sent::Refused, ..error("no") };
    assert!(matches!(ended(refused), Outcome::Failed { retry_at: None, .. }));
    assert!(matches!(ended(slow()), Outcome::Unknown { asks: true, .. }));
    let permanent = Failure { permanent: true, ..error("no") };
    assert!(matches!(ended(permanent), Outcome::Unknown { asks: true, .. }), "it may have taken effect");
}

#[test]
fn l07_a_restart_does_not_make_an_unknown_call_again_unasked() {
    let mut store = asking();
    assert_eq!(unsettled(&store.tables.journal[&uid(1)], None), Some(pay()));
    assert_eq!(unsettled(&announced().tables.journal[&uid(1)], None), Some(pay()));
    store.tell(resolve(Choice::Again));
    assert_eq!(unsettled(&store.tables.journal[&uid(1)], None), Some(pay()), "again, and not known by now");
    // Of two such calls a restart from the one does not make the other again.
    let both = |entry: &Entry| match &entry.fact {
        Fact::Intended(intended) => {
            let other = Intended { call: step("other"), ..intended.clone() };
            vec![entry.clone(), Entry { fact: Fact::Intended(other), ..entry.clone() }]
        }
        _ => vec![entry.clone()],
    };
    let both: Vec<Entry> = announced().tables.journal[&uid(1)].iter().flat_map(both).collect();
    assert_eq!(unsettled(&both, Some(&pay())), Some(step("other")));
    assert_eq!(unsettled(&both, Some(&step("other"))), Some(pay()));
    assert_eq!(unsettled(&announced().tables.journal[&uid(1)], Some(&pay())), None);
    let mut store = asking();
    store.tell(resolve(Choice::Done(json("9"))));
    let journal = store.tables.journal[&uid(1)].clone();
    assert_eq!(unsettled(&journal, None), None);
    // What a person has said is kept like what a worker says.
    store.tell(What::Claim { session: S1, have: None });
    store.report(|report| report.results = vec![end(&step("after"), 1, ok())]);
    let journal = store.tables.journal[&uid(1)].clone();
    let kept = keep(&journal, &step("after")).unwrap();
    let words: Vec<_> = kept.iter().map(|entry| entry.fact.word()).collect();
    assert_eq!(words, ["started", "intended", "attempted", "resolved"]);
    let seen = journal.last().unwrap().position;
    let prepared = Some(Prepared { from: Run(1), seen, entries: kept });
    let out = store.tell(What::Restart { operation: "x".to_owned(), prepared });
    assert_eq!((out.answer(), store.head().waits), (Answer::Done, 0), "no question is asked anew");
    let reused = reuse(&journal).unwrap();
    let words: Vec<_> = reused.iter().map(|entry| entry.fact.word()).collect();
    assert_eq!(words, ["started", "reusable", "reusable"]);
    let mut withdrawn = announced();
    let back = Withdrawn { call: pay(), attempt: Attempt(1) };
    withdrawn.report(|report| report.ledger = vec![LedgerItem::Withdraw(back)]);
    assert_eq!(unsettled(&withdrawn.tables.journal[&uid(1)], None), None);
}

fn changed() -> Parked {
    let changed = Changed { call: pay(), input: fingerprint(2), key: key(1), asked_at: None };
    Parked { changed: Some(Box::new(changed)), ..Parked::new(ParkCode::InputChanged, "another input") }
}

fn rekey(id: &str, position: u64, choice: KeyChoice) -> What {
    let question = QuestionId { run: Run(1), position: Position(position) };
    let (by, why) = (Some("ann".to_owned()), Some("v2".to_owned()));
    let rekeying = Rekeying { question, choice: Unparking::Key(choice), by, why };
    What::Rekey { operation: id.to_owned(), rekeying: Box::new(rekeying) }
}

fn rekeyed(kept: bool) -> Fact {
    let (by, why) = (Some("ann".to_owned()), Some("v2".to_owned()));
    let kept = kept.then(|| key(1));
    Fact::Rekeyed(Rekeyed { call: pay(), input: fingerprint(2), kept, by, why })
}

#[test]
fn p08_a_key_is_chosen_once_and_for_the_question_that_is_open() {
    let new = |id: &str, position| rekey(id, position, KeyChoice::NewKey);
    let mut store = Store::held();
    assert_eq!(store.tell(new("k1", 2)).answer(), Answer::NotParked);
    store.report(|report| report.then = Then::Park(Parked::new(ParkCode::Poison, "p")));
    assert_eq!((store.tell(new("k2", 2)).answer(), store.state()), (Answer::NotAsked, "parked"));
    let mut store = Store::held();
    store.report(|report| report.then = Then::Park(changed()));
    assert_eq!((store.tell(new("k0", 7)).answer(), store.state()), (Answer::NotAsked, "parked"));
    let out = store.tell(new("k1", 2));
    assert_eq!((out.entries(), store.state()), (vec!["rekeyed"], "ready"));
    assert_eq!(last(&store), rekeyed(false));
    assert_eq!(store.tell(new("k1", 2)).answer(), Answer::Done, "the same operation gets its first answer");
    assert_eq!(store.tell(new("k2", 2)).answer(), Answer::NotParked);
    // The next question is another one, though it is about the same call.
    store.tell(What::Claim { session: S1, have: None });
    store.report(|report| report.then = Then::Park(changed()));
    assert_eq!(store.tell(new("k3", 2)).answer(), Answer::NotAsked);
    assert_eq!(store.tell(new("k4", 4)).answer(), Answer::Done);
}

#[test]
fn p08_what_else_is_answered_meets_no_other_question_either() {
    for (choice, end) in [(Unparking::Retry, "ready"), (Unparking::Terminate, "ended")] {
        let mut store = Store::held();
        store.report(|report| report.then = Then::Park(changed()));
        let mut answer = |id: &str, position| {
            let question = QuestionId { run: Run(1), position: Position(position) };
            let rekeying = Box::new(Rekeying { question, choice, by: None, why: None });
            store.tell(What::Rekey { operation: id.to_owned(), rekeying }).answer()
        };
        assert_eq!(answer("a", 1), Answer::NotAsked);
        assert_eq!((answer("b", 2), store.state()), (Answer::Done, end));
    }
}

#[test]
fn p08_a_key_that_was_kept_is_kept_in_every_later_run() {
    let words = |entries: &[Entry]| entries.iter().map(|entry| entry.fact.word()).collect::<Vec<_>>();
    let chosen = |choice| {
        let mut store = Store::held();
        let tried = end(&pay(), 1, failed(Some(9_000)));
        store.report(|report| {
            report.results = vec![tried, end(&step("done"), 1, ok())];
            report.then = Then::Park(changed());
        });
        assert_eq!(store.tell(rekey("k", 4, choice)).answer(), Answer::Done);
        store
    };
    for (choice, whole) in
        [(KeyChoice::OldKey, vec!["started", "rekeyed"]), (KeyChoice::NewKey, vec!["started"])]
    {
        let mut store = chosen(choice);
        let earlier = store.tables.journal[&uid(1)].clone();
        for run in ["again", "and again"] {
            let restart = What::Restart { operation: run.to_owned(), prepared: None };
            assert_eq!(
                (store.tell(restart).answer(), words(&store.tables.journal[&uid(1)])),
                (Answer::Done, whole.clone())
            );
        }
        let reused = reuse(&earlier).unwrap();
        assert_eq!(words(&reused), [&whole[..], &["reusable"]].concat());
        let kept = keep(&earlier, &pay()).unwrap();
        assert_eq!(words(&kept).iter().filter(|word| **word == "rekeyed").count(), whole.len() - 1);
    }
    // Chosen and restarted in one batch.
    let mut store = Store::held();
    store.report(|report| report.then = Then::Park(changed()));
    let restart = What::Restart { operation: "r".to_owned(), prepared: None };
    store.batch(&[on(uid(1), rekey("k", 2, KeyChoice::OldKey)), on(uid(1), restart)]);
    assert_eq!(words(&store.tables.journal[&uid(1)]), ["started", "rekeyed"]);
}
