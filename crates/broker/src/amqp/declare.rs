//! Declaring: each run on a channel of its own, since a refusal closes the channel.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::protocol::AMQPSoftError;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ExchangeKind};

use super::convert::{classify, is_soft, short};
use crate::Error;
use crate::topology::{Declaration, QueueDeclaration, QueueKind};

/// Everything ever declared, to be declared again on each new connection.
#[derive(Default)]
pub(super) struct Topology(Mutex<Vec<Declaration>>);

impl Topology {
    fn lock(&self) -> MutexGuard<'_, Vec<Declaration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, topology: &[Declaration]) {
        let mut known = self.lock();
        for declaration in topology {
            match declaration {
                Declaration::DeleteQueue { name } => {
                    known.retain(|other| !matches!(other, Declaration::Queue(queue) if queue.name == *name));
                }
                Declaration::Exchange { .. } | Declaration::Queue(_) if known.contains(declaration) => {}
                Declaration::Exchange { .. } | Declaration::Queue(_) => known.push(declaration.clone()),
            }
        }
    }

    pub(super) fn forget(&self, topology: &[Declaration]) {
        self.lock().retain(|known| !topology.contains(known));
    }

    /// Declares what is known. A refusal is logged and passed over: one bad queue must not keep the others down.
    pub(super) async fn restore(&self, connection: &Connection) -> Result<(), Error> {
        let known = self.lock().clone();
        match apply(connection, &known).await {
            Err(Error::Refused { .. }) => {}
            result => return result,
        }
        for declaration in known {
            match apply(connection, std::slice::from_ref(&declaration)).await {
                Err(Error::Refused { reason }) => {
                    tracing::error!(?declaration, reason, "the broker no longer takes this declaration");
                }
                result => result?,
            }
        }
        Ok(())
    }
}

/// Declares in order, up to the first failure.
pub(super) async fn apply(connection: &Connection, topology: &[Declaration]) -> Result<(), Error> {
    if topology.is_empty() {
        return Ok(());
    }
    let mut channel = open(connection).await?;
    for declaration in topology {
        let Err(error) = declare(&channel, declaration).await? else { continue };
        if matches!(declaration, Declaration::Queue(queue) if is_there_in_another_kind(queue, &error)) {
            channel = open(connection).await?;
            continue;
        }
        if !is_soft(&error, &AMQPSoftError::ACCESSREFUSED) {
            return Err(classify(&error));
        }
        // No right to configure: then the operator has done it.
        channel = open(connection).await?;
        if exists(&channel, declaration).await?.is_err() {
            return Err(classify(&error));
        }
    }
    let _ = channel.close(200, "done".into()).await;
    Ok(())
}

/// Messages ready, `None` without such a queue.
pub(super) async fn depth(connection: &Connection, queue: &str) -> Result<Option<u32>, Error> {
    let channel = open(connection).await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let answer = channel.queue_declare(short(queue)?, options, FieldTable::default()).await;
    match answer {
        Ok(queue) => {
            let _ = channel.close(200, "done".into()).await;
            Ok(Some(queue.message_count()))
        }
        Err(error) if is_soft(&error, &AMQPSoftError::NOTFOUND) => Ok(None),
        Err(error) => Err(classify(&error)),
    }
}

async fn open(connection: &Connection) -> Result<Channel, Error> {
    connection.create_channel().await.map_err(|error| classify(&error))
}

/// The outer error is ours (a name too long), the inner one the broker's answer.
async fn declare(channel: &Channel, declaration: &Declaration) -> Result<Result<(), lapin::Error>, Error> {
    match declaration {
        Declaration::Exchange { name } => {
            let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            Ok(channel
                .exchange_declare(short(name)?, ExchangeKind::Topic, options, FieldTable::default())
                .await)
        }
        Declaration::Queue(declaration) => queue(channel, declaration, &declaration.name).await,
        Declaration::DeleteQueue { name } => {
            Ok(channel.queue_delete(short(name)?, QueueDeleteOptions::default()).await.map(|_| ()))
        }
    }
}

/// Declares and binds a queue under this name.
pub(super) async fn queue(
    channel: &Channel,
    declaration: &QueueDeclaration,
    name: &str,
) -> Result<Result<(), lapin::Error>, Error> {
    let exclusive = declaration.kind == QueueKind::Exclusive;
    let options = QueueDeclareOptions {
        durable: !exclusive,
        exclusive,
        auto_delete: exclusive,
        ..QueueDeclareOptions::default()
    };
    if let Err(error) = channel.queue_declare(short(name)?, options, arguments(declaration)).await {
        return Ok(Err(error));
    }
    for (exchange, key) in &declaration.bind {
        let (queue, exchange, key) = (short(name)?, short(exchange)?, short(key)?);
        let options = QueueBindOptions::default();
        if let Err(error) = channel.queue_bind(queue, exchange, key, options, FieldTable::default()).await {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Whether a queue was refused for nothing but its kind, where the kind is its operator's to choose: it serves as it is. So the
/// default of a vhost may be changed under processes that run, and each queue changes when it is made anew.
pub(super) fn is_there_in_another_kind(declaration: &QueueDeclaration, error: &lapin::Error) -> bool {
    declaration.kind == QueueKind::Classic
        && is_soft(error, &AMQPSoftError::PRECONDITIONFAILED)
        && error.to_string().contains("'x-queue-type'")
}

fn arguments(declaration: &QueueDeclaration) -> FieldTable {
    let mut arguments = FieldTable::default();
    let kind = match declaration.kind {
        QueueKind::Quorum => Some("quorum"),
        // The vhost's default.
        QueueKind::Classic => None,
        // Whatever that is: no other kind can be exclusive.
        QueueKind::Exclusive => Some("classic"),
    };
    if let Some(kind) = kind {
        arguments.insert("x-queue-type".into(), AMQPValue::LongString(kind.into()));
    }
    if declaration.single_active_consumer {
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    if let Some(queue) = &declaration.dead_letter {
        arguments.insert("x-dead-letter-exchange".into(), AMQPValue::LongString("".into()));
        arguments.insert("x-dead-letter-routing-key".into(), AMQPValue::LongString(queue.as_str().into()));
    }
    arguments
}

async fn exists(channel: &Channel, declaration: &Declaration) -> Result<Result<(), lapin::Error>, Error> {
    let arguments = FieldTable::default();
    match declaration {
        Declaration::Exchange { name } => {
            let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
            Ok(channel.exchange_declare(short(name)?, ExchangeKind::Topic, options, arguments).await)
        }
        Declaration::Queue(QueueDeclaration { name, .. }) => {
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            Ok(channel.queue_declare(short(name)?, options, arguments).await.map(|_| ()))
        }
        Declaration::DeleteQueue { name } => Err(Error::refused(format!("no right to delete queue {name}"))),
    }
}
