//! Streams of events: that each entry and each end comes once, in order, from any cursor on; how a stream is over. Not: that nothing
//! is skipped while several coordinators write, which the store's tests prove of the order that streams follow.

use serde_json::json;

use crate::{
    INSTANCES,
    rig::{Event, Rig},
};

const ENDS: &str = "/v1/default/instances:watch";

fn entries(events: &[Event]) -> Vec<(String, String)> {
    let entries = events.iter().filter(|event| event.kind == "entry");
    entries
        .map(|event| {
            let kind = event.data["kind"].as_str().unwrap().to_owned();
            let id = event.id.clone().expect("an entry has an id");
            // Without the mark of the instance, which is another one each time.
            let (place, mark) = id.rsplit_once('.').expect("it has a mark");
            assert!(place.contains('.') && mark.len() == 12, "{id}");
            (place.to_owned(), kind)
        })
        .collect()
}

fn pair(id: &str, kind: &str) -> (String, String) {
    (id.to_owned(), kind.to_owned())
}

#[tokio::test]
async fn each_entry_of_an_instance_comes_once_and_its_end_is_the_last_event() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1","input":{"n":1.10}}"#).await;
    let one = format!("{INSTANCES}/o-1");
    let mut stream = rig.stream(&format!("{one}/watch"), &[]).await;
    assert!(stream.head.contains("200") && stream.head.contains("text/event-stream"), "{}", stream.head);
    let first = stream.event().await.unwrap();
    let id = first.id.clone().unwrap();
    let mark = id.strip_prefix("1.1.").expect("a run and a position");
    assert_eq!((first.kind.as_str(), mark.len()), ("entry", 12), "{id}");
    assert_eq!(first.data["kind"], "started");
    let view = stream.event().await.unwrap();
    assert_eq!((view.kind.as_str(), &view.data["status"]), ("instance", &json!("queued")));
    rig.post(&format!("{one}/pause"), "").await;
    let view = stream.event().await.unwrap();
    assert_eq!((view.kind.as_str(), &view.data["status"]), ("instance", &json!("paused")));
    rig.post(&format!("{one}/terminate"), r#"{"reason":"enough"}"#).await;
    let rest = stream.all().await;
    let last = rest.last().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["status"]), ("end", &json!("terminated")));
    assert_eq!(entries(&rest), [pair("1.2", "ended")]);
    assert_eq!(last.id, Some(format!("1.2.{mark}.end")), "all have the mark of this instance");
}

#[tokio::test]
async fn a_listener_goes_on_where_it_was() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
    let one = format!("{INSTANCES}/o-1");
    let watch = format!("{one}/watch");
    rig.post(&format!("{one}/terminate"), "").await;
    let whole = rig.stream(&watch, &[]).await.all().await;
    assert_eq!(entries(&whole), [pair("1.1", "started"), pair("1.2", "ended")]);
    let rest = rig.stream(&watch, &[("last-event-id", "1.1")]).await.all().await;
    assert_eq!(entries(&rest), [pair("1.2", "ended")]);
    let by_query = rig.stream(&format!("{watch}?after=1.1"), &[]).await.all().await;
    assert_eq!(entries(&by_query), [pair("1.2", "ended")]);
    let now = rig.stream(&format!("{watch}?after=now"), &[]).await.all().await;
    assert_eq!((entries(&now).len(), now.last().unwrap().kind.as_str()), (0, "end"));
    // A browser's listener comes again after the end, until it is told that there is no more.
    let over = rig.stream(&watch, &[("last-event-id", "1.2.end")]).await;
    assert!(over.head.contains(" 204 "), "{}", over.head);
    // One that was cut off between the last entry and the end is still told how it ended.
    let cut = rig.stream(&watch, &[("last-event-id", "1.2")]).await.all().await;
    assert_eq!((entries(&cut).len(), cut.last().unwrap().kind.as_str()), (0, "end"));
    // A new run is told after the one that was read.
    rig.post(&format!("{one}/restart"), "").await;
    rig.post(&format!("{one}/terminate"), "").await;
    let again = rig.stream(&watch, &[("last-event-id", "1.1")]).await.all().await;
    assert_eq!(entries(&again), [pair("1.2", "ended"), pair("2.1", "started"), pair("2.2", "ended")]);
    for after in ["2.9", "9.1", "x", "1", "0.1", ""] {
        rig.get(&format!("{watch}?after={after}")).await.problem(400, "query");
    }
    rig.get(&format!("{INSTANCES}/nobody/watch")).await.problem(404, "not_found");
}

/// Whoever comes again with the cursor of an instance that was deleted is told that what has its id now is another one.
#[tokio::test]
async fn a_cursor_of_another_instance_under_the_same_id_is_a_gap() {
    let rig = Rig::new().await;
    let one = format!("{INSTANCES}/o-1");
    let watch = format!("{one}/watch");
    let ends = async || {
        rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
        rig.post(&format!("{one}/terminate"), "").await;
        rig.stream(&watch, &[]).await.all().await
    };
    let first = ends().await;
    let (entry, end) = (first[0].id.clone().unwrap(), first.last().unwrap().id.clone().unwrap());
    assert_eq!(rig.ask("DELETE", &one, &[], "").await.status, 200);
    // Whether it is gone already is not told by the answer.
    while rig.get(&one).await.status != 404 {
        tokio::task::yield_now().await;
    }
    let again = ends().await;
    for cursor in [entry, end] {
        for (query, headers) in
            [(format!("?after={cursor}"), vec![]), (String::new(), vec![("last-event-id", cursor.as_str())])]
        {
            let told = rig.stream(&format!("{watch}{query}"), &headers).await.all().await;
            assert_eq!(told[0].kind, "gap", "{cursor}: {told:?}");
            assert_eq!(told[0].data["run"], 1);
            assert_eq!(
                told[1..].iter().map(|event| &event.id).collect::<Vec<_>>(),
                again.iter().filter(|event| event.id.is_some()).map(|event| &event.id).collect::<Vec<_>>()
            );
        }
    }
    for after in ["1.1.xyz", "1.1.0123456789ab.7", "1.1.0123456789AZ"] {
        rig.get(&format!("{watch}?after={after}")).await.problem(400, "query");
    }
}

#[tokio::test]
async fn a_deleted_instance_has_no_more_events() {
    let rig = Rig::new().await;
    rig.post(INSTANCES, r#"{"id":"o-1"}"#).await;
    let mut stream = rig.stream(&format!("{INSTANCES}/o-1/watch?after=now"), &[]).await;
    assert_eq!(stream.event().await.unwrap().kind, "instance");
    rig.ask("DELETE", &format!("{INSTANCES}/o-1?terminate=true"), &[], "").await;
    let rest = stream.all().await;
    assert!(matches!(rest.last().unwrap().kind.as_str(), "deleted" | "end"), "{rest:?}");
}

#[tokio::test]
async fn ends_come_once_and_a_listener_goes_on_where_it_was() {
    let rig = Rig::new().await;
    let end = async |id: &str, region: &str| {
        rig.post(INSTANCES, &json!({"id": id, "attributes": {"region": region}}).to_string()).await;
        rig.post(&format!("{INSTANCES}/{id}/terminate"), "").await;
    };
    end("before", "eu").await;
    let mut stream = rig.stream(ENDS, &[]).await;
    let open = stream.event().await.unwrap();
    assert_eq!((open.kind.as_str(), &open.data["cursor"]), ("open", &json!(open.id.clone().unwrap())));
    for (id, region) in [("a", "eu"), ("b", "us"), ("c", "eu")] {
        end(id, region).await;
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = stream.event().await.unwrap();
        assert_eq!((event.kind.as_str(), &event.data["status"]), ("ended", &json!("terminated")));
        told.push((event.data["id"].as_str().unwrap().to_owned(), event.id.unwrap()));
    }
    assert_eq!(told.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let ids = async |path: &str, headers: &[(&str, &str)], count: usize| {
        let mut stream = rig.stream(path, headers).await;
        let mut ids = Vec::new();
        while ids.len() < count {
            let event = stream.event().await.unwrap();
            if event.kind == "ended" {
                ids.push(event.data["id"].as_str().unwrap().to_owned());
            }
        }
        ids
    };
    assert_eq!(ids(ENDS, &[("last-event-id", told[0].1.as_str())], 2).await, ["b", "c"]);
    assert_eq!(ids(&format!("{ENDS}?after=beginning"), &[], 4).await, ["before", "a", "b", "c"]);
    let some = format!("{ENDS}?after=beginning&attribute=region%3Deu&workflow=fulfil&status=terminated");
    assert_eq!(ids(&some, &[], 3).await, ["before", "a", "c"]);
    // A cursor of an installation before it was restored says nothing about this one.
    let other = told[2].1.replacen("1.", "7.", 1);
    let mut restored = rig.stream(ENDS, &[("last-event-id", &other)]).await;
    assert_eq!(restored.event().await.unwrap().kind, "gap");
    assert_eq!(restored.event().await.unwrap().data["id"], "before");
    for query in ["after=x", "status=open", "colour=red", "after=1.2.3"] {
        rig.get(&format!("{ENDS}?{query}")).await.problem(400, "query");
    }
}
