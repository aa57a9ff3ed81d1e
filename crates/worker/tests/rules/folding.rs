//! Folding: what may be seen before its acknowledgement, and what happens when that was wrong.

use everstep_protocol::{
    FailureKind,
    message::{Report, Then, WorkerItem},
};
use everstep_sdk::{Error, Registry, Step, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::{Log, Rig};

fn seq(steps: u64) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let mut sum = 0;
        for step in 0..steps {
            sum += cx.step("add", step, async |_: Step, step: u64| Ok::<_, Error>(step)).await?;
        }
        Ok::<_, Error>(sum)
    })
}

fn report(item: &WorkerItem) -> &Report {
    match item {
        WorkerItem::Report(report) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn w36_a_sequence_of_five_is_five_reports() {
    let mut rig = Rig::new(seq(5));
    assert_eq!(rig.output::<u64>(), 10);
    assert_eq!(rig.reports, 5);
    assert_eq!(
        rig.words(),
        ["started", "add1 1 ok", "add2 1 ok", "add3 1 ok", "add4 1 ok", "add5 1 ok", "ended"]
    );
    assert_eq!(rig.finished, [Finish::Ended]);
}

#[test]
fn w36_nothing_begins_before_the_acknowledgement() {
    let mut rig = Rig::held(seq(2));
    rig.attempt();
    rig.turn();
    assert!(report(&rig.out[0]).folded);
    assert!(rig.orders.is_empty());
    for _ in 0..3 {
        rig.turn();
    }
    assert!(rig.orders.is_empty());
    rig.exchange();
    assert_eq!(rig.orders.len(), 1);
}

#[test]
fn w36_the_last_report_carries_the_end() {
    let mut rig = Rig::held(seq(1));
    rig.attempt();
    rig.turn();
    let last = report(&rig.out[0]);
    assert!(last.folded && matches!(last.then, Then::End(_)), "{last:?}");
    assert_eq!(last.seen.0, 1);
}

/// A sleep and two steps in a row, joined: the sleep may end before the first step is recorded.
fn joined(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let order = std::sync::Mutex::new(Vec::new());
            let steps = async {
                let log = log.clone();
                let one = cx.step("one", (), move |_: Step, (): ()| {
                    log.add("one");
                    async { Ok::<_, Error>(()) }
                });
                one.await?;
                order.lock().unwrap().push("one");
                // Its input depends on what came first.
                let first = order.lock().unwrap().first().copied().unwrap_or_default().to_owned();
                cx.step("two", first, async |_: Step, first: String| Ok::<_, Error>(first)).await
            };
            let sleep = async {
                cx.sleep("nap", "10s").await?;
                order.lock().unwrap().push("nap");
                Ok::<_, Error>(())
            };
            let (first, slept) = futures::join!(steps, sleep);
            slept?;
            first
        }
    })
}

#[test]
fn w36_a_refused_fold_keeps_the_result_and_replays_the_body() {
    let log = Log::default();
    let mut rig = Rig::held(joined(&log));
    rig.attempt();
    rig.turn();
    assert!(report(&rig.out[0]).folded);
    // The sleep ends before the report arrives.
    rig.advance(10_000);
    rig.fire();
    rig.exchange();
    assert_eq!(rig.metrics.folds_refused.get(), 1);
    assert_eq!(rig.output::<String>(), "nap");
    assert_eq!(log.count("one"), 1);
    assert_eq!(rig.words(), ["started", "opened nap1", "fired nap1", "one1 1 ok", "two1 1 ok", "ended"]);
}

#[test]
fn w36_a_fold_that_holds_gives_the_other_order() {
    let log = Log::default();
    let mut rig = Rig::new(joined(&log));
    assert_eq!(rig.output::<String>(), "one");
    assert_eq!(rig.metrics.folds_refused.get(), 0);
}

/// The time that the body sees may not depend on whether it was folded.
#[test]
fn w36_the_bodys_time_is_the_same_folded_and_replayed() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let mut times = Vec::new();
            for at in 0..4u32 {
                let micros = cx.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
                times.push(micros);
                cx.step("look", micros, async |_: Step, micros: u64| Ok::<_, Error>(micros)).await?;
                if at == 1 {
                    cx.sleep("pause", "1h").await?;
                }
            }
            Ok::<_, Error>(times)
        })
    };
    let mut whole = Rig::new(registry());
    let begin = whole.co.now.0 as u64;
    whole.ran_for = 70;
    let times: Vec<u64> = whole.output();
    let since: Vec<u64> = times.iter().map(|time| (time - begin) / 1000).collect();
    assert_eq!(since[..2], [0, 70]);
    assert!(since[2] >= 3_600_140 && since[3] == since[2] + 70, "{since:?}");
    for crash_after in 0..12 {
        let mut rig = Rig::new(registry());
        for _ in 0..crash_after {
            rig.move_on();
        }
        rig.crash(false);
        rig.run();
        assert_eq!(rig.parked(), None, "{crash_after}");
        rig.output::<Vec<u64>>();
    }
}

/// A call that is refused without having run: the time after it is the same live and replayed, whatever kind it is of.
#[test]
fn w36_the_bodys_time_after_a_refused_call_is_the_same_live_and_replayed() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let large = "x".repeat(2 << 20);
            let refused = cx.child::<()>("large", "other", &large).await.is_err();
            let micros = cx.now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
            cx.step("look", micros, async |_: Step, micros: u64| Ok::<_, Error>(micros)).await?;
            cx.sleep("pause", "1h").await?;
            Ok::<_, Error>(refused)
        })
    };
    let mut rig = Rig::new(registry());
    rig.co.now = rig.co.now.plus(everstep_protocol::Millis(5));
    assert!(rig.output::<bool>(), "{:?}", rig.words());
    for crash_after in 0..8 {
        let mut rig = Rig::new(registry());
        for _ in 0..crash_after {
            rig.move_on();
            rig.advance(3);
        }
        if rig.co.end(rig.uid).is_none() {
            rig.crash(false);
        }
        rig.run();
        assert_eq!(rig.parked(), None, "{crash_after}: {:?}", rig.words());
    }
}

#[test]
fn w36_a_fold_whose_answer_was_lost_is_read_from_the_journal() {
    let mut rig = Rig::held(seq(3));
    rig.attempt();
    rig.turn();
    rig.flush();
    rig.inbox.clear();
    rig.advance(1000);
    rig.exchange();
    assert_eq!(rig.output::<u64>(), 3);
    assert_eq!(rig.words().len(), 5);
}

/// The limit of an output is lowered while the session that was told the higher one holds the instance.
#[test]
fn w01_worker_and_journal_agree_when_a_limit_is_lowered_under_a_session() {
    for steps in [1, 2] {
        let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let long =
                |_| cx.step("long", (), async |_: Step, (): ()| Ok::<_, Error>("a long text".to_owned()));
            let outcomes = futures::future::join_all((0..steps).map(long)).await;
            let kinds: Vec<_> =
                outcomes.iter().map(|outcome| outcome.as_ref().err().map(Error::kind)).collect();
            Ok::<_, Error>(kinds)
        });
        let mut rig = Rig::new(registry);
        rig.claim();
        rig.exchange();
        rig.co.rules.limits.output_bytes = 4;
        // One result is folded, two of one turn are not.
        while rig.attempt() {}
        let seen: Vec<Option<FailureKind>> = rig.output();
        assert_eq!(seen, vec![Some(FailureKind::TooLarge); steps], "{:?}", rig.words());
    }
}
