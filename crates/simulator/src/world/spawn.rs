//! Starts processes.

use std::sync::Arc;

use everstep_broker::Broker;
use everstep_coordinator::{Coordinator, Settings as CoordinatorSettings};
use everstep_protocol::Pool;
use everstep_sdk::Registry;
use everstep_store::Store;
use everstep_worker::{Loops, OnStuck, SessionIds, Settings as WorkerSettings, Worker};
use futures::FutureExt;
use tokio::time::{Duration, sleep};

use super::World;
use crate::{
    chance::Ids,
    check::Seen,
    life::Life,
    node::{Main, Process, Role},
    ports::{broker::FaultyBroker, store::FaultyStore},
    seed::SharedDraws,
    stage::Stage,
    workload::{
        BUILDS, POOL, build,
        effects::Services,
        interpret, name,
        outside::{Desk, Desks, Outside},
        person::Person,
    },
};

impl World {
    pub(super) fn spawn(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.lives += 1;
        let (role, number) = (node.role, node.number);
        let word = match role {
            Role::Coordinator => "coordinator",
            Role::Worker => "worker",
            Role::Pool => "pool",
            Role::Outside => "outside",
        };
        let name = format!("{word} {number} life {}", node.lives);
        let life = Arc::new(Life::new(name, role != Role::Outside, self.faults.clone(), self.trace.clone()));
        life.note(format_args!("starts"));
        let connection = self.hub.connection();
        let broker: Arc<dyn Broker> = Arc::new(FaultyBroker {
            inner: connection.clone(),
            wire: self.wire.clone(),
            clock: self.clock.clone(),
            life: life.clone(),
            watchers: self.watchers.clone(),
        });
        let main = match role {
            Role::Coordinator => self.coordinator(number, &life, broker),
            Role::Worker | Role::Pool => self.worker(role, number, &life, broker),
            Role::Outside => self.outside(broker),
        };
        match Process::start(life, connection, main) {
            Ok(process) => {
                self.nodes[index].process = Some(process);
                self.meets_the_broker(index);
            }
            Err(error) => self.watchers.breach("world", format!("a process could not be started: {error}")),
        }
    }

    fn coordinator(&self, number: usize, life: &Arc<Life>, broker: Arc<dyn Broker>) -> Main {
        let store: Arc<dyn Store> = Arc::new(FaultyStore {
            inner: self.store.clone(),
            life: life.clone(),
            watchers: self.watchers.clone(),
            clock: self.clock.clone(),
        });
        coordinate(
            store,
            broker,
            self.scene.coordinator.clone(),
            self.ids.clone(),
            self.desks.clone(),
            number,
            life.clone(),
        )
        .boxed()
    }

    fn worker(&self, role: Role, number: usize, life: &Arc<Life>, broker: Arc<dyn Broker>) -> Main {
        let services = Services { books: self.books.clone(), life: life.clone() };
        let registry = if role == Role::Worker { interpret::registry(&services) } else { Registry::new() };
        let registry = interpret::pooled(registry, &services);
        let (ids, of) = (self.ids.clone(), life.clone());
        let (watchers, its) = (self.watchers.clone(), build(number));
        let settings = WorkerSettings {
            build: Some(build(number)),
            pools: Pool::new(POOL).into_iter().collect(),
            report_queues: self.scene.coordinator.report_queues,
            loops: Loops::Current,
            on_stuck: OnStuck::Abandon,
            interceptor: Some(Arc::new(Stage { life: life.clone(), watchers: self.watchers.clone() })),
            session_ids: SessionIds::new(move || {
                let session = ids.session();
                of.set_session(session);
                watchers.see(&Seen::Opens { session, build: &its });
                session
            }),
            ..self.scene.worker.clone()
        };
        async move {
            let worker = Worker::new(registry, broker, settings).map_err(|error| error.to_string())?;
            worker.run(std::future::pending()).await.map_err(|error| error.to_string())
        }
        .boxed()
    }

    fn outside(&mut self, broker: Arc<dyn Broker>) -> Main {
        let outside = Outside::new(
            broker,
            self.desks.clone(),
            SharedDraws::new(self.seed, "outside"),
            self.watchers.clone(),
            self.trace.clone(),
            self.scene.pace,
        );
        self.outside = Some(outside.clone());
        let (planned, schedules) = (self.scene.planned.clone(), self.scene.schedules.clone());
        let person = Person {
            outside: outside.clone(),
            books: self.books.clone(),
            faults: self.faults.clone(),
            builds: self.scene.workers.min(BUILDS.len()),
            names: planned.iter().map(|planned| name(&planned.id)).collect(),
            interferes: self.scene.interferes,
        };
        async move {
            outside.begin(planned, schedules);
            person.works().await;
            Ok(())
        }
        .boxed()
    }
}

async fn coordinate(
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
    settings: CoordinatorSettings,
    ids: Arc<Ids>,
    desks: Desks,
    number: usize,
    life: Arc<Life>,
) -> Result<(), String> {
    let coordinator = loop {
        let made =
            Coordinator::with_chance(store.clone(), broker.clone(), settings.clone(), ids.clone()).await;
        match made {
            Ok(coordinator) => break coordinator,
            Err(error) if error.is_retry_safe() => sleep(Duration::from_millis(500)).await,
            Err(error) => return Err(error.to_string()),
        }
    };
    desks.set(number, Some(Desk { handle: coordinator.handle(), life }));
    coordinator.run(std::future::pending()).await.map_err(|error| error.to_string())
}
