//! Errors: from everything, to the record and back unchanged (P6, P12, P13).

use everstep::{Error, FailureKind, Millis, Step, Workflow};
use everstep_protocol::Failure;

use crate::driver::{Driver, attempt, echo, step_spec};

#[derive(Debug, thiserror::Error)]
#[error("cannot pay")]
struct PayError<T: std::fmt::Debug + 'static>(#[source] Cause, T);

#[derive(Debug, thiserror::Error)]
#[error("no line: {0}")]
struct Cause(#[source] std::io::Error);

#[test]
fn p13_any_error_converts_with_its_name_and_its_sources() {
    fn pay() -> Result<(), Error> {
        Err(PayError(Cause(std::io::Error::other("unplugged")), vec![1u8]))?
    }
    let error = pay().unwrap_err();
    assert_eq!(error.name(), "PayError");
    assert_eq!(error.message(), "cannot pay: no line: unplugged");
    assert_eq!(error.kind(), FailureKind::Error);
    assert!(!error.is_permanent());
    assert_eq!(error.to_string(), "PayError: cannot pay: no line: unplugged");
}

#[test]
fn p13_name_message_and_data_reach_the_record_unchanged() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        cx.step("pay", 1u64, async |_step: Step, n: u64| {
            Err::<u64, _>(Error::permanent("").named("Card Declined").with_data((n, "no")))
        })
        .await
    });
    let made = driver.poll().made.remove(0);
    let failure = attempt(step_spec(&made), &made.call, 1, None).0.unwrap_err();
    assert!(failure.permanent);
    assert_eq!((failure.name.as_str(), failure.message.as_str()), ("Card Declined", ""));
    match driver.fail(0, failure.clone()).state {
        everstep::host::BodyState::Done(Err(ended)) => assert_eq!(ended, failure),
        other => panic!("{other:?}"),
    }
    let error = Error::from_failure(failure);
    assert_eq!(error.data::<(u64, String)>().unwrap(), (1, "no".to_owned()));
    assert_eq!(error.data::<bool>(), None);
    assert_eq!(error.to_string(), "Card Declined");
}

#[test]
fn p06_a_recorded_failure_is_thrown_again_and_can_be_caught() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let timed_out = cx.step("a", 1u64, echo).await.unwrap_err();
        let lost = cx.step("a", 1u64, echo).await.unwrap_err();
        assert!(timed_out.is_timed_out() && !timed_out.is_worker_lost());
        assert!(lost.is_worker_lost() && !lost.is_timed_out());
        Ok::<_, Error>(())
    });
    driver.poll();
    driver.fail(0, Failure::new(FailureKind::TimedOut, "after 10m"));
    crate::driver::done::<()>(driver.fail(1, Failure::new(FailureKind::WorkerLost, "session ended")));
}

#[test]
fn p12_an_error_says_when_to_come_back() {
    let failure = Failure::from(Error::failed("busy").retry_after("10s"));
    assert_eq!(failure.retry_after, Some(Millis(10_000)));
    assert!(!failure.permanent);
    let failure = Failure::from(Error::failed("busy").named("Busy").retry_after("soon"));
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert!(failure.permanent);
    assert!(failure.message.contains("\"soon\"") && failure.message.contains("Busy: busy"), "{failure}");
}

#[test]
fn p03_data_without_a_json_form_is_refused_and_the_error_not_lost() {
    let failure = Failure::from(Error::failed("out of stock").with_data(f64::NAN));
    assert_eq!(failure.kind, FailureKind::Unserialisable);
    assert!(failure.message.contains("out of stock"), "{failure}");
}

#[test]
fn an_error_shows_what_a_person_needs() {
    let error = Error::permanent("no").named("Declined").retry_after("90s");
    assert_eq!(format!("{error:?}"), "Declined: no (permanent) (retry after 1m 30s)");
    assert_eq!(Error::failed(format_args!("why {}", 1)).message(), "why 1");
}
