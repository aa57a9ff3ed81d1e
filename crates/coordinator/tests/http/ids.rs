//! O-23: ids, types and filters from the list of naughty strings. Each is refused at the start with its rule, and nothing is there
//! afterwards; or it works with every verb under the same id, and lists show it unchanged.

use serde_json::{Value, json};

use crate::{INSTANCES, rig::Rig};

const IDS: [&str; 74] = [
    "a/b",
    "a%2Fb",
    "a%252Fb",
    "..",
    "../../etc",
    ".",
    "a b",
    "a+b",
    "a?b=c",
    "a#b",
    "a;b",
    "a\\b",
    "a/",
    "list",
    "health",
    "new",
    "healthz",
    "journal",
    "日本",
    "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}",
    "a\u{202e}b",
    "\u{e9}",
    "e\u{301}",
    "ABC",
    "abc",
    "straße",
    "STRASSE",
    " a",
    "a ",
    "a\tb",
    "\r\nX-Evil: 1",
    "\u{0}",
    "%ff",
    "\u{feff}a",
    "",
    "x",
    "'; DROP TABLE instance; --",
    "a' OR '1'='1",
    "a\"; --",
    "$1",
    "%",
    "_",
    "\\",
    "a')) UNION SELECT 1 --",
    "{{7*7}}",
    "${HOME}",
    "-rf",
    "--help",
    "-",
    "*",
    "~",
    "$(id)",
    "null",
    "true",
    "0",
    "-1",
    "1e999",
    "NaN",
    "undefined",
    "__proto__",
    "constructor",
    "<script>",
    "&amp;",
    "a:b",
    "a:operate",
    "instances:batch",
    "instances:watch",
    "a,b",
    "a=b",
    "a@b",
    "a!b",
    "(a)",
    "[a]",
    "a|b",
];

/// Every byte that could mean something is written as its code.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

fn ids(list: &Value) -> Vec<String> {
    let rows = list["instances"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

async fn listed(rig: &Rig) -> Vec<String> {
    ids(&rig.get(&format!("{INSTANCES}?limit=200")).await.json())
}

/// All verbs under an id that was accepted.
async fn works(rig: &Rig, id: &str) {
    let path = format!("{INSTANCES}/{}", escaped(id));
    assert_eq!(rig.get(&path).await.json()["id"], json!(id), "{id:?}");
    for (verb, status) in [("pause", "paused"), ("resume", "queued")] {
        let answer = rig.post(&format!("{path}/{verb}"), "").await;
        assert_eq!(
            (answer.status, &rig.get(&path).await.json()["status"]),
            (200, &json!(status)),
            "{verb} {id:?}"
        );
    }
    let event = rig.post(&format!("{path}/events/paid"), "{}").await;
    assert!(event.status < 300, "event to {id:?}: {} {}", event.status, event.body);
    let journal = rig.get(&format!("{path}/journal")).await;
    assert_eq!(journal.status, 200, "journal of {id:?}");
    let filter = rig.get(&format!("{INSTANCES}?id_prefix={}", escaped(id))).await;
    if filter.status == 200 {
        let found = ids(&filter.json());
        assert!(
            found.iter().any(|one| one == id) && found.iter().all(|one| one.starts_with(id)),
            "{id:?}: {found:?}"
        );
    }
    let ended = rig.post(&format!("{path}/terminate"), "").await;
    assert_eq!((ended.status, &rig.get(&path).await.json()["status"]), (200, &json!("terminated")), "{id:?}");
}

#[tokio::test]
async fn o23_an_id_is_refused_with_its_rule_or_works_with_every_verb() {
    let rig = Rig::new().await;
    let long = [
        "x".repeat(100),
        "x".repeat(101),
        "x".repeat(10_000),
        "\u{1f600}".repeat(25),
        "\u{1f600}".repeat(101),
    ];
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for id in IDS.into_iter().chain(long.iter().map(String::as_str)) {
        let answer = rig.post(INSTANCES, &json!({"id": id}).to_string()).await;
        if answer.status < 300 {
            assert_eq!(answer.json()["id"], json!(id), "it is not altered");
            accepted.push(id);
        } else {
            assert!(matches!(answer.status, 400 | 413 | 422), "{id:?}: {} {}", answer.status, answer.body);
            assert!(answer.json()["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{id:?}");
            refused += 1;
        }
        for evil in ["SELECT", "sqlite", "UNIQUE", "syntax error"] {
            assert!(!answer.body.contains(evil) || id.contains(evil), "{id:?}: {}", answer.body);
        }
        assert!(!answer.headers.contains_key("X-Evil") && !answer.headers.contains_key("x-evil"), "{id:?}");
    }
    assert!(accepted.len() > 10 && refused > 10, "{accepted:?}");
    assert!(accepted.contains(&"ABC") && accepted.contains(&"abc"), "case counts");
    let mut shown = listed(&rig).await;
    let mut expected: Vec<String> = accepted.iter().map(|id| (*id).to_owned()).collect();
    shown.sort();
    expected.sort();
    assert_eq!(shown, expected, "each is there as it was given, and nothing else is");
    for id in accepted {
        works(&rig, id).await;
    }
}

/// Nobody reaches another route or instance by an id in a path, however it is written there.
#[tokio::test]
async fn o23_an_id_in_a_path_reaches_that_instance_or_none() {
    let rig = Rig::new().await;
    assert_eq!(rig.post(INSTANCES, r#"{"id":"o-1"}"#).await.status, 201);
    for id in IDS {
        let answer = rig.get(&format!("{INSTANCES}/{}", escaped(id))).await;
        assert!(matches!(answer.status, 400 | 404 | 405), "{id:?}: {} {}", answer.status, answer.body);
        let raw: String = id.chars().filter(char::is_ascii_graphic).collect();
        let answer = rig.get(&format!("{INSTANCES}/{raw}")).await;
        assert!(answer.status < 500, "{raw:?}: {}", answer.body);
        let ended = rig.post(&format!("{INSTANCES}/{}/terminate", escaped(id)), "").await;
        assert!((400..500).contains(&ended.status), "{id:?}: {}", ended.status);
    }
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1")).await.json()["status"], json!("queued"));
    assert_eq!(listed(&rig).await, ["o-1"]);
}

#[tokio::test]
async fn o23_types_names_and_queries_of_that_kind_are_refused_and_change_nothing() {
    let rig = Rig::new().await;
    assert_eq!(rig.post(INSTANCES, r#"{"id":"o-1"}"#).await.status, 201);
    for text in IDS {
        let answer = rig.post(&format!("{INSTANCES}/o-1/events/{}", escaped(text)), "{}").await;
        assert!(answer.status < 500, "event {text:?}: {} {}", answer.status, answer.body);
        let start =
            rig.post(&format!("/v1/default/workflows/{}/instances", escaped(text)), r#"{"id":"x"}"#).await;
        assert!(start.status < 500, "workflow {text:?}: {} {}", start.status, start.body);
        let named = rig.get(&format!("/v1/{}/instances", escaped(text))).await;
        assert!(named.status < 500, "namespace {text:?}: {} {}", named.status, named.body);
        let headers = [("idempotency-key", escaped(text))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let keyed = rig.ask("POST", &format!("{INSTANCES}/o-1/pause"), &headers, "").await;
        assert!(keyed.status < 500, "key {text:?}: {} {}", keyed.status, keyed.body);
        let reason =
            rig.post(&format!("{INSTANCES}/o-2/terminate"), &json!({"reason": text}).to_string()).await;
        assert!((400..500).contains(&reason.status), "reason {text:?}: {}", reason.status);
        for parameter in ["status", "cursor", "after", "limit", "error", "attribute", "id_prefix", "since"] {
            let answer = rig.get(&format!("{INSTANCES}?{parameter}={}", escaped(text))).await;
            assert!(answer.status < 500, "{parameter}={text:?}: {} {}", answer.status, answer.body);
        }
    }
    for query in [
        "order=(CASE%20WHEN%201=1%20THEN%20id%20ELSE%201%20END)",
        "order=id;select%201",
        "status='%20OR%201=1%20--",
        "limit=1;select",
        "limit=-1",
        "limit=99999999999999999999",
        "limit=1&limit=2",
        "unknown=1",
        "cursor=AAAA",
        "%00=1",
    ] {
        let answer = rig.get(&format!("{INSTANCES}?{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.body);
    }
}
