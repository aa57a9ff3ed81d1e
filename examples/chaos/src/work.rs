//! The workflows, of which each step has one effect, and the worker that serves them. What effects an instance is to have follows
//! from its shape and its id alone.

use std::{net::SocketAddr, sync::OnceLock, time::Duration};

use anyhow::Context as _;
use everstep::{Error, Retry, Step, StepCall, Workflow};
use serde_json::json;

/// What a worker is told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Worker {
    /// AMQP URL of the broker.
    #[arg(long)]
    amqp: String,
    /// URL of the service.
    #[arg(long)]
    service: String,
    /// Runs remote steps alone.
    #[arg(long)]
    pool: bool,
}

/// The workflows that are started from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Sequence,
    Sleeper,
    Waiter,
    Hooked,
    Parent,
    Remote,
}

impl Shape {
    pub(crate) const ALL: [Self; 6] =
        [Self::Sequence, Self::Sleeper, Self::Waiter, Self::Hooked, Self::Parent, Self::Remote];

    /// The shape of an instance, by turns.
    pub(crate) const fn of(number: u64) -> Self {
        Self::ALL[number as usize % Self::ALL.len()]
    }

    /// The name of its workflow.
    pub(crate) const fn workflow(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Sleeper => "sleeper",
            Self::Waiter => "waiter",
            Self::Hooked => "hooked",
            Self::Parent => "parent",
            Self::Remote => "remote",
        }
    }

    /// The effects of an instance of this id.
    pub(crate) fn effects(self, id: &str) -> Vec<String> {
        let of = |id: &str, count: u32| (1..=count).map(|number| effect(id, number)).collect::<Vec<_>>();
        match self {
            Self::Sequence => of(id, 5),
            Self::Sleeper | Self::Remote => of(id, 3),
            Self::Waiter | Self::Hooked => of(id, 2),
            Self::Parent => [of(id, 2), of(&child(id), 2)].concat(),
        }
    }
}

/// Where remote steps run.
const POOL: &str = "far";
/// A step takes so long beside its effect, so that faults meet some.
const TAKES: Duration = Duration::from_millis(100);
/// A service that does not answer for this long is asked again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

static WORKER: OnceLock<Worker> = OnceLock::new();
static HTTP: OnceLock<reqwest::Client> = OnceLock::new();

/// Serves all workflows, or the pool.
pub(crate) async fn serve(worker: Worker) -> anyhow::Result<()> {
    let (amqp, is_pool) = (worker.amqp.clone(), worker.pool);
    let client = reqwest::Client::builder().no_proxy().timeout(ANSWERS_WITHIN).build()?;
    HTTP.set(client).ok().context("it is made once")?;
    WORKER.set(worker).ok().context("it is told once")?;
    let fleet = everstep::fleet(amqp);
    let fleet = if is_pool {
        fleet.function("far", charge).pool(POOL)
    } else {
        fleet
            .workflow(sequence)
            .workflow(sleeper)
            .workflow(waiter)
            .workflow(hooked)
            .workflow(parent)
            .workflow(leaf)
            .workflow(remote)
    };
    let fleet = fleet
        // Little at once and little ahead, so that queues hold something that a purge can take.
        .settings(|settings| {
            settings.instances = 40;
            settings.prefetch = 1;
            settings.inbox_prefetch = 2;
        });
    Ok(fleet.run().await?)
}

#[everstep::workflow]
async fn sequence(cx: Workflow, id: String) -> Result<(), Error> {
    for number in 1..=5 {
        act(&cx, &id, number).await?;
    }
    Ok(())
}

#[everstep::workflow]
async fn sleeper(cx: Workflow, id: String) -> Result<(), Error> {
    act(&cx, &id, 1).await?;
    cx.sleep("short", "300 ms").await?;
    act(&cx, &id, 2).await?;
    cx.sleep("long", "2 s").await?;
    act(&cx, &id, 3).await?;
    Ok(())
}

#[everstep::workflow]
async fn waiter(cx: Workflow, id: String) -> Result<(), Error> {
    act(&cx, &id, 1).await?;
    cx.event::<u64>("go").await?;
    act(&cx, &id, 2).await?;
    Ok(())
}

#[everstep::workflow]
async fn hooked(cx: Workflow, id: String) -> Result<(), Error> {
    let hook = cx.hook::<u64>("go").token(&id).create()?;
    act(&cx, &id, 1).await?;
    hook.next().await?;
    act(&cx, &id, 2).await?;
    Ok(())
}

#[everstep::workflow]
async fn parent(cx: Workflow, id: String) -> Result<(), Error> {
    act(&cx, &id, 1).await?;
    cx.child::<()>("leaf", leaf, child(&id)).await?;
    act(&cx, &id, 2).await?;
    Ok(())
}

#[everstep::workflow]
async fn leaf(cx: Workflow, id: String) -> Result<(), Error> {
    act(&cx, &id, 1).await?;
    act(&cx, &id, 2).await?;
    Ok(())
}

#[everstep::workflow]
async fn remote(cx: Workflow, id: String) -> Result<(), Error> {
    act(&cx, &id, 1).await?;
    let far = cx.remote::<String>("far", effect(&id, 2)).on(POOL);
    far.retry(Retry::constant("200 ms").unlimited()).await?;
    act(&cx, &id, 3).await?;
    Ok(())
}

fn act(cx: &Workflow, id: &str, number: u32) -> StepCall<String> {
    cx.step("act", effect(id, number), charge).retry(Retry::constant("200 ms").unlimited())
}

fn child(id: &str) -> String {
    format!("{id}-child")
}

fn effect(id: &str, number: u32) -> String {
    format!("{id}.{number}")
}

/// One effect: a charge, which the service makes once per key.
async fn charge(step: Step, effect: String) -> Result<String, Error> {
    tokio::time::sleep(TAKES).await;
    let (Some(worker), Some(http)) = (WORKER.get(), HTTP.get()) else {
        return Err(Error::failed("the worker was not told where the service is"));
    };
    let asked = http
        .post(format!("{}/charges", worker.service))
        .header("idempotency-key", step.idempotency_key())
        .json(&json!({ "order": effect, "cents": 1, "currency": "EUR" }))
        .send();
    let answer = asked.await.map_err(Error::failed)?;
    if !answer.status().is_success() {
        return Err(Error::failed(format_args!("the service answered {}", answer.status())));
    }
    Ok(effect)
}

/// Where the service of this address is reached.
pub(crate) fn service_url(address: SocketAddr) -> String {
    format!("http://{address}")
}

#[cfg(test)]
mod tests {
    //! Pure: what an instance is to have done.
    use super::*;

    #[test]
    fn effects_of_different_instances_are_different() {
        let all: Vec<String> =
            (0..60).flat_map(|number| Shape::of(number).effects(&format!("c-{number}"))).collect();
        let different: std::collections::HashSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(all.len(), 10 * (5 + 3 + 2 + 2 + 4 + 3));
    }
}
