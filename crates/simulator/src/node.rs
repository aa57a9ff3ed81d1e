//! One simulated process: a runtime of its own, on the one thread of the run, with a clock of its own that runs only while the
//! process does.
//!
//! The world gives each process its turn: it runs until there is nothing left for it to do before the end of the turn. A process that
//! crashes is dropped with all its tasks; one that is frozen gets no turns, and on its thaw its clock jumps to what it is by then,
//! as that of a stopped process does.

use std::{fmt, sync::Arc, time::Duration};

use everstep_broker::{Broker, MemoryBroker};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::Instant,
};

use crate::life::Life;

/// What a process is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Coordinator,
    /// Hosts workflows, and the steps of a pool.
    Worker,
    /// Runs the steps of a pool alone.
    Pool,
    /// Producers and a person: not under test, so they never crash.
    Outside,
}

/// What a process does, until it ends by itself: in words why.
pub(crate) type Main = BoxFuture<'static, Result<(), String>>;

/// A process that runs.
pub(crate) struct Process {
    // Dropped first: the runtime with all tasks.
    runtime: Runtime,
    main: JoinHandle<Result<(), String>>,
    pub(crate) life: Arc<Life>,
    pub(crate) connection: MemoryBroker,
    /// How far its own clock has come.
    target: Instant,
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    GoesOn,
    /// It has crashed.
    Died,
    /// It has ended by itself, for this reason.
    Ended(String),
    /// It panicked, which nothing may cause.
    Panicked(String),
}

impl Process {
    pub(crate) fn start(life: Arc<Life>, connection: MemoryBroker, main: Main) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (main, target) = {
            let _guard = runtime.enter();
            (runtime.spawn(main), Instant::now())
        };
        Ok(Self { runtime, main, life, connection, target })
    }

    /// Lets it run for so long by its own clock.
    pub(crate) fn turn(&mut self, own: Duration) -> Turn {
        self.target += own;
        let (runtime, target) = (&self.runtime, self.target);
        runtime.block_on(async { tokio::time::sleep_until(target).await });
        if self.life.is_over() {
            return Turn::Died;
        }
        if !self.main.is_finished() {
            return Turn::GoesOn;
        }
        match runtime.block_on(&mut self.main) {
            Ok(Ok(())) => Turn::Ended("as if told to".to_owned()),
            Ok(Err(reason)) => Turn::Ended(reason),
            Err(error) => Turn::Panicked(error.to_string()),
        }
    }

    /// It was frozen for so long: its clock jumps.
    pub(crate) fn thaw(&mut self, frozen: Duration) {
        self.target += frozen;
        self.runtime.block_on(tokio::time::advance(frozen));
    }

    /// Dies: the broker notices first, then everything is gone.
    pub(crate) fn bury(self) {
        // It never waits for anything.
        let _ = self.connection.close().now_or_never();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("life", &self.life).finish_non_exhaustive()
    }
}
