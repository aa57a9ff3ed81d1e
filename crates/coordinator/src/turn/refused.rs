//! Inputs that came to nothing: refused by their decision, or to blame for a batch that could not be decided or stored. None vanishes:
//! each is recorded, answered, given back, or parks its instance (rules W17, W20, W40).

use everstep_engine::{
    Answer, Input, What,
    letter::{Letter, Said, refusal},
    mailbox::SentEvent,
    start::{MessageKey, NameKey, Start},
};
use everstep_protocol::{Payload, start::StartReply};
use everstep_store::{MessageName, Rejected};

use crate::{
    arrival::{Arrival, Debt, ReplyTo, Share},
    error::Error,
    reply,
    shared::{Rejection, Shared},
};

/// A start that was refused is also a rejected message: it stays visible (rules P35, W40).
pub(super) fn refused_start(
    shared: &Shared,
    start: &Start,
    (code, answer): (&str, &Answer),
    message: Option<Share>,
    reply: Option<(ReplyTo, StartReply)>,
) {
    let NameKey { workflow, id, .. } = &start.name;
    let why = match answer {
        Answer::NotServed => format!("no live worker serves workflow {workflow}"),
        Answer::HookHeld(owner) => {
            format!("instance {} of workflow {} has the token", owner.id, owner.workflow)
        }
        Answer::HookRetention => "the retention of the hook has passed, or is too long".to_owned(),
        _ => format!("instance {id} of workflow {workflow} exists with another input"),
    };
    let record = record(start, code, format!("{why}; nothing was created"));
    let rejection = Rejection { record, message, reply };
    if shared.rejections.send(rejection).is_err() {
        tracing::debug!("a conflict is recorded at its redelivery: the coordinator is stopping");
    }
}

/// What is kept of a start that came to nothing. Its decision is kept with its message.
fn record(start: &Start, code: &str, reason: String) -> Rejected {
    Rejected {
        namespace: start.name.namespace.clone(),
        code: code.to_owned(),
        reason,
        headers: Payload::null(),
        body: start.input.as_str().as_bytes().to_vec(),
        body_bytes: start.input.len() as u64,
        message: start.message.as_ref().map(message_name),
        decided: None,
    }
}

/// An event that was refused is a rejected message: nothing vanishes (rules W17, W40).
pub(super) fn refused_event(
    shared: &Shared,
    name: &NameKey,
    event: &SentEvent,
    code: &str,
    reason: &str,
    message: Option<Share>,
    reply: Option<(ReplyTo, StartReply)>,
) {
    let record = Rejected {
        namespace: name.namespace.clone(),
        code: code.to_owned(),
        reason: format!(
            "event {:?} for instance {} of workflow {}: {reason}",
            event.kind.as_str(),
            name.id,
            name.workflow
        ),
        headers: Payload::null(),
        body: event.payload.as_str().as_bytes().to_vec(),
        body_bytes: event.payload.len() as u64,
        message: Some(MessageName { app_id: event.id.app_id.clone(), message_id: event.id.id.clone() }),
        decided: None,
    };
    if shared.rejections.send(Rejection { record, message, reply }).is_err() {
        tracing::debug!("a refused event is recorded at its redelivery: the coordinator is stopping");
    }
}

pub(super) const fn event_code(answer: &Answer) -> &'static str {
    match answer {
        Answer::Refused(_) => reply::ENDED,
        Answer::EventIdTaken => reply::EVENT_ID_TAKEN,
        Answer::MailboxFull => reply::MAILBOX_FULL,
        _ => reply::NOT_FOUND,
    }
}

fn message_name(key: &MessageKey) -> MessageName {
    MessageName { app_id: key.app_id.clone(), message_id: key.message_id.clone() }
}

/// The one input that cannot be decided, or whose rows the store will not take: a start is rejected, anything else parks its instance (rule W20).
pub(super) fn culprit(shared: &Shared, input: &Input, mut debts: Vec<(Debt, u8)>, code: &str, message: &str) {
    tracing::error!(instance = ?input.instance(), code, message, "a decision could not be made or stored");
    shared.metrics.batch_failures.with_label_values(&["culprit"]).inc();
    let Some((debt, _)) = debts.pop() else {
        return;
    };
    if let Some(reply) = debt.reply {
        let (code, reason) = (code.to_owned(), message.to_owned());
        drop(reply.send(Err(Error::Undecided { code, reason })));
    }
    match input {
        // It is no message that anybody sent: its parent is told.
        Input::Start(start) if start.letter.is_some() => {
            if let Some(letter) = start.letter.clone() {
                undelivered(shared, letter, message);
            }
        }
        Input::Undelivered(letter, _) => {
            tracing::error!(
                number = letter.number,
                "a letter between instances can neither be delivered nor returned"
            );
        }
        Input::Start(start) => {
            let record = record(start, code, message.to_owned());
            let reply = debt.reply_to.map(|to| {
                let name = &start.name;
                let (workflow, id) = (name.workflow.to_string(), name.id.to_string());
                (to, reply::rejected(&record.code, message, Some(workflow), Some(id)))
            });
            let rejection = Rejection { record, message: debt.message, reply };
            drop(shared.rejections.send(rejection));
        }
        // The event is to blame, not the instance.
        Input::On { what: What::Event(event), .. } => {
            if let Some(name) = &debt.event_to {
                let reply = debt.reply_to.map(|to| {
                    let (workflow, id) = (name.workflow.to_string(), name.id.to_string());
                    (to, reply::rejected(code, message, Some(workflow), Some(id)))
                });
                refused_event(shared, name, event, code, message, debt.message, reply);
            }
        }
        Input::On { instance, what } | Input::Asked { instance, what, .. } => {
            if let Some(share) = debt.message {
                share.done();
            }
            if let What::Letter(letter) = what {
                undelivered(shared, letter.clone(), message);
            }
            // An event of another instance, or a payload, is to blame itself.
            let is_sent =
                matches!(what, What::Letter(Letter { said: Said::Event(_) | Said::Resume { .. }, .. }));
            if !is_sent && !matches!(what, What::Unwritable { .. }) {
                let what = What::Unwritable { message: message.to_owned() };
                shared.submit(Arrival::new(Input::On { instance: *instance, what }));
            }
        }
    }
}

/// A letter that breaks its decision goes back, so that it is not carried for ever.
fn undelivered(shared: &Shared, letter: Letter, message: &str) {
    let failure = refusal("Undeliverable", format!("the call could not be decided: {message}"));
    shared.submit(Arrival::new(Input::Undelivered(Box::new(letter), failure)));
}
