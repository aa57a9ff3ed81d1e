//! Whole fleets as an operator runs them: `everstep` and a worker as real processes, on real PostgreSQL and RabbitMQ, killed,
//! stopped and frozen. Proves what the command says and which exit code it has against a real server, and that every attempt of
//! a step, which the worker writes into a ledger of its own, is one that the journal accounts for. Not: what every
//! answer looks like (tests/commands.rs), nor the rules one by one (crates/system-tests).

mod access;
mod fleet;
mod fuse;
mod hooks;
mod producers;
mod watch;

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use fleet::{Fleet, PATIENCE, get, of_kind, recorded, until};

/// Short, for tests that wait for the end of a lease.
const LEASE_MS: u64 = 3_000;

fn succeeded(attempt: u64) -> (u64, String) {
    (attempt, "succeeded".to_owned())
}

#[test]
fn an_empty_database_is_refused_and_migrate_can_be_repeated() {
    let fleet = Fleet::bare();
    let told = fleet.run(&["coordinator", "--listen", "127.0.0.1:0"]).failed(1);
    assert!(told.contains("run `everstep migrate` first"), "{told}");
    assert!(fleet.run(&["migrate"]).succeeded().starts_with("applied 0001 "));
    assert_eq!(fleet.run(&["migrate"]).succeeded(), "the schema is up to date\n");
}

#[test]
fn two_migrations_at_once_do_no_harm() {
    let fleet = Fleet::bare();
    let spawn = || {
        let mut command = fleet.everstep();
        command.arg("migrate").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("migrate starts")
    };
    let both = [spawn(), spawn()].map(|child| fleet::Told::from(child.wait_with_output().expect("it ends")));
    let mut told = both.map(fleet::Told::succeeded);
    told.sort();
    assert!(told[0].starts_with("applied 0001 "), "{told:?}");
    assert_eq!(told[1], "the schema is up to date\n");
}

/// As a platform does it: the probes come to the pod's address, whatever host they name, and see nothing of the API there.
#[test]
fn probes_and_metrics_may_be_asked_where_the_api_may_not() {
    let fleet = Fleet::bare();
    fleet.run(&["migrate"]).succeeded();
    let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let mut command = fleet.everstep();
    command
        .args(["coordinator", "--listen", "127.0.0.1:0"])
        .env("EVERSTEP_METRICS__LISTEN", format!("0.0.0.0:{port}"));
    let _coordinator = everstep_testbed::Process::spawn("coordinator", &mut command).expect("it starts");
    let ask = |path: &str| get(([127, 0, 0, 1], port).into(), "pod.example", path);
    until("it is ready", || ask("/readyz")?.starts_with("HTTP/1.1 200").then_some(()));
    assert!(ask("/healthz").expect("it answers").starts_with("HTTP/1.1 200"));
    let metrics = ask("/metrics").expect("it answers");
    assert!(metrics.contains("everstep_store_up 1") && metrics.contains("everstep_broker_up 1"), "{metrics}");
    for nothing in ["/", "/v1/default/instances", "/hooks/default/t"] {
        assert!(ask(nothing).expect("it answers").starts_with("HTTP/1.1 404"), "{nothing}");
    }
}

#[test]
fn instances_are_started_looked_at_and_ended_by_command() {
    let mut fleet = Fleet::start(2, 2);
    let start = ["start", "echo3", "--id", "one", "--input", r#"{"text":"one"}"#];
    let told = fleet.run(&[&start[..], &["--wait"]].concat()).succeeded();
    assert_eq!(told, "\"one 1 2 3\"\n");
    assert_eq!(fleet.run(&start).succeeded(), "exists echo3/one, complete\n");
    let other = ["start", "echo3", "--id", "one", "--input", r#"{"text":"two"}"#];
    assert!(fleet.run(&other).failed(1).contains("code: conflict"));

    let failing = ["start", "echo3", "--id", "bad", "--wait", "--input", r#"{"text":"bad","fail":true}"#];
    let told = fleet.run(&failing).failed(4);
    assert!(told.contains("instance echo3/bad has ended errored, not complete"), "{told}");
    assert!(told.contains("Wished: as the input wishes"), "{told}");

    fleet.start_gated("open");
    fleet.runs_second("open", 1, None);
    assert_eq!(fleet.instance("open")["status"], "running");
    let told = fleet.run(&["instances", "retry", "echo3", "open"]).failed(1);
    assert!(told.contains("code: not_parked"), "{told}");
    fleet.run(&["instances", "terminate", "echo3", "open", "--reason", "no longer wanted"]).succeeded();
    let ended = fleet.until_status("open", "terminated");
    assert_eq!(ended["termination"]["reason"], "no longer wanted");
    let again = fleet.run(&["instances", "terminate", "echo3", "open"]).failed(1);
    assert!(again.contains("terminated"), "{again}");
    let waited = fleet.run(&["start", "echo3", "--id", "open", "--wait"]);
    assert!(waited.failed(1).contains("code: conflict"), "another input is another instance");

    fleet.run(&["start", "nobody", "--id", "n"]).succeeded();
    let unserved = fleet.json(&["instances", "get", "nobody", "n"]);
    assert_eq!((&unserved["status"], &unserved["reason"]["kind"]), (&"queued".into(), &"not_served".into()));
    assert!(fleet.run(&["instances", "get", "echo3", "none"]).failed(1).contains("code: not_found"));

    let list = fleet.json(&["instances", "list"]);
    let ids = |list: &serde_json::Value| {
        let instances = list["instances"].as_array().expect("a list").clone();
        instances
            .iter()
            .map(|instance| instance["id"].as_str().expect("an id").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&list), ["n", "open", "bad", "one"]);
    assert_eq!(
        ids(&fleet.json(&["instances", "list", "--workflow", "echo3", "--status", "errored"])),
        ["bad"]
    );
    let first = fleet.json(&["instances", "list", "--workflow", "echo3", "--limit", "2"]);
    let cursor = first["next"].as_str().expect("a second page");
    let second = ["instances", "list", "--workflow", "echo3", "--limit", "2", "--cursor", cursor];
    assert_eq!([ids(&first), ids(&fleet.json(&second))].concat(), ["open", "bad", "one"]);

    // The other coordinator says the same, also when the first one is gone; and with both gone it is a code of its own.
    let (_, mut first) = fleet.coordinators.remove(0);
    first.signal("TERM").expect("it is asked to stop");
    assert!(first.wait(PATIENCE).expect("it stops").success());
    assert_eq!(ids(&fleet.json(&["instances", "list"])), ["n", "open", "bad", "one"]);
    fleet.coordinators[0].1.kill().expect("it is killed");
    assert!(fleet.run(&["instances", "list"]).failed(3).contains("is the coordinator running there?"));
}

#[test]
fn b136_instances_are_deleted_by_a_file_of_ids() {
    let fleet = Fleet::start(1, 0);
    for id in ["a", "b", "c"] {
        fleet.run(&["start", "echo3", "--id", id]).succeeded();
    }
    let file = fleet.path("ids.txt");
    std::fs::write(&file, "a\nmissing\nc\na\n").expect("it is written");
    let file = file.to_str().expect("a path");
    let told = fleet.run(&["bulk", "ids", "delete", "echo3", "--terminate", "--file", file]);
    assert_eq!(
        told.stdout,
        "done echo3/a\nnot_found echo3/missing: there is no instance missing of workflow echo3\ndone echo3/c\ndone echo3/a\n"
    );
    assert!(told.failed(1).contains("1 of 4 were not done"));
    let left = fleet.json(&["instances", "list"]);
    assert_eq!(
        (left["instances"].as_array().expect("a list").len(), &left["instances"][0]["id"]),
        (1, &"b".into())
    );
}

#[test]
fn a_journal_that_does_not_fit_the_code_is_parked_until_the_code_fits_and_somebody_retries() {
    let mut fleet = Fleet::start_with_lease(LEASE_MS, 1, 1);
    fleet.start_gated("a");
    let old = fleet.runs_second("a", 1, None);
    fleet.take_worker(old).kill().expect("the worker is killed");
    fleet.add_worker(&["--renamed"]);
    let parked = fleet.until_status("a", "attention");
    assert_eq!(parked["attention"]["code"], "journal_mismatch");
    let message = parked["attention"]["message"].as_str().expect("a message");
    assert!(message.contains("entry 2 (attempted)") && message.contains(r#"step "first" #1"#), "{message}");

    fleet.run(&["instances", "retry", "echo3", "a"]).succeeded();
    until("it is parked again", || {
        let told = fleet.json(&["instances", "get", "echo3", "a", "--journal"]);
        (of_kind(told["journal"].as_array()?, "parked").len() == 2).then_some(())
    });
    fleet.workers[0].signal("TERM").expect("it is asked to stop");
    assert!(fleet.workers[0].wait(PATIENCE).expect("it stops").success());
    fleet.add_worker(&[]);
    fleet.open_gate("a");
    fleet.run(&["instances", "retry", "echo3", "a"]).succeeded();
    let journal = fleet.completes("a");
    assert_eq!(of_kind(&journal, "retried").len(), 2);
    assert_eq!(fleet.attempts("a", "first"), [(1, false), (1, true)]);
}

#[test]
fn work_of_a_killed_worker_goes_on_elsewhere_and_the_lost_attempt_counts() {
    let mut fleet = Fleet::start_with_lease(LEASE_MS, 1, 2);
    fleet.start_gated("a");
    let holder = fleet.runs_second("a", 1, None);
    fleet.take_worker(holder).kill().expect("the worker is killed");
    let other = fleet.runs_second("a", 2, None);
    assert_ne!(other, holder);
    fleet.open_gate("a");

    let journal = fleet.completes("a");
    assert_eq!(of_kind(&journal, "lost").len(), 1);
    assert_eq!(recorded(&journal, "first"), [succeeded(1)]);
    let second = recorded(&journal, "second");
    assert_eq!(second.last(), Some(&succeeded(2)));
    assert!(second.iter().filter(|(_, outcome)| outcome == "succeeded").count() == 1, "{second:?}");
    // What was complete before the kill was not run again, and nothing was doubled after it.
    assert_eq!(fleet.attempts("a", "first"), [(1, false), (1, true)]);
    assert_eq!(fleet.attempts("a", "second"), [(1, false), (2, false), (2, true)]);
    assert_eq!(fleet.attempts("a", "third"), [(1, false), (1, true)]);
}

#[test]
fn the_active_coordinator_is_killed_in_mid_load_and_every_instance_ends() {
    let mut fleet = Fleet::start(2, 2);
    let ids =
        |prefix: &str, count: usize| (0..count).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
    let (reporting, running, later) = (ids("a", 40), ids("b", 40), ids("c", 20));
    let all: Vec<&String> = reporting.iter().chain(&running).chain(&later).collect();
    for (ids, gate) in [(&reporting, "reporting"), (&running, "running")] {
        for id in ids {
            fleet.start_behind(id, gate);
        }
    }
    for id in reporting.iter().chain(&running) {
        fleet.runs_second(id, 1, None);
    }
    // Forty steps report at once, and it dies while it hears them; forty more run on, and twenty are started meanwhile.
    fleet.open_gate("reporting");
    until("the first of them is done", || {
        fleet.lines().iter().find(|line| line.step == "second" && line.done).map(drop)
    });
    let (_, mut active) = fleet.coordinators.remove(0);
    active.kill().expect("the coordinator is killed");
    for id in &later {
        fleet.start_behind(id, "running");
    }
    fleet.open_gate("running");

    until("every instance has ended", || (fleet.count("status <> 0") == all.len()).then_some(()));
    let list = fleet.json(&["instances", "list", "--status", "complete", "--limit", "200"]);
    assert_eq!(list["instances"].as_array().expect("a list").len(), all.len());
    for id in all {
        for step in ["first", "second", "third"] {
            // No worker died, so no attempt may be lost or repeated.
            assert_eq!(fleet.attempts(id, step), [(1, false), (1, true)], "{id} {step}");
        }
    }
}

#[test]
fn a_worker_that_is_asked_to_stop_finishes_what_runs() {
    let mut fleet = Fleet::start_with_lease(LEASE_MS, 1, 2);
    fleet.start_gated("a");
    let holder = fleet.runs_second("a", 1, None);
    let mut worker = fleet.take_worker(holder);
    worker.signal("TERM").expect("it is asked to stop");
    // Longer than a lease: it still says that it lives.
    assert!(worker.wait(Duration::from_millis(LEASE_MS + 1_000)).is_err(), "it did not wait for its step");
    fleet.open_gate("a");
    assert!(worker.wait(PATIENCE).expect("it stops").success());
    let journal = fleet.completes("a");
    assert!(of_kind(&journal, "lost").is_empty());
    assert_eq!(fleet.attempts("a", "second"), [(1, false), (1, true)]);
}

#[test]
fn a_worker_that_cannot_finish_in_its_grace_gives_the_attempt_back_uncounted() {
    let mut fleet = Fleet::start(1, 0);
    fleet.add_worker(&["--grace", "200"]);
    fleet.start_gated("a");
    let holder = fleet.runs_second("a", 1, None);
    let mut worker = fleet.take_worker(holder);
    worker.signal("TERM").expect("it is asked to stop");
    assert!(worker.wait(PATIENCE).expect("it stops").success());
    fleet.add_worker(&[]);
    fleet.runs_second("a", 1, Some(holder));
    fleet.open_gate("a");
    let journal = fleet.completes("a");
    assert!(of_kind(&journal, "lost").is_empty(), "{journal:?}");
    assert_eq!(recorded(&journal, "second"), [succeeded(1)]);
    assert_eq!(fleet.attempts("a", "first"), [(1, false), (1, true)]);
    assert_eq!(fleet.attempts("a", "second"), [(1, false), (1, false), (1, true)]);
}

#[test]
fn a_worker_frozen_for_longer_than_its_lease_is_fenced_and_doubles_nothing() {
    let mut fleet = Fleet::start_with_lease(LEASE_MS, 1, 2);
    fleet.start_gated("a");
    let frozen = fleet.runs_second("a", 1, None);
    let worker = fleet.take_worker(frozen);
    worker.signal("STOP").expect("it is frozen");
    let other = fleet.runs_second("a", 2, None);
    assert_ne!(other, frozen);
    fleet.open_gate("a");
    let before = fleet.completes("a");
    assert_eq!(of_kind(&before, "lost").len(), 1);

    // It wakes, finds the gate open, and has nothing to say any more.
    worker.signal("CONT").expect("it goes on");
    let mut fresh = Vec::new();
    until("the woken worker works again", || {
        let id = format!("b{}", fresh.len());
        let input = format!(r#"{{"text":"{id}"}}"#);
        fleet.run(&["start", "echo3", "--id", &id, "--input", &input]).succeeded();
        fresh.push(id);
        fleet.lines().iter().find(|line| line.pid == frozen && line.instance != "a").map(drop)
    });
    for id in &fresh {
        fleet.completes(id);
    }
    assert_eq!(fleet.completes("a"), before, "the journal changed after its end");
    assert_eq!(recorded(&before, "second").last(), Some(&succeeded(2)));
    assert_eq!(fleet.attempts("a", "third"), [(1, false), (1, true)]);
    assert!(fleet.attempts("a", "second").contains(&(2, true)));
}

/// Publishes what can never be accepted, each with its content type.
const GARBAGE: &str = r#"
import pika, sys
garbage = [
    (b"", "application/json"),
    (b"\x00\xff\xfe garbage", "application/json"),
    (b'{"workflow": "echo3", "id"', None),
    (b"[1, 2]", None),
    (b'{"workflow": "Bad Name!", "id": "x"}', None),
    (b'{"workflow": "echo3", "id": "x", "colour": "red"}', None),
    (b'{"workflow": "echo3"}', None),
    (b'{"workflow": "echo3", "id": "x", "token": "t", "hook": {"token": "t"}}', None),
    (b"<start/>", "text/xml"),
    (b'{"workflow": "echo3", "id": "x", "input": "' + b"x" * 1100000 + b'"}', None),
    (b"\xc1\xc1", "application/msgpack"),
]
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.confirm_delivery()
for body, content_type in garbage:
    channel.basic_publish("everstep.start", "default", body,
        pika.BasicProperties(content_type=content_type, delivery_mode=2), mandatory=True)
connection.close()
print(len(garbage))
"#;

#[test]
fn a_python_producer_starts_what_is_good_and_garbage_is_shown_as_rejected() {
    const ORDERS: usize = 200;
    let fleet = Fleet::start(2, 2);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new(repository.join("scripts/python-env.sh")).output().expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let python = String::from_utf8(made.stdout).expect("a path");
    let python = python.trim();

    let orders: Vec<_> =
        (0..ORDERS).map(|number| format!(r#"{{"id":"p{number}","input":{{"text":"p{number}"}}}}"#)).collect();
    let file = fleet.path("orders.jsonl");
    std::fs::write(&file, orders.join("\n")).expect("the orders are written");
    let mut good = Command::new(python);
    good.arg(repository.join("examples/producers/publish_orders.py"))
        .args(["--url", &fleet.installation.amqp, "--workflow", "echo3", "--orders"])
        .arg(&file);
    let good = good.stdout(Stdio::piped()).spawn().expect("the producer starts");
    let bad = Command::new(python).args(["-c", GARBAGE, &fleet.installation.amqp]).output().expect("it runs");
    assert!(bad.status.success(), "{}", String::from_utf8_lossy(&bad.stderr));
    let garbage: usize = String::from_utf8_lossy(&bad.stdout).trim().parse().expect("a count");
    let good = good.wait_with_output().expect("the producer ends");
    assert!(String::from_utf8_lossy(&good.stdout).starts_with(&format!("published {ORDERS} orders")));

    until("every good one completes", || (fleet.count("status <> 0") == ORDERS).then_some(()));
    let rejected = until("all garbage is recorded", || {
        let list = fleet.json(&["rejected", "list"])["rejected"].as_array()?.clone();
        (list.len() == garbage).then_some(list)
    });
    let mut codes: Vec<_> = rejected.iter().map(|one| one["code"].as_str().expect("a code")).collect();
    codes.sort_unstable();
    let expected = [
        "body",
        "body",
        "body",
        "body",
        "body",
        "content_type",
        "hook",
        "name",
        "no_identity",
        "too_large",
        "unknown_field",
    ];
    assert_eq!(codes, expected);
    assert_eq!(fleet.count("true"), ORDERS, "garbage made an instance");
    let table = fleet.run(&["rejected", "list", "--limit", "3"]).succeeded();
    assert_eq!(table.lines().count(), 4, "{table}");

    // Published again, nothing happens.
    let again = Command::new(python)
        .arg(repository.join("examples/producers/publish_orders.py"))
        .args(["--url", &fleet.installation.amqp, "--workflow", "echo3", "--limit", "20", "--orders"])
        .arg(&file)
        .output()
        .expect("the producer runs");
    assert!(again.status.success());
    fleet.run(&["start", "echo3", "--id", "last", "--wait", "--input", r#"{"text":"last"}"#]).succeeded();
    assert_eq!(fleet.count("true"), ORDERS + 1);
    assert_eq!(fleet.lines().iter().filter(|line| line.step == "third" && line.done).count(), ORDERS + 1);
}

#[test]
fn a_python_producer_sends_an_event_once_however_often() {
    let fleet = Fleet::start(1, 0);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let made = Command::new(repository.join("scripts/python-env.sh")).output().expect("the script runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let python = String::from_utf8(made.stdout).expect("a path");
    let send = |arguments: &[&str]| {
        let told = Command::new(python.trim())
            .arg(repository.join("examples/producers/send_event.py"))
            .args(["--url", &fleet.installation.amqp])
            .args(arguments)
            .output()
            .expect("it runs");
        let said = [told.stdout, told.stderr].concat();
        (told.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    fleet.start_gated("a");
    let approved = ["--id", "e-1", "--key", "k-1", "echo3", "a", "approved", r#"{"by": "Ada"}"#];
    for _ in 0..2 {
        assert_eq!(send(&approved), (Some(0), "published event e-1\n".to_owned()));
    }
    assert_eq!(send(&["echo3", "a", "other"]).0, Some(0), "id, key and payload may be left out");
    let unread = until("both are kept", || {
        let unread = fleet.instance("a")["events_unread"].as_array().cloned().unwrap_or_default();
        (unread.len() == 2).then_some(unread)
    });
    let counts: Vec<_> = unread.iter().map(|one| (one["type"].as_str(), one["count"].as_u64())).collect();
    assert_eq!(counts, [(Some("approved"), Some(1)), (Some("other"), Some(1))]);
    // One to nobody is shown as rejected, like a start that cannot be accepted.
    assert_eq!(send(&["--id", "e-2", "echo3", "nobody", "approved"]).0, Some(0));
    let rejected = until("it is recorded", || {
        fleet.json(&["rejected", "list"])["rejected"].as_array()?.first().cloned()
    });
    assert_eq!((&rejected["code"], &rejected["message_id"]), (&"not_found".into(), &"e-2".into()));
    let (code, said) = send(&["--namespace", "elsewhere", "echo3", "a", "approved"]);
    assert_eq!((code, said.trim()), (Some(1), "no queue takes events of the namespace elsewhere"));
}
