//! The producer: starts by AMQP, at a steady rate, each sent until the broker has confirmed it. A start that is confirmed is accepted.
//! What was accepted and is nowhere after the broker has lost everything is sent again, as the documentation tells producers to.

use std::{
    collections::{HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use everstep_broker::{AmqpBroker, AmqpSettings, Broker as _, Confirmation, Outgoing, Properties};
use everstep_client::api::Api;
use everstep_protocol::topology;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{look::Look, outsider, work::Shape};

/// How often starts are published.
const EVERY: Duration = Duration::from_millis(50);
/// Starts of one window.
const WINDOW: usize = 200;
/// Instances under way at most, in seconds of the rate.
const AHEAD_S: u64 = 12;
/// So long after the broker has lost everything it is looked what is nowhere: what was taken in before has then been committed.
const MISSED_AFTER: Duration = Duration::from_secs(4);
/// Starts that were accepted earlier than so many ago have been taken in long since.
const LOOKED_AT: usize = 5_000;

/// A start that the broker has confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) id: String,
    pub(crate) shape: Shape,
}

/// What has come of starting so far.
#[derive(Debug, Default)]
struct Book {
    made: u64,
    accepted: Vec<Accepted>,
    ids: HashSet<String>,
    waiting: VecDeque<Accepted>,
    /// When the broker has lost everything, and it was not looked yet what is missing.
    wiped: Option<Instant>,
    sent_again: u64,
}

/// The producer. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    book: Arc<Mutex<Book>>,
    /// Instances that have ended.
    ended: Arc<AtomicU64>,
    rate: u32,
    database: String,
}

impl Producer {
    /// One that begins now. Its tasks end with the handles.
    pub(crate) fn begin(
        broker: &str,
        database: &str,
        desks: Vec<Api>,
        rate: u32,
    ) -> (Self, Vec<JoinHandle<()>>) {
        let producer =
            Self { book: Arc::default(), ended: Arc::default(), rate, database: database.to_owned() };
        let broker = AmqpBroker::connect(AmqpSettings::new(broker, "chaos producer"));
        let publishing = tokio::spawn(producer.clone().publish(broker, desks));
        let counting = tokio::spawn(producer.clone().count());
        (producer, vec![publishing, counting])
    }

    /// How many instances have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    /// All starts that were accepted.
    pub(crate) fn accepted(&self) -> Vec<Accepted> {
        self.book().accepted.clone()
    }

    /// How many starts were sent again after the broker had lost everything.
    pub(crate) fn sent_again(&self) -> u64 {
        self.book().sent_again
    }

    /// The broker has lost everything.
    pub(crate) fn wiped(&self) {
        self.book().wiped = Some(Instant::now());
    }

    /// Starts nothing more. What waits to be sent is still sent.
    pub(crate) fn enough(&self) {
        let mut book = self.book();
        book.made = u64::MAX;
    }

    /// Whether everything is accepted that was begun, and nothing is to be looked for.
    pub(crate) fn is_done(&self) -> bool {
        let book = self.book();
        book.waiting.is_empty() && book.wiped.is_none()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn publish(self, broker: AmqpBroker, desks: Vec<Api>) {
        let (began, mut look) = (Instant::now(), Look::at(self.database.clone()));
        loop {
            tokio::time::sleep(EVERY).await;
            self.look_for_missing(&mut look).await;
            let window = self.window(began.elapsed());
            if window.is_empty() {
                continue;
            }
            let messages = window.iter().map(message).collect();
            let Ok(sent) = broker.send_confirmed(messages, true).await else { continue };
            let mut book = self.book();
            let confirmed: Vec<Accepted> = window
                .into_iter()
                .zip(sent)
                .filter_map(|(start, sent)| (sent == Confirmation::Confirmed).then_some(start))
                .collect();
            let ids: HashSet<&str> = confirmed.iter().map(|start| start.id.as_str()).collect();
            book.waiting.retain(|start| !ids.contains(start.id.as_str()));
            for start in confirmed {
                // What was sent again has been told already.
                if book.ids.insert(start.id.clone()) {
                    outsider::tell(desks.clone(), &start);
                    book.accepted.push(start);
                }
            }
        }
    }

    /// What is to be sent now: it waits until it is confirmed.
    fn window(&self, began: Duration) -> Vec<Accepted> {
        let mut book = self.book();
        let due = (began.as_secs_f64() * f64::from(self.rate)) as u64;
        let room = self.ended() + u64::from(self.rate) * AHEAD_S;
        while book.made < due.min(room) && book.waiting.len() < WINDOW {
            let number = book.made;
            book.made += 1;
            book.waiting.push_back(Accepted { id: format!("c-{number}"), shape: Shape::of(number) });
        }
        book.waiting.iter().take(WINDOW).cloned().collect()
    }

    async fn look_for_missing(&self, look: &mut Look) {
        let wiped = self.book().wiped;
        if wiped.is_none_or(|wiped| wiped.elapsed() < MISSED_AFTER) {
            return;
        }
        let last: Vec<Accepted> = self.book().accepted.iter().rev().take(LOOKED_AT).cloned().collect();
        let ids: Vec<String> = last.iter().map(|start| start.id.clone()).collect();
        let Ok(known) = look.known(&ids).await else { return };
        let known: HashSet<String> = known.into_iter().collect();
        let mut book = self.book();
        let missing: Vec<Accepted> = last.into_iter().filter(|start| !known.contains(&start.id)).collect();
        book.sent_again += missing.len() as u64;
        book.waiting.extend(missing);
        if book.wiped == wiped {
            book.wiped = None;
        }
    }

    async fn count(self) {
        let mut look = Look::at(self.database.clone());
        loop {
            if let Ok(ended) = look.ended().await {
                self.ended.store(ended, Ordering::SeqCst);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn message(start: &Accepted) -> Outgoing {
    let workflow = start.shape.workflow();
    let body = json!({ "workflow": workflow, "id": start.id, "input": start.id });
    Outgoing::to_exchange(topology::START_EXCHANGE, "default", body.to_string()).with(Properties {
        message_id: Some(format!("default/{workflow}/{}", start.id)),
        content_type: Some("application/json".to_owned()),
        persistent: true,
        ..Properties::default()
    })
}
