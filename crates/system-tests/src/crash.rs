//! What the crash matrix runs: workflows that come by every commit, publish and ack, and a ledger of what their steps did that
//! outlives the process.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use everstep::{Error, Registry, Retry, Step, StepCall, Workflow};

/// A worker's settings beside the registry: the pool of the remote steps.
pub const POOL: &str = "far";
/// An output of which two do not fit into one part of a journal.
const LARGE: usize = 300 << 10;
/// Long enough for a heartbeat to tell what a step has told.
const SLOW: Duration = Duration::from_millis(700);
/// A body polls for longer than the worker allows.
const STUCK: Duration = Duration::from_secs(3);

/// A line of the ledger: an effect and the key that it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Instance and step.
    pub effect: String,
    /// The idempotency key.
    pub key: String,
}

/// All lines of the ledger, in the order of time.
pub fn lines(ledger: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    let line = |line: &str| {
        let (effect, key) = line.split_once(' ').expect("an effect and its key");
        Line { effect: effect.to_owned(), key: key.to_owned() }
    };
    text.lines().map(line).collect()
}

/// The effects of an instance, each with its phase: those of a later phase come once all of an earlier one are recorded.
pub fn effects(workflow: &str, id: &str) -> Vec<(String, u32)> {
    let names: &[(&str, u32)] = match workflow {
        "mix" => {
            &[("first", 0), ("slow", 1), ("left", 2), ("right", 2), ("far", 3), ("leaf", 4), ("last", 5)]
        }
        "large" => &[("one", 0), ("two", 1), ("three", 2), ("last", 3)],
        "stuck" => &[("last", 0)],
        _ => &[],
    };
    names.iter().map(|(name, phase)| (format!("{id}/{name}"), *phase)).collect()
}

/// All workflows. Their steps write into this ledger. `blocks`: the body of `stuck` blocks its worker.
pub fn registry(ledger: &Path, blocks: bool) -> Registry {
    let ledger = ledger.to_owned();
    let far = ledger.clone();
    let (mix_in, large_in, leaf_in, stuck_in) = (ledger.clone(), ledger.clone(), ledger.clone(), ledger);
    Registry::new()
        .workflow_fn("mix", move |cx: Workflow, id: String| mix(cx, id, mix_in.clone()))
        .workflow_fn("large", move |cx: Workflow, id: String| large(cx, id, large_in.clone()))
        .workflow_fn("leaf", move |cx: Workflow, effect: String| {
            let ledger = leaf_in.clone();
            async move { act(&cx, &ledger, "leaf", effect, Duration::ZERO, 0).await.map(drop) }
        })
        .workflow_fn("stuck", move |cx: Workflow, id: String| {
            let ledger = stuck_in.clone();
            async move {
                if blocks {
                    std::thread::sleep(STUCK);
                }
                act(&cx, &ledger, "last", format!("{id}/last"), Duration::ZERO, 0).await.map(drop)
            }
        })
        .workflow_fn("nothing", |_: Workflow, (): ()| async move { Ok::<_, Error>(()) })
        .function("far", move |step: Step, effect: String| {
            let ledger = far.clone();
            async move { note(&ledger, &step, &effect) }
        })
}

async fn mix(cx: Workflow, id: String, ledger: PathBuf) -> Result<(), Error> {
    let step = |name: &str, takes| act(&cx, &ledger, name, format!("{id}/{name}"), takes, 0);
    step("first", Duration::ZERO).await?;
    step("slow", SLOW).await?;
    cx.sleep("nap", "400 ms").await?;
    let (left, right) =
        futures::future::join(step("left", Duration::ZERO), step("right", Duration::ZERO)).await;
    left.and(right)?;
    cx.remote::<()>("far", format!("{id}/far")).on(POOL).retry(Retry::constant("10 ms").unlimited()).await?;
    cx.child::<()>("leaf", "leaf", format!("{id}/leaf")).await?;
    cx.event::<u64>("go").await?;
    step("last", Duration::ZERO).await?;
    Ok(())
}

async fn large(cx: Workflow, id: String, ledger: PathBuf) -> Result<(), Error> {
    for name in ["one", "two", "three"] {
        act(&cx, &ledger, name, format!("{id}/{name}"), Duration::ZERO, LARGE).await?;
    }
    cx.sleep("nap", "1 s").await?;
    act(&cx, &ledger, "last", format!("{id}/last"), Duration::ZERO, 0).await.map(drop)
}

/// A step that has one effect, takes a while and tells how far it is, and answers with so many bytes.
fn act(
    cx: &Workflow,
    ledger: &Path,
    name: &str,
    effect: String,
    takes: Duration,
    bytes: usize,
) -> StepCall<String> {
    let ledger = ledger.to_owned();
    let step = cx.step(name, effect, move |step: Step, effect: String| {
        let ledger = ledger.clone();
        async move {
            note(&ledger, &step, &effect)?;
            if !takes.is_zero() {
                step.heartbeat("half")?;
                tokio::time::sleep(takes).await;
            }
            Ok::<_, Error>("x".repeat(bytes))
        }
    });
    step.retry(Retry::constant("10 ms").unlimited())
}

/// The effect: one line, in one write.
fn note(ledger: &Path, step: &Step, effect: &str) -> Result<(), Error> {
    let file = OpenOptions::new().append(true).create(true).open(ledger);
    let line = format!("{effect} {}\n", step.idempotency_key());
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(Error::failed)
}
