//! Code outside of workflows reads the same for an embedded system and for a fleet: one text, compiled against both, does the same
//! (rule P36 for results). The fleet is a coordinator's HTTP API, spoken to over TCP.
#![cfg(all(feature = "client", feature = "embedded"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use everstep::{
    Error, Hook, Workflow,
    client::{Client, Resumed, StartHook, StartOutcome, StartStage},
    embedded::Embedded,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

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

macro_rules! hooks_from_outside {
    ($name:ident, $backend:ident, $system:ident) => {
        /// Hooks by the same names (rules H1, H11, H32, H46, H48, H50, H56, H57).
        async fn $name(everstep: &$system) {
            use everstep::$backend::{HookRetention, Resumed, StartHook};

            let json = |text: &str| everstep_protocol::Payload::from_text(text).unwrap();
            let hook = StartHook {
                retention: Some(HookRetention::parse("1 hour").unwrap()),
                metadata: Some(json(r#"{"shop":3}"#)),
                schema: Some(json(r#"{"type":"integer"}"#)),
                ..StartHook::new("sum:1".parse().unwrap())
            };
            let started = everstep.start_with_hook("sum", Some("s-1"), &2, hook.clone()).await.unwrap();
            assert_eq!((started.outcome, started.id.as_deref()), (StartOutcome::Created, Some("s-1")));
            let again = everstep.start_with_hook("sum", Some("s-1"), &2, hook.clone()).await.unwrap();
            assert_eq!(again.outcome, StartOutcome::Exists);
            let held = everstep.start_with_hook("sum", None, &2, hook).await.unwrap();
            let owner = held.owner.unwrap();
            assert_eq!((held.outcome, owner.id.as_str()), (StartOutcome::Conflict, "s-1"));

            let resume = async |id: &'static str, n: serde_json::Value| {
                everstep.resume_hook("sum:1", Some(id), &n).await.unwrap()
            };
            assert!(matches!(resume("r-1", "4".into()).await, Resumed::Unfit(_)));
            for _ in 0..2 {
                assert_eq!(resume("r-1", 4.into()).await, Resumed::Accepted { owner: owner.clone() });
            }
            assert_eq!(resume("r-1", 5.into()).await, Resumed::IdTaken);
            assert!(everstep.hook("sum:1").await.unwrap().is_some());
            assert_eq!(everstep.hooks(None, 10).await.unwrap().len(), 1);
            assert!(everstep.hooks(Some("sum:1"), 10).await.unwrap().is_empty());
            assert_eq!(resume("r-2", 38.into()).await, Resumed::Accepted { owner });
            assert_eq!(everstep.handle("sum", "s-1").unwrap().result::<u64>().await.unwrap(), 42);
            assert_eq!(resume("r-3", 1.into()).await, Resumed::NotFound);
            assert!(everstep.hook("sum:1").await.unwrap().is_some(), "it is kept by its retention");
            assert!(everstep.hook("nobody").await.unwrap().is_none());
        }
    };
}

hooks_from_outside!(hooks_of_embedded, embedded, Embedded);
hooks_from_outside!(hooks_of_fleet, client, Client);

outside!(of_embedded, embedded, Embedded);
outside!(of_fleet, client, Client);

#[everstep::workflow]
async fn sum(cx: Workflow, count: usize) -> Result<u64, Error> {
    let hook: Hook<u64> = cx.hook("numbers").token("sum:1").create()?.keep();
    let mut total = 0;
    for _ in 0..count {
        total += hook.next().await?;
    }
    Ok(total)
}

/// What becomes of a connection.
#[derive(Clone, Copy)]
enum Way {
    /// The request arrives, and its answer is lost.
    LosesAnswer,
    /// Not even the request arrives.
    LosesRequest,
    Open,
}

/// A way to a coordinator that loses what a test says, for each connection in turn, and nothing more after that.
async fn way_to(coordinator: &str, ways: Vec<Way>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = coordinator.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        let mut ways = ways.into_iter();
        while let Ok((mut client, _)) = listener.accept().await {
            let (to, way) = (to.clone(), ways.next().unwrap_or(Way::Open));
            tokio::spawn(async move {
                if matches!(way, Way::LosesRequest) {
                    drop(client.read(&mut [0; 16]).await);
                    return;
                }
                let mut server = TcpStream::connect(to).await.unwrap();
                if matches!(way, Way::Open) {
                    drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
                    return;
                }
                let mut first = [0; 16];
                let (mut from_client, mut to_client) = client.split();
                let (mut from_server, mut to_server) = server.split();
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
                    // The first of the answer: it was decided.
                    _ = from_server.read(&mut first) => {}
                }
                drop(to_client.shutdown().await);
            });
        }
    });
    url
}

async fn served(everstep: &Embedded) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(everstep_coordinator::http::serve(
        listener,
        everstep.coordinator().clone(),
        std::future::pending(),
    ));
    url
}

fn candidate(error: &everstep::client::Error, wanted: StartStage) -> String {
    match error {
        everstep::client::Error::StartUnknown { workflow, id, stage, is_repeatable, .. } => {
            assert_eq!((workflow.as_str(), *stage, *is_repeatable), ("sum", wanted, true));
            assert!(error.is_retry_safe() && error.code() == Some("unknown"));
            assert!(
                error.to_string().contains(id.as_str()) && error.to_string().contains("not known"),
                "{error}"
            );
            id.clone()
        }
        other => panic!("it is known: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h26_h27_h47_a_start_whose_answer_is_lost_is_unknown_and_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = system(&dir).await;
    let url = served(&everstep).await;
    let hook = || StartHook::new("sum:1".parse().unwrap());

    // Nothing arrived: the caller becomes the owner.
    let client = Client::new(&way_to(&url, vec![Way::LosesRequest]).await).unwrap();
    let lost =
        candidate(&client.start_with_hook("sum", None, &0, hook()).await.unwrap_err(), StartStage::Sent);
    assert!(everstep.instance("sum", &lost).await.unwrap().is_none());
    let mine = client.start_with_hook("sum", None, &0, hook()).await.unwrap();
    assert_eq!((mine.outcome, mine.owner), (StartOutcome::Created, None));
    everstep.handle("sum", &mine.id.unwrap()).unwrap().result::<u64>().await.unwrap();

    // It arrived: the caller is told the owner, which is its own candidate.
    let client = Client::new(&way_to(&url, vec![Way::LosesAnswer]).await).unwrap();
    let owner =
        candidate(&client.start_with_hook("sum", None, &1, hook()).await.unwrap_err(), StartStage::Sent);
    assert!(
        everstep.instance("sum", &owner).await.unwrap().is_some(),
        "the error names the one that was started"
    );
    let told = client.start_with_hook("sum", None, &1, hook()).await.unwrap();
    assert_eq!((told.outcome, told.owner.unwrap().id.as_str()), (StartOutcome::Conflict, owner.as_str()));
    let told = client.start_with_hook("sum", Some(&owner), &1, hook()).await.unwrap();
    assert_eq!((told.outcome, told.id), (StartOutcome::Exists, Some(owner.clone())));
    assert_eq!(
        everstep.find("sum", serde_json::json!({})).await.unwrap().len(),
        2,
        "no start made another one"
    );

    // A resume whose answer is lost is kept once, however often it is sent (rules H47, H48).
    let client = Client::new(&way_to(&url, vec![Way::LosesAnswer]).await).unwrap();
    let lost = client.resume_hook("sum:1", Some("r-1"), &42).await.unwrap_err();
    assert!(lost.is_retry_safe(), "{lost}");
    let again = client.resume_hook("sum:1", Some("r-1"), &42).await;
    assert!(!matches!(again, Ok(Resumed::IdTaken) | Err(_)), "{again:?}");
    assert_eq!(everstep.handle("sum", &owner).unwrap().result::<u64>().await.unwrap(), 42);
    everstep.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h26_a_decision_that_is_not_confirmed_is_unknown_and_names_its_stage() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        drop(client.read(&mut [0; 4096]).await);
        let body =
            r#"{"code":"unknown","status":503,"detail":"the store did not confirm","retry_safe":true}"#;
        let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        drop(client.write_all(answer.as_bytes()).await);
    });
    let client = Client::new(&url).unwrap();
    let hook = StartHook::new("sum:1".parse().unwrap());
    let unknown = client.start_with_hook("sum", Some("s-1"), &1, hook).await.unwrap_err();
    assert_eq!(candidate(&unknown, StartStage::Deciding), "s-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h01_h56_hooks_are_reached_by_the_same_names_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let everstep = system(&dir).await;
    hooks_of_embedded(&everstep).await;
    everstep.stop().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let everstep = system(&dir).await;
    hooks_of_fleet(&Client::new(&served(&everstep).await).unwrap()).await;
    everstep.stop().await.unwrap();
}

async fn system(dir: &tempfile::TempDir) -> Embedded {
    let everstep = Embedded::open(dir.path().join("everstep.db"));
    everstep.workflow(order).workflow(sum).start().await.unwrap()
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
