//! A database of the test's own with a table that the step writes to, and steps.

use std::sync::Arc;

use everstep_postgres::migrate;
use everstep_protocol::{Attempt, CallKind, Policy};
use everstep_sdk::{Error, Step, host::StepInfo};
use everstep_testbed::Installation;
use tokio_postgres::{Client, NoTls, Transaction};

pub(crate) struct Rig {
    pub(crate) installation: Installation,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let rig = Self { installation: Installation::fresh("everstep_l12").unwrap() };
        let mut client = rig.client().await;
        migrate(&mut client, None).await.unwrap();
        client
            .batch_execute("CREATE TABLE payout (id bigint PRIMARY KEY, cents bigint NOT NULL)")
            .await
            .unwrap();
        rig
    }

    pub(crate) async fn client(&self) -> Client {
        connect(&self.installation.postgres).await
    }

    /// How often it was written, and how many effects are recorded.
    pub(crate) async fn counts(&self) -> (i64, i64) {
        let counts = "SELECT (SELECT count(*) FROM payout), (SELECT count(*) FROM everstep_effect)";
        let row = self.client().await.query_one(counts, &[]).await.unwrap();
        (row.get(0), row.get(1))
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Writes a row and gives its id.
pub(crate) async fn pay(tx: &Transaction<'_>, cents: i64) -> Result<i64, Error> {
    let insert =
        "INSERT INTO payout (id, cents) SELECT coalesce(max(id), 0) + 1, $1 FROM payout RETURNING id";
    Ok(tx.query_one(insert, &[&cents]).await?.get(0))
}

/// An attempt of the step with this key, which is repeated to full length. It is kept for ever, so that tests may hold what borrows it.
pub(crate) fn step(key: u8, attempt: u32) -> &'static Step {
    let info = StepInfo {
        namespace: "default".parse().unwrap(),
        workflow: "shop".parse().unwrap(),
        instance: "one".parse().unwrap(),
        kind: CallKind::Step,
        name: "pay out".parse().unwrap(),
        count: 1,
        attempt: Attempt(attempt),
        key: format!("{key:02x}").repeat(32).parse().unwrap(),
        undoes: None,
        policy: Policy::default(),
    };
    Box::leak(Box::new(Step::new(info, Arc::new(drop), None).0))
}
