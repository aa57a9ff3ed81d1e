//! The workloads, and the workflows that they run.

use clap::ValueEnum;
use everstep::{Error, Hook, Registry, Step, Workflow};
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
    /// Nothing but start and end; 2,000 instances, 200 in flight.
    Start,
    /// The same, each with a token of its own that it is started with.
    StartToken,
    /// 200 instances that wait for a payload, resumed one at a time.
    Resume,
}

/// How many instances, and how many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) instances: usize,
    pub(crate) in_flight: usize,
}

everstep_protocol::every! {
    pub(crate) Workload: Seq5, Seq5One, Sleep30, Fan500, Start, StartToken, Resume
}

impl Workload {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seq5 => "seq5",
            Self::Seq5One => "seq5-one",
            Self::Sleep30 => "sleep30",
            Self::Fan500 => "fan500",
            Self::Start => "start",
            Self::StartToken => "start-token",
            Self::Resume => "resume",
        }
    }

    pub(crate) const fn workflow(self) -> &'static str {
        match self {
            Self::Seq5 | Self::Seq5One => "seq5",
            Self::Sleep30 => "sleep30",
            Self::Fan500 => "fan500",
            Self::Start | Self::StartToken => "empty",
            Self::Resume => "resumed",
        }
    }

    /// Whether each is started with a token: its id.
    pub(crate) const fn has_token(self) -> bool {
        matches!(self, Self::StartToken | Self::Resume)
    }

    /// Whether what is measured begins with a payload, not with the start.
    pub(crate) const fn is_resumed(self) -> bool {
        matches!(self, Self::Resume)
    }

    pub(crate) const fn steps(self) -> usize {
        match self {
            Self::Seq5 | Self::Seq5One => 5,
            Self::Sleep30 => 2,
            Self::Fan500 => 500,
            Self::Start | Self::StartToken | Self::Resume => 0,
        }
    }

    pub(crate) fn shapes(self, instances: Option<usize>, in_flight: Option<usize>) -> Vec<Shape> {
        let (own, flights) = match self {
            Self::Seq5 => (2_000, vec![200, 2_000]),
            Self::Seq5One | Self::Resume => (200, vec![1]),
            Self::Sleep30 => (10_000, vec![10_000]),
            Self::Fan500 => (1, vec![1]),
            Self::Start | Self::StartToken => (2_000, vec![200]),
        };
        let instances = instances.unwrap_or(own);
        let flights = in_flight.map_or(flights, |in_flight| vec![in_flight]);
        flights.into_iter().map(|in_flight| Shape { instances, in_flight }).collect()
    }
}

/// What the worker serves.
pub(crate) fn registry() -> Registry {
    Registry::new()
        .workflow(seq5)
        .workflow(sleep30)
        .workflow(fan500)
        .workflow_fn("empty", |_cx: Workflow, input: u32| async move { Ok::<_, Error>(input) })
        .workflow(resumed)
        .workflow(long)
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

/// Waits for a payload of the hook that it was started with.
#[everstep::workflow]
async fn resumed(cx: Workflow, _input: u32) -> Result<u32, Error> {
    let hook: Hook<u32> = cx.hook("resumes").token(cx.instance_id()).create()?;
    hook.next().await
}
