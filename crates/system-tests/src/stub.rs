//! A worker process that says exactly what a test wants said: it opens a session, beats, claims and reports by hand.

use std::{sync::Arc, time::Duration};

use everstep_broker::{Broker, Consume, Consumer, Incoming, Outgoing, QueueDeclaration, QueueKind};
use everstep_protocol::{
    BuildName, CoordinatorId, Incarnation, InstanceUid, Millis, Namespace, SessionId, WorkflowName,
    message::{
        CoordinatorItem, Credit, FromWorker, Grant, Heartbeat, Held, OpenSession, SessionMessage, ToWorker,
        WorkerItem,
    },
    topology, wire,
};

use crate::{DEADLINE, within};

/// A stub of a worker.
#[derive(Debug)]
pub struct Stub {
    broker: Arc<dyn Broker>,
    consumer: Consumer,
    inbox: String,
    workflows: Vec<WorkflowName>,
    report_queues: u32,
    number: u64,
    answered: u64,
    /// How long ago its work loop last came round, as its heartbeats say.
    pub turned: Millis,
    /// Its session.
    pub session: SessionId,
    /// The installation, once it was answered.
    pub incarnation: Option<Incarnation>,
    /// Whoever answered last.
    pub coordinator: Option<CoordinatorId>,
}

impl Stub {
    /// An inbox of its own, and no session yet.
    pub async fn new(broker: Arc<dyn Broker>, workflow: &str, report_queues: u32) -> Self {
        let session = SessionId::generate();
        let queue = QueueDeclaration::new(topology::inbox(session), QueueKind::Exclusive);
        let mut consumer = broker.consume(Consume::new(queue, 1_000)).await.expect("the broker is there");
        let inbox = loop {
            if let Incoming::Connected { queue } = consumer.next().await {
                break queue;
            }
        };
        let workflows = vec![WorkflowName::new(workflow).expect("a valid name")];
        let (incarnation, coordinator) = (None, None);
        Self {
            broker,
            consumer,
            inbox,
            workflows,
            report_queues,
            number: 0,
            answered: 0,
            turned: Millis(0),
            session,
            incarnation,
            coordinator,
        }
    }

    /// Opens the session and waits until it is open.
    pub async fn open(&mut self) {
        let open = OpenSession {
            session: self.session,
            namespace: Namespace::default(),
            workflows: self.workflows.clone(),
            pinned: Vec::new(),
            pools: Vec::new(),
            functions: Vec::new(),
            build: BuildName::new("stub").expect("a valid name"),
            inbox: self.inbox.clone(),
            slots: 10,
            instances: 10,
            host: "stub".to_owned(),
        };
        self.say(&SessionMessage::Open(open)).await;
        self.until("the session is open", |item| matches!(item, CoordinatorItem::Opened(_)).then_some(()))
            .await;
    }

    /// Sends a heartbeat and waits for its answer. With `credits` it may be granted so many in all.
    pub async fn beat(&mut self, held: &[Held], credits: u64) -> CoordinatorItem {
        let number = self.say_beat(held, credits).await;
        let answer = self
            .until("the answer to a heartbeat", |item| match item {
                CoordinatorItem::Heard(heard) if heard.number == number => Some(item.clone()),
                CoordinatorItem::UnknownSession => Some(item.clone()),
                _ => None,
            })
            .await;
        self.answered = number;
        answer
    }

    /// Sends a heartbeat. What is sent for it is left for [`Stub::until`].
    pub async fn beat_only(&mut self, held: &[Held]) {
        self.say_beat(held, 0).await;
    }

    async fn say_beat(&mut self, held: &[Held], credits: u64) -> u64 {
        self.number += 1;
        let number = self.number;
        let credits = match self.coordinator {
            Some(coordinator) if credits > 0 => vec![Credit { coordinator, limit: credits }],
            _ => Vec::new(),
        };
        let heartbeat = Heartbeat {
            session: self.session,
            number,
            answered: self.answered,
            inbox: self.inbox.clone(),
            held: held.to_vec(),
            steps: Vec::new(),
            running: 0,
            turned: Some(self.turned),
            credits,
            progress: Vec::new(),
        };
        self.say(&SessionMessage::Heartbeat(heartbeat)).await;
        number
    }

    /// Says something of an instance.
    pub async fn report(&self, item: WorkerItem) {
        let queue = topology::report_queue(topology::report_index(item.instance(), self.report_queues));
        let envelope = FromWorker {
            incarnation: self.incarnation.expect("the session is open"),
            session: self.session,
            credits: Vec::new(),
            items: vec![item],
        };
        self.send(Outgoing::to_queue(queue, wire::encode(&envelope))).await;
    }

    /// Claims an instance until it is granted or refused.
    pub async fn claim(&mut self, instance: InstanceUid) -> Option<Grant> {
        self.report(WorkerItem::Claim { instance, have: None }).await;
        self.until("the answer to a claim", |item| match item {
            CoordinatorItem::Grant(grant) if grant.instance == instance => Some(Some(grant.clone())),
            CoordinatorItem::NotGranted { instance: other } if *other == instance => Some(None),
            _ => None,
        })
        .await
    }

    /// Opens the session and claims an instance.
    pub async fn open_claim(&mut self, instance: InstanceUid) -> Option<Grant> {
        self.open().await;
        self.claim(instance).await
    }

    /// Waits for an item.
    pub async fn until<T>(&mut self, what: &str, wanted: impl Fn(&CoordinatorItem) -> Option<T>) -> T {
        within(what, DEADLINE, async {
            loop {
                if let Some(found) = self.next(&wanted).await {
                    return found;
                }
            }
        })
        .await
    }

    /// Whether an item comes within a time.
    pub async fn comes<T>(
        &mut self,
        limit: Duration,
        wanted: impl Fn(&CoordinatorItem) -> Option<T>,
    ) -> Option<T> {
        let found = async {
            loop {
                if let Some(found) = self.next(&wanted).await {
                    return found;
                }
            }
        };
        tokio::time::timeout(limit, found).await.ok()
    }

    async fn next<T>(&mut self, wanted: &impl Fn(&CoordinatorItem) -> Option<T>) -> Option<T> {
        let Incoming::Delivery(delivery) = self.consumer.next().await else { return None };
        let message: ToWorker = wire::decode("message to a worker", &delivery.body).expect("it is readable");
        delivery.ack();
        self.incarnation = Some(message.incarnation);
        self.coordinator = Some(message.coordinator);
        message.items.iter().find_map(wanted)
    }

    async fn say(&self, message: &SessionMessage) {
        self.send(Outgoing::to_queue(topology::SESSIONS, wire::encode(message))).await;
    }

    async fn send(&self, message: Outgoing) {
        self.broker.send_confirmed(vec![message], false).await.expect("the broker is there");
    }
}
