//! Access tokens.

use async_trait::async_trait;
use everstep_engine::{
    access::{Asker, Grant, Kept},
    action::Action,
};
use everstep_protocol::{AccessHash, AccessTokenId, Scope, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::{SqliteStore, actions::record, column, fault};
use crate::{AccessRow, AccessTokens, Dated, Error, NewAccess};

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, name, role, namespace, hash, created_at, created_by, expires_at, revoked_at, revoked_by, used_at
            FROM access_token ",
            $rest
        )
    };
}

const CREATE: &str = "INSERT INTO access_token
    (id, name, role, namespace, hash, created_at, created_by, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const ONE: &str = select!("WHERE id = ?1");
/// By the primary key, whose order is that of the times.
const LIST: &str =
    select!("WHERE (?1 = '*' OR namespace = ?1) AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3");
const REVOKE: &str = "UPDATE access_token SET revoked_at = ?3, revoked_by = ?4
    WHERE id = ?2 AND (?1 = '*' OR namespace = ?1) AND revoked_at IS NULL";
const USED: &str = "UPDATE access_token SET used_at = ?2 WHERE id = ?1";

#[async_trait]
impl AccessTokens for SqliteStore {
    async fn create_access_token(&self, new: &NewAccess, by: &Asker) -> Result<AccessRow, Error> {
        let (new, by) = (new.clone(), by.clone());
        let work = move |connection: &Connection, now: Timestamp| {
            let NewAccess { id, name, hash, grant, lasts } = &new;
            let expires_at = lasts.map(|lasts| now.plus(lasts).0);
            let (id_bytes, scope) = (id.0.as_bytes(), grant.scope.to_string());
            let role = grant.role.word();
            let values = params![id_bytes, name.as_str(), role, scope, hash.0, now.0, by.who, expires_at];
            let made = connection.prepare_cached(CREATE)?.execute(values);
            made.map_err(|error| fault::Fault::or_taken(error, "making an access token"))?;
            record(connection, &Action::token_made(&by, *id, name.as_str(), grant), now)?;
            one(connection, *id)?.ok_or_else(|| {
                fault::Fault::corrupt("making an access token", "what was written is not there")
            })
        };
        self.writer.write("making an access token", work).await
    }

    async fn access_token(&self, id: AccessTokenId) -> Result<Dated<Option<AccessRow>>, Error> {
        let now = self.clock.now();
        let work = move |connection: &Connection| Ok(Dated { now, what: one(connection, id)? });
        self.reader.read("reading an access token", work).await
    }

    async fn access_tokens(
        &self,
        within: &Scope,
        before: Option<AccessTokenId>,
        limit: u32,
    ) -> Result<Dated<Vec<AccessRow>>, Error> {
        let (within, now) = (within.to_string(), self.clock.now());
        let before = before.map(|id| id.0.into_bytes());
        let work = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(LIST)?;
            let mut found = statement.query(params![within, before, limit])?;
            let mut what = Vec::new();
            while let Some(found) = found.next()? {
                what.push(row(found)?);
            }
            Ok(Dated { now, what })
        };
        self.viewer.read("listing access tokens", work).await
    }

    async fn revoke_access_token(
        &self,
        within: &Scope,
        id: AccessTokenId,
        by: &Asker,
    ) -> Result<Option<AccessRow>, Error> {
        let (within, by) = (within.clone(), by.clone());
        let work = move |connection: &Connection, now: Timestamp| {
            let values = params![within.to_string(), id.0.as_bytes(), now.0, by.who];
            let revoked = connection.prepare_cached(REVOKE)?.execute(values)? == 1;
            let found = one(connection, id)?.filter(|row| within.covers(&row.kept.grant.scope));
            if let Some(row) = found.as_ref().filter(|_| revoked) {
                record(connection, &Action::token_revoked(&by, row.kept.grant.scope.clone(), id), now)?;
            }
            Ok(found)
        };
        self.writer.write("revoking an access token", work).await
    }

    async fn used_access_token(&self, id: AccessTokenId) -> Result<(), Error> {
        let work = move |connection: &Connection, now: Timestamp| {
            connection.prepare_cached(USED)?.execute(params![id.0.as_bytes(), now.0])?;
            Ok(())
        };
        self.writer.write("noting the use of an access token", work).await
    }
}

fn one(connection: &Connection, id: AccessTokenId) -> fault::Result<Option<AccessRow>> {
    let mut statement = connection.prepare_cached(ONE)?;
    statement.query_row(params![id.0.as_bytes()], |found| Ok(row(found))).optional()?.transpose()
}

fn row(row: &Row<'_>) -> fault::Result<AccessRow> {
    let kept = Kept {
        hash: AccessHash(row.get(4)?),
        grant: Grant { role: parsed(row, 2)?, scope: parsed(row, 3)? },
        expires_at: column::time_if_any(row, 7)?,
        revoked_at: column::time_if_any(row, 8)?,
    };
    Ok(AccessRow {
        id: AccessTokenId(Uuid::from_bytes(row.get(0)?)),
        name: column::name(row, 1)?,
        kept,
        created_at: column::time(row, 5)?,
        created_by: row.get(6)?,
        revoked_by: row.get(9)?,
        used_at: column::time_if_any(row, 10)?,
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(row: &Row<'_>, at: usize) -> fault::Result<T> {
    column::text(row, at)?.parse().map_err(|error| fault::Fault::corrupt("reading a word", error))
}
