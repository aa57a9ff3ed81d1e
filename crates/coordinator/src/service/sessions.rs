//! Sessions: opened, heard and ended through one queue with a single active consumer (rules W5 to W10).

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use everstep_broker::{Consume, Incoming, QueueDeclaration, QueueKind, Settle};
use everstep_engine::{Input, What, rows::Subject};
use everstep_protocol::{
    Epoch, InstanceUid, Millis, SessionId,
    message::{CoordinatorItem, Heard, Heartbeat, HeldStep, OpenSession, Opened, SessionMessage, ToWorker},
    topology, wire,
};
use everstep_store::LeaseRow;

use crate::{arrival::Arrival, sender::transient, shared::Shared};

const REFRESH: Duration = Duration::from_secs(1);

/// A gap in the coordinators' own heartbeats that is longer than this gives every session a full lease. At most three tenths of
/// the lease: within a gap nobody may be silent for long enough to be ended, or a broker that is away would expire the fleet.
fn gap(lease: Millis) -> Millis {
    Millis((lease.as_u64() * 3 / 10).clamp(1, 3_000))
}

/// Declares the sessions queue; coordinators and workers alike.
pub(crate) fn queue() -> QueueDeclaration {
    let mut queue = QueueDeclaration::new(topology::SESSIONS, QueueKind::Classic);
    queue.single_active_consumer = true;
    queue
}

/// Sends the coordinator's own heartbeat the same way that workers send theirs (rule W8).
pub(crate) async fn beat(shared: Arc<Shared>) {
    loop {
        let message = SessionMessage::Beat { coordinator: shared.id };
        if let Err(error) =
            shared.broker.send(vec![transient(topology::SESSIONS.to_owned(), wire::encode(&message))]).await
        {
            tracing::debug!(%error, "the way to the sessions queue is closed; no lease runs meanwhile");
        }
        tokio::time::sleep(gap(shared.settings.lease).to_std() / 3).await;
    }
}

/// Keeps the list of live sessions fresh: those that another coordinator opened or ended.
pub(crate) async fn keep_fresh(shared: Arc<Shared>) {
    loop {
        refresh(&shared).await;
        tokio::time::sleep(REFRESH).await;
    }
}

/// Reads the live sessions once.
pub(crate) async fn refresh(shared: &Shared) {
    let Ok(live) = shared.store.sessions().await else {
        return;
    };
    let ids: HashSet<_> = live.iter().map(|session| session.open.session).collect();
    for open in shared.sessions() {
        if !ids.contains(&open.session) {
            shared.forget(open.session);
        }
    }
    shared.metrics.sessions.set(live.len() as i64);
    for session in live {
        if shared.session(session.open.session).is_none_or(|known| known.inbox != session.open.inbox) {
            declare(shared, &session.open).await;
            shared.know(session.open);
        }
    }
}

/// Declares the queues that a session serves, before anything is offered to them: its worker need not have the right to
/// (rule W14). Once per queue; those that exist already stay as they are.
async fn declare(shared: &Shared, open: &OpenSession) {
    let runs = open.workflows.iter().map(|workflow| topology::run_queue(&open.namespace, workflow));
    let steps = open.pools.iter().map(|pool| topology::step_queue(&open.namespace, pool));
    let queues: Vec<_> = runs.chain(steps).filter(|queue| !shared.has_declared(queue)).collect();
    if queues.is_empty() {
        return;
    }
    let declarations =
        queues.iter().map(|queue| QueueDeclaration::new(queue.clone(), QueueKind::Classic).into()).collect();
    match shared.broker.declare(declarations).await {
        Ok(()) => shared.declared(queues),
        Err(error) => {
            tracing::warn!(%error, session = %open.session, "queues were not declared; the worker may have");
        }
    }
}

/// Reads the sessions queue.
pub(crate) async fn run(shared: Arc<Shared>) -> Result<(), crate::Error> {
    let consume = Consume { queue: queue().into(), prefetch: shared.settings.session_prefetch };
    let mut consumer = shared.broker.consume(consume).await?;
    let mut suspects = Suspects::default();
    loop {
        let mut page = Page::default();
        page.add(&shared, consumer.next().await);
        while page.len() < 500
            && let Some(incoming) = consumer.try_next()
        {
            page.add(&shared, incoming);
        }
        page.handle(&shared, &mut suspects).await;
    }
}

/// Leases that a heartbeat did not name, with the number of the heartbeat that first did not.
#[derive(Debug, Default)]
struct Suspects(HashMap<SessionId, HashMap<LeaseRow, u64>>);

/// Messages that are handled together.
#[derive(Debug, Default)]
struct Page {
    opens: Vec<OpenSession>,
    heartbeats: Vec<Heartbeat>,
    goodbyes: Vec<SessionId>,
    beat: bool,
    settles: Vec<Settle>,
}

impl Page {
    fn len(&self) -> usize {
        self.settles.len()
    }

    fn add(&mut self, shared: &Shared, incoming: Incoming) {
        let Incoming::Delivery(delivery) = incoming else {
            return;
        };
        shared.metrics.messages.with_label_values(&["session"]).inc();
        let (message, settle) = delivery.split();
        self.settles.push(settle);
        match wire::decode::<SessionMessage>("session message", &message.body) {
            Ok(SessionMessage::Open(open)) => self.opens.push(open),
            Ok(SessionMessage::Heartbeat(heartbeat)) => {
                // The latest heartbeat of a session says everything.
                self.heartbeats.retain(|other| other.session != heartbeat.session);
                self.heartbeats.push(heartbeat);
            }
            Ok(SessionMessage::Goodbye { session }) => self.goodbyes.push(session),
            Ok(SessionMessage::Beat { .. }) => self.beat = true,
            Err(error) => {
                tracing::warn!(%error, "a message on the sessions queue is dropped");
                shared.metrics.unreadable.with_label_values(&["session"]).inc();
            }
        }
    }

    /// Handles the page. What the store does not take is not answered, and comes again with the next resend or heartbeat.
    async fn handle(self, shared: &Arc<Shared>, suspects: &mut Suspects) {
        if self.beat
            && let Err(error) = shared.store.beat(shared.id, gap(shared.settings.lease)).await
        {
            tracing::warn!(%error, "the way's heartbeat was not noted; no lease runs meanwhile");
        }
        for open in self.opens {
            opened(shared, open).await;
        }
        if !self.heartbeats.is_empty() {
            heard(shared, self.heartbeats, suspects).await;
        }
        for session in self.goodbyes {
            goodbye(shared, session).await;
        }
        for settle in self.settles {
            settle.ack();
        }
    }
}

async fn opened(shared: &Arc<Shared>, open: OpenSession) {
    let (session, inbox) = (open.session, open.inbox.clone());
    // First, so that whoever sees the session in the store sees its queues too.
    declare(shared, &open).await;
    let item = match shared.store.open_session(&open).await {
        Ok(true) => {
            tracing::info!(%session, build = %open.build, host = %open.host, "a session is open");
            shared.know(open);
            CoordinatorItem::Opened(Opened {
                lease: shared.settings.lease,
                heartbeat: shared.settings.heartbeat,
                limits: shared.settings.limits,
            })
        }
        Ok(false) => CoordinatorItem::UnknownSession,
        Err(error) => {
            tracing::warn!(%error, %session, "a session was not opened; the worker asks again");
            return;
        }
    };
    answer(shared, session, inbox, vec![item]).await;
}

async fn heard(shared: &Arc<Shared>, heartbeats: Vec<Heartbeat>, suspects: &mut Suspects) {
    let names: Vec<_> = heartbeats
        .iter()
        .map(|heartbeat| everstep_store::Heard { session: heartbeat.session, inbox: heartbeat.inbox.clone() })
        .collect();
    let held = match shared.store.heard(&names).await {
        Ok(held) => held,
        Err(error) => {
            tracing::warn!(%error, "heartbeats were not noted; no lease runs meanwhile");
            return;
        }
    };
    for (heartbeat, leases) in heartbeats.into_iter().zip(held) {
        let (session, inbox) = (heartbeat.session, heartbeat.inbox.clone());
        let items = if let Some(leases) = leases {
            if shared.session(session).is_none_or(|known| known.inbox != inbox) {
                refresh(shared).await;
            }
            for credit in &heartbeat.credits {
                if credit.coordinator == shared.id {
                    shared.room().credit(session, credit.limit);
                }
            }
            vec![CoordinatorItem::Heard(compare(shared, &heartbeat, &leases, suspects))]
        } else {
            suspects.0.remove(&session);
            vec![CoordinatorItem::UnknownSession]
        };
        answer(shared, session, inbox, items).await;
    }
}

/// Compares what a session says it holds with what the store says (rule W6). A lease that it lacks is granted again at its
/// second heartbeat without it, and ended when it had that answer and still lacks it.
fn compare(shared: &Shared, heartbeat: &Heartbeat, leases: &[LeaseRow], suspects: &mut Suspects) -> Heard {
    let stored: HashMap<(InstanceUid, Subject), Epoch> =
        leases.iter().map(|lease| ((lease.uid, lease.subject), lease.epoch)).collect();
    let held: HashMap<(InstanceUid, Subject), Epoch> = heartbeat
        .held
        .iter()
        .map(|held| ((held.instance, Subject::INSTANCE), held.epoch))
        .chain(heartbeat.steps.iter().map(|step| ((step.instance, Subject::step(step.call)), step.epoch)))
        .collect();
    let known = suspects.0.entry(heartbeat.session).or_default();
    let mut still = HashMap::new();
    for lease in leases {
        if held.get(&(lease.uid, lease.subject)) == Some(&lease.epoch) {
            continue;
        }
        match known.get(lease) {
            None => drop(still.insert(*lease, heartbeat.number)),
            Some(first) if heartbeat.answered > *first => unconfirmed(shared, heartbeat.session, lease),
            Some(first) => {
                still.insert(*lease, *first);
                grant_again(shared, heartbeat.session, lease);
            }
        }
    }
    *known = still;
    let over = |key: &(InstanceUid, Subject), epoch: &Epoch| stored.get(key) != Some(epoch);
    Heard {
        number: heartbeat.number,
        not_yours: heartbeat
            .held
            .iter()
            .filter(|held| over(&(held.instance, Subject::INSTANCE), &held.epoch))
            .map(|held| (held.instance, held.epoch))
            .collect(),
        steps_not_yours: heartbeat
            .steps
            .iter()
            .filter(|step| over(&(step.instance, Subject::step(step.call)), &step.epoch))
            .map(|step| HeldStep { ..*step })
            .collect(),
    }
}

/// A repeated claim is answered with the same grant.
fn grant_again(shared: &Shared, session: SessionId, lease: &LeaseRow) {
    let what = match lease.subject.call() {
        None => What::Claim { session },
        Some(call) => What::StepClaim { session, call },
    };
    shared.submit(Arrival::new(Input::On { instance: lease.uid, what }));
}

fn unconfirmed(shared: &Shared, session: SessionId, lease: &LeaseRow) {
    let Some(open) = shared.session(session) else {
        return;
    };
    tracing::warn!(%session, instance = %lease.uid, epoch = %lease.epoch, "a lease was never confirmed and is ended");
    shared.metrics.leases_unconfirmed.inc();
    submit_end(shared, &open, lease, Some(lease.epoch), false);
}

/// Ends one lease of a session.
pub(crate) fn submit_end(
    shared: &Shared,
    open: &OpenSession,
    lease: &LeaseRow,
    epoch: Option<Epoch>,
    counts: bool,
) {
    shared.submit(Arrival::new(end_input(open, lease, epoch, counts)));
}

/// The input that ends one lease of a session.
pub(crate) fn end_input(open: &OpenSession, lease: &LeaseRow, epoch: Option<Epoch>, counts: bool) -> Input {
    let session = open.session;
    let what = match lease.subject.call() {
        None => What::LeaseEnded { session, epoch, slots: open.slots, counts },
        Some(call) => What::StepLeaseEnded { session, build: open.build.clone(), call, epoch, counts },
    };
    Input::On { instance: lease.uid, what }
}

async fn goodbye(shared: &Arc<Shared>, session: SessionId) {
    match shared.store.end_session(session, false).await {
        Ok(()) => {
            tracing::info!(%session, "a session said goodbye");
            shared.metrics.sessions_ended.with_label_values(&["goodbye"]).inc();
            shared.forget(session);
            shared.orphans.notify_one();
        }
        Err(error) => {
            tracing::warn!(%error, %session, "a goodbye was not noted; the session ends by silence");
        }
    }
}

/// Answers to the inbox that the message itself named.
async fn answer(shared: &Shared, session: SessionId, inbox: String, items: Vec<CoordinatorItem>) {
    if !inbox.starts_with(&topology::inbox(session)) {
        tracing::warn!(%session, "a session names an inbox that is not its own; it is not answered");
        return;
    }
    let envelope = ToWorker { incarnation: shared.incarnation, coordinator: shared.id, session, items };
    if let Err(error) = shared.broker.send(vec![transient(inbox, wire::encode(&envelope))]).await {
        tracing::debug!(%error, %session, "an answer was not sent; the worker asks again");
    }
}
