//! The kinds of fault: what each does, whom it reaches, and how it is over.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::Result;
use clap::ValueEnum;
use everstep_testbed::{Down, Process, Way, purge};
use rand::{RngExt as _, rngs::StdRng};

use crate::{
    fleet::Fleet,
    heal::{Healing, Reach, watch},
    load::Producer,
    look::Look,
};

/// Shorter than a lease: whoever is only slow keeps what it holds.
const PAUSE: Duration = Duration::from_secs(3);
/// Longer than a lease: it is taken away.
const FREEZE: Duration = Duration::from_secs(13);
/// How long a way is cut, in milliseconds.
const CUT_MS: std::ops::RangeInclusive<u64> = 200..=3_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// `kill -9` of a worker, which is started again.
    KillWorker,
    /// A worker stands still for longer than its lease, and then goes on.
    FreezeWorker,
    /// A process's connections to the broker break, and new ones are refused for a while.
    CutBroker,
    /// `kill -9` of a coordinator, which is started again.
    KillCoordinator,
    /// A coordinator stands still for three seconds.
    StopCoordinator,
    /// A worker stands still for three seconds.
    StopWorker,
    /// What lies in the queues of run tasks is gone.
    PurgeRun,
    /// What lies in the queues of step tasks is gone.
    PurgeStep,
    /// What lies in the queues of reports is gone.
    PurgeReport,
    /// What lies in the queue of sessions is gone.
    PurgeSessions,
    /// What lies in the workers' inboxes is gone.
    PurgeInbox,
    /// The broker is stopped and started again.
    RestartBroker,
    /// The broker is killed, and comes back empty.
    WipeBroker,
    /// The database is stopped and started again.
    RestartDatabase,
    /// The database is shut down immediately, and recovers.
    CrashDatabase,
    /// A coordinator's connections to the database break, and new ones are refused for a while.
    CutDatabase,
}

impl Kind {
    /// All of them: first those that may cost a session its life.
    pub(crate) const ALL: [Self; 16] = [
        Self::KillWorker,
        Self::FreezeWorker,
        Self::CutBroker,
        Self::KillCoordinator,
        Self::StopCoordinator,
        Self::StopWorker,
        Self::PurgeRun,
        Self::PurgeStep,
        Self::PurgeReport,
        Self::PurgeSessions,
        Self::PurgeInbox,
        Self::RestartBroker,
        Self::WipeBroker,
        Self::RestartDatabase,
        Self::CrashDatabase,
        Self::CutDatabase,
    ];

    /// Whether it may end no session and cost no lease (rules W8 to W10): all of its workers live, and would answer if they were heard.
    pub(crate) const fn is_gentle(self) -> bool {
        !matches!(self, Self::KillWorker | Self::FreezeWorker | Self::CutBroker)
    }

    /// Whether what it hits must go on elsewhere within [`crate::check::ELSEWHERE_WITHIN`].
    pub(crate) const fn is_kill(self) -> bool {
        matches!(self, Self::KillWorker | Self::KillCoordinator)
    }

    /// Which queues it purges.
    const fn purges(self) -> Option<&'static str> {
        match self {
            Self::PurgeRun => Some("everstep[.]run[.]"),
            Self::PurgeStep => Some("everstep[.]step[.]"),
            Self::PurgeReport => Some("everstep[.]report[.]"),
            Self::PurgeSessions => Some("everstep[.]sessions"),
            Self::PurgeInbox => Some("everstep[.]inbox[.]"),
            _ => None,
        }
    }

    /// Whether coordinators consume what it purges.
    const fn is_of_coordinators(self) -> bool {
        matches!(self, Self::PurgeReport | Self::PurgeSessions)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What came of a fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// It did what its kind says, and hit somebody: a purge took messages, a process that was killed held something.
    pub(crate) took_effect: bool,
    /// How long it lasted.
    pub(crate) lasted: Duration,
    pub(crate) healing: Healing,
}

/// Lets a fault of this kind hit the fleet, and waits until it is over and all that it hit has healed.
pub(crate) async fn hit(
    fleet: &mut Fleet,
    producer: &Producer,
    kind: Kind,
    rng: &mut StdRng,
) -> Result<Fault> {
    let of_coordinator = match kind {
        Kind::CutBroker => rng.random_bool(0.4),
        Kind::CutDatabase | Kind::KillCoordinator | Kind::StopCoordinator => true,
        _ => false,
    };
    let victim = if of_coordinator {
        rng.random_range(0..fleet.coordinators.len())
    } else {
        rng.random_range(0..fleet.workers.len())
    };
    let reach = reach(fleet, kind, of_coordinator, victim);
    let url = fleet.postgres.url();
    let mut look = Look::at(url.clone());
    // What one worker holds is read once it can change nothing of it.
    let before = if matches!(reach, Reach::Worker { .. }) { None } else { Some(look.hit(&reach).await?) };
    let victim =
        Victim { of_coordinator, number: victim, cut: Duration::from_millis(rng.random_range(CUT_MS)) };
    let since = Instant::now();
    strike(fleet, producer, kind, &victim)?;
    let hits = match before {
        Some(hits) => hits,
        None => look.hit(&reach).await?,
    };
    let has_hit = !hits.is_empty();
    let watching = tokio::spawn(watch(url, hits, since));
    let took_effect = mend(fleet, kind, &victim, since).await? && has_hit;
    let lasted = since.elapsed();
    Ok(Fault { kind, took_effect, lasted, healing: watching.await? })
}

/// Whom a fault is about, and how long a cut takes.
struct Victim {
    of_coordinator: bool,
    number: usize,
    cut: Duration,
}

fn reach(fleet: &Fleet, kind: Kind, of_coordinator: bool, victim: usize) -> Reach {
    let worker = |elsewhere| Reach::Worker { host: fleet.host(victim), elsewhere };
    match kind {
        Kind::KillWorker | Kind::FreezeWorker => worker(true),
        Kind::StopWorker => worker(false),
        Kind::CutBroker if !of_coordinator => worker(false),
        Kind::PurgeStep => Reach::Steps,
        _ => Reach::All,
    }
}

fn strike(fleet: &mut Fleet, producer: &Producer, kind: Kind, victim: &Victim) -> Result<()> {
    tokio::task::block_in_place(|| match kind {
        Kind::KillWorker => fleet.workers[victim.number].process.kill(),
        Kind::KillCoordinator => fleet.coordinators[victim.number].process.kill(),
        Kind::StopWorker | Kind::FreezeWorker => fleet.workers[victim.number].process.signal("STOP"),
        Kind::StopCoordinator => fleet.coordinators[victim.number].process.signal("STOP"),
        Kind::PurgeRun | Kind::PurgeStep | Kind::PurgeInbox | Kind::PurgeReport | Kind::PurgeSessions => {
            consumers(fleet, kind).into_iter().try_for_each(|process| process.signal("STOP"))
        }
        Kind::RestartBroker => fleet.rabbit.down(Down::Orderly),
        Kind::WipeBroker => {
            fleet.rabbit.down(Down::Crash)?;
            producer.wiped();
            fleet.rabbit.wipe()
        }
        Kind::RestartDatabase => fleet.postgres.down(Down::Orderly),
        Kind::CrashDatabase => fleet.postgres.down(Down::Crash),
        Kind::CutDatabase => {
            fleet.coordinators[victim.number].database.set(Way::Cut);
            Ok(())
        }
        Kind::CutBroker => {
            way_to_broker(fleet, victim).set(Way::Cut);
            Ok(())
        }
    })
}

/// Ends a fault. Tells whether it did what its kind says.
async fn mend(fleet: &mut Fleet, kind: Kind, victim: &Victim, since: Instant) -> Result<bool> {
    let pause = match kind {
        Kind::StopWorker | Kind::StopCoordinator => PAUSE,
        Kind::FreezeWorker => FREEZE,
        Kind::CutBroker | Kind::CutDatabase => victim.cut,
        _ => Duration::ZERO,
    };
    tokio::time::sleep(pause.saturating_sub(since.elapsed())).await;
    match kind {
        Kind::KillCoordinator => fleet.revive_coordinator(victim.number).await?,
        Kind::CutDatabase => fleet.coordinators[victim.number].database.set(Way::Open),
        Kind::CutBroker => way_to_broker(fleet, victim).set(Way::Open),
        _ => return tokio::task::block_in_place(|| mend_at_once(fleet, kind, victim)),
    }
    Ok(true)
}

fn mend_at_once(fleet: &mut Fleet, kind: Kind, victim: &Victim) -> Result<bool> {
    match kind {
        Kind::KillWorker => fleet.revive_worker(victim.number)?,
        Kind::StopWorker | Kind::FreezeWorker => fleet.workers[victim.number].process.signal("CONT")?,
        Kind::StopCoordinator => fleet.coordinators[victim.number].process.signal("CONT")?,
        Kind::RestartBroker | Kind::WipeBroker => fleet.rabbit.up()?,
        Kind::RestartDatabase | Kind::CrashDatabase => fleet.postgres.up()?,
        _ => {
            let Some(pattern) = kind.purges() else { return Ok(true) };
            let purged = purge(|arguments| fleet.rabbit.ctl(arguments), fleet.rabbit.vhost(), pattern);
            consumers(fleet, kind).into_iter().try_for_each(|process| process.signal("CONT"))?;
            return Ok(purged? > 0);
        }
    }
    Ok(true)
}

/// Who consumes the queues that a fault purges.
fn consumers(fleet: &Fleet, kind: Kind) -> Vec<&Process> {
    if kind == Kind::PurgeStep {
        vec![&fleet.pool().process]
    } else if kind.is_of_coordinators() {
        fleet.coordinators.iter().map(|coordinator| &coordinator.process).collect()
    } else {
        fleet.workers.iter().map(|worker| &worker.process).collect()
    }
}

fn way_to_broker<'a>(fleet: &'a Fleet, victim: &Victim) -> &'a everstep_testbed::Proxy {
    if victim.of_coordinator {
        &fleet.coordinators[victim.number].broker
    } else {
        &fleet.workers[victim.number].broker
    }
}

#[cfg(test)]
mod tests {
    //! Pure: no kind is forgotten.
    use super::*;

    #[test]
    fn every_kind_is_in_the_list_and_has_a_name() {
        assert_eq!(Kind::value_variants(), Kind::ALL);
        assert!(Kind::ALL.iter().all(|kind| !kind.to_string().is_empty()));
        assert!(!Kind::ALL.iter().any(|kind| kind.purges().is_none() && kind.is_of_coordinators()));
    }
}
