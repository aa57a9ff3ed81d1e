//! Why an instance is in its status: what it waits for, who is missing, what is being done (rules P25, P28).

use everstep_engine::rows::WaitKind;
use everstep_protocol::{CallKind, EventType, Pin};
use everstep_store::{InstanceView, StatusWord, WaitView};
use serde::Serialize;
use utoipa::ToSchema;

use super::view::{CallView, InstanceName, time};

/// Why an instance is in its status.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Reason {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallView>,
    /// The other instance that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<InstanceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// An open wait.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Wait {
    kind: &'static str,
    call: CallView,
    /// The other instance that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<InstanceName>,
    /// The types of events that end it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    types: Vec<String>,
    /// Only events with this key end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    since: String,
    until: Option<String>,
}

/// Why it is in its status: what it waits for next, who is missing, what is being done.
pub(super) fn reason(view: &InstanceView) -> Option<Reason> {
    let plain =
        |kind, message, since| Reason { kind, message, call: None, instance: None, since, until: None };
    match view.status {
        StatusWord::Queued if !view.served => {
            let message = match view.pin.as_ref().and_then(Pin::build) {
                Some(build) => format!("no worker of build {build} serves {}", view.workflow),
                None => format!("no worker serves {}", view.workflow),
            };
            Some(plain("not_served", Some(message), view.ready_at.map(time)))
        }
        StatusWord::Queued => Some(plain("ready", None, view.ready_at.map(time))),
        StatusWord::Running if view.control.compensating_at.is_some() => {
            Some(plain("compensating", None, view.control.compensating_at.map(time)))
        }
        StatusWord::Running if view.control.cancel.is_some() => Some(plain("cancelling", None, None)),
        StatusWord::Running | StatusWord::Pausing => Some(plain("steps", None, None)),
        StatusWord::Paused => Some(plain("paused", None, view.control.paused_at.map(time))),
        StatusWord::Waiting => view.waiting.first().map(|wait| Reason {
            kind: wait_word(wait),
            message: None,
            call: Some(CallView::from(&wait.call)),
            instance: other(wait, view),
            since: Some(time(wait.since)),
            until: wait.due_at.map(time),
        }),
        StatusWord::Attention if view.parked.is_none() => view.waiting.first().map(|wait| Reason {
            kind: everstep_store::UNKNOWN_OUTCOME,
            message: Some(format!("nobody knows whether {} took effect", wait.call)),
            call: Some(CallView::from(&wait.call)),
            instance: None,
            since: Some(time(wait.since)),
            until: None,
        }),
        StatusWord::Attention
        | StatusWord::Complete
        | StatusWord::Errored
        | StatusWord::Terminated
        | StatusWord::Cancelled => None,
    }
}

/// What is waited for, in a word: a child is an instance of its own kind.
const fn wait_word(wait: &WaitView) -> &'static str {
    match (wait.kind, wait.call.kind) {
        (WaitKind::Instance, CallKind::Child) => "child",
        // Whoever has the token is not known before it has answered.
        (WaitKind::Instance, CallKind::Resume) => "hook",
        (kind, _) => kind.word(),
    }
}

/// The other instance that is waited for. A child is known by its call; the others stand in the call's name.
fn other(wait: &WaitView, view: &InstanceView) -> Option<InstanceName> {
    if wait.kind != WaitKind::Instance || wait.call.kind == CallKind::Resume {
        return None;
    }
    let child = view.children.iter().find(|child| child.run == view.run && child.call == wait.call.hash());
    if wait.call.kind == CallKind::Child {
        return child.map(|child| InstanceName::from(&child.name));
    }
    let (workflow, rest) = wait.call.name.as_str().split_once('/')?;
    let id = rest.split_once(' ').map_or(rest, |(id, _)| id);
    Some(InstanceName { workflow: workflow.to_owned(), id: id.to_owned() })
}

impl Wait {
    pub(super) fn of(wait: &WaitView, view: &InstanceView) -> Self {
        let awaited = wait.awaited.as_ref();
        Self {
            kind: wait_word(wait),
            call: CallView::from(&wait.call),
            instance: other(wait, view),
            types: awaited
                .into_iter()
                .flat_map(|awaited| &awaited.types)
                .filter(|kind| kind.hook().is_none())
                .map(ToString::to_string)
                .collect(),
            key: awaited.and_then(|awaited| awaited.key.as_ref()).map(ToString::to_string),
            since: time(wait.since),
            until: wait.due_at.map(time),
        }
    }
}

/// A type that is awaited and was never sent, while others pile up, is most likely a mistyped one.
pub(super) fn hint(view: &InstanceView) -> Option<String> {
    let quoted =
        |names: Vec<&str>| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let awaited = |kind: &EventType| {
        view.waiting
            .iter()
            .filter_map(|wait| wait.awaited.as_ref())
            .any(|awaited| awaited.types.contains(kind))
    };
    let unread: Vec<_> = view.unread.iter().filter(|unread| !awaited(&unread.kind)).collect();
    if view.ended_at.is_some() || view.never_sent.is_empty() || unread.is_empty() {
        return None;
    }
    Some(format!(
        "it waits for {}, of which no event was ever sent, while nothing waits for {}: is a type mistyped?",
        quoted(view.never_sent.iter().map(EventType::as_str).collect()),
        quoted(unread.iter().map(|unread| unread.kind.as_str()).collect()),
    ))
}
