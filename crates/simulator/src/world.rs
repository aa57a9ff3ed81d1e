//! The world of one run: store, broker, processes, time, and what befalls them.
//!
//! Time goes on in turns of a few milliseconds. In each turn every process runs once, in an order that is drawn, to the end of the
//! turn. What one does to store and broker in its turn the next one sees.

mod spawn;
mod strike;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use everstep_broker::MemoryBroker;
use everstep_protocol::{InstanceUid, Namespace, Position, Run, journal::Entry};
use everstep_store::{
    Bulks, Cursor, Filter, InstanceView, Instances, Range, Schedules, Views, sqlite::SqliteStore,
};
use futures::FutureExt;

use crate::{
    chance::Ids,
    check::{Rest, Seen, Watchers},
    clock::Clock,
    faults::Faults,
    life::Life,
    node::{Process, Role, Turn},
    ports::wire::Wire,
    report::Outcome,
    scene::Scene,
    seed::Draws,
    trace::Trace,
    workload::{
        effects::{Books, Services},
        interpret,
        outside::{Desks, Outside},
    },
};

/// So long after faults have ceased everything must have come to rest.
const REST_WITHIN: i64 = 1_800_000_000;
/// How often all instances are looked at.
const AUDITS_EVERY: i64 = 3_000_000;
/// So long after everything has ended the run goes on: what comes too late must not do anything any more.
const GRACE: i64 = 5_000_000;
/// The most that is read of a journal.
const JOURNAL_BYTES: usize = 64 << 20;

pub(crate) struct World {
    seed: u64,
    scene: Scene,
    clock: Clock,
    trace: Trace,
    faults: Arc<Faults>,
    watchers: Watchers,
    books: Books,
    store: Arc<SqliteStore>,
    hub: MemoryBroker,
    wire: Wire,
    ids: Arc<Ids>,
    desks: Desks,
    nodes: Vec<Node>,
    outside: Option<Outside>,
    draws: Draws,
    store_away_until: Option<i64>,
    /// When a broker that went is there again: nobody can connect before.
    broker_back_at: i64,
    /// When something was committed last, and how much until then.
    stirred: (i64, u64),
    /// How many instances were open at the last look, and how much was committed until then.
    audited: Option<(u64, usize)>,
    kills: u64,
}

/// The place of a process, whether it runs or not.
struct Node {
    role: Role,
    number: usize,
    process: Option<Process>,
    /// When it starts, if it does not run.
    starts_at: i64,
    /// Since when it stands still, and until when.
    frozen: Option<(i64, i64)>,
    /// Until when its connection is cut.
    cut: Option<i64>,
    /// How much faster its clock runs, in parts per million.
    drift: i64,
    lives: u32,
}

impl World {
    /// A world on the current thread.
    pub(crate) fn new(seed: u64, shows: bool) -> Result<Self, String> {
        let scene = Scene::draw(seed);
        let clock = Clock::new();
        let trace = Trace::new(clock.clone(), shows);
        let faults = Arc::new(Faults::new(seed, scene.rates.clone()));
        let time = clock.clone();
        let store = SqliteStore::in_memory(Arc::new(move || time.store_time()), Arc::new(|| ()));
        let store = Arc::new(store.map_err(|error| error.to_string())?);
        let time = clock.clone();
        let hub = MemoryBroker::with_clock(Arc::new(move || time.broker_time()));
        let mut world = Self {
            seed,
            ids: Arc::new(Ids::new(seed, clock.clone())),
            wire: Wire::new(hub.connection()),
            desks: Desks::new(scene.coordinators),
            scene,
            clock,
            trace,
            faults,
            watchers: Watchers::new(),
            books: Books::default(),
            store,
            hub,
            nodes: Vec::new(),
            outside: None,
            draws: Draws::new(seed, "world"),
            store_away_until: None,
            broker_back_at: 0,
            stirred: (0, 0),
            audited: None,
            kills: 0,
        };
        world.people();
        Ok(world)
    }

    /// Everybody who takes part; they start within the first second.
    fn people(&mut self) {
        let Scene { coordinators, workers, pools, drift, .. } = self.scene;
        let roles = [
            (Role::Coordinator, coordinators),
            (Role::Worker, workers),
            (Role::Pool, pools),
            (Role::Outside, 1),
        ];
        for (role, count) in roles {
            for number in 0..count {
                let drift = self.draws.below(drift * 2 + 1) as i64 - drift as i64;
                let starts_at = self.draws.below(1_000_000) as i64;
                self.nodes.push(Node {
                    role,
                    number,
                    process: None,
                    starts_at,
                    frozen: None,
                    cut: None,
                    drift: if role == Role::Outside { 0 } else { drift },
                    lives: 0,
                });
            }
        }
    }

    /// Runs to the end: everything at rest, or something that must not be.
    pub(crate) fn run(mut self) -> Outcome {
        let mut audit_at = AUDITS_EVERY;
        let mut done_at = None;
        while self.watchers.breached().is_none() {
            self.round();
            let now = self.clock.now();
            if !self.faults.have_ceased() && now >= self.scene.calm_at {
                self.calm();
            }
            if now < audit_at {
                continue;
            }
            audit_at = now + AUDITS_EVERY;
            self.watchers.see(&Seen::Passed { at: now });
            let is_done = self.audit() == 0 && self.busy() == 0;
            done_at = if is_done { done_at.or(Some(now)) } else { None };
            let is_over = done_at.is_some_and(|since| now >= since + GRACE);
            if is_over || now > self.scene.calm_at + REST_WITHIN {
                break;
            }
        }
        if self.watchers.breached().is_none() {
            self.rest();
        }
        self.outcome()
    }

    /// How many producers have still something to do, and operations on many instances, and schedules.
    fn busy(&self) -> usize {
        let producers = self.outside.as_ref().map_or(1, |outside| outside.busy.load(Ordering::Relaxed));
        let bulks = self.store.running_bulks(10).now_or_never().and_then(Result::ok);
        let schedules = self.store.schedules(&Namespace::default(), None, 100).now_or_never();
        let schedules = schedules.and_then(Result::ok).map_or(Vec::new(), |listed| listed.what);
        let to_come = schedules.iter().filter(|row| row.wake_at.is_some()).count();
        producers + bulks.map_or(0, |bulks| bulks.len()) + to_come
    }

    /// One turn for everybody.
    fn round(&mut self) {
        let began = self.clock.now();
        let slice = self.slice();
        let ends = began + slice;
        self.wire.arrive(began);
        self.strike(began, slice);
        let mut order: Vec<_> = (0..self.nodes.len()).collect();
        self.draws.shuffle(&mut order);
        for index in order {
            self.give_turn(index, began, slice);
        }
        self.clock.set(ends);
        let commits = self.watchers.tally().commits;
        if commits != self.stirred.1 {
            self.stirred = (ends, commits);
        }
    }

    /// How long this turn takes: the longer nothing was committed, the longer.
    fn slice(&mut self) -> i64 {
        let quiet = self.clock.now() - self.stirred.0;
        let grain = self.scene.grain;
        let most = match quiet {
            0..50_000 => grain,
            50_000..500_000 => grain.max(20),
            500_000..3_000_000 => 60,
            _ => 200,
        };
        self.draws.between(1, most) as i64 * 1_000
    }

    fn give_turn(&mut self, index: usize, began: i64, slice: i64) {
        let node = &mut self.nodes[index];
        if node.frozen.is_some() {
            return;
        }
        if node.process.is_none() && node.starts_at <= began {
            self.spawn(index);
        }
        let node = &mut self.nodes[index];
        let Some(process) = &mut node.process else { return };
        let own = slice + slice * node.drift / 1_000_000;
        match process.turn(Duration::from_micros(own as u64)) {
            Turn::GoesOn => {}
            Turn::Died => self.bury(index),
            Turn::Ended(reason) => {
                process.life.end(format_args!("by itself: {reason}"));
                self.bury(index);
            }
            Turn::Panicked(what) => {
                let who = process.life.name.clone();
                self.watchers.breach("world", format!("{who} panicked: {what}"));
            }
        }
    }

    /// A process is gone; another takes its place before long.
    fn bury(&mut self, index: usize) {
        let now = self.clock.now();
        let pause = if self.draws.once_in(4) {
            self.draws.between(1_000, 15_000)
        } else {
            self.draws.between(10, 1_500)
        };
        let node = &mut self.nodes[index];
        if node.role == Role::Coordinator {
            self.desks.set(node.number, None);
        }
        if let Some(process) = node.process.take() {
            self.watchers.troubled(process.life.session(), i64::MAX);
            self.watchers.gone(process.life.session(), now);
            process.bury();
            self.kills += 1;
        }
        node.frozen = None;
        node.cut = None;
        node.starts_at = now + pause as i64 * 1_000;
    }

    /// Looks at every open instance, unless nothing was committed since the last look, and says how many there are.
    fn audit(&mut self) -> usize {
        let commits = self.watchers.tally().commits;
        if let Some((_, open)) = self.audited.filter(|(before, _)| *before == commits) {
            return open;
        }
        let open = self.listed(true);
        self.watchers.see(&Seen::Audited(&open));
        self.audited = Some((commits, open.len()));
        open.len()
    }

    fn listed(&self, only_open: bool) -> Vec<InstanceView> {
        let filter = Filter { open: only_open, ..Filter::default() };
        let mut all = Vec::new();
        let mut cursor: Option<Cursor> = None;
        loop {
            let page = self.store.instances(&filter, cursor.as_ref(), 1_000).now_or_never();
            let Some(Ok(page)) = page else { return all };
            all.extend(page.rows);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return all,
            }
        }
    }

    fn whole(&self, view: &InstanceView) -> Option<InstanceView> {
        let name = crate::workload::name(view.id.as_str());
        self.store.instance(&name).now_or_never()?.ok()?
    }

    fn journal(&self, uid: InstanceUid, run: Run) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(Position(0), |entry| entry.position);
            let read = self.store.journal(vec![Range { uid, run, after }], JOURNAL_BYTES).now_or_never();
            match read.and_then(Result::ok).and_then(|mut parts| parts.pop()) {
                Some(part) if !part.is_empty() => entries.extend(part),
                Some(_) | None => return entries,
            }
        }
    }

    /// The last look, at everything.
    fn rest(&self) {
        let mut instances: Vec<_> = self.listed(false).iter().filter_map(|view| self.whole(view)).collect();
        instances.sort_by_key(|view| view.uid);
        let mut journals = BTreeMap::new();
        for view in &instances {
            for run in 1..=view.run.0 {
                let entries = self.journal(view.uid, Run(run));
                if !entries.is_empty() {
                    journals.insert((view.uid, Run(run)), entries);
                }
            }
        }
        let life = Arc::new(Life::new("replay".to_owned(), false, self.faults.clone(), self.trace.clone()));
        let registry = interpret::registry(&Services { books: self.books.clone(), life });
        let effects = self.books.read().clone();
        self.watchers.rest(&Rest {
            effects: &effects,
            instances: &instances,
            journals: &journals,
            registry: &registry,
            unanswered: self.busy(),
        });
    }

    fn outcome(&self) -> Outcome {
        let effects = self.books.read();
        Outcome {
            seed: self.seed,
            hash: self.trace.hash(),
            plan: self.faults.plan(),
            breach: self.watchers.breached(),
            tally: self.watchers.tally(),
            faults: self.faults.counts(),
            kills: self.kills,
            past_a_freeze: effects.effects.values().map(|effect| u64::from(effect.past_a_freeze)).sum(),
            virtual_micros: self.clock.now() as u64,
            last: self.trace.last(),
        }
    }
}
