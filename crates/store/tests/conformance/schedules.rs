//! Schedules as they are kept: changed by whoever has read the last version, found when their time has come. Not: what becomes of a due time; see
//! the engine's tests.

use std::sync::Arc;

use everstep_engine::{
    access::Asker,
    action::{Action, Target},
    retention::Own,
    schedule::{CatchUp, Definition, Overlap, State, Turn, When},
};
use everstep_protocol::{Attribute, Millis, Namespace, Payload, ScheduleId, Scope, Timestamp};
use everstep_store::{SCHEDULE_PAGE_BYTES, ScheduleChange, ScheduleRow, ScheduleWrite, Store};

use super::scene::{namespace, workflow};

fn id(text: &str) -> ScheduleId {
    text.parse().unwrap()
}

fn definition() -> Definition {
    Definition {
        workflow: workflow("orders"),
        input: Payload::from_text(r#"{"card":"\u0000 💳","n":1.10}"#).unwrap(),
        retention: Own { complete: Some(Millis(5)), failed: None },
        pin: None,
        strict: Some(true),
        attributes: vec![Attribute::from_words("vip=true").unwrap()],
        when: When::Cron { expression: "0 9 * * MON".to_owned(), zone: "Europe/Berlin".to_owned() },
        from: None,
        until: Some(Timestamp(i64::MAX)),
        limit: Some(7),
        jitter: Millis(3),
        overlap: Overlap::Queue { max: 3 },
        catch_up: CatchUp::default(),
    }
}

fn turn(wake_at: Option<i64>) -> Turn {
    Turn { state: State::new(Timestamp(5)), wake_at: wake_at.map(Timestamp) }
}

fn change(name: &str, version: Option<u64>, after: Option<Turn>) -> ScheduleChange {
    ScheduleChange {
        namespace: namespace(),
        id: id(name),
        version,
        after: after.map(|turn| (definition(), turn)),
        action: action(name, "put").naming(Some("ann")),
    }
}

fn action(name: &str, operation: &'static str) -> Action {
    Action::done(&Asker::program(), Scope::Of(namespace()), Target::Schedule(&id(name)), operation)
}

async fn read(store: &Arc<dyn Store>, name: &str) -> Option<ScheduleRow> {
    store.schedule(&namespace(), &id(name)).await.unwrap().what
}

pub(crate) async fn s05_a_schedule_is_changed_by_whoever_has_read_its_last_version(store: Arc<dyn Store>) {
    assert_eq!(read(&store, "nightly").await, None);
    assert!(
        !store.change_schedule(&change("nightly", Some(1), Some(turn(None)))).await.unwrap(),
        "there is none"
    );
    assert!(store.change_schedule(&change("nightly", None, Some(turn(Some(9))))).await.unwrap());
    assert!(
        !store.change_schedule(&change("nightly", None, Some(turn(None)))).await.unwrap(),
        "there is one"
    );
    let created = read(&store, "nightly").await.unwrap();
    assert_eq!(
        (created.version, created.wake_at, &created.definition),
        (1, Some(Timestamp(9)), &definition())
    );
    assert_eq!((&created.state, created.created_at), (&State::new(Timestamp(5)), created.changed_at));

    assert!(store.change_schedule(&change("nightly", Some(1), Some(turn(None)))).await.unwrap());
    assert!(
        !store.change_schedule(&change("nightly", Some(1), Some(turn(Some(7))))).await.unwrap(),
        "an older one"
    );
    let changed = read(&store, "nightly").await.unwrap();
    assert_eq!((changed.version, changed.wake_at, changed.created_at), (2, None, created.created_at));
    assert!(changed.changed_at >= created.changed_at);
    assert!(
        !store.change_schedule(&change("nightly", Some(1), None)).await.unwrap(),
        "nor is an older one deleted"
    );
    assert!(store.change_schedule(&change("nightly", Some(2), None)).await.unwrap());
    assert_eq!(read(&store, "nightly").await, None);
}

pub(crate) async fn s05_those_whose_time_has_come_are_found_earliest_first_and_settled_together(
    store: Arc<dyn Store>,
) {
    let far = 9_000_000_000_000_000;
    for (name, wake_at) in
        [("late", Some(30)), ("early", Some(10)), ("never", None), ("to-come", Some(far)), ("mid", Some(20))]
    {
        assert!(store.change_schedule(&change(name, None, Some(turn(wake_at)))).await.unwrap());
    }
    let woken = store.woken_schedules(2).await.unwrap();
    let names = |rows: &[ScheduleRow]| rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>();
    assert_eq!(
        (names(&woken.rows), woken.next),
        (vec!["early".to_owned(), "mid".to_owned()], Some(Timestamp(far)))
    );
    assert!(woken.now > Timestamp(1_000));
    let woken_before = woken.rows[0].version;
    let write = |row: &ScheduleRow, wake_at| ScheduleWrite {
        namespace: row.namespace.clone(),
        id: row.id.clone(),
        version: row.version,
        turn: Turn { state: State { taken: 3, ..row.state.clone() }, wake_at },
    };
    let writes: Vec<_> = woken.rows.iter().rev().map(|row| write(row, None)).collect();
    assert_eq!(store.settle_schedules(&writes).await.unwrap(), [true, true]);
    let mut again = writes.clone();
    again.push(write(&read(&store, "late").await.unwrap(), Some(Timestamp(40))));
    assert_eq!(store.settle_schedules(&again).await.unwrap(), [false, false, true], "each by its version");
    assert_eq!(store.settle_schedules(&[]).await.unwrap(), [] as [bool; 0]);
    let woken = store.woken_schedules(9).await.unwrap();
    assert_eq!(names(&woken.rows), ["late"]);
    assert_eq!((woken.rows[0].version, woken.rows[0].state.taken), (2, 3));
    let settled = read(&store, "early").await.unwrap();
    assert_eq!(
        (settled.version, settled.wake_at, settled.changed_at),
        (woken_before + 1, None, settled.created_at)
    );
}

/// A turn that was decided before a schedule was deleted writes nothing into one that was made under its id since.
pub(crate) async fn s05_no_version_comes_again_under_an_id(store: Arc<dyn Store>) {
    assert!(store.change_schedule(&change("nightly", None, Some(turn(Some(1))))).await.unwrap());
    let old = read(&store, "nightly").await.unwrap();
    assert!(store.change_schedule(&change("nightly", Some(old.version), None)).await.unwrap());
    assert!(store.change_schedule(&change("nightly", None, Some(turn(Some(2))))).await.unwrap());
    let late = ScheduleWrite {
        namespace: old.namespace.clone(),
        id: old.id.clone(),
        version: old.version,
        turn: Turn { state: State { taken: 99, ..old.state.clone() }, wake_at: None },
    };
    assert_eq!(store.settle_schedules(&[late]).await.unwrap(), [false]);
    assert!(!store.change_schedule(&change("nightly", Some(old.version), None)).await.unwrap());
    let new = read(&store, "nightly").await.unwrap();
    assert_eq!((new.wake_at, new.state.taken), (Some(Timestamp(2)), 0));
    assert!(new.version > old.version + 1_000_000, "nor does a turn of many turns ago");
}

/// Each may have an input of a mebibyte: a page is bounded by bytes, too, and all are found.
pub(crate) async fn s10_pages_are_bounded_by_bytes(store: Arc<dyn Store>) {
    let input = Payload::from_text(&format!("\"{}\"", "x".repeat(1 << 20))).unwrap();
    for nth in 0..7 {
        let mut large = change(&format!("s-{nth}"), None, Some(turn(Some(nth))));
        large.after =
            large.after.map(|(definition, turn)| (Definition { input: input.clone(), ..definition }, turn));
        assert!(store.change_schedule(&large).await.unwrap());
    }
    let most = SCHEDULE_PAGE_BYTES / (1 << 20);
    let woken = store.woken_schedules(200).await.unwrap().rows;
    assert_eq!(woken.len(), most);
    assert_eq!(woken[0].id, id("s-0"));
    let (mut after, mut all) = (None, Vec::new());
    loop {
        let page = store.schedules(&namespace(), after.as_ref(), 200).await.unwrap();
        assert!(page.what.len() <= most);
        all.extend(page.what.iter().map(|row| row.id.to_string()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(all, (0..7).map(|nth| format!("s-{nth}")).collect::<Vec<_>>());
}

pub(crate) async fn s15_who_changed_a_schedule_is_recorded_also_when_it_is_gone(store: Arc<dyn Store>) {
    store.change_schedule(&change("nightly", None, Some(turn(None)))).await.unwrap();
    let pause = ScheduleChange {
        action: action("nightly", "pause").saying(Some("the bank is down".to_owned())),
        ..change("nightly", Some(1), Some(turn(None)))
    };
    store.change_schedule(&pause).await.unwrap();
    assert!(!store.change_schedule(&pause).await.unwrap(), "what was not done is not recorded");
    let by = Asker { who: "ci (0192)".to_owned(), from: "10.0.0.7".to_owned() };
    let scope = Scope::Of(namespace());
    let action = Action::done(&by, scope, Target::Schedule(&id("nightly")), "delete");
    let delete = ScheduleChange { action, ..change("nightly", Some(2), None) };
    store.change_schedule(&delete).await.unwrap();
    let changes = store.schedule_changes(&namespace(), &id("nightly"), 9).await.unwrap();
    let told: Vec<_> = changes
        .iter()
        .map(|row| (row.operation.as_str(), row.by.as_deref(), row.detail.as_deref()))
        .collect();
    let expected = [
        ("delete", Some("ci (0192)"), None),
        ("pause", None, Some("the bank is down")),
        ("put", Some("ann"), None),
    ];
    assert_eq!(told, expected);
    assert!(changes.windows(2).all(|pair| pair[0].at >= pair[1].at));
    assert_eq!(store.schedule_changes(&namespace(), &id("nightly"), 1).await.unwrap(), changes[..1]);
    assert_eq!(store.schedule_changes(&namespace(), &id("other"), 9).await.unwrap(), []);
}

pub(crate) async fn s01_schedules_are_listed_by_their_ids_and_kept_exactly(store: Arc<dyn Store>) {
    for name in ["b", "a", "C", "a.b"] {
        store.change_schedule(&change(name, None, Some(turn(Some(1))))).await.unwrap();
    }
    let list = async |space: &Namespace, after: Option<&str>, limit| {
        let after = after.map(id);
        let rows = store.schedules(space, after.as_ref(), limit).await.unwrap().what;
        rows.iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(&namespace(), None, 9).await, ["C", "a", "a.b", "b"]);
    assert_eq!(list(&namespace(), Some("a"), 1).await, ["a.b"]);
    assert_eq!(list(&"other".parse().unwrap(), None, 9).await, [] as [&str; 0]);
    assert_eq!(read(&store, "a").await.unwrap().definition, definition());
}
