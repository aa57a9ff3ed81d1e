//! A coordinator or a worker as a process of its own, for the crash matrix: what it dies of says its environment.
//!
//! `crash_node coordinator <postgres> <amqp> [indirect]` also does what operators do, again and again, and prints what of it was
//! acknowledged, a line each: `made <access token>`, `revoked <access token>`; and at its end `received <starts>`.
//! `crash_node worker <amqp> <ledger> [stuck]`.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use everstep::client::api::{Api, WantedAccess};
use everstep_broker::{AmqpBroker, AmqpSettings, Broker};
use everstep_coordinator::{Coordinator, Handle, OfSchedule, Settings, http};
use everstep_engine::{
    access::{Asker, Grant},
    bulk::{Act, Bulk, Which},
    schedule::{Definition, When},
};
use everstep_protocol::{AccessToken, AccessTokenId, Millis, Namespace, Role, Scope};
use everstep_store::{
    AccessTokens as _, NewAccess,
    postgres::{PostgresSettings, PostgresStore},
};
use everstep_system_tests::{Kind, Setup, crash, world::name};
use everstep_worker::{OnStuck, Worker};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use uuid::Uuid;

/// How often operators do something.
const EVERY: Duration = Duration::from_millis(150);
/// One poll of a body may take so long.
const POLL_LIMIT: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match arguments[..] {
        ["coordinator", postgres, amqp] => runtime.block_on(coordinator(postgres, amqp, true)),
        ["coordinator", postgres, amqp, "indirect"] => runtime.block_on(coordinator(postgres, amqp, false)),
        ["worker", amqp, ledger] => runtime.block_on(worker(amqp, Path::new(ledger), false)),
        ["worker", amqp, ledger, "stuck"] => runtime.block_on(worker(amqp, Path::new(ledger), true)),
        _ => bail!("neither a coordinator nor a worker: {arguments:?}"),
    }
}

async fn coordinator(postgres: &str, amqp: &str, direct_grants: bool) -> Result<()> {
    let settings = Setup::new(Kind::Fleet).coordinator_settings();
    let settings = Settings { direct_grants, ..settings };
    let store = Arc::new(PostgresStore::connect(PostgresSettings::new(postgres)).await?);
    let broker: Arc<dyn Broker> = Arc::new(AmqpBroker::connect(AmqpSettings::new(amqp, "crash coordinator")));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let api = Api::new(&format!("http://{}", listener.local_addr()?), Namespace::default())?
        .with_access_token(&first_token(&store).await?)?;
    let coordinator = Coordinator::new(store, Arc::clone(&broker), settings).await?;
    let handle = coordinator.handle();
    // Whoever dies at its first access token leaves a topology that starts can be sent to.
    coordinator.declare().await;
    let settings = http::Settings { access: http::Demand::Always };
    let serving =
        tokio::spawn(http::serve_with(settings, listener, coordinator.handle(), std::future::pending()));
    let operating = tokio::spawn(operate(coordinator.handle()));
    let admitting = tokio::spawn(admit(api));
    coordinator.run(stopped()?).await?;
    for task in [operating, admitting] {
        task.abort();
    }
    serving.abort();
    broker.close().await;
    println!("received {}", starts_received(&handle));
    Ok(())
}

/// The token with which others are made, put into the store by the way that everything else than the API has.
async fn first_token(store: &PostgresStore) -> Result<String> {
    let token = AccessToken::new(AccessTokenId(Uuid::now_v7()), rand::random());
    let new = NewAccess {
        id: token.id(),
        name: "first".parse()?,
        hash: token.hash(),
        grant: Grant { role: Role::Admin, scope: Scope::All },
        lasts: None,
    };
    let by = Asker { who: "the test".to_owned(), from: "here".to_owned() };
    store.create_access_token(&new, &by).await?;
    Ok(token.reveal())
}

/// Access tokens are made, used and revoked over the API, again and again; what is acknowledged is said.
async fn admit(api: Api) {
    loop {
        if let Err(error) = admit_once(&api).await {
            tracing::debug!(%error, "a round is over");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn admit_once(api: &Api) -> Result<()> {
    let wanted = WantedAccess { name: None, role: Role::Viewer, expires: None };
    let made: serde_json::Value =
        serde_json::from_str(&api.create_access_token(&Scope::All, &wanted).await?.text)?;
    let id = made["id"].as_str().context("it has an id")?;
    println!("made {id}");
    let token = made["access_token"].as_str().context("it has a text")?;
    api.clone().with_access_token(token)?.rejected(Some(1)).await?;
    api.revoke_access_token(&Scope::All, id.parse()?).await?;
    println!("revoked {id}");
    Ok(())
}

async fn worker(amqp: &str, ledger: &Path, blocks: bool) -> Result<()> {
    let mut settings = Setup::new(Kind::Fleet).worker_settings();
    settings.pools = vec![crash::POOL.parse().context("the pool")?];
    settings.on_stuck = OnStuck::ExitProcess;
    settings.poll_limit = POLL_LIMIT;
    let broker: Arc<dyn Broker> = Arc::new(AmqpBroker::connect(AmqpSettings::new(amqp, "crash worker")));
    let worker = Worker::new(crash::registry(ledger, blocks), Arc::clone(&broker), settings)?;
    worker.run(stopped()?).await?;
    broker.close().await;
    Ok(())
}

/// How many messages it got that want a start.
fn starts_received(handle: &Handle) -> f64 {
    let families = handle.metrics().gather();
    let received = families.iter().filter(|family| family.name() == "everstep_messages_received_total");
    let starts = received
        .flat_map(|family| family.get_metric())
        .filter(|metric| metric.get_label().iter().any(|label| label.value() == "start"));
    starts.map(|metric| metric.get_counter().get_value()).sum()
}

fn stopped() -> Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        terminate.recv().await;
    })
}

/// Schedules, operations on many, deletions: whatever comes of them is looked at by nobody.
async fn operate(handle: Handle) {
    let namespace = Namespace::default();
    let (Ok(schedule), Ok(workflow)) = ("tick".parse(), "nobody".parse()) else { return };
    let Ok(definition) = Definition::starts("nothing", &(), When::every(Millis::from_secs(1))) else {
        return;
    };
    let of = OfSchedule { namespace: &namespace, id: &schedule, by: None };
    let which = Which { workflow: Some(workflow), ..Which::default() };
    let bulk = Bulk { act: Act::Resume, which };
    for round in 0_u32.. {
        drop(handle.put_schedule(of, &definition).await);
        if let Ok(id) = format!("bulk-{round}").parse() {
            drop(handle.begin_bulk(&namespace, &id, &bulk).await);
            drop(handle.stop_bulk(&namespace, &id).await);
        }
        let prey = format!("prey-{round}");
        drop(handle.delete(name("nothing", &prey), "delete".to_owned(), true).await);
        tokio::time::sleep(EVERY).await;
    }
}
