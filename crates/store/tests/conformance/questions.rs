//! What people are asked about calls, and about parked instances (rule L8): stored with a wait, listed, counted and gone with it.

use std::sync::Arc;

use everstep_engine::{
    Answer, What,
    decide::Resolution,
    rows::{Told, WaitKind},
};
use everstep_protocol::{
    Class, InstanceUid, Millis, Policy, Position, Run, SessionId,
    journal::{Choice, Fact, ParkCode, Parked, QuestionId},
    message::{AttemptEnd, AttemptOutcome, OpenWait, Then},
};
use everstep_store::{AskedView, AttentionFilter, AttentionView, Filter, StatusWord, Store, UNKNOWN_OUTCOME};

use super::scene::{
    Reporting, Scene, epoch, failure, name_key, namespace, payload, sleep, sleeping, step, succeeded,
    workflow,
};

fn unknown(call: &str) -> AttemptEnd {
    let outcome = AttemptOutcome::Unknown { failure: failure(), asks: true, epoch: epoch(1) };
    let policy = Policy { class: Class::AtMostOnce, ..Policy::default() };
    AttemptEnd { policy, outcome, ..succeeded(&step(call), "1") }
}

/// An instance that asks about these calls and waits for nothing else.
async fn asking(scene: &Scene, id: &str, calls: &[&str]) -> InstanceUid {
    let session = SessionId::generate();
    let uid = scene.held(id, session).await;
    let head = scene.head(uid).await;
    let report =
        calls.iter().fold(Reporting::of(&head, session), |report, call| report.result(unknown(call)));
    assert_eq!(scene.on(uid, report.then(Then::Suspend)).await, Answer::Taken);
    uid
}

fn resolve(call: &str, position: u64, choice: Choice) -> What {
    let question = QuestionId { run: Run(1), position: Position(position) };
    let (call, by) = (Some(step(call).hash()), Some("ann".to_owned()));
    let resolution = Box::new(Resolution { question, call, choice, by, why: None });
    What::Resolve { operation: format!("answer {position}"), resolution }
}

async fn listed(store: &Arc<dyn Store>, filter: &AttentionFilter) -> Vec<AttentionView> {
    store.attention(filter, None, 100).await.unwrap()
}

fn about(view: &AttentionView) -> String {
    match &view.asked {
        AskedView::Parked(parked) => format!("{} {}", view.name.id, parked.code.word()),
        AskedView::Unknown(call, question) => format!("{} {} {}", view.name.id, call.name, question.position),
    }
}

pub(crate) async fn l08_a_question_is_kept_with_its_wait_and_answered_once(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = asking(&scene, "o-1", &["pay"]).await;
    let call = step("pay");
    let loaded = scene.look(uid, &[&call]).await;
    let wait = &loaded.rows.waits[&(uid, call.hash())];
    let question = wait.question.as_ref().expect("it asks");
    assert_eq!((wait.kind, wait.due_at, &wait.awaited), (WaitKind::Person, None, &None));
    assert_eq!((question.position, question.epoch, &question.failure), (Position(2), epoch(1), &failure()));
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    assert_eq!((view.status, view.waiting[0].question.as_ref()), (StatusWord::Attention, Some(question)));

    // A late report of the attempt stands with it.
    let late = Reporting::late(uid, SessionId::generate(), 1)
        .result(AttemptEnd { outcome: AttemptOutcome::Succeeded(payload("[1.10]")), ..unknown("pay") });
    assert_eq!(scene.on(uid, late.then(Then::Continue)).await, Answer::Fenced);
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    let evidence = view.waiting[0].question.as_ref().unwrap().evidence.as_ref().unwrap();
    assert_eq!(evidence.told, Told::Succeeded(payload("[1.10]")));

    let answer = || resolve("pay", 2, Choice::Done(payload(r#"{"z":1.10}"#)));
    assert_eq!(scene.on(uid, answer()).await, Answer::Done);
    assert_eq!(scene.on(uid, answer()).await, Answer::Done, "repeated, it is the first answer");
    assert_eq!(scene.on(uid, resolve("pay", 3, Choice::Again)).await, Answer::NotAsked);
    assert_eq!(scene.on(uid, resolve("pay", 3, Choice::Again)).await, Answer::NotAsked);
    let loaded = scene.look(uid, &[&call]).await;
    assert!(loaded.rows.waits.is_empty());
    let Fact::Resolved(resolved) = &scene.journal(uid).await[2].fact else { panic!("no answer") };
    assert_eq!(
        (&resolved.choice, resolved.by.as_deref()),
        (&Choice::Done(payload(r#"{"z":1.10}"#)), Some("ann"))
    );
}

pub(crate) async fn l08_questions_are_listed_and_counted_over_all_workflows(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let two = asking(&scene, "o-1", &["pay", "mail"]).await;
    let session = SessionId::generate();
    let parked = scene.held("o-2", session).await;
    let head = scene.head(parked).await;
    let why = Parked::new(ParkCode::Poison, "dead".to_owned());
    scene.on(parked, Reporting::of(&head, session).then(Then::Park(why))).await;
    let one = asking(&scene, "o-3", &["pay"]).await;

    let all = AttentionFilter { namespace: namespace(), ..AttentionFilter::default() };
    let found = listed(&store, &all).await;
    let words: Vec<_> = found.iter().map(about).collect();
    // Two of one moment are in the order of their calls.
    assert_eq!((words.len(), &words[2..]), (4, &["o-2 poison".to_owned(), "o-3 pay 2".to_owned()][..]));
    let mut first = words[..2].to_vec();
    first.sort();
    assert_eq!(first, ["o-1 mail 3", "o-1 pay 2"]);
    assert!(found.is_sorted_by_key(AttentionView::mark), "oldest first");
    // Page by page it is the same.
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = store.attention(&all, after.as_ref(), 1).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.mark());
        paged.extend(page.iter().map(about));
    }
    assert_eq!(paged, words);

    let count = async |filter: AttentionFilter| listed(&store, &filter).await.len();
    let of_kind = |kind: &str| AttentionFilter { kind: Some(kind.to_owned()), ..all.clone() };
    assert_eq!(count(of_kind(UNKNOWN_OUTCOME)).await, 3);
    assert_eq!(count(of_kind("poison")).await, 1);
    assert_eq!(count(of_kind("broken")).await, 0);
    let of = |name| AttentionFilter { workflow: Some(workflow(name)), ..all.clone() };
    assert_eq!((count(of("orders")).await, count(of("refunds")).await), (4, 0));
    let old = AttentionFilter { older_than: Some(Millis(3_600_000)), ..all.clone() };
    assert_eq!(count(old).await, 0);
    assert_eq!(count(AttentionFilter { namespace: "other".parse().unwrap(), ..all.clone() }).await, 0);
    let counts = store.attention_counts().await.unwrap();
    let counts: Vec<_> = counts.iter().map(|count| (count.kind.as_str(), count.by_age)).collect();
    assert_eq!(counts, [("poison", [1, 0, 0]), (UNKNOWN_OUTCOME, [3, 0, 0])]);

    let open = async || {
        let counts = store.open_counts().await.unwrap();
        let mut words: Vec<_> =
            counts.iter().map(|count| (count.status.word(), count.reason, count.instances)).collect();
        words.sort_unstable();
        words
    };
    let asked = [("attention", "poison", 1), ("attention", UNKNOWN_OUTCOME, 2)];
    assert_eq!(open().await, asked);

    // The list of what is in attention is both; whatever can move is not in it.
    let in_attention = async || {
        let status = Some(StatusWord::Attention);
        let filter = Filter { namespace: namespace(), status, ..Filter::default() };
        let page = store.instances(&filter, None, 10).await.unwrap();
        page.rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(in_attention().await, ["o-3", "o-2", "o-1"]);
    scene.on(one, resolve("pay", 2, Choice::Again)).await;
    scene.on(two, What::Pause { operation: "p".to_owned() }).await;
    assert_eq!(in_attention().await, ["o-2"]);
    assert_eq!(open().await, [("attention", "poison", 1), ("paused", "", 1), ("queued", "", 1)]);
    scene.on(two, What::Resume { operation: "q".to_owned() }).await;
    assert_eq!(in_attention().await, ["o-2"], "it is queued by now");
    // What ends takes its questions along.
    scene.on(two, What::Terminate { operation: "t".to_owned(), reason: None }).await;
    assert_eq!(listed(&store, &all).await.iter().map(about).collect::<Vec<_>>(), ["o-2 poison"]);
}

pub(crate) async fn l08_a_question_beside_other_waits_is_shown_first(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let head = scene.head(uid).await;
    let nap = sleep("nap");
    let report = Reporting::of(&head, session)
        .result(unknown("pay"))
        .open(sleeping(&nap, OpenWait::Sleep(Millis(60_000))))
        .then(Then::Suspend);
    scene.on(uid, report).await;
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    let kinds: Vec<_> = view.waiting.iter().map(|wait| wait.kind).collect();
    assert_eq!((view.status, kinds), (StatusWord::Attention, vec![WaitKind::Person, WaitKind::Sleep]));
    let waiting = Filter { namespace: namespace(), status: Some(StatusWord::Waiting), ..Filter::default() };
    assert!(store.instances(&waiting, None, 10).await.unwrap().rows.is_empty());
}
