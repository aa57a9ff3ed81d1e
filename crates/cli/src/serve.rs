//! The commands that open a store: `migrate`, `restored`, `coordinator`, `dev`.

mod example;
mod stop;

use std::{path::Path, sync::Arc};

use anyhow::Context;
use everstep_broker::{Broker, amqp::AmqpBroker, memory::MemoryBroker};
use everstep_coordinator::{Coordinator, Handle, http};
use everstep_metrics::page::{self, Page, Probes};
use everstep_store::{
    Store,
    postgres::{self, PostgresStore},
    sqlite::SqliteStore,
};
use everstep_worker::{Probe, Worker};
use tokio::net::TcpListener;

use self::stop::Stop;
use crate::{failure::Failure, settings::Settings, telemetry};

/// `everstep migrate`: prints what was applied.
pub async fn migrate(settings: &Settings) -> Result<(), Failure> {
    let applied = postgres::migrate(settings.postgres.store()).await.map_err(anyhow::Error::from)?;
    for postgres::Applied { version, name } in &applied {
        println!("applied {version:04} {name}");
    }
    if applied.is_empty() {
        println!("the schema is up to date");
    }
    Ok(())
}

/// `everstep restored`: prints what the restored database begins with.
pub async fn restored(settings: &Settings, settled: bool) -> Result<(), Failure> {
    let store = settings.postgres.store();
    if settled {
        let was_open = postgres::settled(store).await.map_err(anyhow::Error::from)?;
        println!(
            "{}",
            if was_open {
                "the questions of the restore are over; coordinators that are started from now on ask none"
            } else {
                "no restore has open questions"
            }
        );
        return Ok(());
    }
    let postgres::Restored { incarnation, open, sessions, ends } =
        postgres::restored(store).await.map_err(anyhow::Error::from)?;
    println!("incarnation {incarnation}: nothing that a former life says is believed");
    println!("{open} open instances go on from where the database has them, {sessions} sessions are over");
    println!("{ends} ends of another server are told anew");
    println!("steps that are called at most once ask a person first, until `everstep restored --settled`");
    Ok(())
}

/// `everstep coordinator`: runs until it is told to stop.
pub async fn coordinator(settings: &Settings) -> Result<(), Failure> {
    let telemetry = telemetry::start(&settings.log, &settings.otlp)?;
    let outcome = on_services(settings).await;
    telemetry.stop().await;
    Ok(outcome?)
}

async fn on_services(settings: &Settings) -> anyhow::Result<()> {
    let listener = bind(settings).await?;
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(settings.postgres.store()).await?);
    let broker = settings.amqp.broker("everstep coordinator").context("amqp.ca_file cannot be read")?;
    let broker: Arc<dyn Broker> = Arc::new(AmqpBroker::connect(broker));
    let coordinator = Coordinator::new(store, Arc::clone(&broker), settings.coordinator.clone()).await?;
    let page = metrics(settings, coordinator.handle(), None)?;
    let outcome = run(settings, listener, coordinator, None, Stop::on_signal()?).await;
    end(page).await;
    broker.close().await;
    outcome
}

/// `everstep dev`: everything in this process, until it is told to stop.
pub async fn dev(settings: &Settings, data: &Path) -> Result<(), Failure> {
    let telemetry = telemetry::start(&settings.log, &settings.otlp)?;
    let outcome = embedded(settings, data).await;
    telemetry.stop().await;
    Ok(outcome?)
}

async fn embedded(settings: &Settings, data: &Path) -> anyhow::Result<()> {
    let listener = bind(settings).await?;
    let file = data.join("dev.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file)?);
    let payments = example::payments(data).await?;
    let broker = MemoryBroker::new();
    let registry = everstep_examples::registry();
    let coordinator = Coordinator::new(store, Arc::new(broker.clone()), settings.coordinator.clone()).await?;
    let counters = everstep_worker::Metrics::new(coordinator.handle().metrics())?;
    let worker = Worker::new(registry, Arc::new(broker.connection()), worker_settings(settings, counters)?)?;
    let page = metrics(settings, coordinator.handle(), Some(worker.probe()))?;
    tracing::info!(data = %file.display(), "everything runs in this process, on an embedded store");
    let outcome = run(settings, listener, coordinator, Some(worker), Stop::on_signal()?).await;
    end(page).await;
    broker.close().await;
    outcome.and(payments.stop().await)
}

/// The page of metrics and probes, if one is wanted. What it shows of the worker in `dev` is on the coordinator's registry.
fn metrics(settings: &Settings, handle: Handle, worker: Option<Probe>) -> anyhow::Result<Option<Page>> {
    let Some(listen) = settings.metrics.listen else { return Ok(None) };
    let registries = vec![handle.metrics().clone()];
    let missing = handle.clone();
    let mut probes = Probes::new(move || handle.dead(), move || missing.missing());
    if let Some(worker) = worker {
        let missing = worker.clone();
        probes = probes.and(Probes::new(move || worker.dead(), move || missing.missing()));
    }
    let served = page::serve(listen, registries, probes, &tokio::runtime::Handle::current());
    Ok(Some(served.with_context(|| format!("cannot serve metrics at {listen}"))?))
}

async fn end(page: Option<Page>) {
    if let Some(page) = page {
        page.stop().await;
    }
}

fn worker_settings(
    settings: &Settings,
    metrics: everstep_worker::Metrics,
) -> anyhow::Result<everstep_worker::Settings> {
    Ok(everstep_worker::Settings {
        namespace: settings.coordinator.namespaces.first().cloned().unwrap_or_default(),
        build: settings.worker.build.clone(),
        pools: example::pools(&settings.worker.pools)?,
        slots: settings.worker.slots,
        instances: settings.worker.instances,
        report_queues: settings.coordinator.report_queues,
        shutdown_grace: settings.worker.grace(),
        metrics,
        ..everstep_worker::Settings::default()
    })
}

/// Before anything else is opened: a port in use is the likeliest mistake.
async fn bind(settings: &Settings) -> anyhow::Result<TcpListener> {
    let listen = settings.http.listen;
    TcpListener::bind(listen).await.with_context(|| format!("cannot serve HTTP at {listen}"))
}

/// Runs all parts until the stop, or until one of them ends by itself. The worker goes first and the coordinator last, so
/// that what the worker gives back is taken.
async fn run(
    settings: &Settings,
    listener: TcpListener,
    coordinator: Coordinator,
    worker: Option<Worker>,
    stop: Stop,
) -> anyhow::Result<()> {
    let handle = coordinator.handle();
    let identity = settings.http.identity().context("cannot serve HTTPS")?;
    let api = async {
        let served = settings.http.served();
        let outcome = match identity {
            Some(identity) => http::serve_encrypted(served, identity, listener, handle, stop.begun()).await,
            None => http::serve_with(served, listener, handle, stop.begun()).await,
        };
        stop.begin();
        outcome.context("the HTTP API has failed")
    };
    let work = async {
        let outcome = if let Some(worker) = worker {
            worker.run(stop.begun()).await.context("the worker has failed")
        } else {
            stop.begun().await;
            Ok(())
        };
        stop.finish();
        outcome
    };
    let turns = async {
        let outcome = tokio::spawn(coordinator.run(stop.finished())).await;
        stop.begin();
        outcome.context("the coordinator has panicked")?.context("the coordinator has failed")
    };
    let (api, work, turns) = tokio::join!(api, work, turns);
    turns.and(work).and(api)
}
