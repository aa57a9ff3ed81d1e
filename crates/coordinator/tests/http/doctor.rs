//! The doctor and the auditor's records over HTTP, on a real coordinator: one that is well, and one to which faults are done that show
//! in its store and broker. What is found in which facts, one by one, is proved beside the code.

use everstep_broker::{Broker, Declaration, QueueDeclaration, QueueKind};
use everstep_engine::{
    Writes,
    batch::ReadyRow,
    breach::BreachKind,
    rows::{Needs, Subject, WaitKind, WaitRow},
    start::NameKey,
};
use everstep_protocol::{
    Call, CallKind, CallName, InstanceUid, Namespace, Payload, Run, Timestamp,
    journal::{ParkCode, Parked},
    topology,
};
use everstep_store::{BreachRow, Rejected};
use serde_json::{Value, json};

use crate::rig::Rig;

fn named(id: &str) -> NameKey {
    NameKey { namespace: Namespace::default(), workflow: "fulfil".parse().unwrap(), id: id.parse().unwrap() }
}

/// What was found: check, severity and subject.
fn found(report: &Value) -> Vec<[&str; 3]> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| ["check", "severity", "subject"].map(|key| finding[key].as_str().unwrap()))
        .collect()
}

/// Asks until the duties are held, which a coordinator takes as it begins.
async fn report(rig: &Rig) -> Value {
    loop {
        let report = rig.get("/v1/doctor").await.json();
        if found(&report).iter().all(|[check, ..]| *check != "duties") {
            return report;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_installation_that_is_well_is_healthy() {
    let rig = Rig::new().await;
    let report = report(&rig).await;
    assert_eq!(report["healthy"], json!(true), "{report:#}");
    assert_eq!(found(&report), [["sessions", "note", "workers"]], "nobody has started one");
    let states: Vec<_> =
        report["checks"].as_array().unwrap().iter().map(|check| check["state"].clone()).collect();
    assert!(states.len() == 16 && !states.contains(&json!("unknown")), "{states:?}");
}

#[tokio::test]
async fn what_differs_in_the_broker_is_found() {
    let rig = Rig::new().await;
    report(&rig).await;
    let (gone, other) = (Namespace::default(), "default".parse().unwrap());
    let (gone, other) = (topology::rejected_queue(&gone), topology::dead_queue(&other));
    let delete = [gone.as_str(), other.as_str()].map(Declaration::delete_queue).to_vec();
    rig.broker.declare(delete).await.unwrap();
    rig.broker.declare(vec![QueueDeclaration::new(&other, QueueKind::Classic).into()]).await.unwrap();
    let said = report(&rig).await;
    let expected = [["topology", "warning", other.as_str()], ["topology", "warning", gone.as_str()]];
    for finding in expected {
        assert!(found(&said).contains(&finding), "{said:#}");
    }
    assert_eq!(said["healthy"], json!(false));
    // What was missing is there again; what differs is not changed by looking.
    let again = report(&rig).await;
    assert!(!found(&again).contains(&expected[1]) && found(&again).contains(&expected[0]), "{again:#}");
}

#[tokio::test]
async fn what_is_wrong_in_the_store_is_found() {
    let rig = Rig::new().await;
    report(&rig).await;
    let uid = InstanceUid::generate();
    let call = Call { kind: CallKind::Sleep, name: CallName::new("s").unwrap(), count: 1 };
    let wait = WaitRow {
        call,
        kind: WaitKind::Sleep,
        since: Timestamp(1),
        due_at: Some(Timestamp(1)),
        awaited: None,
        question: None,
    };
    let ready = ReadyRow {
        uid,
        subject: Subject::INSTANCE,
        namespace: Namespace::default(),
        workflow: "ghost".parse().unwrap(),
        build: None,
        pool: None,
        ready_at: Timestamp(1),
        offered: false,
    };
    let parked = (uid, Timestamp(1), Parked::new(ParkCode::Poison, "dead".to_owned()));
    let writes =
        Writes { waits: vec![(uid, wait)], ready: vec![ready], parked: vec![parked], ..Writes::default() };
    rig.store.transact(Needs::default(), Box::new(|_| writes)).await.unwrap();
    let rejected = Rejected {
        namespace: Namespace::default(),
        code: "name".to_owned(),
        reason: "no name".to_owned(),
        headers: Payload::null(),
        body: Vec::new(),
        body_bytes: 0,
        message: None,
        decided: None,
    };
    rig.store.reject(&[rejected]).await.unwrap();
    let message = "what was wrong".to_owned();
    let breach = BreachRow { uid, name: named("o-1"), run: Run(1), kind: BreachKind::Idle, message };
    rig.store.keep_breaches(&[breach]).await.unwrap();

    let said = report(&rig).await;
    for finding in [
        ["timers", "critical", "timers"],
        ["queues", "critical", "workflow ghost"],
        ["attention", "warning", "poison"],
        ["breaches", "warning", "idle"],
        ["rejected", "warning", "name"],
    ] {
        assert!(found(&said).contains(&finding), "{finding:?} {said:#}");
    }
    let severities: Vec<_> = found(&said).iter().map(|finding| finding[1]).collect();
    assert!(
        severities.is_sorted_by_key(|word| ["critical", "warning", "note"].iter().position(|is| is == word))
    );

    let listed = rig.get("/v1/default/breaches?limit=1").await.json();
    let breach = &listed["breaches"][0];
    assert_eq!(
        (&breach["kind"], &breach["workflow"], &breach["id"]),
        (&json!("idle"), &json!("fulfil"), &json!("o-1"))
    );
    assert_eq!(breach["message"], json!("what was wrong"));
    assert_eq!(rig.get("/v1/other/breaches").await.json(), json!({"breaches": []}));
    assert!(rig.get("/v1/default/breaches?limit=0").await.problem(400, "query").contains("limit"));
}
