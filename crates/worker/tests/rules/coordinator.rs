//! A coordinator over an in-memory store: the engine's own decisions, one input per batch, no broker. The clock is set
//! by hand.

use std::collections::HashMap;

use everstep_engine::{
    Answer, Batch, Effect, Head, Input, What, Writes,
    batch::{Loaded, Rules, Verdict},
    hook::{Claim, HookRow, SentPayload},
    letter::{Caller, Letter, NewLetter, Said as Answered},
    mailbox::{EventId, KnownEvent, SentEvent},
    place::Room,
    rows::{IdMap, Rows, Subject},
    start::{NameKey, Start},
};
use everstep_protocol::{
    BuildName, Call, CallKind, Fingerprint, HookId, InstanceUid, Payload, Position, Run, SessionId,
    Timestamp, Token,
    hook::{Registration, StartHook},
    journal::{End, Entry, Fact, Other, Outcome},
    message::{CoordinatorItem, Entries, Grant, WorkerItem},
};

pub struct Coordinator {
    pub now: Timestamp,
    pub rows: Rows,
    pub heads: IdMap<InstanceUid, Head>,
    pub journal: HashMap<InstanceUid, Vec<Entry>>,
    /// The journals of earlier generations, in order.
    pub earlier: Vec<Vec<Entry>>,
    pub rules: Rules,
    /// Who has credits for direct grants.
    pub room: Room,
    /// The most entries in a grant or an answer to an ask.
    pub part: usize,
    /// Instances and remote steps that became runnable, in order.
    pub offers: Vec<(InstanceUid, Subject)>,
    pub fenced: usize,
    /// Letters that instances wrote.
    pub mail: Vec<NewLetter>,
}

/// What a session is told.
pub type Said = Vec<(SessionId, CoordinatorItem)>;

impl Coordinator {
    pub fn new() -> Self {
        Self {
            now: Timestamp(1_700_000_000_000_000),
            rows: Rows::default(),
            heads: IdMap::default(),
            journal: HashMap::new(),
            earlier: Vec::new(),
            rules: Rules::default(),
            room: Room::default(),
            part: usize::MAX,
            offers: Vec::new(),
            fenced: 0,
            mail: Vec::new(),
        }
    }

    pub fn start(&mut self, workflow: &str, input: &Payload) -> InstanceUid {
        self.start_with(workflow, input, None)
    }

    /// Somebody starts an instance, perhaps with a hook.
    pub fn start_with(&mut self, workflow: &str, input: &Payload, hook: Option<StartHook>) -> InstanceUid {
        let uid = InstanceUid::generate();
        let name = NameKey {
            namespace: "default".parse().unwrap(),
            workflow: workflow.parse().unwrap(),
            id: format!("order-{}", self.heads.len() + 1).parse().unwrap(),
        };
        let fingerprint = Fingerprint::of(input).unwrap();
        let retention = everstep_engine::retention::Own::default();
        let input = input.clone();
        let start = Start {
            uid,
            name,
            input,
            fingerprint,
            seed: [7; 32],
            retention,
            pin: None,
            strict: false,
            attributes: Vec::new(),
            message: None,
            letter: None,
            hook,
            trace: None,
        };
        let (answer, _) = self.apply(&Input::Start(Box::new(start)));
        assert_eq!(answer, Answer::Created);
        uid
    }

    pub fn on(&mut self, instance: InstanceUid, what: What) -> (Answer, Said) {
        self.apply(&Input::On { instance, what })
    }

    /// Somebody sends an event. The instance's holder may be told of it.
    pub fn send(&mut self, instance: InstanceUid, id: &str, kind: &str, payload: &str) -> Said {
        let payload = Payload::from_text(payload).unwrap();
        let event = SentEvent {
            id: EventId { app_id: String::new(), id: id.to_owned() },
            kind: kind.parse().unwrap(),
            key: None,
            fingerprint: Fingerprint::of(&payload).unwrap(),
            payload,
        };
        let (answer, said) = self.on(instance, What::Event(event));
        assert_eq!(answer, Answer::Done);
        said
    }

    /// Somebody resumes a hook; whoever has the token is asked.
    pub fn resume(&mut self, token: &str, id: &str, payload: &str) -> (Answer, Said) {
        let token: Token = token.parse().unwrap();
        let payload = Payload::from_text(payload).unwrap();
        let (owner, hook) = {
            let row = &self.rows.hooks[&("default".parse().unwrap(), token.clone())];
            (row.owner, row.id)
        };
        let fingerprint = Fingerprint::of(&payload).unwrap();
        let sent =
            SentPayload { token, hook, app_id: String::new(), id: id.to_owned(), payload, fingerprint };
        self.on(owner, What::Payload(sent))
    }

    /// Another instance takes a token by force.
    pub fn take_over(&mut self, token: &str) -> Said {
        let key = ("default".parse().unwrap(), token.parse().unwrap());
        let (owner, held) = {
            let row = &self.rows.hooks[&key];
            (row.owner, row.id)
        };
        let claimant = Other { workflow: "w".parse().unwrap(), id: "claimant".parse().unwrap() };
        let asked = Registration { force: true, ..Registration::new(key.1) };
        let hook = HookId { run: Run(1), position: Position(2) };
        let claim = Claim { namespace: key.0, claimant, hook, asked, held };
        let call = Call { kind: CallKind::Hook, name: "order".parse().unwrap(), count: 1 };
        let caller = Caller { uid: InstanceUid::generate(), run: Run(1), call: call.hash() };
        let number = self.rows.letters.len() as u64 + 1000;
        self.rows.letters.insert(number);
        self.on(owner, What::Letter(Letter { number, caller, said: Answered::Claim(claim) })).1
    }

    /// Who has a token, as a word; none if it is free.
    pub fn holder(&self, token: &str) -> Option<String> {
        let row = self.rows.hooks.get(&("default".parse().unwrap(), token.parse().unwrap()))?;
        Some(format!("{}{}", row.name.id, if row.ended { " by retention" } else { "" }))
    }

    /// Another instance, of which nothing else is known, has a token.
    pub fn hold(&mut self, token: &str) {
        let row = HookRow {
            owner: InstanceUid::generate(),
            name: Other { workflow: "w".parse().unwrap(), id: "other".parse().unwrap() },
            id: HookId::START,
            since: self.now,
            retain_until: None,
            ended: false,
            webhook: None,
            metadata: None,
            schema: None,
            from: None,
            unheard: false,
        };
        self.rows.hooks.insert(("default".parse().unwrap(), token.parse().unwrap()), row);
    }

    /// Another instance has answered the call that the last letter of this one is about.
    pub fn answer(&mut self, instance: InstanceUid, outcome: Outcome) -> Said {
        let caller = self.mail.last().expect("it has written").caller;
        let number = self.mail.len() as u64;
        self.rows.letters.insert(number);
        let letter = Letter { number, caller, said: Answered::Returned { outcome, over: true } };
        self.on(instance, What::Letter(letter)).1
    }

    /// What a worker says.
    pub fn hear(&mut self, session: SessionId, build: &BuildName, item: WorkerItem) -> Said {
        let instance = item.instance();
        let build = build.clone();
        let what = match item {
            WorkerItem::Claim { have, .. } => What::Claim { session, have },
            WorkerItem::Report(report) => What::Report { session, build, report },
            WorkerItem::GiveBack { epoch, .. } => What::GiveBack { session, epoch },
            WorkerItem::Ask { epoch, after, .. } => {
                let entries = self.entries(instance, after);
                // As the real one: a part bears its own last position.
                let last = entries.last().map_or(after, |entry| entry.position);
                let item = CoordinatorItem::Entries(Entries { instance, epoch, last, entries, pause: None });
                return vec![(session, item)];
            }
            WorkerItem::StepClaim { call, .. } => What::StepClaim { session, call },
            WorkerItem::StepReport { call, epoch, ran_for, outcome, progress, found, .. } => {
                What::StepReport {
                    session,
                    build,
                    call,
                    epoch,
                    ran_for,
                    outcome,
                    progress,
                    found,
                    reference: None,
                }
            }
            WorkerItem::StepGiveBack { call, epoch, unstarted, .. } => What::StepLeaseEnded {
                session,
                build,
                call,
                epoch: Some(epoch),
                counts: false,
                unstarted,
                progress: None,
            },
        };
        self.on(instance, what).1
    }

    /// Everything whose time has come.
    pub fn fire(&mut self) -> Said {
        let due: Vec<_> = self
            .rows
            .waits
            .iter()
            .filter(|(_, wait)| wait.due_at.is_some_and(|at| at <= self.now))
            .map(|((uid, call), wait)| (wait.due_at, *uid, *call))
            .collect();
        let mut due = due;
        due.sort_unstable();
        due.into_iter().flat_map(|(_, uid, call)| self.on(uid, What::Due { call }).1).collect()
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.rows.waits.values().filter_map(|wait| wait.due_at).min()
    }

    pub fn end(&self, instance: InstanceUid) -> Option<&End> {
        self.journal[&instance].iter().rev().find_map(|entry| match &entry.fact {
            Fact::Ended(end) => Some(end),
            _ => None,
        })
    }

    pub fn is_ready(&self, instance: InstanceUid) -> bool {
        self.rows.ready.contains_key(&(instance, Subject::INSTANCE))
    }

    fn entries(&self, instance: InstanceUid, after: Position) -> Vec<Entry> {
        let entries = self.journal[&instance].iter().filter(|entry| entry.position > after);
        entries.take(self.part).cloned().collect()
    }

    fn apply(&mut self, input: &Input) -> (Answer, Said) {
        let loaded =
            Loaded { now: self.now, heads: self.heads.clone(), rows: self.rows.clone(), ..Loaded::default() };
        let room = &mut self.room;
        let mut batch = Batch::new(loaded, self.rules.clone());
        let answer = match batch.apply(input, room) {
            Verdict::Decided(answer) => answer,
            Verdict::Started(decided) => decided.answer,
            Verdict::Held => panic!("nothing is locked"),
            Verdict::Broken => panic!("no start is broken"),
        };
        if answer == Answer::Fenced {
            self.fenced += 1;
        }
        let (writes, effects, _) = batch.finish(room);
        self.write(writes);
        let said = effects.into_iter().flat_map(|effect| self.say(effect)).collect();
        (answer, said)
    }

    fn write(&mut self, writes: Writes) {
        self.write_hooks(&writes);
        for head in writes.created.into_iter().chain(writes.heads) {
            self.heads.insert(head.uid, head);
        }
        for row in writes.journal {
            let journal = self.journal.entry(row.uid).or_default();
            if row.entry.position == Position(1) && !journal.is_empty() {
                self.earlier.push(std::mem::take(journal));
            }
            assert_eq!(row.entry.position, Position(journal.len() as u64 + 1), "positions are dense");
            journal.push(row.entry);
        }
        // Deletes come before inserts; what the instance itself has is named.
        for uid in &writes.cleared {
            self.rows.waits.retain(|(other, _), _| other != uid);
            self.rows.remotes.retain(|(other, _), _| other != uid);
            self.rows.leases.retain(|(other, subject), _| other != uid || *subject == Subject::INSTANCE);
            self.rows.ready.retain(|(other, subject), _| other != uid || *subject == Subject::INSTANCE);
        }
        for key in &writes.lease_deletes {
            self.rows.leases.remove(key);
        }
        self.rows
            .leases
            .extend(writes.leases.into_iter().map(|(uid, subject, lease)| ((uid, subject), lease)));
        for key in &writes.ready_deletes {
            self.rows.ready.remove(key);
        }
        for row in writes.ready {
            self.offers.push((row.uid, row.subject));
            self.rows.ready.insert((row.uid, row.subject), row.ready_at);
        }
        for key in &writes.wait_deletes {
            self.rows.waits.remove(key);
        }
        self.rows.waits.extend(writes.waits.into_iter().map(|(uid, wait)| ((uid, wait.call.hash()), wait)));
        for key in &writes.remote_deletes {
            self.rows.remotes.remove(key);
        }
        self.rows.remotes.extend(writes.remotes.into_iter().map(|(uid, row)| ((uid, row.call.hash()), row)));
        for (uid, row) in writes.events {
            let SentEvent { id, kind, key, fingerprint, .. } = row.event.clone();
            self.rows.event_ids.insert((uid, id), KnownEvent { kind, key, fingerprint });
            self.rows.events.insert((uid, row.sequence), row);
        }
        for row in writes.deliveries {
            let event = self.rows.events.get_mut(&(row.uid, row.sequence)).expect("it was accepted before");
            event.delivery = row.delivery;
        }
        self.mail.extend(writes.letters);
        for uid in &writes.parked_deletes {
            self.rows.parked.remove(uid);
        }
        self.rows.parked.extend(writes.parked.into_iter().map(|(uid, _, parked)| (uid, parked)));
    }

    fn write_hooks(&mut self, writes: &Writes) {
        let now = self.now;
        for uid in &writes.hooks_ended {
            self.rows
                .hooks
                .retain(|_, row| row.owner != *uid || row.retain_until.is_some_and(|until| until > now));
            for row in self.rows.hooks.values_mut().filter(|row| row.owner == *uid) {
                row.ended = true;
            }
        }
        for (key, owner, _) in &writes.hook_deletes {
            let row = self.rows.hooks.remove(key);
            assert!(row.is_some_and(|row| row.owner == *owner), "{key:?} is another's");
        }
        self.rows.hooks.extend(writes.hooks.iter().cloned());
        for (uid, count) in &writes.hook_counts {
            if let Some(head) = self.heads.get_mut(uid) {
                (head.hooks, head.hooks_until) = (count.hooks, count.until);
            }
        }
    }

    fn say(&self, effect: Effect) -> Said {
        match effect {
            Effect::Item(session, item) => vec![(session, item)],
            Effect::Grant { session, head, direct, after, entries } => {
                let entries = if entries.is_empty() { self.entries(head.uid, after) } else { entries };
                vec![(session, CoordinatorItem::Grant(self.grant(&head, direct, entries)))]
            }
            Effect::StepGrant(session, grant) => vec![(session, CoordinatorItem::StepGrant(*grant))],
            Effect::Push { session, head, entries } => {
                let push = Entries {
                    instance: head.uid,
                    epoch: head.epoch,
                    last: head.position,
                    entries,
                    pause: None,
                };
                vec![(session, CoordinatorItem::Entries(push))]
            }
            Effect::Offer { kept_by: Some(session), instance, .. } => {
                vec![(session, CoordinatorItem::Offer { instance })]
            }
            Effect::Offer { .. } | Effect::OfferStep { .. } | Effect::Reply(..) => Vec::new(),
        }
    }

    fn grant(&self, head: &Head, direct: bool, entries: Vec<Entry>) -> Grant {
        Grant {
            instance: head.uid,
            epoch: head.epoch,
            namespace: head.namespace.clone(),
            workflow: head.workflow.clone(),
            id: head.id.clone(),
            run: head.run,
            generation: head.generation,
            now: self.now,
            reports: head.reports,
            last: head.position,
            entries,
            direct,
            restored_at: None,
        }
    }
}
