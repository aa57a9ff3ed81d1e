//! What a step function gets (P1, P5).

use everstep::host::Payload;
use everstep::{Error, Limit, Retry, Step, Workflow};
use futures::FutureExt;

use crate::driver::{self, Driver, attempt, done, echo, key, step_spec};

async fn look(step: Step, (): ()) -> Result<serde_json::Value, Error> {
    step.policy().limit = Limit::Unlimited;
    Ok(serde_json::json!({
        "name": step.name(), "count": step.count(), "attempt": step.attempt(),
        "key": step.idempotency_key(), "limit": step.policy().limit,
        "instance": step.instance_id(), "workflow": step.workflow(), "namespace": step.namespace(),
        "cancelled": step.is_cancelled(), "last": step.last_progress::<u64>(),
    }))
}

#[test]
fn p01_a_recorded_output_is_returned_without_running_the_function() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("never", 1u64, |_step: Step, _n: u64| async { Err::<u64, _>(Error::failed("it ran")) }).await
    });
    driver.poll();
    assert_eq!(done::<u64>(driver.feed(0, 42u64)), 42);
}

#[test]
fn p05_a_step_sees_its_attempt() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("look", (), look).retry(Retry::none()).await?;
        cx.step("look", (), look).retry(Retry::none()).await
    });
    driver.poll();
    let made = driver.feed(0, ()).made.remove(0);
    let last = Payload::encode(&9u64).unwrap();
    let seen: serde_json::Value =
        attempt(step_spec(&made), &made.call, 3, Some(last)).0.unwrap().decode().unwrap();
    let key = key().to_string();
    assert_eq!(key.len(), 64);
    assert_eq!(
        seen,
        serde_json::json!({
            "name": "look", "count": 2, "attempt": 3, "key": key, "limit": {"times": 0},
            "instance": "order-1", "workflow": "fulfil", "namespace": "default",
            "cancelled": false, "last": 9,
        })
    );
}

#[test]
fn p05_heartbeats_carry_progress() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("import", 3u64, async |step: Step, rows: u64| {
            let done: u64 = step.last_progress().unwrap_or(0);
            for row in done..rows {
                step.heartbeat(row + 1)?;
            }
            assert_eq!(step.last_progress::<String>(), None, "what does not fit is none");
            step.heartbeat(f64::NAN)
        })
        .await
    });
    let made = driver.poll().made.remove(0);
    let last = Payload::encode(&1u64).unwrap();
    let (result, progress) = attempt(step_spec(&made), &made.call, 2, Some(last));
    assert_eq!(progress.iter().map(Payload::as_str).collect::<Vec<_>>(), ["2", "3"]);
    assert!(result.unwrap_err().message.contains("step \"import\""));
}

#[test]
fn p05_the_cancel_signal_reaches_every_clone() {
    let mut driver = Driver::new(|cx: Workflow| async move { cx.step("a", 1u64, echo).await });
    let made = driver.poll().made.remove(0);
    let (step, cancel, _) = driver::step(&made.call, step_spec(&made), 1, None);
    let clone = step.clone();
    let mut waiting = Box::pin(clone.cancelled());
    assert!(waiting.as_mut().now_or_never().is_none());
    cancel.cancel();
    cancel.cancel();
    drop(cancel);
    assert!(waiting.now_or_never().is_some());
    assert!(step.is_cancelled());
}

#[test]
fn p05_a_dropped_handle_cancels_nothing() {
    let mut driver = Driver::new(|cx: Workflow| async move { cx.step("a", 1u64, echo).await });
    let made = driver.poll().made.remove(0);
    let (step, cancel, _) = driver::step(&made.call, step_spec(&made), 1, None);
    drop(cancel);
    assert!(step.cancelled().now_or_never().is_none());
    assert!(!step.is_cancelled());
}

#[test]
fn p05_progress_of_4_kib_is_accepted_and_one_byte_more_is_refused() {
    for (bytes, refused) in [(4 << 10, false), ((4 << 10) + 1, true)] {
        let driver = Driver::new(move |cx: Workflow| async move {
            let step = cx.step("import", bytes, async |step: Step, bytes: usize| {
                step.heartbeat("x".repeat(bytes - 2))
            });
            Ok::<_, Error>(
                step.await.err().map(|error| (error.name().to_owned(), error.message().to_owned())),
            )
        });
        let error = driver.output::<Option<(String, String)>>();
        let text = "step \"import\": the progress is 4097 bytes of JSON, the limit is 4096".to_owned();
        assert_eq!(error, refused.then(|| ("TooLarge".to_owned(), text)));
    }
}
