//! From typed functions to what the host drives: payload in, payload out.

use std::sync::Arc;
use std::time::Instant;

use everstep_protocol::{Failure, FailureKind, Payload, payload::PayloadError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rollback::{after, until_interrupted};
use super::{Body, Returned, StepFn};
use crate::{Error, Outcome, Step, Workflow};

/// The body of one instance. The function is called inside the first poll, so that calls it makes before its first
/// await are calls of the body. An input that does not decode ends the instance with an invalid-input failure.
pub fn begin<In, Out, E, F, Fut>(name: &str, cx: Workflow, input: &Payload, function: F) -> Body
where
    In: DeserializeOwned,
    Out: Outcome<In>,
    E: Into<Error>,
    F: FnOnce(Workflow, In) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
{
    let subject = format!("workflow {name:?}");
    let input = input.clone();
    Box::pin(async move {
        let shared = cx.shared().clone();
        let future = function(cx, read_input(&subject, &input)?);
        let failed = match until_interrupted(&shared, future).await {
            Some(Ok(outcome)) => match outcome.returned() {
                Ok(Returned::Again(input)) if input.len() as u64 > shared.input_max() => {
                    Some(too_large(input.len() as u64, shared.input_max()))
                }
                Ok(returned) => return Ok(returned),
                Err(error) => Some(unserialisable(&subject, &error)),
            },
            Some(Err(error)) => Some(Failure::from(error.into())),
            None => None,
        };
        Err(after(&shared, failed).await)
    })
}

/// An input that no generation may begin with is an error of the body like any other (rules P4, P38).
fn too_large(bytes: u64, limit: u64) -> Failure {
    let message = format!("the input of the next generation is {bytes} bytes of JSON, the limit is {limit}");
    Failure::new(FailureKind::TooLarge, message)
}

/// One attempt of a step that looks before it calls (rule L6). Looking changes nothing, so what it fails with has no effect.
pub fn look_first(look: LookFn, run: StepFn) -> StepFn {
    Arc::new(move |step| {
        let (look, run) = (look.clone(), run.clone());
        Box::pin(async move {
            let began = Instant::now();
            let found = look(step.clone()).await.map_err(Failure::not_sent);
            step.looked(began.elapsed());
            match found?.filter(|_| !everstep_protocol::planted("looks_never")) {
                Some(found) => {
                    step.found();
                    Ok(found)
                }
                None => run(step).await,
            }
        })
    })
}

/// What looks for what an earlier attempt did.
pub type LookFn = Arc<
    dyn Fn(Step) -> std::pin::Pin<Box<dyn Future<Output = Result<Option<Payload>, Failure>> + Send>>
        + Send
        + Sync,
>;

/// A function of a pool that looks: `null` is "not found".
pub fn look_of(function: StepFn) -> LookFn {
    Arc::new(move |step| {
        let looking = function(step);
        Box::pin(async move {
            let found = looking.await?;
            Ok((found.as_str() != "null").then_some(found))
        })
    })
}

/// A typed function that looks, over and over.
pub(crate) fn look_fn<In, Out, E, F, Fut>(subject: String, input: Payload, function: Arc<F>) -> LookFn
where
    In: DeserializeOwned,
    Out: Serialize,
    E: Into<Error>,
    F: Fn(Step, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Out>, E>> + Send + 'static,
{
    let subject: Arc<str> = subject.into();
    Arc::new(move |step| {
        let (subject, input, function) = (subject.clone(), input.clone(), function.clone());
        Box::pin(async move {
            let future = function(step, read_input(&subject, &input)?);
            match future.await {
                Ok(None) => Ok(None),
                Ok(Some(found)) => write_output::<Out, E>(&subject, Ok(found)).map(Some),
                Err(error) => Err(Failure::from(error.into())),
            }
        })
    })
}

/// One attempt of a typed step function, over and over.
pub(crate) fn step_fn<In, Out, E, F, Fut>(subject: String, input: Payload, function: Arc<F>) -> StepFn
where
    In: DeserializeOwned,
    Out: Serialize,
    E: Into<Error>,
    F: Fn(Step, In) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Out, E>> + Send + 'static,
{
    let subject: Arc<str> = subject.into();
    Arc::new(move |step| {
        let (subject, input, function) = (subject.clone(), input.clone(), function.clone());
        Box::pin(async move {
            // Nothing of the function has run.
            let future = function(step, read_input(&subject, &input).map_err(Failure::not_sent)?);
            write_output(&subject, future.await)
        })
    })
}

fn read_input<In: DeserializeOwned>(subject: &str, input: &Payload) -> Result<In, Failure> {
    input
        .decode()
        .map_err(|error| Failure::new(FailureKind::Invalid, format!("{subject}: reading the input: {error}")))
}

fn write_output<Out: Serialize, E: Into<Error>>(
    subject: &str,
    result: Result<Out, E>,
) -> Result<Payload, Failure> {
    let output = result.map_err(|error| Failure::from(error.into()))?;
    Payload::encode(&output).map_err(|error| unserialisable(subject, &error))
}

fn unserialisable(subject: &str, error: &PayloadError) -> Failure {
    Failure::new(FailureKind::Unserialisable, format!("{subject}: recording the output: {error}"))
}
