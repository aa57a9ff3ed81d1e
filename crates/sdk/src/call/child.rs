//! Children: instances that a workflow starts (rule P36).

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::duration::{IntoMillis, SLEEP_MAX};
use everstep_protocol::hook::{HookRetention, StartHook};
use everstep_protocol::{FailureKind, InstanceId, Payload, Token, WorkflowName, child_id, journal::Other};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::hook::{check_moment, encode_metadata, encode_schema};
use super::{Instance, IntoRetention, Pending};
use crate::Error;
use crate::host::{ChildSpec, Spec};

/// A child: awaiting it starts another instance and gives its output, or the error that it ended with. From
/// [`Workflow::child`](crate::Workflow::child).
#[must_use = "a child is not started until this is awaited"]
pub struct ChildCall<Out> {
    pending: Pending,
    child: Option<ChildSpec>,
    retention: Option<HookRetention>,
    metadata: Option<Payload>,
    schema: Option<Payload>,
    output: PhantomData<fn() -> Out>,
}

/// A child that is only started: awaiting it gives a handle on it. From [`ChildCall::start`].
#[must_use = "a child is not started until this is awaited"]
pub struct Starting(ChildCall<Other>);

impl<Out> ChildCall<Out> {
    pub(crate) fn new(mut pending: Pending, workflow: &str, input: Option<Payload>) -> Self {
        let workflow =
            WorkflowName::new(workflow).map_err(|error| pending.refuse(FailureKind::Invalid, error)).ok();
        let info = &pending.shared().info;
        let id = pending.call().map(|call| child_id(info.uid, info.run, info.generation, call.hash()));
        let child = match (workflow, id, input) {
            (Some(workflow), Some(id), Some(input)) => Some(ChildSpec {
                workflow,
                id,
                input,
                detached: false,
                only_started: false,
                hook: None,
                keep_for: None,
            }),
            _ => None,
        };
        Self { pending, child, retention: None, metadata: None, schema: None, output: PhantomData }
    }

    /// The child's id, 1 to 100 of letters, digits, `_`, `-`, `.` and `:`. Without it the id follows from the call, so that a run
    /// that begins again has children of its own.
    ///
    /// An instance of that id and the same input is met as it is, whoever started it: the call gets its result, and it does not
    /// become a child. With another input the call fails with an error whose name is `InstanceConflict`.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        let info = &self.pending.shared().info;
        match (InstanceId::new(id), &mut self.child) {
            (Ok(id), Some(child)) if id == info.id && child.workflow == info.workflow => {
                self.pending.refuse(FailureKind::Invalid, "an instance cannot be its own child");
            }
            (Ok(id), Some(child)) => child.id = id,
            (Ok(_), None) => {}
            (Err(error), _) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// The child is the one effect of this key, whichever instances call it, and however often (rule L4): the first call starts it, and
    /// every call of the same workflow, key and input gets its result, now or when it has ended. The same as [`id`](Self::id) and
    /// [`detached`](Self::detached), since what several instances wait for ends with none of them.
    ///
    /// The key is free again when the child is deleted: say [how long](Self::keep_for) it must answer. A failure is an answer as well.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, invoice: u64) -> Result<String, Error> {
    /// cx.child("charge", "charge-invoice", invoice)
    ///     .ledger_key(format!("invoice:{invoice}"))
    ///     .keep_for("400 days")
    ///     .await
    /// # }
    /// ```
    pub fn ledger_key(self, key: impl AsRef<str>) -> Self {
        self.id(key).detached()
    }

    /// How long the child is kept after its end, whatever that is: at most ten years. Default: as long as the installation keeps
    /// instances of its workflow. One that exists already keeps its own.
    pub fn keep_for(mut self, length: impl IntoMillis) -> Self {
        match (length.into_millis(), &mut self.child) {
            (Ok(length), _) if length > SLEEP_MAX => {
                let reason = format!("keep_for {length} is refused, the longest is {SLEEP_MAX}");
                self.pending.refuse(FailureKind::Invalid, reason);
            }
            (Ok(length), Some(child)) => child.keep_for = Some(length),
            (Ok(_), None) => {}
            (Err(error), _) => self.pending.refuse(FailureKind::Invalid, format!("keep_for: {error}")),
        }
        self
    }

    /// Starts it with this token, of 1 to 256 characters (rule H28): from the moment in which it exists the token is its own, and
    /// whoever knows it can [resume](crate::Workflow::resume_hook) it. While another instance of the namespace has the token nothing is
    /// started, and the call fails with an error that names that one ([`Error::hook_conflict`]).
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<String, Error> {
    /// let fulfilment = cx.child::<()>("fulfil", "fulfil", order).token(format!("order:{order}")).detached();
    /// match fulfilment.start().await {
    ///     Ok(started) => Ok(started.id().to_owned()),
    ///     Err(error) => match error.hook_conflict() {
    ///         Some(conflict) => Ok(conflict.owner.id),
    ///         None => Err(error),
    ///     },
    /// }
    /// # }
    /// ```
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        match (Token::new(token), &mut self.child) {
            (Ok(token), Some(child)) => {
                child.hook = Some(StartHook::new(token));
            }
            (Ok(_), None) => {}
            (Err(error), _) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// For how long, from its start, the [`token`](Self::token) stays the child's although that has ended: a duration as for a sleep, or
    /// a moment. Default: none, the token is free when the child ends.
    pub fn retention(mut self, retention: impl IntoRetention) -> Self {
        match retention.into_retention() {
            Ok(retention) => self.retention = Some(retention),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// What whoever looks the [`token`](Self::token) up reads: any value of at most 16 KiB of JSON.
    pub fn metadata(mut self, metadata: &impl Serialize) -> Self {
        self.metadata = encode_metadata(&mut self.pending, metadata);
        self
    }

    /// The JSON Schema that every payload for the [`token`](Self::token) must fit: one that does not is refused when it is sent, and nothing
    /// is kept of it (rule H57). At most 64 KiB of JSON, without references to anything outside of it. With a schema that cannot be used
    /// nothing is started, and the call fails.
    pub fn schema(mut self, schema: &impl Serialize) -> Self {
        self.schema = encode_schema(&mut self.pending, schema);
        self
    }

    /// The JSON Schema of this type, which need not be the one that the child's code receives; see [`schema`](Self::schema).
    #[cfg(feature = "schemars")]
    pub fn schema_of<S: schemars::JsonSchema>(self) -> Self {
        self.schema(&schemars::schema_for!(S))
    }

    /// What ends, cancels or restarts this instance leaves the child alone, and so does dropping the call.
    pub fn detached(mut self) -> Self {
        if let Some(child) = &mut self.child {
            child.detached = true;
        }
        self
    }

    /// Awaits only that the child exists, and gives a handle on it. It goes on by itself: whoever wants its result awaits
    /// [`Instance::result`].
    pub fn start(mut self) -> Starting {
        if let Some(child) = &mut self.child {
            child.only_started = true;
        }
        let Self { pending, child, retention, metadata, schema, .. } = self;
        Starting(ChildCall { pending, child, retention, metadata, schema, output: PhantomData })
    }

    /// What was said of the hook, in whatever order, becomes part of the child; refused where there is no token (rule H30).
    fn complete(&mut self) {
        let Some(child) = &mut self.child else { return };
        match &mut child.hook {
            Some(hook) => {
                if let Err(reason) = check_moment(self.pending.shared(), self.retention) {
                    self.pending.refuse(FailureKind::Invalid, reason);
                }
                hook.retention = self.retention;
                (hook.metadata, hook.schema) = (self.metadata.take(), self.schema.take());
            }
            None if self.retention.is_some() || self.metadata.is_some() || self.schema.is_some() => {
                let reason = "retention, metadata and schema are a token's, and none is given";
                self.pending.refuse(FailureKind::Invalid, reason);
            }
            None => {}
        }
    }
}

impl<Out: DeserializeOwned> Future for ChildCall<Out> {
    type Output = Result<Out, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if this.pending.is_made() {
            this.complete();
        }
        let Self { pending, child, .. } = this;
        let outcome =
            ready!(pending.poll(context, || {
                Spec::Child(child.take().expect("a call without a child was refused"))
            }));
        pending.decode(outcome)
    }
}

impl Future for Starting {
    type Output = Result<Instance, Error>;

    /// The handle is made of what was recorded: a run that keeps the record keeps the child, whatever its own would be.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let starting = &mut self.get_mut().0;
        let started = ready!(Pin::new(&mut *starting).poll(context));
        Poll::Ready(started.map(|other| Instance::of(starting.pending.shared(), other)))
    }
}

impl<Out> fmt::Debug for ChildCall<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildCall").field(&self.pending).finish()
    }
}

impl fmt::Debug for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Starting").field(&self.0.pending).finish()
    }
}
