//! The JSON of an instance. Shown, never stored; derived from what the store read at one moment (promise 6).

use everstep_engine::Status;
use everstep_protocol::{
    Call, Failure, Payload, Pin, Sent, Timestamp,
    journal::{End, Other},
};
use everstep_store::{ChildView, InstanceView, UnreadView};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{
    attention::{self, Item},
    document::shapes,
    reason::{Reason, Wait, hint, reason},
    rollback::RollbackView,
};

/// An instance.
#[derive(Debug, Serialize, ToSchema)]
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
    /// Why it is parked, whatever else goes on.
    attention: Option<Attention>,
    /// What people are asked about its calls, at most 100 (rule L8).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    questions: Vec<Item>,
    created_at: String,
    ended_at: Option<String>,
    steps: u64,
    /// The last position of the journal.
    position: u64,
    /// The build whose workers alone take it up; `true` while that is to be the build of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<shapes::Pin>)]
    pin: Option<Pin>,
    /// Open waits, questions first, then the earliest due, at most 100.
    waits: Vec<Wait>,
    /// How many waits are open.
    waits_open: u32,
    /// Unread events by type; in the view of one instance (rule P25).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events_unread: Vec<Unread>,
    /// What looks wrong about its events, in words (rule P25).
    #[serde(skip_serializing_if = "Option::is_none")]
    events_hint: Option<String>,
    /// What it can be found by (rule P37).
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = shapes::Attributes)]
    attributes: serde_json::Map<String, serde_json::Value>,
    /// What its workflow has published last; in the view of one instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    state: Option<Box<RawValue>>,
    /// When that was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_at: Option<String>,
    #[schema(value_type = Option<Value>)]
    output: Option<Box<RawValue>>,
    error: Option<Error>,
    termination: Option<Termination>,
    /// Who started it, if an instance did; in the view of one instance (rule P36).
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<InstanceName>,
    /// Its children, at most 100, those that may be open first; in the view of one instance.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Child>,
    /// How many children it has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    children_total: Option<u64>,
    /// Its compensations, if they run or have run (rule P39).
    #[serde(skip_serializing_if = "Option::is_none")]
    rollback: Option<RollbackView>,
}

/// An instance of the same namespace, by its name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct InstanceName {
    pub(super) workflow: String,
    pub(super) id: String,
}

/// A child.
#[derive(Debug, Serialize, ToSchema)]
struct Child {
    workflow: String,
    id: String,
    /// Open, or how it has ended; none while it does not exist: not yet, or not any more.
    status: Option<&'static str>,
    /// What ends or cancels the parent leaves it alone.
    detached: bool,
    /// The run that started it.
    run: u32,
}

/// A call by its identity.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Call)]
pub(super) struct CallView {
    kind: &'static str,
    name: String,
    count: u32,
}

#[derive(Debug, Serialize, ToSchema)]
struct Holder {
    session: String,
    build: String,
    host: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct Attention {
    code: &'static str,
    message: String,
    since: String,
}

/// Unread events of one type.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnreadEvents)]
struct Unread {
    r#type: String,
    count: u64,
    since: String,
}

/// A failure.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Failure)]
pub(super) struct Error {
    #[schema(value_type = String)]
    kind: everstep_protocol::FailureKind,
    name: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    data: Option<Box<RawValue>>,
    /// The code said that no further attempt may be made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    permanent: bool,
    /// It came of a step that is marked sensitive: message and data are left out (rule P44).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sensitive: bool,
    /// What the code knows of its effect: `no` if nothing was sent, `refused` for sure (rule L9).
    #[serde(skip_serializing_if = "Sent::is_unknown")]
    #[schema(value_type = Option<String>)]
    sent: Sent,
}

#[derive(Debug, Serialize, ToSchema)]
struct Termination {
    reason: Option<String>,
}

/// A page of instances.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Instances)]
pub(super) struct Page {
    pub(super) instances: Vec<Instance>,
    /// The cursor of the next page, if there is one.
    pub(super) next: Option<String>,
}

impl From<InstanceView> for Instance {
    fn from(view: InstanceView) -> Self {
        let (reason, events_hint, rollback) = (reason(&view), hint(&view), RollbackView::of(&view));
        let waits = view.waiting.iter().map(|wait| Wait::of(wait, &view)).collect();
        let questions = attention::of_calls(&view);
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
            questions,
            created_at: view.created_at.to_string(),
            ended_at: view.ended_at.map(time),
            steps: view.steps,
            position: view.position.0,
            pin: view.pin,
            waits,
            waits_open: view.waits,
            events_hint,
            events_unread: view.unread.iter().map(Unread::from).collect(),
            attributes: everstep_protocol::attribute::object(&view.attributes),
            state: view.state.as_ref().map(|(_, state)| raw(state)),
            state_at: view.state.as_ref().map(|(at, _)| time(*at)),
            output,
            error,
            termination,
            parent: view.parent.as_ref().map(|parent| InstanceName::from(&parent.name)),
            children_total: (view.children_total > 0).then_some(view.children_total),
            children: view.children.iter().map(Child::from).collect(),
            rollback,
        }
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

impl From<&UnreadView> for Unread {
    fn from(unread: &UnreadView) -> Self {
        Self { r#type: unread.kind.to_string(), count: unread.count, since: time(unread.since) }
    }
}

impl From<&Other> for InstanceName {
    fn from(other: &Other) -> Self {
        Self { workflow: other.workflow.to_string(), id: other.id.to_string() }
    }
}

impl From<&ChildView> for Child {
    fn from(child: &ChildView) -> Self {
        Self {
            workflow: child.name.workflow.to_string(),
            id: child.name.id.to_string(),
            status: child.status.map(Status::word),
            detached: child.detached,
            run: child.run.0,
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Self {
            kind: failure.kind,
            message: failure.shown_message().to_owned(),
            data: failure.shown_data().map(raw),
            permanent: failure.permanent,
            sensitive: failure.sensitive,
            sent: failure.sent,
            name: failure.name,
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
    use everstep_engine::rows::{Control, WaitKind};
    use everstep_protocol::{
        CallKind, CallName, Epoch, EventType, FailureKind, Generation, InstanceUid, Namespace, Position, Run,
        WorkflowName,
        journal::{Compensated, ParkCode, Parked, Undone, UndoneEnd},
    };
    use everstep_store::{StatusWord, WaitView};
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
            pin: None,
            served: true,
            waiting: Vec::new(),
            waits: 0,
            events: 0,
            unread: Vec::new(),
            never_sent: Vec::new(),
            control: everstep_engine::rows::Control::default(),
            parked: None,
            end: None,
            compensated: None,
            attributes: Vec::new(),
            state: None,
            parent: None,
            children: Vec::new(),
            children_total: 0,
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
            awaited: None,
            question: None,
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
    fn p36_a_wait_for_another_instance_is_shown() {
        let of = |kind, name: &str| WaitView {
            call: Call { kind, name: CallName::new(name).unwrap(), count: 1 },
            kind: WaitKind::Instance,
            since: Timestamp(0),
            due_at: None,
            awaited: None,
            question: None,
        };
        let other =
            |id: &str| Other { workflow: WorkflowName::new("pack").unwrap(), id: id.parse().unwrap() };
        let waiting = vec![
            of(CallKind::Child, "box"),
            of(CallKind::Instance, "pack/p-2"),
            of(CallKind::Send, "pack/p-3 ready now"),
            of(CallKind::Resume, "tell/p-4 of it"),
        ];
        let child = ChildView {
            call: waiting[0].call.hash(),
            run: Run(1),
            name: other("p-1"),
            detached: true,
            status: None,
        };
        let caller = everstep_engine::letter::Caller {
            uid: InstanceUid(uuid::Uuid::nil()),
            run: Run(1),
            call: child.call,
        };
        let parent =
            everstep_engine::letter::ParentRow { caller, name: other("p-0"), detached: false, depth: 1 };
        let shown = json(InstanceView {
            waiting,
            children: vec![child],
            children_total: 1,
            parent: Some(parent),
            ..view(StatusWord::Waiting)
        });
        assert_eq!(shown["reason"]["kind"], "child");
        let waits: Vec<_> = shown["waits"].as_array().unwrap().iter().collect();
        let kinds: Vec<_> = waits.iter().map(|wait| wait["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["child", "instance", "instance", "hook"]);
        // Whoever has the token is not known before it has answered, whatever the call's name looks like.
        assert_eq!(waits[3]["instance"], Value::Null);
        let ids: Vec<_> = waits[..3].iter().map(|wait| wait["instance"]["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["p-1", "p-2", "p-3"]);
        assert_eq!(shown["parent"], json!({"workflow": "pack", "id": "p-0"}));
        assert_eq!(
            shown["children"],
            json!([{"workflow": "pack", "id": "p-1", "status": null, "detached": true, "run": 1}])
        );
        let alone = json(view(StatusWord::Running));
        assert_eq!((&alone["parent"], &alone["children"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn p25_a_mistyped_event_is_visible() {
        let kind = |name: &str| EventType::new(name).unwrap();
        let awaited = everstep_engine::mailbox::Awaited {
            types: vec![kind("approved")],
            key: None,
            opened: Position(2),
        };
        let wait = WaitView {
            call: Call { kind: CallKind::Event, name: CallName::new("approved").unwrap(), count: 1 },
            kind: WaitKind::Event,
            since: Timestamp(0),
            due_at: Some(Timestamp(1)),
            awaited: Some(awaited),
            question: None,
        };
        let unread = |name: &str| UnreadView { kind: kind(name), count: 3, since: Timestamp(0) };
        let hint = |unread: Vec<UnreadView>, never_sent: Vec<EventType>| {
            let waiting = vec![wait.clone()];
            json(InstanceView { waiting, waits: 1, unread, never_sent, ..view(StatusWord::Waiting) })
        };
        let shown = hint(vec![unread("aproved")], vec![kind("approved")]);
        assert_eq!(shown["reason"]["kind"], "event");
        assert_eq!(shown["waits"][0]["types"], json!(["approved"]));
        assert_eq!(
            shown["events_unread"],
            json!([{"type": "aproved", "count": 3, "since": "1970-01-01T00:00:00.000000Z"}])
        );
        let text = shown["events_hint"].as_str().unwrap();
        assert!(text.contains("\"approved\"") && text.contains("\"aproved\""), "{text}");
        assert_eq!(hint(vec![], vec![kind("approved")])["events_hint"], Value::Null);
        assert_eq!(hint(vec![unread("other")], vec![])["events_hint"], Value::Null);
    }

    #[test]
    fn p35_a_queued_instance_says_that_nobody_serves_it() {
        let shown =
            json(InstanceView { served: false, ready_at: Some(Timestamp(0)), ..view(StatusWord::Queued) });
        assert_eq!(shown["reason"]["message"], "no worker serves fulfil");
        assert_eq!(json(view(StatusWord::Queued))["reason"]["kind"], "ready");
    }

    #[test]
    fn p40_a_pinned_instance_says_that_nobody_serves_its_build() {
        let pin = Some(Pin::Build("v7".parse().unwrap()));
        let shown = json(InstanceView { served: false, pin, ..view(StatusWord::Queued) });
        assert_eq!(shown["reason"]["message"], "no worker of build v7 serves fulfil");
        assert_eq!(shown["pin"], "v7");
        assert_eq!(json(view(StatusWord::Queued))["pin"], Value::Null);
    }

    #[test]
    fn p28_a_parked_instance_asks_its_question() {
        let parked = Parked::new(ParkCode::JournalMismatch, "entry 3 is step \"a\" #1".to_owned());
        let shown =
            json(InstanceView { parked: Some((Timestamp(0), parked)), ..view(StatusWord::Attention) });
        assert_eq!(shown["attention"]["code"], "journal_mismatch");
        assert_eq!(shown["reason"], Value::Null);
    }

    #[test]
    fn p38_p39_compensations_are_a_reason_to_run_and_listed_when_they_are_over() {
        let control = Control { compensating_at: Some(Timestamp(0)), ..Control::default() };
        let shown = json(InstanceView { control, ..view(StatusWord::Running) });
        assert_eq!(
            (&shown["reason"]["kind"], &shown["rollback"]["state"]),
            (&json!("compensating"), &json!("compensating"))
        );
        let call = Call { kind: CallKind::Compensation, name: CallName::new("reserve").unwrap(), count: 1 };
        let undone = |end| Undone { call: call.clone(), end };
        let failed = UndoneEnd::Failed(Failure::new(FailureKind::Error, "jammed"));
        assert!(json(view(StatusWord::Errored)).get("rollback").is_none());
        let compensated = Compensated {
            steps: vec![undone(UndoneEnd::Done), undone(failed), undone(UndoneEnd::Skipped)],
            more: 2,
        };
        let ended = json(InstanceView { compensated: Some(compensated), ..view(StatusWord::Errored) });
        let rollback = &ended["rollback"];
        let outcomes: Vec<_> = rollback["compensations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|undone| undone["outcome"].clone())
            .collect();
        assert_eq!((rollback["state"].clone(), rollback["more"].clone()), (json!("over"), json!(2)));
        assert_eq!(outcomes, [json!("done"), json!("failed"), json!("skipped")]);
        assert_eq!(rollback["compensations"][1]["error"]["message"], "jammed");
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
    fn p44_a_sensitive_error_is_shown_without_its_message_and_data() {
        let data = Some(Payload::from_text(r#""hunter2""#).unwrap());
        let failure = Failure { data, ..Failure::new(FailureKind::Error, "bad token hunter2") };
        let end = Some(End::Errored(failure.clone().of_sensitive(true)));
        let call = Call { kind: CallKind::Compensation, name: CallName::new("log in").unwrap(), count: 1 };
        let undone = Undone { call, end: UndoneEnd::Failed(failure.of_sensitive(true)) };
        let compensated = Some(Compensated { steps: vec![undone], more: 0 });
        let shown = json(InstanceView { end, compensated, ..view(StatusWord::Errored) });
        for error in [&shown["error"], &shown["rollback"]["compensations"][0]["error"]] {
            assert_eq!((&error["name"], &error["kind"]), (&json!("Error"), &json!("error")));
            assert_eq!((&error["sensitive"], &error["data"]), (&json!(true), &Value::Null));
        }
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
    }

    #[test]
    fn damaged_text_is_shown_as_a_string() {
        assert_eq!(raw_text("{").get(), r#""{""#);
    }
}
