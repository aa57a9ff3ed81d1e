//! The audit log as it is kept: each action is recorded once, with what it does or not at all, and found again. Not: who may read it, and
//! what of HTTP is recorded, which the coordinator's tests say.

use std::sync::Arc;

use everstep_engine::{
    Input, What, Writes,
    access::{Asker, Grant},
    action::{Action, TEXT_CHARS_MAX, Target},
    batch::JournalRow,
    bulk::{Act, Bulk, Which},
    rows::Needs,
};
use everstep_protocol::{
    AccessHash, AccessTokenId, InstanceUid, Millis, Position, Role, Run, Scope, Timestamp,
    journal::{Entry, Fact},
};
use everstep_store::{ActionFilter, ActionRow, NewAccess, Store};
use uuid::Uuid;

use super::scene::{Scene, namespace, terminate};

fn ann() -> Asker {
    Asker { who: "ann (0192)".to_owned(), from: "10.0.0.7".to_owned() }
}

fn shop() -> Scope {
    Scope::Of(namespace())
}

async fn all(store: &Arc<dyn Store>) -> Vec<ActionRow> {
    store.actions(&ActionFilter::within(Scope::All), None, 100).await.unwrap()
}

/// Operation, target, outcome and detail, newest first.
fn told(rows: &[ActionRow]) -> Vec<(&str, &str, &str, Option<&str>)> {
    rows.iter()
        .map(|row| (row.operation.as_str(), row.target.as_str(), row.outcome.as_str(), row.detail.as_deref()))
        .collect()
}

impl Scene {
    async fn asked(&self, instance: InstanceUid, what: What) {
        self.run(vec![Input::Asked { by: Arc::new(ann()), instance, what }]).await;
    }
}

fn retry(operation: &str) -> What {
    What::Retry { operation: operation.to_owned() }
}

pub(crate) async fn a06_what_is_done_to_an_instance_is_recorded_with_it_once(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = scene.start("o-1").await;
    scene.on(uid, What::Pause { operation: "nobody asks".to_owned() }).await;
    assert_eq!(all(&store).await, [], "what nobody asks for is no action");
    scene.asked(uid, retry("op-1")).await;
    scene.asked(uid, What::Pause { operation: "op-2".to_owned() }).await;
    // Twice in one batch, and once more later.
    let twice = Input::Asked { by: Arc::new(ann()), instance: uid, what: terminate("op-3") };
    scene.run(vec![twice.clone(), twice]).await;
    scene.asked(uid, terminate("op-3")).await;
    scene.asked(uid, terminate("op-4")).await;
    scene.asked(uid, What::Delete { operation: "op-5".to_owned(), terminate: false }).await;
    scene.asked(uid, What::Delete { operation: "op-5".to_owned(), terminate: false }).await;
    let rows = all(&store).await;
    let target = "instance/orders/o-1";
    let expected = [
        ("delete", target, "done", None),
        ("terminate", target, "refused: it is terminated", Some("reason: enough")),
        ("terminate", target, "done", Some("reason: enough")),
        ("pause", target, "unchanged", None),
        ("retry", target, "refused: it is not parked", None),
    ];
    assert_eq!(told(&rows), expected);
    for row in &rows {
        assert_eq!((row.who.as_str(), row.from.as_str(), &row.scope), ("ann (0192)", "10.0.0.7", &shop()));
        assert_eq!(row.named, None);
    }
    assert!(rows.windows(2).all(|pair| pair[0].number > pair[1].number && pair[0].at >= pair[1].at));
}

pub(crate) async fn a06_an_action_and_its_record_are_one(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = scene.start("o-1").await;
    let done = || Action::done(&ann(), shop(), Target::Installation, "restored");
    // The position is taken: a second entry there is refused, and everything with it.
    let entry = Entry { position: Position(1), at: Timestamp(1), fact: Fact::Retried };
    let journal = vec![JournalRow { uid, run: Run(1), entry }];
    let needs = || Needs { heads: vec![uid], ..Needs::default() };
    let refused = Writes { actions: vec![done()], journal, ..Writes::default() };
    scene.write(needs(), refused).await.unwrap_err();
    assert_eq!(all(&store).await, []);
    // A record alone is something to write.
    scene.write(needs(), Writes { actions: vec![done()], ..Writes::default() }).await.unwrap();
    assert_eq!(told(&all(&store).await), [("restored", "installation", "done", None)]);
}

pub(crate) async fn a06_what_is_done_to_bulk_operations_and_tokens_is_recorded_with_it(
    store: Arc<dyn Store>,
) {
    let bulk = Bulk { act: Act::Retry, which: Which::default() };
    let id = "b-1".parse().unwrap();
    for _ in 0..2 {
        store.begin_bulk(&namespace(), &id, &bulk, &ann()).await.unwrap();
    }
    for _ in 0..2 {
        store.stop_bulk(&namespace(), &id, &ann()).await.unwrap();
    }
    let token = AccessTokenId(Uuid::from_u128(7));
    let new = NewAccess {
        id: token,
        name: "ci".parse().unwrap(),
        hash: AccessHash([7; 32]),
        grant: Grant { role: Role::Viewer, scope: shop() },
        lasts: None,
    };
    store.create_access_token(&new, &ann()).await.unwrap();
    store.create_access_token(&new, &ann()).await.unwrap_err();
    let other = "other".parse().unwrap();
    assert_eq!(store.revoke_access_token(&other, token, &ann()).await.unwrap(), None);
    for _ in 0..2 {
        store.revoke_access_token(&Scope::All, token, &ann()).await.unwrap();
    }
    let rows = all(&store).await;
    let target = format!("access-token/{token}");
    let request = bulk.to_text();
    let expected = [
        ("revoke", target.as_str(), "done", None),
        ("create", target.as_str(), "done", Some("ci: viewer")),
        ("stop", "bulk/b-1", "done", None),
        ("begin", "bulk/b-1", "done", Some(request.as_str())),
    ];
    assert_eq!(told(&rows), expected);
    assert!(rows.iter().all(|row| row.scope == shop() && row.who == "ann (0192)"), "{rows:?}");
}

pub(crate) async fn a06_records_are_found_by_what_they_say(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = scene.start("o-1").await;
    let needs = || Needs { heads: vec![uid], ..Needs::default() };
    let named = |who: &str| Asker { who: who.to_owned(), ..ann() };
    let (b, s) = ("b-1".parse().unwrap(), "s-1".parse().unwrap());
    let scope = |name: &str| name.parse::<Scope>().unwrap();
    for action in [
        Action::done(&ann(), shop(), Target::Bulk(&b), "begin"),
        Action::done(&named("anna"), shop(), Target::Schedule(&s), "pause"),
        Action::done(&named("bob"), scope("other"), Target::Schedule(&s), "pause").naming(Some("eve")),
        Action::done(&named("bob"), Scope::All, Target::Installation, "restored"),
    ] {
        scene.write(needs(), Writes { actions: vec![action], ..Writes::default() }).await.unwrap();
    }
    let rows = all(&store).await;
    let [restored, of_other, of_schedule, of_bulk] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(of_other.named.as_deref(), Some("eve"));
    let filter = |within: Scope| ActionFilter::within(within);
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (filter(shop()), vec![of_schedule, of_bulk]),
        (filter(scope("other")), vec![of_other]),
        (filter(scope("none")), vec![]),
        (ActionFilter { target: text("schedule/s-1"), ..filter(shop()) }, vec![of_schedule]),
        (ActionFilter { target: text("schedule/s-1"), ..filter(Scope::All) }, vec![of_other, of_schedule]),
        (ActionFilter { target: text("schedule/s"), ..filter(shop()) }, vec![]),
        (ActionFilter { who: text("ann"), ..filter(shop()) }, vec![of_bulk]),
        (ActionFilter { who: text("ann (0192)"), ..filter(Scope::All) }, vec![of_bulk]),
        (ActionFilter { who: text("bob"), ..filter(Scope::All) }, vec![restored, of_other]),
        (ActionFilter { operation: text("pause"), ..filter(Scope::All) }, vec![of_other, of_schedule]),
        (ActionFilter { from: Some(of_other.at), ..filter(Scope::All) }, vec![restored, of_other]),
        (ActionFilter { before: Some(of_other.at), ..filter(Scope::All) }, vec![of_schedule, of_bulk]),
        (
            ActionFilter { from: Some(of_schedule.at), before: Some(of_other.at), ..filter(shop()) },
            vec![of_schedule],
        ),
    ];
    for (filter, expected) in cases {
        let found = store.actions(&filter, None, 100).await.unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
    // A page goes on below the last of the one before it.
    let mut pages = Vec::new();
    let mut below = None;
    loop {
        let page = store.actions(&ActionFilter::within(Scope::All), below, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        below = Some(last.number);
        pages.extend(page);
    }
    assert_eq!(pages, rows);
    assert_eq!(store.actions(&ActionFilter::within(Scope::All), Some(u64::MAX), 9).await.unwrap(), rows);
    assert_eq!(store.clean(10).await.unwrap(), 0, "what is young is not cleaned");
}

pub(crate) async fn a06_any_text_is_recorded_up_to_its_bound(store: Arc<dyn Store>) {
    let scene = Scene::new(Arc::clone(&store));
    let uid = scene.start("o-1").await;
    let reason = format!("💳\u{0}{}", "x".repeat(5_000));
    let within = Millis(60_000);
    let cancel = What::Cancel { operation: "op-1".to_owned(), reason: Some(reason), within, rollback: true };
    scene.asked(uid, cancel).await;
    let rows = all(&store).await;
    let detail = rows[0].detail.as_deref().unwrap();
    assert!(detail.starts_with("within 1m, with a rollback, reason: 💳"), "{detail}");
    assert_eq!(detail.chars().count(), TEXT_CHARS_MAX);
}
