//! Waits for events (rules P21, P23, P26).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::duration::{IntoMillis, SLEEP_MAX};
use everstep_protocol::{EventKey, EventType, Failure, FailureKind, Millis, Timestamp};
use serde::de::DeserializeOwned;

use super::Pending;
use super::pending::Fed;
use crate::Error;
use crate::host::{EventSpec, Spec};

/// How long an event is waited for unless the code says otherwise: a day.
const TIMEOUT: Millis = Millis::from_secs(86_400);
/// The most types that one wait may name.
pub(crate) const TYPES_MAX: usize = 16;
/// The name of the error for a payload that does not fit.
const PAYLOAD: &str = "EventPayload";

/// A wait for one event of a type: awaiting it gives the payload. From [`Workflow::event`](crate::Workflow::event).
#[must_use = "an event is not waited for until this is awaited"]
pub struct EventCall<T>(EventsCall<T>);

/// A wait for one event of any of several types: awaiting it gives the event. From
/// [`Workflow::events`](crate::Workflow::events).
#[must_use = "events are not waited for until this is awaited"]
pub struct EventsCall<T> {
    pending: Pending,
    types: Vec<EventType>,
    key: Option<EventKey>,
    timeout: Millis,
    payload: PhantomData<fn() -> T>,
}

/// An event that was waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<T> {
    /// Its type.
    pub kind: String,
    /// What it says.
    pub payload: T,
    /// Its correlation key.
    pub key: Option<String>,
    /// Its sender's id for it.
    pub id: String,
    /// When it was accepted, by the database's clock.
    pub received_at: Timestamp,
}

impl<T> EventsCall<T> {
    pub(crate) fn new(pending: Pending, types: Vec<EventType>) -> Self {
        Self { pending, types, key: None, timeout: TIMEOUT, payload: PhantomData }
    }

    /// How long it waits, at most ten years: text, milliseconds or a [`Duration`](std::time::Duration). Default: 24 hours. Then
    /// awaiting it fails with an error whose name is `EventTimedOut` and whose
    /// [`is_timed_out`](crate::Error::is_timed_out) holds. With no time at all it takes what is there already.
    pub fn timeout(mut self, timeout: impl IntoMillis) -> Self {
        match timeout.into_millis() {
            Ok(timeout) if timeout <= SLEEP_MAX => self.timeout = timeout,
            Ok(timeout) => {
                let reason = format_args!("{timeout} is longer than the longest wait, {SLEEP_MAX}");
                self.pending.refuse(FailureKind::Invalid, reason);
            }
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// Takes only events that were sent with this correlation key, of 1 to 100 characters. Without it any event of the type
    /// will do.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        match EventKey::new(key) {
            Ok(key) => self.key = Some(key),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }
}

impl<T> EventCall<T> {
    pub(crate) fn new(pending: Pending, types: Vec<EventType>) -> Self {
        Self(EventsCall::new(pending, types))
    }

    /// See [`EventsCall::timeout`].
    pub fn timeout(self, timeout: impl IntoMillis) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// See [`EventsCall::key`].
    pub fn key(self, key: impl AsRef<str>) -> Self {
        Self(self.0.key(key))
    }

    /// Gives the whole event, not only its payload.
    pub fn whole(self) -> EventsCall<T> {
        self.0
    }
}

impl<T: DeserializeOwned> Future for EventsCall<T> {
    type Output = Result<Event<T>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, types, key, timeout, .. } = self.get_mut();
        let outcome = ready!(pending.poll(context, || {
            let (types, key) = (std::mem::take(types), key.take());
            Spec::Event(EventSpec { types, key, timeout: *timeout })
        }));
        Poll::Ready(outcome.and_then(|fed| read(pending, fed)))
    }
}

impl<T: DeserializeOwned> Future for EventCall<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().0).poll(context).map_ok(|event| event.payload)
    }
}

/// What comes from outside need not fit: that is an error of this call, which the code can catch, and no question to a person.
fn read<T: DeserializeOwned>(pending: &Pending, (output, _): Fed) -> Result<Event<T>, Error> {
    let misfit = |reason: &dyn fmt::Display| {
        let message = format!("{}: reading the payload: {reason}", pending.describe_counted());
        Error::from_failure(Failure {
            name: PAYLOAD.to_owned(),
            ..Failure::new(FailureKind::Invalid, message)
        })
    };
    let event = output.event.ok_or_else(|| misfit(&"it is no event"))?;
    Ok(Event {
        kind: event.kind.to_string(),
        payload: output.payload.decode().map_err(|error| misfit(&error))?,
        key: event.key.as_ref().map(ToString::to_string),
        id: event.id.clone(),
        received_at: event.received_at,
    })
}

impl<T> fmt::Debug for EventsCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventsCall").field("call", &self.pending).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for EventCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventCall").field(&self.0.pending).finish()
    }
}
