//! Access tokens: how they are made, and what a presented one is worth.
//!
//! What the store says of a token is believed for [`FRESH`], so that a revoked one opens nothing after that on any coordinator, and
//! a busy client costs no read a request. What is kept here is what the store keeps: hashes.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everstep_engine::access::{self, Asker, Denied, Grant};
use everstep_protocol::{
    AccessName, AccessToken, AccessTokenId, Millis, Role, Scope, Timestamp, crash::around,
};
use everstep_store::{AccessRow, NewAccess, Store};
use tokio::time::Instant;
use uuid::Uuid;

use crate::Error;

/// How long an answer of the store is believed.
const FRESH: Duration = Duration::from_secs(2);
/// How exact the time of the last use is.
const USED_WITHIN: Millis = Millis::from_secs(300);
/// Tokens, known and unknown ones, that are kept in mind at once.
const HELD_MAX: usize = 1_000;

/// Makes an access token. Only the answer has its secret.
///
/// Errors: the store's. If its answer was lost, there may be a token that nobody has: list them, and revoke it.
pub async fn issue(
    store: &dyn Store,
    name: AccessName,
    grant: Grant,
    lasts: Option<Millis>,
    by: &Asker,
) -> Result<(AccessToken, AccessRow), everstep_store::Error> {
    let token = AccessToken::new(AccessTokenId(Uuid::now_v7()), rand::random());
    let new = NewAccess { id: token.id(), name, hash: token.hash(), grant, lasts };
    let row = around("commit.access_token_made", store.create_access_token(&new, by)).await?;
    Ok((token, row))
}

/// Whoever is behind a request, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Who.
    pub(crate) who: String,
    /// What it may do.
    pub(crate) grants: Vec<Grant>,
}

impl Caller {
    /// Somebody of whom nothing is asked.
    pub(crate) fn anonymous() -> Self {
        Self { who: access::ANONYMOUS.to_owned(), grants: Vec::new() }
    }

    pub(crate) fn allows(&self, role: Role, scope: &Scope) -> bool {
        self.grants.iter().any(|grant| grant.allows(role, scope))
    }
}

/// What the store has said of tokens lately.
#[derive(Debug, Default)]
pub(crate) struct Keyring(Mutex<HashMap<AccessTokenId, Held>>);

#[derive(Clone, Debug)]
struct Held {
    row: Option<AccessRow>,
    /// The store's time when it said so, and ours.
    now: Timestamp,
    read: Instant,
}

impl Held {
    fn now(&self) -> Timestamp {
        self.now.plus(Millis(u64::try_from(self.read.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Keyring {
    /// What a token is worth.
    ///
    /// Errors: the store cannot say.
    pub(crate) async fn admit(
        &self,
        store: &dyn Store,
        token: &AccessToken,
    ) -> Result<Result<Caller, Denied>, Error> {
        let held = match self.fresh(token.id()) {
            Some(held) => held,
            None => self.read(store, token.id()).await?,
        };
        let now = held.now();
        let kept = held.row.as_ref().map(|row| &row.kept);
        let admitted = access::admit(kept, &token.hash(), now);
        let Some(row) = held.row else { return Ok(Err(Denied::Unknown)) };
        Ok(match admitted {
            Ok(grant) => {
                if row.used_at.is_none_or(|at| at <= now.minus(USED_WITHIN)) {
                    self.note_use(store, token.id(), now).await;
                }
                Ok(Caller { who: format!("{} ({})", row.name, row.id), grants: vec![grant] })
            }
            Err(denied) => Err(denied),
        })
    }

    /// Whether it was seen to be good, be that over by now: what is not is a guess.
    pub(crate) fn knows(&self, token: &AccessToken) -> bool {
        let held = self.held();
        let row = held.get(&token.id()).and_then(|held| held.row.as_ref());
        row.is_some_and(|row| row.kept.hash == token.hash())
    }

    /// What was known of a token is not true any more.
    pub(crate) fn forget(&self, id: AccessTokenId) {
        self.held().remove(&id);
    }

    fn fresh(&self, id: AccessTokenId) -> Option<Held> {
        self.held().get(&id).filter(|held| held.read.elapsed() < FRESH).cloned()
    }

    async fn read(&self, store: &dyn Store, id: AccessTokenId) -> Result<Held, Error> {
        // From before the question on: what is revoked meanwhile is believed no longer for that.
        let read = Instant::now();
        let found = store.access_token(id).await?;
        let fresh = Held { row: found.what, now: found.now, read };
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            held.retain(|_, held| held.read.elapsed() < FRESH);
        }
        if held.len() >= HELD_MAX {
            held.clear();
        }
        held.insert(id, fresh.clone());
        Ok(fresh)
    }

    /// Nobody has to wait for this to succeed, or is refused because it did not.
    async fn note_use(&self, store: &dyn Store, id: AccessTokenId, now: Timestamp) {
        if let Some(row) = self.held().get_mut(&id).and_then(|held| held.row.as_mut()) {
            row.used_at = Some(now);
        }
        if let Err(error) = around("commit.access_token_used", store.used_access_token(id)).await {
            tracing::debug!(%error, "the use of an access token was not noted");
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<AccessTokenId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    //! Proves for how long an answer is believed, and that what is kept in mind is bounded. What a token is worth: the engine's tests.
    use std::sync::Arc;

    use everstep_store::{AccessTokens, sqlite::SqliteStore};

    use super::*;

    fn store() -> SqliteStore {
        SqliteStore::in_memory(Arc::new(|| Timestamp(1_000_000_000)), Arc::new(|| ())).unwrap()
    }

    fn ann() -> Asker {
        Asker { who: "ann".to_owned(), from: "here".to_owned() }
    }

    async fn issued(store: &SqliteStore, lasts: Option<Millis>) -> AccessToken {
        let grant = Grant { role: Role::Viewer, scope: Scope::All };
        issue(store, "ci".parse().unwrap(), grant, lasts, &ann()).await.unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn a03_a_revoked_token_opens_nothing_after_two_seconds() {
        let (store, keys) = (store(), Keyring::default());
        let token = issued(&store, None).await;
        let caller = keys.admit(&store, &token).await.unwrap().unwrap();
        assert_eq!(caller.who, format!("ci ({})", token.id()));
        store.revoke_access_token(&Scope::All, token.id(), &ann()).await.unwrap();
        tokio::time::advance(FRESH.saturating_sub(Duration::from_millis(1))).await;
        assert!(keys.admit(&store, &token).await.unwrap().is_ok(), "it is believed meanwhile");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(keys.admit(&store, &token).await.unwrap(), Err(Denied::Revoked));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_is_asked_for_again() {
        let (store, keys) = (store(), Keyring::default());
        let token = issued(&store, None).await;
        assert!(keys.admit(&store, &token).await.unwrap().is_ok());
        store.revoke_access_token(&Scope::All, token.id(), &ann()).await.unwrap();
        keys.forget(token.id());
        assert_eq!(keys.admit(&store, &token).await.unwrap(), Err(Denied::Revoked));
    }

    #[tokio::test(start_paused = true)]
    async fn a03_a_token_expires_while_it_is_kept_in_mind() {
        let (store, keys) = (store(), Keyring::default());
        let token = issued(&store, Some(Millis(1_000))).await;
        assert!(keys.admit(&store, &token).await.unwrap().is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(keys.admit(&store, &token).await.unwrap(), Err(Denied::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn the_use_is_noted_once_in_a_while() {
        let (store, keys) = (store(), Keyring::default());
        let token = issued(&store, None).await;
        assert!(keys.admit(&store, &token).await.unwrap().is_ok());
        assert!(store.access_token(token.id()).await.unwrap().what.unwrap().used_at.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_tokens_fill_nothing() {
        let (store, keys) = (store(), Keyring::default());
        for _ in 0..3 * HELD_MAX {
            let token = AccessToken::new(AccessTokenId(Uuid::now_v7()), [1; 32]);
            assert_eq!(keys.admit(&store, &token).await.unwrap(), Err(Denied::Unknown));
        }
        assert!(keys.held().len() <= HELD_MAX);
    }
}
