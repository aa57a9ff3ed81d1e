//! What people are asked, over HTTP (rule L8): listed, looked at, answered once. Who asks is decided by hand here: no worker runs.

use std::sync::{Arc, Mutex};

use everstep_engine::{
    Answer as Decided, Batch, Input, What,
    batch::{Rules, Verdict},
    place::Room,
    rows::Needs,
    start::NameKey,
};
use everstep_protocol::{
    Attempt, Call, CallKind, CallName, Class, Epoch, Failure, FailureKind, Fingerprint, InstanceUid, Millis,
    Payload, Policy, Position, SessionId, StepKey,
    journal::{Changed, Marks, ParkCode, Parked},
    message::{AttemptEnd, AttemptOutcome, Report, Then},
};
use everstep_store::Store;
use serde_json::{Value, json};

use crate::{
    INSTANCES,
    rig::{Answer, Rig},
};

async fn on(store: &Arc<dyn Store>, instance: InstanceUid, what: What) -> Decided {
    let input = Input::On { instance, what };
    let mut needs = Needs::default();
    input.needs(&mut needs);
    let answer = Arc::new(Mutex::new(None));
    let out = Arc::clone(&answer);
    let decide = move |loaded| {
        let (mut batch, mut room) = (Batch::new(loaded, Rules::default()), Room::default());
        let Verdict::Decided(answer) = batch.apply(&input, &mut room) else { panic!("it is decided") };
        *out.lock().unwrap() = Some(answer);
        batch.finish(&mut room).0
    };
    store.transact(needs, Box::new(decide)).await.expect("it is written");
    answer.lock().unwrap().take().expect("it was decided")
}

/// A worker takes the instance up and reports; gives the instance.
async fn reported(rig: &Rig, id: &str, results: Vec<AttemptEnd>, then: Then) -> InstanceUid {
    rig.post(INSTANCES, &json!({ "id": id }).to_string()).await;
    let name = NameKey {
        namespace: "default".parse().unwrap(),
        workflow: "fulfil".parse().unwrap(),
        id: id.parse().unwrap(),
    };
    let uid = rig.store.find(&name).await.unwrap().unwrap();
    let session = SessionId::generate();
    assert_eq!(on(&rig.store, uid, What::Claim { session, have: None }).await, Decided::Granted);
    let report = Report {
        instance: uid,
        epoch: Epoch(1),
        number: 1,
        seen: Position(1),
        results,
        opened: Vec::new(),
        closed: Vec::new(),
        then,
        folded: false,
        cached: false,
        state: None,
        attributes: Vec::new(),
        compensated: None,
        ledger: Vec::new(),
    };
    let build = "b1".parse().unwrap();
    on(&rig.store, uid, What::Report { session, build, report }).await;
    uid
}

fn unknown(sensitive: bool) -> AttemptEnd {
    let failure = Failure::new(FailureKind::TimedOut, "hunter2 took too long").of_sensitive(sensitive);
    let input = Payload::null();
    AttemptEnd {
        call: Call { kind: CallKind::Step, name: CallName::new("pay").unwrap(), count: 1 },
        attempt: Attempt(1),
        called_after: Position(1),
        ran_for: Millis(5),
        key: StepKey::derive(uuid::Uuid::nil(), 1, "step", "pay", 1, &input).unwrap(),
        input: Fingerprint::of(&input).unwrap(),
        policy: Policy { class: Class::AtMostOnce, ..Policy::default() },
        outcome: AttemptOutcome::Unknown { failure, asks: true, epoch: Epoch(1) },
        progress: None,
        marks: Marks { sensitive, ..Marks::default() },
        reference: None,
    }
}

async fn resolve(rig: &Rig, id: &str, question: &str, key: &str, body: &str) -> Answer {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    rig.ask("POST", &format!("{INSTANCES}/{id}/attention/{question}/resolve"), &headers, body).await
}

#[tokio::test]
async fn l08_a_question_is_listed_shown_and_answered_once() {
    let rig = Rig::new().await;
    reported(&rig, "o-1", vec![unknown(false)], Then::Suspend).await;
    let shown = rig.get(&format!("{INSTANCES}/o-1")).await.json();
    assert_eq!(
        (&shown["status"], &shown["reason"]["kind"]),
        (&json!("attention"), &json!("unknown_outcome"))
    );
    assert_eq!((&shown["questions"][0]["question"], &shown["attention"]), (&json!("1.2"), &json!(null)));
    assert_eq!(shown["waits"][0]["kind"], "person");
    let list = rig.get("/v1/default/attention").await.json();
    let item = &list["questions"][0];
    assert_eq!(
        (&item["workflow"], &item["id"], &item["kind"]),
        (&json!("fulfil"), &json!("o-1"), &json!("unknown_outcome"))
    );
    assert_eq!(item["choices"], json!(["done", "again", "fail"]));
    assert!(item["message"].as_str().unwrap().contains("attempt 1 of step \"pay\" #1"), "{item}");
    let one = rig.get(&format!("{INSTANCES}/o-1/attention/1.2")).await.json();
    assert_eq!(&one, item);
    assert_eq!(rig.get("/v1/default/attention?kind=poison").await.json()["questions"], json!([]));
    assert_eq!(rig.get("/v1/default/attention?older_than=1h").await.json()["questions"], json!([]));

    let detail = resolve(&rig, "o-1", "1.9", "k0", r#"{"choice":"again"}"#).await.problem(409, "not_asked");
    assert!(detail.contains("nothing was ever asked under 1.9"), "{detail}");
    let done = r#"{"choice":"done","output":{"receipt":1.10},"by":"ann","why":"it is in the bank's books"}"#;
    for _ in 0..2 {
        let answer = resolve(&rig, "o-1", "1.2", "k1", done).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("queued")), "{}", answer.body);
    }
    let detail = resolve(&rig, "o-1", "1.2", "k2", done).await.problem(409, "not_asked");
    assert!(detail.contains("it was answered by ann: done"), "{detail}");
    rig.get(&format!("{INSTANCES}/o-1/attention/1.2")).await.problem(404, "question_not_found");
    let journal = rig.get(&format!("{INSTANCES}/o-1/journal")).await;
    let entries = journal.json();
    assert_eq!(entries["entries"][1]["outcome"], "unknown");
    assert_eq!(
        (&entries["entries"][1]["class"], &entries["entries"][1]["asks"]),
        (&json!("at_most_once"), &json!(true))
    );
    let resolved = &entries["entries"][2];
    assert_eq!(
        (&resolved["kind"], &resolved["choice"], &resolved["by"]),
        (&json!("resolved"), &json!("done"), &json!("ann"))
    );
    assert!(journal.body.contains(r#""output":{"receipt":1.10}"#), "every digit is kept: {}", journal.body);
}

#[tokio::test]
async fn l08_what_is_parked_is_in_the_same_list_with_choices_of_its_own() {
    let rig = Rig::new().await;
    let why = Parked::new(ParkCode::BodyPanicked, "it panicked".to_owned());
    reported(&rig, "o-1", Vec::new(), Then::Park(why)).await;
    let list = rig.get("/v1/default/attention?kind=body_panicked").await.json();
    let item = &list["questions"][0];
    assert_eq!((&item["question"], &item["choices"]), (&json!("parked"), &json!(["retry", "terminate"])));
    resolve(&rig, "o-1", "parked", "k1", r#"{"choice":"done"}"#).await.problem(400, "body");
    let answer = resolve(&rig, "o-1", "parked", "k2", r#"{"choice":"retry"}"#).await;
    assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("queued")));
    resolve(&rig, "o-1", "parked", "k3", r#"{"choice":"retry"}"#).await.problem(409, "not_parked");
}

#[tokio::test]
async fn l08_what_is_wrong_about_an_answer_is_named() {
    let rig = Rig::new().await;
    reported(&rig, "o-1", vec![unknown(false)], Then::Suspend).await;
    for (question, body, status, code) in [
        ("1.2", "{}", 400, "body"),
        ("1.2", r#"{"choice":"perhaps"}"#, 400, "body"),
        ("1.2", r#"{"choice":"done","colour":1}"#, 400, "unknown_field"),
        ("first", r#"{"choice":"again"}"#, 400, "path"),
    ] {
        resolve(&rig, "o-1", question, "k", body).await.problem(status, code);
    }
    resolve(&rig, "nobody", "1.2", "k", r#"{"choice":"again"}"#).await.problem(404, "not_found");
    for query in ["kind=x", "older_than=soon", "after=x", "limit=0", "colour=red"] {
        rig.get(&format!("/v1/default/attention?{query}")).await.problem(400, "query");
    }
}

#[tokio::test]
async fn l08_a_sensitive_step_hides_what_it_failed_with() {
    let rig = Rig::new().await;
    reported(&rig, "o-1", vec![unknown(true)], Then::Suspend).await;
    for path in
        ["/v1/default/attention".to_owned(), format!("{INSTANCES}/o-1"), format!("{INSTANCES}/o-1/journal")]
    {
        let shown = rig.get(&path).await.body;
        assert!(shown.contains("pay") && !shown.contains("hunter2"), "{path}: {shown}");
    }
}

#[tokio::test]
async fn l14_an_auditor_reads_what_an_instance_did_and_finds_it_by_key_and_reference() {
    let rig = Rig::new().await;
    let reference = everstep_protocol::Reference::of("T-99");
    reported(&rig, "o-1", vec![AttemptEnd { reference, ..unknown(false) }], Then::Suspend).await;
    let done = r#"{"choice":"done","output":1,"by":"ann","why":"line 4"}"#;
    assert_eq!(resolve(&rig, "o-1", "1.2", "k1", done).await.status, 200);
    let list = rig.get(&format!("{INSTANCES}/o-1/ledger")).await.json();
    let entry = &list["entries"][0];
    for (field, value) in [
        ("workflow", json!("fulfil")),
        ("id", json!("o-1")),
        ("run", json!(1)),
        ("class", json!("at_most_once")),
        ("calls", json!(1)),
        ("outcome", json!("succeeded")),
        ("reference", json!("T-99")),
    ] {
        assert_eq!(entry[field], value, "{entry}");
    }
    assert_eq!(entry["call"]["name"], "pay");
    let decision = &entry["decision"];
    assert_eq!(
        (&decision["choice"], &decision["by"], &decision["why"]),
        (&json!("done"), &json!("ann"), &json!("line 4"))
    );
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1/ledger?step=pay")).await.json(), list);
    let none = json!({ "entries": [] });
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1/ledger?step=ship")).await.json(), none);
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1/ledger?after=2")).await.json(), none);
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1/ledger?limit=1")).await.json()["next"], 2);
    assert_eq!(rig.get(&format!("{INSTANCES}/o-1/ledger?run=1")).await.json(), list);
    let detail = rig.get(&format!("{INSTANCES}/o-1/ledger?run=2")).await.problem(400, "query");
    assert!(detail.contains("runs 1 to 1"), "{detail}");
    let one = rig.get("/v1/default/ledger?reference=T-99&limit=1").await.json();
    assert_eq!(one["truncated"], true);

    let key = entry["key"].as_str().unwrap();
    assert_eq!(rig.get("/v1/default/ledger?reference=T-99").await.json(), list);
    for since in ["", "&since=2020-01-01T00:00:00Z", "&since=1%20hour"] {
        assert_eq!(rig.get(&format!("/v1/default/ledger?key={key}{since}")).await.json(), list, "{since}");
    }
    let before =
        format!("/v1/default/ledger?key={key}&since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z");
    assert_eq!(rig.get(&before).await.json(), none);
    for (query, says) in [
        ("", "either key or reference"),
        ("reference=a&key=b", "either key or reference"),
        ("key=5e5e&since=2020-01-01T00:00:00Z", "64 lowercase hexadecimal digits"),
        (&format!("key={key}&since=yesterday"), "since \"yesterday\""),
        (&format!("key={key}&until=1%20day"), "until \"1 day\""),
        ("reference=a&since=2020-01-01T00:00:00Z", "found without them"),
        ("reference=a&limit=0", "1 to 1000"),
        ("reference=a&step=b", "step"),
    ] {
        let detail = rig.get(&format!("/v1/default/ledger?{query}")).await.problem(400, "query");
        assert!(detail.contains(says), "{query}: {detail}");
    }
    rig.get("/v1/default/ledger?reference=").await.problem(400, "name");
    rig.get(&format!("{INSTANCES}/o-2/ledger")).await.problem(404, "not_found");
}

#[tokio::test]
async fn p08_the_key_under_which_another_input_goes_on_is_chosen_where_everything_is_answered() {
    let rig = Rig::new().await;
    let parked = |code| Parked::new(code, "the code gives it another input");
    let call = Call { kind: CallKind::Step, name: "pay".parse().unwrap(), count: 1 };
    let (input, key) = (Fingerprint::from_bytes([2; 32]), "01".repeat(32).parse::<StepKey>().unwrap());
    let changed = Changed { call, input, key, asked_at: None };
    let asks = Parked { changed: Some(Box::new(changed)), ..parked(ParkCode::InputChanged) };
    reported(&rig, "o-1", Vec::new(), Then::Park(asks)).await;
    reported(&rig, "o-2", Vec::new(), Then::Park(parked(ParkCode::InputChanged))).await;
    let list = rig.get("/v1/default/attention?kind=input_changed").await.json();
    let asked = |at: usize| {
        let question = &list["questions"][at];
        (question["question"].clone(), question["choices"].clone(), question["call"]["name"].clone())
    };
    assert_eq!(asked(0), (json!("1.2"), json!(["old_key", "new_key", "retry", "terminate"]), json!("pay")));
    assert_eq!(asked(1), (json!("parked"), json!(["retry", "terminate"]), Value::Null), "of a remote step");
    assert_eq!(list["questions"][0]["key"], json!(key.to_string()));
    let one = rig.get(&format!("{INSTANCES}/o-1/attention/1.2")).await.json();
    assert_eq!(one, rig.get(&format!("{INSTANCES}/o-1/attention/parked")).await.json(), "the same question");

    let new_key = r#"{"choice":"new_key","by":"ann","why":"v2"}"#;
    for (instance, question) in [("o-2", "1.2"), ("o-1", "1.1"), ("o-1", "2.2")] {
        let detail = resolve(&rig, instance, question, "k0", new_key).await.problem(409, "not_asked");
        assert!(detail.contains("a step whose input has changed"), "{detail}");
    }
    let detail = resolve(&rig, "o-1", "parked", "k0", new_key).await.problem(400, "body");
    assert!(detail.contains("old_key and new_key answer the question about the step"), "{detail}");
    let detail = resolve(&rig, "o-1", "1.1", "k0", r#"{"choice":"retry"}"#).await.problem(409, "not_asked");
    assert!(detail.contains("a step whose input has changed"), "{detail}");
    let with_output = r#"{"choice":"old_key","output":1}"#;
    let detail = resolve(&rig, "o-1", "1.2", "k0", with_output).await.problem(400, "body");
    assert!(detail.contains("no part of an answer about a step's key"), "{detail}");
    for _ in 0..2 {
        let answer = resolve(&rig, "o-1", "1.2", "k1", new_key).await;
        assert_eq!((answer.status, &answer.json()["status"]), (200, &json!("queued")), "{}", answer.body);
    }
    let journal = rig.get(&format!("{INSTANCES}/o-1/journal")).await.json();
    let entry = &journal["entries"][2];
    assert_eq!(
        (&entry["kind"], &entry["choice"], &entry["by"], &entry["why"], &entry["call"]["name"]),
        (&json!("rekeyed"), &json!("new_key"), &json!("ann"), &json!("v2"), &json!("pay"))
    );
    assert_eq!((&entry["fingerprint"], &entry["key"]), (&json!(input.to_string()), &Value::Null));
}
