//! Letters between instances: they come back as they were written, in order, and each is taken once; and the rows that tie
//! instances to each other (rules P36, W22).

use std::sync::Arc;

use everstep_engine::{
    Answer, Input, Status, What, Writes,
    letter::{Address, Caller, Letter, NewLetter, Said, not_found},
    rows::Needs,
    start::Start,
};
use everstep_protocol::{
    Call, CallKind, CallName, Fingerprint, InstanceUid, Run, SessionId,
    journal::{Child, End, Fact, Other, Outcome, Returned},
    message::{OpenWait, Then},
};
use everstep_store::{Mail, Posted, Store};

use super::control::again;
use super::scene::{Reporting, Scene, name_key, on, payload, sleeping, start, terminate, workflow};

fn child_call(name: &str) -> Call {
    Call { kind: CallKind::Child, name: CallName::new(name).unwrap(), count: 1 }
}

fn result_call(id: &str) -> Call {
    Call { kind: CallKind::Instance, name: CallName::new(format!("orders/{id}")).unwrap(), count: 1 }
}

fn other(id: &str) -> Other {
    Other { workflow: workflow("orders"), id: id.parse().unwrap() }
}

fn child(id: &str, detached: bool) -> OpenWait {
    let input = payload(r#"{"n":1.50}"#);
    OpenWait::Child(Child {
        workflow: workflow("orders"),
        id: id.parse().unwrap(),
        fingerprint: Fingerprint::of(&input).unwrap(),
        input,
        detached,
        only_started: false,
        hook: None,
        keep_for: None,
        trace: None,
    })
}

/// A held instance that has made these calls.
async fn calls(scene: &Scene, id: &str, calls: Vec<(Call, OpenWait)>) -> InstanceUid {
    let session = SessionId::generate();
    let uid = scene.held(id, session).await;
    let report = Reporting::of(&scene.head(uid).await, session);
    let report = calls.into_iter().fold(report, |report, (call, wait)| report.open(sleeping(&call, wait)));
    assert_eq!(scene.on(uid, report.then(Then::Suspend)).await, Answer::Taken);
    uid
}

async fn mail(scene: &Scene) -> Vec<Posted> {
    let mail = scene.store.letters(0, 100).await.expect("it reads");
    assert_eq!(mail.next, None);
    mail.letters
}

/// What a coordinator makes of a letter.
fn input(posted: Posted) -> Input {
    let Posted { letter, to, name, .. } = posted;
    match (&letter.said, to, name) {
        (Said::Start { child, .. }, _, Some(name)) => {
            let (input, fingerprint) = (child.input.clone(), child.fingerprint);
            let letter = Some(letter);
            Input::Start(Box::new(Start { name, input, fingerprint, letter, ..start("orders", "x", "{}") }))
        }
        (_, Some(uid), _) => on(uid, What::Letter(letter)),
        (_, None, Some(name)) => {
            let failure = not_found(&name.workflow, &name.id);
            Input::Undelivered(Box::new(letter), failure)
        }
        (_, None, None) => panic!("a letter without an address"),
    }
}

/// Carries letters until none is left.
async fn carry(scene: &Scene) {
    while let Some(posted) = mail(scene).await.into_iter().next() {
        scene.run(vec![input(posted)]).await;
    }
}

async fn find(scene: &Scene, id: &str) -> InstanceUid {
    scene.store.find(&name_key("orders", id)).await.unwrap().expect("it exists")
}

async fn returned(scene: &Scene, uid: InstanceUid) -> Vec<Returned> {
    let of = |fact| if let Fact::Returned(returned) = fact { Some(returned) } else { None };
    scene.journal(uid).await.into_iter().filter_map(|entry| of(entry.fact)).collect()
}

fn words(posted: &[Posted]) -> Vec<i16> {
    posted.iter().map(|posted| posted.letter.said.code()).collect()
}

pub(crate) async fn w22_letters_are_found_in_order_and_taken_once(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.start("there").await;
    let made = vec![
        (child_call("c"), child("c-1", false)),
        (result_call("there"), OpenWait::Instance(other("there"))),
        (result_call("nobody"), OpenWait::Instance(other("nobody"))),
    ];
    let parent = calls(&scene, "p", made).await;
    let first = mail(&scene).await;
    assert_eq!(words(&first), [1, 2, 2]);
    let Said::Start { child, parent: by, depth: 1 } = &first[0].letter.said else { panic!("{first:?}") };
    assert_eq!((child.input.as_str(), by.id.as_str()), (r#"{"n":1.50}"#, "p"));
    let caller = Caller { uid: parent, run: scene.head(parent).await.run, call: child_call("c").hash() };
    assert_eq!(first[0].letter.caller, caller);
    let there = find(&scene, "there").await;
    assert_eq!(first.iter().map(|posted| posted.to).collect::<Vec<_>>(), [None, Some(there), None]);
    let numbers: Vec<_> = first.iter().map(|posted| posted.letter.number).collect();
    let page = async |after, limit| scene.store.letters(after, limit).await.unwrap();
    assert_eq!(page(numbers[0], 1).await, Mail { letters: first[1..2].to_vec(), next: Some(numbers[1]) });
    assert_eq!(page(numbers[0], 3).await, Mail { letters: first[1..].to_vec(), next: None });
    assert_eq!(page(numbers[2], 1).await, Mail::default());
    // All in one batch, and once more.
    let inputs: Vec<_> = first.into_iter().map(input).collect();
    let answers = scene.run(inputs.clone()).await.answers;
    assert_eq!(answers, [Answer::Created, Answer::Done, Answer::NotFound]);
    assert_eq!(scene.run(inputs).await.answers, [Answer::Nothing, Answer::Nothing, Answer::Nothing]);
    let second = mail(&scene).await;
    assert_eq!((words(&second), second[0].to), (vec![4], Some(parent)));
    carry(&scene).await;
    assert_eq!(returned(&scene, parent).await.len(), 1);
    assert_eq!(scene.head(parent).await.waits, 2);
}

pub(crate) async fn w22_a_page_of_letters_ends_at_its_bytes(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let caller = Caller { uid: InstanceUid::generate(), run: Run(1), call: child_call("c").hash() };
    let letter = |mebibytes: usize| NewLetter {
        to: Address::Instance(caller.uid),
        caller,
        said: Said::Terminate { reason: Some("x".repeat(mebibytes << 20)) },
    };
    let letters = [9, 3, 3, 3, 0].map(letter).to_vec();
    scene.write(Needs::default(), Writes { letters, ..Writes::default() }).await.unwrap();
    let (mut pages, mut after) = (Vec::new(), Some(0));
    while let Some(number) = after {
        let mail = scene.store.letters(number, 100).await.unwrap();
        let of = |posted: &Posted| match &posted.letter.said {
            Said::Terminate { reason } => reason.as_ref().unwrap().len() >> 20,
            other => panic!("{other:?}"),
        };
        pages.push(mail.letters.iter().map(of).collect::<Vec<_>>());
        after = mail.next;
    }
    assert_eq!(pages, [vec![9], vec![3, 3], vec![3, 0]]);
}

pub(crate) async fn w22_a_letter_that_is_being_taken_is_taken_by_one(store: Arc<dyn Store>) {
    let scene = Arc::new(Scene::new(store));
    for round in 0..8 {
        let id = format!("p-{round}");
        let made = vec![(child_call("c"), child(&format!("c-{round}"), false))];
        calls(&scene, &id, made).await;
        let posted = mail(&scene).await;
        // Two coordinators have seen the same letter.
        let tries = (0..2).map(|_| {
            let (scene, input) = (Arc::clone(&scene), input(posted[0].clone()));
            tokio::spawn(async move {
                loop {
                    match scene.try_run(vec![input.clone()]).await {
                        Ok(ran) => return ran.answers[0].clone(),
                        Err(error) => assert_eq!(error.kind(), everstep_store::ErrorKind::Conflict),
                    }
                }
            })
        });
        let mut answers = Vec::new();
        for attempt in tries.collect::<Vec<_>>() {
            answers.push(attempt.await.unwrap());
        }
        answers.sort_by_key(|answer| *answer != Answer::Created);
        assert_eq!(answers, [Answer::Created, Answer::Nothing]);
        assert!(mail(&scene).await.is_empty());
    }
}

pub(crate) async fn w22_a_letter_says_whether_its_addressee_is_about_to_start(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let made = vec![
        (result_call("c-1"), OpenWait::Instance(other("c-1"))),
        (child_call("c"), child("c-1", false)),
        (result_call("nobody"), OpenWait::Instance(other("nobody"))),
    ];
    calls(&scene, "p", made).await;
    let starting: Vec<_> = mail(&scene).await.iter().map(|posted| posted.starting).collect();
    assert_eq!(starting, [true, false, false]);
    let start = mail(&scene).await.remove(1);
    scene.run(vec![input(start)]).await;
    let then = mail(&scene).await;
    assert!(then.iter().all(|posted| !posted.starting));
    assert_eq!(then[0].to, Some(find(&scene, "c-1").await));
}

pub(crate) async fn w22_an_end_tells_everybody_who_waits_for_it(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let session = SessionId::generate();
    let awaited = scene.held("o", session).await;
    let mut waiting = Vec::new();
    for n in 0..3 {
        waiting.push(
            calls(&scene, &format!("w-{n}"), vec![(result_call("o"), OpenWait::Instance(other("o")))]).await,
        );
    }
    carry(&scene).await;
    let head = scene.head(awaited).await;
    assert_eq!(head.links, 3);
    let end = Reporting::of(&head, session).then(Then::End(End::Complete(payload(r#"{"total":1.10}"#))));
    scene.on(awaited, end).await;
    assert_eq!(words(&mail(&scene).await), [4, 4, 4]);
    carry(&scene).await;
    for uid in waiting {
        let got = returned(&scene, uid).await;
        assert_eq!(got[0].outcome, Outcome::Succeeded(payload(r#"{"total":1.10}"#)));
    }
    // One that comes late reads the end.
    let late = calls(&scene, "late", vec![(result_call("o"), OpenWait::Instance(other("o")))]).await;
    carry(&scene).await;
    assert_eq!(returned(&scene, late).await.len(), 1);
    let loaded = scene.load(Needs { heads: vec![awaited], lasts: vec![awaited], ..Needs::default() }).await;
    assert!(matches!(loaded.rows.lasts[&awaited].fact, Fact::Ended(End::Complete(_))));
}

pub(crate) async fn p30_a_cascade_reaches_attached_children_of_its_run(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let made = vec![
        (child_call("a"), child("a", false)),
        (child_call("b"), child("b", false)),
        (child_call("d"), child("d", true)),
    ];
    let parent = calls(&scene, "p", made).await;
    carry(&scene).await;
    // One has ended: nobody writes to it.
    scene.on(find(&scene, "a").await, terminate("o")).await;
    carry(&scene).await;
    scene.on(parent, What::Restart { operation: "r".to_owned(), prepared: None }).await;
    let letters = mail(&scene).await;
    assert_eq!((words(&letters), letters[0].name.clone()), (vec![5], Some(name_key("orders", "b"))));
    carry(&scene).await;
    let status = async |id: &str| scene.head(find(&scene, id).await).await.status;
    assert_eq!((status("b").await, status("d").await), (Status::Terminated, Status::Open));
    scene.on(parent, terminate("t")).await;
    assert!(mail(&scene).await.is_empty(), "the new run has no children");
}

pub(crate) async fn p36_parent_and_children_are_shown(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let made = vec![(child_call("a"), child("a", false)), (child_call("b"), child("b", true))];
    calls(&scene, "p", made).await;
    let view =
        async |id: &str| scene.store.instance(&name_key("orders", id)).await.unwrap().expect("it exists");
    let born: Vec<_> = view("p").await.children.iter().map(|child| child.status).collect();
    assert_eq!(born, [None, None], "they are about to start");
    carry(&scene).await;
    scene.on(find(&scene, "a").await, terminate("o")).await;
    carry(&scene).await;
    let shown = view("p").await;
    let children: Vec<_> = shown
        .children
        .iter()
        .map(|child| (child.name.id.to_string(), child.detached, child.status))
        .collect();
    let expected = [("b", true, Some(Status::Open)), ("a", false, Some(Status::Terminated))];
    assert_eq!(children, expected.map(|(id, detached, status)| (id.to_owned(), detached, status)));
    assert_eq!((shown.children_total, shown.parent), (2, None));
    let child = view("b").await;
    let parent = child.parent.expect("it has one");
    assert_eq!((parent.name.id.as_str(), parent.detached), ("p", true));
    assert!(child.children.is_empty());
}

pub(crate) async fn p32_a_deleted_instance_leaves_no_ties(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    let parent = calls(&scene, "p", vec![(child_call("a"), child("a", false))]).await;
    carry(&scene).await;
    let born = find(&scene, "a").await;
    let delete = |operation: &str| What::Delete { operation: operation.to_owned(), terminate: true };
    scene.on(parent, delete("d")).await;
    assert_eq!(words(&mail(&scene).await), [5], "it ends its child before it goes");
    carry(&scene).await;
    assert_eq!(scene.head(born).await.status, Status::Terminated);
    let loaded = scene.load(Needs { heads: vec![born], parents: vec![born], ..Needs::default() }).await;
    assert_eq!(loaded.rows.parents.len(), 1);
    scene.on(born, delete("d")).await;
    let loaded = scene.load(Needs { parents: vec![born], letters: vec![1], ..Needs::default() }).await;
    assert!(loaded.rows.parents.is_empty() && loaded.rows.letters.is_empty());
    let letter = Letter {
        number: 1 << 40,
        caller: Caller { uid: parent, run: Run(1), call: child_call("a").hash() },
        said: Said::Watch,
    };
    assert_eq!(scene.on(born, What::Letter(letter)).await, Answer::Nothing);
}

pub(crate) async fn p36_children_and_waits_of_earlier_generations_are_forgotten(store: Arc<dyn Store>) {
    let scene = Scene::new(store);
    scene.start("there").await;
    let session = SessionId::generate();
    let uid = scene.held("p", session).await;
    let mut links = 0;
    for n in 0..3 {
        let report = Reporting::of(&scene.head(uid).await, session)
            .open(sleeping(&child_call("c"), child(&format!("c-{n}"), false)))
            .open(sleeping(&result_call("there"), OpenWait::Instance(other("there"))));
        assert_eq!(scene.on(uid, report.then(Then::Continue)).await, Answer::Taken);
        carry(&scene).await;
        links = scene.head(find(&scene, "there").await).await.links;
        let report = Reporting::of(&scene.head(uid).await, session);
        assert_eq!(scene.on(uid, report.then(again(n))).await, Answer::Taken);
        assert_eq!(scene.on(uid, What::Claim { session, have: None }).await, Answer::Granted);
    }
    assert_eq!(links, 3, "three have asked");
    let view = scene.store.instance(&name_key("orders", "p")).await.unwrap().unwrap();
    let runs: Vec<u32> = view.children.iter().map(|child| child.run.0).collect();
    assert_eq!((runs, view.children_total), (vec![3], 1));
    // Of those that wait for it only the last is left.
    scene.on(find(&scene, "there").await, terminate("t")).await;
    let told: Vec<_> = mail(&scene).await.iter().map(|posted| posted.letter.caller.run).collect();
    assert_eq!(told, [Run(3)]);
}
