//! One value of everything that goes over the wire or into the journal, with every field set, and one more with every
//! field that may be absent left at its default. Each has its bytes of the first release in `golden/envelopes.json`: an
//! example never changes. A new variant or field gets a new example.

use everstep_protocol::{
    Attempt, Attribute, BuildName, Call, CallHash, CallKind, CallName, Class, CoordinatorId, Epoch, EventKey,
    EventType, Failure, FailureKind, Fingerprint, FunctionName, Generation, HookId, Incarnation, InstanceId,
    InstanceUid, Millis, Namespace, Payload, Policy, Pool, Position, Reference, Run, Sent, SessionId,
    StepKey, Timestamp, Token, WorkflowName,
    hook::{Carried, HookRetention, Method, Registration, StartHook, Webhook, WebhookResponse},
    journal::{
        Attempted, Awaiting, Cancelled, Changed, Child, Choice, Closed, Compensated, Compensating, Delivered,
        End, Entry, Fact, HookOutcome, Intended, Lost, Marks, Opened as OpenedWait, Other, Outcome, ParkCode,
        Parked, Patched, Progress, Received, Registered, Rekeyed, Remote, Reply, Resolved, Resuming,
        Returned, Reusable, Rollback, Sending, Started, TakenOver, Undone, UndoneEnd, Wait, Withdrawn,
    },
    limits::Limits,
    message::{
        Ack, Again, AttemptEnd, AttemptOutcome, CoordinatorItem, Credit, Entries, FenceReason, FromWorker,
        Grant, Have, Heard, Heartbeat, Held, HeldStep, Intent, LedgerItem, Open, OpenSession, OpenWait,
        Opened, Report, RunTask, Running, SessionMessage, StepGrant, StepTask, Taken, Then, ToWorker,
        WorkerItem,
    },
    policy::{Backoff, Limit},
    wire::{Unreadable, decode, encode},
};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

/// What this version makes of some bytes.
pub(crate) struct Read {
    /// Whether they are the example.
    pub(crate) is_same: bool,
    /// The bytes that this version writes for it.
    pub(crate) again: Vec<u8>,
}

type Reader = Box<dyn Fn(&[u8]) -> Result<Read, Unreadable>>;

/// One example.
pub(crate) struct Example {
    /// Envelope, then item and which of its forms: `from_worker/report bare`.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    read: Reader,
}

impl Example {
    fn new<T>(name: impl Into<String>, value: T) -> Self
    where
        T: Serialize + DeserializeOwned + PartialEq + 'static,
    {
        let bytes = encode(&value).to_vec();
        let read = move |bytes: &[u8]| {
            let read: T = decode("example", bytes)?;
            Ok(Read { is_same: read == value, again: encode(&read).to_vec() })
        };
        Self { name: name.into(), bytes, read: Box::new(read) }
    }

    /// The envelope's name.
    pub(crate) fn envelope(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Reads bytes as this version reads them.
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<Read, Unreadable> {
        (self.read)(bytes)
    }
}

const INSTANCE: InstanceUid = InstanceUid(Uuid::from_u128(0x0198_f2c4_5b7e_7d10_9a3f_0c1d_2e3f_4a5b));
const SESSION: SessionId = SessionId(Uuid::from_u128(0x0198_f2c4_5b7e_7d10_9a3f_0c1d_2e3f_4a5c));
const COORDINATOR: CoordinatorId = CoordinatorId(Uuid::from_u128(0x0198_f2c4_5b7e_7d10_9a3f_0c1d_2e3f_4a5d));
const INCARNATION: Incarnation = Incarnation(3);
const EPOCH: Epoch = Epoch(300);
const AT: Timestamp = Timestamp(1_764_000_000_123_456);
const HASH: CallHash = CallHash([0xc5; 16]);
const HELD_STEP: HeldStep = HeldStep { instance: INSTANCE, call: HASH, epoch: EPOCH };
const CREDIT: Credit = Credit { coordinator: COORDINATOR, limit: 70_000 };

/// Every example.
pub(crate) fn all() -> Vec<Example> {
    let mut all = vec![
        Example::new("run_task", RunTask { incarnation: INCARNATION, instance: INSTANCE }),
        Example::new("step_task", StepTask { incarnation: INCARNATION, instance: INSTANCE, call: HASH }),
    ];
    all.extend(worker_items().into_iter().map(|(form, item)| {
        let name = form_of("from_worker", worker_word(&item), form);
        let credits = if form.ends_with("bare") { Vec::new() } else { vec![CREDIT] };
        Example::new(
            name,
            FromWorker { incarnation: INCARNATION, session: SESSION, credits, items: vec![item] },
        )
    }));
    all.extend(coordinator_items().into_iter().map(|(form, item)| {
        let name = form_of("to_worker", coordinator_word(&item), form);
        let items = vec![item];
        Example::new(
            name,
            ToWorker { incarnation: INCARNATION, coordinator: COORDINATOR, session: SESSION, items },
        )
    }));
    all.extend(
        session_messages()
            .into_iter()
            .map(|(form, message)| Example::new(form_of("session", session_word(&message), form), message)),
    );
    all.extend(facts().into_iter().chain(hook_facts()).chain(ledger_facts()).map(|(form, fact)| {
        let name = form_of("entry", fact.word(), form);
        Example::new(name, Entry { position: Position(129), at: AT, fact })
    }));
    all.extend(words());
    all
}

fn form_of(envelope: &str, word: &str, form: &str) -> String {
    format!("{envelope}/{word} {form}").trim_end().to_owned()
}

/// No `_` arm: who adds an item comes by here, and adds an example.
fn worker_word(item: &WorkerItem) -> &'static str {
    match item {
        WorkerItem::Claim { .. } => "claim",
        WorkerItem::Report(_) => "report",
        WorkerItem::GiveBack { .. } => "give_back",
        WorkerItem::Ask { .. } => "ask",
        WorkerItem::StepClaim { .. } => "step_claim",
        WorkerItem::StepReport { .. } => "step_report",
        WorkerItem::StepGiveBack { .. } => "step_give_back",
    }
}

fn worker_items() -> Vec<(&'static str, WorkerItem)> {
    let ended = |then| Report { results: vec![attempt_end(succeeded())], ..report(then) };
    let step_reported = |outcome, progress| WorkerItem::StepReport {
        instance: INSTANCE,
        call: HASH,
        epoch: EPOCH,
        ran_for: Millis(1_500),
        outcome,
        progress,
        found: false,
        reference: None,
    };
    let step_report = |outcome| step_reported(outcome, None);
    let patch = || Open { call: call(CallKind::Patch), called_after: Position(5), wait: OpenWait::Patch };
    let told = || AttemptEnd {
        progress: Some(progress().told),
        ..attempt_end(failed(bare_failure(), Some(Millis(60_000))))
    };
    vec![
        ("", WorkerItem::Claim { instance: INSTANCE, have: None }),
        (
            "kept",
            WorkerItem::Claim { instance: INSTANCE, have: Some(Have { run: Run(2), position: Position(5) }) },
        ),
        ("", WorkerItem::Report(full_report())),
        ("bare", WorkerItem::Report(report(Then::Continue))),
        ("suspend", WorkerItem::Report(ended(Then::Suspend))),
        ("suspend kept", WorkerItem::Report(Report { cached: true, ..ended(Then::Suspend) })),
        ("end", WorkerItem::Report(ended(Then::End(End::Complete(json(r#"{"sum":12.50}"#)))))),
        ("park", WorkerItem::Report(ended(Then::Park(parked())))),
        ("again", WorkerItem::Report(ended(Then::Again(again(Some("by ann")))))),
        ("shows", WorkerItem::Report(shows())),
        ("again bare", WorkerItem::Report(report(Then::Again(again(None))))),
        ("progress", WorkerItem::Report(Report { results: vec![told()], ..report(Then::Continue) })),
        ("events", WorkerItem::Report(events_report())),
        ("patch", WorkerItem::Report(Report { opened: vec![patch()], ..report(Then::Continue) })),
        ("others", WorkerItem::Report(others_report())),
        ("hooks", WorkerItem::Report(hook_report())),
        ("webhooks", WorkerItem::Report(webhook_report())),
        ("resumes", WorkerItem::Report(resumes_report())),
        ("again hook", WorkerItem::Report(report(Then::Again(Again { hook: Some(token()), ..again(None) })))),
        ("rollback", WorkerItem::Report(rollback_report(Some(bare_failure())))),
        ("rollback bare", WorkerItem::Report(rollback_report(None))),
        ("compensated", WorkerItem::Report(compensated_report())),
        ("marked", WorkerItem::Report(marked_report())),
        ("", WorkerItem::GiveBack { instance: INSTANCE, epoch: EPOCH }),
        ("", WorkerItem::Ask { instance: INSTANCE, epoch: EPOCH, run: Run(2), after: Position(128) }),
        ("", WorkerItem::StepClaim { instance: INSTANCE, call: HASH }),
        ("", step_report(failed(full_failure(), Some(Millis(60_000))))),
        ("bare", step_report(failed(bare_failure(), None))),
        ("sensitive", step_report(failed(sensitive_failure(), None))),
        ("end sensitive", WorkerItem::Report(ended(Then::End(End::Errored(sensitive_failure()))))),
        ("progress", step_reported(failed(bare_failure(), None), Some(progress().told))),
        ("", WorkerItem::StepGiveBack { instance: INSTANCE, call: HASH, epoch: EPOCH, unstarted: false }),
        (
            "unstarted",
            WorkerItem::StepGiveBack { instance: INSTANCE, call: HASH, epoch: EPOCH, unstarted: true },
        ),
        ("ledger", WorkerItem::Report(ledger_report())),
        ("unknown", WorkerItem::Report(Report { results: vec![unknown_end()], ..report(Then::Suspend) })),
        ("found", found()),
        ("referred", referred()),
        ("step referred", step_referred()),
        ("refused", step_report(failed(Failure { sent: Sent::Refused, ..bare_failure() }, None))),
    ]
}

fn once() -> Policy {
    Policy { class: Class::AtMostOnce, limit: Limit::Times(3), ..Policy::default() }
}

fn lookup() -> Policy {
    Policy {
        limit: Limit::Times(3),
        class: Class::Lookup { visibility_lag: Millis(30_000) },
        ..Policy::default()
    }
}

fn unknown_end() -> AttemptEnd {
    let outcome = AttemptOutcome::Unknown { failure: bare_failure(), asks: true, epoch: EPOCH };
    AttemptEnd { policy: once(), ..attempt_end(outcome) }
}

fn ledger_report() -> Report {
    let intent = |policy, marks| {
        LedgerItem::Intend(Intent {
            call: call(CallKind::Step),
            attempt: Attempt(2),
            called_after: Position(5),
            key: key(),
            input: fingerprint(),
            policy,
            marks,
        })
    };
    let dropped = AttemptOutcome::Unknown { failure: bare_failure(), asks: false, epoch: EPOCH };
    let marks = Marks { compensated: true, ..Marks::default() };
    Report {
        ledger: vec![
            intent(once(), marks),
            intent(lookup(), Marks::default()),
            LedgerItem::Withdraw(Withdrawn { call: call(CallKind::Step), attempt: Attempt(2) }),
            LedgerItem::Dropped(AttemptEnd { policy: once(), ..attempt_end(dropped) }),
        ],
        ..report(Then::Continue)
    }
}

fn reference() -> Option<Reference> {
    Reference::of("ch_17")
}

fn referred() -> WorkerItem {
    let end = AttemptEnd { reference: reference(), ..attempt_end(succeeded()) };
    WorkerItem::Report(Report { results: vec![end], ..report(Then::Continue) })
}

fn step_referred() -> WorkerItem {
    let mut item = found();
    if let WorkerItem::StepReport { reference: said, .. } = &mut item {
        *said = reference();
    }
    item
}

fn found() -> WorkerItem {
    WorkerItem::StepReport {
        instance: INSTANCE,
        call: HASH,
        epoch: EPOCH,
        ran_for: Millis(1_500),
        outcome: succeeded(),
        progress: None,
        found: true,
        reference: None,
    }
}

/// What journals say of attempts that may not simply be made again.
fn ledger_facts() -> Vec<(&'static str, Fact)> {
    let intended = |policy, marks| {
        Fact::Intended(Intended {
            call: call(CallKind::Step),
            attempt: Attempt(2),
            called_after: Position(5),
            key: key(),
            input: fingerprint(),
            policy,
            marks,
            build: build(),
            session: SESSION,
            epoch: EPOCH,
        })
    };
    let resolved = |choice, by: Option<&str>, sensitive| {
        let (by, why) = (by.map(str::to_owned), by.map(|_| "the bank says so".to_owned()));
        Fact::Resolved(Resolved {
            call: call(CallKind::Step),
            attempt: Attempt(2),
            choice,
            by,
            why,
            sensitive,
        })
    };
    let attempted = |policy, outcome| {
        Fact::Attempted(Attempted {
            call: call(CallKind::Step),
            attempt: Attempt(2),
            called_after: Position(5),
            started_at: AT,
            key: key(),
            input: fingerprint(),
            policy,
            build: build(),
            session: SESSION,
            outcome,
            progress: None,
            marks: Marks::default(),
            reference: None,
        })
    };
    let not_sent = Outcome::Failed { failure: bare_failure().not_sent(), retry_at: Some(AT) };
    let unknown = |asks| Outcome::Unknown { failure: bare_failure(), asks, epoch: EPOCH };
    let marks = Marks { compensated: true, found: true, ..Marks::default() };
    let look = Remote { look: Some(function()), ..remote(lookup()) };
    let opened = OpenedWait {
        call: call(CallKind::Step),
        called_after: Position(5),
        wait: Wait::Remote(look),
        build: None,
    };
    vec![
        ("", intended(once(), Marks { compensated: true, ..Marks::default() })),
        ("lookup", intended(lookup(), Marks::default())),
        ("", Fact::Withdrawn(Withdrawn { call: call(CallKind::Step), attempt: Attempt(2) })),
        ("", resolved(Choice::Done(json("[1]")), Some("ann"), true)),
        ("again", resolved(Choice::Again, None, false)),
        ("fail", resolved(Choice::Fail(bare_failure()), None, false)),
        ("unknown", attempted(once(), unknown(true))),
        ("unknown dropped", attempted(once(), unknown(false))),
        ("found", with_marks(attempted(lookup(), Outcome::Succeeded(json("1"))), marks)),
        ("look", Fact::Opened(opened)),
        ("not sent", attempted(once(), not_sent)),
    ]
}

fn with_marks(fact: Fact, marks: Marks) -> Fact {
    match fact {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted { marks, ..attempted }),
        other => other,
    }
}

fn attributes() -> Vec<Attribute> {
    let gone = Attribute { name: "stage".parse().expect("a valid name"), value: None };
    let of = |words| Attribute::from_words(words).expect("an attribute");
    vec![of("region=eu"), of("n=1.5"), gone]
}

fn shows() -> Report {
    Report { state: Some(json(r#"{"done":3}"#)), attributes: attributes(), ..report(Then::Suspend) }
}

fn again(cancelled: Option<&str>) -> Again {
    let attributes = if cancelled.is_some() { attributes() } else { Vec::new() };
    Again {
        input: json(r#"{"round":2}"#),
        seed: [9; 32],
        cancelled: cancelled.map(str::to_owned),
        attributes,
        hook: None,
        trace: None,
    }
}

fn report(then: Then) -> Report {
    Report {
        instance: INSTANCE,
        epoch: EPOCH,
        number: 4,
        seen: Position(5),
        results: Vec::new(),
        opened: Vec::new(),
        closed: Vec::new(),
        then,
        folded: false,
        cached: false,
        state: None,
        attributes: Vec::new(),
        compensated: None,
        ledger: Vec::new(),
    }
}

fn full_report() -> Report {
    let open = |kind, wait| Open { call: call(kind), called_after: Position(5), wait };
    Report {
        results: vec![
            attempt_end(succeeded()),
            AttemptEnd {
                policy: Policy::default(),
                ..attempt_end(failed(full_failure(), Some(Millis(60_000))))
            },
        ],
        opened: vec![
            open(CallKind::Sleep, OpenWait::Sleep(Millis(86_400_000))),
            open(CallKind::Sleep, OpenWait::SleepUntil(AT)),
            open(CallKind::Step, OpenWait::Remote(remote(policy()))),
        ],
        folded: true,
        ..report(Then::Continue)
    }
}

fn events_report() -> Report {
    let open = |key| Open {
        call: call(CallKind::Event),
        called_after: Position(5),
        wait: OpenWait::Event { types: event_types(), key, timeout: Millis(86_400_000) },
    };
    let closed = Closed { call: call(CallKind::Event), after: Position(5), hook: None };
    Report {
        opened: vec![open(Some(event_key())), open(None)],
        closed: vec![closed],
        ..report(Then::Continue)
    }
}

fn others_report() -> Report {
    let open = |kind, wait| Open { call: call(kind), called_after: Position(5), wait };
    Report {
        opened: vec![
            open(CallKind::Child, OpenWait::Child(child(true))),
            open(CallKind::Child, OpenWait::Child(child(false))),
            open(CallKind::Instance, OpenWait::Instance(other())),
            open(CallKind::Send, OpenWait::Send(sending(Some(event_key())))),
        ],
        ..report(Then::Continue)
    }
}

fn rollback_report(failure: Option<Failure>) -> Report {
    let wait = OpenWait::Rollback { failure, steps: 3 };
    let open = Open { call: call(CallKind::Rollback), called_after: Position(5), wait };
    Report { opened: vec![open], ..report(Then::Continue) }
}

fn compensated_report() -> Report {
    Report { compensated: Some(compensated(2)), ..report(Then::End(End::Errored(bare_failure()))) }
}

fn compensated(more: u64) -> Compensated {
    let undone = |end| Undone { call: call(CallKind::Compensation), end };
    let steps =
        vec![undone(UndoneEnd::Done), undone(UndoneEnd::Failed(bare_failure())), undone(UndoneEnd::Skipped)];
    Compensated { steps, more }
}

fn marked_report() -> Report {
    let marks = Marks { compensated: true, sensitive: true, reused: true, found: false };
    let end = AttemptEnd { marks, ..attempt_end(succeeded()) };
    let wait = OpenWait::Remote(Remote { marks, ..remote(policy()) });
    let open = Open { call: call(CallKind::Step), called_after: Position(5), wait };
    Report { results: vec![end], opened: vec![open], ..report(Then::Continue) }
}

fn event_types() -> Vec<EventType> {
    ["approved", "rejected"].map(|kind| EventType::new(kind).expect("a valid name")).to_vec()
}

fn event_key() -> EventKey {
    EventKey::new("o-1").expect("a valid name")
}

fn attempt_end(outcome: AttemptOutcome) -> AttemptEnd {
    AttemptEnd {
        call: call(CallKind::Step),
        attempt: Attempt(2),
        called_after: Position(5),
        ran_for: Millis(1_500),
        key: key(),
        input: fingerprint(),
        policy: policy(),
        outcome,
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    }
}

fn coordinator_word(item: &CoordinatorItem) -> &'static str {
    match item {
        CoordinatorItem::Opened(_) => "opened",
        CoordinatorItem::Heard(_) => "heard",
        CoordinatorItem::UnknownSession => "unknown_session",
        CoordinatorItem::Ping => "ping",
        CoordinatorItem::Grant(_) => "grant",
        CoordinatorItem::Entries(_) => "entries",
        CoordinatorItem::Ack(_) => "ack",
        CoordinatorItem::NotGranted { .. } => "not_granted",
        CoordinatorItem::Offer { .. } => "offer",
        CoordinatorItem::Fence { .. } => "fence",
        CoordinatorItem::StepGrant(_) => "step_grant",
        CoordinatorItem::StepFence { .. } => "step_fence",
        CoordinatorItem::StepAck { .. } => "step_ack",
    }
}

fn coordinator_items() -> Vec<(&'static str, CoordinatorItem)> {
    let opened =
        |limits| CoordinatorItem::Opened(Opened { lease: Millis(15_000), heartbeat: Millis(2_000), limits });
    let heard =
        |not_yours, steps_not_yours| CoordinatorItem::Heard(Heard { number: 7, not_yours, steps_not_yours });
    let ack = |taken| {
        let after = Position(5);
        CoordinatorItem::Ack(Ack { instance: INSTANCE, epoch: EPOCH, number: 4, after, at: AT, taken })
    };
    let fence = |why| CoordinatorItem::Fence { instance: INSTANCE, epoch: EPOCH, why };
    let limits = Limits {
        output_bytes: 1_000,
        input_bytes: 2_000,
        steps: 30,
        journal_bytes: 400_000,
        ..Limits::default()
    };
    let event_limits = Limits { event_bytes: 5_000, events_unread: 60, ..limits };
    let entries = vec![Entry { position: Position(129), at: AT, fact: Fact::Retried }];
    let part = Entries { instance: INSTANCE, epoch: EPOCH, last: Position(130), entries, pause: None };
    let pause = Entries { entries: Vec::new(), pause: Some(true), ..part.clone() };
    vec![
        ("", opened(limits)),
        ("bare", opened(Limits::default())),
        ("with events", opened(event_limits)),
        ("with hooks", opened(Limits { hook_retention: Millis(7_000), ..limits })),
        ("", heard(vec![(INSTANCE, EPOCH)], vec![HELD_STEP])),
        ("bare", heard(Vec::new(), Vec::new())),
        ("", CoordinatorItem::UnknownSession),
        ("", CoordinatorItem::Ping),
        ("", CoordinatorItem::Grant(grant(true))),
        ("bare", CoordinatorItem::Grant(grant(false))),
        ("", CoordinatorItem::Entries(part)),
        ("pause", CoordinatorItem::Entries(pause)),
        ("whole", ack(Taken::Whole)),
        ("kept", ack(Taken::Kept)),
        ("results", ack(Taken::Results)),
        ("before", ack(Taken::Before)),
        ("out of order", ack(Taken::OutOfOrder { expected: 2 })),
        ("", CoordinatorItem::NotGranted { instance: INSTANCE }),
        ("stale", fence(FenceReason::Stale)),
        ("terminated", fence(FenceReason::Terminated)),
        ("ended", fence(FenceReason::Ended)),
        ("parked", fence(FenceReason::Parked)),
        ("unknown", fence(FenceReason::Unknown)),
        ("", CoordinatorItem::StepGrant(step_grant(policy()))),
        ("bare", CoordinatorItem::StepGrant(step_grant(Policy::default()))),
        (
            "progress",
            CoordinatorItem::StepGrant(StepGrant { progress: Some(progress().told), ..step_grant(policy()) }),
        ),
        ("", CoordinatorItem::Offer { instance: INSTANCE }),
        ("", CoordinatorItem::StepFence { instance: INSTANCE, call: HASH, epoch: Epoch(0) }),
        ("", CoordinatorItem::StepAck { instance: INSTANCE, call: HASH, epoch: EPOCH }),
    ]
}

fn grant(direct: bool) -> Grant {
    Grant {
        instance: INSTANCE,
        epoch: EPOCH,
        namespace: Namespace::default(),
        workflow: workflow(),
        id: instance_id(),
        run: Run(2),
        generation: Generation(1),
        now: AT,
        reports: 0,
        last: Position(130),
        entries: vec![Entry { position: Position(1), at: AT, fact: started() }],
        direct,
        restored_at: None,
    }
}

fn step_grant(policy: Policy) -> StepGrant {
    StepGrant {
        instance: INSTANCE,
        hash: HASH,
        epoch: EPOCH,
        namespace: Namespace::default(),
        workflow: workflow(),
        id: instance_id(),
        call: call(CallKind::Step),
        attempt: Attempt(2),
        remote: remote(policy),
        progress: None,
    }
}

fn session_word(message: &SessionMessage) -> &'static str {
    match message {
        SessionMessage::Open(_) => "open",
        SessionMessage::Heartbeat(_) => "heartbeat",
        SessionMessage::Goodbye { .. } => "goodbye",
        SessionMessage::Beat { .. } => "beat",
    }
}

fn session_messages() -> Vec<(&'static str, SessionMessage)> {
    let open = |pinned, pools, functions| OpenSession {
        session: SESSION,
        namespace: Namespace::default(),
        workflows: vec![workflow()],
        pinned,
        pools,
        functions,
        build: build(),
        inbox: "everstep.inbox.1".to_owned(),
        slots: 64,
        instances: 1_000,
        host: "node-1/4711".to_owned(),
    };
    let heartbeat = |steps, credits| Heartbeat {
        session: SESSION,
        number: 8,
        answered: 7,
        inbox: "everstep.inbox.1".to_owned(),
        held: vec![Held {
            instance: INSTANCE,
            epoch: EPOCH,
            position: Position(130),
            run: None,
            reports: None,
        }],
        steps,
        running: 5,
        turned: None,
        credits,
        progress: Vec::new(),
    };
    let with_progress = |heartbeat: Heartbeat| Heartbeat {
        progress: vec![Running { instance: INSTANCE, epoch: EPOCH, progress: progress() }],
        ..heartbeat
    };
    let with_turns = |mut heartbeat: Heartbeat| {
        heartbeat.turned = Some(Millis(12));
        heartbeat.held[0].run = Some(Run(2));
        heartbeat.held[0].reports = Some(9);
        heartbeat
    };
    vec![
        ("", SessionMessage::Open(open(Vec::new(), vec![pool()], vec![function()]))),
        ("pinned", SessionMessage::Open(open(vec![workflow()], Vec::new(), Vec::new()))),
        ("bare", SessionMessage::Open(open(Vec::new(), Vec::new(), Vec::new()))),
        ("", SessionMessage::Heartbeat(heartbeat(vec![HELD_STEP], vec![CREDIT]))),
        ("bare", SessionMessage::Heartbeat(heartbeat(Vec::new(), Vec::new()))),
        ("with turns", SessionMessage::Heartbeat(with_turns(heartbeat(Vec::new(), Vec::new())))),
        ("with progress", SessionMessage::Heartbeat(with_progress(heartbeat(Vec::new(), Vec::new())))),
        ("", SessionMessage::Goodbye { session: SESSION }),
        ("", SessionMessage::Beat { coordinator: COORDINATOR }),
    ]
}

fn other() -> Other {
    Other {
        workflow: WorkflowName::new("fulfil").expect("a valid name"),
        id: InstanceId::new("o-17").expect("a valid id"),
    }
}

fn child(everything: bool) -> Child {
    let Other { workflow, id } = other();
    Child {
        workflow,
        id,
        input: json(r#"{"n":1}"#),
        fingerprint: fingerprint(),
        detached: everything,
        only_started: everything,
        hook: None,
        keep_for: None,
        trace: None,
    }
}

fn child_kept() -> Child {
    Child { keep_for: Some(Millis(9)), ..child(true) }
}

fn child_with(hook: StartHook) -> Child {
    Child { hook: Some(hook), ..child(false) }
}

fn start_hook() -> StartHook {
    let Registration { token, retention, metadata, .. } = registration();
    StartHook { token, retention, metadata, schema: None }
}

fn bare_start_hook() -> StartHook {
    StartHook { token: token(), retention: None, metadata: None, schema: None }
}

fn resuming() -> Resuming {
    Resuming { token: token(), payload: json("[true]"), fingerprint: fingerprint() }
}

fn sending(key: Option<EventKey>) -> Sending {
    Sending {
        to: other(),
        kind: EventType::new("approved").expect("a valid name"),
        key,
        payload: json("true"),
        fingerprint: fingerprint(),
    }
}

fn facts() -> Vec<(&'static str, Fact)> {
    let told = |policy, outcome, progress| {
        Fact::Attempted(Attempted {
            call: call(CallKind::Step),
            attempt: Attempt(2),
            called_after: Position(5),
            started_at: AT,
            key: key(),
            input: fingerprint(),
            policy,
            build: build(),
            session: SESSION,
            outcome,
            progress,
            marks: everstep_protocol::journal::Marks::default(),
            reference: None,
        })
    };
    let attempted = |policy, outcome| told(policy, outcome, None);
    let failed = |failure, retry_at| Outcome::Failed { failure, retry_at };
    let opened_by = |kind, wait, build| {
        Fact::Opened(OpenedWait { call: call(kind), called_after: Position(5), wait, build })
    };
    let opened = |kind, wait| opened_by(kind, wait, None);
    let awaited = |key| Wait::Event { types: event_types(), key, until: AT };
    let delivered = |key| {
        Fact::Delivered(Delivered {
            call: call(CallKind::Event),
            kind: EventType::new("approved").expect("a valid name"),
            sequence: 3,
            id: "evt-1".to_owned(),
            key,
            received_at: AT,
            payload: json(r#"{"by":"ann"}"#),
        })
    };
    let returned = |outcome| Fact::Returned(Returned { call: call(CallKind::Child), outcome });
    let terminated = |reason| Fact::Ended(End::Terminated { reason });
    vec![
        ("", started()),
        ("attributes", begun(attributes())),
        ("hook", begun_with(Vec::new(), Some(token()))),
        ("", attempted(policy(), failed(full_failure(), Some(AT)))),
        ("bare", attempted(Policy::default(), failed(bare_failure(), None))),
        ("succeeded", attempted(policy(), Outcome::Succeeded(json("[1,2.50,\"\u{e9}\"]")))),
        ("progress", told(policy(), failed(bare_failure(), Some(AT)), Some(progress().told))),
        ("sleep", opened(CallKind::Sleep, Wait::Sleep { until: AT })),
        ("remote", opened(CallKind::Step, Wait::Remote(remote(policy())))),
        ("remote bare", opened(CallKind::Step, Wait::Remote(remote(Policy::default())))),
        ("remote by", opened_by(CallKind::Step, Wait::Remote(remote(policy())), Some(build()))),
        ("event", opened(CallKind::Event, awaited(Some(event_key())))),
        ("event bare", opened(CallKind::Event, awaited(None))),
        ("", delivered(Some(event_key()))),
        ("bare", delivered(None)),
        ("", Fact::Closed(Closed { call: call(CallKind::Event), after: Position(5), hook: None })),
        ("", Fact::Fired { call: call(CallKind::Sleep) }),
        ("", Fact::Continued(json(r#"{"round":2}"#))),
        ("", Fact::Cancelled(Cancelled { reason: Some("enough".to_owned()), until: AT, rollback: false })),
        ("bare", Fact::Cancelled(Cancelled { reason: None, until: AT, rollback: false })),
        ("cancelled", Fact::Ended(End::Cancelled { reason: Some("enough".to_owned()) })),
        ("cancelled bare", Fact::Ended(End::Cancelled { reason: None })),
        ("", Fact::Lost(Lost { slots: 64, counts: true, session: SESSION, progress: Vec::new() })),
        (
            "progress",
            Fact::Lost(Lost { slots: 64, counts: true, session: SESSION, progress: vec![progress()] }),
        ),
        ("child", opened_by(CallKind::Child, Wait::Child(child(true)), Some(build()))),
        ("child bare", opened(CallKind::Child, Wait::Child(child(false)))),
        ("instance", opened(CallKind::Instance, Wait::Instance(other()))),
        ("send", opened_by(CallKind::Send, Wait::Send(sending(Some(event_key()))), Some(build()))),
        ("send bare", opened(CallKind::Send, Wait::Send(sending(None)))),
        ("", returned(failed(full_failure(), None))),
        ("succeeded", returned(Outcome::Succeeded(json("[1]")))),
        ("", Fact::Parked(parked())),
        ("changed", Fact::Parked(parked_for_a_key())),
        ("", Fact::Patched(Patched { call: call(CallKind::Patch), called_after: Position(5) })),
        ("", Fact::Retried),
        ("", Fact::Rekeyed(rekeyed(true, Some("ann")))),
        ("bare", Fact::Rekeyed(rekeyed(false, None))),
        ("rollback", Fact::Cancelled(Cancelled { reason: None, until: AT, rollback: true })),
        ("referred", with_reference(attempted(policy(), Outcome::Succeeded(json("1"))))),
        ("marked", marked(attempted(policy(), Outcome::Succeeded(json("1"))))),
        ("", compensating(Some(full_failure()))),
        ("bare", compensating(None)),
        ("", Fact::Compensated(compensated(2))),
        ("bare", Fact::Compensated(compensated(0))),
        ("", Fact::Rollback(Rollback { reason: Some("enough".to_owned()) })),
        ("bare", Fact::Rollback(Rollback { reason: None })),
        (
            "",
            Fact::Reusable(reusable(
                policy(),
                Marks { compensated: true, sensitive: true, ..Marks::default() },
            )),
        ),
        ("bare", Fact::Reusable(reusable(Policy::default(), Marks::default()))),
        ("complete", Fact::Ended(End::Complete(Payload::null()))),
        ("errored", Fact::Ended(End::Errored(full_failure()))),
        ("terminated", terminated(Some("not needed any more".to_owned()))),
        ("terminated bare", terminated(None)),
    ]
}

fn hook_facts() -> Vec<(&'static str, Fact)> {
    let opened = |kind, wait| {
        Fact::Opened(OpenedWait { call: call(kind), called_after: Position(5), wait, build: None })
    };
    vec![
        ("hook", opened(CallKind::Hook, Wait::Hook(registration()))),
        ("hook bare", opened(CallKind::Hook, Wait::Hook(bare_registration()))),
        ("payload", opened(CallKind::Payload, Wait::Payload(awaiting()))),
        ("webhook", opened(CallKind::Hook, Wait::Hook(webhook()))),
        ("reply", opened(CallKind::Reply, Wait::Reply(reply()))),
        ("reply bare", opened(CallKind::Reply, Wait::Reply(bare_reply()))),
        ("owned", registered(HookOutcome::Owned { hook: hook(), from: Some(other()) })),
        ("owned bare", registered(HookOutcome::Owned { hook: HookId::START, from: None })),
        ("conflict", registered(HookOutcome::Conflict { owner: other() })),
        ("refused", registered(HookOutcome::Refused(bare_failure()))),
        ("child kept", opened_with(CallKind::Child, Wait::Child(child_kept()))),
        ("child with hook", opened_with(CallKind::Child, Wait::Child(child_with(start_hook())))),
        ("child with bare hook", opened(CallKind::Child, Wait::Child(child_with(bare_start_hook())))),
        ("resume", opened_with(CallKind::Resume, Wait::Resume(resuming()))),
        ("", received()),
        ("", Fact::TakenOver(TakenOver { hook: HookId::START, by: other(), by_hook: hook() })),
        (
            "hook",
            Fact::Closed(Closed { call: call(CallKind::Hook), after: Position(5), hook: Some(token()) }),
        ),
    ]
}

fn opened_with(kind: CallKind, wait: Wait) -> Fact {
    Fact::Opened(OpenedWait { call: call(kind), called_after: Position(5), wait, build: Some(build()) })
}

fn registered(outcome: HookOutcome) -> Fact {
    Fact::Registered(Registered { call: call(CallKind::Hook), outcome })
}

fn received() -> Fact {
    Fact::Received(Received {
        call: call(CallKind::Payload),
        hook: hook(),
        sequence: 3,
        id: "r-1".to_owned(),
        received_at: AT,
        payload: json(r#"{"by":"ann"}"#),
    })
}

fn token() -> Token {
    Token::new("order:1").expect("a valid token")
}

fn hook() -> HookId {
    HookId { run: Run(2), position: Position(4) }
}

fn awaiting() -> Awaiting {
    Awaiting { hook: hook(), token: token() }
}

fn bare_registration() -> Registration {
    Registration::new(token())
}

fn registration() -> Registration {
    let webhook = Webhook {
        status: Some(200),
        body: Some("ok".to_owned()),
        content_type: Some("text/html".to_owned()),
        ..Webhook::default()
    };
    Registration {
        retention: Some(HookRetention::For(Millis(60_000))),
        metadata: Some(json("[1]")),
        webhook: Some(webhook),
        force: true,
        ..bare_registration()
    }
}

/// Everything that a webhook may say, though not all of it together.
fn webhook() -> Registration {
    let webhook = Webhook {
        headers: vec![("x-shop".to_owned(), "3".to_owned())],
        base64: true,
        methods: vec![Method::Get, Method::Put, Method::Patch, Method::Delete, Method::Post],
        carries: Carried::RawRequest,
        manual: true,
        ..Webhook::default()
    };
    Registration { webhook: Some(webhook), schema: Some(json(r#"{"type":"object"}"#)), ..bare_registration() }
}

fn reply() -> Reply {
    let response = WebhookResponse {
        status: 201,
        headers: vec![("content-type".to_owned(), "text/html".to_owned())],
        body: Some("/wA=".to_owned()),
        base64: true,
    };
    Reply { token: token(), id: "r-1".to_owned(), response }
}

fn bare_reply() -> Reply {
    let response = WebhookResponse { status: 204, headers: Vec::new(), body: None, base64: false };
    Reply { response, ..reply() }
}

fn webhook_report() -> Report {
    let open = |kind, wait| Open { call: call(kind), called_after: Position(5), wait };
    let carrying = Webhook { carries: Carried::Request, ..Webhook::default() };
    let carrying = Registration { webhook: Some(carrying), ..bare_registration() };
    Report {
        opened: vec![
            open(CallKind::Hook, OpenWait::Hook(webhook())),
            open(CallKind::Hook, OpenWait::Hook(carrying)),
            open(CallKind::Reply, OpenWait::Reply(reply())),
            open(CallKind::Reply, OpenWait::Reply(bare_reply())),
        ],
        ..report(Then::Continue)
    }
}

fn hook_report() -> Report {
    let open = |kind, wait| Open { call: call(kind), called_after: Position(5), wait };
    let until = Registration { retention: Some(HookRetention::Until(AT)), ..bare_registration() };
    let bare = Registration { webhook: Some(Webhook::default()), ..bare_registration() };
    Report {
        opened: vec![
            open(CallKind::Hook, OpenWait::Hook(registration())),
            open(CallKind::Hook, OpenWait::Hook(until)),
            open(CallKind::Hook, OpenWait::Hook(bare)),
            open(CallKind::Payload, OpenWait::Payload(awaiting())),
        ],
        closed: vec![Closed { call: call(CallKind::Hook), after: Position(5), hook: Some(token()) }],
        ..report(Then::Continue)
    }
}

fn resumes_report() -> Report {
    let open = |kind, wait| Open { call: call(kind), called_after: Position(5), wait };
    Report {
        opened: vec![
            open(CallKind::Child, OpenWait::Child(child_with(start_hook()))),
            open(CallKind::Child, OpenWait::Child(child_with(bare_start_hook()))),
            open(CallKind::Resume, OpenWait::Resume(resuming())),
        ],
        ..report(Then::Continue)
    }
}

/// The words of the enums that are nothing but words, in all their forms.
fn words() -> Vec<Example> {
    let call_kinds = vec![
        CallKind::Step,
        CallKind::Sleep,
        CallKind::Event,
        CallKind::Hook,
        CallKind::Child,
        CallKind::Action,
        CallKind::Compensation,
        CallKind::Patch,
    ];
    let failure_kinds = vec![
        FailureKind::Error,
        FailureKind::TimedOut,
        FailureKind::WorkerLost,
        FailureKind::Panicked,
        FailureKind::TooLarge,
        FailureKind::Unserialisable,
        FailureKind::Invalid,
        FailureKind::LimitReached,
        FailureKind::UnknownFunction,
    ];
    let park_codes = vec![
        ParkCode::JournalMismatch,
        ParkCode::BodyPanicked,
        ParkCode::ForeignAwait,
        ParkCode::NothingToWaitFor,
        ParkCode::Poison,
        ParkCode::Broken,
        ParkCode::InputChanged,
        ParkCode::Unreadable,
    ];
    let later_calls = vec![CallKind::Instance, CallKind::Send];
    let (rollback, payload) = (vec![CallKind::Rollback], vec![CallKind::Payload]);
    let (reply, resume) = (vec![CallKind::Reply], vec![CallKind::Resume]);
    let (later_codes, later_failures) = (vec![ParkCode::CompensationMissing], vec![FailureKind::Cancelled]);
    each_once(&CallKind::ALL, &[&call_kinds, &later_calls, &rollback, &payload, &reply, &resume]);
    each_once(&FailureKind::ALL, &[&failure_kinds, &later_failures]);
    each_once(&ParkCode::ALL, &[&park_codes, &later_codes]);
    vec![
        Example::new("words/call_kind", call_kinds),
        Example::new("words/call_kind later", later_calls),
        Example::new("words/call_kind rollback", rollback),
        Example::new("words/park_code later", later_codes),
        Example::new("words/call_kind payload", payload),
        Example::new("words/call_kind reply", reply),
        Example::new("words/call_kind resume", resume),
        Example::new("words/failure_kind", failure_kinds),
        Example::new("words/failure_kind later", later_failures),
        Example::new("words/park_code", park_codes),
        Example::new("words/backoff", vec![Backoff::Constant, Backoff::Linear, Backoff::Exponential]),
        Example::new("words/limit", vec![Limit::Times(0), Limit::Unlimited]),
    ]
}

/// A variant without an example is one that could change unseen.
fn each_once<T: PartialEq + std::fmt::Debug>(all: &[T], parts: &[&Vec<T>]) {
    let given: Vec<&T> = parts.iter().flat_map(|part| part.iter()).collect();
    assert_eq!(given.len(), all.len(), "{given:?}");
    for variant in all {
        assert!(given.contains(&variant), "{variant:?} has no example");
    }
}

fn started() -> Fact {
    begun(Vec::new())
}

fn begun(attributes: Vec<Attribute>) -> Fact {
    begun_with(attributes, None)
}

fn begun_with(attributes: Vec<Attribute>, hook: Option<Token>) -> Fact {
    let seed = std::array::from_fn(|index| u8::try_from(index).unwrap_or(0));
    Fact::Started(Started {
        input: json(r#"{"order":"o-1","lines":[1,2]}"#),
        seed,
        generation: Generation(1),
        attributes,
        hook,
        trace: None,
    })
}

fn succeeded() -> AttemptOutcome {
    AttemptOutcome::Succeeded(json(r#"{"ok":true}"#))
}

fn failed(failure: Failure, retry_in: Option<Millis>) -> AttemptOutcome {
    AttemptOutcome::Failed { failure, retry_in }
}

fn full_failure() -> Failure {
    Failure {
        kind: FailureKind::Error,
        name: "CardDeclined".to_owned(),
        message: "the bank said no".to_owned(),
        data: Some(json(r#"{"code":51}"#)),
        permanent: true,
        retry_after: Some(Millis(30_000)),
        sensitive: false,
        sent: Sent::Unknown,
    }
}

fn sensitive_failure() -> Failure {
    full_failure().of_sensitive(true)
}

fn bare_failure() -> Failure {
    Failure { data: None, permanent: false, retry_after: None, ..full_failure() }
}

fn policy() -> Policy {
    Policy {
        limit: Limit::Times(3),
        delay: Millis(250),
        backoff: Backoff::Linear,
        timeout: Millis(5_000),
        max_delay: Millis(60_000),
        max_elapsed: Some(Millis(3_600_000)),
        jitter: true,
        class: Class::Keyed,
    }
}

fn remote(policy: Policy) -> Remote {
    Remote {
        pool: pool(),
        function: function(),
        input: json(r#"{"width":640}"#),
        key: key(),
        fingerprint: fingerprint(),
        policy,
        marks: everstep_protocol::journal::Marks::default(),
        look: None,
        trace: None,
    }
}

fn compensating(failure: Option<Failure>) -> Fact {
    Fact::Compensating(Compensating {
        call: call(CallKind::Rollback),
        called_after: Position(5),
        failure,
        steps: 3,
    })
}

fn with_reference(fact: Fact) -> Fact {
    match fact {
        Fact::Attempted(attempted) => Fact::Attempted(Attempted { reference: reference(), ..attempted }),
        other => other,
    }
}

fn marked(fact: Fact) -> Fact {
    with_marks(fact, Marks { compensated: true, sensitive: true, reused: true, found: false })
}

fn reusable(policy: Policy, marks: Marks) -> Reusable {
    let output = json("[1,2.50]");
    Reusable { call: call(CallKind::Step), key: key(), input: fingerprint(), policy, marks, output }
}

fn progress() -> Progress {
    Progress { call: HASH, attempt: Attempt(2), told: json("[7,\"rows\"]") }
}

fn rekeyed(kept: bool, said: Option<&str>) -> Rekeyed {
    Rekeyed {
        call: call(CallKind::Step),
        input: fingerprint(),
        kept: kept.then(key),
        by: said.map(str::to_owned),
        why: said.map(str::to_owned),
    }
}

fn parked() -> Parked {
    Parked::new(ParkCode::JournalMismatch, "entry 7: the code asked for another step".to_owned())
}

fn parked_for_a_key() -> Parked {
    let changed =
        Changed { call: call(CallKind::Step), input: fingerprint(), key: key(), asked_at: Some(Position(9)) };
    Parked { code: ParkCode::InputChanged, changed: Some(Box::new(changed)), ..parked() }
}

fn call(kind: CallKind) -> Call {
    Call { kind, name: CallName::new("reserve stock").expect("a valid name"), count: 2 }
}

fn json(text: &str) -> Payload {
    Payload::from_text(text).expect("valid JSON")
}

fn key() -> StepKey {
    "5e".repeat(32).parse().expect("64 digits")
}

fn fingerprint() -> Fingerprint {
    Fingerprint::from_bytes([0xf1; 32])
}

fn workflow() -> WorkflowName {
    WorkflowName::new("fulfil").expect("a valid name")
}

fn instance_id() -> InstanceId {
    InstanceId::new("o-1").expect("a valid id")
}

fn build() -> BuildName {
    BuildName::new("b-17").expect("a valid name")
}

fn pool() -> Pool {
    Pool::new("imaging").expect("a valid name")
}

fn function() -> FunctionName {
    FunctionName::new("resize").expect("a valid name")
}
