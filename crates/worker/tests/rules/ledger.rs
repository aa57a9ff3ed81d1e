//! Attempts that may not simply be made again (rules L5 to L9): announced before they begin, given back unused, looked for, asked about.

use everstep_engine::{Answer, What, decide::Resolution, rows::WaitKind};
use everstep_protocol::{
    Payload, Run,
    journal::{Choice, End, Fact, QuestionId},
    message::{CoordinatorItem, Entries, LedgerItem, WorkerItem},
};
use everstep_sdk::{Error, Registry, Retry, Step, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::{Log, Rig};

/// What an attempt comes to.
type Told = fn(u32) -> Result<u32, Error>;

/// A step that is called at most once, and one after it. What the first comes to is told by `outcome`.
fn once(log: &Log, outcome: Told) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let paid = cx
                .step("pay", (), move |step: Step, (): ()| {
                    log.add("pay");
                    async move { outcome(step.attempt()) }
                })
                .at_most_once()
                .retry(Retry::constant("10s").limit(2))
                .await?;
            let after = async move |_: Step, paid: u32| Ok::<_, Error>(paid + 1);
            cx.step("after", paid, after).await
        }
    })
}

#[allow(clippy::unnecessary_wraps, reason = "it stands for a step function")]
fn ok(_: u32) -> Result<u32, Error> {
    Ok(1)
}

/// A person answers what is asked first.
fn answer(rig: &mut Rig, choice: Choice) -> Answer {
    let asked = rig.co.rows.waits.iter().find(|(_, wait)| wait.kind == WaitKind::Person);
    let (call, position) = asked
        .map(|((_, call), wait)| (*call, wait.question.as_ref().expect("it asks").position))
        .expect("somebody is asked");
    let question = QuestionId { run: Run(1), position };
    let resolution = Box::new(Resolution { question, call: Some(call), choice, by: None, why: None });
    let operation = format!("answer {position}");
    let (answer, said) = rig.co.on(rig.uid, What::Resolve { operation, resolution });
    rig.hear(said);
    answer
}

fn pause(rig: &mut Rig, pause: bool) {
    let operation = format!("pause {pause} {}", rig.journal().len());
    let what = if pause { What::Pause { operation } } else { What::Resume { operation } };
    let (_, said) = rig.co.on(rig.uid, what);
    rig.hear(said);
}

#[test]
fn l05_nothing_begins_before_its_intent_is_acknowledged() {
    let log = Log::default();
    let mut rig = Rig::new(once(&log, ok));
    rig.claim();
    rig.receive();
    for _ in 0..3 {
        rig.turn();
    }
    assert!(rig.orders.is_empty(), "the report is under way");
    rig.flush();
    for _ in 0..3 {
        rig.turn();
    }
    assert!(rig.orders.is_empty(), "it is written, and the answer is under way");
    assert_eq!(log.count("pay"), 0);
    rig.exchange();
    assert_eq!(rig.orders.len(), 1, "it is acknowledged");
}

#[test]
fn l05_the_acknowledgement_begins_it() {
    let log = Log::default();
    let mut rig = Rig::new(once(&log, ok));
    rig.claim();
    rig.receive();
    rig.turn();
    let [WorkerItem::Report(report)] = rig.out.make_contiguous() else { panic!("{:?}", rig.out) };
    assert!(matches!(&report.ledger[..], [LedgerItem::Intend(intent)] if intent.attempt.0 == 1));
    assert!(rig.orders.is_empty());
    rig.flush();
    assert_eq!(rig.words(), ["started", "intended pay1 1"]);
    rig.turn();
    assert!(rig.orders.is_empty(), "nothing began before the acknowledgement");
    rig.receive();
    rig.turn();
    assert_eq!(rig.orders.len(), 1);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(rig.words(), ["started", "intended pay1 1", "pay1 1 ok", "after1 1 ok", "ended"]);
    assert_eq!(log.count("pay"), 1);
}

#[test]
fn l05_a_lost_acknowledgement_begins_it_once() {
    let log = Log::default();
    let mut rig = announced(&log);
    rig.inbox.clear();
    rig.advance(1000);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!((log.count("pay"), rig.words().len()), (1, 5));
}

#[test]
fn l05_the_intent_goes_with_the_result_before_it_and_begins_nothing_if_that_is_refused() {
    let log = Log::default();
    let ran = log.clone();
    let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = ran.clone();
        async move {
            cx.step("first", (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
            cx.step("pay", (), move |_: Step, (): ()| {
                log.add("pay");
                async { Ok::<_, Error>(1) }
            })
            .at_most_once()
            .await
        }
    });
    let mut rig = Rig::held(registry.clone());
    rig.attempt();
    rig.turn();
    let [WorkerItem::Report(report)] = rig.out.make_contiguous() else { panic!("{:?}", rig.out) };
    assert!(report.folded && report.ledger.len() == 1 && report.results.len() == 1);
    // Another entry comes first: the fold is refused, and with it the intent.
    let cancel = What::Cancel {
        operation: "c".to_owned(),
        reason: None,
        within: everstep_protocol::Millis(1_000_000),
        rollback: false,
    };
    let (_, said) = rig.co.on(rig.uid, cancel);
    rig.hear(said);
    rig.exchange();
    assert!(!rig.words().iter().any(|word| word.starts_with("intended")), "{:?}", rig.words());
    assert!(rig.orders.is_empty() && log.count("pay") == 0);
    let mut rig = Rig::held(registry);
    assert_eq!(rig.output::<u32>(), 1);
    assert_eq!(rig.words(), ["started", "first1 1 ok", "intended pay1 1", "pay1 1 ok", "ended"]);
    assert_eq!(rig.reports, 2, "no round trip more than the one that the intent is");
}

#[test]
fn l07_what_a_dead_worker_had_announced_asks_a_person() {
    for ran in [false, true] {
        let log = Log::default();
        let mut rig = Rig::held(once(&log, ok));
        assert_eq!(rig.orders.len(), 1);
        if ran {
            rig.attempt();
        }
        rig.crash(true);
        rig.run();
        assert_eq!(
            rig.words(),
            ["started", "intended pay1 1", "lost", "pay1 1 unknown WorkerLost asks"],
            "whether it ran or not nobody knows"
        );
        assert_eq!(log.count("pay"), usize::from(ran), "it is never called again by itself");
        assert_eq!(answer(&mut rig, Choice::Again), Answer::Done);
        assert_eq!(rig.output::<u32>(), 2);
        assert_eq!(log.count("pay"), 1 + usize::from(ran));
        let words = rig.words();
        assert_eq!(
            words[4..],
            ["resolved pay1 again", "intended pay1 2", "pay1 2 ok", "after1 1 ok", "ended"]
        );
    }
}

/// Whatever a worker does not know for sure is asked, and nothing is called again.
#[test]
fn l07_every_end_that_is_not_sure_asks_a_person() {
    let ends: [(Told, &str); 3] = [
        (|_| Err(Error::failed("broken pipe")), "unknown Error asks"),
        (|_| Err(Error::permanent("no")), "unknown Error asks"),
        (|_| panic!("oh"), "unknown Panicked asks"),
    ];
    for (outcome, word) in ends {
        let log = Log::default();
        let mut rig = Rig::new(once(&log, outcome));
        rig.run();
        assert_eq!(rig.words(), ["started", "intended pay1 1", &format!("pay1 1 {word}")]);
        assert_eq!((log.count("pay"), rig.hosted.is_none()), (1, true), "it waits, and holds no worker");
        let output = Payload::from_text("41").unwrap();
        assert_eq!(answer(&mut rig, Choice::Done(output)), Answer::Done);
        assert_eq!(rig.output::<u32>(), 42);
        assert_eq!(log.count("pay"), 1);
    }
}

#[test]
fn l08_a_failure_that_a_person_says_is_the_steps() {
    let mut rig = Rig::new(once(&Log::default(), |_| Err(Error::failed("broken pipe"))));
    rig.run();
    let failure = everstep_protocol::Failure::new(everstep_protocol::FailureKind::Error, "the bank says no");
    answer(&mut rig, Choice::Fail(failure));
    assert_eq!(rig.failure().message, "the bank says no");
}

#[test]
fn l08_an_output_that_does_not_fit_the_code_parks_like_any_recorded_one() {
    let mut rig = Rig::new(once(&Log::default(), |_| Err(Error::failed("broken pipe"))));
    rig.run();
    answer(&mut rig, Choice::Done(Payload::from_text(r#""text""#).unwrap()));
    rig.run();
    assert!(rig.parked().expect("it is parked").message.contains("reading the recorded output"));
}

#[test]
fn l09_what_was_not_sent_is_tried_again_and_what_was_refused_fails() {
    let log = Log::default();
    let mut rig =
        Rig::new(once(
            &log,
            |attempt| {
                if attempt < 3 { Err(Error::not_sent("nobody listens")) } else { Ok(1) }
            },
        ));
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(log.count("pay"), 3);
    assert_eq!(rig.words()[1..4], ["intended pay1 1", "pay1 1 Error again in 10000", "fired pay1"]);
    // As often as its policy says, and then it has failed: there is no effect.
    let mut rig = Rig::new(once(&Log::default(), |_| Err(Error::not_sent("nobody listens"))));
    assert_eq!(rig.failure().message, "nobody listens");
    let log = Log::default();
    let mut rig = Rig::new(once(&log, |_| Err(Error::refused("no money"))));
    assert!(rig.failure().permanent);
    assert_eq!(log.count("pay"), 1);
    assert_eq!(rig.words(), ["started", "intended pay1 1", "pay1 1 failed Error", "ended"]);
}

/// The report that announces an attempt is under way.
fn announced(log: &Log) -> Rig {
    let mut rig = Rig::new(once(log, ok));
    rig.claim();
    rig.receive();
    rig.turn();
    rig.flush();
    rig
}

#[test]
fn l07_an_intent_that_is_not_used_is_given_back() {
    let log = Log::default();
    // The worker stops.
    let mut rig = announced(&log);
    rig.hosted.as_mut().unwrap().stop();
    rig.exchange();
    assert_eq!(rig.words(), ["started", "intended pay1 1", "withdrawn pay1 1"]);
    assert_eq!(rig.finished, [Finish::GivenBack]);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(rig.words()[3..5], ["intended pay1 1", "pay1 1 ok"], "the number is free");
    // It waits for a slot, which does not come.
    let mut rig = Rig::held(once(&log, ok));
    let order = rig.orders.pop_front().expect("it waits for a slot");
    let hosted = rig.hosted.as_mut().unwrap();
    hosted.unstarted(order.number);
    hosted.stop();
    rig.exchange();
    assert_eq!(rig.words(), ["started", "intended pay1 1", "withdrawn pay1 1"]);
    // A worker that stops announces nothing.
    let mut rig = Rig::new(once(&log, ok));
    rig.claim();
    rig.receive();
    rig.hosted.as_mut().unwrap().stop();
    rig.exchange();
    assert_eq!((rig.words(), rig.finished.clone()), (vec!["started".to_owned()], vec![Finish::GivenBack]));
}

#[test]
fn l07_a_pause_gives_back_what_has_not_begun() {
    let log = Log::default();
    let mut rig = announced(&log);
    pause(&mut rig, true);
    rig.exchange();
    assert_eq!(rig.words(), ["started", "intended pay1 1", "withdrawn pay1 1"]);
    assert!(rig.orders.is_empty() && rig.hosted.is_none());
    pause(&mut rig, false);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(log.count("pay"), 1);
    // Taken back before anything came of it: the attempt begins under another announcement.
    let mut rig = announced(&log);
    let item = |pause| {
        let (instance, epoch) = (rig.uid, rig.co.heads[&rig.uid].epoch);
        let (last, entries) = (everstep_protocol::Position(2), Vec::new());
        CoordinatorItem::Entries(Entries { instance, epoch, last, entries, pause: Some(pause) })
    };
    let (hold, go_on) = (item(true), item(false));
    rig.take(hold);
    rig.receive();
    rig.turn();
    rig.take(go_on);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(log.count("pay"), 2);
}

/// A race between a step that is called at most once and one that wins it.
fn race(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let pay = cx
                .step("pay", (), move |_: Step, (): ()| {
                    log.add("pay");
                    async { Ok::<_, Error>(1) }
                })
                .at_most_once();
            let win = cx.step("win", (), async |_: Step, (): ()| Ok::<_, Error>(7));
            let won = match futures::future::select(win, pay).await {
                futures::future::Either::Left((won, pay)) => {
                    drop(pay);
                    won?
                }
                futures::future::Either::Right((paid, _)) => paid?,
            };
            cx.sleep("nap", "1s").await?;
            Ok::<_, Error>(won)
        }
    })
}

#[test]
fn l07_the_loser_of_a_race_is_recorded_without_a_question() {
    let log = Log::default();
    let mut rig = Rig::held(race(&log));
    // The winner ran at once; the other has begun by now.
    let win = rig.orders.iter().position(|order| order.info.name.as_str() == "win").unwrap();
    let order = rig.orders.remove(win).unwrap();
    assert_eq!(rig.orders.len(), 1, "the other runs");
    rig.finish(&order, Ok(Payload::from_text("7").unwrap()));
    assert_eq!(rig.output::<u32>(), 7);
    let words = rig.words();
    assert!(words.contains(&"pay1 1 unknown Cancelled".to_owned()), "{words:?}");
    assert!(!words.iter().any(|word| word.contains("asks")), "{words:?}");
    assert_eq!(rig.co.rows.waits.len(), 0);
    // One that was only announced when it lost is given back.
    let mut rig = Rig::new(race(&log));
    rig.claim();
    rig.receive();
    rig.turn();
    rig.flush();
    rig.attempt();
    rig.turn();
    rig.receive();
    rig.run();
    let words = rig.words();
    assert!(
        words.contains(&"withdrawn pay1 1".to_owned())
            || words.contains(&"pay1 1 unknown Cancelled".to_owned()),
        "{words:?}"
    );
    assert!(rig.co.end(rig.uid).is_some());
}

/// It had ended when it lost, and its report was under way: one outcome is recorded, the one that is known.
#[test]
fn l07_what_came_of_the_loser_of_a_race_is_recorded_once() {
    let log = Log::default();
    let mut rig = Rig::held(race(&log));
    let win = rig.orders.iter().position(|order| order.info.name.as_str() == "win").unwrap();
    let (win, pay) = (rig.orders.remove(win).unwrap(), rig.orders.pop_front().unwrap());
    let output = || Ok(Payload::from_text("7").unwrap());
    // Two outcomes, each in a report of its own; the body sees the winner while the other's has no answer yet.
    rig.finish(&win, output());
    rig.turn();
    rig.finish(&pay, output());
    rig.turn();
    rig.flush();
    assert_eq!(rig.output::<u32>(), 7);
    let words: Vec<_> = rig.words().into_iter().filter(|word| word.starts_with("pay1 1")).collect();
    assert_eq!(words.len(), 1, "{words:?}");
    assert!(!words[0].contains("unknown"), "{words:?}");
}

/// The body ends while it runs: the end does not hide that.
#[test]
fn l07_an_end_records_what_still_ran() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let pay = cx.step("pay", (), async |_: Step, (): ()| Ok::<_, Error>(1)).at_most_once();
        let fail = cx.step("fail", (), async |_: Step, (): ()| Err::<u32, _>(Error::permanent("no")));
        let (_, _): (u32, u32) = futures::try_join!(pay, fail)?;
        Ok::<_, Error>(0)
    });
    let mut rig = Rig::held(registry);
    let fail = rig.orders.iter().position(|order| order.info.name.as_str() == "fail").unwrap();
    let order = rig.orders.remove(fail).unwrap();
    let failure = everstep_protocol::Failure::from(Error::permanent("no"));
    rig.finish(&order, Err(failure));
    rig.run();
    let words = rig.words();
    assert_eq!(words[words.len() - 2..], ["pay1 1 unknown Cancelled", "ended"], "{words:?}");
    assert!(matches!(rig.co.end(rig.uid), Some(End::Errored(_))));
}

/// A service that can be asked for what it did.
fn looking(log: &Log, fails_after: bool) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let (look, call) = (log.clone(), log.clone());
        async move {
            cx.step("create", 5_u32, move |_: Step, n: u32| {
                call.add("create");
                async move { if fails_after { Err(Error::failed("timed out")) } else { Ok(n) } }
            })
            .look_first(move |_: Step, n: u32| {
                look.add("look");
                let there = look.count("create") > 0;
                async move { Ok::<_, Error>(there.then_some(n)) }
            })
            .visibility_lag("30s")
            .retry(Retry::constant("1s").limit(3))
            .await
        }
    })
}

#[test]
fn l06_it_looks_before_every_call_and_what_it_finds_is_the_output() {
    let log = Log::default();
    let mut rig = Rig::new(looking(&log, false));
    assert_eq!(rig.output::<u32>(), 5);
    assert_eq!(log.all(), ["look", "create"]);
    // The call took effect and its answer was lost: the next attempt finds it.
    let log = Log::default();
    let mut rig = Rig::new(looking(&log, true));
    assert_eq!(rig.output::<u32>(), 5);
    assert_eq!(log.all(), ["look", "create", "look"]);
    assert_eq!(
        rig.words(),
        [
            "started",
            "intended create1 1",
            "create1 1 Error again in 30000",
            "fired create1",
            "intended create1 2",
            "create1 2 ok",
            "ended"
        ]
    );
    let found = rig.journal().iter().filter_map(|entry| match &entry.fact {
        Fact::Attempted(attempted) => Some(attempted.marks.found),
        _ => None,
    });
    assert_eq!(found.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn l07_after_a_dead_holder_it_looks_when_what_it_did_would_show() {
    for ran in [false, true] {
        let log = Log::default();
        let mut rig = Rig::held(looking(&log, false));
        if ran {
            rig.attempt();
        }
        rig.crash(true);
        let lost_at = rig.co.now;
        assert_eq!(rig.output::<u32>(), 5);
        assert!(rig.elapsed(lost_at) >= 30_000, "{:?}", rig.words());
        assert_eq!(log.count("create"), 1, "{:?}", log.all());
    }
}

#[test]
fn l06_looking_that_fails_has_no_effect() {
    let registry =
        Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
            cx.step("create", (), async |_: Step, (): ()| Ok::<_, Error>(1_u32))
                .look_first(async |step: Step, (): ()| {
                    if step.attempt() == 1 { Err(Error::failed("the search is down")) } else { Ok(None) }
                })
                .visibility_lag("1 hour")
                .retry(Retry::constant("1s"))
                .await
        });
    let mut rig = Rig::new(registry);
    assert_eq!(rig.output::<u32>(), 1);
    assert_eq!(rig.words()[2], "create1 1 Error again in 1000", "nothing was called: nothing needs to show");
}

#[test]
fn l06_classes_that_contradict_each_other_are_refused() {
    let refused = |call: fn(&Workflow) -> everstep_sdk::StepCall<u32>| {
        let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| call(&cx));
        Rig::new(registry).failure().message
    };
    let both = |cx: &Workflow| {
        let step = cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(1));
        step.at_most_once().look_first(async |_: Step, (): ()| Ok::<_, Error>(None))
    };
    assert!(refused(both).contains("look_first is refused, its class is said already: at_most_once"));
    let lag =
        |cx: &Workflow| cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(1)).visibility_lag("1s");
    assert!(refused(lag).contains("visibility_lag is refused without look_first"));
}

#[test]
fn l05_an_input_that_is_refused_announces_nothing() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.step("a", 1_u32, async |_: Step, (): ()| Ok::<_, Error>(1)).at_most_once().await
    });
    let mut rig = Rig::new(registry);
    // The input does not fit the function, which has not run: nothing can have taken effect.
    assert!(rig.failure().message.contains("reading the input"));
    let words = rig.words();
    assert!(!words.iter().any(|word| word.contains("unknown")), "{words:?}");
}

/// However often its worker dies, and wherever, an effect comes about once, or somebody is asked.
#[test]
fn l07_at_any_crash_there_is_one_effect_or_a_question() {
    let mut asked = 0;
    for counts in [false, true] {
        for crash_after in 0..12 {
            let log = Log::default();
            let mut rig = Rig::new(once(&log, ok));
            for _ in 0..crash_after {
                rig.move_on();
            }
            if rig.co.end(rig.uid).is_none() {
                rig.crash(counts);
            }
            rig.run();
            if rig.co.end(rig.uid).is_none() {
                asked += 1;
                assert!(rig.words().last().unwrap().ends_with("asks"), "{:?}", rig.words());
                answer(&mut rig, Choice::Done(Payload::from_text("1").unwrap()));
            }
            assert_eq!(rig.output::<u32>(), 2);
            assert!(log.count("pay") <= 1, "{:?}", rig.words());
        }
    }
    assert!(asked >= 2, "{asked}");
}
