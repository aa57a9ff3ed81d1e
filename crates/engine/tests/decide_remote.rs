//! Proves the life of a remote step beside its instance's (rule W39): open, claim, grant, report, retry, loss, terminate.
//! Not: that the pool's workers find the function.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use everstep_engine::{
    Answer, Effect, What,
    retry::{Asked, jitter_seed, next_delay},
    rows::Subject,
};
use everstep_protocol::{
    Attempt, Call, Epoch, FailureKind, Millis, Policy, Position, Run,
    journal::{End, Fact, Marks, Outcome, Remote},
    message::{AttemptOutcome, CoordinatorItem, OpenWait, StepGrant, Then},
    policy::{Backoff, Limit},
};
use support::*;

fn img() -> Call {
    step("img")
}

fn claim() -> What {
    What::StepClaim { session: S2, call: img().hash() }
}

fn done(epoch: u64, outcome: AttemptOutcome) -> What {
    step_reported(S2, &img(), epoch, outcome)
}

/// An instance that waits for one remote step, which is ready.
fn waiting(policy: Policy) -> Store {
    let mut store = Store::held();
    let out = store.report(|report| {
        report.opened = vec![open(&img(), OpenWait::Remote(remote(policy)))];
        report.then = Then::Suspend;
    });
    assert_eq!((out.entries(), out.sent()), (vec!["opened"], vec!["ack", "offer step"]));
    assert_eq!(store.state(), "waiting");
    store
}

fn two_tries(delay: u64) -> Policy {
    Policy { limit: Limit::Times(1), delay: Millis(delay), backoff: Backoff::Constant, ..Policy::default() }
}

fn grant(effects: &[Effect]) -> &StepGrant {
    match effects {
        [Effect::StepGrant(S2, grant)] => grant,
        other => panic!("{other:?}"),
    }
}

fn last_outcome(store: &Store) -> Outcome {
    match &store.tables.journal[&uid(1)].last().unwrap().fact {
        Fact::Attempted(attempted) => attempted.outcome.clone(),
        other => panic!("{other:?}"),
    }
}

fn step_is_ready(store: &Store) -> bool {
    store.tables.ready.contains_key(&(uid(1), Subject::step(img().hash())))
}

#[test]
fn w39_from_open_to_wake() {
    let mut store = waiting(Policy::default());
    let out = store.tell(claim());
    let grant = grant(&out.effects);
    assert_eq!((out.answer(), grant.epoch, grant.attempt), (Answer::Granted, Epoch(1), Attempt::FIRST));
    assert_eq!((&grant.remote, &grant.call), (&remote(Policy::default()), &img()));
    store.pass(7);
    let out = store.tell(done(1, ok()));
    assert_eq!((out.answer(), out.entries()), (Answer::Taken, vec!["attempted"]));
    assert_eq!((out.sent(), store.state(), store.head().steps), (vec!["step ack", "offer"], "ready", 1));
    let Fact::Attempted(attempted) = &out.writes.journal[0].entry.fact else { panic!() };
    assert_eq!((attempted.key, attempted.input, attempted.session), (key(2), fingerprint(2), S2));
    assert_eq!(attempted.started_at, store.now.minus(Millis(5)));
}

#[test]
fn w39_the_whole_life_in_one_batch() {
    let mut store = waiting(Policy::default());
    let out = store.batch(&[on(uid(1), claim()), on(uid(1), done(1, ok())), on(uid(1), done(1, ok()))]);
    assert_eq!(out.answers(), [Answer::Granted, Answer::Taken, Answer::Nothing]);
    assert_eq!(store.state(), "ready");
}

#[test]
fn w39_the_instances_own_epoch_plays_no_part() {
    let mut store = waiting(Policy::default());
    store.tell(claim());
    assert_eq!(store.tell(done(1, failed(None))).answer(), Answer::Taken);
    store.pass(10_000);
    store.tell(What::Due { call: img().hash() });
    store.tell(claim());
    assert_eq!(
        (store.head().epoch, store.tables.remotes[&(uid(1), img().hash())].epoch),
        (Epoch(1), Epoch(2))
    );
}

#[test]
fn w39_a_repeated_claim_gets_the_same_grant_and_another_session_none() {
    let mut store = waiting(Policy::default());
    store.tell(claim());
    let out = store.tell(claim());
    assert_eq!((grant(&out.effects).epoch, out.writes.is_empty()), (Epoch(1), true));
    let out = store.tell(What::StepClaim { session: S3, call: img().hash() });
    assert_eq!((out.answer(), out.sent()), (Answer::NotGranted, vec!["step fence"]));
}

#[test]
fn w39_a_holder_of_the_instance_gets_the_outcome_pushed() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![open(&img(), OpenWait::Remote(remote(Policy::default())))]);
    store.tell(claim());
    assert_eq!(store.tell(done(1, ok())).sent(), ["step ack", "push"]);
    assert_eq!((store.state(), store.head().waits), ("held", 0));
}

#[test]
fn w39_a_failure_waits_for_the_policys_delay() {
    let mut store = waiting(two_tries(30));
    store.tell(claim());
    let out = store.tell(done(1, failed(Some(1))));
    assert_eq!((out.sent(), store.state()), (vec!["step ack"], "waiting"));
    let Outcome::Failed { retry_at: Some(retry_at), .. } = last_outcome(&store) else { panic!() };
    assert_eq!(retry_at, store.now.plus(Millis(30)), "the coordinator computes it, not the worker");
    assert_eq!(store.tell(claim()).answer(), Answer::NotGranted, "not before its time");
    store.pass(29);
    assert_eq!(store.tell(What::Due { call: img().hash() }).answer(), Answer::Nothing);
    store.pass(1);
    let out = store.tell(What::Due { call: img().hash() });
    assert_eq!((out.sent(), out.entries(), store.state()), (vec!["offer step"], vec![], "waiting"));
    let out = store.tell(claim());
    assert_eq!((grant(&out.effects).attempt, grant(&out.effects).epoch), (Attempt(2), Epoch(2)));
    let out = store.tell(done(2, failed(None)));
    assert_eq!((out.sent(), store.state()), (vec!["step ack", "offer"], "ready"));
    assert!(matches!(last_outcome(&store), Outcome::Failed { retry_at: None, .. }));
}

#[test]
fn w39_a_retry_without_delay_is_offered_at_once() {
    let mut store = waiting(two_tries(0));
    store.tell(claim());
    let out = store.tell(done(1, failed(None)));
    assert_eq!((out.sent(), store.state()), (vec!["step ack", "offer step"], "waiting"));
    assert!(step_is_ready(&store));
}

#[test]
fn p12_retry_after_of_a_remote_failure_is_used_as_it_is() {
    let mut store = waiting(two_tries(30));
    store.tell(claim());
    let mut failure = error("later");
    failure.retry_after = Some(Millis(7));
    store.tell(done(1, AttemptOutcome::Failed { failure, retry_in: None }));
    let Outcome::Failed { retry_at: Some(retry_at), .. } = last_outcome(&store) else { panic!() };
    assert_eq!(retry_at, store.now.plus(Millis(7)));
}

#[test]
fn p13_a_permanent_remote_failure_is_final() {
    let mut store = waiting(Policy::default());
    store.tell(claim());
    let mut failure = error("");
    failure.permanent = true;
    store.tell(done(1, AttemptOutcome::Failed { failure: failure.clone(), retry_in: Some(Millis(1)) }));
    assert_eq!(last_outcome(&store), Outcome::Failed { failure, retry_at: None });
    assert_eq!(store.state(), "ready");
}

#[test]
fn p04_a_remote_output_that_is_too_large_is_final() {
    let mut store = waiting(Policy::default());
    store.rules.limits.output_bytes = 0;
    store.tell(claim());
    store.tell(done(1, ok()));
    let Outcome::Failed { failure, retry_at: None } = last_outcome(&store) else { panic!() };
    assert_eq!(failure.kind, FailureKind::TooLarge);
    assert_eq!(store.state(), "ready");
}

/// Remote steps of one instance that fail together do not come back together.
#[test]
fn p11_the_jitter_of_a_remote_step_is_that_of_its_call() {
    let policy = Policy { jitter: true, delay: Millis(1_000_000), ..Policy::default() };
    let mut store = waiting(policy);
    store.tell(claim());
    store.tell(done(1, failed(None)));
    let Outcome::Failed { retry_at: Some(at), .. } = last_outcome(&store) else { panic!() };
    let seed = jitter_seed(uid(1), img().hash());
    let delay = next_delay(&policy, 1, Millis(0), Asked::Policy, &seed).unwrap();
    assert_eq!(at, store.now.plus(delay));
    let other = jitter_seed(uid(1), step("other").hash());
    assert_ne!(next_delay(&policy, 1, Millis(0), Asked::Policy, &other), Some(delay));
}

#[test]
fn p30_a_late_remote_report_to_an_ended_instance_is_fenced() {
    let mut store = waiting(Policy::default());
    store.tell(claim());
    store.tell(What::Terminate { operation: "o".to_owned(), reason: None });
    for out in [store.tell(done(1, ok())), store.tell(done(1, failed(None)))] {
        assert_eq!((out.answer(), out.sent()), (Answer::Fenced, vec!["step fence"]));
        assert!(out.writes.is_empty());
    }
}

#[test]
fn w39_a_lost_worker_counts_as_an_attempt() {
    let mut store = waiting(two_tries(30));
    store.tell(claim());
    store.pass(4);
    let out = store.tell(step_ended(S2, &img(), true));
    assert_eq!((out.answer(), out.entries(), store.state()), (Answer::Done, vec!["attempted"], "waiting"));
    let Outcome::Failed { failure, retry_at: Some(_) } = last_outcome(&store) else { panic!() };
    assert_eq!(failure.kind, FailureKind::WorkerLost);
    store.pass(30);
    store.tell(What::Due { call: img().hash() });
    store.tell(claim());
    store.tell(step_ended(S2, &img(), true));
    assert_eq!(store.state(), "ready", "retries are used up, the body learns of it");
    assert_eq!(store.head().deaths, 0, "the instance's own holders did not die");
}

#[test]
fn w39_a_goodbye_does_not_count() {
    let mut store = waiting(two_tries(30));
    for epoch in 1..=5 {
        assert_eq!(grant(&store.tell(claim()).effects).epoch, Epoch(epoch));
        let out = store.tell(step_ended(S2, &img(), false));
        assert_eq!((out.entries(), out.sent()), (vec![], vec!["offer step"]));
    }
    assert_eq!(grant(&store.tell(claim()).effects).attempt, Attempt::FIRST);
}

#[test]
fn w39_a_late_report_is_fenced() {
    let mut store = waiting(two_tries(30));
    store.tell(claim());
    store.tell(step_ended(S2, &img(), false));
    let out = store.tell(done(1, ok()));
    assert_eq!((out.answer(), out.sent()), (Answer::Fenced, vec!["step fence"]));
    store.tell(claim());
    assert_eq!(store.tell(done(1, ok())).answer(), Answer::Fenced);
    assert_eq!(store.tell(step_reported(S3, &img(), 2, ok())).answer(), Answer::Fenced);
    assert_eq!(store.tell(done(2, ok())).answer(), Answer::Taken);
}

#[test]
fn w39_a_report_sent_again_is_acknowledged_again() {
    let mut store = waiting(Policy::default());
    store.tell(claim());
    store.tell(done(1, ok()));
    let out = store.tell(done(1, ok()));
    assert_eq!((out.answer(), out.sent()), (Answer::Nothing, vec!["step ack"]));
    assert!(out.writes.is_empty());
}

#[test]
fn w39_terminate_deletes_the_step() {
    for claimed in [false, true] {
        let mut store = waiting(Policy::default());
        if claimed {
            store.tell(claim());
        }
        store.tell(What::Terminate { operation: "t".to_owned(), reason: None });
        assert!(
            store.tables.remotes.is_empty()
                && store.tables.leases.is_empty()
                && store.tables.ready.is_empty()
        );
        assert_eq!(store.tell(claim()).sent(), ["step fence"]);
        let late = store.tell(done(1, ok()));
        assert!(late.writes.is_empty());
        assert_eq!(store.words(), ["started", "opened", "ended"]);
    }
}

#[test]
fn p30_a_step_that_is_claimed_and_ended_in_one_batch_is_cancelled() {
    let mut store = waiting(Policy::default());
    let terminate = What::Terminate { operation: "t".to_owned(), reason: None };
    let out = store.batch(&[on(uid(1), claim()), on(uid(1), terminate)]);
    assert_eq!(out.sent(), ["step grant", "step fence"]);
    let fence = CoordinatorItem::StepFence { instance: uid(1), call: img().hash(), epoch: Epoch(1) };
    assert!(matches!(&out.effects[1], Effect::Item(S2, item) if *item == fence), "{:?}", out.effects);
    assert!(store.tables.leases.is_empty());
}

#[test]
fn w39_an_instance_that_is_ready_or_parked_is_not_made_ready_twice() {
    let mut store = Store::held();
    store.report(|report| report.opened = vec![open(&img(), OpenWait::Remote(remote(Policy::default())))]);
    store.tell(claim());
    store.tell(lease_ended(S1, false));
    assert_eq!(store.tell(done(1, ok())).sent(), ["step ack"]);
    assert_eq!(store.state(), "ready");
}

#[test]
fn w39_two_steps_of_one_instance_in_one_batch_wake_it_once() {
    let mut store = Store::held();
    let names = ["a", "b", "c"].map(step);
    store.report(|report| {
        report.opened =
            names.iter().map(|call| open(call, OpenWait::Remote(remote(Policy::default())))).collect();
        report.then = Then::Suspend;
    });
    let claims: Vec<_> =
        names.iter().map(|call| on(uid(1), What::StepClaim { session: S2, call: call.hash() })).collect();
    store.batch(&claims);
    let reports: Vec<_> = names.iter().map(|call| on(uid(1), step_reported(S2, call, 1, ok()))).collect();
    let out = store.batch(&reports);
    assert_eq!(out.sent(), ["step ack", "offer", "step ack", "step ack"]);
    assert_eq!((store.state(), store.head().waits), ("ready", 0));
}

#[test]
fn p05_what_a_remote_attempt_told_is_given_to_the_next() {
    let mut store = waiting(Policy { limit: Limit::Unlimited, ..two_tries(0) });
    let told = |text: &str| Some(json(text));
    let large = Some(json(&format!("\"{}\"", "x".repeat(4 << 10))));
    let report = |epoch, progress| {
        let (build, call, outcome) = (build(), img().hash(), failed(None));
        What::StepReport {
            session: S2,
            build,
            call,
            epoch: Epoch(epoch),
            ran_for: Millis(5),
            outcome,
            progress,
            found: false,
            reference: None,
        }
    };
    let ended = |counts, progress| {
        let (build, call) = (build(), img().hash());
        What::StepLeaseEnded { session: S2, build, call, epoch: None, counts, unstarted: false, progress }
    };
    let cases = [
        (report(1, told("7")), told("7"), 2, told("7")),
        (report(2, None), None, 3, told("7")),
        (ended(true, told("8")), told("8"), 4, told("8")),
        (report(4, large), None, 5, told("8")),
    ];
    assert_eq!(grant(&store.tell(claim()).effects).progress, None);
    for (what, recorded, attempt, given) in cases {
        let out = store.tell(what);
        let Fact::Attempted(attempted) = &out.writes.journal[0].entry.fact else { panic!("{out:?}") };
        assert_eq!(attempted.progress, recorded);
        let out = store.tell(claim());
        let grant = grant(&out.effects);
        assert_eq!((grant.attempt, &grant.progress), (Attempt(attempt), &given));
    }
    // Given back: the same attempt goes on from there. One that ended without a word leaves it as it is.
    for (progress, given) in [(told("9"), told("9")), (None, told("9"))] {
        assert!(store.tell(ended(false, progress)).entries().is_empty());
        let out = store.tell(claim());
        assert_eq!((grant(&out.effects).attempt, &grant(&out.effects).progress), (Attempt(5), &given));
    }
}

#[test]
fn p44_what_fails_in_a_sensitive_remote_step_is_sensitive_and_the_world_is_not_told() {
    let mut store = Store::held();
    let marks = Marks { sensitive: true, ..Marks::default() };
    store.report(|report| {
        let policy = Policy { limit: Limit::Times(0), ..Policy::default() };
        report.opened = vec![open(&img(), OpenWait::Remote(Remote { marks, ..remote(policy) }))];
    });
    store.tell(claim());
    // Whoever ran it does not know that it is.
    let failure = error("no hunter2");
    store.tell(done(1, AttemptOutcome::Failed { failure, retry_in: None }));
    let Outcome::Failed { failure, retry_at: None } = last_outcome(&store) else { panic!() };
    assert!(failure.sensitive && failure.message.contains("hunter2"), "it is real for the code");
    store.report(|report| {
        report.seen = Position(4);
        report.then = Then::End(End::Errored(failure.clone()));
    });
    let told = &store.tables.outbox[&(uid(1), Run(1))].body();
    assert!(told.contains(r#""name":"Error""#) && !told.contains("hunter2"), "{told}");
}
