//! What is measured at one moment.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::fleet::Fleet;

/// Each table with its rows that are dead, its own bytes and those of its indexes.
const TABLES: &str = "SELECT s.relname, s.n_dead_tup, pg_table_size(s.relid), pg_indexes_size(s.relid)
    FROM pg_stat_user_tables s ORDER BY s.relname";

/// What is remembered of messages lasts for a week (rule P27), and so grows throughout a run that is shorter.
const MEMORY: &str = "message_decision";

/// One moment of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// Seconds since the load began.
    pub(crate) at: f64,
    pub(crate) coordinator_mib: f64,
    pub(crate) worker_mib: f64,
    /// Without what is remembered of messages.
    pub(crate) tables_mib: f64,
    pub(crate) indexes_mib: f64,
    /// What is remembered of messages, with its indexes, by those that were sent so far.
    pub(crate) bytes_a_message: f64,
    pub(crate) dead_rows: f64,
    /// From the start published to the end heard of instances of five steps that ended since the last sample; none if none did.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Instances that have not ended.
    pub(crate) open: usize,
    /// MiB of each table with its indexes that has one at least.
    pub(crate) largest: BTreeMap<String, f64>,
}

/// How long instances took since the last sample.
#[derive(Debug, Default)]
pub(crate) struct Latencies(Vec<f64>);

impl Latencies {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1000.0);
    }

    pub(crate) fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// The value below which this share of the values lies.
    fn percentile(&mut self, share: f64) -> Option<f64> {
        self.0.sort_by(f64::total_cmp);
        let index = ((self.0.len() as f64 * share).ceil() as usize).saturating_sub(1);
        self.0.get(index).copied()
    }
}

impl Sample {
    pub(crate) async fn take(
        fleet: &Fleet,
        at: Duration,
        mut latencies: Latencies,
        open: usize,
        messages: u64,
    ) -> Result<Self> {
        let memory = fleet.memory();
        let installation = Arc::clone(&fleet.installation);
        let told = tokio::task::spawn_blocking(move || installation.sql(TABLES)).await??;
        let (mut dead_rows, mut tables_mib, mut indexes_mib, mut memory_mib) = (0.0, 0.0, 0.0, 0.0);
        let mut largest = BTreeMap::new();
        for line in told.lines() {
            let mut fields = line.split('|');
            let name = fields.next().context("a table has a name")?;
            let mut number =
                || -> Result<f64> { Ok(fields.next().context("a column is missing")?.trim().parse()?) };
            let (dead, table, indexes) = (number()?, mib(number()?), mib(number()?));
            dead_rows += dead;
            if name == MEMORY {
                memory_mib = table + indexes;
            } else {
                tables_mib += table;
                indexes_mib += indexes;
            }
            if table + indexes >= 1.0 {
                largest.insert(name.to_owned(), rounded(table + indexes));
            }
        }
        Ok(Self {
            at: rounded(at.as_secs_f64()),
            coordinator_mib: rounded(memory.coordinator),
            worker_mib: rounded(memory.worker),
            tables_mib: rounded(tables_mib),
            indexes_mib: rounded(indexes_mib),
            bytes_a_message: rounded(memory_mib * f64::from(1 << 20) / messages.max(1) as f64),
            dead_rows,
            p50_ms: latencies.percentile(0.5).map(rounded),
            p99_ms: latencies.percentile(0.99).map(rounded),
            open,
            largest,
        })
    }
}

fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

pub(crate) fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
