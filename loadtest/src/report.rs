//! The line that a measurement prints.

use serde::Serialize;

/// One measurement. Messages, commits and WAL bytes are per instance; what does not apply is null.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) workload: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) in_flight: usize,
    pub(crate) instances: usize,
    pub(crate) instances_per_s: f64,
    pub(crate) steps_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) lateness_p50_ms: Option<f64>,
    pub(crate) lateness_p99_ms: Option<f64>,
    /// CPU seconds of every process.
    pub(crate) cpu_s: f64,
    /// The same, per instance in milliseconds.
    pub(crate) cpu_ms_per_instance: f64,
    pub(crate) cpu_by: CpuBy,
    pub(crate) messages: Option<f64>,
    pub(crate) commits: Option<f64>,
    pub(crate) wal_bytes: Option<f64>,
    /// Resident memory of coordinator and worker, or of the one process, in MiB.
    pub(crate) rss_mb: f64,
}

/// CPU seconds by process; embedded, everything is one process and stands under `worker`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct CpuBy {
    pub(crate) postgres: f64,
    pub(crate) rabbitmq: f64,
    pub(crate) coordinator: f64,
    pub(crate) worker: f64,
    pub(crate) producer: f64,
}

impl CpuBy {
    pub(crate) const fn sum(self) -> f64 {
        self.postgres + self.rabbitmq + self.coordinator + self.worker + self.producer
    }

    pub(crate) const fn since(self, before: Self) -> Self {
        Self {
            postgres: self.postgres - before.postgres,
            rabbitmq: self.rabbitmq - before.rabbitmq,
            coordinator: self.coordinator - before.coordinator,
            worker: self.worker - before.worker,
            producer: self.producer - before.producer,
        }
    }
}

/// The value below which this share of the values lies.
pub(crate) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = ((values.len() as f64 * share).ceil() as usize).saturating_sub(1);
    values.get(index).copied().unwrap_or_default()
}

pub(crate) fn rounded(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}
