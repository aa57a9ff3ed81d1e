//! Schedules over HTTP (rules S1, S5, S10 to S15). There is no worker, so what is started stays queued.

use everstep_engine::{
    access::Asker,
    action::{Action, Target},
    schedule::{Definition, Overlap, Run, State, Turn, When},
    start::NameKey,
};
use everstep_protocol::{CoordinatorId, Millis, Namespace, ScheduleId, Scope};
use everstep_store::ScheduleChange;
use serde_json::{Value, json};

use crate::rig::{Answer, Rig};

const SCHEDULES: &str = "/v1/default/schedules";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn put(rig: &Rig, id: &str, body: &Value) -> Answer {
    rig.ask("PUT", &format!("{SCHEDULES}/{id}"), &JSON, &body.to_string()).await
}

async fn get(rig: &Rig, id: &str) -> Value {
    rig.get(&format!("{SCHEDULES}/{id}")).await.json()
}

/// Waits until a schedule looks like this.
async fn until(rig: &Rig, id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    loop {
        let view = get(rig, id).await;
        if is_so(&view) {
            return view;
        }
        tokio::task::yield_now().await;
    }
}

fn instance(id: &Value) -> String {
    format!("/v1/default/workflows/report/instances/{}", id.as_str().unwrap())
}

#[tokio::test]
async fn s01_a_schedule_is_created_changed_listed_and_deleted() {
    let rig = Rig::new().await;
    let body = json!({
        "workflow": "report", "input": {"n": 1}, "cron": "30 2 * * MON", "zone": "Europe/Berlin", "overlap": "queue",
        "retention": "1 day", "attributes": {"team": "blue"}, "jitter": "30 s", "limit": 10_000,
    });
    let created = put(&rig, "nightly", &body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let view = created.json();
    assert_eq!(
        (&view["state"], &view["queue_max"], &view["catch_up"]),
        (&json!("active"), &json!(100), &json!("latest"))
    );
    assert_eq!(view["retention"], json!({"complete": "1d", "failed": "1d"}));
    let next = view["next"].as_array().unwrap();
    assert_eq!(next.len(), 5);
    let due = next[0]["due"].as_str().unwrap();
    assert!(due.ends_with("T00:30:00.000000Z") || due.ends_with("T01:30:00.000000Z"), "{due}");
    assert!(next[0]["starts_at"].as_str() >= next[0]["due"].as_str());
    let again = put(&rig, "nightly", &body).await;
    assert_eq!(
        (again.status, again.json()["changed_at"].clone()),
        (200, view["changed_at"].clone()),
        "nothing changed"
    );
    let changed =
        put(&rig, "nightly", &json!({"workflow": "report", "every": "1 hour", "offset": "10 min"})).await;
    assert_eq!((changed.status, changed.json()["every"].clone()), (200, json!("1h")));
    assert_eq!(changed.json()["created_at"], view["created_at"]);

    put(&rig, "a", &json!({"workflow": "report", "every": "1 hour"})).await;
    let list = rig.get(&format!("{SCHEDULES}?limit=1")).await.json();
    assert_eq!((&list["schedules"][0]["id"], &list["next"]), (&json!("a"), &json!("a")));
    let list = rig.get(&format!("{SCHEDULES}?after=a")).await.json();
    assert_eq!((&list["schedules"][0]["id"], &list["next"]), (&json!("nightly"), &json!(null)));
    let many = rig.get(&format!("{SCHEDULES}/a?next=100")).await.json();
    assert_eq!(many["next"].as_array().unwrap().len(), 100);

    let path = format!("{SCHEDULES}/a");
    let deleted = rig.ask("DELETE", &format!("{path}?by=ann"), &[], "").await;
    assert_eq!(deleted.status, 204);
    rig.ask("DELETE", &path, &[], "").await.problem(404, "not_found");
    rig.get(&path).await.problem(404, "not_found");
}

#[tokio::test]
async fn s01_what_cannot_be_meant_is_refused_and_named() {
    let rig = Rig::new().await;
    for (body, code, part) in [
        (json!({"workflow": "report", "cron": "61 * * * *"}), "schedule", "cron \"61 * * * *\" is refused"),
        (
            json!({"workflow": "report", "cron": "* * * * *", "zone": "Mars/Olympus"}),
            "schedule",
            "zone \"Mars/Olympus\"",
        ),
        (json!({"workflow": "report", "cron": "0 0 30 2 *"}), "schedule", "names no moment"),
        (json!({"workflow": "report", "at": "2001-01-01T00:00:00Z"}), "schedule", "no due time after now"),
        (
            json!({"workflow": "report", "every": "1 s", "until": "2001-01-01T00:00:00Z"}),
            "schedule",
            "no due time after now",
        ),
        (json!({"workflow": "report"}), "schedule", "one of cron, every and at"),
        (
            json!({"workflow": "report", "every": "1 h", "attributes": {"everstep.schedule": "x"}}),
            "schedule",
            "attributes",
        ),
    ] {
        let detail = put(&rig, "nightly", &body).await.problem(422, code);
        assert!(detail.contains(part), "{detail}");
    }
    put(&rig, "nightly", &json!({"workflow": "report", "hours": 1})).await.problem(400, "unknown_field");
    put(&rig, "a:b", &json!({"workflow": "report", "every": "1 h"})).await.problem(400, "name");
    put(&rig, "a", &json!({"workflow": "report", "every": "1 h", "input": "x".repeat(99)}))
        .await
        .problem(413, "too_large");
    put(&rig, "a?by=", &json!({"workflow": "report", "every": "1 h"})).await.problem(400, "query");
    rig.get(&format!("{SCHEDULES}/a?next=101")).await.problem(400, "query");
    for (route, body) in [("pause", "{}"), ("resume", "{}"), ("trigger", ""), ("changes", "")] {
        if route != "changes" {
            rig.post(&format!("{SCHEDULES}/nightly/{route}"), body).await.problem(404, "not_found");
        }
    }
    assert_eq!(rig.get(SCHEDULES).await.json(), json!({"schedules": [], "next": null}));
}

#[tokio::test]
async fn s05_what_is_due_is_started_under_an_id_that_says_when() {
    let rig = Rig::new().await;
    let body = json!({
        "workflow": "report", "input": {"n": 1}, "every": "1 s", "overlap": "allow", "limit": 2, "attributes": {"team": "blue"},
    });
    put(&rig, "ticks", &body).await;
    let view = until(&rig, "ticks", |view| view["counts"]["started"] == json!(2)).await;
    assert_eq!((&view["state"], &view["next"]), (&json!("ended"), &json!([])), "the limit is reached");
    for action in view["recent"].as_array().unwrap() {
        let due: String =
            action["due"].as_str().unwrap()[..19].chars().filter(|c| !"-:".contains(*c)).collect();
        assert_eq!(action["instance"], json!(format!("ticks:{due}Z")));
        let started = rig.get(&instance(&action["instance"])).await.json();
        let attributes = json!({"everstep.schedule": "ticks", "team": "blue"});
        assert_eq!((&started["status"], &started["attributes"]), (&json!("queued"), &attributes));
    }
    let found = rig.get("/v1/default/instances?attribute=everstep.schedule%3Dticks").await.json();
    assert_eq!(found["instances"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn s08_what_is_open_is_skipped_terminated_or_waited_for() {
    let rig = Rig::new().await;
    put(&rig, "skips", &json!({"workflow": "report", "every": "1 s"})).await;
    put(
        &rig,
        "kills",
        &json!({"workflow": "report", "every": "1 s", "overlap": "terminate_other", "limit": 2}),
    )
    .await;
    put(&rig, "waits", &json!({"workflow": "report", "every": "1 s", "overlap": "queue_one", "limit": 2}))
        .await;
    let skips = until(&rig, "skips", |view| view["counts"]["skipped"].as_u64() >= Some(2)).await;
    assert_eq!((&skips["counts"]["started"], skips["open"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(skips["recent"][0]["outcome"], "overlap", "what is alike is one line");
    assert!(skips["recent"][0]["times"].as_u64() >= Some(2));
    let kills = until(&rig, "kills", |view| view["counts"]["started"] == json!(2)).await;
    let first = rig.get(&instance(&kills["recent"][1]["instance"])).await.json();
    assert_eq!(first["status"], "terminated");
    assert!(first["termination"]["reason"].as_str().unwrap().contains("schedule kills"));
    let waits =
        until(&rig, "waits", |view| view["waiting"].as_array().is_some_and(|waits| waits.len() == 1)).await;
    let open = instance(&waits["open"][0]["id"]);
    rig.post(&format!("{open}/terminate"), "{}").await;
    let waits = until(&rig, "waits", |view| view["counts"]["started"] == json!(2)).await;
    assert_eq!(waits["waiting"], json!([]));
}

/// Whoever had written that an instance is to end has died before it was asked.
#[tokio::test]
async fn s08_what_is_to_end_is_asked_to_whoever_dies_before() {
    for overlap in [Overlap::CancelOther, Overlap::TerminateOther] {
        let rig = Rig::new().await;
        rig.post("/v1/default/workflows/report/instances", r#"{"id":"open"}"#).await;
        let (namespace, id) = (Namespace::default(), "daily".parse::<ScheduleId>().unwrap());
        let now = rig.store.schedule(&namespace, &id).await.unwrap().now;
        let daily = When::every(Millis::from_secs(86_400));
        let definition = Definition { overlap, ..Definition::starts("report", &1, daily).unwrap() };
        let workflow = definition.workflow.clone();
        let run = Run { workflow: workflow.clone(), id: "open".parse().unwrap(), since: now };
        let state = State { stopping: vec![run.id.clone()], open: vec![run], ..State::new(now) };
        let action =
            Action::done(&Asker::program(), Scope::Of(namespace.clone()), Target::Schedule(&id), "put");
        let change = ScheduleChange {
            namespace,
            id,
            version: None,
            after: Some((definition, Turn { state, wake_at: Some(now) })),
            action,
        };
        assert!(rig.store.change_schedule(&change).await.unwrap());
        // There is no worker that could heed a cancel.
        let name = NameKey { namespace: Namespace::default(), workflow, id: "open".parse().unwrap() };
        loop {
            let view = rig.store.instance(&name).await.unwrap().unwrap();
            let is_cancel = overlap == Overlap::CancelOther;
            if (is_cancel && view.control.cancel.is_some()) || view.ended_at.is_some() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn s10_a_start_that_is_refused_is_said_and_others_go_on() {
    let rig = Rig::new().await;
    put(&rig, "strict", &json!({"workflow": "report", "every": "1 s", "strict": true, "overlap": "allow"}))
        .await;
    put(&rig, "free", &json!({"workflow": "report", "every": "1 s", "overlap": "allow"})).await;
    let strict = until(&rig, "strict", |view| view["counts"]["refused"].as_u64() >= Some(2)).await;
    assert_eq!((&strict["failing"]["code"], &strict["state"]), (&json!("not_served"), &json!("active")));
    assert_eq!(strict["counts"]["started"], 0);
    let free = until(&rig, "free", |view| view["counts"]["started"].as_u64() >= Some(2)).await;
    assert_eq!(free["failing"], json!(null));
}

#[tokio::test]
async fn s11_s13_a_paused_schedule_starts_nothing_but_by_hand() {
    let rig = Rig::new().await;
    put(&rig, "ticks", &json!({"workflow": "report", "every": "1 s", "overlap": "allow"})).await;
    let path = format!("{SCHEDULES}/ticks");
    let paused = rig.post(&format!("{path}/pause?by=ann"), r#"{"note":"the bank is down"}"#).await.json();
    assert_eq!((&paused["state"], &paused["next"]), (&json!("paused"), &json!([])));
    assert_eq!(paused["paused"]["note"], "the bank is down");
    let before = paused["counts"]["started"].clone();
    let headers = [("content-type", "application/json"), ("idempotency-key", "k-1")];
    let first = rig.ask("POST", &format!("{path}/trigger"), &headers, "").await;
    let again = rig.ask("POST", &format!("{path}/trigger"), &headers, "").await;
    assert_eq!((first.status, again.json()), (201, first.json()), "one instance");
    let name = first.json();
    assert!(name["id"].as_str().unwrap().starts_with("ticks:by-hand-"));
    assert_eq!(rig.get(&instance(&name["id"])).await.json()["status"], "queued");
    let view = get(&rig, "ticks").await;
    assert_eq!(view["counts"]["started"].as_u64(), before.as_u64().map(|count| count + 1));
    let resumed = rig.post(&format!("{path}/resume?by=bob"), "{}").await.json();
    assert_eq!(resumed["state"], "active");
    assert_eq!(resumed["counts"]["missed"], 0);

    let changes = rig.get(&format!("{path}/changes")).await.json();
    let told: Vec<_> = changes["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (&change["operation"], &change["by"]))
        .collect();
    let (none, trigger) = (json!(null), json!("trigger"));
    assert_eq!(told[0], (&json!("resume"), &json!("bob")));
    assert!(told[1..told.len() - 2].iter().all(|change| *change == (&trigger, &none)), "{told:?}");
    assert_eq!(told[told.len() - 2..], [(&json!("pause"), &json!("ann")), (&json!("put"), &none)]);
}

#[tokio::test]
async fn s12_a_span_is_the_same_when_it_is_asked_for_again_and_can_be_stopped() {
    let rig = Rig::new().await;
    put(&rig, "hourly", &json!({"workflow": "report", "every": "1 hour"})).await;
    let path = format!("{SCHEDULES}/hourly/backfill");
    let span = r#"{"from":"2026-01-01T00:00:00Z","until":"2026-01-06T00:00:00Z"}"#;
    let headers = [("content-type", "application/json"), ("idempotency-key", "k-1")];
    rig.ask("POST", &path, &headers, span).await;
    // One after the other, and the first is never taken up.
    until(&rig, "hourly", |view| view["counts"]["started"] == json!(1)).await;
    let stopped = rig.post(&format!("{path}/stop?by=ann"), r#"{"id":"k-1"}"#).await;
    assert_eq!((stopped.status, stopped.json()["backfills"].clone()), (200, json!([])), "{}", stopped.body);
    let again = rig.ask("POST", &path, &headers, span).await;
    assert_eq!((again.status, again.json()["backfills"].clone()), (200, json!([])), "it is known");
    assert_eq!(rig.post(&format!("{path}/stop"), "{}").await.status, 200, "there is nothing to stop");
    rig.post(&format!("{path}/stop"), r#"{"id":""}"#).await.problem(422, "schedule");
    rig.post(&format!("{SCHEDULES}/none/backfill/stop"), "{}").await.problem(404, "not_found");
    let long = r#"{"from":"1970-01-01T00:00:00Z","until":"2026-01-06T00:00:00Z"}"#;
    let detail = rig.post(&path, long).await.problem(422, "schedule");
    assert!(detail.contains("at most 10000 due times"), "{detail}");
    // Newest first: the second stop, the same span again, the first stop.
    let changes = rig.get(&format!("{SCHEDULES}/hourly/changes?limit=3")).await.json();
    let told =
        |nth: usize| (changes["changes"][nth]["operation"].clone(), changes["changes"][nth]["by"].clone());
    assert_eq!(told(0), (json!("stop-backfill"), json!(null)), "{changes}");
    assert_eq!(told(2), (json!("stop-backfill"), json!("ann")), "{changes}");
}

#[tokio::test]
async fn s12_a_span_is_made_up_for_and_what_was_started_is_there_already() {
    let rig = Rig::new().await;
    put(&rig, "hourly", &json!({"workflow": "report", "every": "1 hour", "overlap": "allow"})).await;
    let path = format!("{SCHEDULES}/hourly/backfill");
    let span = r#"{"from":"2026-01-01T00:00:00Z","until":"2026-01-06T00:00:00Z"}"#;
    let begun = rig.post(&format!("{path}?by=ann"), span).await;
    assert_eq!(begun.status, 200, "{}", begun.body);
    let view = until(&rig, "hourly", |view| view["counts"]["started"] == json!(120)).await;
    assert_eq!(view["backfills"], json!([]));
    let first = rig.get(&instance(&json!("hourly:20260101T000000Z"))).await;
    assert_eq!(first.status, 200);
    rig.post(&path, span).await;
    let view = until(&rig, "hourly", |view| view["counts"]["existed"] == json!(120)).await;
    assert_eq!(view["counts"]["started"], 120, "none is started twice");
    for (body, part) in [
        (r#"{"from":"2026-01-01T00:00:00Z"}"#, "until is refused"),
        (r#"{"from":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}"#, "later than from"),
        (r#"{"from":"9999-01-02T00:00:00Z","until":"9999-01-03T00:00:00Z"}"#, "later than from"),
    ] {
        let detail = rig.post(&path, body).await.problem(422, "schedule");
        assert!(detail.contains(part), "{detail}");
    }
}

/// Whoever has the duty starts what is due; while somebody else has it, nobody here does.
#[tokio::test]
async fn s05_the_duty_decides_who_starts() {
    const DUTY: [&str; 1] = ["schedules"];
    let (other, ttl) = (CoordinatorId::generate(), Millis::from_secs(600));
    let rig = Rig::with(async |store| {
        store.duties(other, &DUTY, ttl).await.unwrap();
    })
    .await;
    put(&rig, "ticks", &json!({"workflow": "report", "every": "1 s", "overlap": "allow"})).await;
    let first = get(&rig, "ticks").await["next"][0]["due"].clone();
    let passed = until(&rig, "ticks", |view| view["next"][0]["due"].as_str() > first.as_str()).await;
    assert_eq!(passed["counts"]["started"], 0);
    rig.store.release_duties(other).await.unwrap();
    until(&rig, "ticks", |view| view["counts"]["started"].as_u64() >= Some(1)).await;
}
