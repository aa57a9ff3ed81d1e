//! Access tokens on the command line: how one is given, that it is sent and shown nowhere, and how one is made, listed and revoked. Not:
//! what opens what, which crates/coordinator/tests/http does.

#[allow(dead_code, reason = "the other suites use the rest")]
mod support;

use everstep_protocol::{AccessToken, Scope};
use everstep_store::{AccessTokens as _, sqlite::SqliteStore};
use insta::assert_snapshot;
use support::Rig;

const ID: &str = "0192f0c1a2b37c4d8e5f60718293a4b5";
const SECRET: &str = "5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4";

fn token() -> String {
    format!("evs_{ID}_{SECRET}")
}

fn view(more: &str) -> String {
    format!(
        r#"{{"id":"{ID}","name":"ci","role":"operator","namespace":"default","state":"active","created_at":"2026-01-02T03:04:05.000006Z","created_by":"anonymous","expires_at":"2026-04-02T03:04:05.000006Z"{more}}}"#
    )
}

const LIST: &str = "GET /v1/default/workflows/fulfil/instances/o-1";

/// What the command has printed, without what the server was asked.
fn printed(told: &str) -> &str {
    told.split_once("--- requests").map_or(told, |(printed, _)| printed)
}

#[test]
fn a05_a_token_is_sent_and_shown_nowhere() {
    let problem = r#"{"type":"urn:everstep:problem:unauthenticated","title":"No","status":401,"code":"unauthenticated","detail":"the access token is not known here","retry_safe":false}"#;
    let token = token();
    let rig = Rig::new(vec![(LIST, 401, problem.to_owned())]).file("token", &format!("{token}\n"));
    let rig = rig.set("EVERSTEP_LOG__LEVEL", "trace").set("RUST_BACKTRACE", "1");
    let get = ["instances", "get", "fulfil", "o-1"];
    let sent = format!("(Authorization: Bearer {token})");
    let by_file = rig.run(&[&get[..], &["--access-token-file", "token"]].concat());
    assert!(by_file.contains("code: unauthenticated") && by_file.contains(&sent), "{by_file}");
    assert!(!printed(&by_file).contains(SECRET), "{by_file}");
    let by_flag = rig.output(&[&get[..], &["--access-token", &token]].concat());
    assert_eq!(by_flag.status.code(), Some(1));
    let rig = rig.set("EVERSTEP_ACCESS_TOKEN", &token);
    for arguments in [
        &get[..],
        &["settings"],
        &["settings", "--output", "json"],
        &["help"],
        &["instances", "--help"],
        &["strat"],
        &["instances", "get", "Fulfil", "o-1"],
        &["instances", "list", "--url", "http://127.0.0.1:1"],
        &["instances", "list", "--url", "nowhere"],
        &["access-token", "list"],
        &["instances", "watch", "fulfil", "o-1"],
    ] {
        let told = rig.run(arguments);
        assert!(!printed(&told).contains(SECRET), "{told}");
    }
    assert!(rig.run(&get).contains(&sent));
    // One with a slip in it is as secret.
    let rig = rig.set("EVERSTEP_ACCESS_TOKEN", &format!("{SECRET} {SECRET}"));
    let told = rig.run(&get);
    assert!(told.contains("exit code 2") && told.contains("access token"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
    let rig = rig.set("EVERSTEP_ACCESS_TOKEN", "");
    assert!(!rig.run(&get).contains("Authorization"), "an empty variable counts as not set");
    let missing = rig.run(&[&get[..], &["--access-token-file", "none"]].concat());
    assert!(missing.contains("--access-token-file none cannot be read"), "{missing}");
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let made = view(&format!(r#","access_token":"{}""#, token()));
    let rig = Rig::new(vec![
        ("POST /v1/default/access-tokens", 201, made),
        (
            "POST /v1/*/access-tokens",
            503,
            r#"{"status":503,"code":"unknown","detail":"nobody knows"}"#.to_owned(),
        ),
        ("GET /v1/default/access-tokens?limit=5", 200, format!(r#"{{"access_tokens":[{}]}}"#, view(""))),
        (format!("DELETE /v1/*/access-tokens/{ID}").leak(), 200, view("")),
    ]);
    let create = ["access-token", "create", "--role", "operator"];
    assert_snapshot!("create", rig.run(&[&create[..], &["--expires", "90d", "--name", "ci"]].concat()));
    assert_snapshot!("create_unknown", rig.run(&[&create[..], &["--all-namespaces"]].concat()));
    assert_snapshot!("list", rig.run(&["access-token", "list", "--limit", "5"]));
    assert_snapshot!("revoke", rig.run(&["access-token", "revoke", ID, "--all-namespaces"]));
    assert_snapshot!("bad_role", rig.run(&["access-token", "create", "--role", "root"]));
}

#[test]
fn a03_the_first_token_is_made_in_the_store_itself() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rig = Rig::new(Vec::new());
    let create = ["access-token", "create", "--role", "admin", "--all-namespaces", "--data", "data"];
    let told = rig.output(&[&create[..], &["--name", "first", "--expires", "never"]].concat());
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told = String::from_utf8(told.stdout).unwrap();
    let token: AccessToken = told.strip_suffix('\n').unwrap().parse().expect("the secret, and nothing else");
    let store = SqliteStore::open(&std::path::Path::new(rig.dir()).join("data/dev.db")).unwrap();
    let row = runtime.block_on(store.access_token(token.id())).unwrap().what.unwrap();
    assert_eq!((row.kept.hash, &row.kept.grant.scope), (token.hash(), &Scope::All));
    assert_eq!((row.name.as_str(), row.kept.expires_at), ("first", None));
    let busy = rig.run(&create);
    assert!(busy.contains("exit code 1") && busy.contains("stop the other process first"), "{busy}");
    drop(store);
    let refused = rig.run(&[&create[..], &["--expires", "soon"]].concat());
    assert!(refused.contains(r#"expires "soon" is refused"#), "{refused}");
    let unset = rig.run(&["access-token", "create", "--role", "viewer", "--direct"]);
    assert!(unset.contains("postgres.url is not set"), "{unset}");
}
