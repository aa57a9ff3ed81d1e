//! Kills and purges. A purge takes only what lies in a queue and is not yet under way to a consumer, so the consumers of each
//! kind are stopped for a moment, the queue fills, and the broker's own command empties it.

use std::{
    fmt,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use everstep_testbed::{Installation, Process};

use super::processes::Fleet;

/// Messages lost to purges, by kind of queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Purges {
    run: u64,
    step: u64,
    report: u64,
    sessions: u64,
    inbox: u64,
}

impl Purges {
    const fn kinds(self) -> [(&'static str, u64); 5] {
        [
            ("run tasks", self.run),
            ("step tasks", self.step),
            ("reports", self.report),
            ("sessions", self.sessions),
            ("inboxes", self.inbox),
        ]
    }

    /// The kinds that lost nothing.
    pub(crate) fn missing(self) -> impl Iterator<Item = &'static str> {
        self.kinds().into_iter().filter(|(_, count)| *count == 0).map(|(kind, _)| kind)
    }
}

impl fmt::Display for Purges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.kinds().map(|(kind, count)| format!("{kind} {count}"));
        f.write_str(&texts.join(", "))
    }
}

/// Disturbs a fleet under load.
pub(crate) fn disturb(fleet: &mut Fleet, installation: &Installation, orders: usize) -> Result<Purges> {
    let mut purges = Purges::default();
    until_begun(installation)?;
    let workers: Vec<_> = fleet.workers.iter().chain([&fleet.labels]).collect();
    purges.run = stopped(&workers, || purge(installation, "everstep[.]run[.]"))?;
    purges.inbox = stopped(&workers, || purge(installation, "everstep[.]inbox[.]"))?;
    let coordinators: Vec<_> = fleet.coordinators.iter().collect();
    purges.report = stopped(&coordinators, || purge(installation, "everstep[.]report[.]"))?;
    fleet.kill_worker()?;
    purges.step = stopped(&[&fleet.labels], || purge(installation, "everstep[.]step[.]"))?;
    let coordinators: Vec<_> = fleet.coordinators.iter().collect();
    purges.sessions = stopped(&coordinators, || purge(installation, "everstep[.]sessions"))?;
    fleet.kill_coordinator()?;
    let ended: usize = installation.sql("SELECT count(*) FROM instance WHERE status <> 0")?.parse()?;
    if ended >= orders {
        bail!(
            "every order had ended before the disturbance was over: the load is too small to prove anything"
        );
    }
    Ok(purges)
}

/// Waits until the first instances run.
fn until_begun(installation: &Installation) -> Result<()> {
    let began = Instant::now();
    while installation.sql("SELECT count(*) FROM lease")?.parse::<usize>()? < 20 {
        if began.elapsed() > Duration::from_secs(30) {
            bail!("nothing runs after 30 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Stops processes while something is done.
fn stopped(processes: &[&Process], act: impl FnOnce() -> Result<u64>) -> Result<u64> {
    for process in processes {
        process.signal("STOP")?;
    }
    let done = act();
    for process in processes {
        process.signal("CONT")?;
    }
    done
}

fn purge(installation: &Installation, pattern: &str) -> Result<u64> {
    everstep_testbed::purge(|arguments| installation.ctl(arguments), installation.name(), pattern)
}
