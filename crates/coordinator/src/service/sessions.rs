//! Sessions: opened, heard and ended through one queue with a single active consumer (rules W5 to W10).

use std::{collections::HashSet, sync::Arc, time::Duration};

use everstep_broker::{Consume, Incoming, QueueDeclaration, QueueKind, Settle};
use everstep_engine::{Input, What};
use everstep_protocol::{
    Epoch, Millis, SessionId,
    crash::{around, at},
    message::{CoordinatorItem, Heartbeat, OpenSession, Opened, Running, SessionMessage, ToWorker},
    topology, wire,
};
use everstep_store::LeaseRow;

use super::heartbeats::{self, Known};
use crate::{
    sender::{lasting, transient},
    shared::Shared,
};

const REFRESH: Duration = Duration::from_secs(1);

/// A gap in the coordinators' own heartbeats that is longer than this gives every session a full lease. At most three tenths of
/// the lease: within a gap nobody may be silent for long enough to be ended, or a broker that is away would expire the fleet.
fn gap(lease: Millis) -> Millis {
    Millis((lease.as_u64() * 3 / 10).clamp(1, 3_000))
}

/// The longest gap in which sessions are still taken for silent.
fn gap_noticed(lease: Millis) -> Millis {
    if everstep_protocol::planted("gap_unseen") { Millis(1 << 40) } else { gap(lease) }
}

/// Declares the sessions queue; coordinators and workers alike.
pub(crate) fn queue() -> QueueDeclaration {
    let mut queue = QueueDeclaration::new(topology::SESSIONS, QueueKind::Classic);
    queue.single_active_consumer = true;
    queue
}

/// Sends the coordinator's own heartbeat the same way that workers send theirs (rule W8). It lives no longer than one of theirs: a way on which
/// theirs die of old age must not look open.
pub(crate) async fn beat(shared: Arc<Shared>) {
    let life = u32::try_from(shared.settings.heartbeat.as_u64()).unwrap_or(u32::MAX).max(1);
    loop {
        let message = SessionMessage::Beat { coordinator: shared.id };
        let beat = lasting(topology::SESSIONS.to_owned(), wire::encode(&message), life);
        if let Err(error) = around("publish.beat", shared.broker.send(vec![beat])).await {
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
    let pinned = open
        .workflows
        .iter()
        .map(|workflow| topology::pinned_run_queue(&open.namespace, workflow, &open.build));
    let steps = open.pools.iter().map(|pool| topology::step_queue(&open.namespace, pool));
    let queues: Vec<_> =
        runs.chain(pinned).chain(steps).filter(|queue| !shared.has_declared(queue)).collect();
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
    let mut known = Known::default();
    loop {
        let mut page = Page::default();
        page.add(&shared, consumer.next().await);
        while page.len() < 500
            && let Some(incoming) = consumer.try_next()
        {
            page.add(&shared, incoming);
        }
        page.handle(&shared, &mut known).await;
    }
}

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
        shared.metrics.messages.inc("session");
        let (message, settle) = delivery.split();
        self.settles.push(settle);
        match wire::decode::<SessionMessage>("session message", &message.body) {
            Ok(said) => self.take(said),
            Err(error) => {
                tracing::warn!(%error, "a message on the sessions queue is dropped");
                shared.metrics.unreadable.with_label_values(&["session"]).inc();
            }
        }
    }

    fn take(&mut self, said: SessionMessage) {
        match said {
            SessionMessage::Open(open) => {
                // What it had said before names the inbox that it had.
                self.heartbeats.retain(|other| other.session != open.session);
                self.opens.push(open);
            }
            SessionMessage::Heartbeat(heartbeat) => {
                // The latest heartbeat of a session says everything.
                self.heartbeats.retain(|other| other.session != heartbeat.session);
                self.heartbeats.push(heartbeat);
            }
            SessionMessage::Goodbye { session } => self.goodbyes.push(session),
            SessionMessage::Beat { .. } => self.beat = true,
        }
    }

    /// Handles the page. What the store does not take is not answered, and comes again with the next resend or heartbeat.
    async fn handle(self, shared: &Arc<Shared>, known: &mut Known) {
        if self.beat
            && let Err(error) = around(
                "commit.session_beat",
                shared.store.beat(shared.id, gap_noticed(shared.settings.lease)),
            )
            .await
        {
            tracing::warn!(%error, "the way's heartbeat was not noted; no lease runs meanwhile");
        }
        for open in self.opens {
            opened(shared, open).await;
        }
        if !self.heartbeats.is_empty() {
            heartbeats::heard(shared, self.heartbeats, known).await;
        }
        for session in self.goodbyes {
            goodbye(shared, session).await;
        }
        known.forget_ended(shared);
        for settle in self.settles {
            at("ack.session", || settle.ack());
        }
    }
}

async fn opened(shared: &Arc<Shared>, open: OpenSession) {
    let (session, inbox) = (open.session, open.inbox.clone());
    // First, so that whoever sees the session in the store sees its queues too.
    declare(shared, &open).await;
    let item = match around("commit.session_open", shared.store.open_session(&open)).await {
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

/// The input that ends one lease of a session.
/// `progress` is what the session's running attempts had told.
pub(crate) fn end_input(
    open: &OpenSession,
    lease: &LeaseRow,
    epoch: Option<Epoch>,
    counts: bool,
    progress: &[Running],
) -> Input {
    let session = open.session;
    let mut told = progress
        .iter()
        .filter(|running| running.instance == lease.uid && running.epoch == lease.epoch)
        .map(|running| running.progress.clone());
    let what = match lease.subject.call() {
        None => {
            let progress = told.collect();
            What::LeaseEnded { session, epoch, slots: open.slots, counts, progress }
        }
        Some(call) => {
            let progress = told.find(|progress| progress.call == call).map(|progress| progress.told);
            let (build, unstarted) = (open.build.clone(), false);
            What::StepLeaseEnded { session, build, call, epoch, counts, unstarted, progress }
        }
    };
    Input::On { instance: lease.uid, what }
}

async fn goodbye(shared: &Arc<Shared>, session: SessionId) {
    match around("commit.session_goodbye", shared.store.end_session(session, false)).await {
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
pub(super) async fn answer(shared: &Shared, session: SessionId, inbox: String, items: Vec<CoordinatorItem>) {
    if !inbox.starts_with(&topology::inbox(session)) {
        tracing::warn!(%session, "a session names an inbox that is not its own; it is not answered");
        return;
    }
    let envelope = ToWorker { incarnation: shared.incarnation, coordinator: shared.id, session, items };
    let sent = shared.broker.send(vec![transient(inbox, wire::encode(&envelope))]);
    if let Err(error) = around("publish.session_answer", sent).await {
        tracing::debug!(%error, %session, "an answer was not sent; the worker asks again");
    }
}

#[cfg(test)]
mod tests {
    //! Proves that a beat after a gap gives every session a full lease, and that neither beats nor heartbeats are believed for longer than
    //! they are true. Not: when a session is silent; see the store's conformance.
    use super::*;
    use crate::rehearsal::{Hand, Rehearsal};

    /// Behind a slow reader heartbeats grow old. Beats that lived longer would say that the way is open on which nobody is heard.
    #[tokio::test]
    async fn w08_a_beat_lives_no_longer_than_it_takes_for_a_heartbeat_to_come() {
        let coordinator = Rehearsal::at(&Hand::default());
        let shared = Arc::clone(&coordinator.shared);
        let consume = Consume { queue: queue().into(), prefetch: 1 };
        let mut consumer = shared.broker.consume(consume).await.expect("the broker is there");
        let beating = tokio::spawn(beat(Arc::clone(&shared)));
        let message = loop {
            if let Incoming::Delivery(delivery) = consumer.next().await {
                break delivery.split().0;
            }
        };
        beating.abort();
        let life = u64::from(message.properties.expiration_ms.expect("it grows old"));
        assert_eq!(life, shared.settings.heartbeat.as_u64());
    }

    #[test]
    fn w09_a_late_heartbeat_does_not_bring_the_old_inbox_back() {
        let open = crate::rehearsal::open(SessionId::generate());
        let again = OpenSession { inbox: format!("{}.2", open.inbox), ..open.clone() };
        let heartbeat = |inbox: &str| Heartbeat {
            inbox: inbox.to_owned(),
            ..crate::rehearsal::heartbeat(open.session, 1)
        };
        let mut page = Page::default();
        page.take(SessionMessage::Heartbeat(heartbeat(&open.inbox)));
        page.take(SessionMessage::Open(again.clone()));
        assert_eq!((page.opens.len(), page.heartbeats.len()), (1, 0));
        page.take(SessionMessage::Heartbeat(heartbeat(&again.inbox)));
        assert_eq!(page.heartbeats.iter().map(|beat| &beat.inbox).collect::<Vec<_>>(), [&again.inbox]);
    }

    #[tokio::test]
    async fn w08_after_a_gap_nobody_has_been_silent() {
        let hand = Hand::default();
        let coordinator = Rehearsal::at(&hand);
        let (shared, session) = (&coordinator.shared, coordinator.opens().await);
        let beats =
            async || Page { beat: true, ..Page::default() }.handle(shared, &mut Known::default()).await;
        beats().await;
        // Neither beats nor heartbeats arrive.
        hand.moves(12);
        beats().await;
        let silent = || shared.store.silent(shared.settings.lease);
        assert_eq!(silent().await.expect("the store answers"), []);
        for _ in 0..10 {
            hand.moves(1);
            beats().await;
        }
        assert_eq!(silent().await.expect("the store answers"), [session]);
    }
}
