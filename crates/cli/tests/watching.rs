//! What the command makes of streams of events, and of answers as YAML, against a server with fixed answers. Proves that a stream which
//! breaks is taken up behind the last event, and how it ends. Not: that a real server tells like this (tests/processes).

#![allow(dead_code, reason = "of the helpers only a part is used here")]

mod support;

use support::Rig;

const WATCH: &str = "GET /v1/default/workflows/fulfil/instances/o-1/watch";
const STARTED: &str = r#"{"position":1,"at":"T1","kind":"started"}"#;
const ATTEMPTED: &str = r#"{"position":2,"at":"T2","kind":"attempted","call":{"kind":"step","name":"charge","count":1},"attempt":1,"outcome":"succeeded"}"#;

fn instance(status: &str, more: &str) -> String {
    format!(
        r#"{{"namespace":"default","workflow":"fulfil","id":"o-1","run":1,"status":"{status}","steps":1,"created_at":"T0"{more}}}"#
    )
}

fn event(kind: &str, id: &str, data: &str) -> String {
    let id = if id.is_empty() { String::new() } else { format!("id: {id}\n") };
    format!("{id}event: {kind}\ndata: {data}\n\n")
}

fn complete() -> String {
    instance("complete", r#","ended_at":"T9","output":{"total":1.10}"#)
}

#[test]
fn a_stream_that_breaks_is_taken_up_and_nothing_comes_twice() {
    let interrupted = event("interrupted", "", r#"{"reason":"it is stopping","retry_safe":true}"#);
    let first = [
        event("entry", "1.1", STARTED),
        event("instance", "", &instance("running", r#","ended_at":null"#)),
        interrupted,
        event("entry", "1.9", "never read"),
    ];
    let second =
        [": still here\n\n".to_owned(), event("entry", "1.2", ATTEMPTED), event("end", "1.2", &complete())];
    let answers = || {
        vec![(WATCH, 200, first.concat()), (WATCH, 200, "id: 1".to_owned()), (WATCH, 200, second.concat())]
    };
    let told = Rig::new(answers()).run(&["instances", "watch", "fulfil", "o-1"]);
    let expected = "\
$ everstep instances watch fulfil o-1
exit code 0
--- stdout
T1  1.1      started
= running
T2  1.2      attempted    step \"charge\" #1  attempt 1, succeeded
= complete
--- requests
";
    assert!(told.starts_with(expected), "{told}");
    assert_eq!(told.matches(WATCH).count(), 3, "{told}");
    let json = Rig::new(answers()).output(&["instances", "watch", "fulfil", "o-1", "--output", "json"]);
    let json = String::from_utf8_lossy(&json.stdout);
    assert_eq!(json.lines().count(), 4, "{json}");
    assert_eq!(json.lines().next(), Some(&*format!(r#"{{"event":"entry","id":"1.1","data":{STARTED}}}"#)));
    assert!(json.contains(r#"{"total":1.10}"#), "every digit stays: {json}");
}

#[test]
fn a_wait_listens_and_its_end_is_the_outcome() {
    let start = ("POST /v1/default/workflows/fulfil/instances", 201, instance("queued", ""));
    let route = "GET /v1/default/workflows/fulfil/instances/o-1/watch?after=now";
    let run = |end: String| {
        let rig = Rig::new(vec![start.clone(), (route, 200, event("end", "1.2", &end))]);
        rig.run(&["start", "fulfil", "--id", "o-1", "--wait"])
    };
    let told = run(complete());
    assert!(told.contains("exit code 0\n--- stdout\n{\"total\":1.10}\n"), "{told}");
    assert!(!told.contains("instances/o-1\n"), "it is not asked for as well: {told}");
    let told = run(instance("terminated", r#","ended_at":"T9","termination":{"reason":"enough"}"#));
    assert!(told.contains("exit code 4") && told.contains("enough"), "{told}");
}

#[test]
fn ends_are_shown_as_they_come() {
    let route = "GET /v1/default/instances:watch?workflow=fulfil&status=complete&attribute=region%3Deu";
    let text = event("open", "1.7.u", r#"{"cursor":"1.7.u"}"#) + &event("ended", "1.8.u", &complete());
    let refused = r#"{"type":"x","title":"No","status":400,"code":"query","detail":"after is refused","retry_safe":false}"#;
    let rig = Rig::new(vec![(route, 200, text), (route, 400, refused.to_owned())]);
    let args = [
        "instances",
        "watch-ends",
        "--workflow",
        "fulfil",
        "--status",
        "complete",
        "--attribute",
        "region=eu",
    ];
    let told = rig.run(&args);
    assert!(told.contains("T9  complete   fulfil/o-1  1.8.u"), "{told}");
    assert!(told.contains("exit code 1") && told.contains("after is refused"), "{told}");
    let told = rig.run(&["instances", "watch-ends", "--attribute", "region"]);
    assert!(told.contains("exit code 2") && told.contains("--attribute"), "{told}");
}

#[test]
fn an_answer_is_printed_as_yaml() {
    let route = "GET /v1/default/workflows/fulfil/instances/o-1";
    let answer =
        r#"{"id":"o-1","input":{"n":123456789012345678901,"lines":[{"sku":"tea: 1"}]},"error":null}"#;
    let rig = Rig::new(vec![(route, 200, answer.to_owned())]);
    let yaml = rig.output(&["instances", "get", "fulfil", "o-1", "--output", "yaml"]).stdout;
    let expected = "id: \"o-1\"\ninput:\n  \"n\": 123456789012345678901\n  lines:\n    -\n      sku: \"tea: 1\"\nerror: null\n";
    assert_eq!(String::from_utf8_lossy(&yaml), expected);
}

#[test]
fn a_code_is_explained() {
    let rig = Rig::new(Vec::new());
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/conflict.md"));
    assert_eq!(String::from_utf8_lossy(&rig.output(&["errors", "conflict"]).stdout), page);
    let told = rig.run(&["errors", "too_many_streams"]);
    assert!(told.contains("exit code 0") && told.contains("as many streams"), "{told}");
    let told = rig.run(&["errors", "no-such-code"]);
    assert!(told.contains("exit code 2") && told.contains("no-such-code"), "{told}");
    let all = rig.output(&["errors"]);
    let all = String::from_utf8_lossy(&all.stdout);
    assert!(all.lines().count() > 60 && all.contains("\nmailbox_full "), "{all}");
}
