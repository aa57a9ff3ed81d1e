//! Traces of whole systems: what coordinators and workers send by OTLP to a receiver that stands where a collector would.
//!
//! What is proved: who is whose parent, what is only linked, what spans say, and that no payload is among it. What is not: how a
//! backend draws it.

mod receiver;

use std::{collections::BTreeSet, sync::OnceLock, time::Duration};

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::{Consume, HeaderValue, Incoming, Properties, QueueDeclaration, QueueKind};
use everstep_protocol::{Namespace, SessionId, topology};
use everstep_system_tests::{DEADLINE, Gate, Kind, Setup, World, within};
use everstep_telemetry::process::{Telemetry, Wanted};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use receiver::{Receiver, Told};

/// What must be in no span.
const SECRET: &str = "correct-horse-battery";
const INTERNAL: i32 = 1;
const SERVER: i32 = 2;
const PRODUCER: i32 = 4;
const CONSUMER: i32 = 5;

struct Watched {
    receiver: Receiver,
    telemetry: Telemetry,
}

/// One receiver and one exporter for the process. The exporter's connection lives on a runtime that no test ends.
fn watched() -> &'static Watched {
    static WATCHED: OnceLock<Watched> = OnceLock::new();
    WATCHED.get_or_init(|| {
        let receiver = Receiver::begin();
        let endpoint = format!("http://{}", receiver.address);
        let (ready, begun) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let telemetry = Wanted::of("everstep-test").level("error,traces=info").otlp(endpoint).start();
                ready.send(telemetry.expect("it begins")).expect("somebody waits");
                std::future::pending::<()>().await;
            });
        });
        Watched { receiver, telemetry: begun.recv().expect("it begins") }
    })
}

async fn reserve(_: Step, order: String) -> Result<usize, Error> {
    let span = tracing::info_span!("ask the warehouse");
    Ok(span.in_scope(|| order.len()))
}

async fn flaky(step: Step, (): ()) -> Result<u32, Error> {
    if step.attempt() < 2 { Err(Error::failed(format!("not yet, {SECRET}"))) } else { Ok(step.attempt()) }
}

fn orders() -> Registry {
    Registry::new()
        .workflow_fn("order", |cx: Workflow, order: String| async move {
            tracing::info_span!("in the body").in_scope(|| ());
            cx.step("reserve", &order, reserve).await?;
            cx.sleep("cool off", "400ms").await?;
            cx.step("flaky", (), flaky).retry(Retry::constant("500ms").limit(2)).await?;
            cx.remote::<u32>("square", 7_u32).on("numbers").await?;
            cx.child::<usize>("pack", "pack", &order).await?;
            Ok::<_, Error>(SECRET)
        })
        .workflow_fn(
            "pack",
            |cx: Workflow, order: String| async move { cx.step("wrap", &order, reserve).await },
        )
        .function("square", |_: Step, n: u32| async move { Ok::<_, Error>(n * n) })
}

/// A fleet whose workers keep no bodies, so that each lease replays.
async fn fleet() -> World {
    let mut world = Setup::new(Kind::Fleet).start().await;
    let pools = vec!["numbers".parse().expect("a pool")];
    world
        .add_worker_with(orders(), |settings| {
            settings.cache_bytes = 0;
            settings.pools = pools;
        })
        .await;
    world
}

fn traced(trace: &str, span: &str, flags: &str) -> Properties {
    let headers = [
        ("traceparent".to_owned(), HeaderValue::from(format!("00-{trace}-{span}-{flags}"))),
        ("tracestate".to_owned(), HeaderValue::from("vendor=1")),
    ];
    Properties { message_id: Some("m-1".to_owned()), headers: headers.into(), ..Properties::default() }
}

fn start(id: &str) -> String {
    format!(r#"{{"workflow":"order","id":"{id}","input":"{SECRET}"}}"#)
}

/// The headers of the lifecycle message of an instance.
struct Lifecycles(everstep_broker::Consumer);

impl Lifecycles {
    async fn listen(world: &World) -> Self {
        let queue =
            QueueDeclaration::new(format!("test.traces.{}", SessionId::generate()), QueueKind::Exclusive)
                .bind(topology::LIFECYCLE_EXCHANGE, "#");
        let mut consumer =
            world.broker().consume(Consume::new(queue, 100)).await.expect("the broker is there");
        while !matches!(consumer.next().await, Incoming::Connected { .. }) {}
        Self(consumer)
    }

    async fn of(&mut self, id: &str) -> Properties {
        within("the lifecycle message", DEADLINE, async {
            loop {
                let Incoming::Delivery(delivery) = self.0.next().await else { continue };
                let (message, settle) = delivery.split();
                settle.ack();
                if String::from_utf8_lossy(&message.body).contains(&format!("\"id\":\"{id}\"")) {
                    return message.properties;
                }
            }
        })
        .await
    }
}

fn header<'a>(properties: &'a Properties, name: &str) -> &'a str {
    properties.headers.get(name).and_then(HeaderValue::as_text).unwrap_or_default()
}

fn named<'a>(spans: &'a [Told], name: &str) -> Vec<&'a Told> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn one<'a>(spans: &'a [Told], name: &str) -> &'a Told {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// The leases of an instance, in the order of their epochs.
fn leases<'a>(spans: &'a [Told], name: &str) -> Vec<&'a Told> {
    let mut leases = named(spans, name);
    leases.sort_by_key(|lease| lease.said["everstep.epoch"].parse::<u64>().expect("a number"));
    leases
}

fn assert_said(span: &Told, said: &[(&str, &str)]) {
    for (name, value) in said {
        assert_eq!(span.said.get(*name).map(String::as_str), Some(*value), "{name}: {span:#?}");
    }
}

/// All that was sent by now.
async fn all() -> Vec<Told> {
    let watched = watched();
    watched.telemetry.flush().await;
    watched.receiver.all()
}

/// What was sent, as soon as it is what is waited for.
async fn gathered(what: &str, are_there: impl Fn(&[Told]) -> bool) -> Vec<Told> {
    within(what, DEADLINE, async {
        loop {
            let told = all().await;
            if are_there(&told) {
                return told;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
}

/// The spans of a trace, once so many of its leases say that an instance has ended with them, and each of `others` has come:
/// a span comes when it ends, and what somebody was told of may end after it was told.
async fn of_trace(trace: &str, ends: usize, others: &[fn(&Told) -> bool]) -> Vec<Told> {
    let is_end = |span: &Told| span.said.get("everstep.outcome").is_some_and(|outcome| outcome == "ended");
    let of_it =
        |told: &[Told]| -> Vec<Told> { told.iter().filter(|span| span.trace == trace).cloned().collect() };
    let told = gathered("the spans", |told| {
        let told = of_it(told);
        let have_ended = told.iter().filter(|span| is_end(span)).count() == ends;
        have_ended && others.iter().all(|is_other| told.iter().any(is_other))
    })
    .await;
    of_it(&told)
}

fn is_taken(span: &Told) -> bool {
    span.name == "process everstep.start"
}

fn is_served(span: &Told) -> bool {
    span.kind == SERVER
}

fn is_sent(span: &Told) -> bool {
    span.name == "send everstep.lifecycle"
        && span.said["rabbitmq.destination.routing_key"] == "default.order.complete"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_from_the_producers_message_to_the_lifecycle_message() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SENT: &str = "b7ad6b7169203331";
    watched();
    let world = fleet().await;
    let mut lifecycles = Lifecycles::listen(&world).await;
    world.publish(start("o-1"), traced(TRACE, SENT, "01")).await;
    let lifecycle = lifecycles.of("o-1").await;
    world.end("order", "o-1").await;
    let spans = of_trace(TRACE, 2, &[is_taken, is_sent]).await;

    let taken = one(&spans, "process everstep.start");
    assert_eq!((taken.kind, taken.parent.as_str(), taken.links.len()), (CONSUMER, SENT, 0));
    assert_said(
        taken,
        &[
            ("messaging.system", "rabbitmq"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "everstep.start"),
            ("messaging.message.id", "m-1"),
            ("rabbitmq.destination.routing_key", "default"),
            ("everstep.workflow", "order"),
            ("everstep.instance", "o-1"),
            ("everstep.outcome", "created"),
        ],
    );

    let leases = leases(&spans, "run order");
    assert!(leases.len() >= 4, "over the sleep, the retry, the remote step and the child: {leases:#?}");
    for (at, lease) in leases.iter().enumerate() {
        assert_eq!(
            (lease.kind, &lease.parent),
            (INTERNAL, &taken.id),
            "what started it is the parent of each lease"
        );
        let before = at.checked_sub(1).map(|before| (TRACE.to_owned(), leases[before].id.clone()));
        assert_eq!(lease.links, Vec::from_iter(before), "the lease before is a link");
        assert_said(lease, &[("everstep.epoch", &(at + 1).to_string()), ("everstep.run", "1")]);
    }
    assert_said(leases[0], &[("everstep.outcome", "suspended")]);
    assert_said(leases[leases.len() - 1], &[("everstep.outcome", "ended")]);

    let reserve = one(&spans, "step reserve");
    assert_eq!((&reserve.parent, reserve.links.len(), reserve.is_error), (&leases[0].id, 0, false));
    assert_said(
        reserve,
        &[("everstep.step", "reserve"), ("everstep.attempt", "1"), ("everstep.outcome", "succeeded")],
    );
    let asked: Vec<_> = named(&spans, "ask the warehouse");
    assert!(asked.iter().any(|span| span.parent == reserve.id), "a user's own span joins in: {asked:#?}");
    let body = one(&spans, "in the body");
    assert_eq!(body.parent, leases[0].id, "what the body repeats in replay makes no span");

    let mut flaky = named(&spans, "step flaky");
    flaky.sort_by_key(|span| span.said["everstep.attempt"].clone());
    let [first, second] = flaky[..] else { panic!("{flaky:#?}") };
    assert!(first.is_error && first.links.is_empty());
    assert_said(first, &[("error.type", "failed"), ("everstep.outcome", "failed")]);
    assert_eq!(second.links, [(TRACE.to_owned(), first.id.clone())], "the attempt before is a link");
    assert_ne!(second.parent, first.parent, "the retry came under another lease");

    let ids: BTreeSet<_> = leases.iter().map(|lease| lease.id.as_str()).collect();
    let remote = one(&spans, "step square");
    assert!(ids.contains(remote.parent.as_str()), "who asked for a remote step is its parent: {remote:#?}");
    let child = one(&spans, "run pack");
    assert!(ids.contains(child.parent.as_str()), "who started a child is its parent: {child:#?}");
    assert_eq!(one(&spans, "step wrap").parent, child.id);

    let sent: Vec<_> = spans.iter().filter(|span| is_sent(span)).collect();
    let [sent] = sent[..] else { panic!("{sent:#?}") };
    assert_eq!((sent.kind, &sent.parent), (PRODUCER, &taken.id));
    assert_said(
        sent,
        &[("messaging.operation.type", "send"), ("messaging.destination.name", "everstep.lifecycle")],
    );
    assert_eq!(
        header(&lifecycle, "traceparent"),
        format!("00-{TRACE}-{}-01", sent.id),
        "whoever hears of it goes on"
    );
    assert_eq!(header(&lifecycle, "tracestate"), "vendor=1");

    let told = format!("{:?}", all().await);
    assert!(!told.contains(SECRET), "a payload is in no span: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_is_not_recorded_goes_on_and_makes_no_span() {
    const TRACE: &str = "1af7651916cd43dd8448eb211c80319c";
    watched();
    let world = fleet().await;
    let mut lifecycles = Lifecycles::listen(&world).await;
    world.publish(start("o-2"), traced(TRACE, "b7ad6b7169203331", "00")).await;
    let lifecycle = lifecycles.of("o-2").await;
    let parent = header(&lifecycle, "traceparent");
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    let spans = all().await;
    assert!(spans.iter().all(|span| span.trace != TRACE), "{spans:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_http_begins_the_trace_or_goes_on_with_it() {
    const TRACE: &str = "2af7651916cd43dd8448eb211c80319c";
    watched();
    let world = fleet().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let serving =
        tokio::spawn(everstep_coordinator::http::serve(listener, world.handle(), std::future::pending()));
    let post = async |id: &str, header: &str| {
        let body = format!(r#"{{"id":"{id}","input":"{SECRET}"}}"#);
        let request = format!(
            "POST /v1/default/workflows/pack/instances HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{header}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(address).await.expect("it is served");
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    };
    post("h-1", &format!("traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\n")).await;
    post("h-2", "").await;
    world.end("pack", "h-1").await;
    world.end("pack", "h-2").await;
    let spans = of_trace(TRACE, 1, &[is_served]).await;
    let served = spans.iter().find(|span| is_served(span)).expect("the request");
    assert_eq!(served.parent, "b7ad6b7169203331");
    assert_said(served, &[("http.request.method", "POST"), ("http.response.status_code", "201")]);
    assert_eq!(one(&spans, "run pack").parent, served.id);
    let is_other = |span: &&Told| {
        span.name == "run pack" && span.said.get("everstep.instance").is_some_and(|id| id == "h-2")
    };
    let all = gathered("the other trace", |told| {
        let other = told.iter().find(is_other);
        other.is_some_and(|other| told.iter().any(|span| span.id == other.parent))
    })
    .await;
    let other = all.iter().find(is_other);
    let other = other.expect("a trace of its own");
    let began = all.iter().find(|span| span.id == other.parent).expect("the request began it");
    assert_eq!((began.kind, began.parent.as_str()), (SERVER, ""));
    assert!(!format!("{all:?}").contains(SECRET), "a payload is in no span: {all:#?}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_worker_had_is_a_link() {
    const TRACE: &str = "3af7651916cd43dd8448eb211c80319c";
    watched();
    let mut world = Setup::new(Kind::Fleet).start().await;
    let gate = Gate::closed();
    let (began, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let held = gate.clone();
    let registry = Registry::new().workflow_fn("order", move |cx: Workflow, _: String| {
        let (gate, began) = (held.clone(), began.clone());
        async move {
            let step = move |step: Step, (): ()| {
                let (gate, began) = (gate.clone(), began.clone());
                async move {
                    began.send(step.attempt()).expect("the test listens");
                    gate.pass().await;
                    Ok::<_, Error>(())
                }
            };
            cx.step("held", (), step).await
        }
    });
    let first = world.add_worker(registry.clone()).await;
    world.publish(start("o-3"), traced(TRACE, "b7ad6b7169203331", "01")).await;
    within("the first attempt", DEADLINE, begins.recv()).await;
    world.crash_worker(first).await;
    world.add_worker(registry).await;
    within("the second attempt", DEADLINE, begins.recv()).await;
    gate.open();
    world.end("order", "o-3").await;
    let spans = of_trace(TRACE, 1, &[is_taken]).await;
    let leases = leases(&spans, "run order");
    let last = leases[leases.len() - 1];
    assert_said(last, &[("everstep.outcome", "ended")]);
    let taken = one(&spans, "process everstep.start");
    assert_eq!(last.parent, taken.id);
    assert_eq!(last.links.len(), 1, "the lost lease: {last:#?}");
    let attempt = spans.iter().find(|span| span.name == "step held" && span.said["everstep.attempt"] == "2");
    let attempt = attempt.expect("the second attempt");
    assert_eq!((&attempt.parent, attempt.links.len()), (&last.id, 1), "{attempt:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_delivered_before_begins_a_trace_of_its_own() {
    const TRACE: &str = "4af7651916cd43dd8448eb211c80319c";
    watched();
    let mut world = Setup::new(Kind::Fleet).start().await;
    world.add_worker(orders()).await;
    world.stop_coordinator(0).await;
    world.publish(start("o-4"), traced(TRACE, "b7ad6b7169203331", "01")).await;
    let queue = topology::start_queue(&Namespace::default());
    let mut consumer = world.broker().consume(Consume::new(queue, 1)).await.expect("the broker is there");
    // Whoever had it is gone before it was settled.
    within("the first delivery", DEADLINE, async {
        while !matches!(consumer.next().await, Incoming::Delivery(_)) {}
    })
    .await;
    drop(consumer);
    world.add_coordinator().await;
    world.until("order", "o-4", "it is there", |_| true).await;
    let is_mine = |span: &&Told| {
        span.kind == CONSUMER && span.said.get("everstep.instance").is_some_and(|id| id == "o-4")
    };
    let all = gathered("the span of the message", |told| told.iter().any(|span| is_mine(&span))).await;
    let taken = all.iter().find(is_mine).expect("it is there");
    assert_eq!((taken.parent.as_str(), taken.links.len()), ("", 1), "{taken:#?}");
    assert_eq!(taken.links[0], (TRACE.to_owned(), "b7ad6b7169203331".to_owned()));
    assert_ne!(taken.trace, TRACE);
}
