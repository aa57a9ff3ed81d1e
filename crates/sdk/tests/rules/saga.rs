//! Compensations as the host sees them (rules P38, P39): what runs, in which order, with what, and when nothing does. Not here: that
//! they are durable, and what operations do; see the engine's rules and those of the test kit.

use everstep::host::{BodyState, Made, Polled, Spec};
use everstep::{Compensation, Error, Retry, Step, StepOutcome, Undo, Workflow};
use everstep_protocol::journal::UndoneEnd;
use everstep_protocol::{Failure, FailureKind, Payload};
use serde_json::{Value, json};

use crate::driver::Driver;

async fn work(_step: Step, n: u32) -> Result<u32, Error> {
    Ok(n)
}

async fn undo(_step: Step, undo: Undo<u32, u32>) -> Result<u32, Error> {
    match undo.outcome {
        StepOutcome::Completed(output) => Ok(output),
        StepOutcome::Failed(_) | StepOutcome::Unknown => Ok(0),
    }
}

fn calls(made: &[Made]) -> Vec<String> {
    made.iter().map(|made| made.call.to_string()).collect()
}

fn input(made: &Made) -> Value {
    let Spec::Step(spec) = &made.spec else { panic!("{made:?}") };
    spec.input.decode().unwrap()
}

fn number(polled: &Polled) -> u64 {
    polled.made[0].number
}

fn failed(polled: &Polled) -> &Failure {
    let BodyState::Done(Err(failure)) = &polled.state else { panic!("{polled:?}") };
    failure
}

/// Runs what is asked for until the body ends, each with success; gives the calls.
fn to_the_end(driver: &mut Driver, mut polled: Polled) -> (Vec<String>, Vec<Value>, Failure) {
    let (mut all, mut inputs) = (Vec::new(), Vec::new());
    while !matches!(polled.state, BodyState::Done(_)) {
        assert_eq!(polled.made.len(), 1, "one after the other: {:?}", calls(&polled.made));
        all.extend(calls(&polled.made));
        if matches!(polled.made[0].spec, Spec::Step(_)) {
            inputs.push(input(&polled.made[0]));
        }
        polled = driver.feed(number(&polled), ());
    }
    (all, inputs, failed(&polled).clone())
}

#[test]
fn p38_compensations_run_in_reverse_order_of_call_with_input_and_outcome() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate(undo).await?;
        let failed: Result<u32, Error> = cx.step("b", 2, work).compensate(undo).await;
        assert!(failed.is_err());
        cx.step("plain", 9, work).await?;
        let (a, c) =
            tokio::join!(cx.step("a", 3, work).compensate(undo), cx.step("c", 4, work).compensate(undo));
        a.and(c)?;
        Err::<(), _>(Error::failed("enough"))
    });
    driver.poll();
    driver.feed(0, 10);
    driver.fail(1, Failure::new(FailureKind::Error, "no b"));
    driver.feed(2, 90);
    driver.feed(4, 40);
    let polled = driver.feed(3, 30);
    assert_eq!(calls(&polled.made), ["rollback \"rollback\" #1"]);
    let Spec::Rollback { failure: Some(failure), steps: 4 } = &polled.made[0].spec else {
        panic!("{polled:?}")
    };
    assert_eq!(failure.message, "enough");
    let (all, inputs, failure) = to_the_end(&mut driver, polled);
    assert_eq!(
        all[1..],
        ["compensation \"c\" #1", "compensation \"a\" #2", "compensation \"b\" #1", "compensation \"a\" #1"]
    );
    assert_eq!((&inputs[0]["input"], &inputs[0]["outcome"]), (&json!(4), &json!({"completed": 40})));
    assert_eq!(inputs[2]["outcome"]["failed"]["message"], "no b");
    assert_eq!(failure.message, "enough", "the workflow ends with its own error");
    assert_eq!(driver.host.undone().unwrap().len(), 4);
}

#[test]
fn p38_a_step_under_way_is_compensated_and_one_that_never_began_is_not() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let slow = cx.step("slow", 1, work).compensate(undo);
        let made = cx.step("never awaited", 2, work).compensate(undo);
        let result = tokio::try_join!(slow, cx.step("fails", 3, work));
        let late = cx.step("late", 4, work).compensate(undo);
        futures::pin_mut!(late);
        // Begun and dropped without having seen anything: nothing of it has run.
        assert!(futures::poll!(&mut late).is_pending());
        drop(made);
        result.map(|_| ())
    });
    driver.poll();
    let polled = driver.fail(2, Failure::new(FailureKind::Error, "no"));
    assert_eq!(polled.dropped, [0, 3]);
    let begun: Vec<&Made> = polled.made.iter().filter(|made| made.number != 3).collect();
    assert_eq!(begun[0].call.to_string(), "rollback \"rollback\" #1");
    let polled = driver.feed(begun[0].number, ());
    assert_eq!(calls(&polled.made), ["compensation \"slow\" #1"]);
    assert_eq!(input(&polled.made[0])["outcome"], "unknown");
    assert!(matches!(driver.feed(number(&polled), ()).state, BodyState::Done(Err(_))));
}

#[test]
fn p38_a_workflow_that_goes_on_takes_nothing_back() {
    let driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate(undo).await?;
        let failed: Result<u32, Error> = cx
            .step("b", 2, |_: Step, _: u32| async { Err::<u32, _>(Error::permanent("no")) })
            .compensate(undo)
            .await;
        Ok::<_, Error>(failed.is_err())
    });
    let (made, result) = driver.run();
    assert_eq!((calls(&made).len(), result.unwrap().decode::<bool>().unwrap()), (2, true));
}

#[test]
fn p38_an_output_without_a_json_form_fails_the_workflow_and_is_taken_back() {
    let driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate(undo).await?;
        Ok::<_, Error>(f64::NAN)
    });
    let (made, result) = driver.run();
    assert_eq!(calls(&made)[1..], ["rollback \"rollback\" #1", "compensation \"a\" #1"]);
    assert_eq!(result.unwrap_err().kind, FailureKind::Unserialisable);
}

fn cancelled() -> Failure {
    Failure::new(FailureKind::Cancelled, "the instance was cancelled")
}

#[test]
fn p38_a_cancel_takes_back_only_what_it_is_asked_to() {
    for rollback in [false, true] {
        let mut driver = Driver::new(|cx: Workflow| async move {
            cx.step("a", 1, work).compensate(undo).await?;
            cx.step("open", 2, work).compensate(undo).await?;
            Ok::<_, Error>(())
        });
        driver.poll();
        driver.feed(0, 10);
        driver.host.cancel();
        if rollback {
            driver.host.roll_back_on_cancel();
        }
        let polled = driver.fail(1, cancelled());
        if rollback {
            let (all, inputs, _) = to_the_end(&mut driver, polled);
            assert_eq!(all[1..], ["compensation \"open\" #1", "compensation \"a\" #1"]);
            assert_eq!(inputs[0]["outcome"], "unknown", "it was under way");
        } else {
            assert_eq!((polled.made.len(), failed(&polled).kind), (0, FailureKind::Cancelled));
        }
    }
}

#[test]
fn p38_an_error_of_its_own_after_a_cancel_is_a_failure_that_is_taken_back() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate(undo).await?;
        cx.on_cancel(async { cx.sleep("s", "1 h").await }, || async {
            Err::<(), _>(Error::failed("clean-up"))
        })
        .await
    });
    driver.poll();
    driver.feed(0, 10);
    driver.host.cancel();
    let polled = driver.fail(1, cancelled());
    let (all, _, failure) = to_the_end(&mut driver, polled);
    assert_eq!((all.len(), failure.message.as_str()), (2, "clean-up"));
}

#[test]
fn p38_a_rollback_throws_the_body_away_where_it_stands() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate(undo).await?;
        cx.sleep("s", "1 h").await?;
        Ok::<_, Error>(())
    });
    driver.poll();
    driver.feed(0, 10);
    driver.host.interrupt();
    driver.seen += 1;
    let polled = driver.poll();
    assert_eq!(polled.dropped, [1], "the sleep");
    assert!(matches!(polled.made[0].spec, Spec::Rollback { failure: None, steps: 1 }));
    let (all, _, _) = to_the_end(&mut driver, polled);
    assert_eq!(all[1..], ["compensation \"a\" #1"]);
    // With nothing to take back it just ends.
    let mut driver = Driver::new(|cx: Workflow| async move { cx.sleep("s", "1 h").await });
    driver.poll();
    driver.host.interrupt();
    assert!(matches!(driver.poll().state, BodyState::Done(Err(_))));
    assert_eq!(driver.host.undone(), None);
}

#[test]
fn p39_a_compensation_that_fails_does_not_stop_the_others_unless_it_says_so() {
    for stop in [false, true] {
        let mut driver = Driver::new(move |cx: Workflow| async move {
            let undo_b = Compensation::new(undo).retry(Retry::none());
            let undo_b = if stop { undo_b.or_stop() } else { undo_b };
            cx.step("a", 1, work).compensate(undo).await?;
            cx.step("b", 2, work).compensate_with(undo_b).await?;
            Err::<(), _>(Error::failed("enough"))
        });
        driver.poll();
        driver.feed(0, 10);
        driver.feed(1, 20);
        let polled = driver.feed(2, ());
        assert_eq!(calls(&polled.made), ["compensation \"b\" #1"]);
        let Spec::Step(spec) = &polled.made[0].spec else { panic!() };
        assert_eq!(spec.policy.limit, everstep::Limit::Times(0), "a policy of its own");
        let polled = driver.fail(number(&polled), Failure::new(FailureKind::Error, "jammed"));
        let polled = if stop { polled } else { driver.feed(number(&polled), ()) };
        assert_eq!(failed(&polled).message, "enough");
        let ends: Vec<UndoneEnd> =
            driver.host.undone().unwrap().into_iter().map(|undone| undone.end).collect();
        assert!(matches!(&ends[0], UndoneEnd::Failed(failure) if failure.message == "jammed"));
        assert_eq!(ends[1], if stop { UndoneEnd::Skipped } else { UndoneEnd::Done });
    }
}

#[test]
fn p38_a_compensation_with_a_bad_policy_fails_the_call() {
    let failure = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, work).compensate_with(Compensation::new(undo).timeout("soon")).await
    })
    .failure();
    assert!(failure.message.contains("its compensation") && failure.message.contains("soon"), "{failure}");
}

#[test]
fn p44_no_message_quotes_a_sensitive_output() {
    let mut driver =
        Driver::new(|cx: Workflow| async move { cx.step("a", 1, work).compensate(undo).sensitive().await });
    let polled = driver.poll();
    assert!(polled.made[0].spec.marks().sensitive && polled.made[0].spec.marks().compensated);
    let BodyState::Misfit(misfit) = driver.feed(0, "hunter2").state else { panic!() };
    assert!(!misfit.reason.contains("hunter2"), "{}", misfit.reason);
    // Nor does the compensation that cannot read it.
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("a", 1, |_: Step, _: u32| async { Ok::<_, Error>("hunter2".to_owned()) })
            .compensate(|_: Step, _: Undo<String, String>| async { Ok::<_, Error>(()) })
            .sensitive()
            .await?;
        Err::<(), _>(Error::failed("enough"))
    });
    driver.poll();
    driver.feed(0, "hunter2");
    let polled = driver.feed(1, ());
    let Spec::Step(spec) = &polled.made[0].spec else { panic!() };
    let failure = crate::driver::attempt(spec, &polled.made[0].call, 1, None).0.unwrap_err();
    assert!(failure.message.contains("sensitive") && !failure.message.contains("hunter2"), "{failure}");
}

#[test]
fn p38_an_undo_reads_every_outcome() {
    let read = |outcome: Value| -> Undo<u32, ()> {
        Payload::encode(&json!({"input": 1, "outcome": outcome})).unwrap().decode().unwrap()
    };
    assert!(read(json!({"completed": null})).output().is_some(), "a unit is an output");
    assert!(matches!(read(json!("unknown")).outcome, StepOutcome::Unknown));
    let failure = Failure::new(FailureKind::TimedOut, "late");
    let StepOutcome::Failed(error) = read(json!({"failed": failure})).outcome else { panic!() };
    assert!(error.is_timed_out());
}

thread_local! {
    /// The context of the test's body, for code that has no other way to it.
    static CONTEXT: std::cell::RefCell<Option<Workflow>> = const { std::cell::RefCell::new(None) };
}

/// Asks the context whenever it is read, written or dropped.
#[derive(Debug)]
struct Nosy;

impl Nosy {
    fn ask() {
        let _asked = CONTEXT.with_borrow(|cx| cx.as_ref().map(Workflow::is_cancelled));
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        Self::ask();
    }
}

impl serde::Serialize for Nosy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::ask();
        serializer.serialize_unit()
    }
}

impl<'de> serde::Deserialize<'de> for Nosy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::ask();
        <() as serde::Deserialize>::deserialize(deserializer).map(|()| Self)
    }
}

/// What is the user's runs without the lock of the body's state: it may ask the context, and a panic there breaks nothing else.
#[test]
fn p38_code_of_the_user_runs_outside_the_lock() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        CONTEXT.set(Some(cx.clone()));
        cx.publish(&Nosy)?;
        let log_in = || cx.step("log in", (), |_: Step, (): ()| async { Ok::<_, Error>(Nosy) });
        let nosy = Nosy;
        let undo = move |_: Step, _: Undo<(), Nosy>| {
            let _held = &nosy;
            async { Ok::<_, Error>(()) }
        };
        // Begun and dropped at once: its compensation is not registered any more.
        let mut dropped = log_in().compensate(undo);
        assert!(futures::poll!(&mut dropped).is_pending());
        drop(dropped);
        let undo = |_: Step, _: Undo<(), Nosy>| async { Ok::<_, Error>(()) };
        // A sensitive output is read when the compensation is made.
        log_in().sensitive().compensate(undo).await?;
        Err::<(), _>(Error::failed("enough"))
    });
    driver.poll();
    let polled = driver.feed(1, ());
    let (all, _, failure) = to_the_end(&mut driver, polled);
    assert_eq!(
        (all.last().unwrap().as_str(), failure.message.as_str()),
        ("compensation \"log in\" #2", "enough")
    );
    CONTEXT.set(None);
}

/// The closure of a compensation is dropped with the body, under the same guard.
#[test]
fn p38_a_compensation_that_panics_when_it_is_dropped_stays_with_its_body() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("boom");
        }
    }
    let mut driver = Driver::new(|cx: Workflow| async move {
        let bomb = Bomb;
        cx.step("a", 1, work)
            .compensate(move |_: Step, _: Undo<u32, u32>| {
                let _held = &bomb;
                async { Ok::<_, Error>(()) }
            })
            .await?;
        cx.sleep("nap", "1 h").await
    });
    driver.poll();
    driver.feed(0, 1);
    let Driver { host, body, .. } = driver;
    host.discard(body);
}
