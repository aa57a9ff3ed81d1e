//! Proves what is found in which facts, one fault at a time. Not: that the facts are right; see the HTTP tests and the store's
//! conformance.

use everstep_protocol::{BuildName, CoordinatorId, SessionId, message::OpenSession};
use everstep_store::{Present, Queue};

use super::*;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
const DUTIES: &[&str] = &["timers", "watch"];

fn ago(seconds: u64) -> Timestamp {
    NOW.minus(Millis::from_secs(seconds))
}

fn session(build: &str, heard: u64) -> Session {
    let workflow = "fulfil".parse().unwrap();
    let open = OpenSession {
        session: SessionId::generate(),
        namespace: Namespace::default(),
        workflows: vec![workflow],
        pinned: Vec::new(),
        pools: Vec::new(),
        functions: Vec::new(),
        build: BuildName::new(build).unwrap(),
        inbox: "inbox".to_owned(),
        slots: 1,
        instances: 1,
        host: "host".to_owned(),
    };
    Session { open, opened_at: ago(3_600), heard_at: ago(heard) }
}

fn coordinator(version: &str, clock_offset: i64) -> Present {
    let (id, version) = (CoordinatorId::generate(), version.to_owned());
    Present { id, version, heard_at: ago(3), clock_offset: Some(clock_offset) }
}

fn depth(queue: &str, rows: u64, oldest: u64) -> Depth {
    let queue = Queue::Run(Namespace::default(), queue.parse().unwrap());
    Depth { queue, rows, oldest: Millis::from_secs(oldest) }
}

/// An installation in which all is well.
fn well() -> Facts {
    let checkup = Checkup {
        now: NOW,
        schema: 1,
        schema_known: 1,
        duties: DUTIES.iter().map(|name| ((*name).to_owned(), NOW.plus(Millis(2_000)))).collect(),
        overdue: Some((1, ago(1))),
        oldest_letter: Some(ago(1)),
        oldest_outbox: Some(ago(1)),
        coordinators: vec![coordinator("1.0.0", 20_000), coordinator("1.0.0", -20_000)],
        ..Checkup::default()
    };
    let store = StoreFacts {
        checkup,
        sessions: vec![session("b1", 1)],
        depths: vec![depth("fulfil", 3, 2)],
        ..StoreFacts::default()
    };
    Facts {
        store: Ok(store),
        broker: None,
        blocked: false,
        drift: Some(Vec::new()),
        still: Vec::new(),
        stopped: Vec::new(),
        served: ["workflow fulfil".to_owned()].into(),
        duties: DUTIES,
        heartbeat: Millis(2_000),
        lease: Millis(10_000),
    }
}

#[test]
fn an_installation_that_is_well_has_no_findings() {
    let diagnosis = diagnose(&well());
    assert_eq!(diagnosis, Diagnosis { findings: Vec::new(), unknown: BTreeSet::new() });
}

/// The one finding after a change of the facts: check, severity, subject, and that it says this.
fn found(change: impl FnOnce(&mut Facts, &mut StoreFacts), expect: (Check, Severity, &str, &str)) {
    let mut facts = well();
    let mut store = facts.store.clone().unwrap();
    change(&mut facts, &mut store);
    facts.store = Ok(store);
    let findings = diagnose(&facts).findings;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let Finding { check, severity, subject, message, advice } = &findings[0];
    assert_eq!((*check, *severity, subject.as_str()), (expect.0, expect.1, expect.2));
    assert!(message.contains(expect.3), "{message}");
    assert!(!advice.is_empty());
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(check.page());
    assert!(page.is_file(), "{} is a page", page.display());
}

#[test]
fn each_fault_is_found_and_named() {
    use Severity::{Critical, Note, Warning};
    found(
        |facts, _| facts.broker = Some("refused".to_owned()),
        (Check::Broker, Critical, "broker", "refused"),
    );
    found(|facts, _| facts.blocked = true, (Check::Broker, Critical, "broker", "alarm"));
    let drift = || Drift { name: "everstep.sessions".to_owned(), reason: "other arguments".to_owned() };
    found(
        |facts, _| facts.drift = Some(vec![drift()]),
        (Check::Topology, Warning, "everstep.sessions", "other arguments"),
    );
    found(
        |_, store| assert!(store.checkup.duties.insert("watch".to_owned(), ago(11)).is_some()),
        (Check::Duties, Critical, "watch", "no coordinator"),
    );
    found(
        |_, store| assert!(store.checkup.duties.remove("timers").is_some()),
        (Check::Duties, Critical, "timers", "no coordinator"),
    );
    found(
        |_, store| store.checkup.overdue = Some((7, ago(180))),
        (Check::Timers, Critical, "timers", "7 waits are due and were not found, the oldest for 3 min"),
    );
    found(
        |_, store| store.checkup.oldest_letter = Some(ago(61)),
        (Check::Letters, Warning, "letters", "61 s"),
    );
    found(
        |_, store| store.checkup.oldest_outbox = Some(ago(61)),
        (Check::Lifecycles, Warning, "outbox", "61 s"),
    );
    found(|_, store| store.orphans = true, (Check::Leases, Note, "leases", "ended session"));
    found(|_, store| store.sessions = vec![session("b1", 7)], (Check::Sessions, Warning, "host", "7 s"));
    found(
        |facts, _| facts.still = vec!["host:1".to_owned()],
        (Check::Sessions, Warning, "host:1", "stands still"),
    );
    found(|_, store| store.sessions = Vec::new(), (Check::Sessions, Note, "workers", "no worker"));
    found(
        |_, store| store.depths.push(depth("ghost", 4, 61)),
        (Check::Queues, Critical, "workflow ghost", "4 are ready"),
    );
    found(
        |_, store| store.depths = vec![depth("fulfil", 4, 301)],
        (Check::Queues, Warning, "workflow fulfil", "do not keep up"),
    );
    found(
        |_, store| store.checkup.coordinators.push(coordinator("1.1.0", 0)),
        (Check::Versions, Warning, "coordinators", "1.0.0, 1.1.0"),
    );
    found(|_, store| store.checkup.schema = 2, (Check::Versions, Warning, "schema", "version 2"));
    found(
        |_, store| store.sessions.push(session("b2", 1)),
        (Check::Versions, Note, "workflow fulfil in default", "b1, b2"),
    );
    let late = coordinator("1.0.0", 3_000_000);
    let id = late.id.to_string();
    found(
        |_, store| store.checkup.coordinators.push(late),
        (Check::Clock, Warning, &id, "3 s behind the database's"),
    );
    let open = |by_age| vec![AttentionCount { kind: "poison".to_owned(), by_age }];
    found(|_, store| store.attention = open([1, 0, 0]), (Check::Attention, Note, "poison", "1 wait for"));
    found(|_, store| store.attention = open([1, 0, 2]), (Check::Attention, Warning, "poison", "2 for more"));
    found(
        |_, store| store.checkup.breaches = vec![("idle".to_owned(), 2)],
        (Check::Breaches, Warning, "idle", "mend 2 open instances"),
    );
    found(
        |facts, _| facts.stopped = vec![Namespace::default()],
        (Check::Intake, Critical, "default", "bound"),
    );
    found(
        |_, store| store.checkup.rejected = vec![("name".to_owned(), 5)],
        (Check::Rejected, Warning, "name", "5 messages"),
    );
}

#[test]
fn what_cannot_be_looked_at_is_not_said_to_be_well() {
    let facts = Facts { store: Err("timed out".to_owned()), drift: None, ..well() };
    let diagnosis = diagnose(&facts);
    assert_eq!(diagnosis.findings.len(), 1);
    assert_eq!(
        (diagnosis.findings[0].check, diagnosis.findings[0].severity),
        (Check::Store, Severity::Critical)
    );
    assert!(diagnosis.unknown.contains(&Check::Timers) && diagnosis.unknown.contains(&Check::Topology));
    assert!(!diagnosis.unknown.contains(&Check::Broker) && !diagnosis.unknown.contains(&Check::Intake));
}

#[test]
fn the_worst_comes_first() {
    let facts = Facts { still: vec!["h".to_owned()], stopped: vec![Namespace::default()], ..well() };
    let severities: Vec<_> = diagnose(&facts).findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning]);
}
