//! A journal as JSON: what `everstep instances get WORKFLOW ID --journal --output json` prints, which is what the HTTP API
//! says of an instance and its journal. Exports may have the instance's seed besides, without which draws do not come out
//! as they did.

mod hook;
mod ledger;
mod read;
mod saga;
mod write;

use everstep_protocol::{
    BuildName, Call, Epoch, EventKey, EventType, FailureKind, FunctionName, Generation, InstanceId,
    InstanceUid, Namespace, Pin, Pool, Position, Reference, Run, Sent, SessionId, Timestamp, Token,
    WorkflowName,
    hook::{Webhook, WebhookResponse},
    journal::{Entry, Other, ParkCode},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Breach;

/// An instance with its journal.
#[derive(Debug)]
pub struct Saved {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// Its id.
    pub id: InstanceId,
    /// The run whose journal this is.
    pub run: Run,
    /// The generation whose journal this is.
    pub generation: Generation,
    /// To which build it is pinned.
    pub pin: Option<Pin>,
    /// The entries, from the first on.
    pub entries: Vec<Entry>,
    /// The seed is known, so that draws come out as they did.
    pub seeded: bool,
}

#[derive(Serialize, Deserialize)]
struct Text {
    instance: Instance,
    journal: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Instance {
    #[serde(default)]
    namespace: Namespace,
    workflow: WorkflowName,
    id: InstanceId,
    #[serde(default = "one")]
    run: u32,
    #[serde(default = "one")]
    generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin: Option<Pin>,
}

/// Why a text is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It is no journal. Names the entry and the field.
    #[error("{0}")]
    Wrong(String),
    /// What the code is to be given is sensitive, and so not in it (rule P44).
    #[error("{reason}")]
    Hidden {
        /// The instance's workflow.
        workflow: WorkflowName,
        /// Its id.
        id: InstanceId,
        /// To which build it is pinned.
        pin: Option<Pin>,
        /// Names the entry and the field.
        reason: String,
    },
}

impl From<String> for Unread {
    fn from(reason: String) -> Self {
        Self::Wrong(reason)
    }
}

const fn one() -> u32 {
    1
}

/// One entry; which fields it has depends on `kind`.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that it is")]
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Line {
    position: u64,
    at: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    attributes: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    called_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<BuildName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<EventType>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_key: Option<EventKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
    #[serde(deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<Other>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detached: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    only_started: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_for: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<Pool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<FunctionName>,
    #[serde(deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    input: Option<Box<RawValue>>,
    #[serde(deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ParkCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    compensated: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sensitive: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reused: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_lag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    look_first: Option<FunctionName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asks: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hook: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<Webhook>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<WebhookResponse>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compensations: Option<Vec<saga::UndoneLine>>,
}

#[derive(Serialize, Deserialize)]
struct Error {
    kind: FailureKind,
    name: String,
    message: String,
    #[serde(default, deserialize_with = "some", skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    permanent: bool,
    /// Message and data are not in the export (rule P44).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    sensitive: bool,
    /// What is known of its effect (rule L9).
    #[serde(default, skip_serializing_if = "Sent::is_unknown")]
    sent: Sent,
}

impl Saved {
    /// Reads the text; an error names the entry and the field.
    pub fn read(text: &str) -> Result<Self, Unread> {
        let Text { instance, journal } =
            serde_json::from_str(text).map_err(|error| Unread::Wrong(error.to_string()))?;
        let seeded = journal.first().is_some_and(|first| first.seed.is_some());
        let Instance { namespace, workflow, id, run, generation, pin } = instance;
        let mut entries = Vec::with_capacity(journal.len());
        for line in journal {
            let hides = line.hides();
            match line.entry() {
                Ok(entry) => entries.push(entry),
                Err(reason) if hides => return Err(Unread::Hidden { workflow, id, pin, reason }),
                Err(reason) => return Err(Unread::Wrong(reason)),
            }
        }
        for (entry, position) in entries.iter().zip(1..) {
            if entry.position != Position(position) {
                let reason = format!("entry {} stands where entry {position} belongs", entry.position);
                return Err(Unread::Wrong(reason));
            }
        }
        let (run, generation) = (Run(run), Generation(generation));
        Ok(Self { namespace, workflow, id, run, generation, pin, entries, seeded })
    }

    /// Writes the text.
    pub fn write(&self) -> Result<String, String> {
        let instance = Instance {
            namespace: self.namespace.clone(),
            workflow: self.workflow.clone(),
            id: self.id.clone(),
            run: self.run.0,
            generation: self.generation.0,
            pin: self.pin.clone(),
        };
        let journal = self.entries.iter().map(Line::of).collect();
        serde_json::to_string_pretty(&Text { instance, journal }).map_err(|error| error.to_string())
    }

    /// The breach, with what a journal without a seed may explain of it.
    #[must_use]
    pub fn explain(&self, mut breach: Breach) -> Breach {
        if !self.seeded {
            breach.reason.push_str(
                " (the journal has no seed: if the code draws random numbers or ids, they differ because of that)",
            );
        }
        breach
    }

    /// The grant with which a worker would take it up.
    pub fn grant(&self, entries: Vec<Entry>) -> everstep_protocol::message::Grant {
        let last = entries.last();
        everstep_protocol::message::Grant {
            instance: InstanceUid::generate(),
            epoch: Epoch(1),
            namespace: self.namespace.clone(),
            workflow: self.workflow.clone(),
            id: self.id.clone(),
            run: self.run,
            generation: self.generation,
            now: last.map_or(Timestamp(0), |entry| entry.at),
            reports: 0,
            last: last.map_or(Position(0), |entry| entry.position),
            entries,
            direct: false,
            restored_at: None,
        }
    }
}

/// A field that is there and null is not missing.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
