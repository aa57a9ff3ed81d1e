//! Conformance from the outside: tests that a user of the product could have written. Two targets:
//!
//! | target | what stands under it |
//! | --- | --- |
//! | `model` | the test kit: one thread, virtual time, a store in memory |
//! | `systems` | coordinators and workers as they are, killed and started again; on PostgreSQL and RabbitMQ where that matters |
//!
//! A test bears the numbers of `docs/conformance.md` that it proves: `b034_..` and `t46_..` are behaviours that the test suites of
//! other engines check, `o01_..` is trouble that their users met. `scripts/conformance.sh` holds the list and the tests together.
//! Here is only what the tests share: steps that are counted, and what is read out of a journal.

use std::future::{Ready, ready};

use everstep::{Error, Step};
use everstep_system_tests::Log;
use everstep_testkit::journal::{Attempted, Entry, Fact, Outcome};

/// A step that notes itself in a log as `name attempt`, and gives this value.
pub fn noting<T>(log: &Log, value: T) -> impl Fn(Step, ()) -> Ready<Result<T, Error>> + Send + Sync + use<T>
where
    T: Clone + Send + Sync + 'static,
{
    let log = log.clone();
    move |step, ()| {
        log.push(format!("{} {}", step.name(), step.attempt()));
        ready(Ok(value.clone()))
    }
}

/// A step that notes itself in a log as `name attempt`, and fails with this error.
pub fn failing<T>(
    log: &Log,
    error: Error,
) -> impl Fn(Step, ()) -> Ready<Result<T, Error>> + Send + Sync + use<T>
where
    T: Send + 'static,
{
    let log = log.clone();
    move |step, ()| {
        log.push(format!("{} {}", step.name(), step.attempt()));
        ready(Err(error.clone()))
    }
}

/// A step that gives what it is given.
#[allow(clippy::unused_async, reason = "it is given to `step`, which awaits it")]
pub async fn echo<T>(_: Step, value: T) -> Result<T, Error> {
    Ok(value)
}

/// The attempts that have ended, in order.
pub fn attempts(journal: &[Entry]) -> Vec<(&Entry, &Attempted)> {
    let attempted = journal.iter().filter_map(|entry| match &entry.fact {
        Fact::Attempted(attempted) => Some((entry, attempted)),
        _ => None,
    });
    attempted.collect()
}

/// The milliseconds from each failure to the retry that it was recorded with.
pub fn retry_delays(journal: &[Entry]) -> Vec<u64> {
    let retries = attempts(journal).into_iter().filter_map(|(entry, attempted)| match &attempted.outcome {
        Outcome::Failed { retry_at: Some(at), .. } => Some(at.since(entry.at).as_u64()),
        _ => None,
    });
    retries.collect()
}

/// What kinds of entries there are, in order.
pub fn words(journal: &[Entry]) -> Vec<&'static str> {
    journal.iter().map(|entry| entry.fact.word()).collect()
}
