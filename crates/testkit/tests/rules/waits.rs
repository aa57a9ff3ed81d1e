//! Waiting for results and statuses: it comes, or fails at once when it cannot come.

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{KitError, Mock, Status, TestKit};

use crate::nap;

fn steps() -> TestKit {
    TestKit::new().workflow_fn("nap", nap).workflow_fn("steps", |cx: Workflow, fails: bool| async move {
        let number: u32 = cx.step("first", (), async |_: Step, (): ()| Ok::<_, Error>(41)).await?;
        if fails {
            return Err(Error::permanent("as told").named("Told"));
        }
        cx.sleep("pause", "1 week").await?;
        cx.step("second", number, async |_: Step, n: u32| Ok::<_, Error>(n + 1)).await
    })
}

#[test]
fn p42_a_step_s_result_is_there_before_the_instance_ends() {
    steps().time_by_hand().run(async |kit| {
        let run = kit.start_instance("steps", &false).await.unwrap();
        assert_eq!(run.step::<u32>("first").await.unwrap(), 41);
        run.reaches(Status::Waiting).await.unwrap();
        assert_eq!(run.view().await.unwrap().waiting[0].call.to_string(), "sleep \"pause\" #1");
        kit.advance("1 week").await.unwrap();
        assert_eq!(run.step::<u32>(("second", 1)).await.unwrap(), 42);
        assert_eq!(run.result::<u32>().await.unwrap(), 42);
    });
}

#[test]
fn p42_a_wait_fails_at_once_when_another_end_makes_it_unreachable() {
    steps().run(async |kit| {
        let run = kit.start_instance("steps", &true).await.unwrap();
        let error = run.step::<u32>("second").await.unwrap_err();
        assert!(matches!(&error, KitError::Unreachable { status: Status::Errored, .. }), "{error}");
        assert!(
            error.to_string().contains("second") && error.to_string().contains("Told: as told"),
            "{error}"
        );
        let error = run.reaches(Status::Complete).await.unwrap_err();
        assert!(matches!(error, KitError::Unreachable { status: Status::Errored, .. }), "{error}");
        let error = run.result::<u32>().await.unwrap_err();
        assert_eq!(error.workflow_error().unwrap().name(), "Told");

        let run = kit.start_instance("steps", &false).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 42);
        let error = run.error().await.unwrap_err();
        assert!(matches!(error, KitError::Unreachable { status: Status::Complete, .. }), "{error}");
        let error = run.step_error("first").await.unwrap_err();
        assert!(error.to_string().contains("which succeeded"), "{error}");
        let error = run.result::<bool>().await.unwrap_err();
        assert!(matches!(error, KitError::Misfit { .. }), "{error}");
    });
}

#[test]
fn p42_a_terminated_instance_is_told_apart() {
    steps().time_by_hand().run(async |kit| {
        let run = kit.start_instance("nap", &3).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.terminate("enough").await.unwrap();
        assert!(matches!(run.result::<u64>().await.unwrap_err(), KitError::Terminated { .. }));
    });
}

#[test]
fn p42_what_nobody_can_run_is_a_standstill_that_says_so() {
    let kit = TestKit::new().workflow_fn("ship", |cx: Workflow, (): ()| async move {
        cx.remote::<String>("label", ()).on("labels").await
    });
    kit.run(async |kit| {
        let error = kit.start_instance("unknown", &()).await.unwrap_err();
        assert!(error.to_string().contains("no such workflow"), "{error}");
        let run = kit.start_instance("ship", &()).await.unwrap();
        let error = run.result::<String>().await.unwrap_err().to_string();
        assert!(
            error.contains("nobody serves pool labels") && error.contains("step \"label\" #1"),
            "{error}"
        );
    });
}

#[test]
fn p42_a_start_with_another_input_is_refused() {
    steps().run(async |kit| {
        kit.start_instance_as("nap", "one", &1).await.unwrap();
        kit.start_instance_as("nap", "one", &1).await.unwrap();
        let error = kit.start_instance_as("nap", "one", &2).await.unwrap_err();
        assert!(matches!(error, KitError::NotStarted { .. }), "{error}");
    });
}

#[test]
fn p42_keys_draws_and_ids_are_the_same_in_every_run() {
    let drawn = |seed| {
        let kit = TestKit::new().workflow_fn("draw", |cx: Workflow, (): ()| async move {
            let key = cx.step("key", (), async |step: Step, (): ()| {
                Ok::<_, Error>(step.idempotency_key().to_owned())
            });
            Ok::<_, Error>((
                key.await?,
                cx.random::<u64>(),
                cx.uuid().to_string(),
                cx.instance_id().to_owned(),
            ))
        });
        kit.seed(seed).run(async |kit| {
            let run = kit.start_instance("draw", &()).await.unwrap();
            run.result::<(String, u64, String, String)>().await.unwrap()
        })
    };
    assert_eq!(drawn(0), drawn(0));
    assert_ne!(drawn(0), drawn(1));
}

#[test]
fn p42_many_parallel_steps_with_retries_all_come_to_their_end() {
    let kit = TestKit::new().workflow_fn("fan", |cx: Workflow, (): ()| async move {
        let step = |number: u32| {
            cx.step("part", number, |_: Step, number: u32| async move { Ok::<_, Error>(number) })
        };
        let parts = (0..100).map(|number| step(number).retry(Retry::constant("1 day")));
        Ok::<_, Error>(futures::future::try_join_all(parts).await?.len())
    });
    kit.run(async |kit| {
        kit.mock(Mock::step("part").fails(1, Error::failed("once"))).unwrap();
        let run = kit.start_instance("fan", &()).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 100);
    });
}

#[test]
fn p42_a_panic_of_the_test_is_the_panic_of_the_run() {
    let said = crate::panic_of(|| TestKit::new().run(async |_kit| panic!("the test's own words")));
    assert_eq!(said, "the test's own words");
}

#[test]
fn p42_events_are_sent_and_time_out() {
    let kit = TestKit::new().workflow_fn("asks", |cx: Workflow, (): ()| async move {
        let first = cx.event::<String>("approved").timeout("3 days").await?;
        let second = cx.event::<String>("approved").timeout("3 days").await;
        Ok::<_, Error>((first, second.is_err_and(|error| error.is_timed_out())))
    });
    kit.run(async |kit| {
        let run = kit.start_instance("asks", &()).await.unwrap();
        run.send("approved", "yes").await.unwrap();
        assert_eq!(run.result::<(String, bool)>().await.unwrap(), ("yes".to_owned(), true));
        let replayed = kit.replay(&run.export().await.unwrap()).unwrap();
        assert!(replayed.ended && replayed.entries > 5, "{replayed:?}");
    });
}

#[test]
fn p42_the_timeout_of_an_event_is_forced_without_moving_time() {
    let kit = TestKit::new().workflow_fn("asks", |cx: Workflow, (): ()| async move {
        let first = cx.event::<String>("approved").timeout("3 days").await;
        let second = cx.events::<String>(["approved", "rejected"]).timeout("3 days").await;
        let third = cx.event::<String>("approved").timeout("3 days").await?;
        Ok::<_, Error>((first.is_err_and(|error| error.is_timed_out()), second.is_err(), third))
    });
    kit.run(async |kit| {
        kit.mock(Mock::event("approved").times_out(1)).unwrap();
        kit.mock(Mock::event("approved | rejected").always_times_out()).unwrap();
        let began = kit.now();
        let run = kit.start_instance("asks", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        assert!(kit.now().since(began).as_u64() < 1_000, "no three days have passed");
        run.send("approved", "yes").await.unwrap();
        assert_eq!(run.result::<(bool, bool, String)>().await.unwrap(), (true, true, "yes".to_owned()));
        assert!(kit.replay(&run.export().await.unwrap()).unwrap().ended);
        let words = kit.mock(Mock::event("other").returns("yes")).unwrap_err().to_string();
        assert!(words.contains("a wait can only time out"), "{words}");
    });
}
