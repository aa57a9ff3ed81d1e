//! Mocks of steps: the journal, retries, policies and timeouts around them are real.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{
    Kit, KitError, Mock, TestKit,
    journal::{Attempted, Fact, Outcome},
};

use crate::never;

/// The attempts of a step in a journal: whether each succeeded, and after how many seconds the next was due.
async fn attempts(run: &everstep_testkit::Run) -> Vec<(bool, Option<u64>)> {
    let journal = run.journal().await.unwrap();
    let attempt = |fact: &Fact, at: everstep::Timestamp| match fact {
        Fact::Attempted(Attempted { outcome: Outcome::Succeeded(_), .. }) => Some((true, None)),
        Fact::Attempted(Attempted { outcome: Outcome::Failed { retry_at, .. }, .. }) => {
            Some((false, retry_at.map(|retry_at| retry_at.since(at).as_u64() / 1000)))
        }
        _ => None,
    };
    journal.iter().filter_map(|entry| attempt(&entry.fact, entry.at)).collect()
}

fn one_step() -> TestKit {
    TestKit::new().workflow_fn("one", |cx: Workflow, (): ()| async move {
        let step = cx.step("work", (), never::<serde_json::Value>);
        step.retry(Retry::exponential("10s").limit(5)).timeout("10 min").await
    })
}

#[test]
fn p42_a_step_is_mocked_also_with_false_zero_and_null() {
    one_step().run(async |kit| {
        for value in
            [serde_json::json!(false), serde_json::json!(0), serde_json::json!(null), serde_json::json!("")]
        {
            let id = format!("v-{}", value.to_string().replace('"', "e"));
            kit.mock(Mock::step("work").in_instance(&id).returns(&value)).unwrap();
            let run = kit.start_instance_as("one", &id, &()).await.unwrap();
            assert_eq!(run.result::<serde_json::Value>().await.unwrap(), value);
            assert_eq!(run.step::<serde_json::Value>("work").await.unwrap(), value);
            assert_eq!(attempts(&run).await, [(true, None)], "the mock is an attempt in the journal");
        }
    });
}

#[test]
fn p42_a_mock_fails_so_many_times_and_then_the_real_step_runs() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let kit = TestKit::new().workflow_fn("one", move |cx: Workflow, (): ()| {
        let counted = counted.clone();
        async move {
            let work = move |step: Step, (): ()| {
                counted.fetch_add(1, Ordering::Relaxed);
                async move { Ok::<_, Error>(step.attempt()) }
            };
            cx.step("work", (), work).retry(Retry::exponential("10s").limit(5)).await
        }
    });
    kit.run(async |kit| {
        kit.mock(Mock::step("work").fails(3, Error::failed("503").named("Busy"))).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 4, "the real step is the fourth attempt");
        let delays = [(false, Some(10)), (false, Some(20)), (false, Some(40)), (true, None)];
        assert_eq!(attempts(&run).await, delays, "the policy's own delays");
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn p42_a_mock_times_out_so_many_times_by_the_step_s_own_timeout() {
    one_step().run(async |kit| {
        kit.mock(Mock::step("work").times_out(2).fails(1, Error::failed("503")).returns(&7)).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        let began = kit.now();
        assert_eq!(run.result::<u32>().await.unwrap(), 7);
        let minutes = kit.now().since(began).as_u64() / 60_000;
        assert_eq!(minutes, 21, "two timeouts of 10 min, and 70 s of delays");
        let journal = run.journal().await.unwrap();
        let timed_out = journal.iter().filter(|entry| match &entry.fact {
            Fact::Attempted(Attempted { outcome: Outcome::Failed { failure, .. }, .. }) => {
                failure.kind == everstep::FailureKind::TimedOut
            }
            _ => false,
        });
        assert_eq!(timed_out.count(), 2);
    });
}

#[test]
fn p42_a_mock_that_always_fails_uses_up_the_retries_and_a_permanent_error_needs_one() {
    one_step().run(async |kit| {
        kit.mock(Mock::step("work").in_instance("always").always_fails(Error::failed("no").named("No")))
            .unwrap();
        kit.mock(Mock::step("work").in_instance("hangs").always_times_out()).unwrap();
        kit.mock(Mock::step("work").in_instance("once").always_fails(Error::permanent("never"))).unwrap();
        let mut seen = Vec::new();
        for id in ["always", "hangs", "once"] {
            let run = kit.start_instance_as("one", id, &()).await.unwrap();
            let error = run.error().await.unwrap();
            assert_eq!(run.step_error("work").await.unwrap(), error);
            seen.push((error.name().to_owned(), attempts(&run).await.len()));
        }
        assert_eq!(seen, [("No".to_owned(), 6), ("TimedOut".to_owned(), 6), ("Error".to_owned(), 1)]);
    });
}

#[test]
fn p42_of_several_mocks_the_one_that_says_more_holds() {
    let kit = TestKit::new().workflow_fn("two", |cx: Workflow, (): ()| async move {
        let first: u32 = cx.step("work", (), never).await?;
        let second: u32 = cx.step("work", (), never).await?;
        Ok::<_, Error>((first, second))
    });
    kit.run(async |kit: Kit| {
        kit.mock(Mock::step("work").returns(&1)).unwrap();
        kit.mock(Mock::step("work").nth(2).returns(&2)).unwrap();
        kit.mock(Mock::step("work").in_workflow("two").in_instance("own").returns(&3)).unwrap();
        let result = async |id: &str| {
            let run = kit.start_instance_as("two", id, &()).await.unwrap();
            run.result::<(u32, u32)>().await.unwrap()
        };
        assert_eq!(result("any").await, (1, 2));
        assert_eq!(result("own").await, (3, 3));
    });
}

#[test]
fn p42_a_mock_that_is_not_valid_is_refused_and_says_why() {
    TestKit::new().run(async |kit| {
        let refused = |mock: Mock| match kit.mock(mock) {
            Err(KitError::Invalid(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(refused(Mock::step("work")).contains("says nothing"));
        assert!(refused(Mock::step("").returns(&1)).contains("name"));
        assert!(refused(Mock::step("work").returns(&f64::NAN)).contains("NaN"));
        assert!(refused(Mock::step("work").returns(&1).always_times_out()).contains("twice"));
        kit.mock(Mock::step("work").returns(&1)).unwrap();
        assert!(refused(Mock::step("work").returns(&2)).contains("mocked twice"));
    });
}

#[test]
fn p42_a_remote_step_is_mocked_where_its_pool_would_run_it() {
    let kit = TestKit::new().pool("labels").workflow_fn("ship", |cx: Workflow, (): ()| async move {
        cx.remote::<String>("label", ()).on("labels").await
    });
    kit.run(async |kit| {
        kit.mock(Mock::step("label").fails(1, Error::failed("jam")).returns("label-1")).unwrap();
        let run = kit.start_instance("ship", &()).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "label-1");
    });
}

#[test]
fn p42_a_mock_of_another_type_is_what_a_record_of_another_type_is() {
    let kit = TestKit::new()
        .workflow_fn("one", |cx: Workflow, (): ()| async move { cx.step("work", (), never::<u32>).await });
    kit.run(async |kit| {
        kit.mock(Mock::step("work").returns("text")).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        let error = run.result::<u32>().await.unwrap_err().to_string();
        assert!(error.contains("journal_mismatch") && error.contains("work"), "{error}");
    });
}

#[test]
fn p42_every_instance_that_begins_is_acted_on_before_its_first_step() {
    let kit = TestKit::new()
        .workflow_fn("one", |cx: Workflow, (): ()| async move { cx.step("work", (), never::<String>).await });
    kit.run(async |kit| {
        kit.on_every_instance(|workflow, id| vec![Mock::step("work").returns(&format!("{workflow} {id}"))]);
        for id in ["a", "b", "c"] {
            let run = kit.start_instance_as("one", id, &()).await.unwrap();
            assert_eq!(run.result::<String>().await.unwrap(), format!("one {id}"));
        }
        let ids: Vec<_> = kit.instances().await.unwrap().iter().map(|run| run.id().to_owned()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    });
}
