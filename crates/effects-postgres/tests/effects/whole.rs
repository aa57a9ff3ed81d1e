//! A whole system whose step fails after its commit: the retry finds what was written.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use everstep::{Error, Registry, Retry, Step, Workflow, embedded::Embedded};
use everstep_postgres::once;

use super::rig::{Rig, connect, pay};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l12_a_step_that_fails_after_its_commit_has_written_once() {
    let rig = Rig::new().await;
    let url = rig.installation.postgres.clone();
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let workflow = move |cx: Workflow, cents: i64| {
        let (url, ran) = (url.clone(), counted.clone());
        let pay_out = move |step: Step, cents: i64| {
            let (url, ran) = (url.clone(), ran.clone());
            async move {
                let mut client = connect(&url).await;
                let id = once(&step, &mut client, async |tx| {
                    ran.fetch_add(1, Ordering::SeqCst);
                    pay(tx, cents).await
                });
                let id = id.await?;
                if step.attempt() < 3 { Err(Error::failed("died before it could report")) } else { Ok(id) }
            }
        };
        async move { cx.step("pay out", cents, pay_out).retry(Retry::constant("5ms").limit(5)).await }
    };
    let dir = tempfile::tempdir().unwrap();
    let everstep = Embedded::open(dir.path().join("everstep.db"))
        .registry(Registry::new().workflow_fn("pay", workflow))
        .start()
        .await
        .unwrap();
    let paid = everstep.start("pay", Some("one"), &500).await.unwrap();
    assert_eq!(paid.result::<i64>().await.unwrap(), 1);
    everstep.stop().await.unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), rig.counts().await), (1, (1, 1)));
}
