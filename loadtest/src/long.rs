//! One long instance: what its steps cost at the beginning and at the end, what its wakes cost, and how soon it goes on after
//! its worker was killed, when all of it has to be replayed.
//!
//! All times are differences between entries of its journal, so they are the database's.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep::{Error, Workflow};
use everstep_engine::{rows::WaitKind, start::NameKey};
use everstep_protocol::{
    Namespace, Position, Timestamp,
    journal::{Entry, Fact, Wait},
    topology,
};
use everstep_store::{InstanceView, Range, Store};
use serde::{Deserialize, Serialize};

use crate::{
    backend::{Backend, Kind, WorkerEnd},
    drive::{message, publish},
    report::rounded,
    workload::noop,
};

/// Steps in sequence.
const STEPS: u64 = 10_000;
/// Sleeps after them, each too long to be lingered over.
const NAPS: u64 = 50;
/// At the beginning and at the end so many are compared.
const SOME_STEPS: usize = 1_000;
const SOME_NAPS: usize = 10;
/// What it waits for, with another worker each time.
const EVENTS: [&str; 2] = ["killed", "stopped"];
const PATIENCE: Duration = Duration::from_mins(5);

/// One measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Long {
    workload: &'static str,
    backend: &'static str,
    steps: u64,
    naps: u64,
    ms_per_step_first: f64,
    ms_per_step_last: f64,
    /// From the end of a sleep to the opening of the next, with so many steps before it.
    ms_per_wake_first: f64,
    ms_per_wake_last: f64,
    /// From an event, sent after its worker was killed and another was there, to the outcome of the step behind it: until the
    /// death is noticed, then the replay. Embedded nobody is killed.
    resume_ms: Option<f64>,
    /// The same after its worker had said goodbye: the replay of all that there is.
    replay_ms: f64,
    rss_mb: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    steps: u64,
    naps: u64,
}

#[everstep::workflow]
pub(crate) async fn long(cx: Workflow, plan: Plan) -> Result<(), Error> {
    for step in 0..plan.steps {
        cx.step("noop", step as u32, noop).await?;
    }
    for _ in 0..plan.naps {
        cx.sleep("nap", "110 ms").await?;
    }
    for event in EVENTS {
        let () = cx.event::<()>(event).await?;
        cx.step("behind", 0, noop).await?;
    }
    Ok(())
}

pub(crate) async fn measure(kind: Kind, steps: Option<usize>) -> Result<Long> {
    let steps = steps.map_or(STEPS, |steps| steps as u64);
    let mut backend = Backend::start(kind).await?;
    let input = serde_json::to_string(&Plan { steps, naps: NAPS })?;
    let start = format!(r#"{{"workflow":"long","id":"one","input":{input}}}"#);
    publish(&*backend.broker()?, vec![message(topology::START_EXCHANGE, Some("start".to_owned()), start)])
        .await?;
    let mut rss_mb = 0.0_f64;
    for (event, end) in EVENTS.into_iter().zip([WorkerEnd::Killed, WorkerEnd::Stopped]) {
        let waits = |view: &InstanceView| {
            view.waiting.iter().any(|wait| wait.kind == WaitKind::Event && wait.call.name.as_str() == event)
        };
        until(&*backend.store().await?, waits).await?;
        rss_mb = rss_mb.max(backend.rss_mb());
        backend.replace_worker(end).await?;
        let body = format!(r#"{{"workflow":"long","id":"one","type":"{event}","payload":null}}"#);
        publish(&*backend.broker()?, vec![message(topology::EVENT_EXCHANGE, Some(event.to_owned()), body)])
            .await?;
    }
    let store = backend.store().await?;
    let view = until(&*store, |view| view.ended_at.is_some()).await?;
    let journal = journal(&store, &view).await?;
    drop(store);
    backend.stop().await?;
    evaluate(kind, steps, rounded(rss_mb, 1), &journal)
}

async fn until(store: &dyn Store, reached: impl Fn(&InstanceView) -> bool) -> Result<InstanceView> {
    let name = NameKey { namespace: Namespace::default(), workflow: "long".parse()?, id: "one".parse()? };
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(view) = store.instance(&name).await?.filter(|view| reached(view)) {
            return Ok(view);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("the instance did not get there within {PATIENCE:?}")
}

async fn journal(store: &Arc<dyn Store>, view: &InstanceView) -> Result<Vec<Entry>> {
    let mut journal: Vec<Entry> = Vec::new();
    while journal.len() < view.position.0 as usize {
        let range = Range { uid: view.uid, run: view.run, after: Position(journal.len() as u64) };
        journal.extend(store.journal(vec![range], 1 << 30).await?.remove(0));
    }
    Ok(journal)
}

fn evaluate(kind: Kind, steps: u64, rss_mb: f64, journal: &[Entry]) -> Result<Long> {
    let ends: Vec<Timestamp> = times(journal, |fact| matches!(fact, Fact::Attempted(_)));
    let opened = times(journal, |fact| matches!(fact, Fact::Opened(opened) if !is_event(&opened.wait)));
    let fired = times(journal, |fact| matches!(fact, Fact::Fired { .. }));
    let wakes: Vec<f64> =
        fired.iter().zip(opened.iter().skip(1)).map(|(fired, next)| ms(*fired, *next)).collect();
    let delivered = times(journal, |fact| matches!(fact, Fact::Delivered(_)));
    let first = journal.first().context("an entry")?.at;
    // Each event, and the end of the step behind it.
    let [killed, stopped] = delivered[..] else { bail!("{} events were delivered", delivered.len()) };
    let [.., behind_killed, behind_stopped] = ends[..] else { bail!("{} steps have ended", ends.len()) };
    let some = SOME_STEPS.min(steps as usize);
    let all = steps as usize;
    Ok(Long {
        workload: "long",
        backend: kind.name(),
        steps,
        naps: NAPS,
        ms_per_step_first: rounded(ms(first, ends[some - 1]) / some as f64, 3),
        ms_per_step_last: rounded(ms(ends[all - some], ends[all - 1]) / (some - 1) as f64, 3),
        ms_per_wake_first: rounded(mean(&wakes[..SOME_NAPS]), 2),
        ms_per_wake_last: rounded(mean(&wakes[wakes.len() - SOME_NAPS..]), 2),
        resume_ms: (kind == Kind::Fleet).then(|| rounded(ms(killed, behind_killed), 1)),
        replay_ms: rounded(ms(stopped, behind_stopped), 1),
        rss_mb,
    })
}

const fn is_event(wait: &Wait) -> bool {
    matches!(wait, Wait::Event { .. })
}

fn times(journal: &[Entry], of: impl Fn(&Fact) -> bool) -> Vec<Timestamp> {
    journal.iter().filter(|entry| of(&entry.fact)).map(|entry| entry.at).collect()
}

fn ms(from: Timestamp, to: Timestamp) -> f64 {
    (to.0 - from.0) as f64 / 1000.0
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
