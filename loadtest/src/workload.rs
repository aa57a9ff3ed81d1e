//! The workloads, and the workflows that they run.

use clap::ValueEnum;
use everstep::{Error, Registry, Step, Workflow};
use futures::future::join_all;

use crate::long::long;

/// 100 bytes of JSON, quotes included.
const RESULT: &str =
    "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz";

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Workload {
    /// 5 no-op steps in sequence, with 100-byte results; 2,000 instances, 200 in flight and all at once.
    Seq5,
    /// The same, 200 instances, one at a time.
    Seq5One,
    /// Step, 30 s of sleep, step; 10,000 instances at once.
    Sleep30,
    /// One instance of 500 parallel no-op steps.
    Fan500,
}

/// How many instances, and how many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) instances: usize,
    pub(crate) in_flight: usize,
}

everstep_protocol::every! {
    pub(crate) Workload: Seq5, Seq5One, Sleep30, Fan500
}

impl Workload {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seq5 => "seq5",
            Self::Seq5One => "seq5-one",
            Self::Sleep30 => "sleep30",
            Self::Fan500 => "fan500",
        }
    }

    pub(crate) const fn workflow(self) -> &'static str {
        match self {
            Self::Seq5 | Self::Seq5One => "seq5",
            Self::Sleep30 => "sleep30",
            Self::Fan500 => "fan500",
        }
    }

    pub(crate) const fn steps(self) -> usize {
        match self {
            Self::Seq5 | Self::Seq5One => 5,
            Self::Sleep30 => 2,
            Self::Fan500 => 500,
        }
    }

    pub(crate) fn shapes(self, instances: Option<usize>, in_flight: Option<usize>) -> Vec<Shape> {
        let (own, flights) = match self {
            Self::Seq5 => (2_000, vec![200, 2_000]),
            Self::Seq5One => (200, vec![1]),
            Self::Sleep30 => (10_000, vec![10_000]),
            Self::Fan500 => (1, vec![1]),
        };
        let instances = instances.unwrap_or(own);
        let flights = in_flight.map_or(flights, |in_flight| vec![in_flight]);
        flights.into_iter().map(|in_flight| Shape { instances, in_flight }).collect()
    }
}

/// What the worker serves.
pub(crate) fn registry() -> Registry {
    Registry::new().workflow(seq5).workflow(sleep30).workflow(fan500).workflow(long)
}

pub(crate) async fn noop(_step: Step, _input: u32) -> Result<String, Error> {
    Ok(RESULT.to_owned())
}

#[everstep::workflow]
async fn seq5(cx: Workflow, input: u32) -> Result<u32, Error> {
    for _ in 0..5 {
        cx.step("noop", input, noop).await?;
    }
    Ok(input)
}

#[everstep::workflow]
async fn sleep30(cx: Workflow, input: u32) -> Result<u32, Error> {
    cx.step("before", input, noop).await?;
    cx.sleep("pause", "30 s").await?;
    cx.step("after", input, noop).await?;
    Ok(input)
}

#[everstep::workflow]
async fn fan500(cx: Workflow, input: u32) -> Result<u32, Error> {
    let steps = (0..500).map(|_| cx.step("noop", input, noop));
    for result in join_all(steps).await {
        result?;
    }
    Ok(input)
}
