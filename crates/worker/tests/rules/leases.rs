//! Messages lost, doubled, late and out of order; grants in parts; giving back.

use everstep_protocol::message::{CoordinatorItem, Taken, WorkerItem};
use everstep_sdk::{Error, Registry, Step, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::{Log, Rig};

fn fan(width: u64, log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let steps = (0..width).map(|at| {
                let log = log.clone();
                cx.step("part", at, move |_: Step, at: u64| {
                    log.add(at.to_string());
                    async move { Ok::<_, Error>(at) }
                })
            });
            let parts = futures::future::try_join_all(steps).await?;
            let sum = parts.iter().sum::<u64>();
            cx.step("sum", sum, async |_: Step, sum: u64| Ok::<_, Error>(sum)).await
        }
    })
}

#[test]
fn w07_a_lost_report_is_sent_again_after_a_second() {
    let log = Log::default();
    let mut rig = Rig::held(fan(1, &log));
    rig.attempt();
    rig.turn();
    rig.out.clear();
    rig.advance(999);
    rig.turn();
    assert!(rig.out.is_empty());
    rig.advance(1);
    rig.turn();
    assert_eq!(rig.out.len(), 1);
    rig.out.clear();
    rig.advance(1999);
    rig.turn();
    assert!(rig.out.is_empty());
    rig.advance(1);
    assert_eq!(rig.output::<u64>(), 0);
    assert_eq!(log.count("0"), 1);
}

#[test]
fn w07_a_report_taken_twice_is_one_entry() {
    let log = Log::default();
    let mut rig = Rig::held(fan(2, &log));
    rig.attempt();
    rig.turn();
    let report = rig.out[0].clone();
    rig.flush();
    rig.send(report);
    assert!(matches!(rig.inbox[1], CoordinatorItem::Ack(ack) if ack.taken == Taken::Before));
    assert_eq!(rig.output::<u64>(), 1);
    assert_eq!(rig.words(), ["started", "part1 1 ok", "part2 1 ok", "sum1 1 ok", "ended"]);
}

#[test]
fn w07_an_end_whose_answer_was_lost_is_answered_by_a_fence() {
    let log = Log::default();
    let mut rig = Rig::held(fan(0, &log));
    rig.attempt();
    rig.turn();
    rig.flush();
    rig.inbox.clear();
    assert!(rig.hosted.is_some());
    rig.advance(1000);
    rig.exchange();
    assert!(rig.hosted.is_none());
    assert_eq!(rig.words(), ["started", "sum1 1 ok", "ended"]);
}

#[test]
fn w01_reports_that_overtake_each_other_are_taken_in_order() {
    let log = Log::default();
    let mut rig = Rig::held(fan(3, &log));
    for _ in 0..3 {
        rig.attempt();
        rig.turn();
    }
    assert_eq!(rig.out.len(), 3);
    rig.out.swap(0, 2);
    let last = rig.out.pop_front().unwrap();
    rig.send(last);
    assert!(
        matches!(rig.inbox[0], CoordinatorItem::Ack(ack) if ack.taken == Taken::OutOfOrder { expected: 1 })
    );
    // The rest is lost: the answer makes the worker send everything from there at once.
    rig.out.clear();
    rig.receive();
    rig.turn();
    assert_eq!(rig.out.len(), 3);
    assert_eq!(rig.output::<u64>(), 3);
    assert_eq!(log.all().len(), 3);
}

#[test]
fn w06_a_heartbeat_says_what_has_come_and_what_was_answered() {
    let mut rig = Rig::new(fan(2, &Log::default()));
    rig.claim();
    rig.receive();
    let held = |rig: &Rig| {
        let held = rig.hosted.as_ref().unwrap().held();
        assert_eq!((held.instance, held.epoch.0, held.run.unwrap().0), (rig.uid, 1, 1));
        (held.position.0, held.reports.unwrap())
    };
    assert_eq!(held(&rig), (1, 0), "what has come counts, fed or not");
    rig.exchange();
    for _ in 0..2 {
        rig.attempt();
        rig.turn();
    }
    rig.flush();
    assert_eq!(held(&rig), (1, 0), "both are recorded, and it does not know");
    let second = rig.inbox.pop_back().unwrap();
    let first = rig.inbox.pop_back().unwrap();
    rig.take(second);
    rig.turn();
    assert_eq!(held(&rig), (1, 0), "what is behind a gap does not count");
    rig.take(first);
    rig.turn();
    assert_eq!(held(&rig).0, 3);
    assert!(held(&rig).1 >= 1);
}

#[test]
fn w01_acks_that_overtake_each_other_are_fed_by_position() {
    let log = Log::default();
    let mut rig = Rig::held(fan(3, &log));
    for _ in 0..3 {
        rig.attempt();
        rig.turn();
    }
    rig.flush();
    rig.inbox.make_contiguous().reverse();
    let first = rig.inbox.pop_back().unwrap();
    rig.receive();
    rig.turn();
    assert_eq!(rig.hosted.as_ref().unwrap().position().0, 1);
    // The first acknowledgement is lost: the gap is asked about after 100 ms.
    drop(first);
    assert!(rig.out.is_empty());
    rig.advance(100);
    rig.turn();
    assert!(matches!(rig.out[0], WorkerItem::Ask { after, .. } if after.0 == 1), "{:?}", rig.out);
    assert_eq!(rig.output::<u64>(), 3);
}

#[test]
fn w26_a_grant_in_parts_is_pulled() {
    let log = Log::default();
    let mut rig = Rig::new(fan(40, &log));
    rig.claim();
    for _ in 0..20 {
        rig.exchange();
        rig.attempt();
    }
    rig.exchange();
    rig.crash(false);
    rig.co.part = 3;
    assert_eq!(rig.output::<u64>(), (0..40).sum::<u64>());
    assert_eq!(log.all().len(), 40);
}

#[test]
fn w07_a_grant_repeated_is_no_second_body() {
    let log = Log::default();
    let mut rig = Rig::new(fan(1, &log));
    rig.claim();
    rig.claim();
    rig.exchange();
    assert_eq!(rig.orders.len(), 1);
    rig.claim();
    rig.exchange();
    assert_eq!(rig.orders.len(), 1);
    assert_eq!(rig.output::<u64>(), 0);
    assert_eq!(log.all().len(), 1);
}

#[test]
fn w02_a_newer_epoch_takes_over_and_the_older_is_refused() {
    let log = Log::default();
    let mut rig = Rig::held(fan(1, &log));
    let order = rig.orders.pop_front().unwrap();
    let (mut old, session) = (rig.hosted.take(), rig.session);
    rig.crash(false);
    rig.claim();
    rig.exchange();
    // The old holder still lives and reports: refused.
    std::mem::swap(&mut old, &mut rig.hosted);
    let new_session = std::mem::replace(&mut rig.session, session);
    rig.finish(&order, Ok(everstep_protocol::Payload::null()));
    rig.exchange();
    assert!(rig.hosted.is_none());
    assert_eq!(rig.co.fenced, 1);
    rig.session = new_session;
    rig.hosted = old;
    assert_eq!(rig.words(), ["started"]);
}

#[test]
fn w14_a_stop_gives_back_what_does_not_run() {
    let log = Log::default();
    let mut rig = Rig::held(fan(2, &log));
    let hosted = rig.hosted.as_mut().unwrap();
    hosted.stop();
    let queued = rig.orders.pop_back().unwrap();
    hosted.unstarted(queued.number);
    rig.exchange();
    assert!(rig.hosted.is_some(), "one step still runs");
    rig.attempt();
    rig.exchange();
    assert_eq!(rig.finished, [Finish::GivenBack]);
    assert!(rig.co.is_ready(rig.uid));
    assert_eq!(rig.words(), ["started", "part1 1 ok"]);
    assert_eq!(rig.output::<u64>(), 1);
}

#[test]
fn w14_a_stop_suspends_what_only_waits() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.sleep("short", "50ms").await?;
        Ok::<_, Error>(())
    });
    let mut rig = Rig::held(registry);
    rig.hosted.as_mut().unwrap().stop();
    rig.exchange();
    assert_eq!(rig.finished, [Finish::Suspended]);
    rig.run();
    assert_eq!(rig.words().last().unwrap(), "ended");
}

#[test]
fn w29_throwing_a_body_away_means_nothing() {
    let log = Log::default();
    let mut rig = Rig::new(fan(3, &log));
    for _ in 0..3 {
        rig.claim();
        rig.exchange();
        rig.hosted = None;
        assert!(rig.out.is_empty());
        rig.crash(false);
    }
    assert_eq!(rig.output::<u64>(), 3);
    assert_eq!(log.all().len(), 3);
}

#[test]
fn absurd_positions_are_no_panic() {
    let log = Log::default();
    let mut rig = Rig::held(fan(2, &log));
    rig.attempt();
    rig.turn();
    rig.flush();
    let Some(CoordinatorItem::Ack(mut ack)) = rig.inbox.pop_front() else { panic!() };
    ack.after.0 = u64::MAX;
    rig.take(CoordinatorItem::Ack(ack));
    rig.turn();
    rig.advance(20_000);
    rig.turn();
}
