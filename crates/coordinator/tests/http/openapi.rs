//! The OpenAPI document: that the committed one is what is served (`make openapi` writes it), that every route is in it, with every
//! method, and that every problem that it names is explained. Not: that answers are as it says, which schemathesis proves.

use std::collections::BTreeSet;

use everstep_coordinator::http;
use serde_json::Value;

use crate::rig::Rig;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
const ERRORS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors/README.md"));
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

#[tokio::test]
async fn the_committed_document_is_what_is_served() {
    let rig = Rig::new().await;
    let served = rig.get("/openapi.json").await;
    assert_eq!((served.status, served.headers["content-type"].as_str()), (200, "application/json"));
    let document = served.json();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1")), "{document}");
    let text = format!("{document:#}\n");
    if std::env::var_os("EVERSTEP_TEST_WRITE_PAGES").is_some() {
        std::fs::write(PAGE, &text).unwrap();
    }
    let committed = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        committed == text,
        "docs/reference/openapi.json differs from the code; write it anew: make openapi"
    );
}

#[tokio::test]
async fn every_route_is_in_the_document() {
    let rig = Rig::new().await;
    let document = serde_json::to_value(http::openapi(&rig.handle)).unwrap();
    let documented: BTreeSet<String> = document["paths"].as_object().unwrap().keys().cloned().collect();
    // A router shows its paths among what it shows for debugging.
    let shown = format!("{:?}", http::router(http::Settings::default(), rig.addr, rig.handle.clone()));
    let routed: BTreeSet<String> = shown
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with('/'))
        // The document itself and the page that shows it.
        .filter(|path| *path != "/openapi.json" && !path.starts_with("/docs"))
        // Where nothing is, a problem answers.
        .filter(|path| *path != "/" && !path.contains("__private__"))
        .map(str::to_owned)
        .collect();
    assert!(routed.len() > 30, "{routed:?}");
    assert_eq!(routed, documented);
}

#[tokio::test]
async fn a_method_that_is_not_in_the_document_is_not_there() {
    let rig = Rig::new().await;
    let document = rig.get("/openapi.json").await.json();
    for (path, item) in document["paths"].as_object().unwrap() {
        // Webhooks take every method.
        if path.starts_with("/hooks/") {
            continue;
        }
        let sample =
            path.replace("{question}", "parked")
                .split('/')
                .map(|part| {
                    if part.starts_with('{') { part.find('}').map_or("x", |end| &part[end..]) } else { part }
                })
                .map(|part| part.replace('}', "x"))
                .collect::<Vec<_>>()
                .join("/");
        for method in METHODS.iter().filter(|method| item.get(**method).is_none()) {
            let answer = rig.ask(&method.to_uppercase(), &sample, &[], "").await;
            answer.problem(405, "wrong_method");
            let allowed = answer.headers["allow"].to_lowercase();
            assert!(METHODS.iter().all(|method| allowed.contains(method) == item.get(*method).is_some()));
        }
    }
}

#[tokio::test]
async fn every_problem_of_the_document_is_explained() {
    let rig = Rig::new().await;
    let document = rig.get("/openapi.json").await.json();
    let mut named = BTreeSet::new();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in METHODS.iter().filter_map(|method| item.get(*method)) {
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("403"), "{operation}");
            for (status, response) in responses {
                if let Some(content) = response.get("content").and_then(|content| content.get(PROBLEM)) {
                    assert_eq!(content["schema"]["$ref"], "#/components/schemas/Problem", "{status}");
                    named.extend(codes(response["description"].as_str().unwrap()));
                }
            }
        }
    }
    assert!(named.len() > 25, "{named:?}");
    for code in &named {
        assert!(ERRORS.contains(&format!("`{code}`")), "docs/errors/README.md does not name {code}");
    }
}

const PROBLEM: &str = "application/problem+json";

fn codes(description: &str) -> impl Iterator<Item = String> + '_ {
    let ticked = description.split('`').skip(1).step_by(2);
    ticked
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .map(str::to_owned)
}

#[tokio::test]
async fn the_page_asks_nobody_else() {
    let rig = Rig::new().await;
    let page = rig.get("/docs/").await;
    assert_eq!(page.status, 200);
    for reference in
        page.body.split(['"', '\'']).filter(|text| [".js", ".css"].iter().any(|end| text.ends_with(end)))
    {
        assert!(!reference.contains("//"), "{reference} is fetched from elsewhere");
        let served = rig.get(&format!("/docs/{}", reference.trim_start_matches("./"))).await;
        assert_eq!(served.status, 200, "{reference}");
    }
    for nothing in ["/docs/nothing.js", "/docs/journals/?"] {
        rig.get(nothing).await.problem(404, "no_such_route");
    }
    let start = rig.get("/docs/swagger-initializer.js").await;
    assert!(start.body.contains("/openapi.json"), "{}", start.body);
}

#[tokio::test]
async fn every_reference_in_the_document_leads_somewhere() {
    let rig = Rig::new().await;
    let document = rig.get("/openapi.json").await.json();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        assert!(document.pointer(&reference).is_some(), "{reference}");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                references.push(reference.trim_start_matches('#').to_owned());
            }
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
