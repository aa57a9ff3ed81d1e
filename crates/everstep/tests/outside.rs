//! Code outside of workflows reads the same for an embedded system and for a fleet: one text, compiled against both, does the same
//! (rule P36 for results). The fleet is a coordinator's HTTP API, spoken to over TCP.
#![cfg(all(feature = "client", feature = "embedded"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everstep::{Error, Workflow, client::Client, embedded::Embedded};
use tokio::net::TcpListener;

#[everstep::workflow]
async fn order(cx: Workflow, n: u64) -> Result<u64, Error> {
    cx.publish(&"awaiting approval")?;
    if cx.event::<bool>("approval").await? {
        Ok(2 * n)
    } else {
        Err(Error::permanent("not approved").named("NotApproved"))
    }
}

macro_rules! outside {
    ($name:ident, $backend:ident, $system:ident) => {
        async fn $name(everstep: &$system) {
            use everstep::$backend::{OperationError, ResultError, SendEvent, Status};

            let approval = SendEvent::new("approval").id("approval-1");
            let one = everstep.start("order", Some("one"), &21).await.unwrap();
            assert_eq!((one.workflow(), one.id()), ("order", "one"));
            everstep.start("order", Some("one"), &21).await.expect("the same again is the same");
            everstep.start("order", Some("one"), &22).await.expect_err("another input");
            for _ in 0..2 {
                one.send_event(&approval, &true).await.expect("it is one event");
            }
            one.send_event(&approval, &false).await.expect_err("another event under its id");
            assert_eq!(one.result::<u64>().await.unwrap(), 42);
            assert_eq!(one.status().await.unwrap(), Some(Status::Complete));
            let misfit = one.result::<String>().await;
            assert!(matches!(misfit, Err(ResultError::Misfit { .. })), "{misfit:?}");
            let late = one.send_event(&SendEvent::new("approval"), &true).await;
            assert!(matches!(late, Err(OperationError::Refused { .. })), "{late:?}");
            assert!(matches!(one.pause().await, Err(OperationError::Refused { operation: "pause", .. })));

            let two = everstep.start("order", None, &1).await.unwrap();
            two.send_event(&SendEvent::new("approval"), &false).await.unwrap();
            let Err(ResultError::Errored { error, .. }) = two.result::<u64>().await else {
                panic!("it gave a result")
            };
            assert_eq!((error.name(), error.message()), ("NotApproved", "not approved"));

            let three = everstep.start("order", Some("three"), &1).await.unwrap();
            while three.state::<String>().await.unwrap().is_none() {}
            three.pause().await.unwrap();
            three.resume().await.unwrap();
            three.cancel(Some("enough")).await.unwrap();
            let cancelled = three.result::<u64>().await;
            assert!(matches!(cancelled, Err(ResultError::Cancelled { .. })), "{cancelled:?}");
            three.restart().await.unwrap();
            three.terminate(Some("more than enough")).await.unwrap();
            let Err(ResultError::Terminated { reason, .. }) = three.result::<u64>().await else {
                panic!("it gave a result")
            };
            assert_eq!(reason.as_deref(), Some("more than enough"));
            three.delete().await.unwrap();
            assert_eq!(three.status().await.unwrap(), None);

            let nobody = everstep.handle("order", "nobody").unwrap();
            assert!(matches!(nobody.result::<u64>().await, Err(ResultError::NotFound(_))));
            assert!(matches!(nobody.cancel(None).await, Err(OperationError::NotFound { .. })));
            everstep.handle("order", "no id").expect_err("it breaks the rule for ids");
        }
    };
}

outside!(of_embedded, embedded, Embedded);
outside!(of_fleet, client, Client);

async fn system(dir: &tempfile::TempDir) -> Embedded {
    let everstep = Embedded::open(dir.path().join("everstep.db"));
    everstep.workflow(order).start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_outside_code_of_an_embedded_system() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = system(&dir).await;
    of_embedded(&everstep).await;
    everstep.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p36_outside_code_of_a_fleet_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = system(&dir).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served =
        everstep_coordinator::http::serve(listener, everstep.coordinator().clone(), std::future::pending());
    let served = tokio::spawn(served);
    of_fleet(&Client::new(&url).unwrap()).await;

    // What cannot be understood, and who does not answer.
    let elsewhere = Client::new(&url).unwrap().namespace("elsewhere").unwrap();
    assert_eq!(elsewhere.handle("order", "one").unwrap().status().await.unwrap(), None);
    let refused = Client::new(&url).unwrap().start("order", Some("big"), &"x".repeat(2 << 20)).await;
    assert_eq!(refused.unwrap_err().code(), Some("too_large"));
    served.abort();
    drop(served.await);
    let nobody = Client::new(&url).unwrap().start("order", Some("two"), &1).await.unwrap_err();
    assert!(nobody.is_retry_safe() && nobody.to_string().contains("nothing was sent"), "{nobody}");
    Client::new("ftp://127.0.0.1").expect_err("it is no address of HTTP");
    everstep.stop().await.unwrap();
}
