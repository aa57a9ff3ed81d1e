//! A step that any worker of a pool runs (rule W39).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::journal::Marks;
use everstep_protocol::name::NameError;
use everstep_protocol::{Class, FailureKind, FunctionName, Millis, Payload, Pool};
use serde::de::DeserializeOwned;

use super::Pending;
use crate::host::{RemoteSpec, Spec};
use crate::{Error, Retry};

/// A remote step: awaiting it gives its output. From [`Workflow::remote`](crate::Workflow::remote).
#[must_use = "a remote step does not run until it is awaited"]
pub struct RemoteCall<Out> {
    pending: Pending,
    input: Option<Payload>,
    action: Option<Payload>,
    function: Result<FunctionName, NameError>,
    pool: Option<Result<Pool, NameError>>,
    retry: Retry,
    timeout: Option<Millis>,
    sensitive: bool,
    class: Class,
    lag: Option<Millis>,
    look: Option<Result<FunctionName, NameError>>,
    output: PhantomData<fn() -> Out>,
}

impl<Out> RemoteCall<Out> {
    pub(crate) fn new(pending: Pending, name: &str, input: Option<Payload>) -> Self {
        Self {
            pending,
            input,
            action: None,
            function: FunctionName::new(name),
            pool: None,
            retry: Retry::new(),
            timeout: None,
            sensitive: false,
            class: Class::Keyed,
            lag: None,
            look: None,
            output: PhantomData,
        }
    }

    /// It is an action of a plan, and known by this in place of its input.
    pub(super) fn known_as(mut self, identity: impl FnOnce(&Payload) -> Payload) -> Self {
        self.action = self.input.as_ref().map(identity);
        self
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

    /// Looks before it calls, before the first call too (rule L6): the function of this name, registered with the same pool, gets the
    /// step's input, and what it finds of an earlier attempt is the step's output, without a call. It returns an `Option`; `None` is
    /// that there is nothing. How long it may take to show what was done [`visibility_lag`](Self::visibility_lag) says.
    pub fn look_first(mut self, function: impl AsRef<str>) -> Self {
        self.classified(Class::Lookup { visibility_lag: Millis::ZERO }, "look_first");
        self.look = Some(FunctionName::new(function));
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

any_step!(RemoteCall);

impl<Out: DeserializeOwned> Future for RemoteCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let target = this.target();
        let policy = this.policy();
        let look = match &this.look {
            Some(Ok(look)) => Some(look.clone()),
            Some(Err(error)) => {
                this.pending.refuse(FailureKind::Invalid, error);
                None
            }
            None => None,
        };
        let Self { pending, input, action, sensitive, .. } = this;
        let marks =
            Marks { compensated: pending.is_compensated(), sensitive: *sensitive, ..Marks::default() };
        let outcome = ready!(pending.poll(context, || {
            let (function, pool) = target.expect("a call without a target is refused");
            let input = input.take().expect("a call with a number that is not refused has its input");
            let action = action.take();
            Spec::Remote(RemoteSpec { function, pool, input, action, policy, look, marks })
        }));
        pending.decode(outcome)
    }
}

impl<Out> fmt::Debug for RemoteCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCall").field("call", &self.pending).finish_non_exhaustive()
    }
}
