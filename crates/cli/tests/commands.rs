//! Whole-command snapshots: exit code, both outputs, and what the server was asked. Proves the command line, the requests and
//! the output of every command. Not: that a real server answers like this, which crates/coordinator/tests/http does.

mod support;

use insta::assert_snapshot;
use support::{Answers, Rig};

/// An instance of this status; `more` are further fields.
fn instance(status: &str, more: &str) -> String {
    let open = r#""ended_at":null,"output":null,"error":null"#;
    let more = if more.is_empty() { open } else { more };
    format!(
        r#"{{"namespace":"default","workflow":"fulfil","id":"o-1","run":1,"status":"{status}","steps":3,"created_at":"2026-01-02T03:04:05.000006Z",{more}}}"#
    )
}

fn waiting() -> String {
    let wait = r#"{"kind":"sleep","call":{"kind":"sleep","name":"cooling off","count":1},"since":"2026-01-02T03:04:06.000000Z","until":"2026-01-02T04:04:06.000000Z"}"#;
    let retry = r#"{"kind":"retry","call":{"kind":"step","name":"email","count":2},"since":"2026-01-02T03:04:07.000000Z","until":"2026-01-02T05:04:06.000000Z"}"#;
    instance(
        "waiting",
        &format!(r#""reason":{wait},"waits":[{wait},{retry}],"waits_open":3,"ended_at":null"#),
    )
}

fn complete() -> String {
    instance("complete", r#""ended_at":"2026-01-02T03:05:00.000000Z","output":{"total":1.10},"error":null"#)
}

fn errored() -> String {
    let error = r#"{"kind":"error","name":"CardDeclined","message":"card 4711"}"#;
    instance("errored", &format!(r#""ended_at":"2026-01-02T03:05:00.000000Z","output":null,"error":{error}"#))
}

fn problem(status: u16, code: &str, detail: &str, retry_safe: bool) -> String {
    format!(
        r#"{{"type":"urn:everstep:problem:{code}","title":"No","status":{status},"code":"{code}","detail":"{detail}","hint":"do something else","retry_safe":{retry_safe}}}"#
    )
}

fn one(route: impl Into<String>, status: u16, text: String) -> Rig {
    // Routes live as long as the server's thread, which is as long as the test's process.
    Rig::new(vec![(route.into().leak(), status, text)])
}

#[test]
fn help_says_what_exit_codes_mean() {
    let rig = Rig::new(Vec::new());
    assert_snapshot!("help", rig.run(&["--help"]).replace(env!("CARGO_PKG_VERSION"), "[VERSION]"));
    assert_snapshot!("unknown_command", rig.run(&["strat"]));
    assert_snapshot!("bad_name", rig.run(&["start", "Fulfil"]));
}

#[test]
fn l12_the_migration_of_effects_is_printed() {
    let rig = Rig::new(Vec::new());
    assert_snapshot!("effects_migration", rig.run(&["effects-migration", "--schema", "billing"]));
    let plain = rig.output(&["effects-migration"]);
    assert_eq!(String::from_utf8_lossy(&plain.stdout), everstep_postgres::migration(None));
    assert_eq!(rig.output(&["effects-migration", "--schema", ""]).status.code(), Some(2));
}

#[test]
fn completions_are_printed() {
    let output = Rig::new(Vec::new()).output(&["completions", "bash"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("_everstep"));
}

#[test]
fn start_tells_whether_it_created() {
    let route = "POST /v1/default/workflows/fulfil/instances";
    let args = ["start", "fulfil", "--id", "o-1", "--input", r#"{"b": 9007199254740993, "a": 1.10}"#];
    let created = one(route, 201, instance("queued", ""));
    assert_snapshot!("start_created", created.run(&args));
    assert_snapshot!("start_created_json", created.run(&[&args[..], &["--output", "json"]].concat()));
    assert_snapshot!("start_generates_an_id", created.run(&["start", "fulfil"]));
    assert_snapshot!("start_exists", one(route, 200, complete()).run(&args));
    let conflict = problem(409, "conflict", "instance o-1 exists with another input, it is open", false);
    assert_snapshot!("start_conflict", one(route, 409, conflict).run(&args));
    let unknown = problem(503, "unknown", "it is not known whether the instance was started", true);
    assert_snapshot!("start_unknown", one(route, 503, unknown).run(&args));
}

#[test]
fn start_reads_its_input_from_a_file_or_standard_input() {
    let route = "POST /v1/default/workflows/fulfil/instances";
    let rig = || one(route, 201, instance("queued", ""));
    let start = |input| ["start", "fulfil", "--id", "o-1", "--input", input];
    assert_snapshot!(
        "start_input_file",
        rig().file("order.json", "{\n  \"n\": 1\n}\n").run(&start("@order.json"))
    );
    assert_snapshot!("start_input_standard", rig().input("[1, 2]").run(&start("-")));
    assert_snapshot!("start_input_missing_file", rig().run(&start("@nothing.json")));
    assert_snapshot!("start_input_no_json", rig().run(&start("{\"a\": }")));
}

#[test]
fn start_says_how_long_by_which_build_and_whether_it_must_be_served() {
    let route = "POST /v1/default/workflows/fulfil/instances";
    let rig = || one(route, 201, instance("queued", ""));
    let start = |more: &[&'static str]| [&["start", "fulfil", "--id", "o-1"], more].concat();
    assert_snapshot!("start_retention", rig().run(&start(&["--retention", "7 days", "--pin", "--strict"])));
    assert_snapshot!("start_pinned", rig().run(&start(&["--pin=v-7", "--strict=false"])));
    assert_snapshot!("start_bad_pin", rig().run(&start(&["--pin=V7"])));
    let refused = problem(409, "not_served", "no live worker serves the workflow", true);
    assert_snapshot!("start_not_served", one(route, 409, refused).run(&start(&["--strict"])));
}

#[test]
fn events_are_sent() {
    let route = "POST /v1/default/workflows/fulfil/instances/o-1/events/approved?key=k-1";
    let accepted =
        r#"{"namespace":"default","workflow":"fulfil","id":"o-1","type":"approved","event":"e-1"}"#;
    let send = ["events", "send", "fulfil", "o-1", "approved", "--key", "k-1", "--id", "e-1"];
    let with = |more: &[&'static str]| [&send[..], more].concat();
    let rig = || one(route, 202, accepted.to_owned());
    assert_snapshot!("event", rig().run(&with(&["--payload", r#"{"by": "Ada"}"#])));
    assert_snapshot!("event_json", rig().run(&with(&["--output", "json"])));
    let file = rig().file("approval.json", "{\n  \"by\": \"Ada\"\n}\n");
    assert_snapshot!("event_payload_file", file.run(&with(&["--payload", "@approval.json"])));
    assert_snapshot!("event_bad_payload", rig().run(&with(&["--payload", "{"])));
    let plain =
        one("POST /v1/default/workflows/fulfil/instances/o-1/events/approved", 202, accepted.to_owned());
    assert_snapshot!("event_generates_an_id", plain.run(&send[..5]));
    let ended = problem(409, "not_allowed", "an event is not possible, the instance is complete", false);
    assert_snapshot!("event_refused", one(route, 409, ended).run(&with(&[])));
    assert_snapshot!(
        "event_unreachable",
        Rig::new(Vec::new()).set("EVERSTEP_URL", "http://127.0.0.1:1").run(&with(&[]))
    );
}

#[test]
fn instances_are_pinned_and_unpinned() {
    let of = "/v1/default/workflows/fulfil/instances/o-1";
    let pinned = r#""pin":"v-7","reason":{"kind":"not_served","message":"no worker of build v-7 serves fulfil"},"ended_at":null"#;
    let pin = one(format!("POST {of}/pin"), 200, instance("queued", pinned));
    assert_snapshot!("pin", pin.run(&["instances", "pin", "fulfil", "o-1", "--build", "v-7"]));
    let first = one(format!("GET {of}"), 200, instance("queued", r#""pin":true,"ended_at":null"#));
    assert_snapshot!("pin_first", first.run(&["instances", "get", "fulfil", "o-1"]));
    let unpin = one(format!("POST {of}/unpin"), 200, instance("queued", ""));
    assert_snapshot!("unpin", unpin.run(&["instances", "unpin", "fulfil", "o-1"]));
}

/// A question about a call.
fn question(id: &str, question: &str) -> String {
    let call = r#"{"kind":"step","name":"transfer","count":1}"#;
    format!(
        r#"{{"workflow":"fulfil","id":"{id}","question":"{question}","kind":"unknown_outcome","since":"2026-01-02T03:04:06.000000Z","message":"Error: timed out","choices":["done","again","fail"],"call":{call},"attempt":1,"key":"5e5e"}}"#
    )
}

fn parked() -> &'static str {
    r#"{"workflow":"fulfil","id":"o-3","question":"parked","kind":"poison","since":"2026-01-02T03:04:05.000000Z","message":"3 holders died","choices":["retry","terminate"]}"#
}

#[test]
fn l08_questions_are_listed_shown_and_answered() {
    let list = format!(r#"{{"questions":[{},{}],"next":"c7"}}"#, parked(), question("o-1", "1.7"));
    let args = ["attention", "list", "--workflow", "fulfil", "--older-than", "1 hour"];
    let route = "GET /v1/default/attention?workflow=fulfil&older_than=1+hour";
    assert_snapshot!("attention_list", one(route, 200, list).run(&args));
    let route = "GET /v1/default/workflows/fulfil/instances/o-1/attention/1.7";
    let args = ["attention", "get", "fulfil", "o-1", "1.7"];
    assert_snapshot!("attention_get", one(route, 200, question("o-1", "1.7")).run(&args));
    let route = "POST /v1/default/workflows/fulfil/instances/o-1/attention/1.7/resolve";
    let resolve = ["attention", "resolve", "fulfil", "o-1", "1.7"];
    let done = ["done", "--result", r#"{"cents":1.10}"#, "--by", "ann", "--why", "line 4", "--key", "k"];
    let answered = one(route, 200, instance("queued", ""));
    assert_snapshot!("attention_resolve", answered.run(&[&resolve[..], &done[..]].concat()));
    let late = one(route, 409, problem(409, "not_asked", "it was answered", true));
    assert_snapshot!("attention_not_asked", late.run(&[&resolve[..], &["again"]].concat()));
}

#[test]
fn l08_many_questions_are_answered_at_once() {
    let first = format!(r#"{{"questions":[{},{}],"next":"c7"}}"#, parked(), question("o-1", "1.7"));
    let second = format!(r#"{{"questions":[{}]}}"#, question("o-2", "1.9"));
    let rig = |last: (u16, String)| {
        let resolve = |id: &str, question: &str| {
            let route =
                format!("POST /v1/default/workflows/fulfil/instances/{id}/attention/{question}/resolve");
            &*route.leak()
        };
        Rig::new(vec![
            ("GET /v1/default/attention?limit=200", 200, first.clone()),
            ("GET /v1/default/attention?limit=200&after=c7", 200, second.clone()),
            (resolve("o-1", "1.7"), 200, instance("queued", "")),
            (resolve("o-2", "1.9"), last.0, last.1),
        ])
    };
    let all = ["attention", "resolve-all", "again", "--by", "ann", "--key", "k"];
    let late = (409, problem(409, "not_asked", "it was answered", true));
    assert_snapshot!("attention_all", rig(late.clone()).run(&all));
    assert_snapshot!("attention_all_dry_run", rig(late).run(&[&all[..], &["--dry-run"]].concat()));
    let refused = (500, problem(500, "broken", "no", false));
    assert_snapshot!("attention_all_broken", rig(refused).run(&all));
}

#[test]
fn l14_calls_of_steps_are_shown_and_found() {
    let entry = r#"{"workflow":"fulfil","id":"o-1","run":1,"position":4,"call":{"kind":"step","name":"transfer","count":1},"class":"at_most_once","key":"5e5e","reference":"T-99","calls":2,"since":"2026-01-02T03:04:05.000006Z","until":"2026-01-02T03:04:06.000006Z","outcome":"succeeded","decision":{"choice":"done","at":"2026-01-02T03:04:06.000006Z","by":"ann","why":"line 4"}}"#;
    let list = format!(r#"{{"entries":[{entry}],"next":4}}"#);
    let get = ["ledger", "get", "fulfil", "o-1", "--step", "transfer", "--limit", "1"];
    let route = "GET /v1/default/workflows/fulfil/instances/o-1/ledger?step=transfer&limit=1";
    assert_snapshot!("ledger_get", one(route, 200, list.clone()).run(&get));
    let find = ["ledger", "find", "--reference", "T-99"];
    assert_snapshot!("ledger_find", one("GET /v1/default/ledger?reference=T-99", 200, list).run(&find));
    let route = "GET /v1/default/ledger?key=5e5e&since=2026-01-01T00%3A00%3A00Z";
    let by_key = ["ledger", "find", "--key", "5e5e", "--since", "2026-01-01T00:00:00Z"];
    assert_snapshot!("ledger_find_by_key", one(route, 200, r#"{"entries":[]}"#.to_owned()).run(&by_key));
    let nothing = Rig::new(Vec::new());
    assert_snapshot!("ledger_find_by_nothing", nothing.run(&["ledger", "find"]));
}

#[test]
fn many_instances_are_operated_at_once() {
    let bulk = |state: &str, done: u32| {
        format!(
            r#"{{"namespace":"default","id":"b-1","operation":"terminate","where":{{"status":"open","workflow":"fulfil"}},"state":"{state}","looked_at":100,"matched":7,"done":{done},"refused":1,"created_at":"2026-01-02T03:04:05.000006Z","ended_at":null}}"#
        )
    };
    let begin = ["bulk", "start", "terminate", "--workflow", "fulfil", "--status", "open", "--reason", "old"];
    let with = |more: &[&'static str]| [&begin[..], more].concat();
    let route = "POST /v1/default/bulk";
    assert_snapshot!("bulk_start", one(route, 201, bulk("running", 0)).run(&with(&["--id", "b-1"])));
    assert_snapshot!(
        "bulk_start_json",
        one(route, 201, bulk("running", 0)).run(&with(&["--output", "json"]))
    );
    let counted =
        r#"{"dry_run":true,"matched":7,"complete":false,"newest":[{"workflow":"fulfil","id":"o-9"}]}"#;
    assert_snapshot!("bulk_dry_run", one(route, 200, counted.to_owned()).run(&with(&["--dry-run"])));
    let refused = problem(400, "body", "where is refused: it needs one condition at least", false);
    assert_snapshot!("bulk_refused", one(route, 400, refused).run(&["bulk", "start", "retry"]));
    let list = format!(r#"{{"operations":[{}]}}"#, bulk("stopped", 3));
    assert_snapshot!(
        "bulk_list",
        one("GET /v1/default/bulk?limit=5", 200, list).run(&["bulk", "list", "--limit", "5"])
    );
    let get = one("GET /v1/default/bulk/b-1", 200, bulk("done", 6));
    assert_snapshot!("bulk_get", get.run(&["bulk", "get", "b-1"]));
    let stop = one("POST /v1/default/bulk/b-1/stop", 200, bulk("stopped", 3));
    assert_snapshot!("bulk_stop", stop.run(&["bulk", "stop", "b-1"]));
}

#[test]
fn an_operation_on_many_is_waited_for() {
    let bulk = |state: &str| {
        let ended = if state == "running" { "null" } else { r#""2026-01-02T03:05:05.000006Z""# };
        format!(
            r#"{{"namespace":"default","id":"b-1","operation":"terminate","where":{{"status":"open"}},"state":"{state}","looked_at":100,"matched":7,"done":6,"refused":1,"created_at":"2026-01-02T03:04:05.000006Z","ended_at":{ended}}}"#
        )
    };
    let get = "GET /v1/default/bulk/b-1";
    let begin = ["bulk", "start", "terminate", "--status", "open", "--id", "b-1", "--wait"];
    let rig = Rig::new(vec![
        ("POST /v1/default/bulk", 201, bulk("running")),
        (get, 200, bulk("running")),
        (get, 503, problem(503, "unavailable", "the database is away", true)),
        (get, 200, bulk("done")),
    ]);
    assert_snapshot!("bulk_start_wait", rig.run(&begin));
    let rig = Rig::new(vec![(get, 200, bulk("running")), (get, 200, bulk("stopped"))]);
    assert_snapshot!("bulk_get_wait_stopped", rig.run(&["bulk", "get", "b-1", "--wait"]));
    let both = ["bulk", "start", "terminate", "--status", "open", "--wait", "--dry-run"];
    assert_snapshot!("bulk_start_wait_for_nothing", Rig::new(Vec::new()).run(&both));
}

const SCHEDULE: &str = "/v1/default/schedules/nightly";

/// A schedule as the server shows it.
fn schedule(more: &str) -> String {
    format!(
        r#"{{"namespace":"default","id":"nightly","state":"active","workflow":"report","input":"all","cron":"30 2 * * *","zone":"Europe/Berlin","overlap":"queue_one","catch_up":"latest","catch_up_within":"1d","created_at":"2026-01-02T03:04:05.000006Z","changed_at":"2026-01-02T03:04:05.000006Z","next":[{{"due":"2026-01-03T01:30:00.000000Z","starts_at":"2026-01-03T01:32:11.000000Z"}}],"counts":{{"started":7,"existed":0,"refused":1,"skipped":2,"missed":3}},"open":[],"waiting":[],"backfills":[],"recent":[]{more}}}"#
    )
}

#[test]
fn s01_schedules_are_put_and_shown() {
    let path = SCHEDULE;
    let put = ["schedules", "put", "nightly", "report", "--cron", "30 2 * * *", "--zone", "Europe/Berlin"];
    let with = |more: &[&'static str]| [&put[..], more].concat();
    let created = one(format!("PUT {path}?by=ann"), 201, schedule(""));
    let options = [
        "--input",
        r#"{"n": 1.10}"#,
        "--overlap",
        "queue_one",
        "--jitter",
        "5 min",
        "--limit",
        "9",
        "--attribute",
        "vip=true",
        "--retention",
        "30 days",
        "--strict",
        "--catch-up",
        "all",
        "--catch-up-within",
        "2 h",
        "--by",
        "ann",
    ];
    assert_snapshot!("schedules_put", created.run(&with(&options)));
    assert_snapshot!(
        "schedules_put_json",
        one(format!("PUT {path}"), 200, schedule("")).run(&with(&["--output", "json"]))
    );
    let refused = problem(422, "schedule", "cron x is refused: it has 1 fields", false);
    assert_snapshot!("schedules_refused", one(format!("PUT {path}"), 422, refused).run(&put));
    assert_snapshot!(
        "schedules_put_nothing",
        Rig::new(Vec::new()).run(&["schedules", "put", "nightly", "report"])
    );
    let list = format!(r#"{{"schedules":[{}],"next":null}}"#, schedule(""));
    assert_snapshot!(
        "schedules_list",
        one("GET /v1/default/schedules?after=a&limit=5", 200, list).run(&[
            "schedules",
            "list",
            "--limit",
            "5",
            "--after",
            "a"
        ])
    );
    let action = |outcome: &str, more: &str| {
        format!(
            r#"{{"due":"2026-01-02T01:30:00.000000Z","at":"2026-01-02T01:30:00.100000Z","outcome":"{outcome}","times":1{more}}}"#
        )
    };
    let started = action("started", r#","instance":"nightly:20260102T013000Z""#);
    let failing = action("refused", r#","code":"not_served","message":"no worker serves it""#);
    let busy = schedule(&format!(
        r#","failing":{failing},"paused":{{"since":"2026-01-02T03:04:05.000006Z","note":"moving"}},"recent":[{failing},{started}],"open":[{{"workflow":"report","id":"nightly:20260102T013000Z","since":"2026-01-02T01:30:00.100000Z"}}],"waiting":["2026-01-03T01:30:00.000000Z"]"#
    ));
    let busy = busy.replacen(r#""open":[],"waiting":[],"#, "", 1).replacen(r#","recent":[]"#, "", 1);
    assert_snapshot!(
        "schedules_get",
        one(format!("GET {path}?next=1"), 200, busy).run(&["schedules", "get", "nightly", "--next", "1"])
    );
}

#[test]
fn s01_schedules_are_operated() {
    let path = SCHEDULE;
    let pause = one(format!("POST {path}/pause?by=ann"), 200, schedule(""));
    assert_snapshot!(
        "schedules_pause",
        pause.run(&["schedules", "pause", "nightly", "--note", "moving", "--by", "ann"])
    );
    let resume = one(format!("POST {path}/resume"), 200, schedule(""));
    assert_snapshot!("schedules_resume", resume.run(&["schedules", "resume", "nightly"]));
    let name = r#"{"workflow":"report","id":"nightly:by-hand-1"}"#.to_owned();
    let trigger = ["schedules", "trigger", "nightly", "--key", "k-1"];
    assert_snapshot!(
        "schedules_trigger",
        one(format!("POST {path}/trigger"), 201, name.clone()).run(&trigger)
    );
    assert_snapshot!("schedules_trigger_again", one(format!("POST {path}/trigger"), 200, name).run(&trigger));
    let backfill = [
        "schedules",
        "backfill",
        "nightly",
        "--from",
        "2026-01-01T00:00:00Z",
        "--until",
        "2026-01-08T00:00:00Z",
        "--key",
        "k-2",
        "--side-by-side",
    ];
    assert_snapshot!(
        "schedules_backfill",
        one(format!("POST {path}/backfill"), 200, schedule("")).run(&backfill)
    );
    let stop = one(format!("POST {path}/backfill/stop"), 200, schedule(""));
    assert_snapshot!(
        "schedules_stop_backfill",
        stop.run(&["schedules", "stop-backfill", "nightly", "--backfill", "k-2"])
    );
    let gone = one(format!("DELETE {path}?by=ann"), 204, String::new());
    assert_snapshot!("schedules_delete", gone.run(&["schedules", "delete", "nightly", "--by", "ann"]));
    let changes = r#"{"changes":[{"at":"2026-01-02T03:04:05.000006Z","operation":"pause","by":"ann","detail":"moving"},{"at":"2026-01-01T03:04:05.000006Z","operation":"put","by":null,"detail":null}]}"#;
    let changes = one(format!("GET {path}/changes?limit=9"), 200, changes.to_owned());
    assert_snapshot!("schedules_changes", changes.run(&["schedules", "changes", "nightly", "--limit", "9"]));
}

#[test]
fn p33_conditions_and_options_of_a_bulk_are_sent() {
    let bulk = r#"{"namespace":"default","id":"b-1","operation":"restart","where":{"attributes":{"vip":true},"status":"errored"},"state":"running","created_at":"2026-01-02T03:04:05.000006Z","ended_at":null}"#;
    let rig = one("POST /v1/default/bulk", 201, bulk.to_owned());
    let restart =
        ["bulk", "start", "restart", "--status", "errored", "--attribute", "vip=true", "--id", "b-1"];
    assert_snapshot!(
        "bulk_restart_from",
        rig.run(&[&restart[..], &["--from", "charge", "--count", "2"]].concat())
    );
    assert_snapshot!("bulk_restart_reuse", rig.run(&[&restart[..], &["--reuse"]].concat()));
    let roll_back = ["bulk", "start", "terminate", "--status", "open", "--rollback", "--id", "b-1"];
    assert_snapshot!("bulk_rollback", rig.run(&roll_back));
}

#[test]
fn b136_many_are_named_by_arguments_a_file_or_standard_input() {
    let route = "POST /v1/default/workflows/fulfil/instances:operate";
    let done = r#"{"results":[{"id":"o-1","outcome":"done","retry_safe":true},{"id":"o-2","outcome":"done","retry_safe":true}]}"#;
    let delete = ["bulk", "ids", "delete", "fulfil"];
    let rig = || one(route, 200, done.to_owned());
    assert_snapshot!("bulk_ids", rig().run(&[&delete[..], &["o-1", "o-2", "--terminate"]].concat()));
    let file = rig().file("ids.txt", "o-1\n\n  o-2  \n");
    assert_snapshot!("bulk_ids_file", file.run(&[&delete[..], &["--file", "ids.txt"]].concat()));
    let standard = rig().input("o-1\no-2\n");
    assert_snapshot!("bulk_ids_standard", standard.run(&[&delete[..], &["--file", "-"]].concat()));
    let json = [&delete[..], &["o-1", "o-2", "--output", "json"]].concat();
    assert_snapshot!("bulk_ids_json", rig().run(&json));
    let mixed = r#"{"results":[{"id":"o-1","outcome":"not_found","message":"there is no instance o-1 of workflow fulfil","retry_safe":true},{"id":"o-2","outcome":"unknown","message":"it is not known","retry_safe":true}]}"#;
    let key = [&delete[..], &["o-1", "o-2", "--key", "k-1"]].concat();
    assert_snapshot!("bulk_ids_mixed", one(route, 200, mixed.to_owned()).run(&key));
    assert_snapshot!("bulk_ids_none", Rig::new(Vec::new()).run(&delete));
    let refused = problem(422, "ids", "ids has 0 items and is refused", false);
    let empty = one(route, 422, refused).file("ids.txt", "\n");
    assert_snapshot!("bulk_ids_empty_file", empty.run(&[&delete[..], &["--file", "ids.txt"]].concat()));
}

#[test]
fn start_takes_a_batch_from_a_file() {
    let route = "POST /v1/default/workflows/fulfil/instances:batch";
    let results = r#"{"results":[{"outcome":"created","workflow":"fulfil","id":"o-1","retry_safe":true},{"outcome":"exists","workflow":"fulfil","id":"o-2","status":"complete","retry_safe":true}]}"#;
    let lines = "{\"id\": \"o-1\", \"input\": {\"b\": 9007199254740993}}\n\n{\"id\": \"o-2\"}\n";
    let args = ["start", "fulfil", "--batch", "orders.jsonl"];
    let rig = |results: &str| one(route, 200, results.to_owned()).file("orders.jsonl", lines);
    assert_snapshot!("start_batch", rig(results).run(&args));
    let conflict = r#"{"results":[{"outcome":"created","id":"o-1","retry_safe":true},{"outcome":"conflict","id":"o-2","status":"open","code":"conflict","message":"another input","retry_safe":false}]}"#;
    assert_snapshot!("start_batch_conflict", rig(conflict).run(&args));
    let own = "{\"id\": \"o-1\"}\n{\"id\": \"o-2\", \"retention\": {\"failed\": \"90 days\"}, \"pin\": \"v-7\", \"strict\": false}\n";
    let options = ["--retention", "7 days", "--pin", "--strict"];
    let rig = one(route, 200, results.to_owned()).file("orders.jsonl", own);
    assert_snapshot!("start_batch_options", rig.run(&[&args[..], &options].concat()));
    let bad = "{\"id\": \"o-1\"}\n{\"id\": \"a b\"}\n";
    assert_snapshot!("start_batch_bad_line", Rig::new(Vec::new()).file("orders.jsonl", bad).run(&args));
    assert_snapshot!("start_batch_and_id", Rig::new(Vec::new()).run(&[&args[..], &["--id", "x"]].concat()));
}

#[test]
fn a_rollback_is_listed() {
    let route = "GET /v1/default/workflows/fulfil/instances/o-1";
    let args = ["instances", "get", "fulfil", "o-1"];
    let undone = |step: &str, more: &str| {
        format!(r#"{{"call":{{"kind":"compensation","name":"{step}","count":1}},{more}}}"#)
    };
    let jammed = r#""outcome":"failed","error":{"kind":"error","name":"Error","message":"jammed"}"#;
    let list = [undone("pay", r#""outcome":"done""#), undone("reserve", jammed)].join(",");
    let rolled_back = format!(
        r#""ended_at":"2026-01-02T03:05:00.000000Z","error":{{"kind":"error","name":"CardDeclined","message":"card 4711"}},"rollback":{{"state":"over","compensations":[{list}],"more":3}}"#
    );
    assert_snapshot!("get_rolled_back", one(route, 200, instance("errored", &rolled_back)).run(&args));
}

#[test]
fn start_waits_for_the_end() {
    let rig = |last: String| {
        let get = "GET /v1/default/workflows/fulfil/instances/o-1";
        let attention = r#""attention":{"code":"journal_mismatch","message":"entry 3 is step \"a\" #1","since":"x"},"ended_at":null"#;
        let answers: Answers = vec![
            ("POST /v1/default/workflows/fulfil/instances", 201, instance("queued", "")),
            (get, 200, instance("running", "")),
            (get, 503, problem(503, "unavailable", "the store is away", true)),
            (get, 200, instance("attention", attention)),
            (get, 200, last),
        ];
        Rig::new(answers)
    };
    let args = ["start", "fulfil", "--id", "o-1", "--wait"];
    assert_snapshot!("wait_complete", rig(complete()).run(&args));
    assert_snapshot!("wait_complete_json", rig(complete()).run(&[&args[..], &["--output", "json"]].concat()));
    assert_snapshot!("wait_errored", rig(errored()).run(&args));
    let terminated =
        r#""ended_at":"2026-01-02T03:05:00.000000Z","termination":{"reason":"no longer wanted"}"#;
    assert_snapshot!("wait_terminated", rig(instance("terminated", terminated)).run(&args));
}

#[test]
fn nobody_there_is_told_apart() {
    let rig = Rig::new(Vec::new()).set("EVERSTEP_URL", "http://127.0.0.1:1");
    assert_snapshot!("unreachable", rig.run(&["instances", "list"]));
    assert_snapshot!("unreachable_start", rig.run(&["start", "fulfil", "--id", "o-1"]));
    let rig = rig.set("EVERSTEP_URL", "localhost:7070");
    assert_snapshot!("bad_url", rig.run(&["instances", "list"]));
    assert_snapshot!("another_server", Rig::new(Vec::new()).run(&["instances", "list"]));
    let html = one("GET /v1/default/instances", 200, "<html>".to_owned());
    assert_snapshot!("another_answer", html.run(&["instances", "list"]));
}

#[test]
fn instances_are_listed() {
    let unserved = r#""reason":{"kind":"not_served","message":"no worker serves fulfil"},"ended_at":null"#;
    let rows = [waiting(), complete(), errored(), instance("queued", unserved)].join(",");
    let page = format!(r#"{{"instances":[{rows}],"next":"0190b5a8-7c00-7000-8000-000000000001"}}"#);
    let rig = one("GET /v1/default/instances", 200, page);
    assert_snapshot!("list", rig.run(&["instances", "list"]));
    assert_snapshot!("list_json", rig.run(&["instances", "list", "--output", "json"]));
    let empty = r#"{"instances":[],"next":null}"#.to_owned();
    let route = "GET /v1/shop/workflows/fulfil/instances?status=waiting&limit=2&cursor=abc";
    let args = ["--namespace", "shop", "instances", "list", "--workflow", "fulfil"];
    let filter = ["--status", "waiting", "--limit", "2", "--cursor", "abc"];
    assert_snapshot!("list_filtered", one(route, 200, empty).run(&[&args[..], &filter[..]].concat()));
}

#[test]
fn an_instance_is_shown() {
    let route = "GET /v1/default/workflows/fulfil/instances/o-1";
    let args = ["instances", "get", "fulfil", "o-1"];
    assert_snapshot!("get_waiting", one(route, 200, waiting()).run(&args));
    assert_snapshot!("get_complete", one(route, 200, complete()).run(&args));
    assert_snapshot!(
        "get_json",
        one(route, 200, complete()).run(&[&args[..], &["--output", "json"]].concat())
    );
    let attention = r#""attention":{"code":"poison","message":"3 holders died\u001b[2J","since":"2026-01-02T03:04:06.000000Z"},"holder":{"session":"s","build":"b1","host":"h"},"ended_at":null"#;
    assert_snapshot!("get_attention", one(route, 200, instance("attention", attention)).run(&args));
    let family = r#""reason":{"kind":"child","call":{"kind":"child","name":"pack","count":1},"instance":{"workflow":"pack","id":"c-1"},"since":"2026-01-02T03:04:06.000000Z"},"parent":{"workflow":"shop","id":"s-1"},"children":[{"workflow":"pack","id":"c-1","status":"open","detached":false,"run":1},{"workflow":"report","id":"r-1","status":null,"detached":true,"run":1}],"children_total":3,"ended_at":null"#;
    assert_snapshot!("get_family", one(route, 200, instance("waiting", family)).run(&args));
    let missing = problem(404, "not_found", "there is no instance o-1 of workflow fulfil in default", false);
    assert_snapshot!("get_not_found", one(route, 404, missing).run(&args));
}

#[test]
fn a_journal_is_shown_with_all_its_pages() {
    let first = r#"{"run":1,"entries":[{"position":1,"at":"T1","kind":"started","generation":1,"input":{"n":1.10}}],"next":1}"#;
    let second = r#"{"run":1,"entries":[{"position":2,"at":"T2","kind":"attempted","call":{"kind":"step","name":"charge","count":1},"attempt":1,"outcome":"failed","error":{"kind":"error","name":"CardDeclined","message":"no"},"retry_at":"T3"},{"position":3,"at":"T4","kind":"opened","call":{"kind":"sleep","name":"a","count":1},"wait":"sleep","until":"T5"}],"next":null}"#;
    let rig = Rig::new(vec![
        ("GET /v1/default/workflows/fulfil/instances/o-1", 200, complete()),
        ("GET /v1/default/workflows/fulfil/instances/o-1/journal?after=0&limit=1000", 200, first.to_owned()),
        ("GET /v1/default/workflows/fulfil/instances/o-1/journal?after=1&limit=1000", 200, second.to_owned()),
    ]);
    let args = ["instances", "get", "fulfil", "o-1", "--journal"];
    assert_snapshot!("journal", rig.run(&args));
    assert_snapshot!("journal_json", rig.run(&[&args[..], &["--output", "json"]].concat()));
}

#[test]
fn instances_are_operated() {
    let args = ["instances", "terminate", "fulfil", "o-1", "--reason", "no longer wanted"];
    let route = "POST /v1/default/workflows/fulfil/instances/o-1/terminate";
    let terminated =
        r#""ended_at":"2026-01-02T03:05:00.000000Z","termination":{"reason":"no longer wanted"}"#;
    let rig = one(route, 200, instance("terminated", terminated));
    assert_snapshot!("terminate", rig.run(&args));
    assert_snapshot!("terminate_json", rig.run(&[&args[..], &["--output", "json"]].concat()));
    let refused = problem(409, "not_allowed", "terminate is not possible, the instance is complete", false);
    assert_snapshot!("terminate_refused", one(route, 409, refused).run(&args));

    let args = ["instances", "retry", "fulfil", "o-1"];
    let route = "POST /v1/default/workflows/fulfil/instances/o-1/retry";
    let rig = one(route, 200, instance("queued", ""));
    assert_snapshot!("retry", rig.run(&args));
    assert_snapshot!("retry_json", rig.run(&[&args[..], &["--output", "json"]].concat()));
    let not_parked = problem(409, "not_parked", "this instance is not parked", false);
    assert_snapshot!("retry_not_parked", one(route, 409, not_parked).run(&args));
}

#[test]
fn instances_are_controlled() {
    let base = "/v1/default/workflows/fulfil/instances/o-1";
    let cases: [(&str, &[&str], String, String); 8] = [
        ("pause", &["pause", "fulfil", "o-1"], format!("POST {base}/pause"), instance("pausing", "")),
        ("resume", &["resume", "fulfil", "o-1"], format!("POST {base}/resume"), instance("running", "")),
        (
            "cancel",
            &["cancel", "fulfil", "o-1", "--reason", "bought twice", "--within", "2 min"],
            format!("POST {base}/cancel"),
            instance("running", ""),
        ),
        (
            "cancel_rollback",
            &["cancel", "fulfil", "o-1", "--rollback"],
            format!("POST {base}/cancel"),
            instance("running", ""),
        ),
        (
            "terminate_rollback",
            &["terminate", "fulfil", "o-1", "--rollback"],
            format!("POST {base}/terminate"),
            instance("queued", ""),
        ),
        (
            "restart_reuse",
            &["restart", "fulfil", "o-1", "--reuse"],
            format!("POST {base}/restart"),
            instance("queued", ""),
        ),
        (
            "restart",
            &["restart", "fulfil", "o-1", "--from", "charge", "--count", "2"],
            format!("POST {base}/restart"),
            instance("queued", ""),
        ),
        (
            "delete",
            &["delete", "fulfil", "o-1", "--terminate"],
            format!("DELETE {base}?terminate=true"),
            r#"{"namespace":"default","workflow":"fulfil","id":"o-1","deleted":true}"#.to_owned(),
        ),
    ];
    for (name, args, route, answer) in cases {
        let rig = one(route, 200, answer);
        assert_snapshot!(name, rig.run(&[&["instances"], args].concat()));
    }
    let refused = problem(409, "not_allowed", "pause is not possible, the instance is attention", false);
    let rig = one(format!("POST {base}/pause"), 409, refused);
    assert_snapshot!("pause_refused", rig.run(&["instances", "pause", "fulfil", "o-1"]));
}

#[test]
fn rejected_messages_are_listed() {
    let list = r#"{"rejected":[{"at":"2026-01-02T03:04:05.000006Z","code":"name","reason":"workflow name \"X\" is refused","message_id":"m-1","headers":{},"body":"{}","body_bytes":2}]}"#;
    let rig = one("GET /v1/default/rejected?limit=5", 200, list.to_owned());
    let args = ["rejected", "list", "--limit", "5"];
    assert_snapshot!("rejected", rig.run(&args));
    assert_snapshot!("rejected_json", rig.run(&[&args[..], &["--output", "json"]].concat()));
}

#[test]
fn a06_the_audit_log_is_looked_up() {
    let page = r#"{"actions":[{"at":"2026-01-02T03:04:05.000006Z","namespace":"default","operation":"terminate","target":"instance/fulfil/o-1","who":"ann (0192f0c1a2b37c4d8e5f60718293a4b5)","from":"10.0.0.7","outcome":"done","detail":"reason: a \u001b[31mred\u001b[0m alarm"},{"at":"2026-01-02T03:04:04.000006Z","namespace":"default","operation":"pause","target":"schedule/nightly","who":"anonymous","from":"127.0.0.1","by":"eve","outcome":"done"}],"next":41}"#;
    let asked = "GET /v1/default/audit?target=instance%2Ffulfil%2Fo-1&who=ann&operation=terminate&from=2026-01-01T00%3A00%3A00Z&limit=2";
    let rig = one(asked, 200, page.to_owned());
    let audit = ["audit", "--target", "instance/fulfil/o-1", "--who", "ann", "--operation", "terminate"];
    let rest = ["--from", "2026-01-01T00:00:00Z", "--limit", "2"];
    assert_snapshot!("audit", rig.run(&[&audit[..], &rest[..]].concat()));
    let none = r#"{"actions":[]}"#;
    let rig = one("GET /v1/*/audit?after=41", 200, none.to_owned());
    assert_snapshot!("audit_all", rig.run(&["audit", "--all-namespaces", "--after", "41"]));
}

#[test]
fn breaches_are_listed() {
    let list = r#"{"breaches":[{"at":"2026-01-02T03:04:05.000006Z","kind":"idle","workflow":"fulfil","id":"o-1","run":2,"message":"nothing would ever have moved it; it was made runnable"}]}"#;
    let rig = one("GET /v1/default/breaches?limit=5", 200, list.to_owned());
    assert_snapshot!("breaches", rig.run(&["breaches", "--limit", "5"]));
}

#[test]
fn the_doctor_ends_with_a_code_of_its_own() {
    let check = |check: &str, state: &str| format!(r#"{{"check":"{check}","state":"{state}"}}"#);
    let report = |healthy: bool, checks: [String; 3], findings: &str| {
        let checks = checks.join(",");
        format!(
            r#"{{"healthy":{healthy},"coordinator":"0198c0de","version":"0.1.0","checks":[{checks}],"findings":[{findings}]}}"#
        )
    };
    let finding = |severity: &str| {
        format!(
            r#"{{"check":"queues","severity":"{severity}","subject":"workflow ghost","message":"4 are ready","advice":"start a worker","page":"docs/operations/failures.md"}}"#
        )
    };
    let route = "GET /v1/doctor";
    let well = report(true, [check("store", "good"), check("broker", "good"), check("queues", "good")], "");
    assert_snapshot!("doctor_well", one(route, 200, well.clone()).run(&["doctor"]));
    let noted = report(
        true,
        [check("store", "good"), check("broker", "good"), check("queues", "found")],
        &finding("note"),
    );
    assert_snapshot!("doctor_note", one(route, 200, noted).run(&["doctor"]));
    let ill = report(
        false,
        [check("store", "good"), check("broker", "unknown"), check("queues", "found")],
        &finding("critical"),
    );
    for (name, output) in [("doctor", "table"), ("doctor_json", "json"), ("doctor_yaml", "yaml")] {
        assert_snapshot!(name, one(route, 200, ill.clone()).run(&["doctor", "--output", output]));
    }
}

#[test]
fn settings_are_printed_with_masked_secrets() {
    let rig = Rig::new(Vec::new())
        .file("everstep.toml", "[postgres]\nurl = \"postgres://u:s3cret@db/x\"\npool_max = 3\n")
        .set("EVERSTEP_CONFIG", "everstep.toml")
        .set("EVERSTEP_AMQP__URL", "amqp://u:s3cret@mq/%2f")
        .set("EVERSTEP_POSTGRES__POOL_MAX", "4");
    for (name, args) in
        [("settings", &["settings"][..]), ("settings_json", &["settings", "--output", "json"])]
    {
        let told = rig.run(args);
        assert!(!told.contains("s3cret"), "{told}");
        // What follows is the parts' own and listed in docs/reference/settings.md.
        assert_snapshot!(
            name,
            told.split("[coordinator]").next().unwrap().split(",\"coordinator\"").next().unwrap()
        );
    }
}

#[test]
fn settings_that_cannot_be_used_are_all_named() {
    let unknown = Rig::new(Vec::new())
        .file("everstep.toml", "[postgress]\nurl = \"x\"\n[coordinator]\nleese = 1\n")
        .set("EVERSTEP_CONFIG", "everstep.toml")
        .set("EVERSTEP_AMPQ__URL", "amqp://u:s3cret@mq/%2f")
        .set("EVERSTEP_TEST_ANYTHING", "1");
    assert_snapshot!("settings_unknown", unknown.run(&["settings"]));
    let missing = Rig::new(Vec::new());
    assert_snapshot!("coordinator_without_urls", missing.run(&["coordinator"]));
    assert_snapshot!("migrate_without_url", missing.run(&["migrate"]));
    assert_snapshot!(
        "config_missing",
        missing.run(&["migrate", "--config", "nothing.toml"]).replace(missing.dir(), "[DIR]")
    );
    let open =
        Rig::new(Vec::new()).set("EVERSTEP_COORDINATOR__HEARTBEAT", "0").set("EVERSTEP_WORKER__SLOTS", "0");
    assert_snapshot!("dev_all_problems", open.run(&["dev", "--listen", "0.0.0.0:7070"]));
}
