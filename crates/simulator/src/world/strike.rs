//! What befalls processes, connections, broker and store from outside.

use std::time::Duration;

use super::World;
use crate::{faults::Kind, node::Role, workload::BUILDS};

/// Queues whose messages a broker may lose without anything being lost (promise 2).
const ENGINE_QUEUES: [&str; 5] =
    ["everstep.run.", "everstep.step.", "everstep.report.", "everstep.sessions", "everstep.inbox."];

/// What hangs for good: whoever waits for it waits for ever.
const FOR_EVER: i64 = i64::MAX;

impl World {
    pub(super) fn strike(&mut self, now: i64, slice: i64) {
        let millis = slice as u64 / 1_000;
        for index in 0..self.nodes.len() {
            self.heal(index, now);
            self.strike_process(index, now, millis);
        }
        self.strike_broker(now, millis);
        self.strike_store(now, millis);
    }

    fn strike_process(&mut self, index: usize, now: i64, millis: u64) {
        let (crash, freeze) = match self.nodes[index].role {
            Role::Coordinator => (Kind::CrashCoordinator, Kind::FreezeCoordinator),
            Role::Worker | Role::Pool => (Kind::CrashWorker, Kind::FreezeWorker),
            Role::Outside => return,
        };
        let Some(process) = &self.nodes[index].process else { return };
        let life = process.life.clone();
        if self.faults.comes_within(crash, millis) {
            life.end(format_args!("all of a sudden"));
            return self.bury(index);
        }
        if self.nodes[index].frozen.is_none() && self.faults.comes_within(freeze, millis) {
            let frozen = self.draws.between(100, if self.draws.clone().once_in(2) { 2_000 } else { 25_000 });
            life.note(format_args!("stands still for {frozen} ms"));
            life.froze();
            let until = now + frozen as i64 * 1_000;
            let until = if self.may_hang(index) && self.draws.once_in(4) { FOR_EVER } else { until };
            if until == FOR_EVER {
                self.watchers.gone(life.session(), now);
            }
            match self.nodes[index].role {
                Role::Coordinator => self.watchers.all_troubled(until),
                _ => self.watchers.troubled(life.session(), until),
            }
            self.nodes[index].frozen = Some((now, until));
        }
        if self.nodes[index].cut.is_none() && self.faults.comes_within(Kind::Cut, millis) {
            let cut = if self.draws.once_in(3) {
                self.draws.between(2_000, 15_000)
            } else {
                self.draws.between(1, 1_500)
            };
            let until = now + cut as i64 * 1_000;
            self.watchers.troubled(life.session(), until);
            self.cut(index, until);
        }
    }

    /// Whether the rest can go on if this one never does again: another worker has its build, and its pool.
    fn may_hang(&self, index: usize) -> bool {
        let node = &self.nodes[index];
        node.role == Role::Pool || node.role == Role::Worker && node.number >= BUILDS.len()
    }

    /// A process that starts while the broker is away comes to it as late as all others.
    pub(super) fn meets_the_broker(&mut self, index: usize) {
        let now = self.clock.now();
        // A coordinator that starts before the others are back finds inboxes that are not there, and knows nothing of an outage.
        let last = self.nodes.iter().filter_map(|node| node.cut).max();
        if let Some(until) = last.filter(|_| self.nodes[index].role == Role::Coordinator) {
            self.watchers.all_troubled(until);
        }
        if now < self.broker_back_at {
            let until = self.broker_back_at + self.draws.between(50, 3_000) as i64 * 1_000;
            self.cut(index, until);
        }
    }

    fn cut(&mut self, index: usize, until: i64) {
        let Some(process) = &self.nodes[index].process else { return };
        process.life.note(format_args!("is cut off"));
        process.connection.cut();
        self.nodes[index].cut = Some(until);
    }

    /// What is over by now: freezes and cuts.
    fn heal(&mut self, index: usize, now: i64) {
        let node = &mut self.nodes[index];
        let Some(process) = &mut node.process else { return };
        if let Some((since, until)) = node.frozen
            && until <= now
        {
            node.frozen = None;
            process.life.note(format_args!("goes on"));
            process.thaw(Duration::from_micros((now - since) as u64));
        }
        if node.cut.is_some_and(|until| until <= now) {
            node.cut = None;
            process.life.note(format_args!("is connected again"));
            process.connection.restore();
        }
    }

    fn strike_broker(&mut self, now: i64, millis: u64) {
        if self.faults.comes_within(Kind::Purge, millis) {
            let queues = self.hub.queues();
            let of_engine = |name: &&String| ENGINE_QUEUES.iter().any(|prefix| name.starts_with(prefix));
            let queues: Vec<_> = queues.iter().filter(of_engine).collect();
            if !queues.is_empty() {
                let queue = *self.draws.pick(&queues);
                self.watchers.all_troubled(now);
                let lost = self.hub.purge(queue);
                self.trace.note("broker", format_args!("loses {lost} messages of {queue}"));
            }
        }
        if self.faults.comes_within(Kind::Wipe, millis) {
            self.trace.note("broker", format_args!("loses everything"));
            self.hub.wipe();
            self.wire.lose_all();
            // Some brokers are long in coming back. A session that ends for that alone has been robbed (rule W8).
            let away = if self.draws.once_in(3) { self.draws.between(3_000, 20_000) } else { 0 };
            self.broker_back_at = now + away as i64 * 1_000;
            for index in 0..self.nodes.len() {
                // Some workers are long in coming back, though others are there.
                let is_slow = self.nodes[index].role != Role::Coordinator && self.draws.once_in(4);
                let most = if is_slow { 6_000 } else { 3_000 };
                let until = now + (away + self.draws.between(50, most)) as i64 * 1_000;
                self.cut(index, until);
            }
        }
    }

    fn strike_store(&mut self, now: i64, millis: u64) {
        if self.store_away_until.is_some_and(|until| until <= now) {
            self.store_away_until = None;
            self.faults.set_store_away(false);
            self.trace.note("store", format_args!("is back"));
        }
        if self.store_away_until.is_none() && self.faults.comes_within(Kind::StoreAway, millis) {
            let away = if self.draws.once_in(3) {
                self.draws.between(2_000, 20_000)
            } else {
                self.draws.between(10, 2_000)
            };
            self.trace.note("store", format_args!("is away for {away} ms"));
            self.store_away_until = Some(now + away as i64 * 1_000);
            self.faults.set_store_away(true);
        }
    }

    /// Faults have ceased: everybody runs, and every way is open.
    pub(super) fn calm(&mut self) {
        let now = self.clock.now();
        self.broker_back_at = now;
        self.trace.note("world", format_args!("faults have ceased"));
        self.faults.cease();
        self.store_away_until = None;
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            if let Some((_, until)) = node.frozen.as_mut().filter(|(_, until)| *until != FOR_EVER) {
                *until = now;
            }
            if let Some(until) = &mut node.cut {
                *until = now;
            }
            self.heal(index, now);
        }
    }
}
