//! Outbox, rejected messages, cleaning.

use std::sync::Arc;

use everstep_engine::{
    Answer, Writes,
    rows::Needs,
    start::{Decided, MessageKey},
};
use everstep_protocol::{Millis, Run, SessionId};
use everstep_store::{MessageName, Rejected, Store};

use super::scene::{Scene, ends, message, namespace, payload, terminate};

pub(crate) async fn the_outbox_keeps_a_message_until_it_is_sent(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let one = scene.held("o-1", session).await;
    let head = scene.head(one).await;
    scene.on(one, ends(&head, session)).await;
    let two = scene.start("o-2").await;
    scene.on(two, terminate("op")).await;
    assert!(store.outbox(Millis(3_600_000), 10).await.unwrap().is_empty());
    let rows = store.outbox(Millis(0), 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.uid).collect::<Vec<_>>(), [one, two]);
    assert_eq!(rows[0].routing_key, "shop.orders.complete");
    assert_eq!(rows[1].routing_key, "shop.orders.terminated");
    assert_eq!((rows[0].run, &rows[0].message_id), (Run(1), &format!("{one}-1-ended")));
    assert!(rows[0].body.contains(r#""output":42"#), "{}", rows[0].body);
    assert_eq!(store.outbox(Millis(0), 1).await.unwrap(), rows[..1]);
    store.sent(&[(one, Run(1)), (one, Run(2))]).await.unwrap();
    store.sent(&[]).await.unwrap();
    assert_eq!(store.outbox(Millis(0), 10).await.unwrap(), rows[1..]);
    scene.write(Needs::default(), Writes { sent: vec![(two, Run(1))], ..Writes::default() }).await.unwrap();
    assert!(store.outbox(Millis(0), 10).await.unwrap().is_empty());
}

fn rejected(message: Option<&MessageKey>, body: &[u8]) -> Rejected {
    let decided = Decided { id: "o-1".parse().unwrap(), answer: Answer::NotFound };
    Rejected {
        namespace: namespace(),
        code: "not_json".to_owned(),
        reason: "not JSON at byte 3".to_owned(),
        headers: payload(r#"{"x":"é"}"#),
        body: body.to_vec(),
        body_bytes: 5_000_000,
        message: message.map(named),
        decided: message.map(|key| (key.workflow.clone(), decided)),
    }
}

fn named(key: &MessageKey) -> MessageName {
    MessageName { app_id: key.app_id.clone(), message_id: key.message_id.clone() }
}

pub(crate) async fn w17_a_message_is_rejected_once(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let key = message("app", "m-1");
    store.reject(&[rejected(Some(&key), b"first")]).await.unwrap();
    store.reject(&[rejected(Some(&key), b"again"), rejected(None, b"nameless")]).await.unwrap();
    store.reject(&[]).await.unwrap();
    let views = store.rejected(&namespace(), 10).await.unwrap();
    let bodies: Vec<&str> = views.iter().map(|view| view.body.as_str()).collect();
    assert_eq!(bodies, ["nameless", "first"], "newest first");
    assert_eq!((views[1].message_id.as_deref(), views[0].message_id.as_deref()), (Some("m-1"), None));
    assert_eq!((views[1].code.as_str(), views[1].body_bytes), ("not_json", 5_000_000));
    assert_eq!(views[1].headers, r#"{"x":"é"}"#);
    assert!(views[0].at >= views[1].at);
    assert_eq!(store.rejected(&namespace(), 1).await.unwrap(), views[..1]);
    assert!(store.rejected(&"other".parse().unwrap(), 10).await.unwrap().is_empty());
    // A redelivery of the message gets the first decision.
    let loaded = scene.load(Needs { messages: vec![key.clone()], ..Needs::default() }).await;
    assert_eq!(loaded.messages[&key], Decided { id: "o-1".parse().unwrap(), answer: Answer::NotFound });
    // One whose decision was written by its start is recorded as well (rule W17).
    let key = message("app", "m-2");
    let decided =
        Decided { id: "o-2".parse().unwrap(), answer: Answer::Conflict(everstep_engine::Status::Open) };
    let writes = Writes { messages: vec![(key.clone(), decided.clone())], ..Writes::default() };
    scene.write(Needs::default(), writes).await.unwrap();
    store.reject(&[rejected(Some(&key), b"conflict")]).await.unwrap();
    assert_eq!(store.rejected(&namespace(), 10).await.unwrap()[0].body, "conflict");
    let loaded = scene.load(Needs { messages: vec![key.clone()], ..Needs::default() }).await;
    assert_eq!(loaded.messages[&key], decided);
}

/// What is refused before its workflow is known has a name all the same.
pub(crate) async fn w17_a_message_without_a_workflow_is_rejected_once(store: Arc<dyn Store>) {
    let key = message("app", "m-1");
    let bare = |key: &MessageKey, body: &[u8]| Rejected { decided: None, ..rejected(Some(key), body) };
    store.reject(&[bare(&key, b"first"), bare(&key, b"in the same batch")]).await.unwrap();
    store.reject(&[bare(&key, b"again"), rejected(Some(&key), b"named now")]).await.unwrap();
    store.reject(&[bare(&message("other", "m-1"), b"of another producer")]).await.unwrap();
    let elsewhere = Rejected { namespace: "other".parse().unwrap(), ..bare(&key, b"in another namespace") };
    store.reject(&[elsewhere]).await.unwrap();
    let views = store.rejected(&namespace(), 10).await.unwrap();
    let bodies: Vec<&str> = views.iter().map(|view| view.body.as_str()).collect();
    assert_eq!(bodies, ["of another producer", "first"]);
    assert!(views.iter().all(|view| view.message_id.as_deref() == Some("m-1")));
    assert_eq!(store.rejected(&"other".parse().unwrap(), 10).await.unwrap().len(), 1);
}

pub(crate) async fn w17_what_records_take_is_measured_by_namespace(store: Arc<dyn Store>) {
    let other: everstep_protocol::Namespace = "other".parse().unwrap();
    let of = |namespace, body_bytes| Rejected { namespace, body_bytes, ..rejected(None, b"x") };
    store.reject(&[of(namespace(), 10), of(namespace(), 5_000_000), of(other.clone(), 1)]).await.unwrap();
    let empty = "empty".parse().unwrap();
    let sizes = store.rejected_bytes(&[other, namespace(), empty]).await.unwrap();
    assert_eq!(sizes, [1_025, 1_034 + (1 << 20) + 1_024, 0]);
}

pub(crate) async fn rejected_bodies_need_not_be_text(store: Arc<dyn Store>) {
    let mut odd = rejected(Some(&message("a\0", "m\0")), b"\xff\0\xfe");
    odd.reason.push_str(" \0");
    store.reject(&[odd]).await.unwrap();
    let views = store.rejected(&namespace(), 10).await.unwrap();
    assert_eq!((views.len(), views[0].body.contains('\u{fffd}')), (1, true));
}

pub(crate) async fn a_young_record_is_not_cleaned(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    store.reject(&[rejected(Some(&message("app", "m-1")), b"x")]).await.unwrap();
    let session = SessionId::generate();
    store.open_session(&super::scene::open_session(session)).await.unwrap();
    store.end_session(session, true).await.unwrap();
    scene.start("o-1").await;
    assert_eq!(store.clean(100).await.unwrap(), 0);
    assert_eq!(store.rejected(&namespace(), 10).await.unwrap().len(), 1);
    assert!(!store.open_session(&super::scene::open_session(session)).await.unwrap());
}
