//! Start messages: checked here, at the edge, so that bad input harms nobody else's work (rule W40). What is dead-lettered by
//! the broker is recorded in the same way.

use std::sync::Arc;

use everstep_broker::{Consume, Delivery, HeaderValue, Incoming, Message, Properties, Settle};
use everstep_engine::{Input, mailbox::OWN_APP_ID, start::MessageKey};
use everstep_protocol::{
    Namespace, Payload, WorkflowName,
    start::{Claimed, Encoding, StartError, StartMessage},
    topology,
};
use everstep_store::{MessageName, Rejected};
use everstep_telemetry::trace;

use super::rejections::KEPT_BYTES;
use crate::{
    Error,
    arrival::{Arrival, Debt, ReplyTo, Share},
    handle::{StartRequest, is_served, look_for_workers, prepare},
    reply,
    shared::{Rejection, Shared},
    traces::Taken,
};

/// Reads the start queue of one namespace.
pub(crate) async fn run(shared: Arc<Shared>, namespace: Namespace) -> Result<(), crate::Error> {
    let consume =
        Consume { queue: topology::start_queue(&namespace).into(), prefetch: shared.settings.start_prefetch };
    each(&shared, &namespace, consume, |delivery| {
        shared.metrics.messages.inc("start");
        let (message, settle) = delivery.split();
        take(&shared, &namespace, &message, settle);
    })
    .await
}

/// Reads a queue, except while the namespace's rejected records are at their bound (rule W17): then the consumer goes away, and
/// what it held goes back to the queue.
async fn each(
    shared: &Shared,
    namespace: &Namespace,
    consume: Consume,
    take: impl Fn(Delivery),
) -> Result<(), crate::Error> {
    loop {
        shared.bound.open(namespace).await;
        let mut consumer = shared.broker.consume(consume.clone()).await?;
        loop {
            tokio::select! {
                biased;
                () = shared.bound.stopped(namespace) => break,
                incoming = consumer.next() => if let Incoming::Delivery(delivery) = incoming {
                    take(delivery);
                },
            }
        }
    }
}

/// Records what the broker gave up on.
pub(crate) async fn run_dead(shared: Arc<Shared>, namespace: Namespace) -> Result<(), crate::Error> {
    let consume = Consume { queue: topology::dead_queue(&namespace).into(), prefetch: 50 };
    each(&shared, &namespace, consume, |delivery| {
        shared.metrics.messages.inc("dead");
        let (message, settle) = delivery.split();
        let refusal = Refusal {
            code: "dead_letter",
            reason: "the broker delivered it too often, or it expired".to_owned(),
            reply_to: None,
        };
        reject(&shared, &namespace, &message, settle, refusal);
    })
    .await
}

fn take(shared: &Arc<Shared>, namespace: &Namespace, message: &Message, settle: Settle) {
    let taken = Taken::start(message);
    let checked = taken.within(|| check(shared, namespace, message));
    let span = taken.span();
    match checked {
        Ok((start, reply_to)) => {
            if let Some(span) = &span {
                let name = &start.name;
                span.say(trace::NAMESPACE, name.namespace.to_string());
                span.say(trace::WORKFLOW, name.workflow.to_string());
                span.say(trace::INSTANCE, name.id.to_string());
            }
            let message = Share::divide(settle, 1).pop();
            let debt = Debt { message, reply_to, span, ..Debt::default() };
            if is_served(shared, &start) {
                return shared.submit(Arrival { input: Input::Start(Box::new(start)), debt, held: 0 });
            }
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                look_for_workers(&shared, &start).await;
                shared.submit(Arrival { input: Input::Start(Box::new(start)), debt, held: 0 });
            });
        }
        Err(refusal) => {
            if let Some(span) = span {
                span.failed(refusal.code);
            }
            reject(shared, namespace, message, settle, refusal);
        }
    }
}

/// Why a message is refused.
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) reason: String,
    pub(super) reply_to: Option<ReplyTo>,
}

type Checked = (everstep_engine::start::Start, Option<ReplyTo>);

fn check(shared: &Shared, namespace: &Namespace, message: &Message) -> Result<Checked, Refusal> {
    let properties = &message.properties;
    let reply_to = reply_to(properties)?;
    check_app_id(properties, reply_to.as_ref())?;
    let refuse = |error: &StartError| Refusal {
        code: error.code(),
        reason: error.to_string(),
        reply_to: reply_to.clone(),
    };
    let encoding = Encoding::of(properties.content_type.as_deref()).ok_or_else(|| {
        let text = properties.content_type.clone().unwrap_or_default();
        refuse(&StartError::ContentType(text))
    })?;
    let limits = shared.settings.limits;
    let parsed = StartMessage::parse(encoding, &message.body, limits.input_bytes);
    let start = parsed.map_err(|error| refuse(&error))?;
    let key = message_key(namespace, &start.workflow, properties);
    if start.id.is_none() && start.hook.is_none() && key.is_none() {
        return Err(refuse(&StartError::NoIdentity));
    }
    let request = StartRequest {
        namespace: namespace.clone(),
        workflow: start.workflow,
        id: start.id,
        input: start.input,
        retention: start.retention,
        pin: start.pin,
        strict: start.strict,
        attributes: start.attributes,
        hook: start.hook,
        message: key,
    };
    let prepared = prepare(shared, request).map_err(|error| match error {
        Error::Hook(error) => refuse(&error.into()),
        error => Refusal { code: "input", reason: error.to_string(), reply_to: reply_to.clone() },
    })?;
    Ok((prepared, reply_to))
}

fn message_key(
    namespace: &Namespace,
    workflow: &WorkflowName,
    properties: &Properties,
) -> Option<MessageKey> {
    let MessageName { app_id, message_id } = message_name(properties)?;
    Some(MessageKey { namespace: namespace.clone(), workflow: workflow.clone(), app_id, message_id })
}

pub(super) fn message_name(properties: &Properties) -> Option<MessageName> {
    let message_id = properties.message_id.clone().filter(|id| !id.is_empty())?;
    Some(MessageName { app_id: properties.app_id.clone().unwrap_or_default(), message_id })
}

/// An application is not called like the engine, which numbers what instances send each other, nor has it the characters that part names
/// in what resumes and events are known by (rules P24, H48).
pub(super) fn check_app_id(properties: &Properties, reply_to: Option<&ReplyTo>) -> Result<(), Refusal> {
    let Some(app_id) = properties.app_id.as_deref() else { return Ok(()) };
    if app_id != OWN_APP_ID && !app_id.chars().any(char::is_control) {
        return Ok(());
    }
    let shown: String = app_id.chars().take(60).collect();
    Err(Refusal {
        code: "name",
        reason: format!(
            "app id {shown:?} is refused, it must be without control characters, and not {OWN_APP_ID:?}, which is the engine's own; the same \
             message will be refused again"
        ),
        reply_to: reply_to.cloned(),
    })
}

/// A reply may not be aimed at the engine's own queues (rule W17).
pub(super) fn reply_to(properties: &Properties) -> Result<Option<ReplyTo>, Refusal> {
    let Some(queue) = properties.reply_to.clone().filter(|queue| !queue.is_empty()) else {
        return Ok(None);
    };
    if queue.starts_with(topology::PREFIX) {
        return Err(Refusal {
            code: "reply_to",
            reason: format!("reply_to {queue:?} lies under the engine's own prefix {:?}", topology::PREFIX),
            reply_to: None,
        });
    }
    Ok(Some(ReplyTo { queue, correlation_id: properties.correlation_id.clone() }))
}

pub(super) fn reject(
    shared: &Shared,
    namespace: &Namespace,
    message: &Message,
    settle: Settle,
    refusal: Refusal,
) {
    // The reason may repeat what the message says: it stands in the record, and in no log.
    tracing::info!(code = refusal.code, %namespace, "a message of a producer is rejected; its record says why");
    let kept = message.body.len().min(KEPT_BYTES);
    let reply = refusal.reply_to.map(|to| {
        let encoding = Encoding::of(message.properties.content_type.as_deref());
        let claimed = encoding.map(|encoding| Claimed::of(encoding, &message.body)).unwrap_or_default();
        (to, reply::rejected(refusal.code, &refusal.reason, claimed.workflow, claimed.id))
    });
    let record = Rejected {
        namespace: namespace.clone(),
        code: refusal.code.to_owned(),
        reason: refusal.reason,
        headers: headers(message),
        body: message.body[..kept].to_vec(),
        body_bytes: message.body.len() as u64,
        message: message_name(&message.properties),
        // The same bytes are refused in the same way whenever they come, so no decision needs to be kept.
        decided: None,
    };
    let share = Share::divide(settle, 1).pop();
    if shared.rejections.send(Rejection { record, message: share, reply }).is_err() {
        tracing::debug!("a rejection is recorded at its redelivery: the coordinator is stopping");
    }
}

/// The message's properties and headers as JSON, for the record.
fn headers(message: &Message) -> Payload {
    let properties = &message.properties;
    let mut map = serde_json::Map::new();
    let texts = [
        ("message_id", &properties.message_id),
        ("app_id", &properties.app_id),
        ("content_type", &properties.content_type),
        ("correlation_id", &properties.correlation_id),
        ("reply_to", &properties.reply_to),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            map.insert(name.to_owned(), text.clone().into());
        }
    }
    map.insert("routing_key".to_owned(), message.routing_key.clone().into());
    let headers = properties.headers.iter().map(|(name, value)| {
        let value: serde_json::Value = match value {
            HeaderValue::Text(text) => text.clone().into(),
            HeaderValue::Int(number) => (*number).into(),
            HeaderValue::Bool(truth) => (*truth).into(),
        };
        (name.clone(), value)
    });
    map.insert("headers".to_owned(), serde_json::Value::Object(headers.collect()));
    Payload::encode(&map).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Proves that a stopped namespace leaves its messages alone. Not: what becomes of a message; see the system tests.
    use everstep_broker::{Broker, MemoryBroker, Outgoing, QueueDeclaration, QueueKind};
    use everstep_protocol::Incarnation;
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn w17_a_stopped_namespace_leaves_its_starts_in_the_queue() {
        let dir = std::env::temp_dir().join(format!("everstep-starts-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let hub = MemoryBroker::new();
        let (mine, producer) = (Arc::new(hub.connection()), hub.connection());
        let (shared, mut ends) =
            Shared::new(store, mine, Settings::default(), Incarnation(1), Arc::new(crate::SystemChance));
        let (shared, namespace) = (Arc::new(shared), Namespace::default());
        let queue = topology::start_queue(&namespace);
        let declared = vec![QueueDeclaration::new(queue.clone(), QueueKind::Quorum).into()];
        producer.declare(declared).await.expect("the broker is there");
        let publish = async |id: &str| {
            let body = format!(r#"{{"workflow":"w","id":"{id}"}}"#);
            producer.send(vec![Outgoing::to_queue(queue.clone(), body)]).await.expect("the broker is there");
        };
        let service = tokio::spawn(run(Arc::clone(&shared), namespace.clone()));
        for id in ["one", "two"] {
            shared.bound.measured(&namespace, u64::MAX);
            publish(id).await;
            // Whoever still read the queue would have a hundred turns to take it.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(ends.arrivals.try_recv().is_err(), "{id}");
            assert_eq!(producer.depth(&queue).await.expect("the broker answers"), Some(1), "{id}");
            shared.bound.measured(&namespace, 0);
            let arrival = ends.arrivals.recv().await.expect("it comes");
            assert!(matches!(arrival.input, Input::Start(start) if start.name.id.as_str() == id));
            arrival.debt.message.expect("it came in a message").done();
        }
        service.abort();
        drop(std::fs::remove_dir_all(dir));
    }

    #[test]
    fn h48_an_app_id_that_is_the_engines_own_or_has_control_characters_is_refused() {
        let check = |app_id: &str| {
            let properties = Properties { app_id: Some(app_id.to_owned()), ..Properties::default() };
            check_app_id(&properties, None).map_err(|refusal| (refusal.code, refusal.reason))
        };
        for good in ["", "shop", "everstep-shop", "Everstep", "gr\u{fc}n"] {
            assert_eq!(check(good), Ok(()), "{good:?}");
        }
        for bad in ["everstep", "a\u{1}b", "\n", "\u{7f}"] {
            let (code, reason) = check(bad).unwrap_err();
            assert!(
                code == "name" && reason.contains("app id") && reason.contains("refused again"),
                "{reason}"
            );
        }
        assert_eq!(check_app_id(&Properties::default(), None).map_err(|refusal| refusal.code), Ok(()));
    }
}
