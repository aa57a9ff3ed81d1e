//! Hooks as they are stored: one row a token that somebody owns (rules H1 to H70).
//!
//! | who | does what to a row |
//! | --- | --- |
//! | a start, a report that opens a hook | inserts it, if there is none, or one that is free |
//! | its owner, in a decision of its own | lets it go, keeps it after its end, moves it to a claimant |
//! | whoever claims a token that is free, the duty `clean` | deletes it: its owner has ended, and its retention is over |
//! | an answer to a claim whose claimant is gone, whoever claims the token before that | deletes what that one got |
//!
//! Nobody else changes one. The owner's head lock protects what has not ended; the others look again as they delete. Two claims of a
//! free token meet in its key.

use everstep_protocol::{
    Fingerprint, HookId, InstanceUid, Millis, Namespace, Payload, Timestamp, Token,
    hook::{HookError, HookRetention, Registration, Webhook, check_metadata, check_schema},
    journal::Other,
};
use serde::{Deserialize, Serialize};

use crate::{head::Head, mailbox::EventId};

/// By what a hook is found.
pub type TokenKey = (Namespace, Token);

/// A token that an instance owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRow {
    /// The owner.
    pub owner: InstanceUid,
    /// The owner's workflow and id: not in the row itself, since they never change.
    pub name: Other,
    /// Which of the owner's hooks.
    pub id: HookId,
    /// Since when.
    pub since: Timestamp,
    /// Until when it is kept if the owner ends without letting it go.
    pub retain_until: Option<Timestamp>,
    /// The owner has ended, and keeps it by its retention alone.
    pub ended: bool,
    /// What a webhook answers, if it is one.
    pub webhook: Option<Webhook>,
    /// What whoever looks it up reads.
    pub metadata: Option<Payload>,
    /// The JSON Schema that every payload must fit: whoever resumes the hook looks, before it is kept (rule H57).
    pub schema: Option<Payload>,
    /// From whom it was taken (rule H70).
    pub from: Option<Other>,
    /// It was moved to the owner by a forced claim, and what the owner was to hear of it has not been made use of: nobody has relied on it
    /// otherwise, so that an answer which finds nobody waiting gives it back.
    pub unheard: bool,
}

impl HookRow {
    /// Whether anybody may claim the token, though nobody has removed the row (rule H19).
    #[must_use]
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.ended && self.retain_until.is_none_or(|until| until <= now)
    }
}

/// Why a row is deleted: by its owner, or because it is free. The statement looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookEnd {
    /// The owner lets it go, or moves it, or was deleted: nobody else can have that id again.
    Own,
    /// The owner has ended and its retention is over.
    Free,
}

/// The request of a webhook that is answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyKey {
    /// The instance.
    pub instance: InstanceUid,
    /// The token that it came for.
    pub token: Token,
    /// Its id.
    pub id: String,
}

impl ReplyKey {
    /// By what the request is known among the events of its instance.
    #[must_use]
    pub fn event_id(&self) -> EventId {
        event_id(&self.token, "", &self.id)
    }
}

/// No application of a user can have this name.
fn event_id(token: &Token, app_id: &str, id: &str) -> EventId {
    let app_id = match app_id {
        "" => format!("\u{1}hook:{token}"),
        // No token has this character, so that two never come to the same.
        app_id => format!("\u{1}hook:{token}\u{1}{app_id}"),
    };
    EventId { app_id, id: id.to_owned() }
}

/// What somebody resumes a hook with, after the checks at the edge. Stores keep what is in a letter as it is written here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentPayload {
    /// The token.
    pub token: Token,
    /// The hook that had the token when its owner was looked up.
    pub hook: HookId,
    /// The application id of an AMQP message, or of whatever else numbers its resumes by itself; empty if there is none.
    pub app_id: String,
    /// By what a repetition is known, among those of the application (rule H48).
    pub id: String,
    /// What it says.
    pub payload: Payload,
    /// The fingerprint of the payload.
    pub fingerprint: Fingerprint,
}

impl SentPayload {
    /// By what it is known among the events of its instance.
    pub(crate) fn event_id(&self) -> EventId {
        event_id(&self.token, &self.app_id, &self.id)
    }
}

/// A forced claim on its way between claimant and owner. Stores keep it as it is written here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The claimant's namespace.
    pub namespace: Namespace,
    /// The claimant.
    pub claimant: Other,
    /// The claimant's hook.
    pub hook: HookId,
    /// What it asked for.
    pub asked: Registration,
    /// The hook that had the token when the claim was made.
    pub held: HookId,
}

/// Whether a hook may have this metadata and this schema, for which `compiles` says why it cannot be used: the same for all who ask for one,
/// a start, a body, and a body for its child (rules H11, H57).
pub fn acceptable(
    metadata: Option<&Payload>,
    schema: Option<&Payload>,
    compiles: impl Fn(&Payload) -> Result<(), String>,
) -> Result<(), HookError> {
    metadata.map_or(Ok(()), check_metadata)?;
    let Some(schema) = schema else { return Ok(()) };
    check_schema(schema)?;
    compiles(schema).map_err(HookError::Schema)
}

/// When a retention is over. Not one that is not in the future, or longer than `longest` (rules H30, H54).
pub(crate) fn retained(
    retention: Option<HookRetention>,
    now: Timestamp,
    longest: Millis,
) -> Result<Option<Timestamp>, String> {
    let Some(retention) = retention else { return Ok(None) };
    let until = retention.until(now);
    if until <= now {
        return Err(format!("the retention of the hook ends at {until}, which is not in the future"));
    }
    if until > now.plus(longest) {
        return Err(format!("the retention of the hook ends at {until}, the longest is {longest}"));
    }
    Ok(Some(until))
}

/// An instance's name as others of its namespace know it.
pub(crate) fn name_of(head: &Head) -> Other {
    Other { workflow: head.workflow.clone(), id: head.id.clone() }
}
