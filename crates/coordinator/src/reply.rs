//! What producers and callers are told of their starts, and the replies that are owed before a message is settled (rules W17,
//! W40). Decides nothing: the answers are the engine's.

use std::time::Duration;

use everstep_broker::{Outgoing, Properties};
use everstep_engine::{Answer, start::NameKey};
use everstep_protocol::{
    crash::around,
    journal::Other,
    start::{StartOutcome, StartReply},
};

use crate::{
    arrival::{ReplyTo, Share},
    shared::Shared,
};

/// How long it rests when no live connection took what was to be sent.
pub(crate) const UNSENT_PAUSE: Duration = Duration::from_millis(200);

/// The reply to a start.
pub(crate) fn start(answer: &Answer, workflow: &str, id: Option<&str>) -> StartReply {
    let (outcome, status, message) = match answer {
        Answer::Created => (StartOutcome::Created, None, None),
        Answer::Exists(status) => (StartOutcome::Exists, Some(*status), None),
        Answer::Conflict(status) => (
            StartOutcome::Conflict,
            Some(*status),
            Some("an instance of this id exists with another input; nothing was created"),
        ),
        Answer::NotServed => (
            StartOutcome::Rejected,
            None,
            Some(
                "no live worker serves the workflow, with the build that is asked for if one is, and the start is strict; \
                 nothing was created; sending it again later is safe",
            ),
        ),
        Answer::HookHeld(_) => (
            StartOutcome::Conflict,
            None,
            Some("another instance has the token that was asked for; nothing was created"),
        ),
        Answer::HookRetention => (
            StartOutcome::Rejected,
            None,
            Some(
                "the retention of the hook has passed already, or is longer than this installation allows; nothing was created",
            ),
        ),
        _ => (
            StartOutcome::Unknown,
            None,
            Some("the start was not decided; sending it again with the same id is safe"),
        ),
    };
    StartReply {
        outcome,
        workflow: Some(workflow.to_owned()),
        id: id.map(str::to_owned),
        status: status.map(|status| status.word().to_owned()),
        code: start_code(answer).map(str::to_owned),
        message: message.map(str::to_owned),
        owner: if let Answer::HookHeld(owner) = answer { Some(owner.clone()) } else { None },
        retry_safe: !matches!(answer, Answer::Conflict(_) | Answer::HookHeld(_) | Answer::HookRetention),
    }
}

/// The code of a start that was refused.
pub(crate) const fn start_code(answer: &Answer) -> Option<&'static str> {
    match answer {
        Answer::Conflict(_) => Some("conflict"),
        Answer::NotServed => Some(NOT_SERVED),
        Answer::HookHeld(_) => Some(HOOK_HELD),
        Answer::HookRetention => Some("hook_retention"),
        _ => None,
    }
}

/// The reply to a message that has resumed a hook.
pub(crate) fn resumed(owner: Other) -> StartReply {
    StartReply {
        outcome: StartOutcome::Accepted,
        workflow: None,
        id: None,
        status: None,
        code: None,
        message: None,
        owner: Some(owner),
        retry_safe: true,
    }
}

/// The reply to an event.
pub(crate) fn event(answer: &Answer, to: &NameKey) -> StartReply {
    let (outcome, status, code) = match answer {
        Answer::Done => (StartOutcome::Accepted, None, None),
        Answer::Refused(status) => (StartOutcome::Conflict, Some(*status), Some(ENDED)),
        Answer::EventIdTaken => (StartOutcome::Conflict, None, Some(EVENT_ID_TAKEN)),
        Answer::MailboxFull => (StartOutcome::Rejected, None, Some(MAILBOX_FULL)),
        Answer::NotFound => (StartOutcome::Rejected, None, Some(NOT_FOUND)),
        _ => (StartOutcome::Unknown, None, None),
    };
    let unknown = "the event was not decided; sending it again with the same id is safe";
    let message = refused_event(answer).or((outcome == StartOutcome::Unknown).then_some(unknown));
    StartReply {
        outcome,
        workflow: Some(to.workflow.to_string()),
        id: Some(to.id.to_string()),
        status: status.map(|status| status.word().to_owned()),
        code: code.map(str::to_owned),
        message: message.map(str::to_owned),
        owner: None,
        retry_safe: !matches!(answer, Answer::Refused(_) | Answer::EventIdTaken | Answer::NotFound),
    }
}

/// The code of a strict start that nobody serves (rule P35).
pub(crate) const NOT_SERVED: &str = "not_served";
/// The code of a start whose token another instance has (rule H32).
pub(crate) const HOOK_HELD: &str = "hook_held";
/// The code of a resume that nobody can be found for (rule H50).
pub(crate) const HOOK_NOT_FOUND: &str = "hook_not_found";
/// The code of a payload that does not fit the schema of its hook (rule H57).
pub(crate) const PAYLOAD_MISFIT: &str = "payload_misfit";
/// Codes of events that were refused.
pub(crate) const ENDED: &str = "ended";
pub(crate) const EVENT_ID_TAKEN: &str = "event_id_taken";
pub(crate) const MAILBOX_FULL: &str = "mailbox_full";
pub(crate) const NOT_FOUND: &str = "not_found";

/// Why an event was refused; none if it was not.
pub(crate) const fn refused_event(answer: &Answer) -> Option<&'static str> {
    match answer {
        Answer::Refused(_) => Some("the instance has ended; the event was not kept"),
        Answer::EventIdTaken => Some(
            "another event with this id was accepted before, with another type, key or payload; this one was not kept",
        ),
        Answer::MailboxFull => Some(
            "the instance has as many unread events as it may; this one was not kept; sending it again later is safe",
        ),
        Answer::NotFound => Some("there is no such instance; the event was not kept"),
        _ => None,
    }
}

/// The reply to a start of which nobody knows what became of it.
pub(crate) fn unknown(workflow: &str, id: Option<&str>, retry_safe: bool) -> StartReply {
    let message = if retry_safe {
        "the decision was not confirmed in time; sending the start again is safe"
    } else {
        "the decision was not confirmed in time; ask for the instance by its id before sending the start again"
    };
    StartReply {
        outcome: StartOutcome::Unknown,
        workflow: Some(workflow.to_owned()),
        id: id.map(str::to_owned),
        status: None,
        code: None,
        message: Some(message.to_owned()),
        owner: None,
        retry_safe,
    }
}

/// The reply to a start that can never be accepted.
pub(crate) fn rejected(code: &str, reason: &str, workflow: Option<String>, id: Option<String>) -> StartReply {
    StartReply {
        outcome: StartOutcome::Rejected,
        workflow,
        id,
        status: None,
        code: Some(code.to_owned()),
        message: Some(reason.to_owned()),
        owner: None,
        retry_safe: false,
    }
}

/// A reply to a producer.
pub(crate) fn message(to: &ReplyTo, reply: &StartReply) -> Outgoing {
    let body = serde_json::to_vec(reply).expect("a reply is text and numbers");
    Outgoing::to_queue(to.queue.clone(), body).with(Properties {
        content_type: Some("application/json".to_owned()),
        correlation_id: to.correlation_id.clone(),
        ..Properties::default()
    })
}

/// Replies to producers, with the messages that are settled once they are handed over (rule W17).
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) replies: Vec<Outgoing>,
    pub(crate) messages: Vec<Share>,
}

impl Replies {
    /// Sends the replies, then settles the messages; without a live connection they come again.
    pub(crate) async fn hand_over(self, shared: &Shared) {
        if self.replies.is_empty() {
            return;
        }
        let sent = around("publish.reply", shared.broker.send(self.replies)).await;
        if let Err(error) = &sent {
            tracing::warn!(%error, "replies to producers were not sent; their messages come again");
            tokio::time::sleep(UNSENT_PAUSE).await;
        }
        for message in self.messages {
            if sent.is_ok() { message.done() } else { message.again() }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves what becomes of a message whose reply is owed. Not: what a reply says.
    use std::sync::Arc;

    use everstep_broker::{Broker, Consume, Incoming, MemoryBroker, QueueDeclaration, QueueKind};
    use everstep_protocol::Incarnation;
    use everstep_store::sqlite::SqliteStore;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn w17_a_message_comes_again_until_its_reply_was_handed_over() {
        let dir = std::env::temp_dir().join(format!("everstep-reply-{}", uuid::Uuid::now_v7()));
        let store = Arc::new(SqliteStore::open(&dir.join("everstep.db")).expect("it opens"));
        let hub = MemoryBroker::new();
        let (mine, producer) = (hub.connection(), hub.connection());
        let (shared, _ends) = Shared::new(
            store,
            Arc::new(mine.clone()),
            Settings::default(),
            Incarnation(1),
            Arc::new(crate::SystemChance),
        );
        let queue = QueueDeclaration::new("starts", QueueKind::Classic);
        let mut consumer = producer.consume(Consume::new(queue, 1)).await.expect("the broker is there");
        producer.send(vec![Outgoing::to_queue("starts", "x")]).await.expect("the broker is there");
        for (cut, redelivered) in [(true, false), (false, true)] {
            let delivery = loop {
                if let Incoming::Delivery(delivery) = consumer.next().await {
                    break delivery;
                }
            };
            assert_eq!(delivery.redelivered, redelivered);
            let share = Share::divide(delivery.split().1, 1).pop();
            if cut {
                mine.cut();
            } else {
                mine.restore();
            }
            let reply = Outgoing::to_queue("replies", "y");
            Replies { replies: vec![reply], messages: share.into_iter().collect() }.hand_over(&shared).await;
        }
        assert_eq!(producer.depth("starts").await.expect("the broker answers"), Some(0));
        drop(std::fs::remove_dir_all(dir));
    }
}
