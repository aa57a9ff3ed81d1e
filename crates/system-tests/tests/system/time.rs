//! Durations and times: rules P17 to P20, W27. Not here: the grammar of durations (the protocol's own tests).

use everstep::{Error, FailureKind, Registry, Retry, Step, Timestamp, Workflow};
use everstep_engine::rows::WaitKind;
use everstep_protocol::journal::{Fact, Wait};
use everstep_store::StatusWord;
use everstep_system_tests::{World, on_both, within};
use everstep_worker::{Metrics, Settings as WorkerSettings};

/// How late each sleep of an instance fired, in microseconds.
async fn lateness(world: &World, workflow: &str, id: &str) -> Vec<i64> {
    let journal = world.journal(workflow, id).await;
    let mut late = Vec::new();
    for entry in &journal {
        let Fact::Opened(opened) = &entry.fact else { continue };
        let Wait::Sleep { until } = opened.wait else { continue };
        let fired =
            journal.iter().find(|other| matches!(&other.fact, Fact::Fired { call } if *call == opened.call));
        late.push(fired.expect("it has fired").at.0 - until.0);
    }
    late
}

on_both! {
    async fn p17_text_that_is_no_duration_is_an_error_at_the_call_that_names_it(setup) {
        let registry = Registry::new().workflow_fn("wrong", |cx: Workflow, (): ()| async move {
            let mut errors = Vec::new();
            errors.push(cx.sleep("nap", "10 parsecs").await.expect_err("no unit of time"));
            errors.push(cx.sleep("nap", "soon").await.expect_err("no number"));
            let step = |name: &str| cx.step(name, (), |_: Step, (): ()| async { Ok::<_, Error>(()) });
            errors.push(step("retried").retry(Retry::constant("1s 2s")).await.expect_err("one unit twice"));
            errors.push(step("timed").timeout("0.1ms").await.expect_err("less than a millisecond"));
            assert!(errors.iter().all(|error| error.kind() == FailureKind::Invalid && error.is_permanent()));
            // A call that was refused does no harm to those after it.
            cx.sleep("fine", "1 ms").await?;
            Ok::<_, Error>(errors.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        let world = setup.serve(registry).await;
        world.begin("wrong", "one", &()).await;
        let errors = world.end("wrong", "one").await.output::<Vec<String>>();
        for (error, names) in errors.iter().zip([["10 parsecs", "nap"], ["soon", "nap"], ["1s 2s", "retried"], ["0.1ms", "timed"]]) {
            assert!(names.iter().all(|name| error.contains(name)), "{error:?} names {names:?}");
        }
    }

    async fn p18_zero_past_negative_and_endless_sleeps(setup) {
        let registry = Registry::new().workflow_fn("edges", |cx: Workflow, (): ()| async move {
            cx.sleep("zero", 0).await?;
            let moment = cx.now() + std::time::Duration::from_millis(400);
            cx.sleep_until("future", moment).await?;
            // Past by now, and on each replay.
            cx.sleep_until("past", moment).await?;
            cx.sleep_until("long past", Timestamp(0)).await?;
            cx.sleep("again", "300ms").await?;
            let negative = cx.sleep("negative", "-1s").await.expect_err("negative");
            let endless = cx.sleep("endless", "3651 days").await.expect_err("too long");
            let far = cx.sleep_until("far", Timestamp(i64::MAX)).await.expect_err("too far");
            Ok::<_, Error>([negative, endless, far].map(|error| error.to_string()))
        });
        let world = setup.serve(registry).await;
        world.begin("edges", "one", &()).await;
        let errors = world.end("edges", "one").await.output::<[String; 3]>();
        for (error, name) in errors.iter().zip(["negative", "endless", "far"]) {
            assert!(error.contains(name), "{error}");
        }
        let opened = world.opened("edges", "one").await;
        let names: Vec<_> = opened.iter().map(|opened| opened.call.name.as_str().to_owned()).collect();
        assert_eq!(names, ["zero", "future", "past", "long past", "again"], "each is recorded");
        assert!(lateness(&world, "edges", "one").await.iter().all(|late| *late >= 0));
        let journal = world.journal("edges", "one").await;
        let at = |name: &str| {
            let opened = journal.iter().find(|entry| matches!(&entry.fact, Fact::Opened(opened) if opened.call.name.as_str() == name));
            let fired = journal.iter().find(|entry| matches!(&entry.fact, Fact::Fired { call } if call.name.as_str() == name));
            (opened.expect("it is recorded").at, fired.expect("it is over").at)
        };
        for name in ["zero", "past", "long past"] {
            let (opened, fired) = at(name);
            assert!(fired.since(opened).as_u64() < 200, "{name} returns at once");
        }
    }

    async fn p19_a_sleep_that_has_begun_keeps_its_length(setup) {
        fn registry(length: &'static str) -> Registry {
            Registry::new().workflow_fn("nap", move |cx: Workflow, (): ()| async move {
                cx.sleep("nap", length).await?;
                cx.sleep("second", 1).await?;
                Ok::<_, Error>(length)
            })
        }
        let mut world = setup.serve(registry("1500ms")).await;
        world.begin("nap", "one", &()).await;
        let view = world.until("nap", "one", "sleeping", |view| view.status == StatusWord::Waiting).await;
        assert_eq!(view.waiting[0].kind, WaitKind::Sleep);
        world.stop_worker(0).await;
        world.add_worker_with(registry("10 days"), |settings| {
            settings.build = Some(everstep_protocol::BuildName::new("build-2").expect("a valid name"));
        }).await;
        assert_eq!(world.end("nap", "one").await.output::<String>(), "10 days");
        assert!(lateness(&world, "nap", "one").await.iter().all(|late| *late >= 0));
    }

    async fn p20_two_hundred_sleeps_are_never_early(setup) {
        let registry = Registry::new().workflow_fn("sleeper", |cx: Workflow, (): ()| async move { cx.sleep("nap", "300ms").await });
        let kind = setup.kind();
        let world = setup.serve(registry).await;
        for number in 0..200 {
            world.begin("sleeper", &format!("s-{number}"), &()).await;
        }
        within("200 ends", everstep_system_tests::DEADLINE, world.ends().count(200)).await;
        let mut late = Vec::new();
        for number in 0..200 {
            late.extend(lateness(&world, "sleeper", &format!("s-{number}")).await);
        }
        late.sort_unstable();
        assert_eq!(late.len(), 200);
        assert!(late[0] >= 0, "{} microseconds early", -late[0]);
        println!("p20 {kind:?}: late by {} us at the median, {} at the 99th percentile, {} at most", late[100], late[198], late[199]);
    }

    async fn p20_two_thousand_due_at_one_instant_are_all_resumed(setup) {
        let registry = Registry::new().workflow_fn("alarm", |cx: Workflow, moment: i64| async move {
            cx.sleep_until("alarm", Timestamp(moment)).await
        });
        let world = setup.serve(registry).await;
        world.begin("alarm", "first", &0).await;
        world.end("alarm", "first").await;
        let now = world.journal("alarm", "first").await[0].at;
        let moment = now.plus(everstep::Millis(8_000));
        let requests = (0..2_000).map(|number| {
            let (handle, request) = (world.handle(), world.request("alarm", Some(&format!("a-{number}")), &moment.0));
            async move { handle.start(request).await.expect("it is started") }
        });
        futures::future::join_all(requests).await;
        within("2,000 ends", everstep_system_tests::DEADLINE, world.ends().count(2_001)).await;
        assert!(world.ends().all().iter().all(|end| end.status == "complete"));
        assert!(world.ends().doubled().is_empty());
        for number in (0..2_000).step_by(97) {
            let late = lateness(&world, "alarm", &format!("a-{number}")).await;
            assert!(late[0] >= 0, "never early");
        }
    }

    async fn w27_a_short_sleep_keeps_the_instance_and_a_long_one_gives_it_up(setup) {
        let registry = Registry::new().workflow_fn("naps", |cx: Workflow, length: u64| async move {
            for _ in 0..4 {
                cx.sleep("nap", length).await?;
            }
            Ok::<_, Error>(())
        });
        let world = setup.serve(registry).await;
        world.begin("naps", "short", &30).await;
        world.begin("naps", "long", &400).await;
        world.end("naps", "short").await;
        world.end("naps", "long").await;
        let epoch = async |id: &str| world.view("naps", id).await.expect("it exists").epoch.0;
        assert_eq!(epoch("short").await, 1, "one lease carries all short sleeps");
        assert_eq!(epoch("long").await, 5, "each long sleep ends a lease");
    }

    /// A wake costs what was written since, whoever wakes it: the body is kept, and found again.
    async fn w27_a_loop_of_long_sleeps_is_never_replayed(setup) {
        const ROUNDS: u64 = 12;
        let registry = Registry::new().workflow_fn("rounds", |cx: Workflow, (): ()| async move {
            let mut sum = 0;
            for round in 0..ROUNDS {
                sum += cx.step("add", round, async |_: Step, round: u64| Ok::<_, Error>(round)).await?;
                cx.sleep("nap", 150).await?;
            }
            Ok::<_, Error>(sum)
        });
        let metrics = Metrics::default();
        let world = setup.worker(|settings| settings.metrics = metrics.clone()).serve(registry).await;
        world.begin("rounds", "r", &()).await;
        assert_eq!(world.end("rounds", "r").await.output::<u64>(), (0..ROUNDS).sum::<u64>());
        assert_eq!((metrics.resumed.get(), metrics.replays.get()), (ROUNDS, 0));
    }

    /// With the cache off, or too small, every wake replays: the same outcome, at its price.
    async fn w27_nothing_depends_on_what_is_kept(setup) {
        let registry = Registry::new().workflow_fn("naps", |cx: Workflow, (): ()| async move {
            for _ in 0..3 {
                cx.sleep("nap", 150).await?;
            }
            Ok::<_, Error>(())
        });
        for bytes in [0, 1] {
            let metrics = Metrics::default();
            let tune = |settings: &mut WorkerSettings| {
                (settings.metrics, settings.cache_bytes) = (metrics.clone(), bytes);
            };
            let world = setup.clone().worker(tune).serve(registry.clone()).await;
            world.begin("naps", "n", &()).await;
            world.end("naps", "n").await;
            assert_eq!((metrics.resumed.get(), metrics.replays.get()), (0, 3), "{bytes}");
        }
    }
}
