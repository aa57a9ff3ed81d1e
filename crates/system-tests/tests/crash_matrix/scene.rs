//! What happens in a row: the scene that comes by every place, who dies in it, and what is true afterwards.

use std::{
    collections::HashMap,
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use everstep_broker::{Outgoing, Properties};
use everstep_coordinator::OfSchedule;
use everstep_protocol::{Namespace, topology};
use everstep_system_tests::{
    DEADLINE, Kind, Setup, World,
    crash::{Line, POOL, effects, lines, registry},
};
use everstep_testbed::{Process, UNSOUND};

/// SIGABRT: how a process at a point of crash ends.
const ABORTED: i32 = 6;
/// So long after the scene whoever was to die has died.
const DIES_WITHIN: Duration = Duration::from_secs(15);
/// Nobody has this queue, which does no harm.
const REPLY_TO: &str = "replies.of.nobody";

/// How many wait for a worker, but for those that the victim's schedule starts.
const READY: &str =
    "SELECT count(*) FROM ready r JOIN instance i ON i.id = r.instance WHERE i.workflow IN ('mix', 'large')";
/// How many sleep, and wake before it is noticed that their worker is dead.
const ASLEEP: &str = "SELECT count(*) FROM wait WHERE kind = 1 \
    AND due_at BETWEEN everstep_clock() + 100000 AND everstep_clock() + 450000";

/// A system, one process of which is to die.
struct Scene {
    world: World,
    directory: tempfile::TempDir,
    victim: Option<Process>,
    is_coordinator: bool,
    started: Vec<(&'static str, String)>,
    point: String,
    /// What the victim said before it died.
    said: Vec<String>,
}

fn node(arguments: &[&str], variables: &[(&str, &str)]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crash_node"));
    command.args(arguments).envs(variables.iter().copied());
    Process::spawn(arguments[0], &mut command).expect("the node starts")
}

impl Scene {
    async fn new(point: &str, coordinators: usize) -> Self {
        let setup = Setup::new(Kind::Fleet).coordinators(coordinators);
        let setup = setup.worker(|settings| settings.pools = vec![POOL.parse().expect("a valid name")]);
        Self {
            world: setup.start().await,
            directory: tempfile::tempdir().expect("a directory"),
            victim: None,
            is_coordinator: coordinators == 0,
            started: Vec::new(),
            point: point.to_owned(),
            said: Vec::new(),
        }
    }

    fn ledger(&self) -> PathBuf {
        self.directory.path().join("ledger")
    }

    /// Starts the process that is to die.
    fn arm(&mut self, more: &[&str]) {
        let (postgres, amqp) = self.world.urls();
        let ledger = self.ledger();
        let ledger = ledger.to_str().expect("a path of ours");
        let arguments = if self.is_coordinator {
            vec!["coordinator", postgres, amqp]
        } else {
            vec!["worker", amqp, ledger]
        };
        let variables = [("EVERSTEP_CRASH_POINT", self.point.as_str())];
        self.victim = Some(node(&[&arguments[..], more].concat(), &variables));
    }

    /// Once the victim has died, another one goes on in its place. Tells whether it has.
    async fn replace(&mut self) -> bool {
        let Some(victim) = &mut self.victim else { return true };
        let Ok(status) = victim.wait(Duration::ZERO) else { return false };
        assert_eq!(status.signal(), Some(ABORTED), "it ended, but not at {}: {status}", self.point);
        // What it wrote is still in the pipe.
        while let Ok(line) = victim.line() {
            self.said.push(line);
        }
        self.victim = None;
        if self.is_coordinator {
            self.world.add_coordinator().await;
        } else {
            self.add_worker().await;
        }
        true
    }

    async fn add_worker(&mut self) -> usize {
        self.world.add_worker(registry(&self.ledger(), false)).await
    }

    /// Waits until something is so, whoever dies meanwhile.
    async fn until(&mut self, what: &str, mut ask: impl AsyncFnMut(&World) -> bool) {
        let began = Instant::now();
        while !ask(&self.world).await {
            assert!(began.elapsed() < DEADLINE, "{}: {what}: not within {DEADLINE:?}", self.point);
            self.replace().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn has_queue(&mut self, queue: String) {
        self.until("the topology is declared", async |world| {
            matches!(world.broker().depth(&queue).await, Ok(Some(_)))
        })
        .await;
    }

    async fn start(&mut self, workflow: &'static str, id: String) {
        let body = format!(r#"{{"workflow":"{workflow}","id":"{id}","input":"{id}"}}"#);
        let properties = Properties {
            message_id: Some(id.clone()),
            reply_to: Some(REPLY_TO.to_owned()),
            ..Properties::default()
        };
        self.world.publish(body, properties).await;
        self.started.push((workflow, id));
    }

    async fn start_some(&mut self, workflow: &'static str, from: usize, to: usize) {
        for number in from..to {
            self.start(workflow, format!("{workflow}-{number}")).await;
        }
    }

    /// Sends each its event, once it is there.
    async fn tell_all(&mut self) {
        let all: Vec<String> = self
            .started
            .iter()
            .filter(|(workflow, _)| *workflow == "mix")
            .map(|(_, id)| id.clone())
            .collect();
        for id in all {
            self.until("it exists", async |world| world.view("mix", &id).await.is_some()).await;
            let body = format!(r#"{{"workflow":"mix","id":"{id}","type":"go","payload":1}}"#);
            let properties = Properties { message_id: Some(format!("go-{id}")), ..Properties::default() };
            self.world.publish_event(body, properties).await;
        }
    }

    /// What cannot be taken: it becomes a record, or nothing.
    async fn send_nonsense(&mut self) {
        self.has_queue(topology::report_queue(0)).await;
        let garbage = Outgoing::to_queue(topology::report_queue(0), "no envelope");
        self.world.broker().send(vec![garbage]).await.expect("the broker is there");
        let properties = Properties { message_id: Some("nonsense".to_owned()), ..Properties::default() };
        self.world.publish("nonsense", properties).await;
    }

    /// Waits for the death, and sees that somebody goes on.
    async fn death(&mut self, within: Duration) {
        let began = Instant::now();
        while !self.replace().await {
            assert!(began.elapsed() < within, "nobody came to {}", self.point);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn tell_to_stop(&self) {
        if let Some(victim) = &self.victim {
            victim.signal("TERM").expect("it is there");
        }
    }

    /// Everything has ended as it would have without a death.
    async fn check(&mut self) {
        for (workflow, id) in &self.started {
            self.world.end(workflow, id).await.output::<()>();
        }
        assert_eq!(self.world.ends().doubled(), []);
        let mut came: HashMap<String, Vec<(usize, String)>> = HashMap::new();
        for (at, line) in lines(&self.ledger()).into_iter().enumerate() {
            came.entry(line.effect).or_default().push((at, line.key));
        }
        for (workflow, id) in &self.started {
            let mut last_of_earlier = (0, 0);
            for (effect, phase) in effects(workflow, id) {
                let lines = came.remove(&effect).unwrap_or_else(|| panic!("{effect} never came"));
                assert!(
                    lines.iter().all(|(_, key)| *key == lines[0].1),
                    "{effect} came under two keys: {lines:?}"
                );
                // Once a later phase has begun, everything before it was recorded and is not run again.
                let (first, last) = (lines[0].0, lines[lines.len() - 1].0);
                let (earlier, until) = last_of_earlier;
                assert!(phase == earlier || first >= until, "{effect} came before an earlier one was over");
                last_of_earlier = (phase, until.max(last));
            }
        }
        assert!(came.is_empty(), "effects of nobody: {came:?}");
        self.stop_schedule().await;
        self.until("everything has ended", async |world| {
            world.sql("SELECT count(*) FROM instance WHERE status = 0") == "0"
        })
        .await;
        for (what, sql) in UNSOUND {
            assert_eq!(self.world.sql(sql), "0", "{what}");
        }
        self.check_access_tokens();
    }

    /// What was acknowledged to be made is there, and what was acknowledged to be revoked is.
    fn check_access_tokens(&self) {
        for line in &self.said {
            let (what, id) = line.split_once(' ').expect("a word and what it is about");
            let wanted = match what {
                "made" => format!("SELECT count(*) FROM access_token WHERE id = '{id}'"),
                "revoked" => {
                    format!("SELECT count(*) FROM access_token WHERE id = '{id}' AND revoked_at IS NOT NULL")
                }
                _ => continue,
            };
            assert_eq!(self.world.sql(&wanted), "1", "{line}, and after {} it is not so", self.point);
        }
    }

    /// What the victim's operator had put.
    async fn stop_schedule(&self) {
        let (namespace, id) = (Namespace::default(), "tick".parse().expect("a valid id"));
        if self.world.coordinators_made() > 0 {
            let of = OfSchedule { namespace: &namespace, id: &id, by: None };
            self.world.handle().delete_schedule(of).await.expect("the store answers");
        }
    }
}

/// A coordinator dies at this point.
pub(crate) async fn coordinator(point: &str) {
    let mut scene = Scene::new(point, 0).await;
    // Without direct grants a wake is offered to whoever keeps the body, and later to all.
    let is_later = point.starts_with("publish.later");
    scene.arm(if is_later { &["indirect"] } else { &[] });
    scene.has_queue(topology::start_queue(&Namespace::default())).await;
    // What is there before anybody can work on it is offered later.
    scene.start_some("mix", 0, 5).await;
    scene.start_some("large", 0, 2).await;
    scene.send_nonsense().await;
    let first = scene.add_worker().await;
    let ledger = scene.ledger();
    // Whatever the first one has, asleep in its cache or under way, goes to the second one.
    if is_later {
        scene.until("somebody sleeps", async |world| world.sql(ASLEEP) != "0").await;
        scene.world.crash_worker(first).await;
        scene.add_worker().await;
    } else {
        let is_large = |line: &&Line| line.effect.ends_with("/three");
        let are_large = async |_: &World| lines(&ledger).iter().filter(is_large).count() >= 2;
        scene.until("the journals are large", are_large).await;
        scene.add_worker().await;
        scene.world.crash_worker(first).await;
    }
    scene.start_some("mix", 5, 9).await;
    let third = scene.add_worker().await;
    scene.world.stop_worker(third).await;
    scene.tell_all().await;
    if point.starts_with("commit.duties_released") {
        scene.tell_to_stop();
    }
    scene.death(DIES_WITHIN).await;
    scene.check().await;
    let rejected = scene.world.sql("SELECT count(*) FROM rejected");
    assert_eq!(rejected, "1", "a message that cannot be taken has one record");
}

/// A coordinator dies at this point, which it comes to when it has found an instance that nothing would move.
pub(crate) async fn auditor(point: &str) {
    let mut scene = Scene::new(point, 0).await;
    scene.arm(&[]);
    scene.has_queue(topology::start_queue(&Namespace::default())).await;
    scene.start_some("mix", 0, 3).await;
    scene.start_some("large", 0, 1).await;
    scene.until("all wait for a worker", async |world| world.sql(READY) == "4").await;
    scene.world.sql("DELETE FROM ready WHERE instance = (SELECT id FROM instance WHERE name = 'mix-1')");
    scene.death(DEADLINE).await;
    // The record is made after the mending, which is never done twice.
    let records = scene.world.sql("SELECT count(*) FROM breach WHERE kind = 'idle' AND name = 'mix-1'");
    assert_eq!(
        records,
        if point == "commit.breaches.after" { "1" } else { "0" },
        "records of what was mended"
    );
    assert_eq!(scene.world.sql(READY), "4", "it is mended, whatever has become of the record");
    scene.add_worker().await;
    scene.tell_all().await;
    scene.check().await;
    let breaches = scene.world.sql("SELECT count(*) FROM breach");
    assert_eq!(breaches, records, "nothing was broken by the death");
}

/// A worker dies at this point.
pub(crate) async fn worker(point: &str) {
    let mut scene = Scene::new(point, 1).await;
    scene.start_some("mix", 0, 5).await;
    scene.start_some("large", 0, 1).await;
    if point.starts_with("publish.give_up") {
        scene.start_some("stuck", 0, 1).await;
        scene.arm(&["stuck"]);
    } else {
        scene.arm(&[]);
    }
    scene.tell_all().await;
    if point.starts_with("publish.goodbye") {
        let ledger = scene.ledger();
        scene.until("it works", async |_| lines(&ledger).len() > 3).await;
        scene.tell_to_stop();
    }
    scene.death(DIES_WITHIN).await;
    scene.start_some("mix", 5, 7).await;
    scene.tell_all().await;
    scene.check().await;
}

/// Nobody dies; a coordinator and a worker get every message twice.
pub(crate) async fn twice() {
    let mut scene = Scene::new("none", 0).await;
    let (postgres, amqp) = scene.world.urls();
    let twice = [("EVERSTEP_DELIVER_TWICE", "1")];
    let mut coordinator = node(&["coordinator", postgres, amqp], &twice);
    let ledger = scene.ledger();
    let mut worker = node(&["worker", amqp, ledger.to_str().expect("a path of ours")], &twice);
    // Nobody is to be replaced.
    scene.until_there(topology::start_queue(&Namespace::default())).await;
    scene.start_some("mix", 0, 8).await;
    scene.start_some("large", 0, 2).await;
    let all = scene.started.clone();
    for (workflow, id) in &all {
        scene.world.eventually("it exists", async || scene.world.view(workflow, id).await.is_some()).await;
    }
    for (_, id) in all.iter().filter(|(workflow, _)| *workflow == "mix") {
        let body = format!(r#"{{"workflow":"mix","id":"{id}","type":"go","payload":1}}"#);
        let properties = Properties { message_id: Some(format!("go-{id}")), ..Properties::default() };
        scene.world.publish_event(body, properties).await;
    }
    for (workflow, id) in &all {
        scene.world.end(workflow, id).await.output::<()>();
    }
    for process in [&mut worker, &mut coordinator] {
        process.signal("TERM").expect("it is there");
    }
    let received = std::iter::from_fn(|| coordinator.line().ok())
        .find_map(|line| line.strip_prefix("received ")?.parse::<f64>().ok())
        .expect("it says so");
    assert!(received >= 2.0 * all.len() as f64, "each start comes twice, not {received} in all");
    assert!(worker.wait(DEADLINE).expect("it ends").success());
    assert!(coordinator.wait(DEADLINE).expect("it ends").success());
    // Not even a step was run twice.
    let lines = lines(&ledger);
    let wanted: usize = all.iter().map(|(workflow, id)| effects(workflow, id).len()).sum();
    assert_eq!(lines.len(), wanted, "{lines:?}");
    scene.world.add_coordinator().await;
    scene.add_worker().await;
    scene.check().await;
}

/// Nobody dies; half of the coordinators and workers write what a later version may write. Then the later ones are stopped, as when an
/// upgrade is taken back.
pub(crate) async fn side_by_side() {
    let mut scene = Scene::new("none", 1).await;
    let (postgres, amqp) = scene.world.urls();
    let later = [("EVERSTEP_SPEAKS_LATER", "1")];
    let mut coordinator = node(&["coordinator", postgres, amqp], &later);
    let ledger = scene.ledger();
    let mut worker = node(&["worker", amqp, ledger.to_str().expect("a path of ours")], &later);
    scene.add_worker().await;
    let sessions = "SELECT count(*) FROM session WHERE ended_at IS NULL";
    scene.world.eventually("both workers are there", async || scene.world.sql(sessions) == "2").await;
    let here = "SELECT count(*) FROM coordinator";
    scene.world.eventually("both coordinators are there", async || scene.world.sql(here) == "2").await;
    scene.start_some("mix", 0, 12).await;
    scene.start_some("large", 0, 3).await;
    scene.tell_all().await;
    let wrote = "SELECT count(*) FROM journal WHERE position('added_later'::bytea IN entry) > 0";
    scene
        .world
        .eventually("the later one has written into journals", async || scene.world.sql(wrote) != "0")
        .await;
    for process in [&mut worker, &mut coordinator] {
        process.signal("TERM").expect("it is there");
        assert!(process.wait(DEADLINE).expect("it ends").success());
    }
    scene.start_some("mix", 12, 16).await;
    scene.tell_all().await;
    scene.check().await;
}

impl Scene {
    async fn until_there(&self, queue: String) {
        self.world
            .eventually("the topology is declared", async || {
                matches!(self.world.broker().depth(&queue).await, Ok(Some(_)))
            })
            .await;
    }
}
