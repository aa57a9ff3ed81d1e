//! An older database is restored under workers that go on (rules L7, W2): a dump is taken of a system at work, which then goes on; the
//! dump becomes a new database, and `everstep restored` begins its life.
//!
//! What is proved: nothing that the dump has is lost, what may have been called asks, what former holders say is refused, ends are told.
//! What is not: a restore in place by write-ahead logs, which the database sees no difference in.

use std::sync::Arc;

use everstep::{Error, Registry, Step, Workflow};
use everstep_coordinator::{Coordinator, Decision, EventRequest, Handle, Settings};
use everstep_engine::{Answer, mailbox::EventId};
use everstep_protocol::{
    Millis, Namespace, Payload, Scope,
    journal::{Choice, QuestionId},
};
use everstep_store::{
    ActionFilter, EndMark, Ends, ErrorKind, StatusWord, Store,
    postgres::{self, PostgresSettings, PostgresStore},
};
use everstep_system_tests::{DEADLINE, Gate, Kind, Log, Setup, World, within, world::name};
use tokio::{sync::oneshot, task::JoinHandle};

/// What is open when the dump is taken.
const BUSY: usize = 20;

fn code(log: &Log, held: &Gate, late: &Gate) -> Registry {
    let pay = |gate: Option<&Gate>| {
        let (log, gate) = (log.clone(), gate.cloned());
        move |step: Step, (): ()| {
            let (log, gate) = (log.clone(), gate.clone());
            async move {
                log.push(step.instance_id().to_owned());
                if let Some(gate) = gate {
                    gate.pass().await;
                }
                Ok::<_, Error>(7_u32)
            }
        }
    };
    let (free, holds, lags, remote) = (pay(None), pay(Some(held)), pay(Some(late)), pay(None));
    let busy = log.clone();
    Registry::new()
        .workflow_fn("holds", move |cx: Workflow, (): ()| {
            let step = holds.clone();
            async move { cx.step("pay", (), step).at_most_once().await }
        })
        .workflow_fn("later", move |cx: Workflow, (): ()| {
            let step = free.clone();
            async move {
                cx.event::<()>("go").timeout("1 day").await?;
                let first: u32 = cx.step("pay", (), step.clone()).at_most_once().await?;
                Ok::<_, Error>(first)
            }
        })
        .workflow_fn("far", |cx: Workflow, (): ()| async move {
            cx.event::<()>("go").timeout("1 day").await?;
            cx.remote::<u32>("pay", ()).on("bank").at_most_once().await
        })
        .workflow_fn("lags", move |cx: Workflow, (): ()| {
            let step = lags.clone();
            async move { cx.step("note", (), step).await }
        })
        .workflow_fn("busy", move |cx: Workflow, rounds: u32| {
            let log = busy.clone();
            async move {
                let note = move |_: Step, n: u32| {
                    let log = log.clone();
                    async move {
                        log.push(format!("busy {n}"));
                        Ok::<_, Error>(n)
                    }
                };
                let mut sum = 0;
                for round in 0..rounds {
                    sum += cx.step("note", round, note.clone()).await?;
                    cx.sleep("rest", "150ms").await?;
                }
                Ok::<_, Error>(sum)
            }
        })
        .function("pay", remote)
}

/// A coordinator on the restored database, beside the workers that there are.
struct Life {
    handle: Handle,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), everstep_coordinator::Error>>,
}

impl Life {
    /// One that has read which life it is, and does not work yet.
    async fn made(store: &Arc<dyn Store>, world: &World) -> Coordinator {
        let settings = Settings {
            lease: Millis(3_000),
            heartbeat: Millis(300),
            unroutable: Millis(500),
            offer_again: Millis(1_500),
            ..Settings::default()
        };
        let coordinator = Coordinator::new(Arc::clone(store), Arc::clone(world.broker()), settings).await;
        coordinator.expect("it begins")
    }

    async fn begin(store: &Arc<dyn Store>, world: &World) -> Self {
        let coordinator = Self::made(store, world).await;
        let handle = coordinator.handle();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(coordinator.run(async move { drop(stopped.await) }));
        Self { handle, stop, running }
    }

    async fn end(self) {
        drop(self.stop);
        within("the coordinator stops", DEADLINE, self.running).await.expect("no panic").expect("it stops");
    }

    async fn go(&self, workflow: &str, id: &str) {
        let event = EventRequest {
            kind: "go".parse().expect("a type"),
            key: None,
            id: EventId { app_id: String::new(), id: "go-1".to_owned() },
            payload: Payload::null(),
        };
        let answer = self.handle.send_event(name(workflow, id), event).await.expect("it is decided");
        assert!(!matches!(answer, Answer::NotFound), "{workflow} {id}");
    }

    async fn until(&self, world: &World, (workflow, id): (&str, &str), status: StatusWord) {
        let name = name(workflow, id);
        world
            .eventually(&format!("{workflow} {id} is {status:?}"), async || {
                let view = self.handle.store().instance(&name).await.expect("the store answers");
                view.is_some_and(|view| view.status == status)
            })
            .await;
    }

    async fn answer(&self, workflow: &str, id: &str, choice: Choice) {
        let view = self.handle.store().instance(&name(workflow, id)).await.expect("the store answers");
        let view = view.expect("it is there");
        let asked = view.waiting.iter().find_map(|wait| wait.question.as_ref()).expect("it asks");
        let question = QuestionId { run: view.run, position: asked.position };
        let decision = Decision { choice, by: Some("ann".to_owned()), why: None };
        let answer = self.handle.resolve(name(workflow, id), "op".to_owned(), question, decision).await;
        assert_eq!(answer.expect("it is answered"), Answer::Done, "{workflow} {id}");
    }
}

async fn told(store: &Arc<dyn Store>) -> Vec<String> {
    let ends = Ends { namespace: Namespace::default(), workflow: None, status: None };
    let page = store.ends(&ends, &EndMark::default(), 100).await.expect("the store answers");
    page.rows.into_iter().map(|(_, view)| view.id.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::too_many_lines, reason = "one restore, and all that must be true after it")]
async fn l07_after_a_restore_nothing_is_lost_and_what_may_have_been_called_asks() {
    let (log, held, late) = (Log::new(), Gate::closed(), Gate::closed());
    let mut world = Setup::new(Kind::Fleet).start().await;
    let bank = "bank".parse().expect("a pool");
    world.add_worker_with(code(&log, &held, &late), |settings| settings.pools = vec![bank]).await;
    world.begin("busy", "before", &1).await;
    world.end("busy", "before").await;
    world.begin("holds", "holds", &()).await;
    world.begin("lags", "lags", &()).await;
    for id in ["later", "settled"] {
        world.begin("later", id, &()).await;
        world.until("later", id, "waiting", |view| view.status == StatusWord::Waiting).await;
    }
    world.begin("far", "far", &()).await;
    world.until("far", "far", "waiting", |view| view.status == StatusWord::Waiting).await;
    log.reached("holds", 1).await;
    log.reached("lags", 1).await;
    for n in 0..BUSY {
        world.begin("busy", &format!("busy-{n}"), &8).await;
    }
    log.reached("busy 1", BUSY / 2).await;
    let dump = tokio::task::block_in_place(|| world.installation().dump()).expect("it is dumped");

    // The life that will be forgotten goes on.
    for (workflow, id) in [("later", "later"), ("far", "far")] {
        world.send(workflow, id, ("go-1", "go"), &()).await;
        world.end(workflow, id).await;
        assert_eq!(log.count(id), 1);
    }
    held.open();
    world.end("holds", "holds").await;
    world.begin("busy", "after", &1).await;
    world.end("busy", "after").await;
    world.crash_coordinator(0).await;
    // What a worker reports to nobody is there when the next life begins.
    late.open();

    let copy = tokio::task::block_in_place(|| world.installation().restore(&dump)).expect("it is restored");
    let settings = PostgresSettings { pool_max: 4, ..PostgresSettings::new(&copy.postgres) };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(settings).await.expect("it is migrated"));
    // As in a dump of a server whose counter of transactions is far ahead of this one's.
    let ahead = "UPDATE ended SET tx = tx + 1000000000; UPDATE duty SET until_at = 0; \
                 UPDATE coordinator SET heard_at = 0";
    tokio::task::block_in_place(|| copy.sql(ahead)).expect("it is changed");
    assert_eq!(told(&store).await, [""; 0], "the stream waits for the counter");
    let before = store.incarnation().await.expect("the store answers");
    let early = Life::made(&store, &world).await;
    let restored = postgres::restored(&copy.postgres).await.expect("it is restored");
    assert!(restored.incarnation > before && restored.sessions == 1 && restored.ends >= 1, "{restored:?}");
    let ended = within("whoever began before ends", DEADLINE, early.run(std::future::pending())).await;
    assert!(matches!(ended, Err(everstep_coordinator::Error::AnotherLife { .. })), "{ended:?}");
    tokio::task::block_in_place(|| copy.sql("DELETE FROM coordinator")).expect("it was seen, and is gone");
    world.eventually("the end is told", async || told(&store).await.contains(&"before".to_owned())).await;

    let life = Life::begin(&store, &world).await;
    let duties = "SELECT count(*) FROM duty WHERE until_at > everstep_clock() + 1000000";
    world
        .eventually("the coordinator has its duties", async || {
            let count = tokio::task::block_in_place(|| copy.sql(duties)).expect("the server answers");
            count != "0"
        })
        .await;
    let again = postgres::restored(&copy.postgres).await.expect_err("a coordinator runs");
    assert_eq!(again.kind(), ErrorKind::InUse, "{again}");
    // Nothing that the dump has is lost.
    for n in 0..BUSY {
        life.until(&world, ("busy", &format!("busy-{n}")), StatusWord::Complete).await;
    }
    life.until(&world, ("lags", "lags"), StatusWord::Complete).await;
    assert_eq!(
        log.count("lags"),
        2,
        "what the former holder says of it is not believed: it is called again, under its key"
    );
    world
        .eventually("the former report is on record", async || {
            let rejected = store.rejected(&Namespace::default(), 100).await.expect("the store answers");
            rejected.iter().any(|record| record.code == "incarnation")
        })
        .await;
    // What was running when the dump was taken asks, and so does what may have been called since.
    life.until(&world, ("holds", "holds"), StatusWord::Attention).await;
    for (workflow, id) in [("later", "later"), ("far", "far")] {
        life.go(workflow, id).await;
        life.until(&world, (workflow, id), StatusWord::Attention).await;
        assert_eq!(log.count(id), 1, "{id} is not called before a person says so");
        life.answer(workflow, id, Choice::Again).await;
        life.until(&world, (workflow, id), StatusWord::Complete).await;
        assert_eq!(log.count(id), 2, "{id} is called once more, and asks no second time");
    }
    let done = Choice::Done(Payload::encode(&7).expect("it has a form"));
    life.answer("holds", "holds", done).await;
    life.until(&world, ("holds", "holds"), StatusWord::Complete).await;
    assert_eq!(log.count("holds"), 1);
    // What the dump has not is gone, and may be started again.
    assert!(store.instance(&name("busy", "after")).await.expect("the store answers").is_none());
    life.handle.start(world.request("busy", Some("after"), &1)).await.expect("it is decided");
    life.until(&world, ("busy", "after"), StatusWord::Complete).await;
    // An instance of this life does what it does without being asked.
    life.handle.start(world.request("later", Some("new"), &())).await.expect("it is decided");
    life.go("later", "new").await;
    life.until(&world, ("later", "new"), StatusWord::Complete).await;
    life.end().await;

    assert!(postgres::settled(&copy.postgres).await.expect("the store answers"));
    assert!(!postgres::settled(&copy.postgres).await.expect("the store answers"));
    // Who did that is on record, once for each (rule A6).
    let filter = ActionFilter { target: Some("installation".to_owned()), ..ActionFilter::within(Scope::All) };
    let actions = store.actions(&filter, None, 9).await.expect("the store answers");
    let operations: Vec<_> = actions.iter().map(|row| row.operation.as_str()).collect();
    assert_eq!(operations, ["restored-settled", "restored"]);
    assert!(actions.iter().all(|row| row.who == "whoever has the database"), "{actions:?}");
    let life = Life::begin(&store, &world).await;
    life.go("later", "settled").await;
    life.until(&world, ("later", "settled"), StatusWord::Complete).await;
    assert_eq!(log.count("settled"), 1);
    life.end().await;
}
