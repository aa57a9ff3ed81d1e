//! A handle waits for the end of its instance (rule P36). Not: what children do, which the system tests prove.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everstep::{
    Error, Workflow,
    embedded::{Embedded, ResultError},
};

#[everstep::workflow]
async fn double(cx: Workflow, n: u64) -> Result<u64, Error> {
    cx.sleep("think", 20).await?;
    if n > 100 { Err(Error::permanent("too large").named("TooLarge")) } else { Ok(2 * n) }
}

#[everstep::workflow]
async fn four_times(cx: Workflow, n: u64) -> Result<u64, Error> {
    let twice: u64 = cx.child("first", double, n).await?;
    cx.child("second", double, twice).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_a_handle_gives_the_result() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = Embedded::open(dir.path().join("everstep.db"));
    let everstep = everstep.workflow(double).workflow(four_times).start().await.unwrap();
    everstep.start_instance("four_times", Some("one"), &5).await.unwrap();
    let handle = everstep.handle("four_times", "one").unwrap();
    assert_eq!(handle.result::<u64>().await.unwrap(), 20);
    assert!(matches!(handle.result::<String>().await, Err(ResultError::Misfit { .. })));
    everstep.start_instance("four_times", Some("two"), &60).await.unwrap();
    let Err(ResultError::Errored { error, .. }) =
        everstep.handle("four_times", "two").unwrap().result::<u64>().await
    else {
        panic!("it gave a result")
    };
    assert_eq!(error.name(), "TooLarge", "the child's error is its parent's");
    let nobody = everstep.handle("double", "nobody").unwrap().result::<u64>().await;
    assert!(matches!(nobody, Err(ResultError::NotFound(_))));
    everstep.start_instance("double", Some("three"), &1).await.unwrap();
    let three = everstep.handle("double", "three").unwrap();
    three.terminate(Some("enough")).await.unwrap();
    let Err(ResultError::Terminated { reason, .. }) = three.result::<u64>().await else {
        panic!("it gave a result")
    };
    assert_eq!(reason.as_deref(), Some("enough"));
    everstep.stop().await.unwrap();
}
