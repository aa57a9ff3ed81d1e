//! A step that runs in this worker.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use everstep_protocol::journal::Marks;
use everstep_protocol::{Class, FailureKind, Millis, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Pending;
use crate::host::{Spec, StepFn, StepSpec, look_first, look_fn};
use crate::{Error, Retry, Step};

/// A step: awaiting it gives its output. From [`Workflow::step`](crate::Workflow::step).
///
/// Not awaiting it means that the step does not run. It is a plain future: join it, race it, collect it.
#[must_use = "a step does not run until it is awaited"]
pub struct StepCall<Out> {
    pending: Pending,
    work: Option<(Payload, StepFn)>,
    action: Option<Payload>,
    retry: Retry,
    timeout: Option<Millis>,
    sensitive: bool,
    class: Class,
    lag: Option<Millis>,
    output: PhantomData<fn() -> Out>,
}

impl<Out> StepCall<Out> {
    pub(crate) fn new(pending: Pending, work: Option<(Payload, StepFn)>) -> Self {
        Self {
            pending,
            work,
            action: None,
            retry: Retry::new(),
            timeout: None,
            sensitive: false,
            class: Class::Keyed,
            lag: None,
            output: PhantomData,
        }
    }

    /// It is an action of a plan, and known by this in place of its input.
    pub(super) fn known_as(mut self, identity: impl FnOnce(&Payload) -> Payload) -> Self {
        self.action = self.work.as_ref().map(|(input, _)| identity(input));
        self
    }

    /// When a failed attempt is tried again. Without it: five retries, exponential from 10 s.
    pub fn retry(mut self, retry: Retry) -> Self {
        if let Some(error) = retry.refused() {
            self.pending.refuse(FailureKind::Invalid, error);
        }
        self.retry = retry;
        self
    }
}

impl<Out: Serialize> StepCall<Out> {
    /// Looks before it calls, before the first call too (rule L6): the function gets the step's input, and what it finds of an earlier
    /// attempt is the step's output, without a call. For what honours no idempotency key but can be asked for what it did. How long it
    /// may take to show that [`visibility_lag`](Self::visibility_lag) says. An entry in the journal precedes each attempt.
    pub fn look_first<In, E, F, Fut>(mut self, function: F) -> Self
    where
        In: DeserializeOwned,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<Out>, E>> + Send + 'static,
    {
        self.classified(Class::Lookup { visibility_lag: Millis::ZERO }, "look_first");
        if let Some((input, run)) = self.work.take() {
            let subject = format!("looking first for {}", self.pending.describe());
            let look = look_fn(subject, input.clone(), Arc::new(function));
            self.work = Some((input, look_first(look, run)));
        }
        self
    }
}

any_step!(StepCall);

impl<Out: DeserializeOwned> Future for StepCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let policy = this.policy();
        let Self { pending, work, action, retry, sensitive, .. } = this;
        let marks =
            Marks { compensated: pending.is_compensated(), sensitive: *sensitive, ..Marks::default() };
        let outcome = ready!(pending.poll(context, || {
            let (input, run) = work.take().expect("a call with a number that is not refused has its work");
            let delay = retry.function().cloned();
            let action = action.take();
            Spec::Step(StepSpec { input, action, policy, delay, run, marks })
        }));
        pending.decode(outcome)
    }
}

impl<Out> fmt::Debug for StepCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepCall").field("call", &self.pending).finish_non_exhaustive()
    }
}
