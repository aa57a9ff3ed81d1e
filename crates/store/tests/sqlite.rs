//! Proves what only the embedded store promises: one process at a time, a restart that goes on at once, a clock that
//! never goes back, and that whatever was answered survives a process that just stops. That it behaves like the other
//! store is proved by the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

#[path = "conformance/control.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod control;
#[path = "conformance/scene.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod scene;

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
};

use everstep_engine::{
    Answer, Batch, Input, What, Writes,
    access::Asker,
    batch::{Rules, Verdict},
    bulk::{Act, Bulk, Which},
    input,
    letter::{Address, Caller, NewLetter, Said},
    place::Room,
    rows::{Needs, Subject},
    start::{Decided, MessageKey, NameKey, Start},
};
use everstep_protocol::{
    Attempt, BuildName, Call, CallKind, CoordinatorId, Epoch, Fingerprint, InstanceUid, Millis, Namespace,
    Payload, Policy, Position, Run, Scope, SessionId, StepKey, WorkflowName,
    journal::{End, Entry},
    message::{AttemptEnd, AttemptOutcome, Open, OpenSession, OpenWait, Report, Then},
};
use everstep_store::{
    ActionFilter, Actions, BulkRow, Bulks, ErrorKind, Filter, Heard, Instances, Mail, MessageName, Queue,
    Range, Records, Rejected, Schedule, Sessions, StatusWord, Views, sqlite::SqliteStore,
};

fn new_file() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/down/everstep.db");
    (directory, path)
}

fn workflow() -> WorkflowName {
    WorkflowName::new("order").unwrap()
}

fn name(id: &str) -> NameKey {
    NameKey { namespace: Namespace::default(), workflow: workflow(), id: id.parse().unwrap() }
}

fn start(id: &str) -> (InstanceUid, Input) {
    let uid = InstanceUid::generate();
    let input = Payload::from_text(r#"{"n":1}"#).unwrap();
    let fingerprint = Fingerprint::of(&input).unwrap();
    (
        uid,
        Input::Start(Box::new(Start {
            uid,
            name: name(id),
            input,
            fingerprint,
            seed: [7; 32],
            retention: everstep_engine::retention::Own::default(),
            pin: None,
            strict: false,
            attributes: Vec::new(),
            message: None,
            letter: None,
            hook: None,
            trace: None,
        })),
    )
}

fn on(instance: InstanceUid, what: What) -> Input {
    Input::On { instance, what }
}

fn build() -> BuildName {
    BuildName::new("b1").unwrap()
}

fn call(kind: CallKind, name: &str) -> Call {
    Call { kind, name: name.parse().unwrap(), count: 1 }
}

fn report(instance: InstanceUid, epoch: u64, number: u64, seen: u64, then: Then) -> Report {
    Report {
        instance,
        epoch: Epoch(epoch),
        number,
        seen: Position(seen),
        results: Vec::new(),
        opened: Vec::new(),
        closed: Vec::new(),
        then,
        folded: false,
        cached: false,
        state: None,
        attributes: Vec::new(),
        compensated: None,
        ledger: Vec::new(),
    }
}

fn success(uid: InstanceUid, name: &str, after: u64) -> AttemptEnd {
    let input = Payload::null();
    AttemptEnd {
        call: call(CallKind::Step, name),
        attempt: Attempt(1),
        called_after: Position(after),
        ran_for: Millis(3),
        key: StepKey::derive(uid.0, 1, "step", name, 1, &input).unwrap(),
        input: Fingerprint::of(&input).unwrap(),
        policy: Policy::default(),
        outcome: AttemptOutcome::Succeeded(Payload::from_text("[1,2]").unwrap()),
        progress: None,
        marks: everstep_protocol::journal::Marks::default(),
        reference: None,
    }
}

fn session(id: SessionId) -> OpenSession {
    OpenSession {
        session: id,
        namespace: Namespace::default(),
        workflows: vec![workflow()],
        pinned: Vec::new(),
        pools: Vec::new(),
        functions: Vec::new(),
        build: build(),
        inbox: "inbox-1".to_owned(),
        slots: 4,
        instances: 10,
        host: "here".to_owned(),
    }
}

/// Decides inputs in one transaction.
async fn batch(store: &SqliteStore, inputs: Vec<Input>) -> Vec<Answer> {
    let mut needs = Needs::default();
    for input in &inputs {
        input::Input::needs(input, &mut needs);
    }
    let (sender, receiver) = mpsc::channel();
    let decide = Box::new(move |loaded| {
        let mut room = Room::default();
        let mut batch = Batch::new(loaded, Rules::default());
        let verdicts: Vec<Verdict> = inputs.iter().map(|input| batch.apply(input, &mut room)).collect();
        sender.send(verdicts).unwrap();
        batch.finish(&mut room).0
    });
    store.transact(needs, decide).await.unwrap();
    let decided = |verdict| match verdict {
        Verdict::Decided(answer) => answer,
        Verdict::Started(decided) => decided.answer,
        Verdict::Held => panic!("nothing is locked elsewhere"),
        Verdict::Broken => panic!("no start is broken"),
    };
    receiver.recv().unwrap().into_iter().map(decided).collect()
}

async fn journal(store: &SqliteStore, uid: InstanceUid) -> Vec<Entry> {
    let range = Range { uid, run: Run(1), after: Position(0) };
    store.journal(vec![range], 1 << 20).await.unwrap().remove(0)
}

async fn status(store: &SqliteStore, id: &str) -> StatusWord {
    store.instance(&name(id)).await.unwrap().unwrap().status
}

#[tokio::test]
async fn an_instance_lives_and_ends() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let me = SessionId::generate();
    assert!(store.open_session(&session(me)).await.unwrap());

    let (uid, input) = start("a");
    assert_eq!(batch(&store, vec![input]).await, [Answer::Created]);
    let (_, input) = start("a");
    assert!(matches!(batch(&store, vec![input]).await[..], [Answer::Exists(_)]));
    assert_eq!(store.find(&name("a")).await.unwrap(), Some(uid));
    assert_eq!(status(&store, "a").await, StatusWord::Queued);

    let queue = Queue::Run(Namespace::default(), workflow());
    let offers = store.offer(std::slice::from_ref(&queue), 10, Millis(5000)).await.unwrap();
    assert_eq!(offers.rows, [(queue.clone(), uid, Subject::INSTANCE)]);
    assert!(offers.backlog.is_empty());
    assert!(store.offer(&[queue], 10, Millis(5000)).await.unwrap().rows.is_empty());

    assert_eq!(
        batch(&store, vec![on(uid, What::Claim { session: me, have: None })]).await,
        [Answer::Granted]
    );
    assert_eq!(status(&store, "a").await, StatusWord::Running);

    let mut first = report(uid, 1, 1, 1, Then::Suspend);
    first.folded = true;
    first.results.push(success(uid, "Prüfung", 1));
    let sleep = call(CallKind::Sleep, "nap");
    first.opened.push(Open {
        call: sleep.clone(),
        called_after: Position(1),
        wait: OpenWait::Sleep(Millis(30)),
    });
    let what = What::Report { session: me, build: build(), report: first };
    assert_eq!(batch(&store, vec![on(uid, what)]).await, [Answer::Taken]);
    let seen = store.instance(&name("a")).await.unwrap().unwrap();
    assert_eq!((seen.status, seen.waits, seen.waiting.len()), (StatusWord::Waiting, 1, 1));
    assert_eq!(seen.waiting[0].call, sleep);
    assert!(seen.served);

    let due_at = seen.waiting[0].due_at.unwrap();
    let due = loop {
        let due = store.due(None, 10).await.unwrap();
        if due.rows.is_empty() {
            assert_eq!(due.next, Some(due_at));
            tokio::task::yield_now().await;
        } else {
            break due;
        }
    };
    assert_eq!(due.rows, [(uid, sleep.hash(), due_at)]);
    assert!(due.now >= due_at);
    let answers = batch(&store, vec![on(uid, What::Due { call: sleep.hash() })]).await;
    assert_eq!(answers, [Answer::Done]);

    assert_eq!(
        batch(&store, vec![on(uid, What::Claim { session: me, have: None })]).await,
        [Answer::Granted]
    );
    let end = End::Complete(Payload::from_text("\"done\"").unwrap());
    let what =
        What::Report { session: me, build: build(), report: report(uid, 2, 2, 4, Then::End(end.clone())) };
    let answers = batch(&store, vec![on(uid, what)]).await;
    assert_eq!(answers, [Answer::Nothing], "numbers begin anew with each lease");
    let what =
        What::Report { session: me, build: build(), report: report(uid, 2, 1, 4, Then::End(end.clone())) };
    assert_eq!(batch(&store, vec![on(uid, what)]).await, [Answer::Taken]);

    let seen = store.instance(&name("a")).await.unwrap().unwrap();
    assert_eq!((seen.status, seen.end, seen.holder, seen.waits), (StatusWord::Complete, Some(end), None, 0));
    let entries = journal(&store, uid).await;
    let words: Vec<_> = entries.iter().map(|entry| entry.fact.word()).collect();
    assert_eq!(words, ["started", "attempted", "opened", "fired", "ended"]);
    let positions: Vec<_> = entries.iter().map(|entry| entry.position.0).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5]);
    assert_eq!(store.heard(&[Heard { session: me, inbox: "i".to_owned() }]).await.unwrap(), [Some(vec![])]);
    let outbox = store.outbox(Millis(0), 10).await.unwrap();
    assert_eq!(outbox.len(), 1);
    store.sent(&[(uid, Run(1))]).await.unwrap();
    assert!(store.outbox(Millis(0), 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn w13_one_process_and_a_restart_goes_on_at_once() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(SqliteStore::open(&path).unwrap_err().kind(), ErrorKind::InUse);

    let me = SessionId::generate();
    assert!(store.open_session(&session(me)).await.unwrap());
    let (held, input) = start("held");
    let (_, other) = start("offered");
    batch(&store, vec![input, other, on(held, What::Claim { session: me, have: None })]).await;
    batch(&store, vec![on(held, What::Claim { session: me, have: None })]).await;
    let queue = Queue::Run(Namespace::default(), workflow());
    assert_eq!(store.offer(std::slice::from_ref(&queue), 10, Millis(60_000)).await.unwrap().rows.len(), 1);
    let first = CoordinatorId::generate();
    assert_eq!(store.duties(first, &["due"], Millis(60_000)).await.unwrap(), ["due"]);
    assert!(store.duties(CoordinatorId::generate(), &["due"], Millis(60_000)).await.unwrap().is_empty());
    assert!(store.orphans(10).await.unwrap().is_empty());
    drop(store);

    let store = SqliteStore::open(&path).unwrap();
    assert!(store.sessions().await.unwrap().is_empty());
    assert!(!store.open_session(&session(me)).await.unwrap(), "an ended session never comes back");
    let orphans = store.orphans(10).await.unwrap();
    assert_eq!(orphans.len(), 1);
    assert_eq!((orphans[0].lease.uid, orphans[0].counts), (held, true), "lost with its process");
    assert_eq!(orphans[0].open.slots, 4);
    assert_eq!(store.offer(&[queue], 10, Millis(60_000)).await.unwrap().rows.len(), 1);
    assert_eq!(store.duties(CoordinatorId::generate(), &["due"], Millis(1)).await.unwrap(), ["due"]);
}

/// The files as they are on disk while the store is open are what a killed process leaves.
#[tokio::test]
async fn w13_what_was_answered_survives_a_kill() {
    let (directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let me = SessionId::generate();
    store.open_session(&session(me)).await.unwrap();
    let mut uids = Vec::new();
    for number in 0..50 {
        let (uid, input) = start(&format!("i{number}"));
        batch(&store, vec![input]).await;
        batch(&store, vec![on(uid, What::Claim { session: me, have: None })]).await;
        uids.push(uid);
    }
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::copy(with(&path, "-wal"), with(&copy, "-wal")).unwrap();

    let copied = SqliteStore::open(&copy).unwrap();
    assert_eq!(copied.orphans(100).await.unwrap().len(), 50);
    for uid in uids {
        assert_eq!(journal(&copied, uid).await, journal(&store, uid).await);
        assert_eq!(journal(&copied, uid).await.len(), 1);
    }
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[tokio::test]
async fn w18_the_clock_never_goes_back() {
    let (_directory, path) = new_file();
    drop(SqliteStore::open(&path).unwrap());
    let ahead = {
        let connection = rusqlite::Connection::open(&path).unwrap();
        let hour = 3_600_000_000_i64;
        connection.execute("UPDATE installation SET last_at = last_at + ?1", [hour]).unwrap();
        connection.query_row("SELECT last_at FROM installation", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let store = SqliteStore::open(&path).unwrap();
    let mut last = ahead;
    for number in 0..20 {
        let now = store.due(None, 1).await.unwrap().now.0;
        assert!(now >= last, "{now} < {last}");
        let (uid, input) = start(&format!("i{number}"));
        batch(&store, vec![input]).await;
        last = journal(&store, uid).await[0].at.0;
        assert!(last >= now, "{last} < {now}");
    }
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert!(store.due(None, 1).await.unwrap().now.0 >= last);
}

#[tokio::test]
async fn a_panic_refuses_its_batch_alone() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let panics = || store.transact(Needs::default(), Box::new(|_| panic!("on purpose")));
    let starts = (0..10).map(|number| batch(&store, vec![start(&format!("i{number}")).1]));
    let starts = async {
        for start in starts {
            assert_eq!(start.await, [Answer::Created]);
        }
    };
    let (first, second, ()) = tokio::join!(panics(), panics(), starts);
    assert_eq!(first.unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(second.unwrap_err().kind(), ErrorKind::Refused);
    let page = store.instances(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(page.rows.len(), 10);
}

/// Jobs that wait together share a transaction: one that fails leaves nothing behind and does not disturb the others.
#[tokio::test]
async fn a_conflict_rolls_back_its_batch_alone() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    // Decides as if nothing had been loaded, as a batch would whose name was taken meanwhile.
    let blind = |uid_input: (InstanceUid, Input)| {
        let decide = Box::new(move |loaded: everstep_engine::batch::Loaded| {
            let mut batch = Batch::new(
                everstep_engine::batch::Loaded { now: loaded.now, ..Default::default() },
                Rules::default(),
            );
            batch.apply(&uid_input.1, &mut Room::default());
            batch.finish(&mut Room::default()).0
        });
        store.transact(Needs::default(), decide)
    };
    let (a, b, c, again) =
        tokio::join!(blind(start("a")), blind(start("b")), blind(start("c")), blind(start("b")));
    a.unwrap();
    b.unwrap();
    c.unwrap();
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Conflict);
    let page = store.instances(&Filter::default(), None, 100).await.unwrap();
    assert_eq!(page.rows.len(), 3);
}

#[tokio::test]
async fn pages_by_status() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let me = SessionId::generate();
    store.open_session(&session(me)).await.unwrap();
    let mut uids = Vec::new();
    for number in 0..9 {
        let (uid, input) = start(&format!("i{number}"));
        batch(&store, vec![input]).await;
        uids.push(uid);
    }
    let terminate = |uid| on(uid, What::Terminate { operation: "o".to_owned(), reason: None });
    for uid in &uids[..3] {
        batch(&store, vec![on(*uid, What::Claim { session: me, have: None })]).await;
    }
    for uid in &uids[3..5] {
        assert_eq!(batch(&store, vec![terminate(*uid)]).await, [Answer::Done]);
        assert_eq!(batch(&store, vec![terminate(*uid)]).await, [Answer::Done], "the first answer is kept");
    }
    for (status, count) in [
        (StatusWord::Running, 3),
        (StatusWord::Terminated, 2),
        (StatusWord::Queued, 4),
        (StatusWord::Complete, 0),
    ] {
        let filter = Filter { status: Some(status), workflow: Some(workflow()), ..Filter::default() };
        let page = store.instances(&filter, None, 100).await.unwrap();
        assert_eq!(page.rows.len(), count, "{status:?}");
        assert!(page.rows.iter().all(|row| row.status == status), "{status:?}");
        assert_eq!(page.next, None);
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.instances(&Filter::default(), cursor.as_ref(), 4).await.unwrap();
        seen.extend(page.rows.iter().map(|row| row.uid));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    uids.reverse();
    assert_eq!(seen, uids);
}

#[tokio::test]
async fn p27_a_decision_is_kept_as_long_as_its_instance() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let key = |id: &str| MessageKey {
        namespace: Namespace::default(),
        workflow: workflow(),
        app_id: "app".to_owned(),
        message_id: id.to_owned(),
    };
    let started = |message: &str, input: &str| {
        let (_, Input::Start(mut start)) = start("one") else { panic!("no start") };
        start.input = Payload::from_text(input).unwrap();
        start.fingerprint = Fingerprint::of(&start.input).unwrap();
        start.message = Some(key(message));
        Input::Start(start)
    };
    for (message, input) in [("created", "1"), ("exists", "1"), ("conflict", "2")] {
        batch(&store, vec![started(message, input)]).await;
    }
    let refusal = Decided { id: "none".parse().unwrap(), answer: Answer::NotFound };
    store
        .reject(&[Rejected {
            namespace: Namespace::default(),
            code: "body".to_owned(),
            reason: String::new(),
            headers: Payload::null(),
            body: Vec::new(),
            body_bytes: 0,
            message: Some(MessageName { app_id: "app".to_owned(), message_id: "refused".to_owned() }),
            decided: Some((workflow(), refusal)),
        }])
        .await
        .unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let left = || {
        let mut statement = connection.prepare("SELECT message_id FROM message_decision ORDER BY 1").unwrap();
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!((store.clean(10).await.unwrap(), left().len()), (0, 4), "they are young");
    connection.execute("UPDATE message_decision SET at = 1", []).unwrap();
    assert_eq!(store.clean(10).await.unwrap(), 1);
    assert_eq!(left(), ["conflict", "created", "exists"]);
}

#[tokio::test]
async fn p40_what_is_ready_for_one_build_stirs_its_workflow() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let (_, Input::Start(mut pinned)) = start("pinned") else { panic!("no start") };
    pinned.pin = Some("b1".parse().unwrap());
    let (_, free) = start("free");
    assert_eq!(batch(&store, vec![Input::Start(pinned), free]).await, [Answer::Created, Answer::Created]);
    let stir = store.stir().await.unwrap();
    assert_eq!((stir.runnable, stir.workflows), (2, vec![workflow()]));
}

#[tokio::test]
async fn w22_a_letter_that_cannot_be_read_stops_no_other() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    let caller =
        Caller { uid: InstanceUid::generate(), run: Run(1), call: call(CallKind::Child, "c").hash() };
    let letter = NewLetter { to: Address::Instance(caller.uid), caller, said: Said::Watch };
    let writes = Writes { letters: vec![letter; 3], ..Writes::default() };
    store.transact(Needs::default(), Box::new(|_| writes)).await.unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE mailbox SET body = x'00' WHERE number <> 3", []).unwrap();
    let numbers = |mail: &Mail| mail.letters.iter().map(|posted| posted.letter.number).collect::<Vec<_>>();
    let whole = store.letters(0, 100).await.unwrap();
    assert_eq!((numbers(&whole), whole.next), (vec![3], None));
    // Nor do those that fill a page.
    let first = store.letters(0, 2).await.unwrap();
    assert_eq!((numbers(&first), first.next), (vec![], Some(2)));
}

async fn begin_two_bulks(store: &SqliteStore) {
    let (namespace, by) = (Namespace::default(), Asker::program());
    let bulk = Bulk { act: Act::Retry, which: Which::default() };
    for id in ["b-1", "b-2"] {
        store.begin_bulk(&namespace, &id.parse().unwrap(), &bulk, &by).await.unwrap();
    }
}

/// By the moments at which they were written: 90 days and a minute ago, and a minute less than 90 days ago.
#[tokio::test]
async fn a06_records_of_the_audit_log_are_kept_for_ninety_days() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    begin_two_bulks(&store).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    for (id, younger) in [("b-1", -60), ("b-2", 60)] {
        let age = "UPDATE action SET at = at - (90 * 86400 - ?2) * 1000000 WHERE target = 'bulk/' || ?1";
        connection.execute(age, rusqlite::params![id, younger]).unwrap();
    }
    assert_eq!(store.clean(10).await.unwrap(), 1);
    let left = store.actions(&ActionFilter::within(Scope::All), None, 9).await.unwrap();
    assert_eq!(left.iter().map(|row| row.target.as_str()).collect::<Vec<_>>(), ["bulk/b-2"]);
}

#[tokio::test]
async fn p33_a_bulk_operation_with_an_unknown_condition_is_passed_over() {
    let (_directory, path) = new_file();
    let store = SqliteStore::open(&path).unwrap();
    begin_two_bulks(&store).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    let request = r#"{"act":{"operation":"delete"},"which":{"of_tomorrow":1}}"#;
    connection.execute("UPDATE bulk SET request = ?1 WHERE id = 'b-1'", [request]).unwrap();
    let ids = |rows: Vec<BulkRow>| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.running_bulks(1).await.unwrap()), ["b-2"], "it holds nobody's place");
    assert_eq!(ids(store.bulks(&Namespace::default(), 9).await.unwrap()), ["b-2"]);
    let one = store.bulk(&Namespace::default(), &"b-1".parse().unwrap()).await;
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Every table that names an instance, by its id or name.
fn traces(path: &Path, uid: InstanceUid, id: &str) -> Vec<String> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let list = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let mut found = Vec::new();
    for table in list("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
        for column in list(&format!("SELECT name FROM pragma_table_info('{table}')")) {
            let sql = format!(
                "SELECT count(*) FROM {table} WHERE instr({column}, ?1) OR instr(CAST({column} AS TEXT), ?2) \
                 OR instr(CAST({column} AS TEXT), ?3)"
            );
            let values = rusqlite::params![uid.0.as_bytes(), id, uid.to_string()];
            if connection.query_row(&sql, values, |row| row.get::<_, i64>(0)).unwrap() > 0 {
                found.push(format!("{table}.{column}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p32_a_deleted_instance_leaves_no_trace_in_any_table() {
    let (_directory, path) = new_file();
    let store: std::sync::Arc<dyn everstep_store::Store> =
        std::sync::Arc::new(SqliteStore::open(&path).unwrap());
    let scene = scene::Scene::new(std::sync::Arc::clone(&store));
    let uid = control::with_every_row(&scene, "the-one").await;
    assert!(traces(&path, uid, "the-one").len() >= 10, "the search finds what is there");
    let what = What::Delete { operation: "d".to_owned(), terminate: true };
    assert_eq!(scene.on(uid, what).await, Answer::Done);
    store.sweep(1_000).await.unwrap();
    // Its last message, until the broker has confirmed it.
    store.sent(&[(uid, Run(1))]).await.unwrap();
    assert_eq!(traces(&path, uid, "the-one"), Vec::<String>::new());
}
