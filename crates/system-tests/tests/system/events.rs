//! Events on whole systems: rules P21 to P26, W40. Not here: which event meets which wait (the engine's tests), and HTTP.

use std::time::Duration;

use everstep::{Error, Registry, Step, Workflow};
use everstep_broker::Properties;
use everstep_engine::{Answer, Status, rows::WaitKind};
use everstep_protocol::{Namespace, journal::Fact};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, World, on_both};

/// Reads so many events of a type, with a step after each.
fn reader(count: usize) -> Registry {
    Registry::new().workflow_fn("reader", move |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for _ in 0..count {
            let number: u64 = cx.event("n").timeout("1 min").await?;
            got.push(cx.step("keep", number, async |_: Step, n: u64| Ok::<_, Error>(n)).await?);
        }
        Ok::<_, Error>(got)
    })
}

fn message(id: &str) -> Properties {
    Properties {
        message_id: Some(id.to_owned()),
        content_type: Some("application/json".to_owned()),
        ..Properties::default()
    }
}

async fn output(world: &World, workflow: &str, id: &str) -> String {
    world.end(workflow, id).await.output::<serde_json::Value>().to_string()
}

fn numbers(count: u64) -> String {
    serde_json::to_string(&(0..count).collect::<Vec<_>>()).expect("numbers have a JSON form")
}

on_both! {
    async fn p22_events_sent_before_any_worker_are_read_in_order(setup) {
        let mut world = setup.start().await;
        world.begin("reader", "one", &()).await;
        for number in 0..20u64 {
            assert_eq!(world.send("reader", "one", (&number.to_string(), "n"), &number).await, Answer::Done);
        }
        let view = world.view("reader", "one").await.expect("it is there");
        assert_eq!((view.unread[0].kind.as_str(), view.unread[0].count), ("n", 20));
        world.add_worker(reader(20)).await;
        assert_eq!(output(&world, "reader", "one").await, numbers(20));
    }

    async fn p22_a_waiting_instance_wakes_and_a_running_one_gets_its_events(setup) {
        let world = setup.serve(reader(30)).await;
        world.begin("reader", "one", &()).await;
        let waiting = |view: &everstep_store::InstanceView| {
            view.status == StatusWord::Waiting && view.waiting.iter().any(|wait| wait.kind == WaitKind::Event)
        };
        world.until("reader", "one", "it waits", waiting).await;
        for number in 0..30u64 {
            assert_eq!(world.send("reader", "one", (&number.to_string(), "n"), &number).await, Answer::Done);
        }
        assert_eq!(output(&world, "reader", "one").await, numbers(30));
    }

    async fn p22_each_event_comes_once_over_deaths_of_workers(setup) {
        let mut world = setup.serve(reader(12)).await;
        let mut worker = 0;
        world.begin("reader", "one", &()).await;
        for number in 0..12u64 {
            let id = number.to_string();
            // A sender that does not trust its answer sends again.
            for _ in 0..2 {
                assert_eq!(world.send("reader", "one", (&id, "n"), &number).await, Answer::Done);
            }
            if number % 4 == 1 {
                world.crash_worker(worker).await;
                worker = world.add_worker(reader(12)).await;
            }
        }
        assert_eq!(output(&world, "reader", "one").await, numbers(12));
        let journal = world.journal("reader", "one").await;
        let delivered = journal.iter().filter(|entry| matches!(entry.fact, Fact::Delivered(_))).count();
        assert_eq!(delivered, 12);
    }

    async fn p22_the_loser_of_a_race_gives_its_event_back(setup) {
        let gate = Gate::closed();
        let held = gate.clone();
        let log = Log::new();
        let noted = log.clone();
        let registry = Registry::new().workflow_fn("race", move |cx: Workflow, (): ()| {
            let (held, noted) = (held.clone(), noted.clone());
            async move {
                let first = tokio::select! {
                    got = cx.event::<u64>("n") => Some(got?),
                    slept = cx.sleep("nap", 20) => { slept?; None }
                };
                cx.step("between", (), move |_: Step, (): ()| {
                    let (held, noted) = (held.clone(), noted.clone());
                    async move {
                        noted.push("between");
                        held.pass().await;
                        Ok::<_, Error>(())
                    }
                }).await?;
                let second = cx.event::<u64>("n").timeout("1 min").await?;
                Ok::<_, Error>((first, second))
            }
        });
        let world = setup.serve(registry).await;
        world.begin("race", "one", &()).await;
        log.reached("between", 1).await;
        assert_eq!(world.send("race", "one", ("1", "n"), &7u64).await, Answer::Done);
        gate.open();
        assert_eq!(output(&world, "race", "one").await, "[null,7]");
        assert_eq!(world.view("race", "one").await.expect("it is there").waits, 0);
    }

    async fn p21_a_timeout_ends_the_wait_and_can_be_caught(setup) {
        let registry = Registry::new().workflow_fn("patient", |cx: Workflow, (): ()| async move {
            let error = cx.event::<u64>("never").timeout(150).await.expect_err("nothing is sent");
            Ok::<_, Error>((error.name().to_owned(), error.is_timed_out()))
        });
        let world = setup.serve(registry).await;
        world.begin("patient", "one", &()).await;
        assert_eq!(output(&world, "patient", "one").await, r#"["EventTimedOut",true]"#);
    }

    async fn p24_unknown_ended_and_doubled_events_have_their_answers(setup) {
        let world = setup.coordinator(|settings| settings.limits.events_unread = 2).serve(reader(1)).await;
        assert_eq!(world.send("reader", "nobody", ("1", "n"), &1).await, Answer::NotFound);
        world.begin("reader", "one", &()).await;
        assert_eq!(world.send("reader", "one", ("1", "n"), &0u64).await, Answer::Done);
        world.end("reader", "one").await;
        assert_eq!(world.send("reader", "one", ("1", "n"), &0u64).await, Answer::Done);
        assert_eq!(world.send("reader", "one", ("1", "n"), &5u64).await, Answer::EventIdTaken);
        assert_eq!(world.send("reader", "one", ("2", "n"), &0u64).await, Answer::Refused(Status::Complete));
        world.begin("reader", "two", &()).await;
        for (id, answer) in [("1", Answer::Done), ("2", Answer::Done), ("3", Answer::MailboxFull)] {
            assert_eq!(world.send("reader", "two", (id, "other"), &1).await, answer);
        }
    }

    async fn p25_a_mistyped_event_is_seen(setup) {
        let world = setup.serve(reader(1)).await;
        world.begin("reader", "one", &()).await;
        world.send("reader", "one", ("1", "m"), &1).await;
        let seen = |view: &everstep_store::InstanceView| {
            view.never_sent.iter().any(|kind| kind.as_str() == "n")
                && view.unread.iter().any(|unread| unread.kind.as_str() == "m")
        };
        world.until("reader", "one", "the mistyped event is seen", seen).await;
    }

    async fn p26_a_key_takes_only_its_own(setup) {
        let registry = Registry::new().workflow_fn("keyed", |cx: Workflow, (): ()| async move {
            let two = cx.event::<u64>("n").key("two").timeout("1 min").await?;
            let any = cx.event::<u64>("n").timeout("1 min").whole().await?;
            Ok::<_, Error>((two, any.payload, any.key))
        });
        let world = setup.serve(registry).await;
        world.begin("keyed", "one", &()).await;
        for (id, key) in [(1, "one"), (2, "two")] {
            let body = format!(
                r#"{{"workflow":"keyed","id":"one","type":"n","key":"{key}","payload":{id}}}"#
            );
            world.publish_event(body, message(&id.to_string())).await;
        }
        assert_eq!(output(&world, "keyed", "one").await, r#"[2,1,"one"]"#);
    }

    async fn w40_events_of_producers_are_taken_in_order_and_refused_with_a_record(setup) {
        let world = setup.serve(reader(25)).await;
        // The first come before their instance: it is waited for.
        for number in 0..25u64 {
            if number == 3 {
                world.begin("reader", "one", &()).await;
            }
            let body = format!(r#"{{"workflow":"reader","id":"one","type":"n","payload":{number}}}"#);
            for _ in 0..2 {
                world.publish_event(body.clone(), message(&format!("m-{number}"))).await;
            }
        }
        assert_eq!(output(&world, "reader", "one").await, numbers(25));
        let late = r#"{"workflow":"reader","id":"one","type":"n","payload":0}"#;
        world.publish_event(late, message("late")).await;
        world.publish_event(r#"{"workflow":"reader","id":"nobody","type":"n"}"#, message("lost")).await;
        world.publish_event(r#"{"workflow":"reader","id":"one","type":""}"#, message("bad")).await;
        world.publish_event(late, message("")).await;
        let codes = async || {
            let rejected = world.store().rejected(&Namespace::default(), 10).await.expect("the store answers");
            let mut codes: Vec<_> = rejected.into_iter().map(|rejected| rejected.code).collect();
            codes.sort_unstable();
            codes
        };
        world.eventually("all four are recorded", async || codes().await.len() == 4).await;
        assert_eq!(codes().await, ["ended", "name", "no_identity", "not_found"]);
    }

    async fn p22_an_hour_of_messages_lost_delays_no_event_for_ever(setup) {
        let world = setup.serve(reader(6)).await;
        world.begin("reader", "one", &()).await;
        for number in 0..6u64 {
            assert_eq!(world.send("reader", "one", (&number.to_string(), "n"), &number).await, Answer::Done);
            world.purge_those(&["everstep.run.", "everstep.report.", "everstep.inbox."]);
            tokio::task::yield_now().await;
        }
        let end = tokio::time::timeout(Duration::from_mins(1), output(&world, "reader", "one")).await;
        assert_eq!(end.expect("it ends"), numbers(6));
    }
}
