//! Events: waits that get them, time out, come one after the other, and what the status says meanwhile.

use everstep::{Either, Error, Workflow};
use everstep_conformance::{echo, noting, words};
use everstep_system_tests::Log;
use everstep_testkit::{
    Kit, KitError, Run, Status, TestKit,
    journal::{End, Fact},
};

/// Waits once for `go`, then a step.
fn waits(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("waits", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let got: u64 = cx.event("go").await?;
            cx.step("after", (), noting(&log, got)).await
        }
    })
}

async fn waiting(kit: &Kit, workflow: &str) -> Run {
    let run = kit.start_instance(workflow, &()).await.unwrap();
    run.reaches(Status::Waiting).await.unwrap();
    run
}

#[test]
fn b007_b103_an_event_reaches_the_wait_of_its_type_with_its_payload() {
    waits(&Log::new()).run(async |kit| {
        let run = waiting(&kit, "waits").await;
        run.send("stay", &1).await.unwrap();
        run.send("go", &2).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 2);
        let journal = run.journal().await.unwrap();
        let delivered = journal.iter().find_map(|entry| match &entry.fact {
            Fact::Delivered(delivered) => Some(delivered),
            _ => None,
        });
        assert_eq!(delivered.unwrap().kind.as_str(), "go");
    });
}

/// The engine of another system says `running` here. Ours says what it waits for.
#[test]
fn b098_an_instance_that_waits_for_an_event_says_so() {
    waits(&Log::new()).time_by_hand().run(async |kit| {
        let run = waiting(&kit, "waits").await;
        let view = run.view().await.unwrap();
        assert_eq!(view.status, Status::Waiting);
        let wait = &view.waiting[0];
        assert_eq!(wait.call.to_string(), "event \"go\" #1");
        assert_eq!(wait.awaited.as_ref().unwrap().types[0].as_str(), "go");
        assert_eq!(
            wait.due_at.unwrap().since(wait.since).as_u64(),
            86_400_000,
            "a day unless the code says otherwise"
        );
    });
}

#[test]
fn b009_three_waits_get_one_event_time_out_and_get_another() {
    let kit = TestKit::new().workflow_fn("three", |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for _ in 0..3 {
            match cx.event::<u64>("n").timeout("1 min").await {
                Ok(number) => got.push(Some(number)),
                Err(error) if error.is_timed_out() => got.push(None),
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    });
    kit.time_by_hand().run(async |kit| {
        let run = waiting(&kit, "three").await;
        run.send("n", &1).await.unwrap();
        kit.advance("61s").await.unwrap();
        // The second has timed out a second ago, and takes nothing more.
        run.send("n", &3).await.unwrap();
        assert_eq!(run.result::<Vec<Option<u64>>>().await.unwrap(), [Some(1), None, Some(3)]);
    });
}

#[test]
fn b104_two_types_one_after_the_other_whatever_order_they_come_in() {
    let kit = TestKit::new().workflow_fn("two", |cx: Workflow, (): ()| async move {
        let first: String = cx.event("first").await?;
        let second: String = cx.event("second").await?;
        Ok::<_, Error>((first, second))
    });
    kit.run(async |kit| {
        for order in [["first", "second"], ["second", "first"]] {
            let run = waiting(&kit, "two").await;
            for kind in order {
                run.send(kind, kind).await.unwrap();
            }
            assert_eq!(
                run.result::<(String, String)>().await.unwrap(),
                ("first".to_owned(), "second".to_owned())
            );
        }
    });
}

#[test]
fn b105_terminated_while_it_waits_nothing_follows() {
    let log = Log::new();
    waits(&log).time_by_hand().run(async move |kit| {
        let run = waiting(&kit, "waits").await;
        run.terminate("enough").await.unwrap();
        assert!(
            run.send("go", &1).await.unwrap_err().to_string().contains("Terminated"),
            "an event is too late"
        );
        kit.advance("2 days").await.unwrap();
        assert!(log.lines().is_empty());
        let journal = run.journal().await.unwrap();
        assert_eq!(words(&journal), ["started", "opened", "ended"]);
        let last = &journal.last().unwrap().fact;
        assert!(matches!(last, Fact::Ended(End::Terminated { .. })), "{last:?}");
    });
}

#[test]
fn b145_a_wait_that_times_out_uncaught_ends_the_instance_with_that_error() {
    waits(&Log::new()).run(async |kit| {
        let run = kit.start_instance("waits", &()).await.unwrap();
        let error = run.error().await.unwrap();
        assert!(error.is_timed_out() && error.name() == "EventTimedOut", "{error}");
        assert!(error.message().contains("go"), "it names the type: {error}");
    });
}

/// By events to one instance. Addresses of their own (hooks) are not there yet.
#[test]
fn t13_three_payloads_are_collected_in_order_with_what_came_along() {
    let kit = TestKit::new().workflow_fn("collects", |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        for _ in 0..3 {
            let event = cx.event::<String>("payload").whole().await?;
            got.push((event.payload, event.kind, event.id));
        }
        Ok::<_, Error>(got)
    });
    kit.run(async |kit| {
        let run = waiting(&kit, "collects").await;
        for payload in ["one", "two", "three"] {
            run.send("payload", payload).await.unwrap();
        }
        let got = run.result::<Vec<(String, String, String)>>().await.unwrap();
        assert_eq!(
            got.iter().map(|(payload, ..)| payload.as_str()).collect::<Vec<_>>(),
            ["one", "two", "three"]
        );
        assert!(got.iter().all(|(_, kind, id)| kind == "payload" && !id.is_empty()), "{got:?}");
    });
}

/// A race between the next event and a sleep that stays open: no event is lost to the loser.
#[test]
fn t17_a_loop_of_events_beside_an_open_sleep_gets_them_all() {
    let kit = TestKit::new().workflow_fn("loops", |cx: Workflow, (): ()| async move {
        let mut got = Vec::new();
        let mut nap = Box::pin(cx.sleep("until the end", "1 hour"));
        loop {
            match cx.either(cx.event::<u64>("n").timeout("1 day"), nap.as_mut()).await {
                Either::First(number) => got.push(number?),
                Either::Second(slept) => {
                    slept?;
                    return Ok::<_, Error>(got);
                }
            }
            let seen = got.len();
            cx.step("seen", seen, echo::<usize>).await?;
        }
    });
    kit.run(async |kit| {
        let run = waiting(&kit, "loops").await;
        for number in 0..12 {
            run.send("n", &number).await.unwrap();
            if number % 5 == 2 {
                kit.crash_worker();
            }
        }
        assert_eq!(run.result::<Vec<u64>>().await.unwrap(), (0..12).collect::<Vec<_>>());
    });
}

#[test]
fn b126_what_does_not_exist_cannot_be_asked_or_told_anything() {
    waits(&Log::new()).run(async |kit| {
        let run = kit.instance("waits", "nobody").unwrap();
        let missing = |error: KitError| error.to_string().contains("there is no instance waits/nobody");
        assert!(missing(run.status().await.unwrap_err()));
        assert!(missing(run.journal().await.unwrap_err()));
        assert!(missing(run.send("go", &1).await.unwrap_err()));
        for refused in [
            run.pause().await,
            run.resume().await,
            run.terminate("x").await,
            run.restart().await,
            run.delete().await,
        ] {
            assert!(refused.unwrap_err().to_string().contains("NotFound"));
        }
    });
}
