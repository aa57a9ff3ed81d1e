//! Access tokens.

use everstep_protocol::{AccessTokenId, Role, Scope};
use reqwest::Method;
use serde::Serialize;

use super::{Answer, Api, query};
use crate::error::Error;

/// An access token that is wanted.
#[derive(Clone, Debug, Serialize)]
pub struct WantedAccess {
    /// What people call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it stands for.
    pub role: Role,
    /// How long it opens anything, such as `90d`, or `never` for without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl Api {
    /// Makes an access token for a scope. Its secret is in this answer and never told again: where the answer is lost there may be a
    /// token that nobody has.
    pub async fn create_access_token(&self, scope: &Scope, wanted: &WantedAccess) -> Result<Answer, Error> {
        self.send_once(self.json(Method::POST, self.of_access(scope, None), wanted)?, false).await
    }

    /// Access tokens that count within a scope and nowhere else, newest first.
    pub async fn access_tokens(
        &self,
        scope: &Scope,
        after: Option<AccessTokenId>,
        limit: Option<u32>,
    ) -> Result<Answer, Error> {
        let mut url = self.of_access(scope, None);
        let (after, limit) = (after.map(|id| id.to_string()), limit.map(|limit| limit.to_string()));
        query(&mut url, &[("after", &after), ("limit", &limit)]);
        self.get(url).await
    }

    /// Revokes an access token.
    pub async fn revoke_access_token(&self, scope: &Scope, id: AccessTokenId) -> Result<Answer, Error> {
        self.send(self.http.delete(self.of_access(scope, Some(id)))).await
    }

    fn of_access(&self, scope: &Scope, id: Option<AccessTokenId>) -> reqwest::Url {
        let id = id.map(|id| id.to_string());
        self.url_in(
            &scope.to_string(),
            &["access-tokens"].into_iter().chain(id.as_deref()).collect::<Vec<_>>(),
        )
    }
}
