//! Hooks: created, resumed, lost and let go by a real worker, whose coordinator decides as the real one does (rules H8, H21 to H25,
//! H37 to H44, H52, H60 to H62, H69, W29). Not: how tokens are kept, and that there is one owner under concurrency.

use everstep_engine::Answer;
use everstep_protocol::hook::{HookRetention, StartHook};
use everstep_protocol::{Millis, Payload};
use everstep_sdk::{Either, Error, Hook, Next, Registry, Step, WebhookResponse, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::{Rig, crash_at_any_move_of};

async fn echo(_step: Step, value: u64) -> Result<u64, Error> {
    Ok(value)
}

fn reads(count: usize) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let mut got = Vec::new();
        for _ in 0..count {
            got.push(hook.next().await?);
            cx.step("s", 0u64, echo).await?;
        }
        Ok::<_, Error>(got)
    })
}

#[test]
fn h41_h42_payloads_are_received_in_order_whether_they_come_before_or_after_the_await() {
    let mut rig = Rig::held(reads(6));
    for n in 0..3 {
        rig.resume("t", &n.to_string(), &n.to_string());
    }
    for n in 3..6 {
        for _ in 0..10 {
            rig.exchange();
            if !(rig.attempt() || rig.co.is_ready(rig.uid)) {
                break;
            }
            if rig.co.is_ready(rig.uid) {
                rig.claim();
            }
        }
        rig.resume("t", &n.to_string(), &n.to_string());
    }
    assert_eq!(rig.output::<Vec<u64>>(), (0..6).collect::<Vec<_>>());
    assert_eq!(rig.co.holder("t"), None, "the token is free with the end");
}

#[test]
fn h41_an_await_suspends_and_a_payload_wakes_it() {
    let mut rig = Rig::held(reads(1));
    assert_eq!(rig.finished, [Finish::Suspended]);
    assert!(!rig.co.is_ready(rig.uid));
    rig.resume("t", "1", "7");
    assert!(rig.co.is_ready(rig.uid));
    assert_eq!(rig.output::<Vec<u64>>(), [7]);
}

#[test]
fn h48_the_same_resume_twice_is_one_payload() {
    let mut rig = Rig::held(reads(2));
    rig.resume("t", "1", "7");
    rig.resume("t", "1", "7");
    assert_eq!(rig.co.resume("t", "1", "8").0, Answer::EventIdTaken);
    rig.resume("t", "2", "8");
    assert_eq!(rig.output::<Vec<u64>>(), [7, 8]);
}

#[test]
fn h37_h38_a_second_registrant_gets_the_owner_and_its_awaits_fail() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let owner = hook.conflict().await?.map(|owner| owner.id().to_owned());
        let error = hook.next().await.unwrap_err();
        Ok::<_, Error>((owner, error.hook_conflict().map(|conflict| conflict.owner.id)))
    });
    let mut rig = Rig::new(registry);
    rig.co.hold("t");
    let other = || Some("other".to_owned());
    assert_eq!(rig.output::<(Option<String>, Option<String>)>(), (other(), other()));
    assert_eq!(rig.co.holder("t"), Some("other".to_owned()), "it has lost nothing");
}

/// A payload against a sleep, then another await.
fn race() -> Registry {
    Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        hook.conflict().await?;
        let first = match cx.either(hook.next(), cx.sleep("nap", "5s")).await {
            Either::First(payload) => Some(payload?),
            Either::Second(slept) => slept.map(|()| None)?,
        };
        Ok::<_, Error>((first, hook.next().await?))
    })
}

#[test]
fn h43_a_payload_that_came_for_the_loser_of_a_race_goes_to_the_next_await() {
    for crashes in [false, true] {
        let mut rig = Rig::held(race());
        // The sleep ends, and before the worker knows, the payload goes to the await that has lost.
        rig.wait();
        rig.resume("t", "1", "7");
        if crashes {
            rig.claim();
            rig.receive();
            rig.turn();
            // It has seen both, and says so to nobody.
            rig.crash(true);
        }
        assert_eq!(rig.output::<(Option<u64>, u64)>(), (None, 7), "{:?}", rig.words());
        let words = rig.words();
        for word in ["received order1 7", "closed order1", "received order2 7"] {
            assert_eq!(words.iter().filter(|said| *said == word).count(), 1, "{word}: {words:?}");
        }
    }
}

#[test]
fn h44_payloads_are_received_while_a_sleep_is_open() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let work = async {
            let mut payloads = hook.payloads();
            let mut sum = 0;
            while sum < 6 {
                sum += payloads.next().await.transpose()?.unwrap_or_default();
            }
            Ok::<_, Error>(sum)
        };
        let (sum, slept) = futures::join!(work, cx.sleep("nap", "1 day"));
        slept?;
        sum
    });
    let mut rig = Rig::held(registry);
    for n in 1..=3 {
        rig.resume("t", &n.to_string(), &n.to_string());
    }
    assert_eq!(rig.output::<u64>(), 6);
    let words = rig.words();
    let nap = words.iter().position(|word| word == "fired nap1").unwrap();
    assert!(words.iter().rposition(|word| word.starts_with("received")).unwrap() < nap, "{words:?}");
}

#[test]
fn h43_two_awaits_at_once_get_one_payload_each_the_older_first() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let (one, two) = futures::join!(hook.next(), hook.next());
        Ok::<_, Error>((one?, two?))
    });
    let mut rig = Rig::held(registry);
    rig.resume("t", "1", "7");
    rig.resume("t", "2", "8");
    assert_eq!(rig.output::<(u64, u64)>(), (7, 8));
}

#[test]
fn h08_h21_h22_h25_the_hook_of_the_start_is_bound_let_go_and_made_anew() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let start: Hook<u64> = cx.hook("order").token("t").create()?;
            assert!(start.conflict().await?.is_none());
            let got = start.next().await?;
            start.dispose().await;
            let end = start.next().await.unwrap_err().name().to_owned();
            cx.sleep("nap", "1s").await?;
            let again: Hook<u64> = cx.hook("order").token("t").create()?;
            let owner = again.conflict().await?.map(|owner| owner.id().to_owned());
            Ok::<_, Error>((got, end, owner))
        })
    };
    for taken in [false, true] {
        let mut rig = Rig::with_token(registry(), "t");
        rig.resume("t", "1", "7");
        rig.claim();
        rig.exchange();
        assert_eq!(rig.co.holder("t"), None, "free at once, while the run goes on");
        if taken {
            rig.co.hold("t");
        }
        let disposed = "HookDisposed".to_owned();
        let owner = taken.then(|| "other".to_owned());
        assert_eq!(rig.output::<(u64, String, Option<String>)>(), (7, disposed, owner));
        let words = rig.words();
        let registered = words.iter().filter(|word| word.starts_with("registered")).count();
        assert_eq!(registered, 1, "the bound one has no entry: {words:?}");
    }
}

#[test]
fn h07_a_start_hook_that_is_never_opened_harms_nothing() {
    let registry = Registry::new()
        .workflow_fn("w", |cx: Workflow, (): ()| async move { cx.step("s", 1u64, echo).await });
    let mut rig = Rig::with_token(registry, "t");
    rig.resume("t", "1", "7");
    assert_eq!(rig.output::<u64>(), 1);
    assert_eq!(rig.co.holder("t"), None);
}

#[test]
fn h23_h24_retention_holds_only_for_what_is_kept() {
    let registry = |keeps: bool, fails: bool| {
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let hook: Hook<u64> = cx.hook("order").token("t").retention("7 days").create()?;
            let hook = if keeps { hook.keep() } else { hook };
            hook.conflict().await?;
            cx.step("s", 1u64, echo).await?;
            if fails { Err(Error::failed("no")) } else { Ok(()) }
        })
    };
    for fails in [false, true] {
        for keeps in [false, true] {
            let mut rig = Rig::new(registry(keeps, fails));
            rig.run();
            let expected = keeps.then(|| "order-1 by retention".to_owned());
            assert_eq!(rig.co.holder("t"), expected, "fails {fails} keeps {keeps}: {:?}", rig.words());
        }
    }
}

#[test]
fn h23_the_retention_of_the_start_is_void_when_the_guard_ends_with_the_body() {
    for keeps in [false, true] {
        let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let start: Hook<u64> = cx.hook("order").token("t").create()?;
            let _start = if keeps { start.keep() } else { start };
            cx.step("s", 1u64, echo).await
        });
        let mut rig = Rig::new(registry);
        let retention = Some(HookRetention::For(Millis(60_000)));
        let hook = StartHook { retention, ..StartHook::new("t".parse().unwrap()) };
        rig.uid = rig.co.start_with("w", &Payload::null(), Some(hook));
        assert_eq!(rig.output::<u64>(), 1);
        assert_eq!(rig.co.holder("t").is_some(), keeps);
    }
}

#[test]
fn h52_w29_what_the_worker_throws_away_lets_nothing_go() {
    let mut rig = Rig::held(reads(1));
    assert_eq!(rig.finished, [Finish::Suspended], "with which the body was dropped");
    assert_eq!(rig.co.holder("t"), Some("order-1".to_owned()));
    rig.claim();
    rig.exchange();
    rig.crash(true);
    assert_eq!(rig.co.holder("t"), Some("order-1".to_owned()));
    assert!(!rig.words().contains(&"let go order1".to_owned()));
}

#[test]
fn h52_a_scope_ends_while_the_instance_goes_on() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        for _ in 0..3 {
            let hook: Hook<u64> = cx.hook("order").token("t").create()?;
            assert!(hook.conflict().await?.is_none());
        }
        cx.sleep("nap", "1s").await
    });
    let mut rig = Rig::held(registry);
    assert_eq!(rig.co.holder("t"), None, "{:?}", rig.words());
    rig.output::<()>();
    let words = rig.words();
    assert_eq!(words.iter().filter(|word| word.starts_with("registered")).count(), 3, "{words:?}");
}

#[test]
fn h60_h61_h62_h69_the_owner_before_receives_what_came_before_and_then_the_claimant() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let hook: Hook<u64> = cx.hook("order").token("t").create()?;
            hook.conflict().await?;
            cx.sleep("nap", "1s").await?;
            let first = hook.next().await?;
            let taken = hook.next().await.unwrap_err();
            assert!(hook.conflict().await?.is_none(), "it had registered");
            let again = hook.next().await.unwrap_err();
            let claimant = taken.hook_taken().map(|taken| (taken.claimant.id, taken.hook));
            Ok::<_, Error>((first, claimant, again.name().to_owned()))
        })
    };
    let mut rig = Rig::held(registry());
    rig.resume("t", "1", "7");
    let said = rig.co.take_over("t");
    rig.hear(said);
    assert_eq!(rig.co.holder("t"), Some("claimant".to_owned()));
    let claimant = Some(("claimant".to_owned(), "1.2".to_owned()));
    let got = rig.output::<(u64, Option<(String, String)>, String)>();
    assert_eq!(got, (7, claimant, "HookTaken".to_owned()), "{:?}", rig.words());
    assert_eq!(rig.co.holder("t"), Some("claimant".to_owned()), "its guard lets go what is its own alone");
}

#[test]
fn h66_an_owner_that_awaits_is_woken_by_the_takeover() {
    let mut rig = Rig::held(reads(1));
    let said = rig.co.take_over("t");
    rig.hear(said);
    assert!(rig.co.is_ready(rig.uid));
    assert_eq!(rig.failure().name, "HookTaken");
}

#[test]
fn p36_a_hook_that_is_kept_is_met_again_by_the_next_generation() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, n: Option<u64>| async move {
        let hook: Hook<u64> = cx.hook("order").token("t").create()?;
        let hook = hook.keep();
        let own: Hook<u64> = cx.hook("own").token("o").create()?;
        let own = own.keep();
        assert!(hook.conflict().await?.is_none() && own.conflict().await?.is_none());
        let got = hook.next().await? + n.unwrap_or_default();
        if n.is_none() {
            return cx.continue_as_new(Some(got));
        }
        Ok::<_, Error>(Next::Done(got + own.next().await?))
    });
    let mut rig = Rig::with_token(registry, "t");
    rig.resume("t", "1", "1");
    rig.resume("t", "2", "2");
    rig.claim();
    rig.exchange();
    rig.resume("o", "3", "4");
    assert_eq!(rig.output::<u64>(), 7, "{:?}", rig.words());
}

/// What the instance comes to in the test below.
type Came = (u64, (String, bool), Option<String>, u64, bool);

#[test]
fn h40_h53_hooks_come_to_the_same_wherever_the_worker_crashes() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let start: Hook<u64> = cx.hook("order").token("t").create()?;
            let first = start.next().await?;
            let held: Hook<u64> = cx.hook("held").token("held").create()?;
            let raced = {
                let own: Hook<u64> = cx.hook("own").create()?;
                let token = own.token().to_owned();
                cx.step("s", 1u64, echo).await?;
                assert!(own.conflict().await?.is_none());
                let won = matches!(cx.either(own.next(), cx.sleep("nap", "1s")).await, Either::First(_));
                (token, won)
            };
            let owner = held.conflict().await?.map(|owner| owner.id().to_owned());
            let second = start.next().await?;
            start.dispose().await;
            let again: Hook<u64> = cx.hook("order").token("t").create()?;
            let free = again.conflict().await?.is_none();
            for n in 0..6u64 {
                cx.step("s", n, echo).await?;
            }
            Ok::<_, Error>((first, raced, owner, second, free))
        })
    };
    let begin = || {
        let mut rig = Rig::with_token(registry(), "t");
        rig.co.hold("held");
        rig.resume("t", "1", "7");
        rig.resume("t", "2", "8");
        rig
    };
    let came: Came = begin().output();
    assert_eq!((came.0, came.1.1, came.2.as_deref(), came.3, came.4), (7, false, Some("other"), 8, true));
    crash_at_any_move_of(begin, &came);
}

#[test]
fn h58_requests_are_answered_the_same_wherever_the_worker_crashes() {
    type Came = Vec<(String, Option<String>)>;
    const REQUESTS: u64 = 9;
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            let webhook = cx.webhook("pay").token("t").replying().create()?;
            let mut came = Vec::new();
            for n in 0..REQUESTS {
                let request = webhook.next().await?;
                cx.step("s", n, echo).await?;
                request.respond(WebhookResponse::new(201).text(n.to_string())).await?;
                let again = request.respond(WebhookResponse::new(500)).await.err();
                came.push((request.text()?, again.map(|error| error.name().to_owned())));
            }
            Ok::<_, Error>(came)
        })
    };
    let begin = || {
        let mut rig = Rig::held(registry());
        for n in 0..REQUESTS {
            let request = format!(r#"{{"id":"r-{n}","method":"POST","body":"{n}","encoding":"text"}}"#);
            rig.resume("t", &format!("r-{n}"), &request);
        }
        rig
    };
    let mut rig = begin();
    let came: Came = rig.output();
    assert!(came.iter().all(|(_, again)| again.as_deref() == Some("Invalid")), "{came:?}");
    assert!(came.iter().map(|(text, _)| text.parse::<u64>().unwrap()).eq(0..REQUESTS), "{came:?}");
    crash_at_any_move_of(begin, &came);
}
