//! Sagas: what a step's effect is taken back with when the workflow fails (rules P38, P39).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use everstep_protocol::duration::{DurationError, IntoMillis};
use everstep_protocol::journal::{Undone, UndoneEnd};
use everstep_protocol::{Call, CallKind, Class, Failure, FailureKind, Millis, Payload, Policy, Position};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::call::HIDDEN;
use crate::host::{DelayFn, LookFn, StepFn, look_first, look_fn, step_fn};
use crate::{Error, Retry, Step};

/// What a compensation is given of the step that it takes back.
#[derive(Clone, Debug)]
pub struct Undo<In, Out> {
    /// What the step was given.
    pub input: In,
    /// What came of it.
    pub outcome: StepOutcome<Out>,
}

/// What came of a step, as its workflow knew it when it ended.
#[derive(Clone, Debug)]
pub enum StepOutcome<Out> {
    /// It is complete, with this output.
    Completed(Out),
    /// It failed for good, with this error. Whether anything was done is for the step's own code to know.
    Failed(Error),
    /// It was under way: it may have done nothing, some of its work, or all of it.
    Unknown,
}

impl<In, Out> Undo<In, Out> {
    /// The step's output, if it is complete.
    pub const fn output(&self) -> Option<&Out> {
        match &self.outcome {
            StepOutcome::Completed(output) => Some(output),
            StepOutcome::Failed(_) | StepOutcome::Unknown => None,
        }
    }
}

#[derive(Deserialize)]
struct Told<In, Out> {
    input: In,
    outcome: ToldOutcome<Out>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToldOutcome<Out> {
    Completed(Out),
    Failed(Failure),
    Unknown,
}

impl<'de, In: DeserializeOwned, Out: DeserializeOwned> Deserialize<'de> for Undo<In, Out> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Told { input, outcome } = Told::deserialize(deserializer)?;
        let outcome = match outcome {
            ToldOutcome::Completed(output) => StepOutcome::Completed(output),
            ToldOutcome::Failed(failure) => StepOutcome::Failed(Error::from_failure(failure)),
            ToldOutcome::Unknown => StepOutcome::Unknown,
        };
        Ok(Self { input, outcome })
    }
}

/// A compensation with a policy of its own, for [`StepCall::compensate_with`](crate::StepCall::compensate_with).
///
/// ```
/// use everstep_sdk::{Compensation, Error, Retry, Step, StepOutcome, Undo, Workflow};
///
/// # async fn body(cx: Workflow, seats: u32) -> Result<(), Error> {
/// let release = Compensation::new(release).retry(Retry::constant("1 min").limit(60)).timeout("30s");
/// let hold = cx.step("reserve", seats, reserve).compensate_with(release).await?;
/// # Ok(()) }
/// # async fn reserve(_step: Step, seats: u32) -> Result<String, Error> { Ok(format!("hold-{seats}")) }
///
/// async fn release(step: Step, undo: Undo<u32, String>) -> Result<(), Error> {
///     match undo.outcome {
///         StepOutcome::Completed(hold) => give_up(&hold).await,
///         // Nobody knows whether seats are held: the service finds out by the step's key.
///         StepOutcome::Failed(_) | StepOutcome::Unknown => give_up_by_key(step.undoes()).await,
///     }
/// }
/// # async fn give_up(_hold: &str) -> Result<(), Error> { Ok(()) }
/// # async fn give_up_by_key(_key: Option<&str>) -> Result<(), Error> { Ok(()) }
/// ```
#[must_use = "a compensation is registered with `compensate_with`"]
pub struct Compensation<Out> {
    recipe: Recipe,
    output: PhantomData<fn(Out)>,
}

impl<Out: DeserializeOwned> Compensation<Out> {
    /// A compensation with the default policy: five retries, exponential from 10 s, 10 min for an attempt.
    pub fn new<In, Done, E, F, Fut>(function: F) -> Self
    where
        In: DeserializeOwned,
        Done: Serialize,
        E: Into<Error>,
        F: Fn(Step, Undo<In, Out>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done, E>> + Send + 'static,
    {
        let function = Arc::new(function);
        let run = move |subject: String, input: Payload, hidden: bool| {
            if hidden && input.decode::<Undo<In, Out>>().is_err() {
                return refused(&subject);
            }
            step_fn(subject, input, function.clone())
        };
        let recipe = Recipe {
            run: Arc::new(run),
            retry: Retry::new(),
            timeout: None,
            refused: None,
            stop: false,
            class: Class::Keyed,
            lag: None,
            look: None,
        };
        Self { recipe, output: PhantomData }
    }

    /// When a failed attempt of it is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.recipe.refused = self.recipe.refused.or_else(|| retry.refused().cloned());
        self.recipe.retry = retry;
        self
    }

    /// How long one attempt of it may take.
    pub fn timeout(mut self, timeout: impl IntoMillis) -> Self {
        match timeout.into_millis() {
            Ok(timeout) => self.recipe.timeout = Some(timeout),
            Err(error) => self.recipe.refused = self.recipe.refused.or(Some(error)),
        }
        self
    }

    /// It is never called again by itself once it may have taken effect: a person is asked what came of it, as of a
    /// [step](crate::StepCall::at_most_once).
    pub fn at_most_once(mut self) -> Self {
        self.recipe.class = Class::AtMostOnce;
        self
    }

    /// Looks before it calls, as a [step](crate::StepCall::look_first) does: what is found says that it is done.
    pub fn look_first<In, Done, E, F, Fut>(mut self, function: F) -> Self
    where
        In: DeserializeOwned,
        Done: Serialize,
        E: Into<Error>,
        F: Fn(Step, Undo<In, Out>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Done>, E>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.recipe.class = Class::Lookup { visibility_lag: Millis::ZERO };
        self.recipe.look = Some(Arc::new(move |subject, input| look_fn(subject, input, function.clone())));
        self
    }

    /// How long after an attempt that may have taken effect looking might not show it yet; see
    /// [`StepCall::visibility_lag`](crate::StepCall::visibility_lag).
    pub fn visibility_lag(mut self, lag: impl IntoMillis) -> Self {
        match lag.into_millis() {
            Ok(lag) => self.recipe.lag = Some(lag),
            Err(error) => self.recipe.refused = self.recipe.refused.or(Some(error)),
        }
        self
    }

    /// If it fails for good, those of earlier steps do not run. By default they do (rule P39).
    pub fn or_stop(mut self) -> Self {
        self.recipe.stop = true;
        self
    }

    pub(crate) fn into_recipe(self) -> Recipe {
        self.recipe
    }
}

impl<Out> fmt::Debug for Compensation<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compensation").finish_non_exhaustive()
    }
}

/// Makes what looks for what an earlier attempt of a compensation did.
type Look = Arc<dyn Fn(String, Payload) -> LookFn + Send + Sync>;

type Run = Arc<dyn Fn(String, Payload, bool) -> StepFn + Send + Sync>;

/// The step's output does not fit, and no message may quote it (rule P44).
fn refused(subject: &str) -> StepFn {
    let failure = Failure::new(FailureKind::Invalid, format!("{subject}: reading the input: {HIDDEN}"));
    Arc::new(move |_| {
        let failure = failure.clone();
        Box::pin(async move { Err(failure) })
    })
}

/// A compensation, its types hidden.
pub(crate) struct Recipe {
    run: Run,
    retry: Retry,
    timeout: Option<Millis>,
    pub(crate) refused: Option<DurationError>,
    stop: bool,
    class: Class,
    lag: Option<Millis>,
    look: Option<Look>,
}

/// The steps of a body that have a compensation, and what became of them.
#[derive(Default)]
pub(crate) struct Saga {
    registered: std::collections::BTreeMap<u64, Registered>,
    /// The body is to be thrown away where it stands.
    pub(crate) interrupted: bool,
    /// It was.
    pub(crate) thrown_away: bool,
    /// Compensations run also if the body ends with a cancel.
    pub(crate) on_cancel: bool,
    /// How the compensations ended, once they are over.
    pub(crate) over: Option<Vec<Undone>>,
}

/// A step that has a compensation.
pub(crate) struct Registered {
    call: Call,
    /// What the body had seen when the call began.
    begun_at: Position,
    input: Payload,
    recipe: Recipe,
    /// The step's output is sensitive.
    hidden: bool,
    outcome: Option<Result<Payload, Failure>>,
}

/// A compensation that is to run.
pub(crate) struct Planned {
    pub(crate) call: Call,
    pub(crate) input: Payload,
    pub(crate) policy: Policy,
    pub(crate) delay: Option<DelayFn>,
    pub(crate) run: StepFn,
    pub(crate) stop: bool,
    /// The step is sensitive, and so is what its compensation gives.
    pub(crate) hidden: bool,
}

impl Saga {
    pub(crate) fn register(
        &mut self,
        number: u64,
        call: Call,
        begun_at: Position,
        input: Payload,
        recipe: Recipe,
        hidden: bool,
    ) {
        let registered = Registered { call, begun_at, input, recipe, hidden, outcome: None };
        self.registered.insert(number, registered);
    }

    /// A call has its outcome. One that a cancel ended was under way.
    pub(crate) fn ended(&mut self, number: u64, result: Result<&Payload, &Failure>) {
        if let Some(registered) = self.registered.get_mut(&number) {
            registered.outcome = match result {
                Err(failure) if failure.kind == FailureKind::Cancelled => None,
                result => Some(result.cloned().map_err(Clone::clone)),
            };
        }
    }

    /// The body has dropped a call without an outcome. Where it has seen nothing since the call began, nothing of it has run, and
    /// what is given out is not to run either: dropping it is code of the user's, not for under the lock.
    #[must_use]
    pub(crate) fn dropped(&mut self, number: u64, seen: Position) -> Option<Registered> {
        let began_now = self.registered.get(&number).is_some_and(|registered| registered.begun_at == seen);
        if began_now { self.registered.remove(&number) } else { None }
    }

    /// All that is registered; nothing is afterwards.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<Registered> {
        std::mem::take(&mut self.registered).into_values().collect()
    }
}

/// What is to run, last call first. It runs code of the user's, so never under the lock.
pub(crate) fn plan(registered: Vec<Registered>) -> Vec<Planned> {
    registered.into_iter().rev().map(Registered::plan).collect()
}

impl Registered {
    fn plan(self) -> Planned {
        let Self { call, input, recipe, hidden, outcome, .. } = self;
        let outcome = match outcome {
            Some(Ok(output)) => format!(r#"{{"completed":{}}}"#, output.as_str()),
            // When to try again is over, and no export tells it.
            Some(Err(failure)) => match Payload::encode(&Failure { retry_after: None, ..failure }) {
                Ok(failure) => format!(r#"{{"failed":{}}}"#, failure.as_str()),
                Err(_) => r#""unknown""#.to_owned(),
            },
            None => r#""unknown""#.to_owned(),
        };
        let text = format!(r#"{{"input":{},"outcome":{outcome}}}"#, input.as_str());
        let input = Payload::from_trusted(text);
        let subject = format!("compensation {:?}", call.name.as_str());
        let class = match (recipe.class, recipe.lag) {
            (Class::Lookup { .. }, Some(visibility_lag)) => Class::Lookup { visibility_lag },
            (class, _) => class,
        };
        let run = (recipe.run)(subject.clone(), input.clone(), hidden);
        let run = match recipe.look {
            Some(look) => look_first(look(format!("looking first for {subject}"), input.clone()), run),
            None => run,
        };
        Planned {
            call: Call { kind: CallKind::Compensation, ..call },
            run,
            input,
            policy: Policy { class, ..recipe.retry.policy(recipe.timeout) },
            delay: recipe.retry.function().cloned(),
            stop: recipe.stop,
            hidden,
        }
    }
}

/// How a compensation ended.
pub(crate) fn undone(call: Call, result: Result<(), Error>) -> Undone {
    let end = match result {
        Ok(()) => UndoneEnd::Done,
        Err(error) => UndoneEnd::Failed(Failure::from(error)),
    };
    Undone { call, end }
}
