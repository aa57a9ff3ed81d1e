//! What the journal says of hooks: what came of each that the body created, what it was resumed with, who took it. Not: who has a
//! token now, which a row says.

use serde::{Deserialize, Serialize};

use super::Other;
use crate::{Call, Failure, Fingerprint, HookId, Payload, Timestamp, Token, hook::WebhookResponse};

/// A wait for what a hook is resumed with. It has no time of its own: it ends when a payload comes, and is `fired` if the hook is
/// over and nothing unread is left of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaiting {
    /// Which hook: as it was registered, or [`HookId::START`].
    pub hook: HookId,
    /// Its token.
    pub token: Token,
}

/// What the code answers whoever sent a webhook its request. It waits for nothing: its entry is all that is to come of it, and the
/// first answer to a request is the one that counts (rule H58).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The token that the request came for.
    pub token: Token,
    /// The request's id.
    pub id: String,
    /// The answer.
    pub response: WebhookResponse,
}

/// A payload for the hook of whoever has a token of the instance's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resuming {
    /// The token.
    pub token: Token,
    /// What the hook is resumed with.
    pub payload: Payload,
    /// The fingerprint of the payload.
    pub fingerprint: Fingerprint,
}

/// What came of a hook that the body created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    /// The call that created it.
    pub call: Call,
    /// What came of it.
    pub outcome: HookOutcome,
}

/// What came of a hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    /// The token is the instance's.
    Owned {
        /// The hook's id: of this creation, or of the one before by this very instance that goes on (rule H40).
        hook: HookId,
        /// From whom it was taken (rule H70).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Other>,
    },
    /// Another instance has the token (rules H32, H37).
    Conflict {
        /// Which one.
        owner: Other,
    },
    /// It cannot be had as it was asked for.
    Refused(Failure),
}

/// What a hook was resumed with, as the call that waited for it got it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// The call that waited.
    pub call: Call,
    /// The hook.
    pub hook: HookId,
    /// Its number among the events and payloads of the instance, from 1, in the order in which they were accepted.
    pub sequence: u64,
    /// Its sender's id for it.
    pub id: String,
    /// When it was accepted.
    pub received_at: Timestamp,
    /// What it says.
    pub payload: Payload,
}

/// Another instance has taken the token of a hook: what was accepted before is still received, then its waits fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The hook that is over.
    pub hook: HookId,
    /// Who has the token now.
    pub by: Other,
    /// That one's hook.
    pub by_hook: HookId,
}
