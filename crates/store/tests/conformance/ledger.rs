//! The ledger's searches (rule L14): by instance, by reference, by key.

use std::{collections::BTreeSet, sync::Arc};

use everstep_engine::Answer;
use everstep_protocol::{
    InstanceUid, Millis, Namespace, Payload, Policy, Position, Reference, Run, SessionId, StepKey, Timestamp,
    message::AttemptEnd,
};
use everstep_store::{LedgerCall, LedgerSearch, Since, Store};

use super::scene::{Reporting, Scene, namespace, remote_wait, sleep, sleeping, step, succeeded};

fn key(name: &str) -> StepKey {
    StepKey::derive(uuid::Uuid::nil(), 1, "step", name, 1, &Payload::null()).unwrap()
}

fn made(name: &str, reference: Option<&str>) -> AttemptEnd {
    let reference = reference.map(|text| Reference::new(text).unwrap());
    AttemptEnd { key: key(name), reference, ..succeeded(&step(name), r#"{"large":"output"}"#) }
}

/// An instance with three calls of steps, one of them remote and open, and a sleep.
async fn paid(scene: &Scene, id: &str) -> InstanceUid {
    let session = SessionId::generate();
    let uid = scene.held(id, session).await;
    let head = scene.head(uid).await;
    let report = Reporting::of(&head, session)
        .result(made(&format!("{id}-charge"), Some("ch_1")))
        .result(made(&format!("{id}-mail"), None))
        .open(sleeping(
            &sleep("nap"),
            everstep_protocol::message::OpenWait::Sleep(everstep_protocol::Millis(9)),
        ))
        .open(sleeping(&step("label"), remote_wait(Policy::default())));
    assert_eq!(scene.on(uid, report.then(everstep_protocol::message::Then::Suspend)).await, Answer::Taken);
    uid
}

async fn found(store: &Arc<dyn Store>, search: LedgerSearch, limit: u32) -> Vec<(String, String)> {
    let calls = store.ledger(&search, limit).await.unwrap();
    let said = |call: LedgerCall| {
        let fact = &call.entries[0].fact;
        assert!(call.entries.iter().all(|entry| entry.fact.call() == fact.call()));
        (call.name.id.to_string(), fact.call().unwrap().name.to_string())
    };
    calls.into_iter().map(said).collect()
}

pub(crate) async fn l14_calls_are_found_by_instance_reference_and_key(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let began = scene.load(everstep_engine::rows::Needs::default()).await.now;
    let one = paid(&scene, "o-1").await;
    paid(&scene, "o-2").await;
    let pair = |id: &str, call: &str| (id.to_owned(), call.to_owned());
    let of = |after| LedgerSearch::Instance(one, Run(1), Position(after));
    let all = ["o-1-charge", "o-1-mail", "nap", "label"].map(|call| pair("o-1", call));
    assert_eq!(found(&store, of(0), 10).await, all);
    assert_eq!(found(&store, of(0), 2).await, all[..2]);
    assert_eq!(found(&store, of(3), 10).await, all[2..], "what is first heard of after a position");
    let earlier = LedgerSearch::Instance(one, Run(2), Position(0));
    assert!(found(&store, earlier, 10).await.is_empty(), "there is no such run");

    let by =
        |namespace: Namespace, text: &str| LedgerSearch::Reference(namespace, Reference::new(text).unwrap());
    let both: BTreeSet<_> = found(&store, by(namespace(), "ch_1"), 10).await.into_iter().collect();
    assert_eq!(both, BTreeSet::from([pair("o-1", "o-1-charge"), pair("o-2", "o-2-charge")]));
    assert_eq!(found(&store, by(namespace(), "ch_1"), 1).await.len(), 1);
    assert!(found(&store, by(namespace(), "ch_2"), 10).await.is_empty());
    assert!(found(&store, by(Namespace::new("other").unwrap(), "ch_1"), 10).await.is_empty());

    let by = |namespace, name: &str, since, until| {
        let key = key(name);
        LedgerSearch::Key { namespace, key, since, until }
    };
    let (start, hour) = (Since::At(began), Since::Ago(Millis::from_secs(3_600)));
    let later = Since::At(Timestamp(began.0 + 3_600_000_000));
    for since in [start, hour] {
        assert_eq!(
            found(&store, by(namespace(), "o-2-mail", since, None), 10).await,
            [pair("o-2", "o-2-mail")]
        );
    }
    for (why, search) in [
        ("nobody has it", by(namespace(), "o-3-mail", start, None)),
        ("it was created later", by(namespace(), "o-2-mail", Since::At(Timestamp(0)), Some(began))),
        ("it was created before", by(namespace(), "o-2-mail", later, None)),
        ("another namespace", by(Namespace::new("other").unwrap(), "o-2-mail", start, None)),
    ] {
        assert!(found(&store, search, 10).await.is_empty(), "{why}");
    }
}
