//! The audit log as it is kept: a row for each action, which nobody changes (rule A6).

use async_trait::async_trait;
use everstep_protocol::{Scope, Timestamp};

use crate::Error;

/// A record of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRow {
    /// Its number: later records have higher ones.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// In which namespace; all for what belongs to none.
    pub scope: Scope,
    /// To what.
    pub target: String,
    /// What was done, in a word.
    pub operation: String,
    /// Who did it.
    pub who: String,
    /// From where.
    pub from: String,
    /// Who asked for it as the request says.
    pub named: Option<String>,
    /// What came of it.
    pub outcome: String,
    /// What more there is to say.
    pub detail: Option<String>,
}

/// Which records of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionFilter {
    /// Those of this namespace; all of them for [`Scope::All`].
    pub within: Scope,
    /// To this target.
    pub target: Option<String>,
    /// By whom: all that is known of them, or an access token's name alone.
    pub who: Option<String>,
    /// Of this operation.
    pub operation: Option<String>,
    /// From this moment on.
    pub from: Option<Timestamp>,
    /// Before this moment.
    pub before: Option<Timestamp>,
}

impl ActionFilter {
    /// All records of a scope.
    #[must_use]
    pub const fn within(within: Scope) -> Self {
        Self { within, target: None, who: None, operation: None, from: None, before: None }
    }
}

/// The audit log. Its records are written by what they are about.
#[async_trait]
pub trait Actions: Send + Sync + std::fmt::Debug + 'static {
    /// Records, newest first, below a number.
    async fn actions(
        &self,
        filter: &ActionFilter,
        below: Option<u64>,
        limit: u32,
    ) -> Result<Vec<ActionRow>, Error>;
}
