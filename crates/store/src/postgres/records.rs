//! Outbox, rejected messages, cleaning.

use async_trait::async_trait;
use everstep_protocol::{InstanceUid, Millis, Namespace, Run};
use uuid::Uuid;

use super::{
    PostgresStore,
    rows::{clean, micros, uid},
    statements as sql,
    trip::params,
};
use crate::{BODY_BYTES_MAX, Error, OutboxRow, RECORD_BYTES, Records, Rejected, answer};

const REJECT: &str = include_str!("sql/reject.sql");
const OUTBOX: &str = "SELECT instance, run, routing_key, message_id, body FROM outbox
    WHERE created_at <= (SELECT everstep_clock()) - $1::bigint ORDER BY created_at LIMIT $2::bigint";

/// By the index `rejected_by_namespace`, which has all that is read.
const REJECTED_BYTES: &str = "SELECT (
        SELECT coalesce(sum(least(r.body_bytes, $2::bigint) + $3::bigint), 0)::bigint
        FROM rejected r WHERE r.namespace = k.namespace
    )
    FROM unnest($1::text[]) WITH ORDINALITY AS k (namespace, nth) ORDER BY k.nth";

/// Deletes those rows of a table whose places a query gives, which says how many at most; and of these, those of which something
/// still holds.
macro_rules! delete_some {
    ($table:literal, $places:literal $(, $still:literal)?) => {
        concat!("DELETE FROM ", $table, " WHERE ctid = ANY(ARRAY(", $places, "))" $(, " AND ", $still)?)
    };
}

/// Each deletes at most $1 rows.
const CLEAN: [&str; 9] = [
    // By the index message_decision_by_time, which holds no decision that met an instance: those last as long as it (P27).
    delete_some!(
        "message_decision",
        "SELECT ctid FROM message_decision WHERE decided_at < (SELECT everstep_clock()) - 604800000000
        AND substr(answer, 1, 7) NOT IN ('created', 'exists:', 'conflic')
        ORDER BY decided_at LIMIT $1::bigint"
    ),
    delete_some!(
        "rejected",
        "SELECT ctid FROM rejected WHERE at < (SELECT everstep_clock()) - 2592000000000 ORDER BY at LIMIT $1::bigint"
    ),
    delete_some!(
        "breach",
        "SELECT ctid FROM breach WHERE at < (SELECT everstep_clock()) - 2592000000000 ORDER BY at LIMIT $1::bigint"
    ),
    delete_some!(
        "coordinator",
        "SELECT ctid FROM coordinator WHERE heard_at < (SELECT everstep_clock()) - 86400000000 LIMIT $1::bigint"
    ),
    delete_some!(
        "bulk",
        "SELECT ctid FROM bulk WHERE ended_at < (SELECT everstep_clock()) - 2592000000000 LIMIT $1::bigint"
    ),
    delete_some!(
        "action",
        "SELECT ctid FROM action WHERE at < (SELECT everstep_clock()) - 7776000000000 ORDER BY at LIMIT $1::bigint"
    ),
    delete_some!(
        "access_token",
        "SELECT ctid FROM access_token WHERE least(expires_at, revoked_at) < (SELECT everstep_clock()) - 7776000000000
        LIMIT $1::bigint"
    ),
    delete_some!(
        "session",
        "SELECT s.ctid FROM session s
        WHERE s.ended_at < (SELECT everstep_clock()) - 86400000000
          AND NOT EXISTS (SELECT FROM lease l WHERE l.session = s.id)
        ORDER BY s.ended_at LIMIT $1::bigint"
    ),
    delete_some!(
        "hook",
        "SELECT ctid FROM hook WHERE ended AND retain_until < (SELECT everstep_clock())
        ORDER BY retain_until LIMIT $1::bigint",
        "ended AND retain_until < (SELECT everstep_clock())"
    ),
];

/// By the index `journal_pkey`. The highest cut of an instance is the only one that counts: by each of them the same entries would
/// be found, and fewer than the limit would be no sign that none is left.
const SWEEP: &str = delete_some!(
    "journal",
    "SELECT j.place FROM (SELECT instance, max(below) AS below FROM journal_cut GROUP BY instance) c
    CROSS JOIN LATERAL (
        SELECT ctid AS place FROM journal j WHERE j.instance = c.instance AND j.run < c.below LIMIT $1::bigint
    ) j
    LIMIT $1::bigint"
);
const SWEPT: &str = "DELETE FROM journal_cut c
    WHERE (SELECT true FROM journal j WHERE j.instance = c.instance AND j.run < c.below LIMIT 1) IS NULL";

#[async_trait]
impl Records for PostgresStore {
    async fn outbox(&self, older: Millis, limit: u32) -> Result<Vec<OutboxRow>, Error> {
        self.read("reading the outbox", OUTBOX, params![micros(older), i64::from(limit)], |row| {
            Ok(OutboxRow {
                uid: uid(row, 0)?,
                run: Run(row.try_get::<_, i32>(1)? as u32),
                routing_key: row.try_get(2)?,
                message_id: row.try_get(3)?,
                body: row.try_get(4)?,
            })
        })
        .await
    }

    async fn sent(&self, rows: &[(InstanceUid, Run)]) -> Result<(), Error> {
        if rows.is_empty() {
            return Ok(());
        }
        let (instances, runs): (Vec<Uuid>, Vec<i32>) =
            rows.iter().map(|(uid, run)| (uid.0, run.0 as i32)).unzip();
        self.execute("clearing the outbox", sql::OUTBOX_DELETE, params![instances, runs]).await?;
        Ok(())
    }

    async fn reject(&self, rejected: &[Rejected]) -> Result<(), Error> {
        if rejected.is_empty() {
            return Ok(());
        }
        let workflow = |row: &Rejected| row.decided.as_ref().map(|(workflow, _)| workflow.to_string());
        let app_id = |row: &Rejected| row.message.as_ref().map(|name| clean(&name.app_id).into_owned());
        let message_id =
            |row: &Rejected| row.message.as_ref().map(|name| clean(&name.message_id).into_owned());
        let id = |row: &Rejected| row.decided.as_ref().map(|(_, decided)| decided.id.to_string());
        let answer =
            |row: &Rejected| row.decided.as_ref().map(|(_, decided)| answer::encode(&decided.answer));
        let params = params![
            rejected.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>(),
            rejected.iter().map(|row| row.body_bytes as i64).collect::<Vec<_>>(),
            rejected.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>(),
            rejected.iter().map(workflow).collect::<Vec<_>>(),
            rejected.iter().map(app_id).collect::<Vec<_>>(),
            rejected.iter().map(message_id).collect::<Vec<_>>(),
            rejected.iter().map(|row| clean(&row.code)).collect::<Vec<_>>(),
            rejected.iter().map(|row| clean(&row.reason)).collect::<Vec<_>>(),
            rejected.iter().map(|row| clean(row.headers.as_str())).collect::<Vec<_>>(),
            rejected
                .iter()
                .map(|row| &row.body[..row.body.len().min(BODY_BYTES_MAX as usize)])
                .collect::<Vec<_>>(),
            rejected.iter().map(id).collect::<Vec<_>>(),
            rejected.iter().map(answer).collect::<Vec<_>>(),
        ];
        self.execute("recording rejected messages", REJECT, params).await?;
        Ok(())
    }

    async fn rejected_bytes(&self, namespaces: &[Namespace]) -> Result<Vec<u64>, Error> {
        let names: Vec<&str> = namespaces.iter().map(Namespace::as_str).collect();
        let params = params![names, BODY_BYTES_MAX as i64, RECORD_BYTES as i64];
        let bytes = |row: &tokio_postgres::Row| Ok(u64::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0));
        self.read("measuring rejected records", REJECTED_BYTES, params, bytes).await
    }

    async fn sweep(&self, limit: u32) -> Result<u64, Error> {
        let count = self.execute("removing journals", SWEEP, params![i64::from(limit)]).await?;
        if count < u64::from(limit) {
            self.execute("removing journals", SWEPT, params![]).await?;
        }
        Ok(count)
    }

    async fn clean(&self, limit: u32) -> Result<u64, Error> {
        let mut count = 0;
        for sql in CLEAN {
            count += self.execute("cleaning", sql, params![i64::from(limit)]).await?;
        }
        Ok(count)
    }
}
