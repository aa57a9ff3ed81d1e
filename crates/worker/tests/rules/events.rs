//! Events: awaited, timed out, given back by the losers of races; and the waits of everything else that loses one.

use everstep_protocol::{
    FailureKind,
    journal::ParkCode,
    message::{Report, WorkerItem},
};
use everstep_sdk::{Error, Registry, Step, Workflow};
use everstep_worker::hosted::Finish;
use futures::{FutureExt, future::Either, future::select, pin_mut};
use proptest::prelude::*;

use crate::rig::Rig;

async fn echo(_step: Step, value: u64) -> Result<u64, Error> {
    Ok(value)
}

fn reads(count: usize) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for _ in 0..count {
            got.push(cx.event::<u64>("n").timeout("10s").await?);
            cx.step("s", 0u64, echo).await?;
        }
        Ok::<_, Error>(got)
    })
}

#[test]
fn p22_events_are_read_in_order_whether_they_come_before_or_after_the_wait() {
    let mut rig = Rig::new(reads(24));
    for n in 0..12 {
        rig.event(&n.to_string(), "n", &n.to_string());
    }
    for n in 12..24 {
        for _ in 0..10 {
            rig.exchange();
            if !(rig.attempt() || rig.co.is_ready(rig.uid)) {
                break;
            }
            if rig.co.is_ready(rig.uid) {
                rig.claim();
            }
        }
        rig.event(&n.to_string(), "n", &n.to_string());
    }
    assert_eq!(rig.output::<Vec<u64>>(), (0..24).collect::<Vec<_>>());
}

#[test]
fn p21_a_timeout_is_an_error_of_its_own_that_can_be_caught() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let error = cx.event::<u64>("never").timeout("2 days").await.unwrap_err();
        assert!(error.is_timed_out());
        let now = cx.event::<u64>("never").timeout("0s").await.unwrap_err();
        Ok::<_, Error>((error.name().to_owned(), now.is_timed_out()))
    });
    let mut rig = Rig::new(registry);
    let begin = rig.co.now;
    assert_eq!(rig.output::<(String, bool)>(), ("EventTimedOut".to_owned(), true));
    assert_eq!(rig.elapsed(begin), 2 * 86_400_000);
    assert_eq!(rig.finished[0], Finish::Suspended);
}

#[test]
fn p21_a_payload_that_does_not_fit_is_an_error_of_the_call() {
    let mut rig = Rig::new(reads(1));
    rig.event("1", "n", "\"many\"");
    let failure = rig.failure();
    assert_eq!((failure.kind, failure.name.as_str()), (FailureKind::Invalid, "EventPayload"));
    assert!(failure.message.contains("event \"n\" #1"), "{failure}");
}

#[test]
fn p23_a_wait_for_several_types_takes_the_oldest_and_says_which() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let one = cx.events::<u64>(["a", "b"]).await?;
        let two = cx.events::<u64>(["a", "b"]).await?;
        Ok::<_, Error>([(one.kind, one.payload, one.id), (two.kind, two.payload, two.id)])
    });
    let mut rig = Rig::new(registry);
    rig.event("x", "b", "1");
    rig.event("y", "a", "2");
    let expected = [("b", 1, "x"), ("a", 2, "y")].map(|(kind, n, id)| (kind.to_owned(), n, id.to_owned()));
    assert_eq!(rig.output::<[(String, u64, String); 2]>(), expected);
}

/// An event against a sleep, then another wait for it.
fn race() -> Registry {
    Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let first = {
            let (event, sleep) = (cx.event::<u64>("n"), cx.sleep("nap", "5s"));
            pin_mut!(event, sleep);
            match select(event, sleep).await {
                Either::Left((event, _)) => Some(event?),
                Either::Right((slept, _)) => slept.map(|()| None)?,
            }
        };
        let second = cx.event::<u64>("n").timeout("1 min").await.ok();
        Ok::<_, Error>((first, second))
    })
}

#[test]
fn p22_the_loser_of_a_race_gives_its_event_back() {
    let mut rig = Rig::held(race());
    // The sleep ends, and before the worker knows, the event goes to the wait that has lost.
    rig.wait();
    rig.event("1", "n", "7");
    assert_eq!(rig.output::<(Option<u64>, Option<u64>)>(), (None, Some(7)));
    let words = rig.words();
    assert!(
        words.contains(&"delivered n1 7".to_owned()) && words.contains(&"closed n1".to_owned()),
        "{words:?}"
    );
    assert!(words.contains(&"delivered n2 7".to_owned()), "{words:?}");
}

#[test]
fn p22_the_same_after_a_crash_between_delivery_and_close() {
    let mut rig = Rig::held(race());
    rig.wait();
    rig.event("1", "n", "7");
    rig.claim();
    rig.receive();
    rig.turn();
    // It has seen both, and says so to nobody.
    rig.crash(true);
    assert_eq!(rig.output::<(Option<u64>, Option<u64>)>(), (None, Some(7)));
    assert_eq!(rig.words().iter().filter(|word| *word == "closed n1").count(), 1);
}

#[test]
fn p22_the_loser_of_a_race_leaves_no_wait_open() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        for _ in 0..3 {
            let (event, sleep) = (cx.event::<u64>("n"), cx.sleep("nap", "5 days"));
            pin_mut!(event, sleep);
            drop(select(event, sleep).await);
        }
        cx.sleep("end", "1s").await
    });
    let mut rig = Rig::new(registry);
    for n in 0..3 {
        rig.event(&n.to_string(), "n", "1");
    }
    rig.claim();
    rig.exchange();
    assert_eq!(rig.co.rows.waits.len(), 1, "{:?}", rig.words());
    rig.run();
    assert_eq!(rig.finished, [Finish::Suspended, Finish::Ended]);
}

#[test]
fn w36_a_fold_closes_what_its_result_made_lose() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        {
            let (step, event) = (cx.step("s", 1u64, echo), cx.event::<u64>("n"));
            pin_mut!(step, event);
            drop(select(step, event).await);
        }
        cx.event::<u64>("n").await
    });
    let mut rig = Rig::held(registry);
    rig.attempt();
    rig.turn();
    match rig.out.back() {
        Some(WorkerItem::Report(Report { closed, folded: true, .. })) => assert_eq!(closed.len(), 1),
        other => panic!("{other:?}"),
    }
    // The event comes first: the fold is refused, the body replayed, and the race has another winner.
    rig.event("1", "n", "7");
    rig.event("2", "n", "8");
    assert_eq!(rig.output::<u64>(), 8);
    let words = rig.words();
    assert!(!words.contains(&"closed n1".to_owned()), "{words:?}");
}

#[test]
fn p22_an_event_that_was_never_looked_at_returns() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        {
            let event = cx.event::<u64>("n");
            pin_mut!(event);
            assert!(event.as_mut().now_or_never().is_none());
            cx.sleep("one", "1s").await?;
            cx.sleep("two", "1s").await?;
        }
        cx.event::<u64>("n").timeout("1 min").await
    });
    let mut rig = Rig::held(registry);
    rig.event("1", "n", "7");
    assert_eq!(rig.output::<u64>(), 7);
    let words = rig.words();
    assert!(
        words.contains(&"delivered n1 7".to_owned()) && words.contains(&"delivered n2 7".to_owned()),
        "{words:?}"
    );
}

#[test]
fn p41_a_closed_wait_that_the_code_now_keeps_parks() {
    let mut rig = Rig::held(race());
    rig.wait();
    for _ in 0..3 {
        rig.claim();
        rig.exchange();
    }
    assert!(rig.words().contains(&"closed n1".to_owned()));
    rig.registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let (event, sleep) = futures::join!(cx.event::<u64>("n"), cx.sleep("nap", "5s"));
        sleep?;
        event
    });
    rig.event("1", "n", "7");
    rig.run();
    assert_eq!(rig.parked().map(|parked| parked.code), Some(ParkCode::JournalMismatch), "{:?}", rig.words());
}

/// Reads five events, each against a short sleep that may win; what it got, in order.
fn races() -> Registry {
    Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for turn in 0..20u64 {
            let (event, sleep) =
                (cx.event::<u64>("n").timeout("3s"), cx.sleep("nap", 1_000 * (turn % 3 + 1)));
            pin_mut!(event, sleep);
            match select(event, sleep).await {
                Either::Left((Ok(event), _)) => got.push(event),
                Either::Left((Err(error), _)) if error.is_timed_out() => {}
                Either::Left((Err(error), _)) => return Err(error),
                Either::Right((slept, _)) => slept?,
            }
            if turn % 4 == 0 {
                cx.step("s", turn, echo).await?;
            }
        }
        while let Ok(event) = cx.event::<u64>("n").timeout("0s").await {
            got.push(event);
        }
        Ok(got)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    /// Sends, timers, messages that move or are lost, and deaths, in any order: each event once, first in, first out.
    #[test]
    fn p22_each_event_comes_once_and_in_order(moves in prop::collection::vec(0..12u8, 1..150)) {
        let mut rig = Rig::new(races());
        let mut sent = 0;
        for one in moves {
            match one {
                0..=2 if sent < 20 && rig.co.end(rig.uid).is_none() => {
                    rig.event(&sent.to_string(), "n", &sent.to_string());
                    sent += 1;
                }
                3 => rig.turn(),
                4 => drop(rig.flush()),
                5 => drop(rig.receive()),
                6 => rig.exchange(),
                7 => drop(rig.attempt()),
                8 if rig.co.is_ready(rig.uid) => rig.claim(),
                9 => drop(rig.wait()),
                10 => rig.crash(false),
                11 => drop(rig.move_on()),
                _ => {}
            }
        }
        let ended = rig.co.end(rig.uid).is_some();
        let got = rig.output::<Vec<u64>>();
        prop_assert!(rig.parked().is_none());
        let expected: Vec<u64> = (0..sent).collect();
        if ended {
            // What was sent after the last look is unread, and was not lost.
            let unread = rig.co.heads[&rig.uid].unread as usize;
            prop_assert_eq!(&got[..], &expected[..got.len()]);
            prop_assert_eq!(got.len() + unread, expected.len());
        } else {
            prop_assert_eq!(got, expected);
        }
    }
}
