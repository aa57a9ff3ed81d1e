//! Names and messages: each is decided once.

use std::sync::Arc;

use everstep_engine::{
    Answer, Head, Input, Status, Writes,
    batch::{JournalRow, NameRow},
    rows::Needs,
    start::{Admission, Decided, Found, Start, admit},
};
use everstep_protocol::{InstanceUid, Millis, Timestamp};
use everstep_store::{ErrorKind, Store};

use super::scene::{Scene, ends, message, name_key, start, terminate};

pub(crate) async fn p27_a_name_is_given_once(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let first = start("orders", "o-1", r#"{"a":1,"b":2}"#);
    let uid = first.uid;
    let same = start("orders", "o-1", r#"{"b":2,"a":1}"#);
    let other = start("orders", "o-1", r#"{"a":2}"#);
    let elsewhere = start("refunds", "o-1", "1");
    let inputs = [first, same.clone(), elsewhere].map(|start| Input::Start(Box::new(start))).to_vec();
    let answers = scene.run(inputs).await.answers;
    assert_eq!(answers, [Answer::Created, Answer::Exists(Status::Open), Answer::Created]);
    scene.on(uid, terminate("op")).await;
    let inputs = [same, other].map(|start| Input::Start(Box::new(start))).to_vec();
    let answers = scene.run(inputs).await.answers;
    assert_eq!(answers, [Answer::Exists(Status::Terminated), Answer::Conflict(Status::Terminated)]);
    let names = vec![name_key("orders", "o-1"), name_key("orders", "o-9")];
    let loaded = scene.load(Needs { names, ..Needs::default() }).await;
    assert_eq!(loaded.names.len(), 1);
    assert_eq!(loaded.names[&name_key("orders", "o-1")].uid, uid);
}

/// What a batch writes that has not seen what another has written meanwhile.
fn unseen(start: &Start) -> Writes {
    let Admission::Created(head, entry) = admit(start, Found::default(), Timestamp(1), Millis(1)) else {
        panic!("it is new")
    };
    let head: Head = *head;
    let decided = Decided { id: head.id.clone(), answer: Answer::Created };
    Writes {
        names: vec![NameRow { key: start.name.clone(), uid: head.uid, fingerprint: start.fingerprint }],
        journal: vec![JournalRow { uid: head.uid, run: head.run, entry: *entry }],
        messages: start.message.iter().map(|key| (key.clone(), decided.clone())).collect(),
        created: vec![head],
        ..Writes::default()
    }
}

async fn is_unknown(scene: &Scene, uid: InstanceUid) -> bool {
    scene.look(uid, &[]).await.heads.is_empty() && scene.journal(uid).await.is_empty()
}

pub(crate) async fn a_name_taken_meanwhile_is_a_conflict(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = scene.start("o-1").await;
    let late = start("orders", "o-1", "1");
    let fresh = start("orders", "o-2", "1");
    let mut writes = unseen(&late);
    let more = unseen(&fresh);
    writes.created.extend(more.created);
    writes.names.extend(more.names);
    writes.journal.extend(more.journal);
    let error = scene.write(Needs::default(), writes).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(is_unknown(&scene, late.uid).await && is_unknown(&scene, fresh.uid).await);
    assert_eq!(scene.store.find(&fresh.name).await.unwrap(), None);
    assert_eq!(scene.store.find(&late.name).await.unwrap(), Some(uid));
    // Run again, it sees the instance.
    let answers = scene.run(vec![Input::Start(Box::new(late))]).await.answers;
    assert_eq!(answers, [Answer::Conflict(Status::Open)]);
}

pub(crate) async fn a_message_decided_meanwhile_is_a_conflict(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let with = |id: &str| Start { message: Some(message("app", "m-1")), ..start("orders", id, "1") };
    scene.write(Needs::default(), unseen(&with("o-1"))).await.unwrap();
    let late = with("o-2");
    let error = scene.write(Needs::default(), unseen(&late)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(is_unknown(&scene, late.uid).await);
    assert_eq!(scene.store.find(&late.name).await.unwrap(), None);
}

pub(crate) async fn the_decision_on_a_message_is_kept(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let first = Start { message: Some(message("app", "m-1")), ..start("orders", "o-1", "1") };
    let uid = first.uid;
    let refused = Start { message: Some(message("app", "m-2")), ..start("orders", "o-1", "2") };
    let run = async |start: &Start| scene.run(vec![Input::Start(Box::new(start.clone()))]).await.answers;
    assert_eq!(run(&first).await, [Answer::Created]);
    assert_eq!(run(&refused).await, [Answer::Conflict(Status::Open)]);
    let session = everstep_protocol::SessionId::generate();
    scene.on(uid, everstep_engine::What::Claim { session, have: None }).await;
    let head = scene.head(uid).await;
    scene.on(uid, ends(&head, session)).await;
    // Redelivered after the instance has ended, each gets the answer that it got.
    assert_eq!(run(&first).await, [Answer::Created]);
    assert_eq!(run(&refused).await, [Answer::Conflict(Status::Open)]);
    let messages = vec![message("app", "m-1"), message("app", "m-2"), message("", "m-1")];
    let loaded = scene.load(Needs { messages, ..Needs::default() }).await;
    assert_eq!(loaded.messages.len(), 2);
    let decided = Decided { id: "o-1".parse().unwrap(), answer: Answer::Conflict(Status::Open) };
    assert_eq!(loaded.messages[&message("app", "m-2")], decided);
}

pub(crate) async fn ids_differ_by_their_bytes(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (upper, lower) = (scene.start("A").await, scene.start("a").await);
    assert_ne!(upper, lower);
    assert_eq!(scene.store.find(&name_key("orders", "A")).await.unwrap(), Some(upper));
    let with = |app: &str, id: &str, number: &str| Start {
        message: Some(message(app, id)),
        ..start("orders", number, "1")
    };
    // Neither case, nor form, nor where one part ends and the next begins makes two messages one.
    let starts =
        [with("app", "é", "1"), with("app", "e\u{301}", "2"), with("ap", "pé", "3"), with("App", "é", "4")];
    let answers = scene.run(starts.map(|start| Input::Start(Box::new(start))).to_vec()).await.answers;
    assert_eq!(answers, vec![Answer::Created; 4]);
}
