//! A store with an engine on top: what a coordinator does, without its loop.

use std::sync::{Arc, Mutex};

use everstep_engine::{
    Answer, Batch, Head, Input, What, Writes,
    batch::{Loaded, Rules, Verdict},
    place::Room,
    rows::Needs,
    start::{MessageKey, NameKey, Start},
};
use everstep_protocol::{
    Attempt, Attribute, BuildName, Call, CallHash, CallKind, CallName, Epoch, Failure, FailureKind,
    Fingerprint, FunctionName, InstanceUid, Millis, Namespace, Payload, Policy, Pool, Position, Run,
    SessionId, StepKey, Timestamp, WorkflowName,
    journal::{Closed, Compensated, End, Entry, Remote},
    message::{AttemptEnd, AttemptOutcome, Open, OpenSession, OpenWait, Report, Then},
};
use everstep_store::{Error, Range, StepOver, Store};

/// A store with an engine on top.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) room: Room,
}

/// What became of a batch.
#[derive(Default)]
pub(crate) struct Ran {
    pub(crate) answers: Vec<Answer>,
    pub(crate) now: Timestamp,
    pub(crate) steps_over: Vec<StepOver>,
}

impl Scene {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, room: Room::default() }
    }

    /// Runs inputs as one batch.
    pub(crate) async fn run(&self, inputs: Vec<Input>) -> Ran {
        self.try_run(inputs).await.expect("the batch is written")
    }

    pub(crate) async fn try_run(&self, inputs: Vec<Input>) -> Result<Ran, Error> {
        let mut needs = Needs::default();
        for input in &inputs {
            input.needs(&mut needs);
        }
        let ran = Arc::new(Mutex::new(Ran::default()));
        let (out, mut room) = (Arc::clone(&ran), self.room.clone());
        let decide = move |loaded: Loaded| {
            let now = loaded.now;
            let mut batch = Batch::new(loaded, Rules::default());
            let answers = inputs.iter().map(|input| match batch.apply(input, &mut room) {
                Verdict::Decided(answer) => answer,
                Verdict::Started(decided) => decided.answer,
                Verdict::Held => panic!("nobody else is there"),
                Verdict::Broken => panic!("no start is broken"),
            });
            let answers = answers.collect();
            let (writes, _, _) = batch.finish(&mut room);
            *out.lock().unwrap() = Ran { answers, now, steps_over: Vec::new() };
            writes
        };
        let steps_over = self.store.transact(needs, Box::new(decide)).await?;
        let ran = Arc::into_inner(ran).expect("it was decided").into_inner().unwrap();
        Ok(Ran { steps_over, ..ran })
    }

    /// Runs one input on an instance.
    pub(crate) async fn on(&self, instance: InstanceUid, what: What) -> Answer {
        self.run(vec![Input::On { instance, what }]).await.answers.remove(0)
    }

    /// Starts an instance and answers with its internal id.
    pub(crate) async fn start(&self, id: &str) -> InstanceUid {
        let start = start("orders", id, "{}");
        let uid = start.uid;
        assert_eq!(self.run(vec![Input::Start(Box::new(start))]).await.answers, [Answer::Created]);
        uid
    }

    /// Starts an instance and lets a session have it.
    pub(crate) async fn held(&self, id: &str, session: SessionId) -> InstanceUid {
        let uid = self.start(id).await;
        assert_eq!(self.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
        uid
    }

    /// What a transaction with these needs loads.
    pub(crate) async fn load(&self, needs: Needs) -> Loaded {
        let loaded = Arc::new(Mutex::new(None));
        let out = Arc::clone(&loaded);
        let decide = move |loaded| {
            *out.lock().unwrap() = Some(loaded);
            Writes::default()
        };
        self.store.transact(needs, Box::new(decide)).await.expect("it loads");
        loaded.lock().unwrap().take().expect("it was decided")
    }

    /// An instance's head and all that can stand beside it, for these calls.
    pub(crate) async fn look(&self, uid: InstanceUid, calls: &[&Call]) -> Loaded {
        let calls: Vec<(InstanceUid, CallHash)> = calls.iter().map(|call| (uid, call.hash())).collect();
        let needs = Needs {
            heads: vec![uid],
            runnable: vec![uid],
            waits: calls.clone(),
            remotes: calls,
            ..Needs::default()
        };
        self.load(needs).await
    }

    pub(crate) async fn head(&self, uid: InstanceUid) -> Head {
        self.look(uid, &[]).await.heads.remove(&uid).expect("there is such an instance")
    }

    /// The journal of an instance's first run.
    pub(crate) async fn journal(&self, uid: InstanceUid) -> Vec<Entry> {
        self.journal_of(uid, Run(1)).await
    }

    pub(crate) async fn journal_of(&self, uid: InstanceUid, run: Run) -> Vec<Entry> {
        let range = Range { uid, run, after: Position(0) };
        self.store.journal(vec![range], usize::MAX).await.expect("it reads").remove(0)
    }

    /// Writes rows as they are.
    pub(crate) async fn write(&self, needs: Needs, writes: Writes) -> Result<(), Error> {
        self.store.transact(needs, Box::new(move |_| writes)).await.map(drop)
    }
}

pub(crate) fn namespace() -> Namespace {
    Namespace::new("shop").unwrap()
}

pub(crate) fn workflow(name: &str) -> WorkflowName {
    WorkflowName::new(name).unwrap()
}

pub(crate) fn pool() -> Pool {
    Pool::new("gpu").unwrap()
}

pub(crate) fn build() -> BuildName {
    BuildName::new("b1").unwrap()
}

pub(crate) fn name_key(workflow_name: &str, id: &str) -> NameKey {
    NameKey { namespace: namespace(), workflow: workflow(workflow_name), id: id.parse().unwrap() }
}

pub(crate) fn message(app: &str, id: &str) -> MessageKey {
    MessageKey {
        namespace: namespace(),
        workflow: workflow("orders"),
        app_id: app.to_owned(),
        message_id: id.to_owned(),
    }
}

pub(crate) fn payload(text: &str) -> Payload {
    Payload::from_text(text).unwrap()
}

pub(crate) fn start(workflow_name: &str, id: &str, input: &str) -> Start {
    let input = payload(input);
    Start {
        uid: InstanceUid::generate(),
        name: name_key(workflow_name, id),
        fingerprint: Fingerprint::of(&input).unwrap(),
        input,
        seed: [7; 32],
        retention: everstep_engine::retention::Own::default(),
        pin: None,
        strict: false,
        attributes: Vec::new(),
        message: None,
        letter: None,
        hook: None,
        trace: None,
    }
}

pub(crate) fn on(instance: InstanceUid, what: What) -> Input {
    Input::On { instance, what }
}

pub(crate) fn step(name: &str) -> Call {
    Call { kind: CallKind::Step, name: CallName::new(name).unwrap(), count: 1 }
}

pub(crate) fn sleep(name: &str) -> Call {
    Call { kind: CallKind::Sleep, name: CallName::new(name).unwrap(), count: 1 }
}

pub(crate) fn key() -> StepKey {
    StepKey::derive(uuid::Uuid::nil(), 1, "step", "a", 1, &Payload::null()).unwrap()
}

pub(crate) fn failure() -> Failure {
    Failure::new(FailureKind::Error, "card declined")
}

pub(crate) fn succeeded(call: &Call, output: &str) -> AttemptEnd {
    AttemptEnd {
        call: call.clone(),
        attempt: Attempt(1),
        called_after: Position(1),
        ran_for: Millis(3),
        key: key(),
        input: Fingerprint::from_bytes([9; 32]),
        policy: Policy::default(),
        outcome: AttemptOutcome::Succeeded(payload(output)),
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    }
}

pub(crate) fn sleeping(call: &Call, wait: OpenWait) -> Open {
    Open { call: call.clone(), called_after: Position(1), wait }
}

pub(crate) fn remote_wait(policy: Policy) -> OpenWait {
    let input = payload(r#"{"picture":"cat"}"#);
    OpenWait::Remote(Remote {
        pool: pool(),
        function: FunctionName::new("resize").unwrap(),
        fingerprint: Fingerprint::of(&input).unwrap(),
        input,
        key: key(),
        policy,
        marks: everstep_protocol::journal::Marks::default(),
        look: None,
        trace: None,
    })
}

/// A report of the first lease.
pub(crate) struct Reporting {
    session: SessionId,
    report: Report,
}

impl Reporting {
    /// The holder's next report, by the head.
    pub(crate) fn of(head: &Head, session: SessionId) -> Self {
        let report = Report {
            instance: head.uid,
            epoch: head.epoch,
            number: head.reports + 1,
            seen: head.position,
            results: Vec::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            then: Then::Continue,
            folded: false,
            cached: false,
            state: None,
            attributes: Vec::new(),
            compensated: None,
            ledger: Vec::new(),
        };
        Self { session, report }
    }

    /// What a lease that is over has still to say.
    pub(crate) fn late(uid: InstanceUid, session: SessionId, of: u64) -> Self {
        let head = Head::new(uid, namespace(), workflow("orders"), "late".parse().unwrap(), Timestamp(0));
        let mut late = Self::of(&head, session);
        late.report.epoch = epoch(of);
        late
    }

    pub(crate) fn result(mut self, end: AttemptEnd) -> Self {
        self.report.results.push(end);
        self
    }

    pub(crate) fn open(mut self, open: Open) -> Self {
        self.report.opened.push(open);
        self
    }

    /// The one after it, in the same batch.
    pub(crate) fn next(mut self) -> Self {
        self.report.number += 1;
        self
    }

    pub(crate) fn close(mut self, call: &Call, after: Position) -> Self {
        self.report.closed.push(Closed { call: call.clone(), after, hook: None });
        self
    }

    /// The holder means to keep the body.
    pub(crate) fn cached(mut self) -> Self {
        self.report.cached = true;
        self
    }

    pub(crate) fn shows(mut self, state: Payload, attributes: Vec<Attribute>) -> Self {
        self.report.state = Some(state);
        self.report.attributes = attributes;
        self
    }

    pub(crate) fn compensated(mut self, compensated: Compensated) -> Self {
        self.report.compensated = Some(compensated);
        self
    }

    pub(crate) fn then(mut self, then: Then) -> What {
        self.report.then = then;
        What::Report { session: self.session, build: build(), report: self.report }
    }
}

pub(crate) fn ends(head: &Head, session: SessionId) -> What {
    Reporting::of(head, session).then(Then::End(End::Complete(payload("42"))))
}

pub(crate) fn terminate(operation: &str) -> What {
    What::Terminate { operation: operation.to_owned(), reason: Some("enough".to_owned()) }
}

pub(crate) fn open_session(session: SessionId) -> OpenSession {
    OpenSession {
        session,
        namespace: namespace(),
        workflows: vec![workflow("orders"), workflow("refunds")],
        pinned: Vec::new(),
        pools: vec![pool()],
        functions: vec![FunctionName::new("resize").unwrap()],
        build: build(),
        inbox: "inbox-1".to_owned(),
        slots: u32::MAX,
        instances: 100,
        host: "host:1".to_owned(),
    }
}

pub(crate) const fn epoch(number: u64) -> Epoch {
    Epoch(number)
}
