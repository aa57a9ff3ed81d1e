//! A model store that takes what a batch writes the way a real store does, and checks the invariants of every instance
//! after every batch. It loads only what the inputs say they need, so a decision that reads more is found too.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be built fails the test")]

pub mod script;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use everstep_engine::{
    Answer, Effect, Head, Input, Status, What, Writes,
    batch::{Batch, Deleted, Loaded, Rules, Verdict},
    breach::Tally,
    effect::Forget,
    hook::{HookEnd, HookRow, SentPayload, TokenKey},
    letter::{Address, Caller, ChildRow, Letter, NewLetter, ParentRow, Said},
    mailbox::{AwaitedKey, EventId, EventRow, KnownEvent, SentEvent},
    place::Room,
    rows::{Control, Lease, Needs, RemoteRow, Rows, Subject, WaitKind, WaitRow},
    start::{Decided, Existing, MessageKey, NameKey, Start},
    status::{Sides, StatusWord},
};
use everstep_protocol::{
    Attempt, AttributeName, AttributeValue, BuildName, Call, CallHash, CallKind, CallName, Epoch, EventKey,
    EventType, Failure, FailureKind, Fingerprint, FunctionName, HookId, InstanceId, InstanceUid, Millis,
    Namespace, Payload, Policy, Pool, Position, Run, SessionId, StepKey, Timestamp, Token, WorkflowName,
    journal::{Child, Entry, Fact, Other, Outcome, ParkCode, Parked, Remote},
    message::{
        Again, AttemptEnd, AttemptOutcome, CoordinatorItem, Entries, Open, OpenWait, Report, Taken, Then,
    },
};
use uuid::Uuid;

pub const S1: SessionId = SessionId(Uuid::from_u128(0x51));
pub const S2: SessionId = SessionId(Uuid::from_u128(0x52));
pub const S3: SessionId = SessionId(Uuid::from_u128(0x53));
pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

pub fn uid(n: u128) -> InstanceUid {
    InstanceUid(Uuid::from_u128(n))
}

pub fn build() -> BuildName {
    BuildName::new("b1").unwrap()
}

pub fn pool() -> Pool {
    Pool::new("imaging").unwrap()
}

pub fn workflow() -> WorkflowName {
    WorkflowName::new("fulfil").unwrap()
}

pub fn call(kind: CallKind, name: &str, count: u32) -> Call {
    Call { kind, name: CallName::new(name).unwrap(), count }
}

pub fn step(name: &str) -> Call {
    call(CallKind::Step, name, 1)
}

pub fn sleep(name: &str) -> Call {
    call(CallKind::Sleep, name, 1)
}

pub fn key(n: u8) -> StepKey {
    format!("{n:02x}").repeat(32).parse().unwrap()
}

pub fn fingerprint(n: u8) -> Fingerprint {
    Fingerprint::from_bytes([n; 32])
}

pub fn json(text: &str) -> Payload {
    Payload::from_text(text).unwrap()
}

pub fn error(message: &str) -> Failure {
    Failure::new(FailureKind::Error, message)
}

pub fn ok() -> AttemptOutcome {
    AttemptOutcome::Succeeded(json("1"))
}

pub fn failed(retry_in: Option<u64>) -> AttemptOutcome {
    AttemptOutcome::Failed { failure: error("no"), retry_in: retry_in.map(Millis) }
}

pub fn end(call: &Call, attempt: u32, outcome: AttemptOutcome) -> AttemptEnd {
    AttemptEnd {
        call: call.clone(),
        attempt: Attempt(attempt),
        called_after: Position(1),
        ran_for: Millis(5),
        key: key(1),
        input: fingerprint(1),
        policy: Policy::default(),
        outcome,
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    }
}

pub fn remote(policy: Policy) -> Remote {
    Remote {
        pool: pool(),
        function: FunctionName::new("resize").unwrap(),
        input: json("{}"),
        key: key(2),
        fingerprint: fingerprint(2),
        policy,
        marks: everstep_protocol::journal::Marks::default(),
        look: None,
        trace: None,
    }
}

pub fn open(call: &Call, wait: OpenWait) -> Open {
    Open { call: call.clone(), called_after: Position(1), wait }
}

pub fn event(name: &str, count: u32) -> Call {
    call(CallKind::Event, name, count)
}

pub fn kind(name: &str) -> EventType {
    EventType::new(name).unwrap()
}

/// Opens a wait for events of these types.
pub fn awaits(call: &Call, types: &[&str], timeout: u64) -> Open {
    let types = types.iter().map(|name| kind(name)).collect();
    open(call, OpenWait::Event { types, key: None, timeout: Millis(timeout) })
}

/// The same, with a key.
pub fn awaits_key(call: &Call, types: &[&str], key: &str) -> Open {
    let types = types.iter().map(|name| kind(name)).collect();
    open(call, OpenWait::Event { types, key: Some(EventKey::new(key).unwrap()), timeout: Millis(1_000) })
}

pub fn other(id: &str) -> Other {
    Other { workflow: workflow(), id: InstanceId::new(id).unwrap() }
}

/// A child with this id, attached and awaited.
pub fn child(id: &str) -> Child {
    let Other { workflow, id } = other(id);
    let (input, fingerprint) = (json("1"), fingerprint(1));
    Child {
        workflow,
        id,
        input,
        fingerprint,
        detached: false,
        only_started: false,
        hook: None,
        keep_for: None,
        trace: None,
    }
}

pub fn child_call(name: &str) -> Call {
    call(CallKind::Child, name, 1)
}

pub fn sent(id: &str, name: &str, payload: u8) -> SentEvent {
    SentEvent {
        id: EventId { app_id: String::new(), id: id.to_owned() },
        kind: kind(name),
        key: None,
        payload: json(&payload.to_string()),
        fingerprint: fingerprint(payload),
    }
}

pub fn sent_key(id: &str, name: &str, key: &str) -> SentEvent {
    SentEvent { key: Some(EventKey::new(key).unwrap()), ..sent(id, name, 0) }
}

pub fn dropped(call: &Call, after: u64) -> everstep_protocol::journal::Closed {
    everstep_protocol::journal::Closed { call: call.clone(), after: Position(after), hook: None }
}

pub fn registration(token: &str) -> everstep_protocol::hook::Registration {
    everstep_protocol::hook::Registration::new(token.parse().unwrap())
}

/// The code answers the request `id` of the webhook with this token.
pub fn reply(token: &str, id: &str, status: u16) -> everstep_protocol::journal::Reply {
    let response =
        everstep_protocol::hook::WebhookResponse { status, headers: Vec::new(), body: None, base64: false };
    everstep_protocol::journal::Reply { token: token.parse().unwrap(), id: id.to_owned(), response }
}

pub fn awaiting_hook(token: &str) -> everstep_protocol::journal::Awaiting {
    let hook = everstep_protocol::HookId { run: everstep_protocol::Run(1), position: Position(2) };
    everstep_protocol::journal::Awaiting { hook, token: token.parse().unwrap() }
}

pub fn again(input: u8) -> Again {
    Again {
        input: json(&input.to_string()),
        seed: [input; 32],
        cancelled: None,
        attributes: Vec::new(),
        hook: None,
        trace: None,
    }
}

pub fn parked() -> Parked {
    Parked::new(ParkCode::JournalMismatch, "entry 2".to_owned())
}

pub fn named(id: &str) -> NameKey {
    NameKey { namespace: Namespace::default(), workflow: workflow(), id: InstanceId::new(id).unwrap() }
}

pub fn message(id: &str) -> MessageKey {
    MessageKey {
        namespace: Namespace::default(),
        workflow: workflow(),
        app_id: "shop".to_owned(),
        message_id: id.to_owned(),
    }
}

pub fn start(n: u128, id: &str, input: u8) -> Start {
    Start {
        uid: uid(n),
        name: named(id),
        input: json(&input.to_string()),
        fingerprint: fingerprint(input),
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

pub fn on(instance: InstanceUid, what: What) -> Input {
    Input::On { instance, what }
}

pub fn report(instance: InstanceUid, epoch: u64, number: u64, seen: u64) -> Report {
    Report {
        instance,
        epoch: Epoch(epoch),
        number,
        seen: Position(seen),
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
    }
}

pub fn reported(session: SessionId, report: Report) -> What {
    What::Report { session, build: build(), report }
}

pub fn step_reported(session: SessionId, call: &Call, epoch: u64, outcome: AttemptOutcome) -> What {
    let (build, call, epoch) = (build(), call.hash(), Epoch(epoch));
    What::StepReport {
        session,
        build,
        call,
        epoch,
        ran_for: Millis(5),
        outcome,
        progress: None,
        found: false,
        reference: None,
    }
}

pub fn step_ended(session: SessionId, call: &Call, counts: bool) -> What {
    let (build, call) = (build(), call.hash());
    What::StepLeaseEnded { session, build, call, epoch: None, counts, unstarted: false, progress: None }
}

pub fn lease_ended(session: SessionId, counts: bool) -> What {
    What::LeaseEnded { session, epoch: None, slots: 4, counts, progress: Vec::new() }
}

/// What one batch came to.
#[derive(Debug)]
pub struct Out {
    pub verdicts: Vec<Verdict>,
    pub effects: Vec<Effect>,
    pub writes: Writes,
    pub credits: Vec<SessionId>,
}

impl Out {
    /// The answers, in order; a start's is among them.
    pub fn answers(&self) -> Vec<Answer> {
        let answer = |verdict: &Verdict| match verdict {
            Verdict::Decided(answer) => answer.clone(),
            Verdict::Started(decided) => decided.answer.clone(),
            Verdict::Held => panic!("held"),
            Verdict::Broken => panic!("broken"),
        };
        self.verdicts.iter().map(answer).collect()
    }

    pub fn answer(&self) -> Answer {
        let answers = self.answers();
        assert_eq!(answers.len(), 1);
        answers[0].clone()
    }

    /// The entries written, as words.
    pub fn entries(&self) -> Vec<&'static str> {
        self.writes.journal.iter().map(|row| row.entry.fact.word()).collect()
    }

    /// What is sent, as words.
    pub fn sent(&self) -> Vec<&'static str> {
        self.effects.iter().map(effect_word).collect()
    }

    pub fn taken(&self) -> Vec<Taken> {
        let taken = |effect: &Effect| match effect {
            Effect::Item(_, CoordinatorItem::Ack(ack)) => Some(ack.taken),
            _ => None,
        };
        self.effects.iter().filter_map(taken).collect()
    }
}

pub fn effect_word(effect: &Effect) -> &'static str {
    match effect {
        Effect::Item(_, item) => match item {
            CoordinatorItem::Ack(_) => "ack",
            CoordinatorItem::NotGranted { .. } => "not granted",
            CoordinatorItem::Fence { .. } => "fence",
            CoordinatorItem::StepFence { .. } => "step fence",
            CoordinatorItem::StepAck { .. } => "step ack",
            CoordinatorItem::Entries(Entries { pause: Some(true), .. }) => "pause",
            CoordinatorItem::Entries(Entries { pause: Some(false), .. }) => "go on",
            _ => "another item",
        },
        Effect::Grant { .. } => "grant",
        Effect::StepGrant(..) => "step grant",
        Effect::Push { .. } => "push",
        Effect::Offer { kept_by: Some(_), .. } => "offer to",
        Effect::Offer { .. } => "offer",
        Effect::OfferStep { .. } => "offer step",
        Effect::Reply(..) => "reply",
    }
}

/// The rows of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    pub heads: BTreeMap<InstanceUid, Head>,
    pub journal: BTreeMap<InstanceUid, Vec<Entry>>,
    pub leases: BTreeMap<(InstanceUid, Subject), Lease>,
    pub ready: BTreeMap<(InstanceUid, Subject), Option<Pool>>,
    pub waits: BTreeMap<(InstanceUid, CallHash), WaitRow>,
    pub remotes: BTreeMap<(InstanceUid, CallHash), RemoteRow>,
    pub parked: BTreeMap<InstanceUid, Parked>,
    pub operations: BTreeMap<(InstanceUid, String), Answer>,
    pub awaited: BTreeMap<AwaitedKey, CallHash>,
    pub events: BTreeMap<(InstanceUid, u64), EventRow>,
    /// What the code has answered requests of webhooks.
    pub replies: BTreeMap<everstep_engine::hook::ReplyKey, everstep_protocol::hook::WebhookResponse>,
    pub names: BTreeMap<NameKey, (InstanceUid, Fingerprint)>,
    pub messages: BTreeMap<MessageKey, Decided>,
    pub outbox: BTreeMap<(InstanceUid, Run), everstep_engine::lifecycle::Lifecycle>,
    pub controls: BTreeMap<InstanceUid, Control>,
    pub expiries: BTreeMap<InstanceUid, Timestamp>,
    /// The journals of earlier runs.
    pub earlier: BTreeMap<(InstanceUid, Run), Vec<Entry>>,
    /// Journals of deleted instances.
    pub cut: BTreeSet<InstanceUid>,
    /// Letters that nobody has taken, by number.
    pub mailbox: BTreeMap<u64, NewLetter>,
    /// The number of the last letter.
    pub letters: u64,
    /// Children, with whether each is over.
    pub children: BTreeMap<(InstanceUid, (Run, CallHash)), (ChildRow, bool)>,
    pub parents: BTreeMap<InstanceUid, ParentRow>,
    pub watchers: BTreeSet<(InstanceUid, Caller)>,
    pub attributes: BTreeMap<(InstanceUid, AttributeName), Option<AttributeValue>>,
    pub hooks: BTreeMap<TokenKey, HookRow>,
}

/// The model store, with the room that a coordinator would know of.
#[derive(Clone, Debug)]
pub struct Store {
    pub now: Timestamp,
    pub tables: Tables,
    pub room: Room,
    pub rules: Rules,
    pub elsewhere: HashSet<InstanceUid>,
}

impl Default for Store {
    fn default() -> Self {
        let mut room = Room::default();
        room.serve_queues_only(S1, &Namespace::default(), &[workflow()]);
        room.serve_pools(S1, &Namespace::default(), &[pool()]);
        room.set_backlog(u32::MAX, HashSet::new(), HashSet::new());
        Self { now: NOW, tables: Tables::default(), room, rules: Rules::default(), elsewhere: HashSet::new() }
    }
}

impl Store {
    /// One instance, ready, of uid 1.
    pub fn started() -> Self {
        let mut store = Self::default();
        assert_eq!(store.start(start(1, "i", 1)).answer(), Answer::Created);
        store
    }

    /// The same, held by a session at epoch 1.
    pub fn held() -> Self {
        let mut store = Self::started();
        assert_eq!(store.tell(What::Claim { session: S1, have: None }).answer(), Answer::Granted);
        store
    }

    pub fn start(&mut self, start: Start) -> Out {
        self.batch(&[Input::Start(Box::new(start))])
    }

    /// Something happens to instance 1.
    pub fn tell(&mut self, what: What) -> Out {
        self.batch(&[on(uid(1), what)])
    }

    /// The holder of instance 1 reports, up to date; `change` says what.
    pub fn report(&mut self, change: impl FnOnce(&mut Report)) -> Out {
        let (session, report) = self.next_report(change);
        self.tell(reported(session, report))
    }

    pub fn next_report(&self, change: impl FnOnce(&mut Report)) -> (SessionId, Report) {
        let (head, lease) = (self.head(), self.lease().expect("held"));
        let mut report = report(uid(1), lease.epoch.0, head.reports + 1, head.position.0);
        change(&mut report);
        (lease.session, report)
    }

    pub fn head(&self) -> &Head {
        &self.tables.heads[&uid(1)]
    }

    pub fn lease(&self) -> Option<Lease> {
        self.tables.leases.get(&(uid(1), Subject::INSTANCE)).copied()
    }

    pub fn is_ready(&self) -> bool {
        self.tables.ready.contains_key(&(uid(1), Subject::INSTANCE))
    }

    pub fn words(&self) -> Vec<&'static str> {
        self.tables.journal[&uid(1)].iter().map(|entry| entry.fact.word()).collect()
    }

    /// What instance 1 is doing, as the table in the docs of `decide` names it.
    pub fn state(&self) -> &'static str {
        if !self.tables.heads.contains_key(&uid(1)) {
            return "gone";
        }
        let waits = self.tables.waits.keys().any(|(other, _)| *other == uid(1));
        match (self.head().status, self.lease()) {
            (Status::Complete | Status::Errored | Status::Terminated | Status::Cancelled, _) => "ended",
            (Status::Open, Some(_)) => "held",
            (Status::Open, None) if self.tables.parked.contains_key(&uid(1)) => "parked",
            (Status::Open, None) if self.is_ready() => "ready",
            (Status::Open, None) if self.is_paused() => "paused",
            (Status::Open, None) if waits => "waiting",
            (Status::Open, None) => "lost",
        }
    }

    pub fn is_paused(&self) -> bool {
        self.tables.controls.get(&uid(1)).is_some_and(|control| control.paused_at.is_some())
    }

    /// The status that people see.
    pub fn status(&self) -> StatusWord {
        let sides = Sides {
            leased: self.lease().is_some(),
            ready: self.is_ready(),
            parked: self.tables.parked.contains_key(&uid(1)),
            asks: of(&self.tables.waits, uid(1)).any(|(_, wait)| wait.kind == WaitKind::Person),
            paused: self.is_paused(),
            steps_leased: of(&self.tables.leases, uid(1)).any(|(subject, _)| subject.call().is_some()),
        };
        StatusWord::derive(self.head().status, sides)
    }

    /// The letters that nobody has taken, as inputs: what a coordinator makes of them. Started instances get these ids, in order.
    pub fn mail(&self, fresh: &mut impl Iterator<Item = u128>) -> Vec<Input> {
        self.tables.mailbox.iter().map(|(number, letter)| self.delivery(*number, letter, fresh)).collect()
    }

    pub fn delivery(&self, number: u64, letter: &NewLetter, fresh: &mut impl Iterator<Item = u128>) -> Input {
        let NewLetter { to, caller, said } = letter.clone();
        let letter = Letter { number, caller, said };
        let name = match to {
            Address::Instance(uid) => return on(uid, What::Letter(letter)),
            Address::Token => return self.resumption(letter),
            Address::Name(name) => name,
        };
        if let Said::Start { child, .. } = &letter.said {
            let n = fresh.next().expect("an id for each child");
            let (input, fingerprint, hook) = (child.input.clone(), child.fingerprint, child.hook.clone());
            let letter = Some(letter);
            let start = Start { uid: uid(n), name, input, fingerprint, hook, letter, ..start(n, "x", 0) };
            return Input::Start(Box::new(start));
        }
        if let Some((uid, _)) = self.tables.names.get(&name) {
            on(*uid, What::Letter(letter))
        } else {
            let failure = everstep_engine::letter::not_found(&name.workflow, &name.id);
            Input::Undelivered(Box::new(letter), failure)
        }
    }

    /// The payload goes to whoever has the token.
    fn resumption(&self, letter: Letter) -> Input {
        let Said::Resume { namespace, sent } = letter.said else { panic!("only a payload is for a token") };
        let row = self.tables.hooks.get(&(namespace.clone(), sent.token.clone()));
        let found = row.filter(|row| !row.ended && self.tables.heads.contains_key(&row.owner));
        let hook = found.map_or(sent.hook, |row| row.id);
        let letter =
            Letter { said: Said::Resume { namespace, sent: SentPayload { hook, ..sent } }, ..letter };
        match found {
            Some(row) => on(row.owner, What::Letter(letter)),
            None => Input::Undelivered(Box::new(letter), everstep_engine::letter::nobody()),
        }
    }

    /// Carries letters until none is left. Each goes alone, so that the next is looked up anew.
    pub fn carry(&mut self, mut fresh: impl Iterator<Item = u128>) {
        while let Some((number, letter)) = self.tables.mailbox.first_key_value() {
            let input = self.delivery(*number, letter, &mut fresh);
            self.batch(&[input]);
        }
    }

    pub fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(Millis(millis));
    }

    /// Decides inputs in one batch, writes what they came to and checks every instance.
    pub fn batch(&mut self, inputs: &[Input]) -> Out {
        let out = self.decide(inputs);
        self.check();
        out
    }

    /// The same, of which nothing is checked.
    pub fn decide(&mut self, inputs: &[Input]) -> Out {
        let mut needs = Needs::default();
        for input in inputs {
            input.needs(&mut needs);
        }
        let mut batch = Batch::new(self.load(&needs), self.rules.clone());
        let verdicts = inputs.iter().map(|input| batch.apply(input, &mut self.room)).collect();
        let (writes, mut effects, credits) = batch.finish(&mut self.room);
        effects.extend(self.write(&writes));
        Out { verdicts, effects, writes, credits }
    }

    fn load(&self, needs: &Needs) -> Loaded {
        let tables = &self.tables;
        let mut rows = Rows::default();
        for uid in &needs.heads {
            let key = (*uid, Subject::INSTANCE);
            rows.leases.extend(tables.leases.get(&key).map(|lease| (key, *lease)));
            rows.controls.extend(tables.controls.get(uid).map(|control| (*uid, *control)));
        }
        for uid in &needs.firsts {
            rows.firsts.extend(tables.journal.get(uid).map(|journal| (*uid, journal[0].clone())));
            let keys = tables.journal.get(uid).into_iter().flatten();
            let keys =
                keys.filter(|entry| matches!(entry.fact, everstep_protocol::journal::Fact::Rekeyed(_)));
            rows.keys.insert(*uid, keys.cloned().collect());
            rows.attributed.extend(tables.attributes.keys().find(|(of, _)| of == uid).map(|_| *uid));
        }
        for uid in &needs.expiries {
            rows.expiries.extend(tables.expiries.get(uid).map(|at| (*uid, *at)));
        }
        for uid in &needs.tallies {
            let waits = of(&tables.waits, *uid).count() as u32;
            let has_hook = tables.hooks.values().any(|row| row.owner == *uid && !row.ended);
            let tally = |head: &Head| Tally { waits, noted: head.waits, has_hook };
            rows.tallies.extend(tables.heads.get(uid).map(|head| (*uid, tally(head))));
        }
        for uid in &needs.runnable {
            let key = (*uid, Subject::INSTANCE);
            rows.ready.extend(tables.ready.get(&key).map(|_| (key, Timestamp(0))));
            rows.parked.extend(tables.parked.get(uid).map(|parked| (*uid, parked.clone())));
        }
        for key in needs.waits.iter().chain(&needs.remotes) {
            rows.waits.extend(tables.waits.get(key).map(|wait| (*key, wait.clone())));
        }
        for key in &needs.remotes {
            let subject = (key.0, Subject::step(key.1));
            rows.remotes.extend(tables.remotes.get(key).map(|row| (*key, row.clone())));
            rows.leases.extend(tables.leases.get(&subject).map(|lease| (subject, *lease)));
            rows.ready.extend(tables.ready.get(&subject).map(|_| (subject, Timestamp(0))));
        }
        for key in &needs.operations {
            rows.operations.extend(tables.operations.get(key).map(|answer| (key.clone(), answer.clone())));
        }
        self.load_events(needs, &mut rows);
        self.load_letters(needs, &mut rows);
        self.load_hooks(needs, &mut rows);
        let existing = |key: &NameKey| {
            let (uid, fingerprint) = *tables.names.get(key)?;
            Some((key.clone(), Existing { uid, fingerprint, status: tables.heads[&uid].status }))
        };
        let known = |key: &MessageKey| Some((key.clone(), tables.messages.get(key)?.clone()));
        let free = |uid: &&InstanceUid| !self.elsewhere.contains(uid);
        Loaded {
            now: self.now,
            heads: needs
                .heads
                .iter()
                .filter(free)
                .filter_map(|uid| Some((*uid, tables.heads.get(uid)?.clone())))
                .collect(),
            elsewhere: self.elsewhere.clone(),
            rows,
            names: needs.names.iter().filter_map(existing).collect(),
            messages: needs.messages.iter().filter_map(known).collect(),
        }
    }

    /// Only as many events and waits as the batch's inputs can use up.
    fn load_events(&self, needs: &Needs, rows: &mut Rows) {
        let tables = &self.tables;
        for (uid, id) in &needs.event_ids {
            let its = |row: &&EventRow| row.event.id == *id;
            if let Some(row) = of(&tables.events, *uid).map(|(_, row)| row).find(its) {
                let SentEvent { kind, key, fingerprint, .. } = row.event.clone();
                rows.event_ids.insert((*uid, id.clone()), KnownEvent { kind, key, fingerprint });
            }
        }
        for query in needs.unread_queries() {
            let fits = |row: &EventRow| {
                row.delivery.is_none()
                    && row.event.kind == query.kind
                    && query.key.as_ref().is_none_or(|key| row.event.key.as_ref() == Some(key))
            };
            let found = of(&tables.events, query.uid).filter(|(_, row)| fits(row)).take(query.limit as usize);
            rows.events.extend(found.map(|(sequence, row)| ((query.uid, *sequence), row.clone())));
        }
        for query in needs.waiter_queries() {
            self.load_waiters(query.uid, &query.kind, query.key.as_ref(), query.limit, rows);
        }
        for query in needs.return_queries() {
            let its = |row: &EventRow| row.delivery.is_some_and(|delivery| delivery.call == query.call);
            for (sequence, row) in of(&tables.events, query.uid).filter(|(_, row)| its(row)) {
                rows.events.insert((query.uid, *sequence), row.clone());
                self.load_waiters(query.uid, &row.event.kind, row.event.key.as_ref(), query.limit, rows);
            }
        }
    }

    fn load_letters(&self, needs: &Needs, rows: &mut Rows) {
        let tables = &self.tables;
        rows.letters =
            needs.letters.iter().filter(|number| tables.mailbox.contains_key(number)).copied().collect();
        for uid in &needs.parents {
            rows.parents.extend(tables.parents.get(uid).map(|parent| (*uid, parent.clone())));
        }
        for uid in &needs.lasts {
            let last = tables.journal.get(uid).and_then(|journal| journal.last());
            rows.lasts.extend(last.map(|entry| (*uid, entry.clone())));
        }
    }

    fn load_hooks(&self, needs: &Needs, rows: &mut Rows) {
        let tables = &self.tables;
        let of = |(uid, token): &(InstanceUid, Token)| {
            Some((tables.heads.get(uid)?.namespace.clone(), token.clone()))
        };
        for key in needs.tokens.iter().cloned().chain(needs.tokens_of.iter().filter_map(of)) {
            match tables.hooks.get(&key) {
                Some(row) if tables.heads.contains_key(&row.owner) => {
                    rows.hooks.insert(key, row.clone());
                }
                Some(row) => drop(rows.orphans.insert(key, row.owner)),
                None => {}
            }
        }
        for uid in &needs.start_hooks {
            let its = |(_, row): &(&TokenKey, &HookRow)| row.owner == *uid && row.id == HookId::START;
            rows.hooks.extend(tables.hooks.iter().find(its).map(|(key, row)| (key.clone(), row.clone())));
        }
    }

    fn load_waiters(
        &self,
        uid: InstanceUid,
        kind: &EventType,
        key: Option<&EventKey>,
        limit: u32,
        rows: &mut Rows,
    ) {
        let mut keys = vec![None];
        keys.extend(key.map(|key| Some(key.clone())));
        for wanted in keys {
            let fits = |row: &AwaitedKey| row.uid == uid && row.kind == *kind && row.key == wanted;
            let found = self.tables.awaited.iter().filter(|(row, _)| fits(row)).take(limit as usize);
            for (_, call) in found {
                rows.waits.insert((uid, *call), self.tables.waits[&(uid, *call)].clone());
            }
        }
    }

    /// Gives what a coordinator sends for the leases that the store cleared.
    fn write(&mut self, writes: &Writes) -> Vec<Effect> {
        let tables = &mut self.tables;
        for row in &writes.deleted {
            forget(tables, row);
        }
        for head in &writes.created {
            // A pin and what a head says of its hooks are written by statements of their own.
            let unpinned = Head { pin: None, hooks: 0, hooks_until: None, ..head.clone() };
            assert!(tables.heads.insert(head.uid, unpinned).is_none(), "created twice");
        }
        for row in &writes.names {
            let value = (row.uid, row.fingerprint);
            assert!(tables.names.insert(row.key.clone(), value).is_none(), "a name twice");
        }
        for (key, decided) in &writes.messages {
            assert!(tables.messages.insert(key.clone(), decided.clone()).is_none(), "a message twice");
        }
        for head in &writes.heads {
            let stored = tables.heads.get(&head.uid).expect("only heads that exist are written");
            let (hooks, hooks_until) = (stored.hooks, stored.hooks_until);
            let as_pinned_before = Head { pin: stored.pin.clone(), hooks, hooks_until, ..head.clone() };
            let before = tables.heads.insert(head.uid, as_pinned_before.clone()).expect("it was there");
            let again = head.run > before.run;
            let only_pin = as_pinned_before == before;
            assert!(
                again || only_pin || !before.status.is_ended(),
                "an ended head changed: {before:?} {head:?}"
            );
            assert!(
                head.epoch >= before.epoch && (again || head.position >= before.position),
                "{before:?} {head:?}"
            );
            if again {
                let journal = tables.journal.remove(&head.uid).unwrap();
                // What the batch adds to it comes below.
                tables.earlier.insert((head.uid, before.run), journal);
            }
        }
        for (uid, pin) in &writes.pins {
            tables.heads.get_mut(uid).expect("only what exists is pinned").pin.clone_from(pin);
        }
        write_journal(tables, writes);
        write_attributes(tables, writes);
        delete(&mut tables.leases, &writes.lease_deletes);
        delete(&mut tables.ready, &writes.ready_deletes);
        delete(&mut tables.waits, &writes.wait_deletes);
        delete(&mut tables.remotes, &writes.remote_deletes);
        delete(&mut tables.parked, &writes.parked_deletes);
        let is_cleared = |((uid, subject), lease): (&(InstanceUid, Subject), &Lease)| {
            let call = subject.call().filter(|_| writes.cleared.contains(uid))?;
            Some(Effect::step_over(*uid, call, *lease))
        };
        let over = tables.leases.iter().filter_map(is_cleared).collect();
        delete(&mut tables.awaited, &writes.awaited_deletes);
        for cleared in &writes.cleared {
            tables.leases.retain(|(uid, subject), _| uid != cleared || *subject == Subject::INSTANCE);
            tables.ready.retain(|(uid, subject), _| uid != cleared || *subject == Subject::INSTANCE);
            tables.waits.retain(|(uid, _), _| uid != cleared);
            tables.awaited.retain(|key, _| key.uid != *cleared);
            tables.remotes.retain(|(uid, _), _| uid != cleared);
        }
        insert(&mut tables.leases, writes.leases.iter().map(|row| ((row.0, row.1), row.2)));
        insert(&mut tables.ready, writes.ready.iter().map(|row| ((row.uid, row.subject), row.pool.clone())));
        insert(&mut tables.waits, writes.waits.iter().map(|row| ((row.0, row.1.call.hash()), row.1.clone())));
        insert(&mut tables.awaited, writes.awaited.iter().cloned());
        insert(
            &mut tables.events,
            writes.events.iter().map(|(uid, row)| ((*uid, row.sequence), row.clone())),
        );
        for row in &writes.deliveries {
            let event = tables.events.get_mut(&(row.uid, row.sequence)).expect("it was accepted before");
            assert_eq!(event.event.kind, row.kind);
            event.delivery = row.delivery;
        }
        for (to, response) in &writes.replies {
            tables.replies.entry(to.clone()).or_insert_with(|| response.clone());
        }
        insert(
            &mut tables.remotes,
            writes.remotes.iter().map(|row| ((row.0, row.1.call.hash()), row.1.clone())),
        );
        insert(&mut tables.parked, writes.parked.iter().map(|row| (row.0, row.2.clone())));
        insert(
            &mut tables.operations,
            writes.operations.iter().map(|row| ((row.0, row.1.clone()), row.2.clone())),
        );
        for uid in &writes.waits_due {
            for (_, wait) in tables.waits.iter_mut().filter(|((other, _), _)| other == uid) {
                wait.due_at = wait.due_at.map(|at| at.max(self.now));
            }
        }
        delete(&mut tables.controls, &writes.control_deletes);
        insert(&mut tables.controls, writes.controls.iter().copied());
        delete(&mut tables.expiries, &writes.ended_deletes);
        insert(&mut tables.expiries, writes.ended.iter().map(|row| (row.uid, row.delete_at)));
        insert(
            &mut tables.outbox,
            writes.outbox.iter().map(|row| ((row.instance, row.head.run), row.clone())),
        );
        write_letters(tables, writes);
        write_hooks(tables, writes, self.now);
        over
    }

    /// The invariants of every instance.
    pub fn check(&self) {
        for head in self.tables.heads.values() {
            self.check_journal(head);
            self.check_rows(head);
            self.check_events(head);
            self.check_ties(head);
            self.check_hooks(head);
        }
    }

    /// What owns a token is counted and kept as long as it, and no await of a hook is left that nothing can end.
    fn check_hooks(&self, head: &Head) {
        let (tables, uid) = (&self.tables, head.uid);
        let own: Vec<_> = tables.hooks.iter().filter(|(_, row)| row.owner == uid).collect();
        // What was moved to somebody who is not there any more goes back when that one hears of it.
        let is_moved = |row: &HookRow| {
            tables
                .mailbox
                .values()
                .any(|letter| matches!(&letter.said, Said::Claimed { claim, .. } if claim.hook == row.id))
        };
        let settled = own.iter().filter(|(_, row)| !is_moved(row)).count();
        assert!(head.hooks as usize >= settled, "{} hooks of {own:?}", head.hooks);
        for (key, row) in own.iter().filter(|(_, row)| !is_moved(row)) {
            assert_eq!((&key.0, &row.name.id), (&head.namespace, &head.id));
            assert_eq!(row.ended, head.status.is_ended(), "{row:?}");
            assert!(row.retain_until <= head.hooks_until, "{row:?} {head:?}");
            if let Some(at) = tables.expiries.get(&uid) {
                assert!(row.retain_until.is_some_and(|until| until <= *at), "{row:?} outlives {at}");
            }
        }
        for (_, wait) in of(&tables.waits, uid).filter(|(_, wait)| wait.kind == WaitKind::Hook) {
            let kinds = &wait.awaited.as_ref().expect("a wait for a hook says for which").types;
            let hook = kinds[0].hook().expect("of a hook");
            assert!(own.iter().any(|(_, row)| row.id == hook), "nothing will ever end {wait:?}: {own:?}");
        }
    }

    fn check_journal(&self, head: &Head) {
        let entries = &self.tables.journal[&head.uid];
        let positions: Vec<_> = entries.iter().map(|entry| entry.position.0).collect();
        let dense: Vec<_> = (1..=head.position.0).collect();
        assert_eq!(positions, dense, "positions are dense (W1): {entries:#?}");
        let bytes: u64 = entries.iter().map(|entry| entry.fact.payload_bytes()).sum();
        assert_eq!(head.journal_bytes, bytes, "the journal's size is that of its entries (P4)");
        let mut done = BTreeSet::new();
        for entry in entries {
            if let Fact::Attempted(attempted) = &entry.fact {
                let is_done = match &attempted.outcome {
                    Outcome::Succeeded(_) => true,
                    Outcome::Failed { retry_at, .. } => retry_at.is_none(),
                    Outcome::Unknown { asks, .. } => !asks,
                };
                assert!(!done.contains(&attempted.call), "an attempt after the outcome: {entries:#?}");
                if is_done {
                    done.insert(attempted.call.clone());
                }
            }
            if let Fact::Resolved(resolved) = &entry.fact
                && resolved.choice != everstep_protocol::journal::Choice::Again
            {
                assert!(done.insert(resolved.call.clone()), "an answer after the outcome: {entries:#?}");
            }
        }
        // Compensations are no steps.
        done.retain(|call| call.kind == CallKind::Step);
        assert_eq!(head.steps, done.len() as u64, "steps with an outcome are counted (P4)");
    }

    fn check_rows(&self, head: &Head) {
        let tables = &self.tables;
        let uid = head.uid;
        let key = (uid, Subject::INSTANCE);
        let (lease, ready) = (tables.leases.get(&key), tables.ready.contains_key(&key));
        let parked = tables.parked.contains_key(&uid);
        let waits: Vec<_> = of(&tables.waits, uid).collect();
        let steps = of(&tables.leases, uid).filter(|(subject, _)| subject.call().is_some()).count()
            + of(&tables.ready, uid).filter(|(subject, _)| subject.call().is_some()).count();
        assert_eq!(head.waits as usize, waits.len(), "the waits counter counts the wait rows: {waits:?}");
        assert_eq!(head.ended_at.is_some(), head.status.is_ended());
        assert_eq!(tables.outbox.contains_key(&(uid, head.run)), head.status.is_ended());
        assert_eq!(
            tables.expiries.contains_key(&uid),
            head.status.is_ended(),
            "what has ended is deleted in time"
        );
        let control = tables.controls.get(&uid).copied();
        assert_ne!(control, Some(Control::default()), "a row says something");
        let paused = control.is_some_and(|control| control.paused_at.is_some());
        assert!(!(paused && (ready || parked)), "what is paused is neither ready nor parked");
        assert!(
            u8::from(lease.is_some()) + u8::from(ready) + u8::from(parked) <= 1,
            "held {lease:?}, ready {ready}, parked {parked}: at most one"
        );
        if head.status.is_ended() {
            let remotes = of(&tables.remotes, uid).count();
            let side_rows = (lease, ready, parked, waits.len(), steps, remotes);
            assert_eq!(side_rows, (None, false, false, 0, 0, 0), "an ended instance has no side rows");
            assert_eq!(control, None);
            return;
        }
        assert!(lease.is_none_or(|lease| lease.epoch == head.epoch), "the lease bears the head's epoch");
        assert!(
            lease.is_some() || ready || parked || paused || !waits.is_empty(),
            "nothing will ever move it (promise 5): {head:?} {:#?}",
            tables.journal[&uid]
        );
        for (hash, wait) in waits {
            self.check_wait(uid, *hash, wait);
        }
        for (call, _) in of(&tables.remotes, uid) {
            let wait = &tables.waits[&(uid, *call)];
            assert!(matches!(wait.kind, WaitKind::Remote | WaitKind::Person), "a remote step has a wait");
        }
    }

    /// Every accepted event is unread or delivered to one call, and no open wait is left without an event that fits it.
    fn check_events(&self, head: &Head) {
        let tables = &self.tables;
        let uid = head.uid;
        let events: Vec<_> = of(&tables.events, uid).map(|(_, row)| row).collect();
        let numbers: Vec<_> = events.iter().map(|row| row.sequence).collect();
        assert_eq!(numbers, (1..=head.events).collect::<Vec<_>>(), "numbers of events are dense");
        let unread: Vec<_> = events.iter().filter(|row| row.delivery.is_none()).collect();
        assert_eq!(head.unread, unread.len() as u64, "unread events are counted");
        let mut last = BTreeMap::new();
        let mut closed = BTreeMap::new();
        for entry in &tables.journal[&uid] {
            match &entry.fact {
                Fact::Delivered(delivered) => {
                    last.insert(delivered.sequence, (entry.position, delivered.call.hash()));
                }
                Fact::Received(received) => {
                    last.insert(received.sequence, (entry.position, received.call.hash()));
                }
                Fact::Closed(gone) => {
                    closed.insert(gone.call.hash(), gone.after);
                }
                _ => {}
            }
        }
        // What an earlier run consumed stays consumed: its journal says where, and this one may have a copy.
        let earlier = |row: &&EventRow| row.delivery.is_some_and(|delivery| delivery.run < head.run);
        for row in events.iter().copied().filter(|row| !earlier(row)) {
            let returned = |(position, call): &(Position, CallHash)| {
                closed.get(call).is_some_and(|after| after < position)
            };
            let entry = last.get(&row.sequence).filter(|last| !returned(last));
            let delivery = row.delivery.map(|delivery| (delivery.position, delivery.call));
            assert_eq!(delivery, entry.copied(), "the journal says where event {} went", row.sequence);
        }
        let waits: Vec<_> = of(&tables.waits, uid).map(|(_, wait)| wait).collect();
        let mut awaited = BTreeSet::new();
        for wait in waits.iter().filter(|wait| matches!(wait.kind, WaitKind::Event | WaitKind::Hook)) {
            let what = wait.awaited.as_ref().expect("a wait for an event says for which");
            for row in &unread {
                let fits = what.fits(&row.event.kind, row.event.key.as_ref());
                assert!(!fits || head.status.is_ended(), "{wait:?} has an event: {row:?}");
            }
            awaited.extend(what.types.iter().map(|kind| (kind.clone(), what.key.clone(), what.opened)));
        }
        let rows: BTreeSet<_> = tables
            .awaited
            .keys()
            .filter(|key| key.uid == uid)
            .map(|key| (key.kind.clone(), key.key.clone(), key.opened))
            .collect();
        assert_eq!(rows, awaited, "events find the waits that are open");
    }

    /// Rows that tie it to others are counted, and whatever it waits for another instance to say is under way or will be said.
    fn check_ties(&self, head: &Head) {
        let (tables, uid) = (&self.tables, head.uid);
        let ties = of(&tables.children, uid).count()
            + usize::from(tables.parents.contains_key(&uid))
            + tables.watchers.iter().filter(|(other, _)| *other == uid).count();
        assert!(head.links as usize >= ties, "{} links of {ties}", head.links);
        assert!(
            !head.status.is_ended() || !tables.watchers.iter().any(|(other, _)| *other == uid),
            "who waits for an end was told of it"
        );
        for (call, wait) in of(&tables.waits, uid).filter(|(_, wait)| wait.kind == WaitKind::Instance) {
            let caller = Caller { uid, run: head.run, call: *call };
            let written = tables.mailbox.values().any(|letter| letter.caller == caller);
            let watches = tables.watchers.iter().any(|(_, other)| *other == caller);
            assert!(written || watches, "nothing will ever end {wait:?}");
        }
    }

    /// A wait that nothing ends would be a silent stop.
    fn check_wait(&self, uid: InstanceUid, hash: CallHash, wait: &WaitRow) {
        let subject = (uid, Subject::step(hash));
        let lease = self.tables.leases.get(&subject);
        let ready = self.tables.ready.contains_key(&subject);
        match wait.kind {
            // See `check_ties` and `check_hooks`.
            WaitKind::Instance | WaitKind::Hook => assert!(lease.is_none() && !ready),
            WaitKind::Person => {
                assert!(lease.is_none() && !ready && wait.due_at.is_none() && wait.question.is_some());
            }
            WaitKind::Sleep | WaitKind::Retry | WaitKind::Event => {
                assert!(wait.due_at.is_some(), "{wait:?}");
                assert!(lease.is_none() && !ready);
            }
            WaitKind::Remote => {
                let row = self.tables.remotes.get(&(uid, hash)).expect("a remote wait has its row");
                assert!(lease.is_none_or(|lease| lease.epoch == row.epoch));
                let ways = u8::from(lease.is_some()) + u8::from(ready) + u8::from(wait.due_at.is_some());
                assert_eq!(ways, 1, "a remote step is held, ready or delayed: {lease:?} {ready} {wait:?}");
            }
        }
    }
}

/// A deleted instance leaves nothing but its cut journal, and its message until it is sent.
fn forget(tables: &mut Tables, row: &Deleted) {
    let uid = row.uid;
    tables.heads.remove(&uid);
    tables.names.remove(&row.name);
    tables.journal.remove(&uid);
    tables.earlier.retain(|(other, _), _| *other != uid);
    // Those of remote steps are cleared, and named.
    tables.leases.retain(|(other, subject), _| *other != uid || *subject != Subject::INSTANCE);
    tables.ready.retain(|(other, _), _| *other != uid);
    tables.waits.retain(|(other, _), _| *other != uid);
    tables.awaited.retain(|key, _| key.uid != uid);
    tables.events.retain(|(other, _), _| *other != uid);
    tables.replies.retain(|to, _| to.instance != uid);
    tables.remotes.retain(|(other, _), _| *other != uid);
    tables.parked.remove(&uid);
    tables.operations.retain(|(other, _), _| *other != uid);
    tables.controls.remove(&uid);
    tables.expiries.remove(&uid);
    if row.forget == Forget::Everything {
        tables.messages.retain(|key, decided| key.workflow != row.name.workflow || decided.id != row.name.id);
    }
    tables.cut.insert(uid);
}

fn write_journal(tables: &mut Tables, writes: &Writes) {
    for row in &writes.journal {
        let current = tables.heads[&row.uid].run;
        let journal = if row.run == current {
            tables.journal.entry(row.uid).or_default()
        } else {
            tables.earlier.entry((row.uid, row.run)).or_default()
        };
        journal.push(row.entry.clone());
    }
}

/// Those of new runs first.
fn write_attributes(tables: &mut Tables, writes: &Writes) {
    let gone = writes.attribute_resets.iter().copied().chain(writes.deleted.iter().map(|row| row.uid));
    for gone in gone {
        tables.attributes.retain(|(uid, _), _| *uid != gone);
    }
    for row in &writes.attributes {
        let key = (row.uid, row.attribute.name.clone());
        match &row.attribute.value {
            None => drop(tables.attributes.remove(&key)),
            value => drop(tables.attributes.insert(key, value.clone())),
        }
    }
}

/// In the order that the writes name. An insert that meets a row would fail the batch of a real store.
fn write_hooks(tables: &mut Tables, writes: &Writes, now: Timestamp) {
    for uid in &writes.hooks_ended {
        tables.hooks.retain(|_, row| row.owner != *uid || row.retain_until.is_some_and(|until| until > now));
        for row in tables.hooks.values_mut().filter(|row| row.owner == *uid) {
            row.ended = true;
        }
    }
    for uid in &writes.hooks_dropped {
        tables.hooks.retain(|_, row| row.owner != *uid || row.id == HookId::START);
    }
    for (key, owner, end) in &writes.hook_deletes {
        // What came to somebody who was deleted since is gone with that one.
        let Some(row) = tables.hooks.get(key).filter(|row| row.owner == *owner) else { continue };
        assert!(*end == HookEnd::Own || row.is_free(now), "{key:?} is not free");
        tables.hooks.remove(key);
    }
    insert(&mut tables.hooks, writes.hooks.iter().cloned());
    for (uid, count) in &writes.hook_counts {
        let head = tables.heads.get_mut(uid).expect("only what exists has hooks");
        (head.hooks, head.hooks_until) = (count.hooks, count.until);
    }
    for row in writes.deleted.iter().filter(|row| row.hooked) {
        tables.hooks.retain(|_, hook| hook.owner != row.uid);
    }
}

/// In the order that the writes name.
fn write_letters(tables: &mut Tables, writes: &Writes) {
    for number in &writes.letter_deletes {
        assert!(tables.mailbox.remove(number).is_some(), "letter {number} was taken twice");
    }
    for letter in &writes.letters {
        post(tables, letter.clone());
    }
    for (uid, cascade) in &writes.cascades {
        let attached = |(row, over): &&(ChildRow, bool)| {
            !over
                && !row.detached
                && row.run == cascade.run
                && cascade.call.is_none_or(|call| call == row.call)
        };
        let rows: Vec<_> = of(&tables.children, *uid).map(|(_, row)| row).filter(attached).cloned().collect();
        for (row, _) in rows {
            let caller = Caller { uid: *uid, run: row.run, call: row.call };
            post(tables, NewLetter { to: Address::Name(row.name), caller, said: cascade.said.clone() });
        }
    }
    for (uid, outcome) in &writes.concluded {
        let told: Vec<_> = tables.watchers.iter().filter(|(other, _)| other == uid).copied().collect();
        for (_, caller) in told {
            let said = Said::Returned { outcome: outcome.clone(), over: true };
            post(tables, NewLetter { to: Address::Instance(caller.uid), caller, said });
        }
        tables.watchers.retain(|(other, _)| other != uid);
    }
    let children =
        writes.children.iter().map(|(uid, row)| ((*uid, (row.run, row.call)), (row.clone(), false)));
    insert(&mut tables.children, children);
    for (uid, run, call) in &writes.children_over {
        tables.children.get_mut(&(*uid, (*run, *call))).expect("it was started before").1 = true;
    }
    for (uid, below) in &writes.children_cuts {
        tables.children.retain(|(other, (run, _)), _| other != uid || run >= below);
    }
    insert(&mut tables.parents, writes.parents.iter().cloned());
    for watcher in &writes.watchers {
        let (uid, caller) = watcher;
        tables
            .watchers
            .retain(|(other, before)| other != uid || before.uid != caller.uid || before.run >= caller.run);
        assert!(tables.watchers.insert(*watcher), "it waits twice: {watcher:?}");
    }
    for row in writes.deleted.iter().filter(|row| row.linked) {
        tables.children.retain(|(uid, _), _| *uid != row.uid);
        tables.parents.remove(&row.uid);
        tables.watchers.retain(|(uid, _)| *uid != row.uid);
    }
}

fn post(tables: &mut Tables, letter: NewLetter) {
    tables.letters += 1;
    tables.mailbox.insert(tables.letters, letter);
}

fn of<'a, K: Copy + Ord + 'a, R>(
    table: &'a BTreeMap<(InstanceUid, K), R>,
    uid: InstanceUid,
) -> impl Iterator<Item = (&'a K, &'a R)> {
    table.iter().filter(move |((other, _), _)| *other == uid).map(|((_, key), row)| (key, row))
}

fn delete<K: Ord, R>(table: &mut BTreeMap<K, R>, keys: &[K]) {
    for key in keys {
        table.remove(key);
    }
}

fn insert<K: Ord + std::fmt::Debug, R: std::fmt::Debug>(
    table: &mut BTreeMap<K, R>,
    rows: impl Iterator<Item = (K, R)>,
) {
    for (key, row) in rows {
        let text = format!("{key:?}");
        let before = table.insert(key, row);
        assert!(before.is_none(), "an insert met a row: {text} {before:?}");
    }
}
