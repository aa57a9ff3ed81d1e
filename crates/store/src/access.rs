//! Access tokens as they are kept: a row each, which holds a hash and nothing that opens anything.

use async_trait::async_trait;
use everstep_engine::access::{Asker, Kept};
use everstep_protocol::{AccessName, AccessTokenId, Millis, Scope, Timestamp};

use crate::{Dated, Error};

/// An access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessRow {
    /// By what it is known.
    pub id: AccessTokenId,
    /// What people call it.
    pub name: AccessName,
    /// What it opens, and until when.
    pub kept: Kept,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// Who revoked it.
    pub revoked_by: Option<String>,
    /// About when it was used last.
    pub used_at: Option<Timestamp>,
}

/// An access token that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAccess {
    /// By what it is known: never given before.
    pub id: AccessTokenId,
    /// What people call it.
    pub name: AccessName,
    /// Of its secret.
    pub hash: everstep_protocol::AccessHash,
    /// What it stands for.
    pub grant: everstep_engine::access::Grant,
    /// How long it opens anything; none for ever.
    pub lasts: Option<Millis>,
}

/// Access tokens.
#[async_trait]
pub trait AccessTokens: Send + Sync + std::fmt::Debug + 'static {
    /// Keeps a new token, and records that. Errors: [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if there is one of that id.
    async fn create_access_token(&self, new: &NewAccess, by: &Asker) -> Result<AccessRow, Error>;

    /// The token of that id, with the store's time.
    async fn access_token(&self, id: AccessTokenId) -> Result<Dated<Option<AccessRow>>, Error>;

    /// Tokens that count within a scope and nowhere else, newest first, made before the one of that id; all of them for
    /// [`Scope::All`].
    async fn access_tokens(
        &self,
        within: &Scope,
        before: Option<AccessTokenId>,
        limit: u32,
    ) -> Result<Dated<Vec<AccessRow>>, Error>;

    /// Revokes a token that counts within a scope and nowhere else, and records that, unless it was before. None if there is no such token.
    async fn revoke_access_token(
        &self,
        within: &Scope,
        id: AccessTokenId,
        by: &Asker,
    ) -> Result<Option<AccessRow>, Error>;

    /// Notes that a token was used, for whoever looks for those that nobody needs.
    async fn used_access_token(&self, id: AccessTokenId) -> Result<(), Error>;
}
