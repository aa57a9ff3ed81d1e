//! Proves what a pause is (rule P29): what runs ends, nothing begins, whatever happens to holders, timers and remote steps; and
//! what the resume brings back. Not: that a worker obeys it.

mod support;

use everstep_engine::{Answer, Effect, StatusWord, What, place::Room, rows::Subject};
use everstep_protocol::{
    Epoch, Millis, Namespace, Policy,
    message::{CoordinatorItem, OpenWait, Taken, Then},
};
use support::*;

fn pause(id: &str) -> What {
    What::Pause { operation: id.to_owned() }
}

fn resume(id: &str) -> What {
    What::Resume { operation: id.to_owned() }
}

/// Instance 1, waiting for a sleep of 9 ms and a remote step that is offered.
fn waiting() -> Store {
    let mut store = Store::held();
    store.report(|report| {
        let img = OpenWait::Remote(remote(Policy::default()));
        report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9))), open(&step("img"), img)];
        report.then = Then::Suspend;
    });
    store
}

#[test]
fn p29_it_is_paused_only_when_the_lease_has_ended() {
    type Act = fn(&mut Store);
    let ends: [(&str, Act); 4] = [
        ("given back", |store| drop(store.tell(What::GiveBack { session: S1, epoch: Epoch(1) }))),
        ("lost with its worker", |store| drop(store.tell(lease_ended(S1, true)))),
        ("ended with its session", |store| drop(store.tell(lease_ended(S1, false)))),
        ("suspended", |store| {
            drop(store.report(|report| {
                report.opened = vec![open(&sleep("s"), OpenWait::Sleep(Millis(9)))];
                report.then = Then::Suspend;
            }));
        }),
    ];
    for (case, end_lease) in ends {
        let mut store = Store::held();
        let out = store.tell(pause("p"));
        assert_eq!(
            (out.answer(), out.sent(), store.status()),
            (Answer::Done, vec!["pause"], StatusWord::Pausing)
        );
        let out = store.report(|report| report.results = vec![end(&step("a"), 1, ok())]);
        assert_eq!(
            (out.taken(), store.status()),
            (vec![Taken::Whole], StatusWord::Pausing),
            "{case}: what runs ends"
        );
        end_lease(&mut store);
        assert_eq!(store.status(), StatusWord::Paused, "{case}");
        let out = store.tell(What::Claim { session: S2, have: None });
        assert_eq!(out.answer(), Answer::NotGranted, "{case}: nobody gets it");
        let out = store.tell(resume("r"));
        assert_eq!((out.sent(), store.status()), (vec!["offer"], StatusWord::Queued), "{case}");
    }
}

#[test]
fn p29_no_room_makes_a_paused_instance_run() {
    let mut store = Store::held();
    let mut room = Room::default();
    room.serve(S2, &Namespace::default(), &[workflow()]);
    room.credit(S2, 10);
    store.room = room;
    store.tell(pause("p"));
    store.tell(lease_ended(S1, true));
    assert_eq!(store.status(), StatusWord::Paused);
    let out = store.tell(resume("r"));
    assert_eq!((out.sent(), store.status()), (vec!["grant"], StatusWord::Running));
}

#[test]
fn p29_a_queued_and_a_waiting_instance_are_paused_at_once() {
    for mut store in [Store::started(), waiting()] {
        let out = store.tell(pause("p"));
        assert_eq!((out.answer(), out.sent(), store.status()), (Answer::Done, vec![], StatusWord::Paused));
        assert!(!store.is_ready());
    }
}

#[test]
fn p29_timers_that_come_due_meanwhile_fire_at_the_resume() {
    let mut store = waiting();
    store.tell(pause("p"));
    let due = What::Due { call: sleep("s").hash() };
    store.pass(20);
    let out = store.tell(due.clone());
    assert_eq!((out.answer(), out.entries()), (Answer::Nothing, vec![]));
    let before = store.now;
    store.pass(5);
    store.tell(resume("r"));
    let wait = &store.tables.waits[&(uid(1), sleep("s").hash())];
    assert_eq!(wait.due_at, Some(store.now), "a scan that has passed {before:?} finds it");
    let out = store.tell(due);
    assert_eq!((out.answer(), out.entries()), (Answer::Done, vec!["fired"]));
}

#[test]
fn p29_a_timer_that_is_not_due_keeps_its_time() {
    let mut store = waiting();
    let due_at = store.tables.waits[&(uid(1), sleep("s").hash())].due_at;
    store.tell(pause("p"));
    store.pass(1);
    store.tell(resume("r"));
    assert_eq!(store.tables.waits[&(uid(1), sleep("s").hash())].due_at, due_at);
}

#[test]
fn p29_no_remote_step_begins_while_paused() {
    let call = step("img").hash();
    let claim = What::StepClaim { session: S2, call };
    let mut store = waiting();
    store.tell(pause("p"));
    let out = store.tell(claim.clone());
    assert_eq!((out.answer(), out.sent()), (Answer::NotGranted, vec!["step fence"]));
    let offered = |store: &Store| store.tables.ready.contains_key(&(uid(1), Subject::step(call)));
    assert!(!offered(&store), "it is not offered again and again");
    store.pass(1);
    assert_eq!(store.tell(What::Due { call }).answer(), Answer::Nothing);
    store.tell(resume("r"));
    assert_eq!(store.tell(What::Due { call }).sent(), ["offer step"]);
    assert_eq!(store.tell(claim).answer(), Answer::Granted);
}

#[test]
fn p29_a_remote_attempt_that_runs_ends_and_is_not_followed_by_another() {
    let call = step("img").hash();
    let cases = [
        ("success", step_reported(S2, &step("img"), 1, ok()), false),
        ("failure", step_reported(S2, &step("img"), 1, failed(None)), true),
        ("loss", step_ended(S2, &step("img"), true), true),
        ("goodbye", step_ended(S2, &step("img"), false), true),
    ];
    for (case, ended, again) in cases {
        let mut store = waiting();
        store.tell(What::StepClaim { session: S2, call });
        store.tell(pause("p"));
        assert_eq!(store.status(), StatusWord::Pausing, "{case}: it runs still");
        let out = store.tell(ended);
        assert!(
            !out.sent().contains(&"offer step") && !out.sent().contains(&"offer"),
            "{case}: {:?}",
            out.sent()
        );
        assert_eq!(store.status(), StatusWord::Paused, "{case}");
        store.pass(1_000_000);
        store.tell(resume("r"));
        let offers = store.tell(What::Due { call }).sent().contains(&"offer step");
        assert_eq!(offers, again, "{case}");
    }
}

#[test]
fn p29_a_report_under_way_opens_waits_that_wait_for_the_resume() {
    let mut store = Store::held();
    let (session, late) = store.next_report(|report| {
        report.opened = vec![open(&step("img"), OpenWait::Remote(remote(Policy::default())))];
        report.then = Then::Suspend;
    });
    let out = store.batch(&[on(uid(1), pause("p")), on(uid(1), reported(session, late))]);
    assert!(!out.sent().contains(&"offer step"));
    assert_eq!(store.status(), StatusWord::Paused);
    store.tell(resume("r"));
    assert_eq!(store.tell(What::Due { call: step("img").hash() }).sent(), ["offer step"]);
}

#[test]
fn p29_resume_during_pausing_cancels_the_pause() {
    let mut store = Store::held();
    store.tell(pause("p"));
    let out = store.tell(resume("r"));
    assert_eq!((out.sent(), store.status()), (vec!["go on"], StatusWord::Running));
    store.tell(What::GiveBack { session: S1, epoch: Epoch(1) });
    assert_eq!(store.status(), StatusWord::Queued, "whoever gave it up already is followed by another");
}

#[test]
fn p29_doubles_change_nothing() {
    let mut store = Store::held();
    assert_eq!(store.tell(resume("r0")).answer(), Answer::Nothing);
    store.tell(pause("p"));
    assert_eq!(store.tell(pause("p2")).answer(), Answer::Nothing);
    store.tell(resume("r"));
    assert_eq!(store.tell(resume("r2")).answer(), Answer::Nothing);
    assert_eq!(store.tell(pause("p")).answer(), Answer::Done, "the first answer");
    assert_eq!(store.status(), StatusWord::Running, "and nothing is done again");
}

#[test]
fn p29_a_park_ends_the_pause() {
    let mut store = Store::held();
    store.tell(pause("p"));
    store.report(|report| report.then = Then::Park(parked()));
    assert_eq!(store.status(), StatusWord::Attention);
    store.tell(What::Retry { operation: "r".to_owned() });
    assert_eq!(store.status(), StatusWord::Queued);
    let mut store = waiting();
    store.tell(pause("p"));
    store.tell(What::Unwritable { message: "no".to_owned() });
    assert_eq!(store.status(), StatusWord::Attention);
}

#[test]
fn p29_the_holder_is_told_under_its_epoch() {
    let mut store = Store::held();
    let out = store.tell(pause("p"));
    let [Effect::Item(S1, CoordinatorItem::Entries(entries))] = &out.effects[..] else {
        panic!("{:?}", out.effects)
    };
    assert_eq!((entries.epoch, entries.pause, entries.entries.len()), (Epoch(1), Some(true), 0));
}
