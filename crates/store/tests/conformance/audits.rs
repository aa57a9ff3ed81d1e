//! The auditor's walk (rule W42): each kind of breach is done to an instance by writing rows that no decision would write, and is then
//! found, mended by the engine, and found no more. What is as it should be is no suspect.

use std::sync::Arc;

use everstep_engine::{
    Answer, Input, StatusWord, What, Writes,
    breach::{Breach, BreachKind},
    hook::HookEnd,
    mailbox::{Awaited, AwaitedKey, EventId, SentEvent},
    rows::{Lease, Needs, Subject, WaitRow},
    start::Start,
};
use everstep_protocol::{
    Call, CallKind, CallName, EventType, Fingerprint, HookId, InstanceUid, Millis, Policy, Position, Run,
    SessionId, Timestamp,
    hook::StartHook,
    journal::{Awaiting, Child, Fact},
    message::{Open, OpenWait, Then},
};
use everstep_store::{BreachRow, Range, Store, Suspect};

use super::scene::{
    Reporting, Scene, epoch, name_key, namespace, on, open_session, payload, remote_wait, sleep, sleeping,
    start, step, workflow,
};

const LONG: Millis = Millis(1 << 40);

fn call(kind: CallKind, name: &str) -> Call {
    Call { kind, name: CallName::new(name).unwrap(), count: 1 }
}

/// An instance that has suspended with these waits; whoever held it has a session.
async fn waiting(scene: &Scene, id: &str, opens: Vec<Open>) -> InstanceUid {
    let session = SessionId::generate();
    assert!(scene.store.open_session(&open_session(session)).await.unwrap());
    let uid = scene.held(id, session).await;
    suspend(scene, uid, session, opens).await;
    uid
}

async fn suspend(scene: &Scene, uid: InstanceUid, session: SessionId, opens: Vec<Open>) {
    let report = opens.into_iter().fold(Reporting::of(&scene.head(uid).await, session), Reporting::open);
    assert_eq!(scene.on(uid, report.then(Then::Suspend)).await, Answer::Taken);
}

async fn damage(scene: &Scene, writes: Writes) {
    scene.write(Needs::default(), writes).await.expect("it is written");
}

/// What the whole walk finds, in pages of two.
async fn walk(scene: &Scene) -> Vec<Suspect> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = scene.store.suspects(after, 2).await.expect("it walks");
        found.extend(page.suspects);
        match page.next {
            Some(next) => after = Some(next),
            None => return found,
        }
    }
}

fn kinds(found: &[Suspect]) -> Vec<(InstanceUid, &'static str)> {
    found.iter().map(|suspect| (suspect.uid, suspect.breach.kind().word())).collect()
}

/// As the auditor does: with the journal, where that says what is to be there.
async fn mend(scene: &Scene, mut suspect: Suspect) -> Answer {
    if let Some(calls) = suspect.breach.calls() {
        let range = Range { uid: suspect.uid, run: suspect.run, after: Position(0) };
        let entries = scene.store.journal(vec![range], usize::MAX).await.unwrap().remove(0);
        for entry in &entries {
            calls.read(entry);
        }
    }
    scene.on(suspect.uid, What::Breach(suspect.breach)).await
}

/// This alone is wrong; then it is mended, and nothing is wrong any more.
async fn heals(scene: &Scene, uid: InstanceUid, kind: &'static str) -> Answer {
    let mut found = walk(scene).await;
    assert_eq!(kinds(&found), [(uid, kind)]);
    assert_eq!((&found[0].name.namespace, found[0].run), (&namespace(), Run(1)));
    let again = found[0].clone();
    let answer = mend(scene, found.remove(0)).await;
    assert_eq!(kinds(&walk(scene).await), [], "{kind} is mended");
    // What an event finds a wait by is written again without a look.
    let twice = if kind == "event_unheard" { answer.clone() } else { Answer::Nothing };
    assert!([Answer::Nothing, twice].contains(&mend(scene, again).await), "{kind} is mended once");
    answer
}

async fn status(scene: &Scene, id: &str) -> StatusWord {
    scene.store.instance(&name_key("orders", id)).await.unwrap().expect("it exists").status
}

fn event(id: &str) -> SentEvent {
    let payload = payload("1");
    SentEvent {
        id: EventId { app_id: "shop".to_owned(), id: id.to_owned() },
        kind: EventType::new("paid").unwrap(),
        key: None,
        fingerprint: Fingerprint::of(&payload).unwrap(),
        payload,
    }
}

fn awaits(call: &Call) -> Open {
    let types = vec![EventType::new("paid").unwrap(), EventType::new("void").unwrap()];
    sleeping(call, OpenWait::Event { types, key: None, timeout: LONG })
}

fn child(id: &str) -> OpenWait {
    let input = payload("1");
    OpenWait::Child(Child {
        workflow: workflow("orders"),
        id: id.parse().unwrap(),
        fingerprint: Fingerprint::of(&input).unwrap(),
        input,
        detached: false,
        only_started: false,
        hook: None,
        keep_for: None,
        trace: None,
    })
}

async fn wait_row(scene: &Scene, uid: InstanceUid, call: &Call) -> WaitRow {
    scene.look(uid, &[call]).await.rows.waits.remove(&(uid, call.hash())).expect("it waits")
}

async fn entries(scene: &Scene, uid: InstanceUid) -> Vec<&'static str> {
    scene.journal(uid).await.iter().map(|entry| entry.fact.word()).collect()
}

pub(crate) async fn w42_whatever_has_a_reason_to_move_is_no_suspect(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (s, paid) = (sleep("s"), call(CallKind::Event, "paid"));
    scene.start("queued").await;
    let session = SessionId::generate();
    scene.store.open_session(&open_session(session)).await.unwrap();
    scene.held("held", session).await;
    waiting(&scene, "sleeps", vec![sleeping(&s, OpenWait::Sleep(LONG))]).await;
    waiting(&scene, "listens", vec![awaits(&paid)]).await;
    waiting(&scene, "remote", vec![sleeping(&step("resize"), remote_wait(Policy::default()))]).await;
    waiting(&scene, "parent", vec![sleeping(&call(CallKind::Child, "c"), child("c-1"))]).await;
    let paused = waiting(&scene, "paused", vec![sleeping(&s, OpenWait::Sleep(LONG))]).await;
    scene.on(paused, What::Pause { operation: "p".to_owned() }).await;
    let parked = scene.start("parked").await;
    scene.on(parked, What::Unwritable { message: "no".to_owned() }).await;
    let ended = scene.start("ended").await;
    scene.on(ended, What::Terminate { operation: "t".to_owned(), reason: None }).await;
    assert_eq!(kinds(&walk(&scene).await), []);
    let page = scene.store.suspects(None, 100).await.unwrap();
    assert_eq!((page.open, page.next), (8, None));
}

pub(crate) async fn w42_an_idle_instance_is_made_runnable(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let uid = scene.start("o-1").await;
    damage(&scene, Writes { ready_deletes: vec![(uid, Subject::INSTANCE)], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "idle").await, Answer::Done);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Queued);
}

pub(crate) async fn w42_a_wait_that_is_gone_is_opened_again_from_the_journal(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let (s, paid) = (sleep("s"), call(CallKind::Event, "paid"));
    let uid = waiting(&scene, "o-1", vec![sleeping(&s, OpenWait::Sleep(LONG)), awaits(&paid)]).await;
    let (slept, listened) = (wait_row(&scene, uid, &s).await, wait_row(&scene, uid, &paid).await);
    // What events find the other wait by is still there.
    let wait_deletes = vec![(uid, s.hash()), (uid, paid.hash())];
    damage(&scene, Writes { wait_deletes, ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "waits_miscounted").await, Answer::Done);
    assert_eq!(wait_row(&scene, uid, &s).await, slept);
    assert_eq!(wait_row(&scene, uid, &paid).await, listened);
    assert_eq!(scene.head(uid).await.waits, 2);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Waiting);
}

pub(crate) async fn w42_a_wait_of_which_more_is_gone_asks_a_person(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let c = call(CallKind::Child, "c");
    let uid = waiting(&scene, "o-1", vec![sleeping(&c, child("c-1"))]).await;
    damage(&scene, Writes { wait_deletes: vec![(uid, c.hash())], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "waits_miscounted").await, Answer::Parked);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Attention);
}

pub(crate) async fn w42_a_lease_of_nobody_ends(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let nobody = SessionId::generate();
    let uid = scene.held("o-1", nobody).await;
    assert_eq!(heals(&scene, uid, "session_unknown").await, Answer::Done);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Queued);
    assert_eq!(scene.head(uid).await.deaths, 0, "it counts against nobody");
}

pub(crate) async fn w42_a_remote_step_that_nobody_offers_is_offered(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let resize = step("resize");
    let uid = waiting(&scene, "o-1", vec![sleeping(&resize, remote_wait(Policy::default()))]).await;
    let subject = Subject::step(resize.hash());
    damage(&scene, Writes { ready_deletes: vec![(uid, subject)], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "step_unoffered").await, Answer::Done);
    assert!(scene.look(uid, &[&resize]).await.rows.ready.contains_key(&(uid, subject)));
    // The same with a lease of nobody.
    let lease = Lease { session: SessionId::generate(), epoch: epoch(1) };
    let ready_deletes = vec![(uid, subject)];
    damage(&scene, Writes { ready_deletes, leases: vec![(uid, subject, lease)], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "session_unknown").await, Answer::Done);
    assert!(scene.look(uid, &[&resize]).await.rows.ready.contains_key(&(uid, subject)));
}

/// Its lease was the intent (rule L7): whoever had it may have called.
pub(crate) async fn w42_l07_a_step_at_most_once_whose_lease_is_lost_is_not_called_again(
    store: Arc<dyn Store>,
) {
    let scene = Scene::new(store);
    let pay = step("pay");
    let policy = Policy { class: everstep_protocol::Class::AtMostOnce, ..Policy::default() };
    let uid = waiting(&scene, "o-1", vec![sleeping(&pay, remote_wait(policy))]).await;
    let subject = Subject::step(pay.hash());
    let claim = What::StepClaim { session: SessionId::generate(), call: pay.hash() };
    assert_eq!(scene.on(uid, claim).await, Answer::Granted);
    damage(&scene, Writes { lease_deletes: vec![(uid, subject)], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "step_unoffered").await, Answer::Done);
    let look = scene.look(uid, &[&pay]).await;
    assert!(!look.rows.ready.contains_key(&(uid, subject)), "nobody is offered it");
    assert_eq!(status(&scene, "o-1").await, StatusWord::Attention, "a person is asked");
}

pub(crate) async fn w42_a_remote_step_that_is_gone_asks_a_person(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let resize = step("resize");
    let uid = waiting(&scene, "o-1", vec![sleeping(&resize, remote_wait(Policy::default()))]).await;
    damage(&scene, Writes { remote_deletes: vec![(uid, resize.hash())], ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "step_missing").await, Answer::Parked);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Attention);
}

pub(crate) async fn w42_a_wait_that_no_event_finds_is_found_again(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let paid = call(CallKind::Event, "paid");
    let deaf = |uid, opened: Position| {
        let key = |kind: &str| AwaitedKey { uid, kind: EventType::new(kind).unwrap(), key: None, opened };
        Writes { awaited_deletes: vec![key("paid"), key("void")], ..Writes::default() }
    };
    for unread in [false, true] {
        let id = if unread { "o-2" } else { "o-1" };
        let uid = waiting(&scene, id, vec![awaits(&paid)]).await;
        let Some(Awaited { opened, .. }) = wait_row(&scene, uid, &paid).await.awaited else { panic!() };
        damage(&scene, deaf(uid, opened)).await;
        if unread {
            scene.on(uid, What::Event(event("e-0"))).await;
        }
        assert_eq!(heals(&scene, uid, "event_unheard").await, Answer::Done);
        if !unread {
            assert_eq!(entries(&scene, uid).await, ["started", "opened"]);
            scene.on(uid, What::Event(event("e-1"))).await;
        }
        assert_eq!(entries(&scene, uid).await, ["started", "opened", "delivered"]);
        assert_eq!(status(&scene, id).await, StatusWord::Queued);
    }
}

pub(crate) async fn w42_a_wait_for_a_hook_that_is_gone_is_over(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let begin = Start { hook: Some(StartHook::new("t".parse().unwrap())), ..start("orders", "o-1", "{}") };
    let uid = begin.uid;
    scene.run(vec![Input::Start(Box::new(begin))]).await;
    let session = SessionId::generate();
    scene.store.open_session(&open_session(session)).await.unwrap();
    scene.on(uid, What::Claim { session, have: None }).await;
    let awaiting = Awaiting { hook: HookId::START, token: "t".parse().unwrap() };
    let payload_call = call(CallKind::Payload, "t");
    suspend(&scene, uid, session, vec![sleeping(&payload_call, OpenWait::Payload(awaiting))]).await;
    assert_eq!(kinds(&walk(&scene).await), []);
    let hook_deletes = vec![((namespace(), "t".parse().unwrap()), uid, HookEnd::Own)];
    damage(&scene, Writes { hook_deletes, ..Writes::default() }).await;
    assert_eq!(heals(&scene, uid, "hook_missing").await, Answer::Done);
    assert_eq!(entries(&scene, uid).await, ["started", "opened", "fired"]);
    assert_eq!(status(&scene, "o-1").await, StatusWord::Queued);
}

pub(crate) async fn w42_a_child_that_tells_nobody_is_asked_again(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let c = call(CallKind::Child, "c");
    let uid = waiting(&scene, "o-1", vec![sleeping(&c, child("c-1"))]).await;
    // It was made a day ago, and its letter is lost.
    let row = wait_row(&scene, uid, &c).await;
    let row = WaitRow { since: Timestamp(row.since.0 - 86_400_000_000), ..row };
    let letter = scene.store.letters(0, 10).await.unwrap().letters.remove(0).letter.number;
    let (wait_deletes, waits) = (vec![(uid, c.hash())], vec![(uid, row)]);
    damage(&scene, Writes { wait_deletes, waits, ..Writes::default() }).await;
    assert_eq!(kinds(&walk(&scene).await), [], "its letter is on the way");
    damage(&scene, Writes { letter_deletes: vec![letter], ..Writes::default() }).await;
    let found = walk(&scene).await;
    assert_eq!(kinds(&found), [(uid, "child_unwatched")]);
    let Breach::ChildUnwatched { child, .. } = &found[0].breach else { panic!("{found:?}") };
    assert_eq!(*child, name_key("orders", "c-1"));
    assert_eq!(mend(&scene, found[0].clone()).await, Answer::Done);
    assert_eq!(kinds(&walk(&scene).await), [], "it is asked");
    // There is no such instance: the call fails with that, and its instance goes on.
    let posted = scene.store.letters(0, 10).await.unwrap().letters.remove(0);
    let failure = everstep_engine::letter::not_found(&child.workflow, &child.id);
    scene.run(vec![Input::Undelivered(Box::new(posted.letter), failure)]).await;
    let back = scene.store.letters(0, 10).await.unwrap().letters.remove(0);
    scene.run(vec![on(uid, What::Letter(back.letter))]).await;
    assert!(matches!(scene.journal(uid).await.last().map(|entry| &entry.fact), Some(Fact::Returned(_))));
    assert_eq!(status(&scene, "o-1").await, StatusWord::Queued);
}

pub(crate) async fn w42_what_was_found_is_kept_and_listed(store: Arc<dyn Store>) {
    let row = |id: &str, kind| BreachRow {
        uid: InstanceUid::generate(),
        name: name_key("orders", id),
        run: Run(2),
        kind,
        message: format!("what was wrong with {id}"),
    };
    let rows: Vec<_> = BreachKind::ALL.into_iter().map(|kind| row(kind.word(), kind)).collect();
    for found in rows.chunks(3) {
        store.keep_breaches(found).await.unwrap();
    }
    store.keep_breaches(&[]).await.unwrap();
    let listed = store.breaches(&namespace(), 100).await.unwrap();
    let mut listed: Vec<_> = listed.into_iter().map(|view| view.breach).collect();
    assert!(rows[6..].contains(&listed[0]), "newest first");
    listed.sort_by_key(|row| row.kind);
    assert_eq!(listed, rows);
    assert_eq!(store.breaches(&namespace(), 2).await.unwrap().len(), 2);
    assert!(store.breaches(&"other".parse().unwrap(), 2).await.unwrap().is_empty());
    assert_eq!(store.clean(1_000).await.unwrap(), 0, "it is young");
}
