//! A step that runs in this worker.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::duration::IntoMillis;
use everstep_protocol::journal::Marks;
use everstep_protocol::{FailureKind, Millis, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Pending;
use crate::host::{Spec, StepFn, StepSpec};
use crate::{Compensation, Error, Retry, Step, Undo};

/// A step: awaiting it gives its output. From [`Workflow::step`](crate::Workflow::step).
///
/// Not awaiting it means that the step does not run. It is a plain future: join it, race it, collect it.
#[must_use = "a step does not run until it is awaited"]
pub struct StepCall<Out> {
    pending: Pending,
    work: Option<(Payload, StepFn)>,
    retry: Retry,
    timeout: Option<Millis>,
    sensitive: bool,
    output: PhantomData<fn() -> Out>,
}

impl<Out> StepCall<Out> {
    pub(crate) fn new(pending: Pending, work: Option<(Payload, StepFn)>) -> Self {
        Self { pending, work, retry: Retry::new(), timeout: None, sensitive: false, output: PhantomData }
    }

    /// When a failed attempt is tried again. Without it: five retries, exponential from 10 s.
    pub fn retry(mut self, retry: Retry) -> Self {
        if let Some(error) = retry.refused() {
            self.pending.refuse(FailureKind::Invalid, error);
        }
        self.retry = retry;
        self
    }

    /// How long one attempt may take: text, milliseconds or a [`Duration`](std::time::Duration). Default: 10 min.
    pub fn timeout(mut self, timeout: impl IntoMillis) -> Self {
        match timeout.into_millis() {
            Ok(timeout) => self.timeout = Some(timeout),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }
}

impl<Out: DeserializeOwned> StepCall<Out> {
    /// What takes the step back if the workflow fails, or is ended with a rollback (rule P38): it runs in this worker, as a
    /// durable step of its own, after the workflow's function has ended. It is registered when the step begins, and runs whether
    /// the step completed, failed or was under way; last call first. A workflow that ends with a value takes nothing back.
    pub fn compensate<In, Done, E, F, Fut>(self, function: F) -> Self
    where
        In: DeserializeOwned,
        Done: Serialize,
        E: Into<Error>,
        F: Fn(Step, Undo<In, Out>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done, E>> + Send + 'static,
    {
        self.compensate_with(Compensation::new(function))
    }

    /// Its output is shown to nobody (rule P44): no view, log, journal on a screen or export has it, nor the data of its error. The
    /// code gets it as it is, in every replay, and so does its compensation; it is stored. The input is not hidden, and what the
    /// code makes of the output is its own business: mark the steps that hand it on too.
    pub fn sensitive(mut self) -> Self {
        self.sensitive = true;
        self.pending.hide();
        self
    }

    /// Like [`compensate`](Self::compensate), with a policy of its own.
    pub fn compensate_with(mut self, compensation: Compensation<Out>) -> Self {
        self.pending.compensate(compensation.into_recipe());
        self
    }
}

impl<Out: DeserializeOwned> Future for StepCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, work, retry, timeout, sensitive, .. } = self.get_mut();
        let marks = Marks { compensated: pending.is_compensated(), sensitive: *sensitive, reused: false };
        let outcome = ready!(pending.poll(context, || {
            let (input, run) = work.take().expect("a call with a number that is not refused has its work");
            let delay = retry.function().cloned();
            Spec::Step(StepSpec { input, policy: retry.policy(*timeout), delay, run, marks })
        }));
        pending.decode(outcome)
    }
}

impl<Out> fmt::Debug for StepCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepCall").field("call", &self.pending).finish_non_exhaustive()
    }
}
