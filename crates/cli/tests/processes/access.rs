//! A coordinator that demands access tokens, and a command that has one.

use std::{fs::File, process::Command};

use crate::fleet::{Fleet, Told, get, until};

#[test]
fn a05_a_coordinator_that_demands_tokens_logs_none() {
    let fleet = Fleet::bare();
    fleet.run(&["migrate"]).succeeded();
    let create =
        ["access-token", "create", "--direct", "--role", "admin", "--all-namespaces", "--expires", "1h"];
    let made = fleet.run(&create).succeeded();
    let token = made.trim_end().to_owned();
    let secret = token.rsplit('_').next().expect("its last part").to_owned();

    let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("a free port");
    let port = listener.local_addr().expect("its address").port();
    drop(listener);
    let log = fleet.path("log");
    let mut command = fleet.everstep();
    command
        .args(["coordinator", "--listen", &format!("0.0.0.0:{port}")])
        .env("EVERSTEP_LOG__LEVEL", "trace")
        .stderr(File::create(&log).expect("a file"));
    let _coordinator = everstep_testbed::Process::spawn("coordinator", &mut command).expect("it starts");
    let address = ([127, 0, 0, 1], port).into();
    until("it is ready", || {
        get(address, "pod.example", "/readyz")?.starts_with("HTTP/1.1 200").then_some(())
    });

    let run = |arguments: &[&str], token: Option<&str>| -> Told {
        let mut command: Command = fleet.everstep();
        command.args(arguments).env("EVERSTEP_URL", format!("http://127.0.0.1:{port}"));
        if let Some(token) = token {
            command.env("EVERSTEP_ACCESS_TOKEN", token);
        }
        command.output().expect("the command runs").into()
    };
    let told = run(&["instances", "list"], None).failed(1);
    assert!(
        told.contains("code: unauthenticated") && told.contains("everstep access-token create"),
        "{told}"
    );
    run(&["start", "none", "--id", "a"], Some(&token)).succeeded();
    let made =
        run(&["access-token", "create", "--role", "viewer", "--output", "json"], Some(&token)).succeeded();
    let viewer: serde_json::Value = serde_json::from_str(&made).expect("JSON");
    let viewer = viewer["access_token"].as_str().expect("a secret").to_owned();
    assert!(run(&["instances", "get", "none", "a"], Some(&viewer)).succeeded().contains("queued"));
    let refused = run(&["instances", "terminate", "none", "a"], Some(&viewer)).failed(1);
    assert!(refused.contains("code: forbidden") && refused.contains("operator in default"), "{refused}");
    let wrong = viewer.replace(&viewer[80..84], "zzzz");
    assert!(run(&["instances", "list"], Some(&wrong)).failed(1).contains("code: unauthenticated"));

    let logged = std::fs::read_to_string(&log).expect("the log");
    assert!(logged.len() > 1_000, "it was told to log everything: {logged}");
    for secret in [secret.as_str(), viewer.rsplit('_').next().expect("its last part"), "zzzz"] {
        assert!(!logged.contains(secret), "the log has a secret");
    }
}
