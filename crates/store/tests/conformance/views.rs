//! What API and CLI show.

use std::{collections::BTreeSet, sync::Arc};

use everstep_engine::{
    Answer, Input, Status, What, Writes,
    batch::AttributeRow,
    rows::{Needs, WaitKind},
};
use everstep_protocol::{
    Attribute, AttributeName, Call, InstanceUid, Millis, Payload, Position, SessionId,
    journal::{Compensated, End, ParkCode, Parked, Undone, UndoneEnd},
    message::{OpenWait, Then},
};
use everstep_store::{Cursor, END_PAGE_BYTES, EndMark, Ends, Filter, InstanceView, StatusWord, Store};

use super::scene::{
    Reporting, Scene, build, epoch, failure, name_key, namespace, open_session, payload, sleep, sleeping,
    start, step, succeeded, terminate, workflow,
};

/// One instance in each status, by its id.
async fn every_status(scene: &Scene, session: SessionId) -> Vec<(StatusWord, &'static str, InstanceUid)> {
    let queued = scene.start("queued").await;
    let running = scene.held("running", session).await;
    let nap = sleep("nap");
    let report = async |uid, make: &dyn Fn(Reporting) -> What| {
        let head = scene.head(uid).await;
        scene.on(uid, make(Reporting::of(&head, session))).await
    };
    let waiting = scene.held("waiting", session).await;
    report(waiting, &|report| {
        report.open(sleeping(&nap, OpenWait::Sleep(Millis(1 << 40)))).then(Then::Suspend)
    })
    .await;
    let parked = scene.held("parked", session).await;
    let question = Parked::new(ParkCode::BodyPanicked, "it panicked".to_owned());
    report(parked, &|report| report.then(Then::Park(question.clone()))).await;
    let complete = scene.held("complete", session).await;
    report(complete, &|report| {
        report.result(succeeded(&step("a"), "1")).then(Then::End(End::Complete(payload(r#"{"x":[1]}"#))))
    })
    .await;
    let errored = scene.held("errored", session).await;
    report(errored, &|report| report.then(Then::End(End::Errored(failure())))).await;
    let terminated = scene.start("terminated").await;
    scene.on(terminated, terminate("op")).await;
    vec![
        (StatusWord::Queued, "queued", queued),
        (StatusWord::Running, "running", running),
        (StatusWord::Waiting, "waiting", waiting),
        (StatusWord::Attention, "parked", parked),
        (StatusWord::Complete, "complete", complete),
        (StatusWord::Errored, "errored", errored),
        (StatusWord::Terminated, "terminated", terminated),
    ]
}

pub(crate) async fn p28_every_status_is_shown(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    store.open_session(&open_session(session)).await.unwrap();
    for (status, id, uid) in every_status(&scene, session).await {
        let view = store.instance(&name_key("orders", id)).await.unwrap().unwrap();
        let head = scene.head(uid).await;
        assert_eq!((view.status, view.uid, view.id.as_ref()), (status, uid, id));
        assert_eq!((view.position, view.steps, view.epoch), (head.position, head.steps, head.epoch));
        assert_eq!((view.run, view.generation, view.waits), (head.run, head.generation, head.waits));
        assert_eq!((view.created_at, view.ended_at), (head.created_at, head.ended_at));
        assert!(view.served);
        let holder = (status == StatusWord::Running).then(|| (session, build(), "host:1".to_owned()));
        assert_eq!(view.holder, holder, "{id}");
        assert_eq!(view.ready_at.is_some(), status == StatusWord::Queued);
        assert_eq!(view.parked.is_some(), status == StatusWord::Attention);
        assert_eq!(view.waiting.len(), usize::from(status == StatusWord::Waiting));
        let end = match status {
            StatusWord::Complete => Some(End::Complete(payload(r#"{"x":[1]}"#))),
            StatusWord::Errored => Some(End::Errored(failure())),
            StatusWord::Terminated => Some(End::Terminated { reason: Some("enough".to_owned()) }),
            _ => None,
        };
        assert_eq!(view.end, end);
        if status == StatusWord::Waiting {
            let wait = &view.waiting[0];
            assert_eq!((&wait.call, wait.kind), (&sleep("nap"), WaitKind::Sleep));
            assert_eq!(wait.due_at, Some(wait.since.plus(Millis(1 << 40))));
        }
        if let Some((since, parked)) = &view.parked {
            assert_eq!((parked.code, *since > view.created_at), (ParkCode::BodyPanicked, true));
        }
    }
    assert_eq!(store.instance(&name_key("orders", "nobody")).await.unwrap(), None);
    assert_eq!(store.instance(&name_key("refunds", "queued")).await.unwrap(), None);
}

fn ids(rows: &[InstanceView]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_ref()).collect()
}

pub(crate) async fn lists_filter_by_status_and_workflow(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let made = every_status(&scene, session).await;
    scene.run(vec![Input::Start(Box::new(start("refunds", "other", "1")))]).await;
    let filter = |workflow, status| Filter { namespace: namespace(), workflow, status, ..Filter::default() };
    for (status, id, _) in &made {
        let page = store.instances(&filter(Some(workflow("orders")), Some(*status)), None, 10).await.unwrap();
        assert_eq!((ids(&page.rows), page.next), (vec![*id], None), "{status:?}");
        assert_eq!(page.rows[0].status, *status);
        let page = store.instances(&filter(None, Some(*status)), None, 10).await.unwrap();
        let expected = if *status == StatusWord::Queued { vec!["other", id] } else { vec![*id] };
        assert_eq!(ids(&page.rows), expected);
        let page = store.instances(&filter(Some(workflow("none")), Some(*status)), None, 10).await.unwrap();
        assert!(page.rows.is_empty());
        let namespace = "other".parse().unwrap();
        let elsewhere = Filter { namespace, status: Some(*status), ..Filter::default() };
        assert!(store.instances(&elsewhere, None, 10).await.unwrap().rows.is_empty());
    }
    let page = store.instances(&filter(None, None), None, 100).await.unwrap();
    let mut expected: Vec<&str> = made.iter().map(|(_, id, _)| *id).collect();
    expected.push("other");
    expected.reverse();
    assert_eq!(ids(&page.rows), expected, "newest first");
    let waiting = page.rows.iter().find(|row| row.status == StatusWord::Waiting).unwrap();
    assert_eq!(waiting.waiting.len(), 1);
    assert!(page.rows.iter().all(|row| row.holder.is_none() && row.end.is_none()));
}

/// All pages, of two each.
async fn walk(store: &Arc<dyn Store>, filter: &Filter) -> Vec<InstanceView> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.instances(filter, cursor.as_ref(), 2).await.unwrap();
        rows.extend(page.rows);
        match page.next {
            Some(next) => cursor = Some(next),
            None => return rows,
        }
    }
}

/// With the other conditions, over workflows and pages, and nothing that merely sorts nearby.
pub(crate) async fn lists_filter_by_the_beginning_of_the_id(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let made = every_status(&scene, SessionId::generate()).await;
    let named = [
        ("refunds", "r-1"),
        ("orders", "r-2"),
        ("abc", "r-3"),
        ("orders", "r"),
        ("orders", "r.4"),
        ("orders", "R-5"),
    ];
    for (workflow, id) in named {
        scene.run(vec![Input::Start(Box::new(start(workflow, id, "1")))]).await;
    }
    mark(&store, scene.start("r-6").await, &["region=eu"]).await;
    let of = |prefix: &str| Filter {
        namespace: namespace(),
        id_prefix: Some(prefix.to_owned()),
        ..Filter::default()
    };
    let found = async |filter: Filter| {
        walk(&store, &filter).await.iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(of("r-")).await, ["r-6", "r-3", "r-2", "r-1"], "newest first");
    assert_eq!(found(of("r")).await, ["r-6", "r.4", "r", "r-3", "r-2", "r-1", "running"]);
    assert_eq!(found(of("r-2")).await, ["r-2"]);
    assert_eq!(found(of("x")).await, [""; 0]);
    let orders = Some(workflow("orders"));
    assert_eq!(found(Filter { workflow: orders.clone(), ..of("r-") }).await, ["r-6", "r-2"]);
    assert_eq!(found(Filter { workflow: Some(workflow("none")), ..of("r-") }).await, [""; 0]);
    assert_eq!(found(Filter { attributes: found_by(&["region=eu"]).attributes, ..of("r") }).await, ["r-6"]);
    let elsewhere = Filter { namespace: "other".parse().unwrap(), ..of("r") };
    assert_eq!(found(elsewhere).await, [""; 0]);
    for (status, id, _) in &made {
        let filter = Filter { status: Some(*status), workflow: orders.clone(), ..of(&id[..2]) };
        assert_eq!(found(filter.clone()).await, [(*id).to_owned()], "{status:?}");
        let open = found(Filter { status: None, open: true, ..filter }).await;
        assert_eq!(open.contains(&(*id).to_owned()), !status.is_ended(), "{status:?}");
    }
}

pub(crate) async fn p40_what_is_open_is_listed_and_nothing_else(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    every_status(&scene, session).await;
    scene.run(vec![Input::Start(Box::new(start("refunds", "other", "1")))]).await;
    let paused = scene.start("paused").await;
    scene.on(paused, What::Pause { operation: "op".to_owned() }).await;
    let open = Filter { namespace: namespace(), open: true, ..Filter::default() };
    let all = walk(&store, &open).await;
    assert_eq!(ids(&all), ["paused", "other", "parked", "waiting", "running", "queued"], "newest first");
    let orders = Filter { workflow: Some(workflow("orders")), ..open.clone() };
    assert_eq!(ids(&walk(&store, &orders).await), ["paused", "parked", "waiting", "running", "queued"]);
    let elsewhere = Filter { namespace: "other".parse().unwrap(), ..open };
    assert_eq!(walk(&store, &elsewhere).await, []);
}

pub(crate) async fn p40_what_is_open_and_of_a_status_is_both(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    for (_, _, uid) in every_status(&scene, SessionId::generate()).await {
        mark(&store, uid, &["n=1"]).await;
    }
    for attributes in [Vec::new(), vec![attribute("n=1")]] {
        for status in StatusWord::ALL {
            let one = Filter {
                namespace: namespace(),
                status: Some(status),
                attributes: attributes.clone(),
                ..Filter::default()
            };
            let open = Filter { open: true, ..one.clone() };
            let expected = if status.is_ended() { Vec::new() } else { walk(&store, &one).await };
            assert_eq!(walk(&store, &open).await, expected, "{status:?} {attributes:?}");
        }
    }
}

pub(crate) async fn p33_lists_say_how_each_has_ended_if_asked(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    every_status(&scene, SessionId::generate()).await;
    let filter = Filter { namespace: namespace(), ends: true, ..Filter::default() };
    for row in walk(&store, &filter).await {
        assert_eq!(row.end.is_some(), row.ended_at.is_some(), "{}", row.id);
        if row.status == StatusWord::Errored {
            assert_eq!(row.end, Some(End::Errored(failure())));
        }
    }
}

pub(crate) async fn pages_are_not_shifted_by_new_instances(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    for number in 0..10 {
        scene.start(&format!("o-{number}")).await;
    }
    for status in [None, Some(StatusWord::Queued)] {
        for workflow_name in [None, Some(workflow("orders"))] {
            let filter =
                Filter { namespace: namespace(), workflow: workflow_name, status, ..Filter::default() };
            let mut seen = Vec::new();
            let mut cursor: Option<Cursor> = None;
            for number in 0.. {
                let page = store.instances(&filter, cursor.as_ref(), 3).await.unwrap();
                seen.extend(page.rows.iter().map(|row| row.id.to_string()));
                scene
                    .start(&format!("new-{}-{number}-{}", status.is_some(), filter.workflow.is_some()))
                    .await;
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            let old: Vec<&String> = seen.iter().filter(|id| id.starts_with("o-")).collect();
            assert_eq!(old, ["o-9", "o-8", "o-7", "o-6", "o-5", "o-4", "o-3", "o-2", "o-1", "o-0"]);
            assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "nothing twice");
        }
    }
}

pub(crate) async fn p35_a_workflow_is_served_while_a_session_lives(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    scene.start("o-1").await;
    scene.run(vec![Input::Start(Box::new(start("reports", "r-1", "1")))]).await;
    let served = async |workflow: &str, id: &str| {
        store.instance(&name_key(workflow, id)).await.unwrap().unwrap().served
    };
    assert!(!served("orders", "o-1").await);
    store.open_session(&open_session(session)).await.unwrap();
    assert!(served("orders", "o-1").await);
    assert!(!served("reports", "r-1").await);
    store.end_session(session, true).await.unwrap();
    assert!(!served("orders", "o-1").await);
}

pub(crate) async fn waits_are_shown_earliest_first(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let uid = scene.held("o-1", session).await;
    let head = scene.head(uid).await;
    assert_eq!((head.position, head.epoch), (Position(1), epoch(1)));
    let nap = |number: u64| Call { count: number as u32, ..sleep("nap") };
    let mut report = Reporting::of(&head, session);
    for number in (1..=120).rev() {
        report = report.open(sleeping(&nap(number), OpenWait::Sleep(Millis(1_000_000 + number * 1_000))));
    }
    assert_eq!(scene.on(uid, report.then(Then::Suspend)).await, Answer::Taken);
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    assert_eq!((view.waits, view.waiting.len()), (120, 100));
    let order: Vec<u32> = view.waiting.iter().map(|wait| wait.call.count).collect();
    assert_eq!(order, (1..=100).collect::<Vec<_>>());
    let filter = Filter { namespace: namespace(), ..Filter::default() };
    let page = store.instances(&filter, None, 10).await.unwrap();
    assert_eq!((page.rows[0].waits, page.rows[0].waiting.len()), (120, 1));
    assert_eq!(page.rows[0].waiting[0].call, nap(1));
    // The holder's end takes all of them away.
    scene.on(uid, terminate("op")).await;
    let view = store.instance(&name_key("orders", "o-1")).await.unwrap().unwrap();
    assert_eq!((view.waits, view.waiting.len(), view.status), (0, 0, StatusWord::Terminated));
}

fn attribute(words: &str) -> Attribute {
    Attribute::from_words(words).unwrap()
}

/// Sets attributes, as a batch does.
async fn mark(store: &Arc<dyn Store>, uid: InstanceUid, words: &[&str]) {
    let row = |words: &&str| AttributeRow { uid, namespace: namespace(), attribute: attribute(words) };
    let attributes = words.iter().map(row).collect();
    let writes = Writes { attributes, ..Writes::default() };
    store.transact(Needs::default(), Box::new(|_| writes)).await.unwrap();
}

fn found_by(words: &[&str]) -> Filter {
    let attributes = words.iter().map(|words| attribute(words)).collect();
    Filter { namespace: namespace(), attributes, ..Filter::default() }
}

pub(crate) async fn p37_lists_filter_by_attributes_and_status(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let made = every_status(&scene, session).await;
    for (_, id, uid) in &made {
        mark(&store, *uid, &["region=eu", &format!("id={id}"), "n=1.0"]).await;
    }
    let other = scene.start("other").await;
    let (heads, firsts) = (vec![other, made[0].2], vec![other, made[0].2]);
    let attributed = scene.load(Needs { heads, firsts, ..Needs::default() }).await.rows.attributed;
    assert_eq!(attributed.into_iter().collect::<Vec<_>>(), [made[0].2], "a restart knows who has some");
    mark(&store, other, &["region=us", "n=1", "vip=true"]).await;
    for (status, id, uid) in &made {
        for workflow in [None, Some(workflow("orders"))] {
            let filter = Filter { status: Some(*status), workflow, ..found_by(&["region=eu", "n=1"]) };
            let page = store.instances(&filter, None, 10).await.unwrap();
            assert_eq!((ids(&page.rows), page.next), (vec![*id], None), "{status:?}");
            assert_eq!((page.rows[0].uid, page.rows[0].status), (*uid, *status));
            let us = Filter { attributes: found_by(&["region=us"]).attributes, ..filter };
            let expected = if *status == StatusWord::Queued { vec!["other"] } else { vec![] };
            assert_eq!(ids(&store.instances(&us, None, 10).await.unwrap().rows), expected, "{status:?}");
        }
    }
    let found = async |words: &[&str]| {
        let page = store.instances(&found_by(words), None, 100).await.unwrap();
        page.rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = made.iter().map(|(_, id, _)| (*id).to_owned()).collect();
    all.push("other".to_owned());
    all.reverse();
    assert_eq!(found(&["n=1"]).await, all, "newest first");
    assert_eq!(found(&["n=1", "vip=true", "region=us"]).await, ["other"]);
    for nothing in [&["n=\"1\""][..], &["region=EU"], &["vip=false"], &["vip=true", "region=eu"], &["x=1"]] {
        assert_eq!(found(nothing).await, Vec::<String>::new(), "{nothing:?}");
    }
    let elsewhere = Filter { namespace: "other".parse().unwrap(), ..found_by(&["n=1"]) };
    assert!(store.instances(&elsewhere, None, 10).await.unwrap().rows.is_empty());
    let none = Filter { workflow: Some(workflow("none")), ..found_by(&["n=1"]) };
    assert!(store.instances(&none, None, 10).await.unwrap().rows.is_empty());
    // Page by page.
    let (mut seen, mut cursor): (Vec<String>, Option<Cursor>) = (Vec::new(), None);
    loop {
        let page = store.instances(&found_by(&["n=1"]), cursor.as_ref(), 3).await.unwrap();
        seen.extend(page.rows.iter().map(|row| row.id.to_string()));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, all);
    let view = store.instance(&name_key("orders", "other")).await.unwrap().unwrap();
    let shown: Vec<_> = view.attributes.iter().map(|attribute| attribute.name.to_string()).collect();
    assert_eq!(shown, ["n", "region", "vip"]);
}

pub(crate) async fn p37_attributes_and_state_are_replaced_and_last_as_long_as_their_instance(
    store: Arc<dyn Store>,
) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let attributes = vec![attribute("region=eu"), attribute("n=1")];
    let marked = everstep_engine::start::Start { attributes, ..start("orders", "one", "1") };
    let uid = marked.uid;
    scene.run(vec![Input::Start(Box::new(marked))]).await;
    scene.on(uid, What::Claim { session, have: None }).await;
    let view = async || store.instance(&name_key("orders", "one")).await.unwrap();
    assert_eq!(view().await.unwrap().state, None);
    let tell = async |state: &str, attributes: Vec<Attribute>| {
        let report = Reporting::of(&scene.head(uid).await, session).shows(payload(state), attributes);
        assert_eq!(scene.on(uid, report.then(Then::Continue)).await, Answer::Taken);
    };
    let removed = |name: &str| Attribute { name: AttributeName::new(name).unwrap(), value: None };
    tell(r#"{"done":1}"#, vec![attribute("n=2"), attribute("stage=packed")]).await;
    tell(r#"{"done":"\u0000"}"#, vec![removed("region")]).await;
    tell(r#"{"done":"\u0000"}"#, vec![removed("region"), attribute("n=2")]).await;
    let shown = |view: &InstanceView| {
        let of = |attribute: &Attribute| {
            format!("{}={}", attribute.name, attribute.value.as_ref().unwrap().as_json())
        };
        view.attributes.iter().map(of).collect::<Vec<_>>()
    };
    let now = view().await.unwrap();
    assert_eq!(shown(&now), ["n=2", "stage=\"packed\""]);
    assert_eq!(now.state.as_ref().unwrap().1.as_str(), r#"{"done":"\u0000"}"#);
    let page = store.instances(&found_by(&["n=2"]), None, 10).await.unwrap();
    assert_eq!((ids(&page.rows), page.rows[0].state.clone()), (vec!["one"], None), "lists have no states");
    scene.on(uid, super::scene::ends(&scene.head(uid).await, session)).await;
    assert_eq!(view().await.unwrap().state, now.state, "after the end too");
    // A new run begins with what it was started with.
    scene.on(uid, What::Restart { operation: "r".to_owned(), prepared: None }).await;
    assert_eq!(shown(&view().await.unwrap()), ["n=1", "region=\"eu\""]);
    scene.on(uid, What::Delete { operation: "d".to_owned(), terminate: true }).await;
    assert_eq!(view().await, None);
    assert!(store.instances(&found_by(&["n=1"]), None, 10).await.unwrap().rows.is_empty());
}

pub(crate) async fn p39_how_compensations_ended_is_in_the_view(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let undone = Undone { call: step("a"), end: UndoneEnd::Failed(failure()) };
    let compensated = Compensated { steps: vec![undone], more: 2 };
    for (id, compensated) in [("plain", None), ("undone", Some(compensated))] {
        let uid = scene.held(id, session).await;
        assert_eq!(store.status(&name_key("orders", id)).await.unwrap(), Some(Status::Open));
        let mut report = Reporting::of(&scene.head(uid).await, session).result(succeeded(&step("a"), "1"));
        if let Some(compensated) = compensated.clone() {
            report = report.compensated(compensated);
        }
        scene.on(uid, report.then(Then::End(End::Errored(failure())))).await;
        let view = store.instance(&name_key("orders", id)).await.unwrap().unwrap();
        assert_eq!((view.end, view.compensated), (Some(End::Errored(failure())), compensated));
        assert_eq!(store.status(&name_key("orders", id)).await.unwrap(), Some(Status::Errored));
    }
    assert_eq!(store.status(&name_key("orders", "nobody")).await.unwrap(), None);
}

pub(crate) async fn ends_are_told_once_in_the_order_of_their_commits(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let ended = async |id: &str| {
        let uid = scene.start(id).await;
        scene.on(uid, terminate("op")).await;
        uid
    };
    let first = ended("first").await;
    let now = store.ends_now().await.unwrap();
    let (second, third) = (ended("second").await, ended("third").await);
    scene.start("open").await;
    let all = Ends { namespace: namespace(), ..Ends::default() };
    let told = async |ends: &Ends, after: EndMark, limit: u32| {
        let (mut uids, mut after) = (Vec::new(), after);
        loop {
            let page = store.ends(ends, &after, limit).await.unwrap();
            if page.rows.is_empty() {
                return (uids, page.next);
            }
            uids.extend(page.rows.iter().map(|(_, view)| view.uid));
            assert!(page.rows.iter().all(|(mark, view)| *mark > after && view.end.is_some()));
            after = page.next;
        }
    };
    // On PostgreSQL any transaction of the cluster that writes, such as one of another test, holds ends back, and has the mark of
    // this moment be before ends that were just committed.
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
    for _ in 0..2_000 {
        ticks.tick().await;
        if told(&all, EndMark::default(), 10).await.0.len() == 3 {
            break;
        }
    }
    for limit in [10, 1] {
        let mut since = told(&all, now, limit).await.0;
        since.retain(|uid| *uid != first);
        assert_eq!(since, [second, third]);
    }
    assert_eq!(told(&all, EndMark::default(), 2).await.0, [first, second, third]);
    let after = told(&all, now, 10).await.1;
    assert_eq!(told(&all, after, 10).await.0, []);
    for (ends, count) in [
        (Ends { status: Some(Status::Terminated), ..all.clone() }, 3),
        (Ends { status: Some(Status::Complete), ..all.clone() }, 0),
        (Ends { workflow: Some(workflow("other")), ..all.clone() }, 0),
        (Ends { workflow: Some(workflow("orders")), ..all.clone() }, 3),
        (Ends { namespace: "elsewhere".parse().unwrap(), ..all.clone() }, 0),
    ] {
        assert_eq!(told(&ends, EndMark::default(), 10).await.0.len(), count, "{ends:?}");
    }
}

/// An output may have a mebibyte: a page is bounded by bytes, too, and all are told.
pub(crate) async fn a_page_of_ends_is_bounded_by_bytes(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let session = SessionId::generate();
    let output = Payload::from_text(&format!("\"{}\"", "x".repeat(END_PAGE_BYTES / 4))).unwrap();
    let mut uids = Vec::new();
    for nth in 0..20 {
        let uid = scene.held(&format!("o-{nth}"), session).await;
        let end = Then::End(End::Complete(output.clone()));
        scene.on(uid, Reporting::of(&scene.head(uid).await, session).then(end)).await;
        uids.push(uid);
    }
    let all = Ends { namespace: namespace(), ..Ends::default() };
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(50));
    loop {
        ticks.tick().await;
        let (mut told, mut after, mut pages) = (Vec::new(), EndMark::default(), Vec::new());
        loop {
            let page = store.ends(&all, &after, 50).await.unwrap();
            told.extend(page.rows.iter().map(|(_, view)| view.uid));
            pages.push(page.rows.len());
            after = page.next;
            if !page.more {
                break;
            }
        }
        // On PostgreSQL a transaction of another test may hold the last ones back.
        if told.len() == uids.len() {
            assert_eq!(told, uids);
            assert!(pages.iter().all(|rows| *rows <= 12) && pages.len() > 1, "{pages:?}");
            return;
        }
    }
}
