//! A step that any worker of a pool runs (rule W39).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::duration::IntoMillis;
use everstep_protocol::journal::Marks;
use everstep_protocol::name::NameError;
use everstep_protocol::{FailureKind, FunctionName, Millis, Payload, Pool};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Pending;
use crate::host::{RemoteSpec, Spec};
use crate::{Compensation, Error, Retry, Step, Undo};

/// A remote step: awaiting it gives its output. From [`Workflow::remote`](crate::Workflow::remote).
#[must_use = "a remote step does not run until it is awaited"]
pub struct RemoteCall<Out> {
    pending: Pending,
    input: Option<Payload>,
    function: Result<FunctionName, NameError>,
    pool: Option<Result<Pool, NameError>>,
    retry: Retry,
    timeout: Option<Millis>,
    sensitive: bool,
    output: PhantomData<fn() -> Out>,
}

impl<Out> RemoteCall<Out> {
    pub(crate) fn new(pending: Pending, name: &str, input: Option<Payload>) -> Self {
        Self {
            pending,
            input,
            function: FunctionName::new(name),
            pool: None,
            retry: Retry::new(),
            timeout: None,
            sensitive: false,
            output: PhantomData,
        }
    }

    /// The pool whose workers run it. Required.
    pub fn on(mut self, pool: impl AsRef<str>) -> Self {
        self.pool = Some(Pool::new(pool));
        self
    }

    /// The registered function, if it is not called like the step.
    pub fn function(mut self, function: impl AsRef<str>) -> Self {
        self.function = FunctionName::new(function);
        self
    }

    /// When a failed attempt is tried again. The delay is computed where no code of yours runs, so a policy with
    /// [`delay_with`](Retry::delay_with) is refused.
    pub fn retry(mut self, retry: Retry) -> Self {
        if let Some(error) = retry.refused() {
            self.pending.refuse(FailureKind::Invalid, error);
        }
        if retry.function().is_some() {
            self.pending.refuse(FailureKind::Invalid, "a remote step cannot have a delay function");
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

    /// Where it goes; if that is not known the call is refused.
    fn target(&mut self) -> Option<(FunctionName, Pool)> {
        match (&self.function, &self.pool) {
            (Ok(function), Some(Ok(pool))) => return Some((function.clone(), pool.clone())),
            (Err(error), _) | (_, Some(Err(error))) => self.pending.refuse(FailureKind::Invalid, error),
            (_, None) => {
                self.pending
                    .refuse(FailureKind::Invalid, "no pool is named, add for example .on(\"labels\")");
            }
        }
        None
    }
}

impl<Out: DeserializeOwned> RemoteCall<Out> {
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

impl<Out: DeserializeOwned> Future for RemoteCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let target = this.target();
        let Self { pending, input, retry, timeout, sensitive, .. } = this;
        let marks = Marks { compensated: pending.is_compensated(), sensitive: *sensitive, reused: false };
        let outcome = ready!(pending.poll(context, || {
            let (function, pool) = target.expect("a call without a target is refused");
            let input = input.take().expect("a call with a number that is not refused has its input");
            Spec::Remote(RemoteSpec { function, pool, input, policy: retry.policy(*timeout), marks })
        }));
        pending.decode(outcome)
    }
}

impl<Out> fmt::Debug for RemoteCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCall").field("call", &self.pending).finish_non_exhaustive()
    }
}
