//! Publishing with confirms, in windows.
//!
//! One task owns the channel, because lapin numbers and writes a publish in two steps, and a second publisher in
//! between would swap the numbers. Windows follow one another, because lapin may hand a returned message out with
//! the confirm of another message: by the end of a window all its returns are in, told apart by message
//! id, exchange and key. Whoever comes while a window is under way goes into the next one together.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::maybe_done;
use futures::poll;
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{Channel, Confirmation as Answer};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::AmqpSettings;
use super::publish::{Prepared, prepare};
use crate::{Confirmation, Error, Outgoing};

/// What one caller wants published.
struct Job {
    messages: Vec<Prepared>,
    mandatory: bool,
    reply: oneshot::Sender<Vec<Confirmation>>,
}

/// A channel in confirm mode.
pub(super) struct Confirmed {
    channel: Channel,
    jobs: mpsc::UnboundedSender<Job>,
}

impl Confirmed {
    /// Starts the task that owns the channel; it ends with this handle.
    pub(super) fn start(channel: Channel, settings: &AmqpSettings, broken: Arc<Notify>) -> Self {
        let (jobs, waiting) = mpsc::unbounded_channel();
        let driver = Driver {
            channel: channel.clone(),
            window: settings.publish_window.max(1),
            deadline: settings.confirm_deadline,
            broken,
        };
        tokio::spawn(driver.run(waiting));
        Self { channel, jobs }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.channel.status().connected()
    }

    /// One result per message, in the order of the messages.
    pub(super) async fn publish(
        &self,
        messages: Vec<Outgoing>,
        mandatory: bool,
    ) -> Result<Vec<Confirmation>, Error> {
        let count = messages.len();
        let messages = messages.into_iter().map(identified).collect::<Result<_, _>>()?;
        let (reply, answer) = oneshot::channel();
        let job = Job { messages, mandatory, reply };
        self.jobs.send(job).map_err(|_| Error::unavailable("the publishing channel is gone"))?;
        Ok(answer.await.unwrap_or_else(|_| vec![Confirmation::Unknown; count]))
    }
}

fn identified(mut message: Outgoing) -> Result<Prepared, Error> {
    message.properties.message_id.get_or_insert_with(|| uuid::Uuid::now_v7().to_string());
    prepare(message)
}

struct Driver {
    channel: Channel,
    window: usize,
    deadline: Duration,
    broken: Arc<Notify>,
}

impl Driver {
    async fn run(self, mut waiting: mpsc::UnboundedReceiver<Job>) {
        while let Some(first) = waiting.recv().await {
            let mut count = first.messages.len();
            let mut jobs = vec![first];
            while count < self.window
                && let Ok(job) = waiting.try_recv()
            {
                count += job.messages.len();
                jobs.push(job);
            }
            let mut results = self.publish(&jobs).await.into_iter();
            for job in jobs {
                let of_job = results.by_ref().take(job.messages.len()).collect();
                // The caller may have gone away.
                let _ = job.reply.send(of_job);
            }
        }
    }

    async fn publish(&self, jobs: &[Job]) -> Vec<Confirmation> {
        let of_job = |job: &'_ Job| job.messages.len();
        let mut results = Vec::with_capacity(jobs.iter().map(of_job).sum());
        let messages: Vec<_> =
            jobs.iter().flat_map(|job| job.messages.iter().map(|message| (message, job.mandatory))).collect();
        for window in messages.chunks(self.window) {
            results.extend(self.publish_window(window).await);
        }
        if results.contains(&Confirmation::Unknown) {
            // A late confirm would upset the next window.
            self.broken.notify_one();
        }
        results
    }

    async fn publish_window(&self, window: &[(&Prepared, bool)]) -> Vec<Confirmation> {
        let mut publishing = Vec::with_capacity(window.len());
        for (message, mandatory) in window {
            let mut one = Box::pin(maybe_done(self.channel.basic_publish(
                message.exchange.clone(),
                message.routing_key.clone(),
                BasicPublishOptions { mandatory: *mandatory, ..BasicPublishOptions::default() },
                &message.body,
                message.properties.clone(),
            )));
            // The first poll numbers the message and queues its frames: here, so that they stand in order.
            let _ = poll!(one.as_mut());
            publishing.push(one);
        }
        let mut results = vec![Confirmation::Unknown; window.len()];
        let mut returned = HashSet::new();
        let settling = async {
            for (one, result) in publishing.iter_mut().zip(&mut results) {
                one.as_mut().await;
                let Some(Ok(confirm)) = one.as_mut().take_output() else { continue };
                let Ok(answer) = confirm.await else { continue };
                *result = match answer {
                    Answer::Ack(_) => Confirmation::Confirmed,
                    Answer::Nack(_) => Confirmation::Refused,
                    Answer::NotRequested => Confirmation::Unknown,
                };
                returned.extend(answer.take_message().map(Identity::of_returned));
            }
        };
        let _ = timeout(self.deadline, settling).await;
        for ((message, _), result) in window.iter().zip(&mut results) {
            if !returned.is_empty() && returned.contains(&Identity::of(message)) {
                *result = Confirmation::Unroutable;
            }
        }
        results
    }
}

/// What tells the messages of a window apart: the same id may go to several places.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    message_id: Option<ShortString>,
    exchange: ShortString,
    routing_key: ShortString,
}

impl Identity {
    fn of(message: &Prepared) -> Self {
        Self {
            message_id: message.properties.message_id().clone(),
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
        }
    }

    fn of_returned(message: BasicReturnMessage) -> Self {
        let delivery = message.delivery;
        Self {
            message_id: delivery.properties.message_id().clone(),
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
        }
    }
}
