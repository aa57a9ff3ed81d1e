//! The JSON of an instance. Shown, never stored; derived from what the store read at one moment (promise 6).

use everstep_protocol::{Call, Failure, Payload, Timestamp, journal::End};
use everstep_store::{InstanceView, StatusWord, WaitView};
use serde::Serialize;
use serde_json::value::RawValue;

/// An instance.
#[derive(Debug, Serialize)]
pub(super) struct Instance {
    namespace: String,
    workflow: String,
    id: String,
    run: u32,
    generation: u32,
    status: &'static str,
    /// Why it is in this status (rule P28); none once it has ended, and see `attention` for that one.
    reason: Option<Reason>,
    holder: Option<Holder>,
    /// The open question, whatever else goes on.
    attention: Option<Attention>,
    created_at: String,
    ended_at: Option<String>,
    steps: u64,
    /// The last position of the journal.
    position: u64,
    /// Open waits, earliest due first, at most 100.
    waits: Vec<Wait>,
    /// How many waits are open.
    waits_open: u32,
    output: Option<Box<RawValue>>,
    error: Option<Error>,
    termination: Option<Termination>,
}

/// Why an instance is in its status.
#[derive(Debug, Serialize)]
struct Reason {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

/// A call by its identity.
#[derive(Debug, Serialize)]
pub(super) struct CallView {
    kind: &'static str,
    name: String,
    count: u32,
}

#[derive(Debug, Serialize)]
struct Holder {
    session: String,
    build: String,
    host: String,
}

#[derive(Debug, Serialize)]
struct Attention {
    code: &'static str,
    message: String,
    since: String,
}

#[derive(Debug, Serialize)]
struct Wait {
    kind: &'static str,
    call: CallView,
    since: String,
    until: Option<String>,
}

/// A failure.
#[derive(Debug, Serialize)]
pub(super) struct Error {
    kind: everstep_protocol::FailureKind,
    name: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct Termination {
    reason: Option<String>,
}

/// A page of instances.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    pub(super) instances: Vec<Instance>,
    /// The cursor of the next page, if there is one.
    pub(super) next: Option<String>,
}

impl From<InstanceView> for Instance {
    fn from(view: InstanceView) -> Self {
        let reason = reason(&view);
        let (output, error, termination) = end(view.end);
        Self {
            namespace: view.namespace.to_string(),
            workflow: view.workflow.to_string(),
            id: view.id.to_string(),
            run: view.run.0,
            generation: view.generation.0,
            status: view.status.word(),
            reason,
            holder: view.holder.map(|(session, build, host)| Holder {
                session: session.to_string(),
                build: build.to_string(),
                host,
            }),
            attention: view.parked.map(|(since, parked)| Attention {
                code: parked.code.word(),
                message: parked.message,
                since: since.to_string(),
            }),
            created_at: view.created_at.to_string(),
            ended_at: view.ended_at.map(time),
            steps: view.steps,
            position: view.position.0,
            waits: view.waiting.iter().map(Wait::from).collect(),
            waits_open: view.waits,
            output,
            error,
            termination,
        }
    }
}

/// Why it is in its status: what it waits for next, who is missing, what is being done.
fn reason(view: &InstanceView) -> Option<Reason> {
    let plain = |kind, message, since| Reason { kind, message, call: None, since, until: None };
    match view.status {
        StatusWord::Queued if !view.served => {
            let message = format!("no worker serves {}", view.workflow);
            Some(plain("not_served", Some(message), view.ready_at.map(time)))
        }
        StatusWord::Queued => Some(plain("ready", None, view.ready_at.map(time))),
        StatusWord::Running if view.control.cancel.is_some() => Some(plain("cancelling", None, None)),
        StatusWord::Running | StatusWord::Pausing => Some(plain("steps", None, None)),
        StatusWord::Paused => Some(plain("paused", None, view.control.paused_at.map(time))),
        StatusWord::Waiting => view.waiting.first().map(|wait| Reason {
            kind: wait.kind.word(),
            message: None,
            call: Some(CallView::from(&wait.call)),
            since: Some(time(wait.since)),
            until: wait.due_at.map(time),
        }),
        StatusWord::Attention
        | StatusWord::Complete
        | StatusWord::Errored
        | StatusWord::Terminated
        | StatusWord::Cancelled => None,
    }
}

fn end(end: Option<End>) -> (Option<Box<RawValue>>, Option<Error>, Option<Termination>) {
    match end {
        None => (None, None, None),
        Some(End::Complete(output)) => (Some(raw(&output)), None, None),
        Some(End::Errored(failure)) => (None, Some(Error::from(failure)), None),
        Some(End::Terminated { reason } | End::Cancelled { reason }) => {
            (None, None, Some(Termination { reason }))
        }
    }
}

impl From<&Call> for CallView {
    fn from(call: &Call) -> Self {
        Self { kind: call.kind.word(), name: call.name.to_string(), count: call.count }
    }
}

impl From<&WaitView> for Wait {
    fn from(wait: &WaitView) -> Self {
        Self {
            kind: wait.kind.word(),
            call: CallView::from(&wait.call),
            since: time(wait.since),
            until: wait.due_at.map(time),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind,
            name: failure.name,
            message: failure.message,
            data: failure.data.as_ref().map(raw),
        }
    }
}

/// RFC 3339.
pub(super) fn time(at: Timestamp) -> String {
    at.to_string()
}

/// A payload as it was written, every digit kept.
pub(super) fn raw(payload: &Payload) -> Box<RawValue> {
    raw_text(payload.as_str())
}

/// JSON text as it was written. Text that is none, which only a damaged store can hold, is shown as a string.
pub(super) fn raw_text(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned())
        .or_else(|_| serde_json::value::to_raw_value(text))
        .expect("a string has a JSON form")
}

#[cfg(test)]
mod tests {
    //! Proves the JSON of each status. Not: that the store derives the right one.
    use everstep_engine::rows::WaitKind;
    use everstep_protocol::{
        CallKind, CallName, Epoch, FailureKind, Generation, InstanceUid, Namespace, Position, Run,
        WorkflowName,
        journal::{ParkCode, Parked},
    };
    use serde_json::{Value, json};

    use super::*;

    fn view(status: StatusWord) -> InstanceView {
        InstanceView {
            uid: InstanceUid(uuid::Uuid::nil()),
            namespace: Namespace::default(),
            workflow: WorkflowName::new("fulfil").unwrap(),
            id: "o-1".parse().unwrap(),
            run: Run(1),
            generation: Generation(1),
            status,
            created_at: Timestamp(1_000_000),
            ended_at: None,
            position: Position(3),
            steps: 1,
            epoch: Epoch(1),
            holder: None,
            ready_at: None,
            served: true,
            waiting: Vec::new(),
            waits: 0,
            control: everstep_engine::rows::Control::default(),
            parked: None,
            end: None,
        }
    }

    fn json(view: InstanceView) -> Value {
        serde_json::to_value(Instance::from(view)).unwrap()
    }

    #[test]
    fn p28_a_waiting_instance_says_for_what_since_when_and_until_when() {
        let call = Call { kind: CallKind::Sleep, name: CallName::new("cooling off").unwrap(), count: 1 };
        let wait = WaitView {
            call,
            kind: WaitKind::Sleep,
            since: Timestamp(2_000_000),
            due_at: Some(Timestamp(3_600_000_000)),
        };
        let shown = json(InstanceView { waiting: vec![wait], waits: 1, ..view(StatusWord::Waiting) });
        let expected = json!({
            "kind": "sleep",
            "call": {"kind": "sleep", "name": "cooling off", "count": 1},
            "since": "1970-01-01T00:00:02.000000Z",
            "until": "1970-01-01T01:00:00.000000Z",
        });
        assert_eq!(shown["reason"], expected);
        assert_eq!(shown["waits"], json!([expected]));
        assert_eq!(shown["waits_open"], 1);
    }

    #[test]
    fn p35_a_queued_instance_says_that_nobody_serves_it() {
        let shown =
            json(InstanceView { served: false, ready_at: Some(Timestamp(0)), ..view(StatusWord::Queued) });
        assert_eq!(shown["reason"]["message"], "no worker serves fulfil");
        assert_eq!(json(view(StatusWord::Queued))["reason"]["kind"], "ready");
    }

    #[test]
    fn p28_a_parked_instance_asks_its_question() {
        let parked =
            Parked { code: ParkCode::JournalMismatch, message: "entry 3 is step \"a\" #1".to_owned() };
        let shown =
            json(InstanceView { parked: Some((Timestamp(0), parked)), ..view(StatusWord::Attention) });
        assert_eq!(shown["attention"]["code"], "journal_mismatch");
        assert_eq!(shown["reason"], Value::Null);
    }

    #[test]
    fn an_output_keeps_every_digit() {
        let output = Payload::from_text(r#"{"n":123456789012345678901234567890,"z":1.10}"#).unwrap();
        let shown =
            Instance::from(InstanceView { end: Some(End::Complete(output)), ..view(StatusWord::Complete) });
        let text = serde_json::to_string(&shown).unwrap();
        assert!(text.contains(r#""output":{"n":123456789012345678901234567890,"z":1.10}"#), "{text}");
    }

    #[test]
    fn p13_an_error_is_shown_unchanged() {
        let failure =
            Failure { name: "CardDeclined".to_owned(), ..Failure::new(FailureKind::Error, "card 4711") };
        let shown = json(InstanceView { end: Some(End::Errored(failure)), ..view(StatusWord::Errored) });
        assert_eq!(shown["error"], json!({"kind": "error", "name": "CardDeclined", "message": "card 4711"}));
    }

    #[test]
    fn damaged_text_is_shown_as_a_string() {
        assert_eq!(raw_text("{").get(), r#""{""#);
    }
}
