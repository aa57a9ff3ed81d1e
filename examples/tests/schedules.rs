//! The guide to schedules: each of its samples stands in code that compiles and does what it says.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use everstep::embedded::{Embedded, Status};
use everstep_examples::schedules::{each_night, make_up, report};

const GUIDE: &str = include_str!("../../docs/guides/schedules.md");
const CODE: [&str; 1] = [include_str!("../src/schedules.rs")];

#[test]
fn every_sample_of_the_guide_is_code_that_compiles() {
    support::every_sample_is_in(GUIDE, &CODE, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s12_a_week_of_reports_is_made_up_for_on_a_laptop() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = Embedded::open(dir.path().join("everstep.db")).workflow(report).start().await.unwrap();
    each_night(&everstep).await.unwrap();
    let next = everstep.next_runs("nightly", 400).await.unwrap();
    assert_eq!(next.len(), 400);
    let by_hand = make_up(&everstep).await.unwrap().expect("the schedule is there");
    assert_eq!(by_hand.result::<String>().await.unwrap(), "all is well with all");
    loop {
        let schedule = everstep.schedule("nightly").await.unwrap().unwrap();
        if schedule.state.counts.started == 8 && schedule.state.backfills.is_empty() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let found = everstep.find("report", serde_json::json!({"everstep.schedule": "nightly"})).await.unwrap();
    let mut ids: Vec<String> = found.iter().map(|view| view.id.to_string()).collect();
    ids.sort();
    let night = |day: u32| format!("nightly:202611{day:02}T013000Z");
    assert_eq!(ids[..7], (1..8).map(night).collect::<Vec<_>>(), "half past two in Berlin's winter");
    everstep.handle("report", &ids[6]).unwrap().result::<String>().await.unwrap();
    let view = everstep.instance("report", &ids[0]).await.unwrap().unwrap();
    assert_eq!(view.status, Status::Complete);
    assert!(everstep.delete_schedule("nightly").await.unwrap());
    everstep.stop().await.unwrap();
}
