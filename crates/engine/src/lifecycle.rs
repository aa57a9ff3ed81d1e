//! What the world is told of an instance's life: written to the outbox in the transaction that made it true.

use everstep_protocol::{Failure, InstanceUid, Payload, Timestamp, journal::End};
use serde::Serialize;

use crate::head::Head;

/// A lifecycle message: at least once, with a stable id by which receivers drop repeats.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifecycle {
    /// The instance.
    pub instance: InstanceUid,
    /// Its head when it ended.
    pub head: Box<Head>,
    /// How it ended.
    pub end: End,
    /// When.
    pub at: Timestamp,
}

impl Lifecycle {
    /// The stable id of the message: the same whenever it is sent again.
    #[must_use]
    pub fn message_id(&self) -> String {
        format!("{}-{}-ended", self.instance, self.head.run)
    }

    /// The routing key: `{namespace}.{workflow}.{status}`.
    #[must_use]
    pub fn routing_key(&self) -> String {
        format!("{}.{}.{}", self.head.namespace, self.head.workflow, self.head.status.word())
    }

    /// The message's JSON body: a contract with every receiver, so fields are only ever added.
    #[must_use]
    pub fn body(&self) -> String {
        let (output, error, reason) = match &self.end {
            End::Complete(output) => (Some(output), None, None),
            End::Errored(failure) => (None, Some(failure), None),
            End::Terminated { reason } | End::Cancelled { reason } => (None, None, reason.as_deref()),
        };
        let body = Body {
            namespace: self.head.namespace.as_ref(),
            workflow: self.head.workflow.as_ref(),
            id: self.head.id.as_ref(),
            run: self.head.run.0,
            status: self.head.status.word(),
            output: output.map(raw),
            error: error.map(Error::from),
            reason,
            created_at: self.head.created_at.to_string(),
            ended_at: self.at.to_string(),
        };
        serde_json::to_string(&body).expect("names, numbers and checked JSON text always encode")
    }
}

#[derive(Serialize)]
struct Body<'a> {
    namespace: &'a str,
    workflow: &'a str,
    id: &'a str,
    run: u32,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<serde_json::value::RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    created_at: String,
    ended_at: String,
}

#[derive(Serialize)]
struct Error<'a> {
    name: &'a str,
    message: &'a str,
    kind: everstep_protocol::FailureKind,
}

impl<'a> From<&'a Failure> for Error<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self { name: &failure.name, message: failure.shown_message(), kind: failure.kind }
    }
}

fn raw(payload: &Payload) -> Box<serde_json::value::RawValue> {
    serde_json::value::RawValue::from_string(payload.as_str().to_owned()).expect("a payload is JSON text")
}
