//! Waits for events as the host sees them, and what they give to the body.

use everstep::host::{BodyState, EventSpec, Spec};
use everstep::{Error, Timestamp, Workflow};
use everstep_protocol::{Call, CallKind, EventKey, EventType, Millis, Position, journal::Delivered};

use crate::driver::{Driver, calls, done, refused};

fn delivered(call: &Call, kind: &str, payload: &str) -> Delivered {
    Delivered {
        call: call.clone(),
        kind: kind.parse().unwrap(),
        sequence: 1,
        id: "e-1".to_owned(),
        key: Some(EventKey::new("k").unwrap()),
        received_at: Timestamp(9),
        payload: everstep::host::Payload::from_text(payload).unwrap(),
    }
}

fn spec(driver: &mut Driver) -> (Call, EventSpec) {
    let polled = driver.poll();
    match &polled.made[0].spec {
        Spec::Event(spec) => (polled.made[0].call.clone(), spec.clone()),
        other => panic!("{other:?}"),
    }
}

fn types(spec: &EventSpec) -> Vec<&str> {
    spec.types.iter().map(EventType::as_str).collect()
}

#[test]
fn p21_a_wait_names_its_type_and_lasts_a_day_by_default() {
    let mut driver = Driver::new(|cx: Workflow| async move { cx.event::<String>("approved").await });
    let (call, spec) = spec(&mut driver);
    assert_eq!((call.kind, call.name.as_str(), call.count), (CallKind::Event, "approved", 1));
    assert_eq!((types(&spec), &spec.key, spec.timeout), (vec!["approved"], &None, Millis(86_400_000)));
    assert!(driver.host.deliver(0, delivered(&call, "approved", "\"ann\"")));
    assert_eq!(done::<String>(driver.poll()), "ann");
}

#[test]
fn p23_p26_several_types_a_key_and_the_whole_event() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let event = cx.events::<u64>(["a", "b"]).key("k").timeout("2 days").await?;
        Ok((event.kind, event.payload, event.key, event.id, event.received_at.0))
    });
    let (call, spec) = spec(&mut driver);
    assert_eq!((call.name.as_str(), types(&spec)), ("a | b", vec!["a", "b"]));
    assert_eq!((spec.key.unwrap().as_str(), spec.timeout), ("k", Millis(2 * 86_400_000)));
    driver.host.deliver(0, delivered(&call, "b", "7"));
    let got = done::<(String, u64, Option<String>, String, i64)>(driver.poll());
    assert_eq!(got, ("b".to_owned(), 7, Some("k".to_owned()), "e-1".to_owned(), 9));
}

#[test]
fn p21_a_bad_wait_fails_the_call_and_is_never_recorded() {
    type Make = fn(Workflow) -> everstep::EventsCall<u64>;
    let bad: [(Make, &str); 6] = [
        (|cx| cx.event("").whole(), "call name"),
        (|cx| cx.event("x".repeat(101)).whole(), "1 to 100 characters"),
        (|cx| cx.event("x").timeout("soon").whole(), "soon"),
        (|cx| cx.event("x").timeout("11 years").whole(), "longer than the longest wait"),
        (|cx| cx.event("x").key("").whole(), "event key"),
        (|cx| cx.events(["x"; 17]), "17 types"),
    ];
    for (call, text) in bad {
        let driver = Driver::new(move |cx| async move { call(cx).await.map(|event| event.payload) });
        refused(&driver.failure(), text);
    }
    let none =
        Driver::new(|cx: Workflow| async move { cx.events::<u64>([""; 0]).await.map(|event| event.payload) });
    refused(&none.failure(), "call name");
}

#[test]
fn p21_a_payload_of_another_type_is_an_error_with_a_name() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let error = cx.event::<u64>("n").await.unwrap_err();
        Ok((error.name().to_owned(), error.message().to_owned()))
    });
    let (call, _) = spec(&mut driver);
    driver.host.deliver(0, delivered(&call, "n", "\"x\""));
    let (name, message) = done::<(String, String)>(driver.poll());
    assert_eq!(name, "EventPayload");
    assert!(message.starts_with("event \"n\" #1: reading the payload: "), "{message}");
}

#[test]
fn p22_an_event_that_the_body_drops_unseen_is_told() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let mut event = Box::pin(cx.event::<u64>("n"));
        let first = futures::future::select(&mut event, cx.sleep("a", "1s")).await;
        drop(first);
        cx.sleep("b", "1s").await?;
        drop(event);
        cx.sleep("c", "1s").await?;
        Ok::<_, Error>(())
    });
    let polled = driver.poll();
    assert_eq!(calls(&polled.made), [(CallKind::Event, "n", 1), (CallKind::Sleep, "a", 1)]);
    let call = polled.made[0].call.clone();
    assert_eq!(driver.feed(1, ()).dropped, [0; 0]);
    driver.host.deliver(0, delivered(&call, "n", "7"));
    driver.seen += 1;
    assert!(driver.poll().untaken.is_empty());
    let polled = driver.feed(2, ());
    assert_eq!((polled.untaken, polled.dropped), (vec![(call, Position(3))], vec![]));
    assert!(matches!(polled.state, BodyState::Pending));
}
