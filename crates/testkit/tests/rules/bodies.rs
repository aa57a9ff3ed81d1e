//! Bodies that do what cannot be replayed: the test fails and names them, without asking.

use std::time::Duration;

use everstep::{Error, Step, Workflow};
use everstep_testkit::{KitError, Status, TestKit};

use crate::panic_of;

#[test]
fn w30_a_body_that_awaits_something_foreign_fails_the_test_and_is_named() {
    let kit = || {
        TestKit::new()
            .workflow_fn("timer", |_cx: Workflow, (): ()| async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, Error>(())
            })
            .workflow_fn("pending", |_cx: Workflow, (): ()| std::future::pending::<Result<(), Error>>())
            .workflow_fn("task", |_cx: Workflow, (): ()| async move {
                tokio::spawn(async { 1 }).await.map_err(Error::failed)
            })
    };
    for workflow in ["timer", "pending", "task"] {
        let said = kit().run(async move |kit| {
            let run = kit.start_instance_as(workflow, "one", &()).await.unwrap();
            run.result::<serde_json::Value>().await.unwrap_err().to_string()
        });
        assert!(said.contains("foreign_await") && said.contains(workflow), "{said}");
        // Nobody waited for it: it fails the test all the same.
        let said = panic_of(|| {
            kit().run(async move |kit| {
                kit.start_instance_as(workflow, "one", &()).await.unwrap();
                kit.advance("1 min").await.unwrap();
            });
        });
        assert!(said.contains("foreign_await") && said.contains(workflow), "{said}");
    }
}

#[test]
fn w30_a_parked_instance_that_the_test_expects_is_no_failure() {
    let kit = TestKit::new().workflow_fn("panics", |cx: Workflow, (): ()| async move {
        cx.step("fine", (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
        assert!(cx.now() < std::time::UNIX_EPOCH, "a broken invariant");
        Ok::<_, Error>(())
    });
    kit.run(async |kit| {
        let run = kit.start_instance("panics", &()).await.unwrap();
        run.reaches(Status::Attention).await.unwrap();
        let error = run.result::<()>().await.unwrap_err();
        assert!(matches!(error, KitError::Parked { .. }), "{error}");
        assert!(error.to_string().contains("a broken invariant"), "{error}");
    });
}

#[test]
fn w12_a_body_that_blocks_its_thread_fails_the_test_and_is_named() {
    let said = panic_of(|| {
        let kit = TestKit::new().poll_limit(Duration::from_millis(200));
        let kit = kit.workflow_fn("blocks", |_cx: Workflow, (): ()| async move {
            std::thread::park_timeout(Duration::from_secs(10));
            Ok::<_, Error>(())
        });
        kit.run(async |kit| {
            let run = kit.start_instance_as("blocks", "one", &()).await.unwrap();
            run.result::<()>().await.unwrap();
        });
    });
    assert!(said.contains("workflow blocks instance one blocks its thread"), "{said}");
}
