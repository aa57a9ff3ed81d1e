//! Access tokens, as the API asks of them.

use everstep_engine::access::{Asker, Denied, Grant};
use everstep_protocol::{AccessName, AccessToken, AccessTokenId, Millis, Scope, crash::around};
use everstep_store::AccessRow;

use super::Handle;
use crate::{
    access::{self, Caller},
    error::Error,
};

impl Handle {
    /// What a presented token is worth.
    pub(crate) async fn admit(&self, token: &AccessToken) -> Result<Result<Caller, Denied>, Error> {
        self.shared.keys.admit(&*self.shared.store, token).await
    }

    /// Whether a presented token is no guess.
    pub(crate) fn knows(&self, token: &AccessToken) -> bool {
        self.shared.keys.knows(token)
    }

    /// Counts a request that was refused since its caller asks too fast.
    pub(crate) fn limited(&self, of: &'static str) {
        self.shared.metrics.limited.inc(of);
    }

    /// Makes an access token.
    pub(crate) async fn issue_access_token(
        &self,
        name: AccessName,
        grant: Grant,
        lasts: Option<Millis>,
        by: &Asker,
    ) -> Result<(AccessToken, AccessRow), Error> {
        Ok(access::issue(&*self.shared.store, name, grant, lasts, by).await?)
    }

    /// Revokes an access token that counts within a scope. None if there is none.
    pub(crate) async fn revoke_access_token(
        &self,
        within: &Scope,
        id: AccessTokenId,
        by: &Asker,
    ) -> Result<Option<AccessRow>, Error> {
        let revoking = self.shared.store.revoke_access_token(within, id, by);
        let revoked = around("commit.access_token_revoked", revoking).await?;
        self.shared.keys.forget(id);
        Ok(revoked)
    }
}
