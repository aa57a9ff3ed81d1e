//! Lists by conditions: that each condition finds what it should and nothing else, and that pages neither skip nor repeat what was
//! there before the first one, while new instances arrive.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{INSTANCES, rig::Rig};

fn ids(page: &Value) -> Vec<String> {
    let rows = page["instances"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

async fn found(rig: &Rig, query: &str) -> BTreeSet<String> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = rig.get(&format!("{INSTANCES}?{query}{cursor}")).await.json();
        all.extend(ids(&page));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "an instance came twice: {all:?}");
    set
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[tokio::test]
async fn p37_each_condition_finds_what_fulfils_it() {
    let rig = Rig::new().await;
    let mut created = Vec::new();
    for id in ["a-1", "a-2", "b-1"] {
        let started = rig.post(INSTANCES, &json!({ "id": id }).to_string()).await;
        created.push(started.json()["created_at"].as_str().unwrap().to_owned());
    }
    let ended = rig.post(&format!("{INSTANCES}/a-2/terminate"), "").await.json();
    let ended_at = ended["ended_at"].as_str().unwrap();
    assert_eq!(found(&rig, "id_prefix=a-").await, set(&["a-1", "a-2"]));
    assert_eq!(found(&rig, "id_prefix=a-&status=open&limit=1").await, set(&["a-1"]));
    assert_eq!(found(&rig, "status=open").await, set(&["a-1", "b-1"]));
    assert_eq!(found(&rig, &format!("created_from={}", created[1])).await, set(&["a-2", "b-1"]));
    assert_eq!(found(&rig, &format!("created_before={}", created[1])).await, set(&["a-1"]));
    assert_eq!(found(&rig, &format!("ended_from={ended_at}")).await, set(&["a-2"]));
    assert_eq!(found(&rig, &format!("ended_before={ended_at}")).await, set(&[]));
    assert_eq!(found(&rig, "created_from=2100-01-01T00:00:00Z").await, set(&[]));
    assert_eq!(found(&rig, "created_before=2000-01-01T00:00:00Z").await, set(&[]));
    assert_eq!(found(&rig, "error=CardDeclined").await, set(&[]));
    for query in ["id_prefix=", "id_prefix=a%20b", "created_from=x", "error=", "ended_from=1"] {
        rig.get(&format!("{INSTANCES}?{query}")).await.problem(400, "query");
    }
}

#[tokio::test]
async fn p37_pages_neither_skip_nor_repeat_what_was_there_before() {
    let rig = Rig::new().await;
    for number in 0..25 {
        let kind = if number % 2 == 0 { "even" } else { "odd" };
        rig.post(INSTANCES, &json!({ "id": format!("{kind}-{number}") }).to_string()).await;
    }
    for query in ["limit=4", "limit=4&id_prefix=even", "limit=1&id_prefix=odd&status=open"] {
        let before = found(&rig, &query.replace("limit=4", "limit=200")).await;
        let (mut seen, mut cursor, mut arrived) = (Vec::new(), String::new(), 0);
        loop {
            let page = rig.get(&format!("{INSTANCES}?{query}{cursor}")).await.json();
            seen.extend(ids(&page));
            for kind in ["even", "odd"] {
                let id = format!("{kind}-new-{}-{arrived}", query.len());
                assert_eq!(rig.post(INSTANCES, &json!({ "id": id }).to_string()).await.status, 201);
            }
            arrived += 1;
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert!(arrived > 2, "{query}: only {arrived} pages");
        let once: BTreeSet<String> = seen.iter().cloned().collect();
        assert_eq!(once.len(), seen.len(), "{query}: an instance came twice: {seen:?}");
        assert_eq!(once, before, "{query}");
    }
}
