//! The threads that own the connections. Work comes to them as closures and answers go back through channels, so that
//! no async task ever waits on a disk.
//!
//! The writer runs the jobs that are waiting in one transaction, each in a savepoint of its own, and answers after the
//! commit: what waited together costs one `fsync`. A panic inside a job refuses that job; the thread lives on.
//!
//! A store in memory has no disk to wait for: its jobs run at once, on the thread that asks, so that a clock which somebody
//! else keeps cannot move on while a thread works.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

use everstep_protocol::Timestamp;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    clock::Clock,
    fault::{Fault, Result},
};
use crate::{Error, ErrorKind};

/// How many jobs share a transaction at most; bounds how long the first of them waits for the last.
const GROUP_MAX: usize = 32;

/// A thread and the way to it. Dropping it lets the jobs that were sent finish, and waits for them.
pub(super) struct Thread<J> {
    jobs: Option<mpsc::Sender<J>>,
    handle: Option<JoinHandle<()>>,
}

impl<J: Send + 'static> Thread<J> {
    fn spawn(name: &str, run: impl FnOnce(mpsc::Receiver<J>) + Send + 'static) -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let handle = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(receiver))?;
        Ok(Self { jobs: Some(sender), handle: Some(handle) })
    }

    fn send(&self, job: J) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl<J> fmt::Debug for Thread<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.handle.as_ref().and_then(|handle| handle.thread().name());
        f.debug_tuple("Thread").field(&name).finish()
    }
}

impl<J> Drop for Thread<J> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(handle) = self.handle.take()
            // The last owner of the store may be a closure that this very thread has just run.
            && handle.thread().id() != std::thread::current().id()
            && handle.join().is_err()
        {
            tracing::error!("a thread of the embedded store panicked");
        }
    }
}

fn gone(doing: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, doing, "the store's thread has ended")
}

fn panicked() -> Fault {
    Fault::Said(Error::new(ErrorKind::Refused, "working on a batch", "it panicked"))
}

fn caught<T>(doing: &'static str, work: impl FnOnce() -> Result<T>) -> std::result::Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(panicked()))
        .map_err(|fault| fault.into_error(doing))
}

pub(super) type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The one connection of a store in memory.
#[derive(Clone, Debug)]
pub(super) struct Only(Arc<Mutex<Connection>>);

impl Only {
    pub(super) fn new(connection: Connection) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads, on a connection of their own, beside the writer.
#[derive(Debug)]
pub(super) enum Reader {
    Thread(Thread<Read>),
    Here(Only),
}

impl Reader {
    pub(super) fn spawn(name: &str, connection: Connection) -> std::io::Result<Self> {
        let thread = Thread::spawn(name, move |jobs: mpsc::Receiver<Read>| {
            for job in jobs {
                job(&connection);
            }
        })?;
        Ok(Self::Thread(thread))
    }

    /// Reads one state of the database, however many statements it takes.
    pub(super) async fn read<T, F>(&self, doing: &'static str, work: F) -> std::result::Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T> + Send + 'static,
    {
        let thread = match self {
            Self::Thread(thread) => thread,
            // Nobody else can write in between.
            Self::Here(only) => {
                let connection = only.lock();
                return caught(doing, || work(&connection));
            }
        };
        let (reply, answer) = oneshot::channel();
        let job = move |connection: &Connection| {
            let result = caught(doing, || {
                run(connection, "BEGIN")?;
                work(connection)
            });
            end(connection, "COMMIT");
            // Whoever asked may have gone; then nobody wants the answer.
            let _ = reply.send(result);
        };
        if !thread.send(Box::new(job)) {
            return Err(gone(doing));
        }
        answer.await.map_err(|_| gone(doing))?
    }
}

/// Is told of every write that was answered.
pub type CommitListener = Arc<dyn Fn() + Send + Sync>;

/// The one writer.
pub(super) enum Writer {
    Thread(Thread<Box<dyn Job>>),
    Here { only: Only, clock: Arc<Clock>, committed: CommitListener },
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => thread.fmt(f),
            Self::Here { .. } => f.write_str("Here"),
        }
    }
}

/// A job of the writer.
pub(super) trait Job: Send {
    /// Does it; whether it is to be committed.
    fn run(&mut self, connection: &Connection, now: Timestamp) -> bool;
    /// Answers; the error says that what it wrote was not committed after all.
    fn answer(self: Box<Self>, lost: Option<&Error>);
}

struct Work<T, F> {
    doing: &'static str,
    todo: Option<F>,
    result: Option<std::result::Result<T, Error>>,
    reply: oneshot::Sender<std::result::Result<T, Error>>,
}

impl<T, F> Job for Work<T, F>
where
    T: Send,
    F: FnOnce(&Connection, Timestamp) -> Result<T> + Send,
{
    fn run(&mut self, connection: &Connection, now: Timestamp) -> bool {
        let Some(work) = self.todo.take() else {
            return false;
        };
        let result = caught(self.doing, || work(connection, now));
        let done = result.is_ok();
        self.result = Some(result);
        done
    }

    fn answer(self: Box<Self>, lost: Option<&Error>) {
        let result = match (self.result, lost) {
            (Some(Ok(_)) | None, Some(error)) => Err(Error::new(error.kind, self.doing, &error.reason)),
            (Some(result), _) => result,
            (None, None) => Err(gone(self.doing)),
        };
        let _ = self.reply.send(result);
    }
}

impl Writer {
    pub(super) fn spawn(connection: Connection, clock: Arc<Clock>) -> std::io::Result<Self> {
        let thread = Thread::spawn("everstep-store", move |jobs: mpsc::Receiver<Box<dyn Job>>| {
            let mut group = Vec::with_capacity(GROUP_MAX);
            while let Ok(first) = jobs.recv() {
                group.push(first);
                group.extend(jobs.try_iter().take(GROUP_MAX - 1));
                let lost = transaction(&connection, &clock, &mut group).err();
                let lost = lost.map(|fault| fault.into_error("committing"));
                for job in group.drain(..) {
                    job.answer(lost.as_ref());
                }
            }
        })?;
        Ok(Self::Thread(thread))
    }

    /// Does something in a transaction, and answers after its commit. A failed job leaves nothing behind.
    pub(super) async fn write<T, F>(&self, doing: &'static str, work: F) -> std::result::Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, Timestamp) -> Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Box<dyn Job> = Box::new(Work { doing, todo: Some(work), result: None, reply });
        match self {
            Self::Thread(thread) => {
                if !thread.send(job) {
                    return Err(gone(doing));
                }
            }
            Self::Here { only, clock, committed } => {
                let mut group = [job];
                let lost = transaction(&only.lock(), clock, &mut group).err();
                let lost = lost.map(|fault| fault.into_error("committing"));
                for job in group {
                    job.answer(lost.as_ref());
                }
                committed();
            }
        }
        answer.await.map_err(|_| gone(doing))?
    }
}

fn transaction(connection: &Connection, clock: &Clock, group: &mut [Box<dyn Job>]) -> Result<()> {
    let result = attempt(connection, clock, group);
    if result.is_err() {
        end(connection, "ROLLBACK");
    }
    result
}

fn attempt(connection: &Connection, clock: &Clock, group: &mut [Box<dyn Job>]) -> Result<()> {
    run(connection, "BEGIN IMMEDIATE")?;
    let before = connection.total_changes();
    if let [only] = group {
        if !only.run(connection, clock.now()) {
            end(connection, "ROLLBACK");
            return Ok(());
        }
    } else {
        for job in group {
            run(connection, "SAVEPOINT job")?;
            if !job.run(connection, clock.now()) {
                // After some errors, a full disk for one, all of the transaction is gone by itself, and this fails.
                run(connection, "ROLLBACK TO job")?;
            }
            run(connection, "RELEASE job")?;
        }
    }
    if connection.total_changes() != before {
        let mut last =
            connection.prepare_cached("UPDATE installation SET last_at = ?1 WHERE last_at < ?1")?;
        last.execute([clock.now().0])?;
    }
    run(connection, "COMMIT")
}

fn run(connection: &Connection, statement: &str) -> Result<()> {
    connection.prepare_cached(statement)?.execute([])?;
    Ok(())
}

/// Ends a transaction if there still is one.
fn end(connection: &Connection, statement: &str) {
    if !connection.is_autocommit()
        && let Err(Fault::Sql(error)) = run(connection, statement)
    {
        tracing::error!(%error, "the embedded store could not end a transaction");
    }
}
