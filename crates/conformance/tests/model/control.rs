//! Handles, deletes and cancels: what an operator does that is neither pause, restart nor terminate.

use std::sync::{Arc, Mutex};

use everstep::{Error, Step, Workflow};
use everstep_conformance::{echo, noting, words};
use everstep_system_tests::Log;
use everstep_testkit::{Kit, KitError, Status, TestKit};

/// A step, a day's sleep, a step.
fn long(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("long", move |cx: Workflow, number: u64| {
        let log = log.clone();
        async move {
            cx.step("before", (), noting(&log, ())).await?;
            cx.sleep("day", "1 day").await?;
            cx.step("after", number, echo::<u64>).await
        }
    })
}

fn is_gone(error: &KitError) -> bool {
    error.to_string().contains("there is no instance")
}

#[test]
fn b086_b102_every_operation_works_through_a_handle_by_name() {
    long(&Log::new()).time_by_hand().run(async |kit| {
        kit.start_instance_as("long", "o-1", &7).await.unwrap();
        let handle = || kit.instance("long", "o-1").unwrap();
        handle().reaches(Status::Waiting).await.unwrap();
        handle().send("anything", &()).await.unwrap();
        handle().pause().await.unwrap();
        assert_eq!(handle().status().await.unwrap(), Status::Paused);
        handle().resume().await.unwrap();
        handle().restart().await.unwrap();
        handle().reaches(Status::Waiting).await.unwrap();
        handle().cancel("enough").await.unwrap();
        handle().reaches(Status::Cancelled).await.unwrap();
        handle().restart().await.unwrap();
        handle().terminate("enough").await.unwrap();
        assert_eq!(handle().status().await.unwrap(), Status::Terminated);
        handle().delete().await.unwrap();
        assert!(is_gone(&handle().status().await.unwrap_err()));
    });
}

#[test]
fn b087_b124_a_deleted_instance_is_gone_and_its_id_is_free_at_once() {
    let log = Log::new();
    long(&log).time_by_hand().run(async move |kit| {
        for number in 0..3 {
            // Another input each time: nothing is left to conflict with.
            let run = kit.start_instance_as("long", "o-1", &number).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            let open = run.delete().await.unwrap_err().to_string();
            assert!(open.contains("Waiting"), "an open one is not deleted unasked: {open}");
            run.delete_and_terminate().await.unwrap();
            assert!(is_gone(&run.status().await.unwrap_err()));
            assert!(is_gone(&run.journal().await.unwrap_err()));
            assert!(run.delete().await.unwrap_err().to_string().contains("NotFound"));
        }
        assert_eq!(log.count("before 1"), 3);
        kit.advance("2 days").await.unwrap();
        assert!(kit.instances().await.unwrap().is_empty(), "no timer brings one back");
    });
}

#[test]
fn b122_deletes_at_once_leave_nothing_and_none_fails_otherwise_than_not_found() {
    long(&Log::new()).time_by_hand().run(async |kit| {
        let run = kit.start_instance_as("long", "o-1", &1).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        let answers = futures::future::join_all((0..8).map(|_| run.delete_and_terminate())).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
        for refused in answers.into_iter().filter_map(Result::err) {
            assert!(refused.to_string().contains("NotFound"), "{refused}");
        }
        assert!(is_gone(&run.status().await.unwrap_err()));
    });
}

/// A step that deletes its own instance through the API: nothing runs after it.
#[test]
fn b090_an_instance_that_deletes_itself_stops_there() {
    let log = Log::new();
    let told = log.clone();
    let handle: Arc<Mutex<Option<Kit>>> = Arc::default();
    let held = handle.clone();
    let kit = TestKit::new().workflow_fn("selfless", move |cx: Workflow, (): ()| {
        let (log, held) = (told.clone(), held.clone());
        async move {
            let deletes = move |step: Step, (): ()| {
                let kit = held.lock().unwrap().clone().unwrap();
                async move {
                    let own = kit.instance(step.workflow(), step.instance_id()).map_err(Error::failed)?;
                    own.delete_and_terminate().await.map_err(Error::failed)
                }
            };
            cx.step("delete", (), deletes).await?;
            cx.step("after", (), noting(&log, ())).await
        }
    });
    kit.time_by_hand().run(async move |kit| {
        *handle.lock().unwrap() = Some(kit.clone());
        kit.start_instance("selfless", &()).await.unwrap();
        kit.advance("1 hour").await.unwrap();
        assert!(kit.instances().await.unwrap().is_empty());
        assert!(log.lines().is_empty(), "{:?}", log.lines());
        handle.lock().unwrap().take();
    });
}

#[test]
fn t27_cancelled_while_it_sleeps_it_ends_as_cancelled_and_whoever_waits_is_told() {
    long(&Log::new()).run(async |kit| {
        let run = kit.start_instance("long", &1).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.cancel("changed my mind").await.unwrap();
        let error = run.result::<u64>().await.unwrap_err();
        assert!(matches!(error, KitError::Cancelled { .. }), "{error}");
        assert_eq!(run.status().await.unwrap(), Status::Cancelled);
        assert_eq!(
            words(&run.journal().await.unwrap()),
            ["started", "attempted", "opened", "cancelled", "ended"]
        );
    });
}
