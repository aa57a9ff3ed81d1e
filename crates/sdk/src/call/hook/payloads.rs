//! What a hook is resumed with, as the body receives it.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::{CallKind, Failure, FailureKind, hook::HOOK_DISPOSED, journal::Awaiting};
use futures::Stream;
use serde::de::DeserializeOwned;

use super::Core;
use crate::Error;
use crate::call::Pending;
use crate::call::pending::Fed;
use crate::host::{Spec, Standing};

/// The name of the error for a payload that does not fit.
const PAYLOAD: &str = "HookPayload";

/// A wait for the next payload of a hook. From [`Hook::next`](super::Hook::next).
#[must_use = "a payload is not waited for until this is awaited"]
pub struct NextPayload<T> {
    pub(super) core: Core,
    /// None when it is over.
    pending: Option<Pending>,
    payload: PhantomData<fn() -> T>,
}

impl<T> NextPayload<T> {
    pub(super) fn new(core: Core) -> Self {
        let pending = Pending::make(&core.shared, CallKind::Payload, &core.name);
        Self { core, pending: Some(pending), payload: PhantomData }
    }

    /// The outcome of its call; none if the hook was let go meanwhile, with which it ends.
    fn poll_call(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Fed, Error>>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(None) };
        let core = &self.core;
        // A call that is not valid says so itself; which call it awaits is known when the hook is.
        let hook = match core.shared.hook(core.number, context.waker()) {
            _ if !core.shared.is_polling() || !(pending.is_made() || pending.begun().is_some()) => None,
            Standing::Owned(hook) => Some(hook),
            Standing::Unknown => return Poll::Pending,
            Standing::Not(outcome) => {
                let error = core.not_had(outcome);
                self.pending = None;
                return Poll::Ready(Some(Err(error)));
            }
            // Dropping the call closes its wait, and what it has got and the body has not seen returns to its place in line.
            Standing::LetGo => {
                self.pending = None;
                return Poll::Ready(None);
            }
        };
        let was = pending.begun();
        let token = core.token.clone();
        let hook = hook.unwrap_or(everstep_protocol::HookId::START);
        let polled = pending.poll(context, || Spec::Payload(Awaiting { hook, token }));
        match (was, pending.begun()) {
            (None, Some(call)) => core.shared.awaits_hook(core.number, call),
            (Some(call), None) => core.shared.awaited_hook(core.number, call),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let outcome = ready!(polled);
        Poll::Ready(Some(outcome))
    }
}

impl<T: DeserializeOwned> NextPayload<T> {
    /// None if the hook is over because it was let go.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        let Some(outcome) = ready!(self.poll_call(context)) else { return Poll::Ready(None) };
        let read = outcome.and_then(|fed| self.read(&fed));
        self.pending = None;
        match read {
            Err(error) if error.name() == HOOK_DISPOSED => Poll::Ready(None),
            read => Poll::Ready(Some(read)),
        }
    }

    /// What comes from outside need not fit: that is an error of this await, which the code can catch.
    fn read(&self, (output, _): &Fed) -> Result<T, Error> {
        output.payload.decode().map_err(|error| {
            let what = self.pending.as_ref().map_or_else(String::new, Pending::describe_counted);
            let message = format!("{what}: reading the payload: {error}");
            Error::from_failure(Failure {
                name: PAYLOAD.to_owned(),
                ..Failure::new(FailureKind::Invalid, message)
            })
        })
    }
}

impl<T: DeserializeOwned> Future for NextPayload<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let payload = ready!(this.poll_next(context));
        Poll::Ready(payload.unwrap_or_else(|| Err(this.core.over())))
    }
}

/// The payloads of a hook, one after the other. From [`Hook::payloads`](super::Hook::payloads).
#[must_use = "nothing is waited for until it is asked"]
pub struct Payloads<T> {
    core: Core,
    next: Option<NextPayload<T>>,
    is_over: bool,
}

impl<T> Payloads<T> {
    pub(super) const fn new(core: Core) -> Self {
        Self { core, next: None, is_over: false }
    }
}

impl<T: DeserializeOwned> Payloads<T> {
    /// The next one; none when the hook was let go. An error of the hook itself, such as [`HookTaken`](super::HookTaken), comes once
    /// and is the last; a payload that does not fit is an error, and the next one follows.
    pub async fn next(&mut self) -> Option<Result<T, Error>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let next = self.next.get_or_insert_with(|| NextPayload::new(self.core.clone()));
        let payload = ready!(next.poll_next(context));
        self.next = None;
        self.is_over = match &payload {
            None => true,
            // A cancel ends one await, unless it came before the hook was known.
            Some(Err(error)) => {
                let is_lost = matches!(self.core.shared.hook_outcome(self.core.number), Some(Err(_)));
                is_lost || (error.name() != PAYLOAD && !error.is_cancelled())
            }
            Some(Ok(_)) => false,
        };
        Poll::Ready(payload)
    }
}

impl<T: DeserializeOwned> Stream for Payloads<T> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}

impl<T> fmt::Debug for NextPayload<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextPayload").field("hook", &self.core).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Payloads<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payloads").field("hook", &self.core).finish_non_exhaustive()
    }
}
