//! Access tokens over HTTP: every route needs its role, whatever is presented instead of a token opens nothing, and who has one can be
//! told apart. Not: how they are kept (the store's suite), nor for how long the coordinator believes what it has read (`access.rs`).

use std::{collections::BTreeMap, sync::Arc};

use everstep_coordinator::{http, issue_access_token};
use everstep_engine::access::{Asker, Grant};
use everstep_protocol::Role;
use everstep_store::Store;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const INSTANCES: &str = "/v1/default/workflows/fulfil/instances";

pub(crate) async fn token(store: &Arc<dyn Store>, role: Role, namespace: &str) -> String {
    let by = Asker { who: "test".to_owned(), from: "test".to_owned() };
    let grant = Grant { role, scope: namespace.parse().unwrap() };
    let name = format!("{role} of {namespace}").parse().unwrap();
    issue_access_token(&**store, name, grant, None, &by).await.unwrap().0.reveal()
}

pub(crate) async fn demanding() -> Rig {
    let settings = http::Settings { access: http::Demand::Always, ..http::Settings::default() };
    Rig::serving(settings, "127.0.0.1:0", async |_| ()).await
}

/// Only the head, since some answers go on for ever.
async fn with(rig: &Rig, token: &str, method: &str, path: &str) -> Answer {
    rig.head(method, path, &[("authorization", &format!("Bearer {token}"))], "").await
}

/// Every route and method of the document, with the role that it says is needed; none where it is open.
pub(crate) fn routes(document: &Value) -> BTreeMap<(String, String), Option<Role>> {
    let mut routes = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            let security = operation["security"].as_array().unwrap();
            let said = operation["description"].as_str().and_then(|said| {
                said.rsplit_once("Needs the role `")?.1.strip_suffix("`.")?.parse::<Role>().ok()
            });
            assert_eq!(security.is_empty(), said.is_none(), "{method} {path}");
            assert_eq!(security.is_empty(), operation["responses"].get("401").is_none(), "{method} {path}");
            routes.insert((method.to_uppercase(), path.clone()), said);
        }
    }
    routes
}

fn sample(path: &str, namespace: &str) -> String {
    let path = path.replace("{namespace}", namespace).replace("{question}", "parked");
    let parts = path.split('/').map(|part| match (part.find('{'), part.find('}')) {
        (Some(_), Some(end)) => format!("x{}", &part[end + 1..]),
        _ => part.to_owned(),
    });
    parts
        .collect::<Vec<_>>()
        .join("/")
        .replace("access-tokens/x", &format!("access-tokens/{}", "0".repeat(32)))
}

fn is_admins(path: &str) -> bool {
    path.contains("/access-tokens") || path.ends_with("/audit")
}

#[tokio::test]
async fn a02_every_route_needs_its_role_in_its_namespace() {
    let rig = demanding().await;
    let document = rig.get("/openapi.json").await.json();
    let mut everywhere = Vec::new();
    let mut here = Vec::new();
    let mut elsewhere = Vec::new();
    for role in Role::ALL {
        everywhere.push((role, token(&rig.store, role, "*").await));
        here.push((role, token(&rig.store, role, "default").await));
        elsewhere.push((role, token(&rig.store, role, "other").await));
    }
    let routes = routes(&document);
    assert!(routes.len() > 50, "{}", routes.len());
    for ((method, path), needed) in &routes {
        let at = sample(path, "default");
        let what = format!("{method} {path}");
        let without = rig.head(method, &at, &[], "").await;
        let Some(needed) = *needed else {
            assert!(path == "/healthz" || path == "/readyz" || path.starts_with("/hooks/"), "{what} is open");
            assert!(![401, 403].contains(&without.status), "{what} {}", without.status);
            continue;
        };
        assert_eq!(without.status, 401, "{what} without a token");
        assert_eq!(without.headers["www-authenticate"], r#"Bearer realm="everstep""#, "{what}");
        assert_eq!(without.headers["content-type"], "application/problem+json", "{what}");
        // What is in no table needs an admin: that is for these alone.
        assert_eq!(needed == Role::Admin, is_admins(path), "{what} is in the table");
        for (role, token) in &everywhere {
            let status = with(&rig, token, method, &at).await.status;
            assert_eq!(status == 403, *role < needed, "{what} as {role} of all: {status}");
            assert_ne!(status, 401, "{what} as {role}");
        }
        let has_namespace = path.contains("{namespace}");
        for (role, token) in &here {
            let status = with(&rig, token, method, &at).await.status;
            assert_eq!(status == 403, *role < needed || !has_namespace, "{what} as {role} of it: {status}");
        }
        for (role, token) in &elsewhere {
            let refused = with(&rig, token, method, &at).await;
            assert_eq!(refused.status, 403, "{what} as {role} of another namespace");
            let challenge = r#"Bearer realm="everstep", error="insufficient_scope""#;
            assert_eq!(refused.headers["www-authenticate"], challenge, "{what}");
        }
    }
}

#[tokio::test]
async fn o24_a01_what_is_no_token_opens_nothing() {
    let rig = demanding().await;
    let good = token(&rig.store, Role::Admin, "*").await;
    let bearer = format!("Bearer {good}");
    let wrong =
        format!("{}{}", &good[..good.len() - 4], if good.ends_with("0000") { "1111" } else { "0000" });
    let cases: Vec<(&str, Vec<String>)> = vec![
        ("none", vec![]),
        ("empty", vec![String::new()]),
        ("no token", vec!["Bearer".to_owned()]),
        ("blank", vec!["Bearer ".to_owned()]),
        ("another secret", vec![format!("Bearer {wrong}")]),
        ("another case", vec![format!("Bearer {}", good.to_uppercase())]),
        ("more", vec![format!("Bearer {good}0")]),
        ("a part", vec![format!("Bearer {}", &good[..60])]),
        ("another scheme", vec![format!("Basic {good}")]),
        ("no scheme", vec![good.clone()]),
        ("twice", vec![bearer.clone(), bearer.clone()]),
        ("one good, one not", vec![bearer.clone(), "Bearer x".to_owned()]),
        ("long", vec![format!("Bearer {}", "x".repeat(100_000))]),
    ];
    for (what, values) in &cases {
        let headers: Vec<_> = values.iter().map(|value| ("authorization", value.as_str())).collect();
        let start = [&headers[..], &[("content-type", "application/json")]].concat();
        let refused = rig.ask("POST", INSTANCES, &start, r#"{"id":"a"}"#).await;
        refused.problem(401, "unauthenticated");
        let problem = refused.json();
        assert_eq!(problem["retry_safe"], false, "{what}");
        assert!(problem["hint"].as_str().unwrap().contains("Authorization: Bearer"), "{what}");
        assert!(!refused.body.contains(&good[4..]) && !refused.body.contains(&good[40..]), "{what}");
    }
    // Not even whether there is such an instance, or such a route.
    for path in
        [&format!("{INSTANCES}/a?access_token={good}"), "/v1/default/instances", "/v2/none", "/metrics"]
    {
        rig.get(path).await.problem(401, "unauthenticated");
    }
    let ask = async |path: &str| rig.ask("GET", path, &[("authorization", &bearer)], "").await;
    assert_eq!(ask("/v1/default/instances").await.json()["instances"], json!([]), "nothing was started");
    ask("/v2/none").await.problem(404, "no_such_route");
    assert!(ask("/metrics").await.body.contains("everstep_"));
    for good in [format!("{bearer}  "), format!("bearer {good}")] {
        assert_eq!(rig.ask("GET", INSTANCES, &[("authorization", &good)], "").await.status, 200);
    }
    // With a token no web page can do harm: it has none.
    let headers = [("authorization", bearer.as_str()), ("host", "engine.example")];
    assert_eq!(rig.ask("GET", INSTANCES, &headers, "").await.status, 200);
}

#[tokio::test]
async fn a03_a_stream_ends_soon_after_the_token_that_opened_it() {
    let rig = demanding().await;
    let admin = token(&rig.store, Role::Admin, "*").await;
    let [leaves, stays] = [token(&rig.store, Role::Viewer, "default").await, admin.clone()];
    let opens = async |token: &str| {
        let bearer = format!("Bearer {token}");
        rig.stream("/v1/default/instances:watch", &[("authorization", &bearer)]).await
    };
    let (mut leaving, mut staying) = (opens(&leaves).await, opens(&stays).await);
    assert!(leaving.head.starts_with("HTTP/1.0 200"), "{}", leaving.head);
    let id = leaves.strip_prefix("evs_").and_then(|rest| rest.split('_').next()).expect("it has an id");
    let revoked = with(&rig, &admin, "DELETE", &format!("/v1/default/access-tokens/{id}")).await;
    assert_eq!(revoked.status, 200, "{}", revoked.body);
    for stream in [&mut leaving, &mut staying] {
        assert_eq!(stream.event().await.expect("it begins").kind, "open");
    }
    let last = leaving.event().await.expect("it says why");
    assert_eq!(last.kind, "interrupted", "{last:?}");
    assert_eq!(last.data["reason"], "the access token that opened the stream opens nothing any more");
    assert!(leaving.event().await.is_none(), "that was all");
    // Who has another token goes on hearing.
    let bearer = format!("Bearer {admin}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    assert_eq!(rig.ask("POST", INSTANCES, &headers, r#"{"id":"a"}"#).await.status, 201);
    let terminated = rig.ask("POST", &format!("{INSTANCES}/a/terminate"), &headers, "{}").await;
    assert_eq!(terminated.status, 200, "{}", terminated.body);
    let heard = staying.event().await.expect("the end of it");
    assert_eq!(heard.data["id"], "a", "{heard:?}");
}

#[tokio::test]
async fn a03_tokens_are_made_listed_and_revoked_by_admins() {
    const TOKENS: &str = "/v1/orders/access-tokens";
    let rig = demanding().await;
    let admin = token(&rig.store, Role::Admin, "orders").await;
    let ask = async |method: &str, path: &str, token: &str, body: &str| {
        let bearer = format!("Bearer {token}");
        rig.ask(method, path, &[("authorization", &bearer), ("content-type", "application/json")], body).await
    };
    let made = ask("POST", TOKENS, &admin, r#"{"role":"operator","name":"ci","expires":"30d"}"#).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let (id, secret) = (made["id"].as_str().unwrap(), made["access_token"].as_str().unwrap());
    assert_eq!(
        (&made["role"], &made["namespace"], &made["state"]),
        (&json!("operator"), &json!("orders"), &json!("active"))
    );
    assert!(secret.starts_with(&format!("evs_{id}_")) && secret.len() == 101, "{secret}");
    assert!(made["created_by"].as_str().unwrap().starts_with("admin of orders ("), "{made}");
    assert_eq!(ask("GET", "/v1/orders/instances", secret, "").await.status, 200);
    ask("GET", TOKENS, secret, "").await.problem(403, "forbidden");

    // Of another namespace, and of all, an admin of one makes and sees none.
    for path in ["/v1/other/access-tokens", "/v1/*/access-tokens"] {
        let detail = ask("POST", path, &admin, r#"{"role":"viewer"}"#).await.problem(403, "forbidden");
        assert!(detail.contains("admin in orders"), "{detail}");
        ask("GET", path, &admin, "").await.problem(403, "forbidden");
    }
    let list = ask("GET", TOKENS, &admin, "").await;
    assert!(!list.body.contains(&secret[40..]), "a secret is told once");
    let list = list.json();
    assert_eq!(list["access_tokens"][0]["id"], json!(id));
    assert!(list["access_tokens"][0]["used_at"].is_string(), "{list}");
    let first = ask("GET", &format!("{TOKENS}?limit=1"), &admin, "").await.json();
    assert_eq!(first["next"], json!(id));
    let second = ask("GET", &format!("{TOKENS}?limit=1&after={id}"), &admin, "").await.json();
    assert_eq!(second["access_tokens"][0]["name"], "admin of orders");

    // Within seconds elsewhere, here at once.
    let revoked = ask("DELETE", &format!("{TOKENS}/{id}"), &admin, "").await;
    assert_eq!((revoked.status, &revoked.json()["state"]), (200, &json!("revoked")), "{}", revoked.body);
    let detail = ask("GET", "/v1/orders/instances", secret, "").await.problem(401, "unauthenticated");
    assert_eq!(detail, "the access token was revoked");
    assert_eq!(ask("DELETE", &format!("{TOKENS}/{id}"), &admin, "").await.status, 200);
    ask("DELETE", &format!("{TOKENS}/{}", "0".repeat(32)), &admin, "").await.problem(404, "not_found");
}

#[tokio::test]
async fn a03_what_is_asked_of_a_token_is_checked() {
    const TOKENS: &str = "/v1/default/access-tokens";
    let rig = demanding().await;
    let admin = format!("Bearer {}", token(&rig.store, Role::Admin, "*").await);
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let ask = async |path: &str, body: &str| rig.ask("POST", path, &headers, body).await;
    for (body, status, code, word) in [
        (r#"{"role":"root"}"#, 422, "access_token", "viewer, producer, operator or admin"),
        ("{}", 422, "access_token", "role"),
        (r#"{"role":"viewer","expires":"soon"}"#, 422, "access_token", "soon"),
        (r#"{"role":"viewer","expires":"0s"}"#, 422, "access_token", "or never"),
        (r#"{"role":"viewer","name":""}"#, 400, "name", "access token name"),
        (r#"{"role":"viewer","scope":"*"}"#, 400, "unknown_field", "scope"),
    ] {
        let detail = ask(TOKENS, body).await.problem(status, code);
        assert!(detail.contains(word), "{detail}");
    }
    ask("/v1/A/access-tokens", r#"{"role":"viewer"}"#).await.problem(400, "path");
    let id = rig.ask("DELETE", &format!("{TOKENS}/x"), &headers, "").await.problem(400, "path");
    assert!(id.contains("32 hexadecimal digits"), "{id}");
    let made = ask("/v1/*/access-tokens", r#"{"role":"viewer","expires":"never"}"#).await.json();
    assert_eq!(
        (&made["namespace"], made.get("expires_at"), &made["name"]),
        (&json!("*"), None, &json!("unnamed"))
    );
    assert_eq!(rig.store.access_tokens(&"*".parse().unwrap(), None, 9).await.unwrap().what.len(), 2);
}

#[tokio::test]
async fn o24_a04_without_tokens_only_this_host_and_no_web_page_is_served() {
    let rig = Rig::new().await;
    let page = [("origin", "https://evil.example"), ("content-type", "text/plain")];
    rig.ask("POST", &format!("{INSTANCES}/a/terminate"), &page, "{}").await.problem(403, "not_from_here");
    rig.ask("GET", INSTANCES, &[("host", "evil.example")], "").await.problem(403, "not_from_here");
    // A token that this installation does not know does no harm where none is needed.
    let unknown = format!("Bearer evs_{}_{}", "0".repeat(32), "0".repeat(64));
    assert_eq!(rig.ask("GET", INSTANCES, &[("authorization", &unknown)], "").await.status, 200);
    // Open on purpose: pages of other origins are kept out all the same.
    let open = http::Settings { access: http::Demand::Never, ..http::Settings::default() };
    let rig = Rig::serving(open, "0.0.0.0:0", async |_| ()).await;
    assert_eq!(rig.ask("GET", INSTANCES, &[("host", "engine.example")], "").await.status, 200);
    rig.ask("POST", &format!("{INSTANCES}/a/terminate"), &page, "{}").await.problem(403, "not_from_here");
}
