//! Other instances, as a workflow reaches them: their end, and events for them (rule P36).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use everstep_protocol::name::NameError;
use everstep_protocol::{
    CallKind, EventKey, EventType, FailureKind, InstanceId, Payload, WorkflowName, journal::Other,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Pending;
use crate::Error;
use crate::host::{SendSpec, Shared, Spec};

/// Another instance of the same namespace. Nothing is asked of it until one of its calls is awaited; it need not exist. From
/// [`Workflow::instance`](crate::Workflow::instance), or of a child that was started.
#[derive(Clone)]
pub struct Instance {
    shared: Arc<Shared>,
    workflow: Box<str>,
    id: Box<str>,
    other: Result<Other, NameError>,
}

impl Instance {
    pub(crate) fn new(shared: &Arc<Shared>, workflow: &str, id: &str) -> Self {
        let other =
            WorkflowName::new(workflow).and_then(|workflow| Ok(Other { workflow, id: InstanceId::new(id)? }));
        Self { shared: shared.clone(), workflow: workflow.into(), id: id.into(), other }
    }

    pub(crate) fn of(shared: &Arc<Shared>, other: Other) -> Self {
        let (workflow, id) = (other.workflow.as_str().into(), other.id.as_str().into());
        Self { shared: shared.clone(), workflow, id, other: Ok(other) }
    }

    /// Its workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits until it has ended, and gives its output. While this instance waits it occupies no worker.
    ///
    /// The error is the one that it ended with; or it has the name `InstanceTerminated`, `InstanceCancelled` or
    /// `InstanceNotFound`.
    pub fn result<Out: DeserializeOwned>(&self) -> ResultCall<Out> {
        let name = format!("{}/{}", self.workflow, self.id);
        let mut pending = Pending::make(&self.shared, CallKind::Instance, &name);
        let other = self.checked(&mut pending);
        let info = &self.shared.info;
        if other.as_ref().is_some_and(|other| other.workflow == info.workflow && other.id == info.id) {
            pending.refuse(FailureKind::Invalid, "an instance cannot wait for its own end");
        }
        ResultCall { pending, other, output: PhantomData }
    }

    /// Sends it an event, and waits until it has accepted that; whether anything there waits for it makes no difference. It
    /// arrives once, also when this instance is run again.
    ///
    /// Errors have the name `InstanceNotFound`, `InstanceEnded`, `MailboxFull`, or `EventIdTaken` where an earlier run has sent
    /// something else by the same call.
    pub fn send(&self, kind: impl AsRef<str>, payload: impl Serialize) -> SendCall {
        let name = format!("{}/{} {}", self.workflow, self.id, kind.as_ref());
        let mut pending = Pending::make(&self.shared, CallKind::Send, &name);
        let other = self.checked(&mut pending);
        let kind = EventType::new(kind).map_err(|error| pending.refuse(FailureKind::Invalid, error)).ok();
        let payload = Payload::encode(&payload)
            .map_err(|error| {
                pending.refuse(FailureKind::Unserialisable, format_args!("recording the payload: {error}"));
            })
            .ok();
        let event = match (other, kind, payload) {
            (Some(to), Some(kind), Some(payload)) => Some(SendSpec { to, kind, key: None, payload }),
            _ => None,
        };
        SendCall { pending, event }
    }

    fn checked(&self, pending: &mut Pending) -> Option<Other> {
        match &self.other {
            Ok(other) => Some(other.clone()),
            Err(error) => {
                pending.refuse(FailureKind::Invalid, error);
                None
            }
        }
    }
}

/// A wait for the end of another instance: awaiting it gives its output. From [`Instance::result`].
#[must_use = "an end is not waited for until this is awaited"]
pub struct ResultCall<Out> {
    pending: Pending,
    other: Option<Other>,
    output: PhantomData<fn() -> Out>,
}

/// An event for another instance. From [`Instance::send`].
#[must_use = "an event is not sent until this is awaited"]
pub struct SendCall {
    pending: Pending,
    event: Option<SendSpec>,
}

impl SendCall {
    /// A correlation key, of 1 to 100 characters: only a wait for that key, or for any, takes the event.
    pub fn key(mut self, key: impl AsRef<str>) -> Self {
        match (EventKey::new(key), &mut self.event) {
            (Ok(key), Some(event)) => event.key = Some(key),
            (Ok(_), None) => {}
            (Err(error), _) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }
}

impl<Out: DeserializeOwned> Future for ResultCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, other, .. } = self.get_mut();
        let outcome = ready!(pending.poll(context, || {
            Spec::Instance(other.take().expect("a call without an instance was refused"))
        }));
        pending.decode(outcome)
    }
}

impl Future for SendCall {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, event } = self.get_mut();
        let outcome =
            ready!(pending.poll(context, || {
                Spec::Send(event.take().expect("a call without an event was refused"))
            }));
        Poll::Ready(outcome.map(|_| ()))
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instance({}/{})", self.workflow, self.id)
    }
}

impl<Out> fmt::Debug for ResultCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResultCall").field(&self.pending).finish()
    }
}

impl fmt::Debug for SendCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendCall").field(&self.pending).finish()
    }
}
