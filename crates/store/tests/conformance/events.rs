//! Events and the waits for them: rows come back as they were decided, and the oldest first.

use std::sync::Arc;

use everstep_engine::{
    Answer, What,
    mailbox::{EventId, SentEvent},
    rows::Needs,
};
use everstep_protocol::{
    Call, CallKind, CallName, EventKey, EventType, Fingerprint, InstanceUid, Millis, Position, SessionId,
    journal::{Delivered, Fact},
    message::{Open, OpenWait, Then},
};
use everstep_store::{Range, Store};

use super::scene::{Reporting, Scene, name_key, on, payload, sleeping, terminate};

fn kind(name: &str) -> EventType {
    EventType::new(name).unwrap()
}

fn sent(id: &str, name: &str, text: &str) -> SentEvent {
    let payload = payload(text);
    SentEvent {
        id: EventId { app_id: "shop".to_owned(), id: id.to_owned() },
        kind: kind(name),
        key: None,
        fingerprint: Fingerprint::of(&payload).unwrap(),
        payload,
    }
}

fn call(name: &str, count: u32) -> Call {
    Call { kind: CallKind::Event, name: CallName::new(name).unwrap(), count }
}

fn awaits(call: &Call, types: &[&str], key: Option<&str>) -> Open {
    let types = types.iter().map(|name| kind(name)).collect();
    let key = key.map(|key| EventKey::new(key).unwrap());
    sleeping(call, OpenWait::Event { types, key, timeout: Millis(1 << 40) })
}

/// A held instance with these waits open.
async fn waiting(scene: &Scene, id: &str, session: SessionId, opens: Vec<Open>) -> InstanceUid {
    let uid = scene.held(id, session).await;
    let report = opens.into_iter().fold(Reporting::of(&scene.head(uid).await, session), Reporting::open);
    assert_eq!(scene.on(uid, report.then(Then::Continue)).await, Answer::Taken);
    uid
}

async fn send(scene: &Scene, uid: InstanceUid, event: SentEvent) {
    assert_eq!(scene.on(uid, What::Event(event)).await, Answer::Done);
}

async fn delivered(scene: &Scene, uid: InstanceUid) -> Vec<Delivered> {
    let run = scene.head(uid).await.run;
    let entries = scene.journal_of(uid, run).await.into_iter();
    let of = |fact| if let Fact::Delivered(delivered) = fact { Some(delivered) } else { None };
    entries.filter_map(|entry| of(entry.fact)).collect()
}

fn short(delivered: &[Delivered]) -> Vec<(String, u64, &str)> {
    let call = |call: &Call| format!("{} {}", call.name, call.count);
    delivered.iter().map(|got| (call(&got.call), got.sequence, got.payload.as_str())).collect()
}

pub(crate) async fn p22_events_are_kept_and_read_in_order(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.start("o-1").await;
    let other = scene.start("o-2").await;
    for number in 1..=12 {
        send(&scene, uid, sent(&format!("e{number}"), "a", &number.to_string())).await;
        send(&scene, other, sent(&format!("e{number}"), "a", "0")).await;
    }
    scene.on(uid, What::Claim { session, have: None }).await;
    for count in 1..=12 {
        let report =
            Reporting::of(&scene.head(uid).await, session).open(awaits(&call("a", count), &["a"], None));
        scene.on(uid, report.then(Then::Continue)).await;
    }
    let got: Vec<_> =
        delivered(&scene, uid).await.iter().map(|got| got.payload.as_str().to_owned()).collect();
    assert_eq!(got, (1..=12).map(|number| number.to_string()).collect::<Vec<_>>());
    let head = scene.head(uid).await;
    assert_eq!((head.events, head.unread, head.waits), (12, 0, 0));
    assert_eq!(scene.head(other).await.unread, 12);
}

pub(crate) async fn p22_an_event_finds_the_oldest_wait(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let opens = vec![
        awaits(&call("ab", 1), &["a", "b"], None),
        awaits(&call("a", 1), &["a"], None),
        awaits(&call("b", 1), &["b"], None),
    ];
    let uid = waiting(&scene, "o-1", session, opens).await;
    // In one batch: the second event of a batch may need a wait behind one that the first has ended.
    let events = [sent("1", "b", "1"), sent("2", "a", "2"), sent("3", "a", "3"), sent("4", "b", "4")];
    scene.run(events.map(|event| on(uid, What::Event(event))).to_vec()).await;
    let got = delivered(&scene, uid).await;
    let expected = [("ab 1", 1, "1"), ("a 1", 2, "2"), ("b 1", 4, "4")];
    assert_eq!(short(&got), expected.map(|(call, sequence, text)| (call.to_owned(), sequence, text)));
    let head = scene.head(uid).await;
    assert_eq!((head.unread, head.waits), (1, 0));
}

pub(crate) async fn p22_an_event_that_returns_keeps_its_payload(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = waiting(&scene, "o-1", session, vec![awaits(&call("a", 1), &["a"], None)]).await;
    let mut seen = scene.head(uid).await.position;
    send(&scene, uid, sent("1", "a", r#"{"n":1.50}"#)).await;
    send(&scene, uid, sent("2", "a", "2")).await;
    for count in 1..=3 {
        // The wait is closed, and another takes the same event, more than once.
        let report = Reporting::of(&scene.head(uid).await, session).close(&call("a", count), seen);
        scene.on(uid, report.then(Then::Continue)).await;
        assert_eq!(scene.head(uid).await.unread, 2);
        let open = awaits(&call("a", count + 1), &["a"], None);
        let report = Reporting::of(&scene.head(uid).await, session).open(open);
        scene.on(uid, report.then(Then::Continue)).await;
        seen = Position(scene.head(uid).await.position.0 - 1);
    }
    let got = delivered(&scene, uid).await;
    assert_eq!(got.len(), 4);
    assert!(got.iter().all(|got| got.sequence == 1 && got.payload == payload(r#"{"n":1.50}"#)), "{got:?}");
    assert_eq!((got[3].id.as_str(), got[3].received_at), ("1", got[0].received_at));
}

pub(crate) async fn p31_what_an_earlier_run_got_does_not_return(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let either = || awaits(&call("ab", 1), &["a", "b"], None);
    let uid = waiting(&scene, "o-1", session, vec![either()]).await;
    send(&scene, uid, sent("1", "a", "1")).await;
    let restart = What::Restart { operation: "r".to_owned(), prepared: None };
    assert_eq!(scene.on(uid, restart).await, Answer::Done);
    assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    // The same call waits again, and gets an event of another type, which another wait fits.
    let report = Reporting::of(&scene.head(uid).await, session).open(either());
    scene.on(uid, report.then(Then::Continue)).await;
    let seen = scene.head(uid).await.position;
    send(&scene, uid, sent("2", "b", "2")).await;
    let report = Reporting::of(&scene.head(uid).await, session).open(awaits(&call("b", 1), &["b"], None));
    scene.on(uid, report.then(Then::Continue)).await;
    let report = Reporting::of(&scene.head(uid).await, session).close(&call("ab", 1), seen);
    scene.on(uid, report.then(Then::Continue)).await;
    let expected = [("ab 1", 2, "2"), ("b 1", 2, "2")];
    let got = delivered(&scene, uid).await;
    assert_eq!(short(&got), expected.map(|(call, sequence, text)| (call.to_owned(), sequence, text)));
    assert_eq!(scene.head(uid).await.unread, 0);
}

pub(crate) async fn p36_an_event_that_returned_outlives_the_journal_that_it_was_in(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let uid = scene.held("one", session).await;
    let note = call("note", 1);
    let open = || awaits(&note, &["note"], None);
    let report = Reporting::of(&scene.head(uid).await, session).open(open());
    scene.on(uid, report.then(Then::Continue)).await;
    send(&scene, uid, sent("e-1", "note", r#"{"n":1}"#)).await;
    // It was delivered, to a call that its body had dropped by then.
    let report = Reporting::of(&scene.head(uid).await, session).close(&note, Position(2));
    scene.on(uid, report.then(super::control::again(1))).await;
    for n in 2..5 {
        scene.on(uid, What::Claim { session, have: None }).await;
        scene.on(uid, Reporting::of(&scene.head(uid).await, session).then(super::control::again(n))).await;
    }
    while store.sweep(100).await.unwrap() > 0 {}
    scene.on(uid, What::Claim { session, have: None }).await;
    let report = Reporting::of(&scene.head(uid).await, session).open(open());
    scene.on(uid, report.then(Then::Continue)).await;
    let head = scene.head(uid).await;
    let range = Range { uid, run: head.run, after: Position(2) };
    let entries = store.journal(vec![range], usize::MAX).await.unwrap().remove(0);
    let Fact::Delivered(delivered) = &entries[0].fact else { panic!("{entries:?}") };
    assert_eq!((delivered.payload.as_str(), head.unread), (r#"{"n":1}"#, 0));
    // The same call of this generation got nothing yet when it is closed: what the earlier one got is not taken for it.
    let report = Reporting::of(&head, session).close(&note, Position(3));
    assert_eq!(scene.on(uid, report.then(Then::Continue)).await, Answer::Taken);
    assert_eq!(scene.head(uid).await.unread, 0);
}

pub(crate) async fn p24_an_event_is_known_by_its_id(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = waiting(&scene, "o-1", session, vec![awaits(&call("a", 1), &["a"], None)]).await;
    let check = async |expected: [Answer; 4]| {
        let other_app =
            SentEvent { id: EventId { app_id: String::new(), id: "1".to_owned() }, ..sent("1", "z", "9") };
        let cases = [sent("1", "a", "1"), sent("1", "a", "2"), sent("1", "b", "1"), other_app];
        for (case, expected) in cases.into_iter().zip(expected) {
            assert_eq!(scene.on(uid, What::Event(case)).await, expected);
        }
    };
    let taken = || Answer::EventIdTaken;
    check([Answer::Done, taken(), taken(), Answer::Done]).await;
    check([Answer::Done, taken(), taken(), Answer::Done]).await;
    scene.on(uid, terminate("op")).await;
    check([Answer::Done, taken(), taken(), Answer::Done]).await;
    assert_eq!(scene.head(uid).await.events, 2);
    let nul = scene.start("o-2").await;
    for _ in 0..2 {
        send(&scene, nul, sent("a\0b", "a", r#""\u0000""#)).await;
    }
    assert_eq!(scene.head(nul).await.events, 1);
}

pub(crate) async fn p25_unread_and_mistyped_events_are_shown(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let opens = vec![awaits(&call("ab", 1), &["a", "b"], Some("k")), awaits(&call("c", 1), &["c"], None)];
    let uid = waiting(&scene, "o-1", session, opens).await;
    for (id, name) in [("1", "x"), ("2", "y"), ("3", "x"), ("4", "a")] {
        send(&scene, uid, sent(id, name, "1")).await;
    }
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    let unread: Vec<_> = view.unread.iter().map(|unread| (unread.kind.as_str(), unread.count)).collect();
    assert_eq!(unread, [("x", 2), ("y", 1), ("a", 1)]);
    let mut never: Vec<_> = view.never_sent.iter().map(EventType::as_str).collect();
    never.sort_unstable();
    assert_eq!(never, ["b", "c"]);
    let awaited = view.waiting[0].awaited.as_ref().unwrap();
    assert_eq!((awaited.types.len(), awaited.key.as_ref().map(EventKey::as_str)), (2, Some("k")));
    assert_eq!(view.waiting[0].due_at, Some(view.waiting[0].since.plus(Millis(1 << 40))));
}

pub(crate) async fn p26_a_key_takes_only_its_own(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let keyed =
        |id: &str, key: &str| SentEvent { key: Some(EventKey::new(key).unwrap()), ..sent(id, "a", "1") };
    let uid = waiting(&scene, "o-1", session, vec![awaits(&call("k", 1), &["a"], Some("k"))]).await;
    send(&scene, uid, sent("1", "a", "1")).await;
    send(&scene, uid, keyed("2", "l")).await;
    send(&scene, uid, keyed("3", "k")).await;
    send(&scene, uid, keyed("4", "k")).await;
    let report = Reporting::of(&scene.head(uid).await, session)
        .open(awaits(&call("l", 1), &["a"], Some("l")))
        .open(awaits(&call("any", 1), &["a"], None))
        .open(awaits(&call("any", 2), &["a"], None))
        .then(Then::Continue);
    scene.on(uid, report).await;
    let got = delivered(&scene, uid).await;
    let expected = [("k 1", 3), ("l 1", 2), ("any 1", 1), ("any 2", 4)];
    let short: Vec<_> = short(&got).into_iter().map(|(call, sequence, _)| (call, sequence)).collect();
    assert_eq!(short, expected.map(|(call, sequence)| (call.to_owned(), sequence)));
    assert_eq!(got[0].key.as_ref().map(EventKey::as_str), Some("k"));
}

pub(crate) async fn what_happens_in_one_batch_is_written_as_it_ends(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let head = scene.head(uid).await;
    send(&scene, uid, sent("1", "a", "1")).await;
    let report = Reporting::of(&scene.head(uid).await, session).open(awaits(&call("a", 1), &["a"], None));
    let open = report.then(Then::Continue);
    // Stored, delivered and returned: it is unread again, and its payload is where it was.
    let mut after = Reporting::of(&scene.head(uid).await, session);
    after = after.next().close(&call("a", 1), head.position);
    let close = after.then(Then::Continue);
    scene.run(vec![on(uid, open), on(uid, close), on(uid, What::Event(sent("2", "a", "2")))]).await;
    assert_eq!(scene.head(uid).await.unread, 2);
    let report = Reporting::of(&scene.head(uid).await, session)
        .open(awaits(&call("a", 2), &["a"], None))
        .open(awaits(&call("a", 3), &["a"], None));
    scene.on(uid, report.then(Then::Continue)).await;
    let got = delivered(&scene, uid).await;
    let expected = [("a 1", 1, "1"), ("a 2", 1, "1"), ("a 3", 2, "2")];
    assert_eq!(short(&got), expected.map(|(call, sequence, text)| (call.to_owned(), sequence, text)));
}

pub(crate) async fn an_end_leaves_no_waits_for_events(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let uid = waiting(&scene, "o-1", session, vec![awaits(&call("a", 1), &["a", "b"], None)]).await;
    scene.on(uid, terminate("op")).await;
    let needs = Needs {
        heads: vec![uid],
        waiters: vec![(uid, kind("a"), None), (uid, kind("b"), None)],
        ..Needs::default()
    };
    assert!(scene.load(needs).await.rows.waits.is_empty());
}
