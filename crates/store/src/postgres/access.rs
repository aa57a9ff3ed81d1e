//! Access tokens.

use async_trait::async_trait;
use everstep_engine::{
    access::{Asker, Grant, Kept},
    action::Action,
};
use everstep_protocol::{AccessHash, AccessTokenId, Scope};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    PostgresStore,
    actions::{record, recorded},
    fault::Fault,
    rows::{micros, name, time, time_if_any},
    trip::params,
};
use crate::{AccessRow, AccessTokens, Dated, Error, NewAccess};

macro_rules! columns {
    () => {
        "id, name, role, namespace, hash, created_at, created_by, expires_at, revoked_at, revoked_by, used_at"
    };
}

/// It and its record are one statement, so there is none without one.
const CREATE: &str = concat!(
    "WITH done AS (
        INSERT INTO access_token (id, name, role, namespace, hash, created_at, created_by, expires_at)
        SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bytea, now, $6::text, now + $7::bigint FROM everstep_clock() AS now
        RETURNING created_at AS at, ",
    columns!(),
    "), noted AS (",
    recorded!("$8"),
    ") SELECT ",
    columns!(),
    " FROM done"
);
const ONE: &str = concat!("SELECT ", columns!(), " FROM access_token WHERE id = $1::uuid");
/// By the primary key, whose order is that of the times.
const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM access_token WHERE ($1::text = '*' OR namespace = $1::text) AND ($2::uuid IS NULL OR id < $2::uuid)
    ORDER BY id DESC LIMIT $3::bigint"
);
const REVOKE: &str = concat!(
    "WITH done AS (
        UPDATE access_token SET revoked_at = everstep_clock(), revoked_by = $2::text
        WHERE id = $1::uuid AND revoked_at IS NULL RETURNING revoked_at AS at)",
    recorded!("$3")
);
const USED: &str = "UPDATE access_token SET used_at = everstep_clock() WHERE id = $1::uuid";

#[async_trait]
impl AccessTokens for PostgresStore {
    async fn create_access_token(&self, new: &NewAccess, by: &Asker) -> Result<AccessRow, Error> {
        const DOING: &str = "making an access token";
        let params = params![
            new.id.0,
            new.name.as_str(),
            new.grant.role.word(),
            new.grant.scope.to_string(),
            &new.hash.0[..],
            by.who.as_str(),
            new.lasts.map(micros),
            record(&Action::token_made(by, new.id, new.name.as_str(), &new.grant)),
        ];
        let made = self.read(DOING, CREATE, params, row).await?.pop();
        made.ok_or_else(|| Fault::corrupt("what was written is not there").into_error(DOING))
    }

    async fn access_token(&self, id: AccessTokenId) -> Result<Dated<Option<AccessRow>>, Error> {
        const DOING: &str = "reading an access token";
        let now = self.clock(DOING).await?;
        let what = self.read(DOING, ONE, params![id.0], row).await?.pop();
        Ok(Dated { now, what })
    }

    async fn access_tokens(
        &self,
        within: &Scope,
        before: Option<AccessTokenId>,
        limit: u32,
    ) -> Result<Dated<Vec<AccessRow>>, Error> {
        const DOING: &str = "listing access tokens";
        let now = self.clock(DOING).await?;
        let params = params![within.to_string(), before.map(|id| id.0), i64::from(limit)];
        Ok(Dated { now, what: self.read(DOING, LIST, params, row).await? })
    }

    async fn revoke_access_token(
        &self,
        within: &Scope,
        id: AccessTokenId,
        by: &Asker,
    ) -> Result<Option<AccessRow>, Error> {
        const DOING: &str = "revoking an access token";
        // Where it counts never changes, and says where its end is recorded.
        let found = self.access_token(id).await?.what;
        let Some(found) = found.filter(|row| within.covers(&row.kept.grant.scope)) else { return Ok(None) };
        let action = record(&Action::token_revoked(by, found.kept.grant.scope, id));
        self.execute(DOING, REVOKE, params![id.0, by.who.as_str(), action]).await?;
        Ok(self.access_token(id).await?.what)
    }

    async fn used_access_token(&self, id: AccessTokenId) -> Result<(), Error> {
        self.execute("noting the use of an access token", USED, params![id.0]).await?;
        Ok(())
    }
}

fn row(row: &Row) -> Result<AccessRow, Fault> {
    let hash = row.try_get::<_, &[u8]>(4)?.try_into().map_err(Fault::corrupt)?;
    let kept = Kept {
        hash: AccessHash(hash),
        grant: Grant { role: parsed(row, 2)?, scope: parsed(row, 3)? },
        expires_at: time_if_any(row, 7)?,
        revoked_at: time_if_any(row, 8)?,
    };
    Ok(AccessRow {
        id: AccessTokenId(row.try_get::<_, Uuid>(0)?),
        name: name(row, 1)?,
        kept,
        created_at: time(row, 5)?,
        created_by: row.try_get(6)?,
        revoked_by: row.try_get(9)?,
        used_at: time_if_any(row, 10)?,
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(row: &Row, at: usize) -> Result<T, Fault> {
    row.try_get::<_, &str>(at)?.parse().map_err(Fault::corrupt)
}
