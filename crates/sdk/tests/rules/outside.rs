//! The context answers only inside the poll of its own body (W30).

use std::panic::{AssertUnwindSafe, catch_unwind};

use everstep::host::BodyState;
use everstep::{Error, Step, Workflow};

use crate::driver::{Driver, attempt, done, echo, refused, step_spec};

#[test]
fn w30_the_context_answers_nobody_before_the_first_poll() {
    let driver = Driver::new(|cx: Workflow| async move { cx.step("a", 1u64, echo).await });
    let cx = driver.host.workflow();
    let error = futures::executor::block_on(cx.step("a", 1u64, echo)).unwrap_err();
    refused(error.as_ref(), "step \"a\": the workflow context answers only inside");
    let error = futures::executor::block_on(cx.sleep("nap", "1s")).unwrap_err();
    refused(error.as_ref(), "sleep \"nap\"");
    let error = futures::executor::block_on(cx.remote::<u64>("a", 1u64).on("pool")).unwrap_err();
    refused(error.as_ref(), "step \"a\"");
    for draw in
        [|cx: &Workflow| _ = cx.now(), |cx: &Workflow| _ = cx.uuid(), |cx: &Workflow| _ = cx.random_bytes(1)]
    {
        assert!(catch_unwind(AssertUnwindSafe(|| draw(&cx))).is_err());
    }
    assert_eq!((cx.name(), cx.instance_id(), cx.namespace(), cx.run()), ("fulfil", "order-1", "default", 1));
    let (made, result) = driver.run();
    assert_eq!(made[0].call.count, 1, "a refused call takes no count");
    assert_eq!(result.unwrap().as_str(), "1");
}

#[test]
fn w30_no_other_thread_slips_in_during_the_poll() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let stranger = cx.clone();
        let error = std::thread::spawn(move || {
            futures::executor::block_on(stranger.step("a", 1u64, echo)).unwrap_err()
        })
        .join()
        .unwrap();
        Ok::<_, Error>(error.message().to_owned())
    });
    assert!(done::<String>(driver.poll()).contains("answers only inside"));
}

#[test]
fn w30_a_step_that_uses_the_context_fails_at_once() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let captured = cx.clone();
        cx.step("outer", 1u64, move |_step: Step, n: u64| {
            let cx = captured.clone();
            async move { cx.step("inner", n, echo).await }
        })
        .await
    });
    let made = driver.poll().made.remove(0);
    let failure = attempt(step_spec(&made), &made.call, 1, None).0.unwrap_err();
    refused(&failure, "step \"inner\"");
}

#[tokio::test]
async fn w30_a_begun_call_that_moves_to_a_task_fails_there() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut call = cx.step("a", 1u64, echo);
        assert!(futures::poll!(&mut call).is_pending());
        tokio::spawn(call).await.unwrap()
    });
    let told = std::sync::Arc::new(tokio::sync::Notify::new());
    let tell = told.clone();
    driver.host.on_foreign_wake(Box::new(move || tell.notify_one()));
    driver.poll();
    told.notified().await;
    match driver.poll().state {
        BodyState::Done(Err(failure)) => refused(&failure, "answers only inside"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn w30_one_body_polled_inside_another_keeps_its_own_context() {
    let mut inner = Driver::new(|cx: Workflow| async move { cx.step("inner", 1u64, echo).await });
    let mut outer = Driver::new(|cx: Workflow| async move {
        assert_eq!(inner.poll().made.len(), 1);
        let stranger = inner.host.workflow().step("stranger", 1u64, echo).await;
        assert!(stranger.is_err());
        cx.step("outer", 1u64, echo).await
    });
    let polled = outer.poll();
    assert_eq!(polled.made[0].call.name.as_str(), "outer");
}
