//! A step that runs in this worker.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::journal::Marks;
use everstep_protocol::{FailureKind, Millis, Payload};
use serde::de::DeserializeOwned;

use super::Pending;
use crate::host::{Spec, StepFn, StepSpec};
use crate::{Error, Retry};

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

any_step!(StepCall);

impl<Out: DeserializeOwned> Future for StepCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, work, action, retry, timeout, sensitive, .. } = self.get_mut();
        let marks = Marks { compensated: pending.is_compensated(), sensitive: *sensitive, reused: false };
        let outcome = ready!(pending.poll(context, || {
            let (input, run) = work.take().expect("a call with a number that is not refused has its work");
            let delay = retry.function().cloned();
            let (policy, action) = (retry.policy(*timeout), action.take());
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
