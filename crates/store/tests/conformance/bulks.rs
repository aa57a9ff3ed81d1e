//! Bulk operations as they are kept: begun once, going on where they stand, over once. Not: what is done; see the system tests.

use std::sync::Arc;

use everstep_engine::{
    access::Asker,
    bulk::{Act, Bulk, Progress, State, Statuses, Which},
};
use everstep_protocol::{InstanceId, InstanceUid, Timestamp};
use everstep_store::{BulkRow, Cursor, Store};

use super::scene::{namespace, workflow};

fn id(text: &str) -> InstanceId {
    text.parse().unwrap()
}

fn ann() -> Asker {
    Asker { who: "ann".to_owned(), from: "127.0.0.1".to_owned() }
}

fn retries() -> Bulk {
    let which = Which {
        workflow: Some(workflow("orders")),
        status: Some(Statuses::Open),
        created_before: Some(Timestamp(7)),
        error: Some("Card \u{1f4b3} declined".to_owned()),
        ..Which::default()
    };
    Bulk { act: Act::Retry, which }
}

fn progress(looked_at: u64) -> Progress {
    Progress { looked_at, matched: 3, done: 2, refused: 1 }
}

fn ids(rows: &[BulkRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

pub(crate) async fn p33_a_bulk_operation_is_begun_once_and_goes_on_where_it_stands(store: Arc<dyn Store>) {
    let begun = store.begin_bulk(&namespace(), &id("b-1"), &retries(), &ann()).await.unwrap();
    assert_eq!((&begun.bulk, begun.state, begun.cursor), (&retries(), State::Running, None));
    assert_eq!((begun.progress, begun.ended_at, begun.by.as_str()), (Progress::default(), None, "ann"));
    let other = Bulk { act: Act::Pause, ..retries() };
    assert_eq!(
        store.begin_bulk(&namespace(), &id("b-1"), &other, &ann()).await.unwrap(),
        begun,
        "as it was begun"
    );
    let elsewhere = "other".parse().unwrap();
    assert_eq!(store.begin_bulk(&elsewhere, &id("b-1"), &other, &ann()).await.unwrap().bulk, other);

    let cursor = Cursor(InstanceUid::generate());
    assert!(store.advance_bulk(&begun, &progress(100), Some(cursor)).await.unwrap());
    // The same page from another coordinator counts nothing.
    assert!(!store.advance_bulk(&begun, &progress(200), None).await.unwrap());
    let moved = store.bulk(&namespace(), &id("b-1")).await.unwrap().unwrap();
    assert_eq!(moved, BulkRow { cursor: Some(cursor), progress: progress(100), ..begun });
    assert!(store.advance_bulk(&moved, &progress(150), None).await.unwrap());
    let done = store.bulk(&namespace(), &id("b-1")).await.unwrap().unwrap();
    assert_eq!((done.state, done.progress), (State::Done, progress(150)));
    assert!(done.ended_at.is_some_and(|at| at > done.created_at));
    assert_eq!(store.bulk(&namespace(), &id("b-2")).await.unwrap(), None);
}

pub(crate) async fn p33_one_that_is_over_stays_so(store: Arc<dyn Store>) {
    for number in 1..=3 {
        store.begin_bulk(&namespace(), &id(&format!("b-{number}")), &retries(), &ann()).await.unwrap();
    }
    let running = store.running_bulks(2).await.unwrap();
    assert_eq!(ids(&running), ["b-1", "b-2"], "oldest first");
    let stopped = store.stop_bulk(&namespace(), &id("b-1"), &ann()).await.unwrap().unwrap();
    assert_eq!((stopped.state, stopped.ended_at.is_some()), (State::Stopped, true));
    assert!(!store.advance_bulk(&running[0], &progress(1), None).await.unwrap());
    assert_eq!(store.stop_bulk(&namespace(), &id("b-1"), &ann()).await.unwrap(), Some(stopped));
    assert!(store.advance_bulk(&running[1], &progress(1), None).await.unwrap());
    let done = store.stop_bulk(&namespace(), &id("b-2"), &ann()).await.unwrap().unwrap();
    assert_eq!(done.state, State::Done, "what is done is not stopped");
    assert_eq!(store.stop_bulk(&namespace(), &id("b-9"), &ann()).await.unwrap(), None);
    assert_eq!(ids(&store.running_bulks(9).await.unwrap()), ["b-3"]);
    let all = store.bulks(&namespace(), 9).await.unwrap();
    assert_eq!(ids(&all), ["b-3", "b-2", "b-1"], "newest first");
    assert_eq!(store.bulks(&namespace(), 2).await.unwrap(), all[..2]);
    assert_eq!(store.bulks(&"other".parse().unwrap(), 9).await.unwrap(), []);
}
