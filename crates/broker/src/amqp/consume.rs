//! The consuming connection and its consumers: one task and one channel each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
};
use lapin::protocol::AMQPSoftError;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, Connection};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::AmqpSettings;
use super::book::Book;
use super::convert::{self, classify, is_soft, short};
use super::declare;
use super::dial::Backoff;
use super::supervise::{Link, Role};
use crate::consumer::{Delivery, Incoming, Settle, SettleLane, Verdict};
use crate::topology::{Consume, Source};
use crate::{Error, Health};

/// A consumer that lived this long was a success; a shorter one makes the next pause longer.
const LONG_LIVED: Duration = Duration::from_secs(1);
/// Settles taken at a time.
const SETTLES_MAX: usize = 1_024;

/// Opens consuming connections.
pub(super) struct Consuming;

#[async_trait]
impl Role for Consuming {
    type Link = ConsumeLink;
    const NAME: &'static str = "consume";

    async fn open(&self, connection: Arc<Connection>, generation: u64) -> Result<ConsumeLink, Error> {
        Ok(ConsumeLink { connection, generation, broken: Notify::new() })
    }

    fn show(health: &mut Health, up: bool) {
        health.consuming = up;
    }
}

/// A live consuming connection. Channels on it fail one by one, and are renewed by their consumers.
pub(super) struct ConsumeLink {
    connection: Arc<Connection>,
    generation: u64,
    broken: Notify,
}

impl Link for ConsumeLink {
    fn is_alive(&self) -> bool {
        true
    }

    fn broken(&self) -> &Notify {
        &self.broken
    }
}

/// One consumer, over all its connections.
pub(super) struct ConsumerTask {
    pub(super) consume: Consume,
    pub(super) outgoing: mpsc::UnboundedSender<Incoming>,
    pub(super) live: watch::Receiver<Option<Arc<ConsumeLink>>>,
    pub(super) settings: Arc<AmqpSettings>,
    pub(super) health: Arc<watch::Sender<Health>>,
    pub(super) lanes: Arc<Lanes>,
}

/// Why a consumer's channel was left.
enum End {
    /// Its owner cancelled it.
    Cancelled,
    /// Anything else.
    Lost(String),
}

impl ConsumerTask {
    /// Runs until cancelled, or until the broker handle is closed.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::new(&self.settings);
        let mut failed = false;
        loop {
            let outgoing = self.outgoing.clone();
            let link = tokio::select! {
                () = outgoing.closed() => return,
                link = self.live.wait_for(Option::is_some) => link.ok().and_then(|link| link.clone()),
            };
            let Some(link) = link else { return };
            let since = Instant::now();
            let opened = timeout(self.settings.dial_deadline, open(&link, &self.consume)).await;
            let reason = match opened {
                Ok(Ok(open)) => {
                    if std::mem::take(&mut failed) {
                        self.health.send_modify(|health| health.last_error = None);
                    }
                    let connected = Incoming::Connected { queue: open.queue.clone() };
                    if self.outgoing.send(connected).is_err() {
                        return;
                    }
                    let End::Lost(reason) = self.pump(&link, open).await else { return };
                    let _ = self.outgoing.send(Incoming::Disconnected);
                    reason
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "opening a consumer took too long".to_owned(),
            };
            if since.elapsed() >= LONG_LIVED {
                backoff.reset();
            }
            if !self.is_current(&link) {
                backoff.reset();
                continue;
            }
            failed = true;
            tracing::warn!(queue = self.consume.queue.name(), reason, "consumer lost its channel");
            self.health.send_modify(|health| health.last_error = Some(reason.into()));
            tokio::select! {
                () = self.outgoing.closed() => return,
                () = sleep(backoff.pause()) => {}
            }
        }
    }

    fn is_current(&self, link: &Arc<ConsumeLink>) -> bool {
        self.live.borrow().as_ref().is_some_and(|current| Arc::ptr_eq(current, link))
    }

    /// Moves deliveries from lapin to the consumer.
    async fn pump(&mut self, link: &Arc<ConsumeLink>, open: Open) -> End {
        let Open { channel, mut deliveries, .. } = open;
        let (commands, waiting) = mpsc::unbounded_channel();
        self.lanes.register(&commands);
        let lane: Arc<dyn SettleLane> = Arc::new(Lane { commands });
        let mut settling = tokio::spawn(settle(channel.clone(), waiting));
        let outgoing = self.outgoing.clone();
        let end = loop {
            let next = tokio::select! {
                () = outgoing.closed() => break End::Cancelled,
                _ = &mut settling => break End::Lost("settling failed".to_owned()),
                _ = self.live.changed() => {
                    if self.is_current(link) { continue }
                    break End::Lost("the connection was given up".to_owned());
                }
                next = deliveries.next() => next,
            };
            let mut next = Some(next);
            let mut lost = None;
            while let Some(item) = next {
                match item {
                    Some(Ok(delivery)) => hand_over(&outgoing, &lane, delivery),
                    Some(Err(error)) => lost = Some(error.to_string()),
                    // Queue deleted, leader lost, ...: rebuild.
                    None => lost = lost.or_else(|| Some("cancelled by the broker".to_owned())),
                }
                if lost.is_some() {
                    break;
                }
                next = deliveries.next().now_or_never();
            }
            if let Some(reason) = lost {
                break End::Lost(reason);
            }
        };
        match end {
            End::Cancelled => {
                // The channel stays for what was handed out: it closes with the last settle handle.
                let _ = channel.basic_cancel(deliveries.tag(), BasicCancelOptions::default()).await;
                while let Some(Some(Ok(delivery))) = deliveries.next().now_or_never() {
                    lane.settle(delivery.delivery_tag, Verdict::Requeue);
                }
            }
            End::Lost(_) => settling.abort(),
        }
        end
    }
}

fn hand_over(
    outgoing: &mpsc::UnboundedSender<Incoming>,
    lane: &Arc<dyn SettleLane>,
    delivery: lapin::message::Delivery,
) {
    let settle = Settle::new(delivery.delivery_tag, lane.clone());
    let delivery = Delivery::new(convert::message(delivery), settle);
    if everstep_protocol::crash::delivers_twice() {
        // Whoever is gone does not get the other one either.
        drop(outgoing.send(Incoming::Delivery(delivery.unsettled())));
    }
    if let Err(mpsc::error::SendError(Incoming::Delivery(delivery))) =
        outgoing.send(Incoming::Delivery(delivery))
    {
        delivery.requeue();
    }
}

/// A consumer on a channel of its own.
struct Open {
    channel: Channel,
    deliveries: lapin::Consumer,
    queue: String,
}

async fn open(link: &ConsumeLink, consume: &Consume) -> Result<Open, Error> {
    let queue = consume.queue.actual_name(link.generation);
    let mut channel = channel(link).await?;
    if let Source::Declared(declaration) = &consume.queue
        && let Err(error) = declare::queue(&channel, declaration, &queue).await?
    {
        let is_there = declare::is_there_in_another_kind(declaration, &error);
        if !is_there && !is_soft(&error, &AMQPSoftError::ACCESSREFUSED) {
            return Err(classify(&error));
        }
        // No right to configure: the operator has declared it, or the consume below says that it is missing.
        channel = self::channel(link).await?;
    }
    channel
        .basic_qos(consume.prefetch, BasicQosOptions::default())
        .await
        .map_err(|error| classify(&error))?;
    // A re-used tag can lose deliveries (rabbitmq-server 9158).
    let tag = ShortString::from(uuid::Uuid::now_v7().to_string());
    let deliveries = channel
        .basic_consume(short(&queue)?, tag, BasicConsumeOptions::default(), FieldTable::default())
        .await
        .map_err(|error| classify(&error))?;
    Ok(Open { channel, deliveries, queue })
}

async fn channel(link: &ConsumeLink) -> Result<Channel, Error> {
    link.connection.create_channel().await.map_err(|error| classify(&error))
}

enum Command {
    Settle(u64, Verdict),
    /// Answered when all before it are written.
    Flush(oneshot::Sender<()>),
}

/// Settles of one channel. When the channel is gone nobody listens, and they come to nothing.
struct Lane {
    commands: mpsc::UnboundedSender<Command>,
}

impl SettleLane for Lane {
    fn settle(&self, tag: u64, verdict: Verdict) {
        let _ = self.commands.send(Command::Settle(tag, verdict));
    }

    fn dropped(&self, _tag: u64) {}
}

/// Sends settles, as few frames as possible, until the last handle is gone or the channel fails.
async fn settle(channel: Channel, mut waiting: mpsc::UnboundedReceiver<Command>) {
    let mut book = Book::default();
    let mut commands = Vec::new();
    while waiting.recv_many(&mut commands, SETTLES_MAX).await > 0 {
        let mut flushes = Vec::new();
        for command in commands.drain(..) {
            match command {
                Command::Settle(tag, Verdict::Ack) => book.ack(tag),
                Command::Settle(tag, Verdict::Requeue) => {
                    let options = BasicNackOptions { requeue: true, ..BasicNackOptions::default() };
                    if channel.basic_nack(tag, options).await.is_err() {
                        return;
                    }
                    book.told(tag);
                }
                Command::Flush(done) => flushes.push(done),
            }
        }
        for ack in book.flush() {
            let options = BasicAckOptions { multiple: ack.multiple };
            if channel.basic_ack(ack.tag, options).await.is_err() {
                return;
            }
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
    let _ = channel.close(200, "done".into()).await;
}

/// All lanes, to flush them before the connection closes.
#[derive(Default)]
pub(super) struct Lanes(Mutex<Vec<mpsc::WeakUnboundedSender<Command>>>);

impl Lanes {
    fn register(&self, commands: &mpsc::UnboundedSender<Command>) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(commands.downgrade());
    }

    /// Resolves when all settles given so far are written, or cannot be.
    pub(super) async fn flush(&self) {
        let lanes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let flush = |lane: mpsc::WeakUnboundedSender<Command>| {
            let (done, written) = oneshot::channel();
            lane.upgrade()?.send(Command::Flush(done)).ok()?;
            Some(written)
        };
        futures::future::join_all(lanes.into_iter().filter_map(flush)).await;
    }
}
