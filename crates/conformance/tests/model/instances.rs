//! Instances: ids and names, what their records say, and how many leases and entries they need.

use everstep::{Error, Workflow};
use everstep_conformance::{attempts, echo, noting, words};
use everstep_system_tests::Log;
use everstep_testkit::{KitError, Status, TestKit, journal::Outcome};

/// Adds two numbers in a step.
fn adds() -> TestKit {
    TestKit::new().workflow_fn("adds", |cx: Workflow, (a, b): (i64, i64)| async move {
        let sum = cx
            .step("add", (a, b), async |_: everstep::Step, (a, b): (i64, i64)| Ok::<_, Error>(a + b))
            .await?;
        Ok::<_, Error>(sum)
    })
}

#[test]
fn b081_b099_t01_it_gets_its_input_and_completes_with_its_output() {
    adds().run(async |kit| {
        let run = kit.start_instance_as("adds", "sum-1", &(2, 40)).await.unwrap();
        assert_eq!(run.result::<i64>().await.unwrap(), 42);
        assert_eq!((run.id(), run.status().await.unwrap()), ("sum-1", Status::Complete));
    });
}

#[test]
fn b082_t23_name_id_and_time_are_the_same_in_every_replay() {
    let kit = TestKit::new().workflow_fn("who", |cx: Workflow, (): ()| async move {
        let told = |cx: &Workflow| {
            (cx.name().to_owned(), cx.instance_id().to_owned(), cx.namespace().to_owned(), cx.run())
        };
        let (first, began) = (told(&cx), cx.now());
        let asked = async |step: everstep::Step, _: std::time::SystemTime| {
            Ok::<_, Error>((
                step.workflow().to_owned(),
                step.instance_id().to_owned(),
                step.namespace().to_owned(),
            ))
        };
        let in_step: (String, String, String) = cx.step("asked", began, asked).await?;
        cx.sleep("a replay", "1 day").await?;
        let is_same = told(&cx) == first && in_step == (first.0.clone(), first.1.clone(), first.2.clone());
        Ok::<_, Error>((first.0, first.1, is_same))
    });
    kit.run(async |kit| {
        let run = kit.start_instance_as("who", "me", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.crash_worker();
        assert_eq!(
            run.result::<(String, String, bool)>().await.unwrap(),
            ("who".to_owned(), "me".to_owned(), true)
        );
    });
}

#[test]
fn b083_without_an_id_it_gets_one_of_its_own() {
    adds().run(async |kit| {
        let runs = [
            kit.start_instance("adds", &(1, 1)).await.unwrap(),
            kit.start_instance("adds", &(1, 1)).await.unwrap(),
        ];
        assert!(runs[0].id() != runs[1].id() && runs.iter().all(|run| run.id().len() == 36), "{runs:?}");
    });
}

#[test]
fn b084_b088_b111_ids_that_break_the_rule_are_refused_and_named() {
    adds().run(async |kit| {
        let long = "x".repeat(101);
        for id in ["", " ", ".", "..", "a b", "a\nb", "#1", "a/b", "é", "a?b", "a!", long.as_str()] {
            let error = kit.start_instance_as("adds", id, &(1, 1)).await.unwrap_err();
            assert!(matches!(error, KitError::NotStarted { .. }), "{id:?}: {error}");
            assert!(error.to_string().contains("1 to 100"), "{id:?}: {error}");
        }
        assert!(kit.instances().await.unwrap().is_empty(), "nothing was made of them");
        for id in ["x".repeat(100).as_str(), "A.b:c_d-9", "-", "..."] {
            kit.start_instance_as("adds", id, &(1, 1)).await.unwrap().result::<i64>().await.unwrap();
        }
    });
}

#[test]
fn b110_names_of_workflows_that_break_the_rule_are_refused_and_named() {
    adds().run(async |kit| {
        let long = "x".repeat(51);
        for name in ["", " ", "a\nb", "#adds", "Adds", "adds ", "é", long.as_str()] {
            let error = kit.start_instance(name, &(1, 1)).await.unwrap_err().to_string();
            assert!(error.contains("1 to 50"), "{name:?}: {error}");
        }
    });
}

#[test]
fn b140_two_workflows_of_one_name_are_refused_before_anything_runs() {
    let kit = adds().workflow_fn("adds", |_: Workflow, (): ()| async move { Ok::<_, Error>(()) });
    let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kit.run(async |_| {})));
    let panic = said.expect_err("it is refused");
    let text = everstep::host::panic_message(panic.as_ref());
    assert!(text.contains("adds"), "{text}");
}

#[test]
fn b100_an_errored_instance_has_its_message_and_no_output() {
    let kit = TestKit::new().workflow_fn("fails", |_: Workflow, (): ()| async move {
        Err::<(), _>(Error::failed("the warehouse burnt down").named("Fire"))
    });
    kit.run(async |kit| {
        let run = kit.start_instance("fails", &()).await.unwrap();
        let error = run.error().await.unwrap();
        assert_eq!((error.name(), error.message()), ("Fire", "the warehouse burnt down"));
        assert!(matches!(run.result::<()>().await.unwrap_err(), KitError::Errored { .. }), "no output");
    });
}

#[test]
fn b101_the_output_of_each_step_can_be_read() {
    let kit = TestKit::new().workflow_fn("three", |cx: Workflow, (): ()| async move {
        for number in 0..3_u32 {
            cx.step("n", number, echo::<u32>).await?;
        }
        Ok::<_, Error>(())
    });
    kit.run(async |kit| {
        let run = kit.start_instance("three", &()).await.unwrap();
        run.result::<()>().await.unwrap();
        let journal = run.journal().await.unwrap();
        let outputs: Vec<_> = attempts(&journal)
            .into_iter()
            .map(|(_, attempted)| match &attempted.outcome {
                Outcome::Succeeded(output) => output.decode::<u32>().unwrap(),
                Outcome::Failed { .. } | Outcome::Unknown { .. } => panic!("{attempted:?}"),
            })
            .collect();
        assert_eq!(outputs, [0, 1, 2]);
        assert_eq!(run.step::<u32>(("n", 3)).await.unwrap(), 2);
    });
}

#[test]
fn b131_one_id_in_two_workflows_is_two_instances() {
    let kit =
        adds().workflow_fn("other", |cx: Workflow, (): ()| async move { cx.step("s", (), echo::<()>).await });
    kit.run(async |kit| {
        let one = kit.start_instance_as("adds", "same", &(1, 1)).await.unwrap();
        let other = kit.start_instance_as("other", "same", &()).await.unwrap();
        assert_eq!(one.result::<i64>().await.unwrap(), 2);
        other.result::<()>().await.unwrap();
        one.delete().await.unwrap();
        assert_eq!(other.status().await.unwrap(), Status::Complete);
    });
}

/// Elsewhere a second create throws, or runs a second time. Here it is told which instance there is.
#[test]
fn b149_t31_the_same_start_again_finds_its_instance_and_another_input_is_a_conflict() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("once", move |cx: Workflow, number: u64| {
        let log = told.clone();
        async move { cx.step("s", (), noting(&log, number)).await }
    });
    kit.run(async move |kit| {
        let starts = (0..10).map(|_| kit.start_instance_as("once", "o-1", &7));
        for start in futures::future::join_all(starts).await {
            assert_eq!(start.unwrap().result::<u64>().await.unwrap(), 7);
        }
        let error = kit.start_instance_as("once", "o-1", &8).await.unwrap_err();
        assert!(
            matches!(&error, KitError::NotStarted { .. }) && error.to_string().contains("another input"),
            "{error}"
        );
        assert_eq!(log.lines(), ["s 1"]);
        let journal = kit.instances().await.unwrap()[0].journal().await.unwrap();
        assert_eq!(words(&journal), ["started", "attempted", "ended"]);
    });
}

#[test]
fn t36_the_entries_of_a_journal_are_numbered_without_a_gap() {
    let kit = TestKit::new().workflow_fn("busy", |cx: Workflow, (): ()| async move {
        let steps = (0..5_u32).map(|number| cx.step("s", number, echo::<u32>));
        let (steps, slept) = futures::join!(futures::future::try_join_all(steps), cx.sleep("nap", "1s"));
        slept.and(steps).map(|all| all.len())
    });
    kit.run(async |kit| {
        let first = kit.start_instance("busy", &()).await.unwrap();
        let second = kit.start_instance("busy", &()).await.unwrap();
        for run in [first, second] {
            run.result::<usize>().await.unwrap();
            let positions: Vec<_> =
                run.journal().await.unwrap().iter().map(|entry| entry.position.0).collect();
            assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>());
        }
    });
}

/// How often an instance is taken up: once for steps one after the other, however many; once more for each time that it slept.
#[test]
fn t34_steps_cost_one_lease_and_a_sleep_one_more() {
    let kit = TestKit::new().workflow_fn("shape", |cx: Workflow, shape: String| async move {
        for number in 0..10_u32 {
            cx.step("s", number, echo::<u32>).await?;
        }
        match shape.as_str() {
            "sleep" => {
                cx.sleep("nap", "1 hour").await?;
                cx.step("then", (), echo::<()>).await?;
            }
            "parallel" => {
                futures::future::try_join_all((0..3_u32).map(|number| cx.step("p", number, echo::<u32>)))
                    .await?;
            }
            _ => {}
        }
        Ok::<_, Error>(())
    });
    kit.run(async |kit| {
        for (shape, leases) in [("sequence", 1), ("sleep", 2), ("parallel", 1)] {
            let run = kit.start_instance("shape", shape).await.unwrap();
            run.result::<()>().await.unwrap();
            assert_eq!(run.view().await.unwrap().epoch.0, leases, "{shape}");
        }
    });
}

#[test]
fn b139_a_limit_of_nothing_is_refused_by_name_before_anything_runs() {
    for (name, set) in [
        ("limits.steps", (|limits| limits.steps = 0) as fn(&mut everstep_protocol::limits::Limits)),
        ("limits.journal_bytes", |limits| limits.journal_bytes = 0),
        ("limits.output_bytes", |limits| limits.output_bytes = 0),
    ] {
        let kit = adds().coordinator(|settings| set(&mut settings.limits));
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kit.run(async |_| {})));
        let text = everstep::host::panic_message(said.expect_err("it is refused").as_ref());
        assert!(text.contains(name), "{text}");
    }
}
