//! The way of one process to the store, which all share. Whatever is committed is shown to the checkers.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use everstep_engine::{
    Status,
    account::Kept,
    batch::Loaded,
    bulk::{Bulk, Progress},
    hook::ReplyKey,
    rows::Needs,
    start::NameKey,
};
use everstep_protocol::{
    CoordinatorId, Incarnation, InstanceId, InstanceUid, Millis, Namespace, Run, SessionId, Timestamp, Token,
    journal::{Entry, Fact, Outcome},
    message::{OpenSession, Running},
};
use everstep_store::{
    AttentionCount, AttentionFilter, AttentionMark, AttentionView, Audits, BreachRow, BreachView, BulkRow,
    Bulks, Checkup, Cursor, Decide, Depth, Due, EndMark, EndPage, Ends, Error, ErrorKind, Filter, Heard,
    HookView, InstanceView, Instances, LedgerCall, LedgerSearch, Mail, Offers, OpenCount, Orphan, OutboxRow,
    Page, Present, Queue, Range, Records, Rejected, RejectedView, Replied, Schedule, Session, Sessions,
    StepOver, Views, Walked, sqlite::SqliteStore,
};

use everstep_engine::access::Asker;
use everstep_protocol::{AccessTokenId, ScheduleId, Scope};
use everstep_store::{AccessRow, AccessTokens, ActionFilter, ActionRow, Actions, NewAccess};
use everstep_store::{
    ChangeRow, Dated, Listed, ScheduleChange, ScheduleRow, ScheduleWrite, Schedules, Woken,
};

use crate::{
    check::{Commit, Seen, Watchers},
    clock::Clock,
    faults::{Faults, Kind},
    life::Life,
};

/// The store, with faults on the way to it.
#[derive(Debug)]
pub(crate) struct FaultyStore {
    pub(crate) inner: Arc<SqliteStore>,
    pub(crate) life: Arc<Life>,
    pub(crate) watchers: Watchers,
    pub(crate) clock: Clock,
}

impl FaultyStore {
    /// One call: the process may die before and after, the store may be away, refuse, or have its answer lost.
    async fn call<T>(
        &self,
        doing: &'static str,
        call: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        let faults = &self.life.faults;
        self.life.passes(doing).await;
        self.takes_its_time().await;
        if faults.is_store_away() {
            let millis = faults.draw(|draws| draws.between(1, 300));
            tokio::time::sleep(Duration::from_millis(millis)).await;
            return Err(unavailable(doing, "the store is away"));
        }
        if faults.comes(Kind::Refuse) {
            return Err(unavailable(doing, "the store refused"));
        }
        let answer = call.await;
        self.life.passes("after the store has answered").await;
        self.takes_its_time().await;
        if faults.comes(Kind::AnswerLost) {
            self.life.note(format_args!("never hears of {doing}"));
            return Err(unavailable(doing, "the answer was lost"));
        }
        answer
    }

    fn hears(&self, session: SessionId) {
        self.watchers.see(&Seen::Heard { session, at: self.clock.now() });
    }

    fn ends(&self, session: SessionId, early: bool) {
        let word = if early { "early" } else { "as silent" };
        self.life.note(format_args!("ends session {} {word}", Short(InstanceUid(session.0))));
        self.watchers.see(&Seen::SessionEnded { session, at: self.clock.now(), early });
    }

    async fn takes_its_time(&self) {
        if self.life.faults.comes(Kind::Slow) {
            let millis = self.life.faults.draw(|draws| {
                if draws.once_in(50) { draws.between(100, 4_000) } else { draws.between(1, 30) }
            });
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
    }
}

fn unavailable(doing: &'static str, reason: &str) -> Error {
    Error::new(ErrorKind::Unavailable, doing, reason)
}

/// Some heads are locked by another transaction.
fn lock_some(faults: &Faults, loaded: &mut Loaded) {
    let mut heads: Vec<_> = loaded.heads.keys().copied().collect();
    heads.sort_unstable();
    for uid in heads {
        if faults.comes(Kind::Elsewhere) {
            loaded.heads.remove(&uid);
            loaded.elsewhere.insert(uid);
        }
    }
}

#[async_trait]
impl Instances for FaultyStore {
    async fn incarnation(&self) -> Result<Incarnation, Error> {
        self.call("reading the incarnation", self.inner.incarnation()).await
    }

    async fn transact(&self, needs: Needs, decide: Decide) -> Result<Vec<StepOver>, Error> {
        let staged = Arc::new(Mutex::new(None));
        let (stage, faults) = (staged.clone(), self.life.faults.clone());
        let decide: Decide = Box::new(move |mut loaded| {
            lock_some(&faults, &mut loaded);
            let mut commit = Commit::before(&loaded);
            let writes = decide(loaded);
            commit.writes = writes.clone();
            *stage.lock().unwrap_or_else(PoisonError::into_inner) = Some(commit);
            writes
        });
        let commits = async {
            let over = self.inner.transact(needs, decide).await.inspect_err(|error| {
                if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Corrupt) {
                    self.watchers.see(&Seen::Unwritable { reason: &error.to_string() });
                }
            })?;
            let commit = staged.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(commit) = commit.filter(|commit| !commit.writes.is_empty()) {
                self.life.note(format_args!("{}", Written(&commit)));
                self.watchers.see(&Seen::Committed(&commit));
            }
            Ok(over)
        };
        self.call("a transaction", commits).await
    }

    async fn journal(&self, ranges: Vec<Range>, bytes_max: usize) -> Result<Vec<Vec<Entry>>, Error> {
        self.call("reading journals", self.inner.journal(ranges, bytes_max)).await
    }

    async fn find(&self, name: &NameKey) -> Result<Option<InstanceUid>, Error> {
        self.call("finding an instance", self.inner.find(name)).await
    }
}

/// What a commit wrote, for the trace.
struct Written<'a>(&'a Commit);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = &self.0.writes;
        write!(f, "commits")?;
        for head in &writes.created {
            write!(f, " +{}/{}", head.workflow, head.id)?;
        }
        for row in &writes.journal {
            let call = row.entry.fact.call().map_or(String::new(), |call| format!(" {call}"));
            let (position, word) = (row.entry.position, outcome(&row.entry.fact));
            write!(f, " {}.{}.{position}:{word}{call}", Short(row.uid), row.run)?;
        }
        for (uid, subject, lease) in &writes.leases {
            let step = if subject.call().is_some() { " step" } else { "" };
            write!(
                f,
                " {}{step} leased to {} as {}",
                Short(*uid),
                Short(InstanceUid(lease.session.0)),
                lease.epoch
            )?;
        }
        for (uid, _) in &writes.lease_deletes {
            write!(f, " {} released", Short(*uid))?;
        }
        let (ready, waits) = (writes.ready.len(), writes.waits.len());
        write!(
            f,
            " ready +{ready}-{} waits +{waits}-{}",
            writes.ready_deletes.len(),
            writes.wait_deletes.len()
        )
    }
}

/// What an entry says, in a word.
fn outcome(fact: &Fact) -> &'static str {
    let Fact::Attempted(attempted) = fact else { return fact.word() };
    match &attempted.outcome {
        Outcome::Succeeded(_) => "succeeded",
        Outcome::Failed { retry_at: Some(_), .. } => "failed, goes on",
        Outcome::Failed { retry_at: None, .. } => "failed",
        Outcome::Unknown { asks: true, .. } => "unknown, asks",
        Outcome::Unknown { asks: false, .. } => "unknown",
    }
}

/// The end of an id, which is the part that differs.
struct Short(InstanceUid);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        f.write_str(&text[text.len() - 6..])
    }
}

/// Hands these calls on, each with the faults of every call.
macro_rules! handed_on {
    ($port:ident { $($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* } $(also { $($more:tt)* })?) => {
        #[async_trait]
        impl $port for FaultyStore {
            $(async fn $name(&self, $($arg: $type),*) -> Result<$answer, Error> {
                self.call(stringify!($name), self.inner.$name($($arg),*)).await
            })*
            $($($more)*)?
        }
    };
}

handed_on!(Sessions {
    sessions() -> Vec<Session>;
    silent(lease: Millis) -> Vec<SessionId>;
    observed(sessions: &[SessionId], lease: Millis) -> Vec<SessionId>;
    heard_since(sessions: &[SessionId], since: Timestamp) -> Vec<SessionId>;
    keep_progress(session: SessionId, progress: &[Running]) -> ();
    kept_progress(sessions: &[SessionId]) -> HashMap<SessionId, Vec<Running>>;
    orphans(limit: u32) -> Vec<Orphan>;
    end_all_sessions() -> ();
} also {
    async fn open_session(&self, open: &OpenSession) -> Result<bool, Error> {
        let opens = async {
            let is_open = self.inner.open_session(open).await?;
            if is_open {
                self.hears(open.session);
            }
            Ok(is_open)
        };
        self.call("opening a session", opens).await
    }

    async fn heard(&self, heard: &[Heard]) -> Result<Vec<Option<Vec<Kept>>>, Error> {
        let noting = async {
            let kept = self.inner.heard(heard).await?;
            for (heard, _) in heard.iter().zip(&kept).filter(|(_, kept)| kept.is_some()) {
                self.hears(heard.session);
            }
            Ok(kept)
        };
        self.call("noting heartbeats", noting).await
    }

    async fn beat(&self, coordinator: CoordinatorId, gap: Millis) -> Result<(), Error> {
        let beats = async {
            self.inner.beat(coordinator, gap).await?;
            self.watchers.see(&Seen::Beat { at: self.clock.now() });
            Ok(())
        };
        self.call("noting a coordinator's heartbeat", beats).await
    }

    async fn end_session(&self, session: SessionId, counts: bool) -> Result<(), Error> {
        let ends = async {
            self.inner.end_session(session, counts).await?;
            self.watchers.see(&Seen::Goodbye { session });
            Ok(())
        };
        self.call("ending a session", ends).await
    }

    async fn end_silent(&self, session: SessionId, lease: Millis) -> Result<bool, Error> {
        let ends = async {
            let is_ended = self.inner.end_silent(session, lease).await?;
            if is_ended {
                self.ends(session, false);
            }
            Ok(is_ended)
        };
        self.call("ending a session", ends).await
    }

    async fn end_unreachable(&self, session: SessionId, inbox: &str, lease: Millis) -> Result<bool, Error> {
        let ends = async {
            let is_ended = self.inner.end_unreachable(session, inbox, lease).await?;
            if is_ended {
                self.ends(session, true);
            }
            Ok(is_ended)
        };
        self.call("ending a session", ends).await
    }
});

handed_on!(Schedule {
    due(mark: Option<Timestamp>, limit: u32) -> Due;
    overdue(limit: u32) -> Vec<InstanceUid>;
    letters(after: u64, limit: u32) -> Mail;
    expired(limit: u32) -> Vec<InstanceUid>;
    offer(queues: &[Queue], window: u32, again: Millis) -> Offers;
    backlog(queues: &[Queue], window: u32, again: Millis) -> Vec<Queue>;
    unserved(served: &[Queue], limit: u32) -> Vec<(Queue, u64)>;
    depths(queues: &[Queue], others: u32) -> Vec<Depth>;
    duties(coordinator: CoordinatorId, names: &[&'static str], ttl: Millis) -> Vec<&'static str>;
    release_duties(coordinator: CoordinatorId) -> ();
});

handed_on!(Records {
    outbox(older: Millis, limit: u32) -> Vec<OutboxRow>;
    sent(rows: &[(InstanceUid, Run)]) -> ();
    reject(rejected: &[Rejected]) -> ();
    rejected_bytes(namespaces: &[Namespace]) -> Vec<u64>;
    sweep(limit: u32) -> u64;
    clean(limit: u32) -> u64;
});

handed_on!(Bulks {
    begin_bulk(namespace: &Namespace, id: &InstanceId, bulk: &Bulk, by: &Asker) -> BulkRow;
    bulk(namespace: &Namespace, id: &InstanceId) -> Option<BulkRow>;
    bulks(namespace: &Namespace, limit: u32) -> Vec<BulkRow>;
    running_bulks(limit: u32) -> Vec<BulkRow>;
    advance_bulk(row: &BulkRow, progress: &Progress, next: Option<Cursor>) -> bool;
    stop_bulk(namespace: &Namespace, id: &InstanceId, by: &Asker) -> Option<BulkRow>;
});

handed_on!(Schedules {
    schedule(namespace: &Namespace, id: &ScheduleId) -> Dated<Option<ScheduleRow>>;
    schedules(namespace: &Namespace, after: Option<&ScheduleId>, limit: u32) -> Listed;
    woken_schedules(limit: u32) -> Woken;
    schedule_changes(namespace: &Namespace, id: &ScheduleId, limit: u32) -> Vec<ChangeRow>;
} also {
    async fn settle_schedules(&self, writes: &[ScheduleWrite]) -> Result<Vec<bool>, Error> {
        let settles = async {
            let written = self.inner.settle_schedules(writes).await?;
            for (write, _) in writes.iter().zip(&written).filter(|(_, written)| **written) {
                self.life.note(format_args!("settles schedule {} up to {}", write.id, write.turn.state.settled));
                self.watchers.see(&Seen::Settled(write));
            }
            Ok(written)
        };
        self.call("settling schedules", settles).await
    }

    async fn change_schedule(&self, change: &ScheduleChange) -> Result<bool, Error> {
        let changes = async {
            let written = self.inner.change_schedule(change).await?;
            if written {
                self.life.note(format_args!("{} of schedule {}", change.action.operation, change.id));
                self.watchers.see(&Seen::Changed(change));
            }
            Ok(written)
        };
        self.call("changing a schedule", changes).await
    }
});

handed_on!(AccessTokens {
    create_access_token(new: &NewAccess, by: &Asker) -> AccessRow;
    access_token(id: AccessTokenId) -> Dated<Option<AccessRow>>;
    access_tokens(within: &Scope, before: Option<AccessTokenId>, limit: u32) -> Dated<Vec<AccessRow>>;
    revoke_access_token(within: &Scope, id: AccessTokenId, by: &Asker) -> Option<AccessRow>;
    used_access_token(id: AccessTokenId) -> ();
});

handed_on!(Actions {
    actions(filter: &ActionFilter, below: Option<u64>, limit: u32) -> Vec<ActionRow>;
});

handed_on!(Audits {
    suspects(after: Option<InstanceUid>, limit: u32) -> Walked;
    breaches(namespace: &Namespace, limit: u32) -> Vec<BreachView>;
    present(present: &Present) -> Timestamp;
    checkup() -> Checkup;
} also {
    /// Nothing damages rows here: whatever the auditor finds the engine has done.
    async fn keep_breaches(&self, found: &[BreachRow]) -> Result<(), Error> {
        if let Some(row) = found.first() {
            let (name, kind) = (&row.name, row.kind.word());
            self.watchers.breach("auditor", format!("{}/{}: {kind}: {}", name.workflow, name.id, row.message));
        }
        self.call("recording breaches", self.inner.keep_breaches(found)).await
    }
});

handed_on!(Views {
    instance(name: &NameKey) -> Option<InstanceView>;
    status(name: &NameKey) -> Option<Status>;
    instances(filter: &Filter, cursor: Option<&Cursor>, limit: u32) -> Page;
    ends(ends: &Ends, after: &EndMark, limit: u32) -> EndPage;
    ends_now() -> EndMark;
    hook(namespace: &Namespace, token: &Token) -> Option<HookView>;
    reply(to: &ReplyKey) -> Replied;
    hooks(namespace: &Namespace, after: Option<&Token>, limit: u32) -> Vec<HookView>;
    attention(filter: &AttentionFilter, after: Option<&AttentionMark>, limit: u32) -> Vec<AttentionView>;
    attention_counts() -> Vec<AttentionCount>;
    ledger(search: &LedgerSearch, limit: u32) -> Vec<LedgerCall>;
    open_counts() -> Vec<OpenCount>;
    rejected(namespace: &Namespace, limit: u32) -> Vec<RejectedView>;
});

#[cfg(test)]
mod tests {
    //! Proves that a coordinator answers when something is committed, and not before. Not: what is committed.
    use everstep_broker::MemoryBroker;
    use everstep_coordinator::{Coordinator, Settings, StartRequest};
    use everstep_protocol::{
        Payload,
        start::{Retention, StartOutcome},
    };
    use everstep_store::Store;

    use super::*;
    use crate::{chance::Ids, faults::Rates, trace::Trace, workload::name};

    fn start(name: NameKey) -> StartRequest {
        StartRequest {
            namespace: name.namespace,
            workflow: name.workflow,
            id: Some(name.id),
            input: Payload::null(),
            retention: Retention::default(),
            pin: None,
            strict: None,
            attributes: Vec::new(),
            hook: None,
            message: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_answered_is_committed_however_often_the_store_refuses() {
        let clock = Clock::new();
        let time = clock.clone();
        let inner = SqliteStore::in_memory(Arc::new(move || time.store_time()), Arc::new(|| ()));
        let inner = Arc::new(inner.expect("it opens"));
        let faults = Arc::new(Faults::new(1, Rates::only(Kind::Refuse, 500_000)));
        let trace = Trace::new(clock.clone(), false);
        let life = Arc::new(Life::new("coordinator".to_owned(), false, faults, trace));
        let watchers = Watchers::new();
        let store: Arc<dyn Store> =
            Arc::new(FaultyStore { inner: inner.clone(), life, watchers, clock: clock.clone() });
        let broker = Arc::new(MemoryBroker::new().connection());
        let ids = Arc::new(Ids::new(1, clock));
        let coordinator = loop {
            let settings = Settings::default();
            let made = Coordinator::with_chance(store.clone(), broker.clone(), settings, ids.clone()).await;
            if let Ok(coordinator) = made {
                break coordinator;
            }
        };
        let desk = coordinator.handle();
        let running = tokio::spawn(coordinator.run(std::future::pending()));
        for number in 0..10 {
            let name = name(&format!("i{number}"));
            let reply = desk.start(start(name.clone())).await.expect("it is decided");
            assert_eq!(reply.outcome, StartOutcome::Created);
            assert!(inner.find(&name).await.expect("it is looked up").is_some(), "{} is there", name.id);
        }
        running.abort();
    }
}
