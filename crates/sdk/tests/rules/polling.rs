//! What a poll reports: drops, the body's own wakes, panics (W29, W30, W34).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use everstep::host::{BodyState, Payload};
use everstep::{Error, Workflow};
use everstep_protocol::{Failure, FailureKind};

use crate::driver::{Driver, done, echo, is_pending, numbers};

#[test]
fn w29_the_loser_of_a_race_is_reported() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        tokio::select! {
            value = cx.step("fast", 1u64, echo) => value?,
            _ = cx.sleep("timeout", "1 min") => return Err(Error::failed("too slow")),
        };
        cx.step("next", 1u64, echo).await
    });
    assert_eq!(numbers(&driver.poll().made), [0, 1]);
    let polled = driver.feed(0, 1u64);
    assert_eq!(polled.dropped, [1]);
    assert_eq!(numbers(&polled.made), [2]);
    assert!(!driver.host.resolve(1, Ok(Payload::null())), "a dropped call is gone");
}

#[test]
fn w29_a_call_that_has_its_outcome_is_not_a_dropped_one() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut left = Box::pin(cx.step("left", 1u64, echo));
        assert!(futures::poll!(&mut left).is_pending());
        cx.step("right", 1u64, echo).await?;
        drop(left);
        cx.step("next", 1u64, echo).await
    });
    driver.poll();
    driver.feed(0, 1u64);
    assert!(!driver.host.resolve(0, Ok(Payload::null())), "one outcome is all a call gets");
    let polled = driver.feed(1, 1u64);
    assert!(polled.dropped.is_empty());
    assert_eq!(numbers(&polled.made), [2]);
}

#[test]
fn w29_what_the_worker_throws_away_the_body_did_not_drop() {
    let mut driver = Driver::new(|cx: Workflow| async move { cx.step("a", 1u64, echo).await });
    driver.poll();
    driver.body = Box::pin(async { Ok(everstep::host::Returned::Done(Payload::null())) });
    let polled = driver.poll();
    assert!(polled.dropped.is_empty());
    assert!(!driver.host.foreign_wake());
}

#[test]
fn w29_a_discarded_body_wakes_nobody_and_its_destructor_may_panic() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!std::hint::black_box(true), "bomb");
        }
    }
    let mut driver = Driver::new(|cx: Workflow| async move {
        let _bomb = Bomb;
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let keep = async {
            cx.sleep("for ever", "1 day").await?;
            drop(sender);
            Ok::<_, Error>(())
        };
        let (_, result) = futures::join!(receiver, keep);
        result
    });
    assert!(is_pending(&driver.poll()));
    let body = std::mem::replace(&mut driver.body, Box::pin(std::future::pending()));
    driver.host.discard(body);
    assert!(!driver.host.foreign_wake());
}

#[test]
fn w30_a_body_that_wakes_itself_is_polled_on() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let produce = async {
            for n in 0..100u64 {
                sender.send(n).unwrap();
                pending_once().await;
            }
            drop(sender);
        };
        let consume = async {
            let mut sum = 0;
            while let Some(n) = receiver.recv().await {
                sum += n;
            }
            sum
        };
        let (sum, ()) = futures::join!(consume, produce);
        cx.step("sum", sum, echo).await
    });
    let polled = driver.poll();
    assert_eq!(numbers(&polled.made), [0]);
    assert!(is_pending(&polled));
}

#[tokio::test]
async fn w30_tokio_s_budget_is_no_foreign_wake() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        (0..2_000u64).for_each(|n| sender.send(n).unwrap());
        drop(sender);
        let mut sum = 0;
        loop {
            tokio::select! {
                n = receiver.recv() => match n {
                    Some(n) => sum += n,
                    None => break,
                },
            }
        }
        cx.step("sum", sum, echo).await
    });
    let polled = driver.poll();
    assert!(is_pending(&polled), "{polled:?}");
    assert_eq!(done::<u64>(driver.feed(0, 3u64)), 3);
}

#[tokio::test]
async fn w30_a_timer_of_tokio_is_a_foreign_wake() {
    let mut driver = Driver::new(|_cx: Workflow| async move {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        Ok::<_, Error>(())
    });
    expect_foreign(&mut driver).await;
}

#[tokio::test]
async fn w30_a_spawned_task_is_a_foreign_wake() {
    let mut driver =
        Driver::new(|_cx: Workflow| async move { tokio::spawn(async {}).await.map_err(Error::from) });
    expect_foreign(&mut driver).await;
}

async fn expect_foreign(driver: &mut Driver) {
    let told = Arc::new(tokio::sync::Notify::new());
    let tell = told.clone();
    driver.host.on_foreign_wake(Box::new(move || tell.notify_one()));
    assert!(is_pending(&driver.poll()));
    assert!(!driver.host.foreign_wake());
    told.notified().await;
    assert!(driver.host.foreign_wake());
}

#[test]
fn w30_a_wake_by_another_thread_during_the_poll_is_foreign() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        std::future::poll_fn(|context| {
            let waker = context.waker().clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            std::task::Poll::Ready(())
        })
        .await;
        cx.step("a", 1u64, echo).await
    });
    let polled = driver.poll();
    assert!(matches!(polled.state, BodyState::Foreign), "{polled:?}");
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    driver.host.on_foreign_wake(Box::new(move || tell.store(true, Ordering::SeqCst)));
    assert!(told.load(Ordering::SeqCst), "who listens late is told at once");
}

#[test]
fn w30_a_body_that_has_ended_is_woken_by_nobody() {
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let mut driver = Driver::new(|_cx: Workflow| async move {
        let waker = std::future::poll_fn(|context| std::task::Poll::Ready(context.waker().clone())).await;
        *keep.lock().unwrap() = Some(waker);
        Ok::<_, Error>(1u64)
    });
    assert_eq!(done::<u64>(driver.poll()), 1);
    kept.lock().unwrap().take().unwrap().wake();
    assert!(!driver.host.foreign_wake());
}

#[test]
fn w30_a_body_that_never_becomes_still_is_reported() {
    let mut driver = Driver::new(|_cx: Workflow| async move {
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            std::task::Poll::<Result<(), Error>>::Pending
        })
        .await
    });
    assert!(matches!(driver.poll().state, BodyState::Spinning));
}

#[test]
fn w34_a_panic_of_the_body_is_caught_and_drops_nothing() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let side = cx.sleep("side", "1s");
        futures::pin_mut!(side);
        assert!(futures::poll!(&mut side).is_pending());
        let failed = cx.step("a", 1u64, echo).await;
        if let Err(error) = failed {
            panic!("cannot go on: {error}");
        }
        side.await
    });
    driver.poll();
    let polled = driver.fail(1, Failure::new(FailureKind::TimedOut, "after 10m"));
    assert!(polled.dropped.is_empty());
    match polled.state {
        BodyState::Panicked(message) => assert_eq!(message, "cannot go on: TimedOut: after 10m"),
        other => panic!("{other:?}"),
    }
}

/// Gives the others a turn, woken from inside the poll.
async fn pending_once() {
    let mut first = true;
    std::future::poll_fn(|context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await;
}
