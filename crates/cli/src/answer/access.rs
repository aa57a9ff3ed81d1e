//! What the API tells of access tokens.

use std::fmt;

use serde::Deserialize;

/// An access token; its secret where it was just made.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct AccessToken {
    pub id: String,
    pub name: String,
    pub role: String,
    pub namespace: String,
    pub state: String,
    pub created_at: String,
    pub created_by: String,
    pub expires_at: Option<String>,
    pub used_at: Option<String>,
    pub access_token: Option<String>,
}

/// Without the secret.
impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Access tokens.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "the fields are those of the HTTP API")]
pub struct AccessTokenList {
    pub access_tokens: Vec<AccessToken>,
}
