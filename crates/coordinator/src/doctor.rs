//! What the doctor makes of what it is told (`handle/doctor.rs` asks): findings, each with what it means and what to do. Pure: the
//! same facts, the same findings.

use std::collections::{BTreeMap, BTreeSet};

use everstep_broker::Drift;
use everstep_protocol::{Millis, Namespace, Timestamp};
use everstep_store::{AttentionCount, Checkup, Depth, Session};

/// How bad a finding is. A note alone is no reason to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Work stands still, or will.
    Critical,
    /// Something does not go as it should.
    Warning,
    /// Good to know.
    Note,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// Whether the store answers.
    Store,
    /// Whether the broker takes and brings messages.
    Broker,
    /// Whether queues and exchanges are as the code declares them.
    Topology,
    /// Whether somebody has each duty.
    Duties,
    /// Whether due waits are found in time.
    Timers,
    /// Whether letters between instances are taken.
    Letters,
    /// Whether lifecycle messages are confirmed.
    Lifecycles,
    /// Whether leases of ended sessions are handed on.
    Leases,
    /// Whether worker processes are heard, and turn.
    Sessions,
    /// Whether what is ready gets a worker.
    Queues,
    /// Whether all run the same versions.
    Versions,
    /// Whether clocks agree.
    Clock,
    /// What waits for people.
    Attention,
    /// Whether the auditor had to mend instances.
    Breaches,
    /// Whether starts are taken in.
    Intake,
    /// Whether messages were rejected lately.
    Rejected,
}

everstep_protocol::every! {
    /// Every check, in the order of the report.
    pub Check: Store, Broker, Topology, Duties, Timers, Letters, Lifecycles, Leases, Sessions, Queues, Versions, Clock, Attention,
        Breaches, Intake, Rejected
}

impl Severity {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

impl Check {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Broker => "broker",
            Self::Topology => "topology",
            Self::Duties => "duties",
            Self::Timers => "timers",
            Self::Letters => "letters",
            Self::Lifecycles => "lifecycles",
            Self::Leases => "leases",
            Self::Sessions => "sessions",
            Self::Queues => "queues",
            Self::Versions => "versions",
            Self::Clock => "clock",
            Self::Attention => "attention",
            Self::Breaches => "breaches",
            Self::Intake => "intake",
            Self::Rejected => "rejected",
        }
    }

    /// Where people read more.
    #[must_use]
    pub const fn page(self) -> &'static str {
        match self {
            Self::Store => "docs/operations/runbooks/EverstepDatabaseAway.md",
            Self::Broker => "docs/operations/runbooks/EverstepBrokerAway.md",
            Self::Topology => "docs/topology.md",
            Self::Duties => "docs/operations/runbooks/EverstepDutyUnheld.md",
            Self::Timers => "docs/operations/runbooks/EverstepTimersLate.md",
            Self::Letters | Self::Clock | Self::Leases => "docs/operations/failures.md",
            Self::Lifecycles => "docs/operations/runbooks/EverstepLifecyclesUnconfirmed.md",
            Self::Sessions => "docs/operations/runbooks/EverstepWorkLoopStuck.md",
            Self::Queues => "docs/operations/runbooks/EverstepUnserved.md",
            Self::Versions => "docs/operations/upgrade.md",
            Self::Attention => "docs/operations/runbooks/EverstepAttention.md",
            Self::Breaches => "docs/operations/runbooks/EverstepBreach.md",
            Self::Intake => "docs/operations/runbooks/EverstepIntakeStopped.md",
            Self::Rejected => "docs/operations/runbooks/EverstepMessagesRejected.md",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: String,
    /// What is wrong, and what that means.
    pub message: String,
    /// What to do.
    pub advice: &'static str,
}

/// What came of one look at an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unknown: BTreeSet<Check>,
}

/// What a coordinator knows of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFacts {
    pub(crate) checkup: Checkup,
    pub(crate) sessions: Vec<Session>,
    pub(crate) depths: Vec<Depth>,
    pub(crate) attention: Vec<AttentionCount>,
    pub(crate) orphans: bool,
}

/// All that is known.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Why, if the store did not answer.
    pub(crate) store: Result<StoreFacts, String>,
    /// Why the broker cannot be used, if it cannot.
    pub(crate) broker: Option<String>,
    pub(crate) blocked: bool,
    /// None if that could not be looked at.
    pub(crate) drift: Option<Vec<Drift>>,
    /// The queues that are served, as they are shown.
    pub(crate) served: BTreeSet<String>,
    /// Sessions whose work loop stands still, as far as this coordinator hears of them, with their hosts.
    pub(crate) still: Vec<String>,
    /// Namespaces whose starts are not taken in.
    pub(crate) stopped: Vec<Namespace>,
    pub(crate) duties: &'static [&'static str],
    pub(crate) heartbeat: Millis,
    pub(crate) lease: Millis,
}

/// A wait is found late when it is due for so long.
const LATE: Millis = Millis::from_secs(10);
/// Letters and lifecycle messages go within seconds.
const UNTAKEN: Millis = Millis::from_secs(60);
/// Something ready gets a worker within this.
const UNSERVED: Millis = Millis::from_secs(60);
/// So much waits in a queue that is served, and so long.
const BACKLOG: Millis = Millis::from_secs(300);
/// So long after a duty has run out nobody can be about to take it.
const UNHELD: Millis = Millis::from_secs(10);
/// Clocks that differ by more are worth a look, in microseconds.
const OFFSET: i64 = 1_000_000;
/// A coordinator that was not heard for so long has ended.
const GONE: Millis = Millis::from_secs(30);

/// Looks at all of it.
pub(crate) fn diagnose(facts: &Facts) -> Diagnosis {
    let mut book = Book::default();
    broker(facts, &mut book);
    match &facts.store {
        Ok(store) => of_store(facts, store, &mut book),
        Err(reason) => {
            book.find(
                (Check::Store, Severity::Critical),
                "store",
                format!(
                    "it does not answer: {reason}; nothing commits, what runs goes on and is reported later"
                ),
                "bring the database back; all goes on by itself then",
            );
            let blind = Check::ALL.into_iter().filter(|check| !SEEN_WITHOUT_STORE.contains(check));
            book.unknown.extend(blind);
        }
    }
    intake(facts, &mut book);
    book.findings.sort_by_key(|finding| (finding.severity, finding.check));
    Diagnosis { findings: book.findings, unknown: book.unknown }
}

/// What can be looked at while the store is away.
const SEEN_WITHOUT_STORE: [Check; 4] = [Check::Store, Check::Broker, Check::Topology, Check::Intake];

#[derive(Default)]
struct Book {
    findings: Vec<Finding>,
    unknown: BTreeSet<Check>,
}

impl Book {
    fn find(
        &mut self,
        (check, severity): (Check, Severity),
        subject: impl Into<String>,
        message: String,
        advice: &'static str,
    ) {
        self.findings.push(Finding { check, severity, subject: subject.into(), message, advice });
    }
}

fn of_store(facts: &Facts, store: &StoreFacts, book: &mut Book) {
    let Checkup { now, .. } = store.checkup;
    work(&store.checkup, book);
    duties(facts, &store.checkup, book);
    if store.orphans {
        book.find(
            (Check::Leases, Severity::Note),
            "leases",
            "an ended session still holds leases; they are handed on within seconds".to_owned(),
            "look again in some seconds; if it stays, see who has the duty watch",
        );
    }
    sessions(facts, store, now, book);
    queues(facts, &store.depths, book);
    versions(&store.checkup, &store.sessions, book);
    clocks(&store.checkup, book);
    attention(&store.attention, book);
    for (kind, count) in &store.checkup.breaches {
        book.find(
            (Check::Breaches, Severity::Warning),
            kind.as_str(),
            format!(
                "in the last day the auditor had to mend {count} open instances: {}",
                everstep_engine::breach::BreachKind::parse(kind).map_or("", |kind| kind.meaning())
            ),
            "list them with `everstep breaches`; rows are damaged, or this is a bug to report",
        );
    }
    for (code, count) in &store.checkup.rejected {
        book.find(
            (Check::Rejected, Severity::Warning),
            code.as_str(),
            format!("{count} messages of producers were rejected in the last hour; each is recorded, none was started"),
            "list them with `everstep rejected list`, and mend the producer",
        );
    }
}

fn broker(facts: &Facts, book: &mut Book) {
    if facts.blocked {
        book.find(
            (Check::Broker, Severity::Critical),
            "broker",
            "it takes no messages: an alarm for memory or disk; work waits, nothing is lost".to_owned(),
            "free memory or disk of the broker; all goes on by itself then",
        );
    } else if let Some(reason) = &facts.broker {
        book.find(
            (Check::Broker, Severity::Critical),
            "broker",
            format!("no connection: {reason}; running steps go on and are reported later"),
            "bring the broker back, or mend address, user and permissions",
        );
    }
    let Some(drift) = &facts.drift else {
        book.unknown.insert(Check::Topology);
        return;
    };
    for Drift { name, reason } in drift {
        book.find(
            (Check::Topology, Severity::Warning),
            name.as_str(),
            format!("it is not as the code declares it: {reason}"),
            "if messages in it may go, delete it in the broker, and it is declared again; else set what differs by a policy",
        );
    }
}

/// Whether what is to be done is done.
fn work(checkup: &Checkup, book: &mut Book) {
    let now = checkup.now;
    if let Some((count, oldest)) = checkup.overdue.filter(|(_, oldest)| now.since(*oldest) > LATE) {
        book.find(
            (Check::Timers, Severity::Critical),
            "timers",
            format!("{count} waits are due and were not found, the oldest for {}", span(now.since(oldest))),
            "see who has the duty timers, and whether commits are slow",
        );
    }
    if let Some(written) = checkup.oldest_letter.filter(|at| now.since(*at) > UNTAKEN) {
        book.find(
            (Check::Letters, Severity::Warning),
            "letters",
            format!("a letter between instances was not taken for {}", span(now.since(written))),
            "see the log of the coordinator that has the duty timers: it names letters that cannot be read",
        );
    }
    if let Some(written) = checkup.oldest_outbox.filter(|at| now.since(*at) > UNTAKEN) {
        book.find(
            (Check::Lifecycles, Severity::Warning),
            "outbox",
            format!("a lifecycle message was not confirmed by the broker for {}", span(now.since(written))),
            "look at the exchange everstep.lifecycle and the broker's alarms",
        );
    }
}

fn duties(facts: &Facts, checkup: &Checkup, book: &mut Book) {
    for name in facts.duties {
        let until = checkup.duties.get(*name).copied();
        if until.is_none_or(|until| checkup.now.since(until) > UNHELD) {
            book.find(
                (Check::Duties, Severity::Critical),
                *name,
                "no coordinator has this duty, so that what it does is not done".to_owned(),
                "look whether coordinators reach the database, and at their logs",
            );
        }
    }
}

fn sessions(facts: &Facts, store: &StoreFacts, now: Timestamp, book: &mut Book) {
    let silent_after = Millis(facts.heartbeat.0.saturating_mul(3));
    for session in &store.sessions {
        let silence = now.since(session.heard_at);
        if silence > silent_after {
            let (open, lease) = (&session.open, facts.lease);
            book.find(
                (Check::Sessions, Severity::Warning),
                open.host.clone(),
                format!(
                    "session {} of build {} was not heard for {}; after {} it ends, and its instances go to others",
                    open.session,
                    open.build,
                    span(silence),
                    span(lease)
                ),
                "if it comes again and again, look at that worker, its host and its way to the broker",
            );
        }
    }
    for host in &facts.still {
        book.find(
            (Check::Sessions, Severity::Warning),
            host.clone(),
            "the work loop of this worker stands still: user code blocks its thread".to_owned(),
            "its log names the body; move that code into a step",
        );
    }
    if store.sessions.is_empty() {
        book.find(
            (Check::Sessions, Severity::Note),
            "workers",
            "no worker has a session; what is started waits".to_owned(),
            "start a worker",
        );
    }
}

fn queues(facts: &Facts, depths: &[Depth], book: &mut Book) {
    for Depth { queue, rows, oldest } in depths.iter().filter(|depth| depth.rows > 0) {
        let name = queue.to_string();
        if !facts.served.contains(&name) {
            if *oldest > UNSERVED {
                book.find(
                    (Check::Queues, Severity::Critical),
                    name,
                    format!("{rows} are ready, the oldest for {}, and no worker serves them", span(*oldest)),
                    "start a worker that serves it, or terminate what nobody will run",
                );
            }
        } else if *oldest > BACKLOG {
            book.find(
                (Check::Queues, Severity::Warning),
                name,
                format!("{rows} are ready, the oldest for {}: its workers do not keep up", span(*oldest)),
                "start more workers, or give them more slots",
            );
        }
    }
}

fn versions(checkup: &Checkup, sessions: &[Session], book: &mut Book) {
    let live = checkup.coordinators.iter().filter(|one| checkup.now.since(one.heard_at) < GONE);
    let versions: BTreeSet<&str> = live.map(|one| one.version.as_str()).collect();
    if versions.len() > 1 {
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        book.find(
            (Check::Versions, Severity::Warning),
            "coordinators",
            format!("coordinators of different versions are live: {versions}"),
            "during a deploy this passes; else end those that should be gone",
        );
    }
    if checkup.schema != checkup.schema_known {
        let (is, known) = (checkup.schema, checkup.schema_known);
        book.find(
            (Check::Versions, Severity::Warning),
            "schema",
            format!("the schema has version {is}, this coordinator knows {known}"),
            "bring all coordinators to the version that has migrated the database",
        );
    }
    let mut builds: BTreeMap<(&Namespace, &str), BTreeSet<&str>> = BTreeMap::new();
    for open in sessions.iter().map(|session| &session.open) {
        for workflow in &open.workflows {
            builds.entry((&open.namespace, workflow.as_str())).or_default().insert(open.build.as_str());
        }
    }
    for ((namespace, workflow), builds) in builds.into_iter().filter(|(_, builds)| builds.len() > 1) {
        let builds = builds.into_iter().collect::<Vec<_>>().join(", ");
        book.find(
            (Check::Versions, Severity::Note),
            format!("workflow {workflow} in {namespace}"),
            format!("workers of different builds serve it: {builds}"),
            "during a deploy this passes; see the guide to deploys for pins",
        );
    }
}

fn clocks(checkup: &Checkup, book: &mut Book) {
    for one in checkup.coordinators.iter().filter(|one| checkup.now.since(one.heard_at) < GONE) {
        let Some(offset) = one.clock_offset.filter(|offset| offset.abs() > OFFSET) else { continue };
        let way = if offset > 0 { "behind" } else { "ahead of" };
        let by = span(Millis(offset.unsigned_abs() / 1_000));
        book.find(
            (Check::Clock, Severity::Warning),
            one.id.to_string(),
            format!("the clock of this coordinator is {by} {way} the database's, which decides all timers"),
            "keep clocks in step: logs and certificates go by them",
        );
    }
}

fn attention(counts: &[AttentionCount], book: &mut Book) {
    for AttentionCount { kind, by_age: [hour, day, older] } in counts {
        let count = hour + day + older;
        if count == 0 {
            continue;
        }
        let (severity, since) = if *older > 0 {
            (Severity::Warning, format!(", {older} for more than a day"))
        } else {
            (Severity::Note, String::new())
        };
        book.find(
            (Check::Attention, severity),
            kind.as_str(),
            format!("{count} wait for a person{since}"),
            "list them with `everstep attention list`, and answer",
        );
    }
}

fn intake(facts: &Facts, book: &mut Book) {
    for namespace in &facts.stopped {
        book.find(
            (Check::Intake, Severity::Critical),
            namespace.as_str(),
            "starts and events of this namespace stay in their queue: records of rejected messages have reached the bound"
                .to_owned(),
            "stop the producer that sends them; raise coordinator.rejected_bytes, or delete records",
        );
    }
}

fn span(millis: Millis) -> String {
    let seconds = millis.as_u64() / 1_000;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests;
