//! What a run is judged by, and what is said of it.

use std::fmt;

use serde::Serialize;

use crate::{
    Plan,
    fit::{Bound, Fit, fit},
    load::Run,
    sample::{Sample, rounded},
};

/// A run, as `soak.json` has it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) minutes: f64,
    pub(crate) rate: f64,
    /// Seconds that are not judged.
    pub(crate) warm_up: f64,
    /// Seconds that ended instances are kept.
    pub(crate) keep: f64,
    pub(crate) cores: usize,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) is_flat: bool,
    pub(crate) series: Vec<Judged>,
    pub(crate) samples: Vec<Sample>,
}

/// A series, and whether it stayed flat.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) bound: Bound,
    /// None if there were too few samples to say.
    pub(crate) fit: Option<Fit>,
    #[serde(skip)]
    pub(crate) points: Vec<(f64, f64)>,
}

struct Series {
    name: &'static str,
    unit: &'static str,
    bound: Bound,
    of: fn(&Sample) -> Option<f64>,
}

/// Memory may grow least. Tables and indexes grow in steps of pages. Dead rows are teeth of a saw: autovacuum takes them in its own time. A
/// percentile of a few hundred instances on a shared machine wanders.
const SERIES: [Series; 9] = [
    Series {
        name: "memory of the coordinator",
        unit: "MiB",
        bound: Bound { share: 0.1, floor: 4.0 },
        of: |sample| Some(sample.coordinator_mib),
    },
    Series {
        name: "memory of the worker",
        unit: "MiB",
        bound: Bound { share: 0.1, floor: 4.0 },
        of: |sample| Some(sample.worker_mib),
    },
    Series {
        name: "tables",
        unit: "MiB",
        bound: Bound { share: 0.15, floor: 2.0 },
        of: |sample| Some(sample.tables_mib),
    },
    Series {
        name: "indexes",
        unit: "MiB",
        bound: Bound { share: 0.15, floor: 2.0 },
        of: |sample| Some(sample.indexes_mib),
    },
    Series {
        name: "memory of a message",
        unit: "bytes",
        bound: Bound { share: 0.15, floor: 10.0 },
        of: |sample| Some(sample.bytes_a_message),
    },
    Series {
        name: "dead rows",
        unit: "rows",
        bound: Bound { share: 0.5, floor: 5_000.0 },
        of: |sample| Some(sample.dead_rows),
    },
    Series {
        name: "latency, p50",
        unit: "ms",
        bound: Bound { share: 0.25, floor: 5.0 },
        of: |sample| sample.p50_ms,
    },
    Series {
        name: "latency, p99",
        unit: "ms",
        bound: Bound { share: 0.5, floor: 20.0 },
        of: |sample| sample.p99_ms,
    },
    Series {
        name: "open instances",
        unit: "",
        bound: Bound { share: 0.25, floor: 20.0 },
        of: |sample| Some(sample.open as f64),
    },
];

impl Report {
    pub(crate) fn of(plan: Plan, run: Run) -> Self {
        let warm_up = plan.warm_up.as_secs_f64();
        let judged = |series: Series| {
            let points: Vec<_> =
                run.samples.iter().filter_map(|sample| Some((sample.at, (series.of)(sample)?))).collect();
            let after: Vec<_> = points.iter().copied().filter(|(at, _)| *at >= warm_up).collect();
            let fit = fit(&after, series.bound).map(|fit| Fit {
                from: rounded(fit.from),
                to: rounded(fit.to),
                growth: (fit.growth * 10_000.0).round() / 10_000.0,
                ..fit
            });
            Judged { name: series.name, unit: series.unit, bound: series.bound, fit, points }
        };
        let series: Vec<_> = SERIES.into_iter().map(judged).collect();
        Self {
            minutes: plan.lasts.as_secs_f64() / 60.0,
            rate: plan.rate,
            warm_up,
            keep: plan.keep.as_secs_f64(),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            started: run.started,
            ended: run.ended,
            is_flat: series.iter().all(|judged| judged.fit.is_some_and(|fit| fit.is_flat)),
            series,
            samples: run.samples,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} minutes, {} instances a second, {} started, {} ended; judged after {} s",
            self.minutes, self.rate, self.started, self.ended, self.warm_up
        )?;
        for Judged { name, unit, bound, fit, .. } in &self.series {
            match fit {
                None => writeln!(f, "  ?        {name}: too few samples")?,
                Some(fit) => writeln!(
                    f,
                    "  {}  {name}: {} to {} {unit} ({:+.1} %, bound {:.0} % or {} {unit})",
                    if fit.is_flat { "flat   " } else { "GROWING" },
                    fit.from,
                    fit.to,
                    fit.growth * 100.0,
                    bound.share * 100.0,
                    bound.floor,
                )?,
            }
        }
        write!(f, "{}", if self.is_flat { "everything stayed flat" } else { "not everything stayed flat" })
    }
}
