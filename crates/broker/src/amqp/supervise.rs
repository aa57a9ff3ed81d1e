//! One connection and its owner: dial, hand out, watch, start again.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use lapin::{Connection, Event};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::AmqpSettings;
use super::dial::{Backoff, Dialler};
use crate::{Error, Health};

/// How often the states that lapin does not announce are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A connection that lived this long was a success; a shorter one makes the next pause longer.
const LONG_LIVED: Duration = Duration::from_secs(1);
/// Most time for a polite goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

/// What a supervisor is given.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) settings: Arc<AmqpSettings>,
    pub(super) health: Arc<watch::Sender<Health>>,
    /// True, or without a sender: stop.
    pub(super) stopping: watch::Receiver<bool>,
    pub(super) generations: Arc<AtomicU64>,
}

/// What a connection is for.
#[async_trait]
pub(super) trait Role: Send + Sync + 'static {
    /// What is handed out while the connection is up.
    type Link: Link;
    const NAME: &'static str;

    /// Opens on the new connection what it is for.
    async fn open(&self, connection: Arc<Connection>, generation: u64) -> Result<Self::Link, Error>;

    /// Notes whether it is up.
    fn show(health: &mut Health, up: bool);

    /// Notes that a connection of this number has taken the place of the one before.
    fn renewed(_: &mut Health, _generation: u64) {}
}

/// A connection in use.
pub(super) trait Link: Send + Sync + 'static {
    /// Whether everything on it still works.
    fn is_alive(&self) -> bool;
    /// Told by whoever finds that it does not.
    fn broken(&self) -> &Notify;
}

/// Keeps one connection up until told to stop.
pub(super) async fn supervise<R: Role>(role: R, context: Context, live: watch::Sender<Option<Arc<R::Link>>>) {
    let mut backoff = Backoff::new(&context.settings);
    let mut dialler = Dialler::default();
    let mut stopping = context.stopping.clone();
    loop {
        let attempt = tokio::select! {
            () = stopped(&mut stopping) => return,
            attempt = establish(&role, &context, &mut dialler) => attempt,
        };
        let reason = match attempt {
            Ok((connection, link)) => {
                tracing::info!(role = R::NAME, "connected to the broker");
                let since = Instant::now();
                // Before the link is announced: a listener hears only what comes after it was made.
                let events = connection.events_listener();
                live.send_replace(Some(link.clone()));
                context.health.send_modify(|health| {
                    R::show(health, true);
                    health.last_error = None;
                });
                let reason = watch_over::<R>(&connection, events, &link, &context).await;
                if reason.is_none() {
                    // Before the channels go: lapin fails a connection whose channels are just closing.
                    say_goodbye(&connection).await;
                }
                live.send_replace(None);
                context.health.send_modify(|health| R::show(health, false));
                drop(link);
                let Some(reason) = reason else {
                    wait_for_end(connection).await;
                    return;
                };
                say_goodbye(&connection).await;
                if since.elapsed() >= LONG_LIVED {
                    backoff.reset();
                }
                reason
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!(role = R::NAME, reason, "no connection to the broker");
        context.health.send_modify(|health| health.last_error = Some(reason.into()));
        tokio::select! {
            () = stopped(&mut stopping) => return,
            () = sleep(backoff.pause()) => {}
        }
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error says that the last handle was dropped.
    let _ = stopping.wait_for(|stop| *stop).await;
}

async fn establish<R: Role>(
    role: &R,
    context: &Context,
    dialler: &mut Dialler,
) -> Result<(Arc<Connection>, Arc<R::Link>), Error> {
    let connection = Arc::new(dialler.dial(&context.settings, R::NAME).await?);
    let generation = super::next_generation(&context.generations);
    let opening = role.open(connection.clone(), generation);
    let link = timeout(context.settings.dial_deadline, opening)
        .await
        .unwrap_or_else(|_| Err(Error::unavailable("opening channels took too long")))?;
    context.health.send_modify(|health| {
        health.generation = generation;
        R::renewed(health, generation);
    });
    Ok((connection, Arc::new(link)))
}

/// Returns why the connection must be given up, or `None` to stop.
async fn watch_over<R: Role>(
    connection: &Connection,
    events: impl Stream<Item = Event>,
    link: &R::Link,
    context: &Context,
) -> Option<String> {
    let mut stopping = context.stopping.clone();
    let mut events = std::pin::pin!(events);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut blocked_since: Option<Instant> = None;
    loop {
        let mut reason = None;
        tokio::select! {
            () = stopped(&mut stopping) => return None,
            () = link.broken().notified() => return Some("a channel or a deadline failed".to_owned()),
            event = events.next() => match event {
                // Tells of channels too: the states below decide.
                Some(Event::Error(error)) => reason = Some(error.to_string()),
                None => return Some("the connection ended silently".to_owned()),
                Some(_) => {}
            },
            _ = tick.tick() => {}
        }
        if !connection.status().connected() {
            return reason.or_else(|| Some("the connection is gone".to_owned()));
        }
        if !link.is_alive() {
            return reason.or_else(|| Some("a channel was closed by the broker".to_owned()));
        }
        let blocked = connection.status().blocked();
        if blocked != blocked_since.is_some() {
            blocked_since = blocked.then(Instant::now);
            context.health.send_modify(|health| health.blocked = blocked);
        }
        if blocked_since.is_some_and(|since| since.elapsed() > context.settings.blocked_max) {
            return Some("blocked by the broker for too long".to_owned());
        }
    }
}

async fn say_goodbye(connection: &Connection) {
    let _ = timeout(GOODBYE, connection.close(200, "goodbye".into())).await;
}

/// Waits for lapin's thread, which must not outlive the runtime.
async fn wait_for_end(connection: Arc<Connection>) {
    let Some(connection) = Arc::into_inner(connection) else { return };
    let (ended, end) = oneshot::channel();
    // Not a blocking task: the runtime would wait for it for ever.
    std::thread::spawn(move || {
        let _ = connection.run();
        let _ = ended.send(());
    });
    let _ = timeout(GOODBYE, end).await;
}
