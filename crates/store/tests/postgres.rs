//! What only PostgreSQL's store has to prove: several processes on one database, connections that die, migrations.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

#[path = "conformance/control.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod control;
#[path = "conformance/fixture.rs"]
#[allow(dead_code, reason = "only the PostgreSQL half is used here")]
mod fixture;
#[path = "conformance/hooks.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod hooks;
#[path = "conformance/scene.rs"]
#[allow(dead_code, reason = "only a part is used here")]
mod scene;

use std::{
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use everstep_engine::{
    Answer, Input, What, Writes,
    access::Asker,
    batch::Loaded,
    bulk::{Act, Bulk, Which},
    letter::{Address, Caller, NewLetter, Said},
    retention::Own,
    rows::Needs,
    start::{Decided, Start},
};
use everstep_protocol::{CallHash, InstanceUid, Millis, Run, Scope, SessionId, journal::End, message::Then};
use everstep_store::{
    ActionFilter, BulkRow, ErrorKind, Instances, Mail, MessageName, Queue, Rejected, Store,
    postgres::{PostgresSettings, PostgresStore, migrate},
};
use fixture::{Database, Fixture, Postgres};
use scene::{Reporting, Scene, message, namespace, on, payload, start, step, succeeded, workflow};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_schema_says_what_to_do() {
    let database = Database::create().await;
    let error = PostgresStore::connect(PostgresSettings::new(&database.url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("everstep migrate"), "{error}");
    let applied = migrate(&database.url).await.unwrap();
    assert_eq!((applied[0].version, applied[0].name.as_str()), (1, "tables"));
    assert!(migrate(&database.url).await.unwrap().is_empty());
    let store = PostgresStore::connect(PostgresSettings::new(&database.url)).await.unwrap();
    assert_eq!(store.incarnation().await.unwrap().0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_migrate_one_does() {
    let database = Database::create().await;
    let applied = futures::future::join_all((0..4).map(|_| migrate(&database.url))).await;
    let counts: Vec<usize> = applied.into_iter().map(|applied| applied.unwrap().len()).collect();
    assert_eq!(counts.iter().sum::<usize>(), 1, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_database_is_unavailable() {
    let settings = PostgresSettings::new("postgres://nobody:nothing@127.0.0.1:1/none");
    assert_eq!(PostgresStore::connect(settings).await.unwrap_err().kind(), ErrorKind::Unavailable);
}

/// A transaction that stays open until it is told to go on.
struct Held {
    go_on: mpsc::Sender<()>,
    done: tokio::task::JoinHandle<Result<(), everstep_store::Error>>,
}

impl Held {
    async fn begin(
        store: Arc<dyn Store>,
        needs: Needs,
        writes: impl FnOnce(Loaded) -> Writes + Send + 'static,
    ) -> Self {
        let (inside, is_inside) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let decide = move |loaded: Loaded| {
            inside.send(()).unwrap();
            let _ = tokio::task::block_in_place(|| may_go_on.recv());
            writes(loaded)
        };
        let done = tokio::spawn(async move { store.transact(needs, Box::new(decide)).await.map(drop) });
        tokio::task::spawn_blocking(move || is_inside.recv().unwrap()).await.unwrap();
        Self { go_on, done }
    }

    async fn end(self) -> Result<(), everstep_store::Error> {
        drop(self.go_on);
        self.done.await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn w19_a_locked_head_is_elsewhere() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let (locked, free) = (scene.start("o-1").await, scene.start("o-2").await);
    let needs = |heads| Needs { heads, ..Needs::default() };
    let held = Held::begin(fixture.store(), needs(vec![locked]), |_| Writes::default()).await;
    let loaded = scene.load(needs(vec![locked, free, InstanceUid::generate()])).await;
    assert_eq!(loaded.heads.keys().collect::<Vec<_>>(), [&free]);
    assert_eq!(loaded.elsewhere.iter().collect::<Vec<_>>(), [&locked]);
    assert!(loaded.now.0 > 0);
    let loaded = scene.load(needs(vec![locked])).await;
    assert!(loaded.heads.is_empty() && loaded.now.0 > 0 && loaded.elsewhere.len() == 1);
    held.end().await.unwrap();
    assert_eq!(scene.load(needs(vec![locked])).await.heads.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_racing_start_waits_and_is_a_conflict() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    // Both have looked before either has written.
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Arc::new(Mutex::new(may_go_on));
    let race = |number: u32| {
        let (store, begun, may_go_on) = (fixture.store(), begun.clone(), Arc::clone(&may_go_on));
        let start = start("orders", "o-1", &number.to_string());
        tokio::spawn(async move {
            let input = Input::Start(Box::new(start));
            let mut needs = Needs::default();
            input.needs(&mut needs);
            let decide = move |loaded| {
                begun.send(()).unwrap();
                let _ = tokio::task::block_in_place(|| may_go_on.lock().unwrap().recv());
                let mut batch = everstep_engine::Batch::new(loaded, everstep_engine::batch::Rules::default());
                let mut room = everstep_engine::place::Room::default();
                batch.apply(&input, &mut room);
                batch.finish(&mut room).0
            };
            store.transact(needs, Box::new(decide)).await.map(drop)
        })
    };
    let racers = [race(1), race(2)];
    tokio::task::spawn_blocking(move || (has_begun.recv().unwrap(), has_begun.recv().unwrap()))
        .await
        .unwrap();
    drop(go_on);
    let mut kinds = Vec::new();
    for racer in racers {
        kinds.push(racer.await.unwrap().map_err(|error| error.kind()));
    }
    kinds.sort_by_key(Result::is_err);
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Conflict)]);
    assert_eq!(scene.store.clean(10).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_dies_in_a_transaction_is_not_used_again() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let uid = scene.start("o-1").await;
    let needs = Needs { heads: vec![uid], ..Needs::default() };
    let held = Held::begin(fixture.store(), needs.clone(), move |loaded| {
        let mut head = loaded.heads[&uid].clone();
        head.deaths = 7;
        Writes { heads: vec![head], ..Writes::default() }
    })
    .await;
    let (client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    assert_eq!(client.query(kill, &[]).await.unwrap().len(), 1);
    assert_eq!(held.end().await.unwrap_err().kind(), ErrorKind::Unavailable);
    // All of the pool's connections serve, and nothing was written.
    let name = scene::name_key("orders", "o-1");
    let views = futures::future::join_all((0..16).map(|_| scene.store.instance(&name))).await;
    assert!(views.iter().all(|view| view.as_ref().unwrap().is_some()));
    assert_eq!(scene.head(uid).await.deaths, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn w19_a_frozen_coordinator_loses_its_transaction() {
    let database = Database::create().await;
    migrate(&database.url).await.unwrap();
    let settings =
        PostgresSettings { idle_timeout: Duration::from_millis(100), ..PostgresSettings::new(&database.url) };
    let store = Arc::new(PostgresStore::connect(settings).await.unwrap());
    let scene = Scene::new(store.clone());
    let uid = scene.start("o-1").await;
    let needs = Needs { heads: vec![uid], ..Needs::default() };
    let held = Held::begin(store, needs.clone(), move |loaded| {
        let mut head = loaded.heads[&uid].clone();
        head.deaths = 7;
        Writes { heads: vec![head], ..Writes::default() }
    })
    .await;
    while scene.load(needs.clone()).await.heads.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(held.end().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(scene.head(uid).await.deaths, 0);
}

/// A connection beside the store's.
async fn beside(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

fn pause(uid: InstanceUid, operation: &str) -> Vec<Input> {
    vec![on(uid, What::Pause { operation: operation.to_owned() })]
}

/// A failover to where nothing can be written, and back. Connections that were made meanwhile are not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_that_takes_no_writes_is_unavailable_and_serves_again_when_it_does() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let uid = scene.start("o-1").await;
    let admin = beside(fixture.url()).await;
    let database: String = admin.query_one("SELECT current_database()", &[]).await.unwrap().get(0);
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    admin
        .batch_execute(&format!("ALTER DATABASE {database} SET default_transaction_read_only = on"))
        .await
        .unwrap();
    admin.query(kill, &[]).await.unwrap();
    let mut reasons = String::new();
    for _ in 0..10 {
        let error = scene.try_run(pause(uid, "p")).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        reasons.push_str(&error.to_string());
        assert_eq!(
            scene
                .store
                .duties(everstep_protocol::CoordinatorId::generate(), &["d"], Millis(1))
                .await
                .unwrap_err()
                .kind(),
            ErrorKind::Unavailable
        );
        let name = scene::name_key("orders", "o-1");
        assert!(scene.store.instance(&name).await.is_ok_and(|view| view.is_some()), "it can still be read");
    }
    assert!(reasons.contains("25006"), "{reasons}");
    admin
        .batch_execute(&format!("ALTER DATABASE {database} RESET default_transaction_read_only"))
        .await
        .unwrap();
    let mut tries = 0;
    while scene.try_run(pause(uid, "p")).await.is_err() {
        tries += 1;
        assert!(tries < 20, "connections that take no writes are given up");
    }
    assert_eq!(
        scene.on(uid, What::Pause { operation: "p".to_owned() }).await,
        Answer::Done,
        "the first answer"
    );
    // All of them serve by now, or are made anew.
    for number in 0..8 {
        drop(scene.try_run(pause(uid, &format!("q{number}"))).await);
    }
    // Each on an instance of its own: heads that are locked are passed over.
    let mut others = Vec::new();
    for number in 0..8 {
        others.push(scene.start(&format!("other-{number}")).await);
    }
    let all = others.iter().map(|other| scene.try_run(pause(*other, "r")));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_ok));
}

/// Nobody waits for ever for a connection, and whoever gave up is told that it may be tried again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pool_without_a_free_connection_is_unavailable_for_as_long_as_that() {
    let database = Database::create().await;
    migrate(&database.url).await.unwrap();
    let wait_timeout = Duration::from_millis(100);
    let settings = PostgresSettings { pool_max: 1, wait_timeout, ..PostgresSettings::new(&database.url) };
    let store = Arc::new(PostgresStore::connect(settings).await.unwrap());
    let scene = Scene::new(store.clone());
    let uid = scene.start("o-1").await;
    let needs = Needs { heads: vec![uid], ..Needs::default() };
    let held = Held::begin(store, needs, |_| Writes::default()).await;
    let error = scene.try_run(pause(uid, "p")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    held.end().await.unwrap();
    assert_eq!(scene.on(uid, What::Pause { operation: "p".to_owned() }).await, Answer::Done);
}

/// Somebody else locks a table: the transaction gives up by its own limits, nothing of it is written, and it can be run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn locks_and_statements_of_others_are_waited_for_by_their_limits_alone() {
    let database = Database::create().await;
    migrate(&database.url).await.unwrap();
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(30));
    for (lock_timeout, statement_timeout, code) in [(short, long, "55P03"), (long, short, "57014")] {
        let settings =
            PostgresSettings { lock_timeout, statement_timeout, ..PostgresSettings::new(&database.url) };
        let scene = Scene::new(Arc::new(PostgresStore::connect(settings).await.unwrap()));
        let uid = scene.start(code).await;
        let admin = beside(&database.url).await;
        admin.batch_execute("BEGIN; LOCK TABLE control IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let error = scene.try_run(pause(uid, "p")).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains(code), "{error}");
        admin.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(scene.on(uid, What::Pause { operation: "p".to_owned() }).await, Answer::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_offer_and_a_claim_at_once_leave_no_ready_row() {
    let fixture = Postgres::create().await;
    let scene = Arc::new(Scene::new(fixture.store()));
    let queues = [Queue::Run(namespace(), workflow("orders"))];
    for round in 0..20 {
        let mut uids = Vec::new();
        for number in 0..5 {
            uids.push(scene.start(&format!("o-{round}-{number}")).await);
        }
        let session = SessionId::generate();
        let claims = uids.iter().map(|uid| on(*uid, What::Claim { session, have: None })).collect();
        let offers = async {
            for _ in 0..5 {
                scene.store.offer(&queues, 1_000, Millis(0)).await.unwrap();
            }
        };
        let (ran, ()) = futures::future::join(scene.run(claims), offers).await;
        assert_eq!(ran.answers, vec![Answer::Granted; 5]);
        assert!(scene.store.offer(&queues, 1_000, Millis(0)).await.unwrap().rows.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_that_the_database_cannot_hold_is_refused_alone() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let mut bad = start("orders", "bad", "1");
    // Nothing that passed the edge looks like this.
    bad.input = everstep_protocol::Payload::from_trusted("\"\0\"".to_owned());
    let good = start("orders", "good", "1");
    let both = [bad, good.clone()].map(|start| Input::Start(Box::new(start))).to_vec();
    assert_eq!(scene.try_run(both).await.map(|_| ()).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(scene.run(vec![Input::Start(Box::new(good))]).await.answers, [Answer::Created]);
}

/// Not a benchmark: it shows what a batch costs and fails only if that is off by a lot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_two_hundred_takes_milliseconds() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let session = SessionId::generate();
    let (rounds, size) = (30, 70);
    let mut took = Vec::new();
    let mut held: Vec<InstanceUid> = Vec::new();
    let mut ready: Vec<InstanceUid> = Vec::new();
    for round in 0..rounds {
        // As under load: the starts of some, the claims of others, the only reports of others again.
        let mut inputs = Vec::new();
        let mut starting = Vec::new();
        for number in 0..size {
            let mut start =
                start("orders", &format!("o-{round}-{number}"), r#"{"customer":"c-1","total":12.5}"#);
            start.message = Some(scene::message("app", &format!("m-{round}-{number}")));
            starting.push(start.uid);
            inputs.push(Input::Start(Box::new(start)));
        }
        inputs.extend(ready.iter().map(|uid| on(*uid, What::Claim { session, have: None })));
        let heads = scene.load(Needs { heads: held.clone(), ..Needs::default() }).await.heads;
        for uid in &held {
            let mut report = Reporting::of(&heads[uid], session);
            for number in 1..=5 {
                report = report.result(succeeded(&step(&format!("step-{number}")), r#"{"ok":true,"n":1}"#));
            }
            inputs.push(on(*uid, report.then(Then::End(End::Complete(payload("1"))))));
        }
        let count = inputs.len();
        let begun = Instant::now();
        scene.run(inputs).await;
        if count == 3 * size {
            took.push(begun.elapsed());
        }
        held = std::mem::replace(&mut ready, starting);
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    println!(
        "a batch of {} inputs: median {median:?}, best {:?}, worst {:?}",
        3 * size,
        took[0],
        took[took.len() - 1]
    );
    assert!(median < Duration::from_millis(500), "{took:?}");
}

/// What an end does to many in one statement stays far below the time that a statement has: else it would be tried again for ever.
/// How long each takes is the server's; it fails only if that is off by a lot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_the_end_of_an_instance_with_fifty_thousand_ties_is_far_from_the_limit_of_a_statement() {
    const MANY: u32 = 50_000;
    let limit = PostgresSettings::new("").statement_timeout;
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let uid = scene.start("o-1").await;
    let call = "decode(lpad(to_hex(n), 32, '0'), 'hex')";
    let caller = "lpad(to_hex(n), 32, '0')::uuid";
    for fill in [
        format!(
            "INSERT INTO child (instance, run, call, namespace, workflow, name, detached, over)
            SELECT '{uid}', 1, {call}, 'shop', 'orders', 'c-' || n, false, false FROM generate_series(1, {MANY}) n"
        ),
        format!(
            "INSERT INTO watcher (instance, caller, run, call)
            SELECT '{uid}', {caller}, 1, {call} FROM generate_series(1, {MANY}) n"
        ),
        format!(
            "INSERT INTO wait (instance, call, kind, since, call_kind, call_name, call_count)
            SELECT '{uid}', {call}, 5, 1, 5, 'c', n FROM generate_series(1, {MANY}) n"
        ),
        format!("UPDATE instance SET links = {MANY}, waits = {MANY} WHERE id = '{uid}'"),
    ] {
        fixture::execute(fixture.url(), &fill).await;
    }
    let mut took = Vec::new();
    for what in [
        scene::terminate("t"),
        What::Restart { operation: "r".to_owned(), prepared: None },
        What::Delete { operation: "d".to_owned(), terminate: true },
    ] {
        let began = Instant::now();
        assert_eq!(scene.on(uid, what).await, Answer::Done);
        took.push(began.elapsed());
    }
    println!("with {MANY} children, waits and watchers: end, restart and delete took {took:?}");
    // All statements of a decision together.
    assert!(took.iter().all(|took| *took < limit / 2), "{took:?}");
    let (client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let count = "SELECT count(*) FILTER (WHERE kind = 4), count(*) FILTER (WHERE kind = 5) FROM mailbox";
    let row = client.query_one(count, &[]).await.unwrap();
    let expected = (i64::from(MANY), 2 * i64::from(MANY));
    assert_eq!(
        (row.get::<_, i64>(0), row.get::<_, i64>(1)),
        expected,
        "each is told; the restart tells children again"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_a_decision_is_kept_as_long_as_its_instance() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    for (id, input) in [("created", "1"), ("exists", "1"), ("conflict", "2")] {
        let start = start("orders", "o-1", input);
        scene.run(vec![Input::Start(Box::new(Start { message: Some(message("app", id)), ..start }))]).await;
    }
    let refusal = Decided { id: "none".parse().unwrap(), answer: Answer::NotFound };
    let rejected = Rejected {
        namespace: namespace(),
        code: "body".to_owned(),
        reason: String::new(),
        headers: payload("null"),
        body: Vec::new(),
        body_bytes: 0,
        message: Some(MessageName { app_id: "app".to_owned(), message_id: "refused".to_owned() }),
        decided: Some((workflow("orders"), refusal)),
    };
    fixture.store().reject(&[rejected]).await.unwrap();
    assert_eq!(fixture.store().clean(10).await.unwrap(), 0, "they are young");
    fixture::execute(fixture.url(), "UPDATE message_decision SET decided_at = 1").await;
    assert_eq!(fixture.store().clean(10).await.unwrap(), 1);
    let messages = ["created", "exists", "conflict", "refused"].map(|id| message("app", id));
    let loaded = scene.load(Needs { messages: messages.to_vec(), ..Needs::default() }).await;
    assert_eq!(messages.map(|key| loaded.messages.contains_key(&key)), [true, true, true, false]);
}

/// By the moments at which they were written: 90 days and a minute ago, and a minute less than 90 days ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a06_records_of_the_audit_log_are_kept_for_ninety_days() {
    let fixture = Postgres::create().await;
    let store = fixture.store();
    let bulk = Bulk { act: Act::Retry, which: Which::default() };
    for (id, younger) in [("b-1", -60), ("b-2", 60)] {
        store.begin_bulk(&namespace(), &id.parse().unwrap(), &bulk, &Asker::program()).await.unwrap();
        let age = format!(
            "UPDATE action SET at = at - (90 * 86400 - {younger}) * 1000000::bigint WHERE target = 'bulk/{id}'"
        );
        fixture::execute(fixture.url(), &age).await;
    }
    assert_eq!(store.clean(10).await.unwrap(), 1);
    let left = store.actions(&ActionFilter::within(Scope::All), None, 9).await.unwrap();
    assert_eq!(left.iter().map(|row| row.target.as_str()).collect::<Vec<_>>(), ["bulk/b-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p33_a_bulk_operation_with_an_unknown_condition_is_passed_over() {
    let fixture = Postgres::create().await;
    let store = fixture.store();
    let bulk = Bulk { act: Act::Retry, which: Which::default() };
    for id in ["b-1", "b-2"] {
        store.begin_bulk(&namespace(), &id.parse().unwrap(), &bulk, &Asker::program()).await.unwrap();
    }
    let request = r#"{"act":{"operation":"delete"},"which":{"of_tomorrow":1}}"#;
    let sql = format!("UPDATE bulk SET request = '{request}' WHERE id = 'b-1'");
    fixture::execute(fixture.url(), &sql).await;
    let ids = |rows: Vec<BulkRow>| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.running_bulks(1).await.unwrap()), ["b-2"], "it holds nobody's place");
    assert_eq!(ids(store.bulks(&namespace(), 9).await.unwrap()), ["b-2"]);
    let one = store.bulk(&namespace(), &"b-1".parse().unwrap()).await;
    assert_eq!(one.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w22_a_letter_that_cannot_be_read_stops_no_other() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let caller = Caller { uid: InstanceUid::generate(), run: Run(1), call: CallHash([3; 16]) };
    let letter = NewLetter { to: Address::Instance(caller.uid), caller, said: Said::Watch };
    let writes = Writes { letters: vec![letter; 3], ..Writes::default() };
    scene.write(Needs::default(), writes).await.unwrap();
    fixture::execute(fixture.url(), "UPDATE mailbox SET body = '\\x00' WHERE number <> 3").await;
    let numbers = |mail: &Mail| mail.letters.iter().map(|posted| posted.letter.number).collect::<Vec<_>>();
    let whole = scene.store.letters(0, 100).await.unwrap();
    assert_eq!((numbers(&whole), whole.next), (vec![3], None));
    // Nor do those that fill a page.
    let first = scene.store.letters(0, 2).await.unwrap();
    assert_eq!((numbers(&first), first.next), (vec![], Some(2)));
}

/// However many messages have met an instance, none is left behind its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p27_every_decision_on_a_deleted_instance_goes_or_gets_its_mark() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let brief = Own { complete: None, failed: Some(Millis(0)) };
    let (deleted, expired) = ("deleted", "expired");
    let mut uids = Vec::new();
    for id in [deleted, expired] {
        let start = Start { retention: brief, ..start("orders", id, "1") };
        uids.push(start.uid);
        scene.run(vec![Input::Start(Box::new(start))]).await;
        let fill = format!(
            "INSERT INTO message_decision (decided_at, namespace, workflow, app_id, message_id, id, answer)
            SELECT CASE WHEN n % 2 = 0 THEN 1 ELSE everstep_clock() END, 'shop', 'orders', '{id}', n, '{id}', 'created'
            FROM generate_series(1, 20100) n"
        );
        fixture::execute(fixture.url(), &fill).await;
        scene.on(uids[uids.len() - 1], scene::terminate("t")).await;
    }
    let delete = What::Delete { operation: "d".to_owned(), terminate: false };
    assert_eq!(scene.on(uids[0], delete).await, Answer::Done);
    assert_eq!(scene.on(uids[1], What::Expire).await, Answer::Done);
    let (client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let count =
        "SELECT count(*), count(*) FILTER (WHERE answer LIKE 'was:%') FROM message_decision WHERE id = $1";
    for (id, left) in [(deleted, 0), (expired, 10_050)] {
        let row = client.query_one(count, &[&id]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (left, left), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p22_an_event_without_its_payload_is_corrupt_and_not_lost() {
    let fixture = Postgres::create().await;
    let scene = Scene::new(fixture.store());
    let uid = scene.start("o-1").await;
    let event = |sequence: u32, run: u32| {
        format!(
            "INSERT INTO event (instance, sequence, received_at, unread, type, key, app_id, event_id, fingerprint, call,
                run, position)
            VALUES ('{uid}', {sequence}, 1, false, 'paid', '', '', 'e-{sequence}', decode(repeat('00', 32), 'hex'),
                decode(repeat('02', 16), 'hex'), {run}, 99)"
        )
    };
    let needs = Needs { heads: vec![uid], returns: vec![(uid, CallHash([2; 16]))], ..Needs::default() };
    // Of another run nothing returns, and its journal may be gone.
    fixture::execute(fixture.url(), &event(1, 2)).await;
    assert!(scene.load(needs.clone()).await.rows.events.is_empty());
    fixture::execute(fixture.url(), &event(2, 1)).await;
    let nothing = Box::new(|_| Writes::default());
    let error = fixture.store().transact(needs, nothing).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// 64 starters, who share four coordinators' connections, race for 200 tokens. Each has one owner, whom every loser names.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn h02_h32_h36_of_sixty_four_starters_one_gets_each_token() {
    const STARTERS: usize = 64;
    const TOKENS: usize = 200;
    const AT_ONCE: usize = 25;
    let fixture = Postgres::create().await;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..4 {
        let settings = PostgresSettings { pool_max: 4, ..PostgresSettings::new(fixture.url()) };
        stores.push(Arc::new(PostgresStore::connect(settings).await.unwrap()));
    }
    let starter = |starter: usize| {
        let scene = Scene::new(Arc::clone(&stores[starter % stores.len()]));
        async move {
            let mut told = Vec::new();
            // Each begins somewhere else, so that all meet everywhere.
            let tokens: Vec<usize> = (0..TOKENS).map(|token| (token + 3 * starter) % TOKENS).collect();
            for tokens in tokens.chunks(AT_ONCE) {
                let starts: Vec<_> = tokens
                    .iter()
                    .map(|token| hooks::hooked(&format!("s-{starter}-{token}"), &format!("t-{token}"), None))
                    .map(|start| Input::Start(Box::new(start)))
                    .collect();
                let answers = loop {
                    match scene.try_run(starts.clone()).await {
                        Ok(ran) => break ran.answers,
                        // Somebody was faster, or holds a lock for too long: a coordinator runs it again.
                        Err(error)
                            if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unavailable) => {}
                        Err(error) => panic!("{error}"),
                    }
                };
                told.extend(tokens.iter().copied().zip(answers));
            }
            (starter, told)
        }
    };
    let told = futures::future::join_all((0..STARTERS).map(starter).map(tokio::spawn)).await;
    let mut owners = vec![Vec::new(); TOKENS];
    let mut named = vec![Vec::new(); TOKENS];
    for (starter, told) in told.into_iter().map(|told| told.unwrap()) {
        for (token, answer) in told {
            match answer {
                Answer::Created => owners[token].push(format!("s-{starter}-{token}")),
                Answer::HookHeld(owner) => named[token].push(owner.id.to_string()),
                other => panic!("{other:?}"),
            }
        }
    }
    for (owners, named) in owners.iter().zip(&named) {
        let [owner] = &owners[..] else { panic!("{owners:?}") };
        assert_eq!(named.len(), STARTERS - 1);
        assert!(named.iter().all(|named| named == owner), "{owner} {named:?}");
    }
    let (client, connection) = tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for table in ["instance", "instance_name", "hook", "journal", "ready"] {
        let count = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap();
        assert_eq!(count.get::<_, i64>(0), TOKENS as i64, "H3: {table}");
    }
}

/// Every table and column that could name an instance, by its text.
async fn traces(url: &str, texts: &[String]) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let tables = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'";
    let mut found = Vec::new();
    for table in client.query(tables, &[]).await.unwrap() {
        let table: String = table.get(0);
        for text in texts {
            let sql = format!("SELECT count(*) FROM \"{table}\" t WHERE t::text LIKE '%' || $1 || '%'");
            if client.query_one(&sql, &[text]).await.unwrap().get::<_, i64>(0) > 0 {
                found.push(format!("{table}: {text}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p32_a_deleted_instance_leaves_no_trace_in_any_table() {
    let fixture = Postgres::create().await;
    let store: Arc<dyn Store> = fixture.store();
    let scene = Scene::new(Arc::clone(&store));
    let uid = control::with_every_row(&scene, "the-one").await;
    let texts = [uid.to_string(), "the-one".to_owned()];
    assert!(traces(fixture.url(), &texts).await.len() >= 10, "the search finds what is there");
    let what = What::Delete { operation: "d".to_owned(), terminate: true };
    assert_eq!(scene.on(uid, what).await, Answer::Done);
    store.sweep(1_000).await.unwrap();
    // Its last message, until the broker has confirmed it.
    store.sent(&[(uid, Run(1))]).await.unwrap();
    assert_eq!(traces(fixture.url(), &texts).await, Vec::<String>::new());
}

/// Two coordinators commit in another order than they began: whoever has read the later one must not miss the earlier one.
/// More rows than a page has, which only a newer version can read, are passed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s10_schedules_that_cannot_be_read_stop_no_other() {
    let fixture = Postgres::create().await;
    let (client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let store = fixture.store();
    let insert = "INSERT INTO schedule (namespace, id, version, created_at, changed_at, wake_at, definition, state)
        SELECT $1, 's-' || lpad(n::text, 4, '0'), n, 0, 0, n, CASE WHEN n < 450 THEN '{\"of_tomorrow\":1}' ELSE $2 END, '{}'
        FROM generate_series(1, 455) AS n";
    let definition = everstep_engine::schedule::Definition::starts(
        "orders",
        &1,
        everstep_engine::schedule::When::every(everstep_protocol::Millis::from_secs(60)),
    );
    let definition = definition.unwrap().to_text();
    client.execute(insert, &[&scene::namespace().as_str(), &definition.as_str()]).await.unwrap();
    let ids =
        |rows: &[everstep_store::ScheduleRow]| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    let expected: Vec<_> = (450..=455).map(|n| format!("s-{n:04}")).collect();
    assert_eq!(ids(&store.woken_schedules(200).await.unwrap().rows), expected);
    let first = store.schedules(&scene::namespace(), None, 3).await.unwrap();
    assert_eq!((ids(&first.what), first.next.as_ref()), (expected[..3].to_vec(), Some(&first.what[2].id)));
    let rest = store.schedules(&scene::namespace(), first.next.as_ref(), 200).await.unwrap();
    assert_eq!((ids(&rest.what), rest.next), (expected[3..].to_vec(), None));
}

/// What was deleted leaves spans of transactions without any ends: each page looks over them, and none is skipped or told twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ends_are_found_in_order_over_spans_of_which_none_are_kept() {
    let fixture = Postgres::create().await;
    let (client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let (scene, store) = (Scene::new(fixture.store()), fixture.store());
    let insert = "INSERT INTO ended (instance, delete_at, status, namespace, workflow, tx)
        VALUES ($1, 0, 3, $2, 'orders', $3)";
    let mut expected = Vec::new();
    for (nth, tx) in [1_i64, 1, 2, 64, 65, 66, 128, 129, 300, 300, 301, 700].into_iter().enumerate() {
        let uid = scene.start(&format!("o-{nth}")).await;
        client.execute(insert, &[&uid.0, &scene::namespace().as_str(), &tx]).await.unwrap();
        expected.push((tx, uid));
    }
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(_, uid)| uid).collect();
    let all = everstep_store::Ends { namespace: scene::namespace(), ..Default::default() };
    for limit in [1, 2, 5, 12, 50] {
        let (mut told, mut after) = (Vec::new(), everstep_store::EndMark::default());
        loop {
            let page = store.ends(&all, &after, limit).await.unwrap();
            assert!(page.rows.len() <= limit as usize && page.next >= after);
            told.extend(page.rows.iter().map(|(_, view)| view.uid));
            after = page.next;
            if !page.more {
                break;
            }
        }
        assert_eq!(told, expected, "{limit} at once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_that_commits_late_is_not_skipped() {
    let fixture = Postgres::create().await;
    let (mut client, connection) =
        tokio_postgres::connect(fixture.url(), tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    let scene = Scene::new(fixture.store());
    let store = fixture.store();
    let all = everstep_store::Ends { namespace: scene::namespace(), ..Default::default() };
    let (late, soon) = (scene.start("late").await, scene.start("soon").await);
    let begin = store.ends_now().await.unwrap();
    let slow = client.transaction().await.unwrap();
    let insert = "INSERT INTO ended (instance, delete_at, status, namespace, workflow) VALUES ($1, 0, 3, $2, 'orders')";
    slow.execute(insert, &[&late.0, &scene::namespace().as_str()]).await.unwrap();
    scene.on(soon, scene::terminate("op")).await;
    let told = async |after| {
        let page = store.ends(&all, &after, 10).await.unwrap();
        (page.rows.iter().map(|(_, view)| view.uid).collect::<Vec<_>>(), page.next)
    };
    let (before, next) = told(begin).await;
    assert_eq!(before, [], "what is committed waits for what began before it");
    slow.commit().await.unwrap();
    // Other tests write in other databases of this cluster.
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    for _ in 0..2_000 {
        ticks.tick().await;
        if told(next).await.0.len() == 2 {
            break;
        }
    }
    assert_eq!(told(next).await.0, [late, soon]);
}
