//! What the database says, past the coordinators, over a connection of one's own that survives its restarts.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio_postgres::{Client, NoTls, Row, types::ToSql};
use uuid::Uuid;

use crate::heal::{Hit, Reach};

const WITHIN: Duration = Duration::from_secs(10);

/// A view of the database.
#[derive(Debug)]
pub(crate) struct Look {
    url: String,
    client: Option<Client>,
}

impl Look {
    pub(crate) const fn at(url: String) -> Self {
        Self { url, client: None }
    }

    /// Rows of a query. After an error the next one makes a new connection.
    pub(crate) async fn rows(&mut self, sql: &str, given: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let asked = async {
            let client = match self.client.take() {
                Some(client) if !client.is_closed() => client,
                _ => self.connect().await?,
            };
            let rows = client.query(sql, given).await?;
            Ok::<_, tokio_postgres::Error>((client, rows))
        };
        let (client, rows) = tokio::time::timeout(WITHIN, asked).await.context("the database is slow")??;
        self.client = Some(client);
        Ok(rows)
    }

    async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// One number.
    pub(crate) async fn number(&mut self, sql: &str) -> Result<i64> {
        let rows = self.rows(sql, &[]).await?;
        Ok(rows.first().context("it gives a row")?.try_get(0)?)
    }

    /// How many instances have ended that were started from outside.
    pub(crate) async fn ended(&mut self) -> Result<u64> {
        let sql = "SELECT count(*) FROM ended WHERE workflow <> 'leaf'";
        Ok(self.number(sql).await? as u64)
    }

    /// How many leases were lost, as the journals say.
    pub(crate) async fn losses(&mut self) -> Result<i64> {
        self.number("SELECT count(*) FROM journal WHERE kind = 5").await
    }

    /// Which of these ids are those of an instance.
    pub(crate) async fn known(&mut self, ids: &[String]) -> Result<Vec<String>> {
        let rows = self.rows("SELECT id FROM instance_name WHERE id = ANY($1)", &[&ids]).await?;
        rows.into_iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// What a fault hits at this moment.
    pub(crate) async fn hit(&mut self, reach: &Reach) -> Result<Vec<Hit>> {
        let rows = match reach {
            // Whoever takes an instance up has a higher epoch. A remote step's lease has an epoch of its own.
            Reach::Worker { host, elsewhere } => {
                let sql = "SELECT DISTINCT ON (i.id) i.id, \
                    i.epoch + ($2 AND l.subject = '\\x00000000000000000000000000000000')::int::bigint, i.position \
                    FROM session s JOIN lease l ON l.session = s.id JOIN instance i ON i.id = l.instance \
                    WHERE s.host = $1 AND i.status = 0 ORDER BY i.id, 2 DESC";
                self.rows(sql, &[host, elsewhere]).await?
            }
            Reach::All => {
                let sql = "SELECT i.id, i.epoch, i.position FROM \
                    (SELECT instance FROM lease UNION SELECT instance FROM ready) AS x \
                    JOIN instance i ON i.id = x.instance WHERE i.status = 0";
                self.rows(sql, &[]).await?
            }
            Reach::Steps => {
                let sql = "SELECT i.id, i.epoch, i.position FROM \
                    (SELECT DISTINCT instance FROM remote_step) AS x \
                    JOIN instance i ON i.id = x.instance WHERE i.status = 0";
                self.rows(sql, &[]).await?
            }
        };
        let hit = |row: Row| {
            Ok(Hit { instance: row.try_get(0)?, epoch: row.try_get(1)?, position: row.try_get(2)? })
        };
        rows.into_iter().map(hit).collect()
    }

    /// Which of these have healed.
    pub(crate) async fn healed(&mut self, hits: &[Hit]) -> Result<Vec<Uuid>> {
        let ids: Vec<Uuid> = hits.iter().map(|hit| hit.instance).collect();
        let epochs: Vec<i64> = hits.iter().map(|hit| hit.epoch).collect();
        let positions: Vec<i64> = hits.iter().map(|hit| hit.position).collect();
        let sql = "SELECT i.id FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS h (id, epoch, position) \
            JOIN instance i ON i.id = h.id WHERE i.status <> 0 OR (i.epoch >= h.epoch AND ( \
            EXISTS (SELECT FROM journal j WHERE j.instance = i.id AND j.run = i.run AND j.position > h.position \
            AND j.kind <> 5) \
            OR NOT (EXISTS (SELECT FROM lease l WHERE l.instance = i.id) \
            OR EXISTS (SELECT FROM ready r WHERE r.instance = i.id))))";
        let rows = self.rows(sql, &[&ids, &epochs, &positions]).await?;
        rows.into_iter().map(|row| Ok(row.try_get(0)?)).collect()
    }
}
