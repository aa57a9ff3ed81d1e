//! The link: consumers, sender and heartbeats on a thread of their own, so that user code can block none of them
//! (rule W12). It also looks whether a body blocks the work loop.

mod readers;
mod sender;

use std::{sync::Arc, time::Duration};

use everstep_broker::{
    Broker, Consume, Consumer, Declaration, Delivery, Error as BrokerError, ErrorKind, Incoming,
    QueueDeclaration, QueueKind,
};
use everstep_protocol::{
    CoordinatorId,
    crash::{around, at},
    message::{CoordinatorItem, SessionMessage, ToWorker, WorkerItem},
    topology, wire,
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot, watch as channel},
    time::{Instant, sleep_until},
};

use crate::{
    board::Board,
    metrics::Metrics,
    outbox::{Outbox, Parcel, transient},
    probe::{Phase, Telling},
    session::{Profile, Session},
    settings::SessionIds,
    watch::{Polled, Watch},
    work::Input,
};

/// How often the link looks whether the work loop turns.
const LOOK: Duration = Duration::from_millis(250);
/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// What the work loop hands over.
#[derive(Debug)]
pub(crate) enum ToLink {
    /// Send this.
    Parcel(Parcel),
    /// The work loop has ended: say goodbye.
    Bye,
}

/// Why the link ended.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It said goodbye.
    Goodbye,
    /// A body blocks the work loop; everything else was given back.
    Stuck(Polled),
    /// The work loop died.
    Broken,
    /// The broker refuses what the worker needs.
    Refused(BrokerError),
}

pub(crate) struct Link {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) profile: Profile,
    pub(crate) session_ids: SessionIds,
    pub(crate) prefetch: u16,
    pub(crate) inbox_prefetch: u16,
    pub(crate) report_queues: u32,
    pub(crate) poll_limit: Duration,
    pub(crate) metrics: Metrics,
    pub(crate) telling: Telling,
    pub(crate) board: Arc<Board>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) step_room: Arc<Semaphore>,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) stopping: channel::Receiver<bool>,
}

impl Link {
    /// What sends the work loop's parcels. It runs on the work loop's own thread, which spares a hop between threads per
    /// report; nothing but the work loop waits for it.
    pub(crate) fn sender(
        &self,
        outgoing: mpsc::UnboundedReceiver<ToLink>,
    ) -> impl Future<Output = bool> + Send + use<> {
        sender::run(self.broker.clone(), self.board.clone(), Outbox::new(self.report_queues), outgoing)
    }

    /// Runs until the work loop has ended, which the sender tells by `sent`, or is stuck.
    pub(crate) async fn run(self, mut sent: oneshot::Receiver<bool>) -> Ending {
        if let Err(error) = self.declare().await {
            return Ending::Refused(error);
        }
        let mut session = Session::new(self.session_ids.next(), Instant::now());
        let mut inbox = match self.inbox(&session).await {
            Ok(inbox) => inbox,
            Err(error) => return Ending::Refused(error),
        };
        let mut readers = None;
        let mut look = Instant::now() + LOOK;
        loop {
            let deadline = session.deadline().map_or(look, |at| at.min(look));
            tokio::select! {
                biased;
                ended = &mut sent => {
                    if !ended.unwrap_or(false) {
                        return Ending::Broken;
                    }
                    drop(readers);
                    self.goodbye(&session).await;
                    return Ending::Goodbye;
                }
                () = sleep_until(deadline) => {}
                incoming = inbox.next() => {
                    if self.take(incoming, &mut inbox, &mut session).await {
                        session = Session::new(self.session_ids.next(), Instant::now());
                        self.telling.set(Phase::Opening);
                        self.tell(Input::SessionOver);
                        match self.inbox(&session).await {
                            Ok(renewed) => inbox = renewed,
                            Err(error) => return Ending::Refused(error),
                        }
                    }
                }
            }
            if readers.is_none() && session.incarnation().is_some() && !*self.stopping.borrow() {
                match readers::Readers::start(&self).await {
                    Ok(started) => readers = Some(started),
                    Err(error) => return Ending::Refused(error),
                }
            }
            if *self.stopping.borrow() {
                self.telling.set(Phase::Stopping);
                readers = None;
            }
            let now = Instant::now();
            self.keep(&mut session, now).await;
            if now >= look {
                look = now + LOOK;
                self.metrics.broker_up.set(i64::from(self.broker.health().borrow().is_up()));
                if let Some(polled) = self.watch.stuck(self.poll_limit) {
                    self.give_up(&polled, &session).await;
                    return Ending::Stuck(polled);
                }
            }
        }
    }

    /// What both sides declare. An unreachable broker is no error: it is remembered, and repeated on connect.
    async fn declare(&self) -> Result<(), BrokerError> {
        let shared = |name: String| {
            Declaration::from(QueueDeclaration::new(name, QueueKind::Classic).single_active_consumer())
        };
        let mut queues = vec![shared(topology::SESSIONS.to_owned())];
        queues.extend((0..self.report_queues).map(|index| shared(topology::report_queue(index))));
        tolerate(self.broker.declare(queues).await)
    }

    async fn inbox(&self, session: &Session) -> Result<Consumer, BrokerError> {
        let queue = QueueDeclaration::new(topology::inbox(session.id), QueueKind::Exclusive);
        self.broker.consume(Consume::new(queue, self.inbox_prefetch)).await
    }

    /// Opens, beats, and watches the answers.
    async fn keep(&self, session: &mut Session, now: Instant) {
        if let Some(life) = session.open_due(now)
            && let Some(open) = session.open(&self.profile)
        {
            self.say(&open, life).await;
        }
        if let Some((heartbeat, life)) = session.heartbeat(|| self.board.account(now), now) {
            self.say(&heartbeat, life).await;
        }
        if let Some(paused) = session.pause(now) {
            if paused {
                tracing::warn!(session = %session.id, "heartbeats are unanswered: nothing new starts until they are");
            }
            self.telling.set(if paused { Phase::Paused } else { Phase::Up });
            self.tell(Input::Pause(paused));
        }
    }

    /// Takes what is in the inbox. Whether the session has ended.
    async fn take(&self, incoming: Incoming, inbox: &mut Consumer, session: &mut Session) -> bool {
        let mut next = Some(incoming);
        while let Some(incoming) = next {
            match incoming {
                Incoming::Connected { queue } => self.connected(queue, session).await,
                Incoming::Disconnected => session.disconnected(),
                Incoming::Delivery(delivery) => {
                    if self.delivery(delivery, session) {
                        return true;
                    }
                }
            }
            next = inbox.try_next();
        }
        false
    }

    async fn connected(&self, queue: String, session: &mut Session) {
        let now = Instant::now();
        session.connected(queue, now);
        if let Some(open) = session.open(&self.profile) {
            self.say(&open, crate::clock::Resend::FIRST).await;
        }
        if session.incarnation().is_some() {
            self.tell(Input::Reconnected);
        }
    }

    fn delivery(&self, delivery: Delivery, session: &mut Session) -> bool {
        let decoded = wire::decode::<ToWorker>("message to a worker", &delivery.body);
        at("ack.inbox", || delivery.ack());
        match decoded {
            Ok(message) if message.session != session.id => self.metrics.aside("session"),
            Ok(message) => return self.message(message, session),
            Err(error) => {
                self.metrics.aside("unreadable");
                tracing::warn!(%error, "a message in the inbox is set aside");
            }
        }
        false
    }

    /// Whether the session has ended.
    fn message(&self, message: ToWorker, session: &mut Session) -> bool {
        let ToWorker { incarnation, coordinator, items, .. } = message;
        let now = Instant::now();
        let mut rest = Vec::with_capacity(items.len());
        for item in items {
            let ours = session.incarnation() == Some(incarnation);
            match item {
                CoordinatorItem::UnknownSession => {
                    return !everstep_protocol::planted("ended_session_goes_on");
                }
                // Another life of the installation knows nothing of what this session holds.
                CoordinatorItem::Opened(_) if session.incarnation().is_some() && !ours => return true,
                CoordinatorItem::Opened(opened) => {
                    if session.opened(incarnation, opened, now) {
                        self.telling.set(Phase::Up);
                        self.tell(Input::Session { session: session.id, incarnation, opened });
                    }
                }
                _ if !ours => self.metrics.aside("incarnation"),
                CoordinatorItem::Heard(heard) => {
                    session.heard(heard.number);
                    let (instances, steps) = (heard.not_yours, heard.steps_not_yours);
                    if !instances.is_empty() || !steps.is_empty() {
                        self.tell(Input::NotOurs { instances, steps });
                    }
                }
                CoordinatorItem::Ping => {}
                item => rest.push(item),
            }
        }
        if session.incarnation() == Some(incarnation) {
            self.items(coordinator, rest);
        }
        false
    }

    fn items(&self, coordinator: CoordinatorId, items: Vec<CoordinatorItem>) {
        self.tell(Input::Items { coordinator, items });
    }

    fn tell(&self, input: Input) {
        // A work loop that has gone is noticed by the sender's end.
        let _ = self.inputs.send(input);
    }

    async fn say(&self, message: &SessionMessage, life: Duration) {
        let message = transient(topology::SESSIONS.to_owned(), wire::encode(message), life);
        if let Err(error) = around("publish.session", self.broker.send(vec![message])).await {
            tracing::debug!(%error, "a session message was not sent; it is repeated");
        }
    }

    async fn goodbye(&self, session: &Session) {
        let body = wire::encode(&SessionMessage::Goodbye { session: session.id });
        let message = transient(topology::SESSIONS.to_owned(), body, Duration::from_mins(1));
        let sent = tokio::time::timeout(
            GOODBYE,
            around("publish.goodbye", self.broker.send_confirmed(vec![message], false)),
        )
        .await;
        if !matches!(sent, Ok(Ok(_))) {
            tracing::warn!(session = %session.id, "the goodbye may not have arrived");
        }
    }

    /// Gives back everything but the instance that blocks the work loop: its death counts (rule W12).
    async fn give_up(&self, polled: &Polled, session: &Session) {
        tracing::error!(
            workflow = %polled.workflow, instance = %polled.id,
            "one poll of the body took longer than {:?}: the worker gives everything else back and ends", self.poll_limit
        );
        self.watch.abandon();
        let Some(incarnation) = session.incarnation() else { return };
        let account = self.board.account(Instant::now());
        let held = account.held.into_iter().filter(|held| held.instance != polled.instance);
        let mut items: Vec<_> =
            held.map(|held| WorkerItem::GiveBack { instance: held.instance, epoch: held.epoch }).collect();
        items.extend(account.steps.into_iter().map(|step| WorkerItem::StepGiveBack {
            instance: step.instance,
            call: step.call,
            epoch: step.epoch,
            unstarted: false,
        }));
        let life = Duration::from_secs(10);
        let items = items.into_iter().map(|item| (item, life)).collect();
        let mut outbox = Outbox::new(self.report_queues);
        outbox.add(Parcel { session: session.id, incarnation, items, settles: Vec::new() });
        let (messages, _) = outbox.flush(&[]);
        let sent = tokio::time::timeout(
            GOODBYE,
            around("publish.give_up", self.broker.send_confirmed(messages, false)),
        )
        .await;
        if !matches!(sent, Ok(Ok(_))) {
            tracing::error!("what is given back may not have arrived; the session's end frees it");
        }
    }
}

/// Only a refusal is final: everything else is repeated when the broker is back.
fn tolerate(result: Result<(), BrokerError>) -> Result<(), BrokerError> {
    match result {
        Err(error) if error.kind() == ErrorKind::RetryLater => Ok(()),
        result => result,
    }
}
