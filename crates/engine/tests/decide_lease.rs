//! Proves the life of an instance's lease: claims and their repetition, giving back (rule W7), losses and poison (W11).
//! Not: when a session is taken for dead, and how a loss is charged to steps (see replay.rs).

mod support;

use everstep_engine::{Answer, Effect, What, head::Cached};
use everstep_protocol::{
    Attempt, Epoch, Failure, FailureKind, Millis, Namespace, Policy, Position, Run, SessionId,
    journal::{Fact, ParkCode, Progress},
    message::{AttemptEnd, AttemptOutcome, Have, OpenWait, Then},
    policy::Limit,
};
use support::*;

fn claim(session: SessionId) -> What {
    What::Claim { session, have: None }
}

fn die(store: &mut Store, session: SessionId) {
    store.tell(claim(session));
    store.tell(lease_ended(session, true));
}

#[test]
fn w07_a_repeated_claim_gets_the_same_grant() {
    let mut store = Store::started();
    let epochs: Vec<_> = (0..3)
        .map(|_| match &store.tell(claim(S1)).effects[..] {
            [Effect::Grant { session: S1, head, direct: false, .. }] => head.epoch.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(epochs, [1, 1, 1]);
    assert!(store.tell(claim(S1)).writes.is_empty());
}

#[test]
fn w07_a_repeated_claim_keeps_the_count_of_reports() {
    let mut store = Store::held();
    store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
    let out = store.tell(claim(S1));
    let [Effect::Grant { head, .. }] = &out.effects[..] else { panic!("{:?}", out.effects) };
    assert_eq!((head.reports, head.position.0), (1, 2));
}

#[test]
fn w07_two_claims_in_one_batch_give_one_lease() {
    let mut store = Store::started();
    let out = store.batch(&[on(uid(1), claim(S1)), on(uid(1), claim(S2)), on(uid(1), claim(S1))]);
    assert_eq!(out.answers(), [Answer::Granted, Answer::NotGranted, Answer::Nothing]);
    assert_eq!((out.writes.leases.len(), store.head().epoch), (1, Epoch(1)));
}

#[test]
fn w07_a_lease_given_back_is_ready_again_and_uncounted() {
    let mut store = Store::held();
    let out = store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    assert_eq!((out.answer(), out.sent(), store.state()), (Answer::Done, vec!["offer"], "ready"));
    assert!(out.entries().is_empty() && store.head().deaths == 0);
    let again = store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    assert_eq!(again.answer(), Answer::Nothing);
}

#[test]
fn w07_only_the_holder_gives_back_only_its_own_lease() {
    let mut store = Store::held();
    for (session, epoch) in [(S2, 1), (S1, 0), (S1, 2)] {
        let out = store.tell(What::GiveBack { session, epoch: Epoch(epoch) });
        assert!(out.writes.is_empty() && out.effects.is_empty());
    }
    assert_eq!(store.state(), "held");
}

#[test]
fn w07_claim_and_give_back_in_one_batch_leave_it_ready() {
    let mut store = Store::started();
    let out =
        store.batch(&[on(uid(1), claim(S1)), on(uid(1), What::GiveBack { session: S1, epoch: Epoch(1) })]);
    assert_eq!(out.answers(), [Answer::Granted, Answer::Done]);
    assert_eq!((store.state(), store.head().epoch), ("ready", Epoch(1)));
    assert!(
        out.writes.leases.is_empty() && out.writes.lease_deletes.is_empty(),
        "a lease within a batch is no row"
    );
}

/// An instance that S1 has suspended, keeping its body, and whose sleep is over.
fn kept() -> Store {
    let mut store = Store::held();
    store.report(|report| {
        report.opened = vec![open(&sleep("nap"), OpenWait::Sleep(Millis(10)))];
        report.then = Then::Suspend;
        report.cached = true;
    });
    assert_eq!(store.head().cached, Some(Cached { session: S1, position: Position(1) }));
    store.pass(10);
    store
}

/// From where the only grant goes on, and how many entries it knows.
fn granted(out: &Out, to: SessionId) -> (u64, usize) {
    match &out.effects[..] {
        [Effect::Grant { session, after, entries, .. }] if *session == to => (after.0, entries.len()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn w27_a_wake_goes_to_whoever_kept_the_body_from_where_it_was() {
    for (with_room, expected) in [(vec![S1, S2], S1), (vec![S2, S1], S1), (vec![S2], S2)] {
        let mut store = kept();
        for session in &with_room {
            store.room.serve(*session, &Namespace::default(), &[workflow()]);
            // The other one has more room.
            store.room.credit(*session, if *session == S1 { 1 } else { 9 });
        }
        let out = store.tell(What::Due { call: sleep("nap").hash() });
        let after = u64::from(expected == S1);
        assert_eq!(granted(&out, expected), (after, 0), "{with_room:?}");
        assert_eq!((store.state(), store.head().cached), ("held", None));
    }
}

#[test]
fn w27_without_room_a_wake_is_offered_first_to_whoever_kept_the_body() {
    let due = || What::Due { call: sleep("nap").hash() };
    let mut store = kept();
    assert_eq!(store.tell(due()).sent(), ["offer to"]);
    let mut store = kept();
    store.room.forget(S1);
    store.room.serve_queues_only(S2, &Namespace::default(), &[workflow()]);
    assert_eq!(store.tell(due()).sent(), ["offer"], "that session has ended");
}

#[test]
fn w27_a_claim_that_names_what_it_has_is_granted_the_rest() {
    let have = |run, position| Some(Have { run: Run(run), position: Position(position) });
    for (have, after) in [(None, 0), (have(1, 1), 1), (have(1, 3), 3), (have(1, 4), 0), (have(2, 1), 0)] {
        let mut store = kept();
        store.tell(What::Due { call: sleep("nap").hash() });
        let out = store.tell(What::Claim { session: S2, have });
        assert_eq!((out.answer(), granted(&out, S2).0), (Answer::Granted, after), "{have:?}");
    }
}

#[test]
fn w27_what_was_kept_of_an_earlier_run_is_forgotten() {
    let mut store = kept();
    store.tell(What::Restart { operation: "again".to_owned(), prepared: None });
    assert_eq!(store.head().cached, None);
    let mut plain = Store::held();
    plain.report(|report| {
        report.opened = vec![open(&sleep("nap"), OpenWait::Sleep(Millis(10)))];
        report.then = Then::Suspend;
    });
    assert_eq!(plain.head().cached, None, "nobody said that it keeps it");
}

#[test]
fn w35_a_grant_brings_what_its_decision_wrote() {
    let mut store = Store::default();
    store.room.serve(S1, &Namespace::default(), &[workflow()]);
    store.room.credit(S1, 1);
    let out = store.start(start(1, "order-1", 1));
    assert_eq!(granted(&out, S1), (0, 1));
}

#[test]
fn w11_a_loss_is_one_entry_with_slots_and_session() {
    let mut store = Store::held();
    let out = store.tell(lease_ended(S1, true));
    assert_eq!((out.answer(), out.entries(), out.sent()), (Answer::Done, vec!["lost"], vec!["offer"]));
    let Fact::Lost(lost) = &out.writes.journal[0].entry.fact else { panic!() };
    assert_eq!((lost.slots, lost.counts, lost.session), (4, true, S1));
    assert_eq!((store.head().deaths, store.state()), (1, "ready"));
}

#[test]
fn w11_a_stop_that_does_not_count_writes_no_entry() {
    let mut store = Store::held();
    for _ in 0..20 {
        let out = store.tell(lease_ended(S1, false));
        assert_eq!((out.answer(), out.entries().len(), store.state()), (Answer::Done, 0, "ready"));
        store.tell(claim(S1));
    }
    assert_eq!((store.head().deaths, store.words()), (0, vec!["started"]));
}

#[test]
fn p05_what_attempts_had_told_is_in_the_entry_of_their_loss() {
    let progress = vec![Progress { call: step("a").hash(), attempt: Attempt(2), told: json("[7]") }];
    for counts in [true, false] {
        let mut store = Store::held();
        let (session, progress) = (S1, progress.clone());
        let out = store.tell(What::LeaseEnded {
            session,
            epoch: None,
            slots: 4,
            counts,
            progress: progress.clone(),
        });
        let Fact::Lost(lost) = &out.writes.journal[0].entry.fact else { panic!("{:?}", out.entries()) };
        assert_eq!((lost.counts, &lost.progress), (counts, &progress));
        assert_eq!((store.head().deaths, store.state()), (u32::from(counts), "ready"));
    }
}

#[test]
fn w11_ten_deaths_in_a_row_park() {
    let mut store = Store::started();
    for death in 1..10 {
        die(&mut store, S1);
        assert_eq!((store.state(), store.head().deaths), ("ready", death));
    }
    store.tell(claim(S1));
    let out = store.tell(lease_ended(S1, true));
    assert_eq!((out.answer(), out.entries(), out.sent()), (Answer::Parked, vec!["lost", "parked"], vec![]));
    assert_eq!(store.tables.parked[&uid(1)].code, ParkCode::Poison);
    assert!(store.tables.parked[&uid(1)].message.contains("10 times"));
}

#[test]
fn w11_a_retried_poison_gets_ten_lives_again() {
    let mut store = Store::started();
    for _ in 0..10 {
        die(&mut store, S1);
    }
    store.tell(What::Retry { operation: "r".to_owned() });
    for _ in 0..9 {
        die(&mut store, S2);
    }
    assert_eq!(store.state(), "ready");
    die(&mut store, S2);
    assert_eq!(store.state(), "parked");
}

#[test]
fn w11_progress_resets_the_count() {
    let outcomes = [ok(), failed(None), failed(Some(9))];
    for outcome in outcomes {
        let mut store = Store::started();
        for _ in 0..9 {
            die(&mut store, S1);
        }
        store.tell(claim(S1));
        store.report(|report| report.results = vec![end(&step("a"), 1, outcome)]);
        assert_eq!(store.head().deaths, 0);
    }
    let mut store = Store::started();
    die(&mut store, S1);
    store.tell(claim(S1));
    store.report(|report| {
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(everstep_protocol::Millis(9)))];
    });
    assert_eq!(store.head().deaths, 0);
}

fn charged(name: &str, attempt: u32, policy: Policy, retry_in: Option<u64>) -> AttemptEnd {
    let failure = Failure::new(FailureKind::WorkerLost, "lost");
    let outcome = AttemptOutcome::Failed { failure, retry_in: retry_in.map(Millis) };
    AttemptEnd { policy, ..end(&step(name), attempt, outcome) }
}

/// With a limited policy each loss uses up an attempt, which ends by itself; with an endless one nothing does.
#[test]
fn w11_only_losses_of_steps_that_may_be_tried_for_ever_are_no_progress() {
    let limited = |retries| Policy { limit: Limit::Times(retries), ..Policy::default() };
    let endless = Policy { limit: Limit::Unlimited, ..Policy::default() };
    let elapsing = Policy { max_elapsed: Some(Millis(9)), ..endless };
    let cases: [(&[Policy], u32); 7] = [
        (&[limited(0)], 0),
        (&[limited(5)], 0),
        (&[limited(u32::MAX)], 0),
        (&[elapsing], 0),
        (&[endless], 1),
        (&[endless, endless], 1),
        (&[endless, limited(5)], 0),
    ];
    for (policies, deaths) in cases {
        let mut store = Store::started();
        die(&mut store, S1);
        store.tell(claim(S1));
        store.report(|report| {
            let charge = |(policy, name)| charged(name, 1, policy, Some(9));
            report.results = policies.iter().copied().zip(["a", "b"]).map(charge).collect();
            report.then = Then::Suspend;
        });
        assert_eq!((store.head().deaths, store.state()), (deaths, "waiting"), "{policies:?}");
    }
}

/// One step kills each of its holders. A limited policy takes it to its own end, however many deaths that needs.
#[test]
fn w11_a_limited_policy_outlives_ten_deaths_and_an_endless_one_is_parked() {
    for (limit, deaths, state) in [(Limit::Times(25), 26, "held"), (Limit::Unlimited, 10, "parked")] {
        let policy = Policy { limit, ..Policy::default() };
        let mut store = Store::held();
        for attempt in 1..=26 {
            if store.tell(lease_ended(S1, true)).answer() == Answer::Parked {
                break;
            }
            store.tell(claim(S1));
            let retry_in = (attempt < 26 || limit == Limit::Unlimited).then_some(0);
            store.report(|report| report.results = vec![charged("kill", attempt, policy, retry_in)]);
        }
        let died = store.words().iter().filter(|word| **word == "lost").count();
        assert_eq!((died, store.state()), (deaths, state), "{limit:?}");
    }
}

#[test]
fn w11_the_end_of_another_lease_is_nothing() {
    let mut store = Store::held();
    let other =
        What::LeaseEnded { session: S1, epoch: Some(Epoch(0)), slots: 4, counts: true, progress: Vec::new() };
    for what in [lease_ended(S2, true), other] {
        let out = store.tell(what);
        assert!(out.answer() == Answer::Nothing && out.writes.is_empty());
    }
    let own =
        What::LeaseEnded { session: S1, epoch: Some(Epoch(1)), slots: 4, counts: true, progress: Vec::new() };
    assert_eq!(store.tell(own).answer(), Answer::Done);
}

#[test]
fn w35_a_wake_takes_a_credit_and_a_refusal_gives_it_back() {
    let mut store = Store::held();
    store.room.serve(S2, &Namespace::default(), &[workflow()]);
    store.room.credit(S2, 2);
    let out = store.tell(lease_ended(S1, true));
    assert_eq!((out.sent(), out.credits, store.lease().unwrap().session), (vec!["grant"], vec![S2], S2));
    let nothing = store.tell(lease_ended(S1, true));
    assert!(nothing.credits.is_empty());
    let out = store.tell(lease_ended(S2, false));
    assert_eq!((out.sent(), out.credits), (vec!["grant"], vec![S2]));
    let out = store.tell(lease_ended(S2, false));
    assert_eq!((out.sent(), store.state()), (vec!["offer"], "ready"), "both credits are used");
    assert_eq!(store.head().epoch, Epoch(3));
}
