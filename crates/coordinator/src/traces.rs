//! The spans that a coordinator makes: of the messages and requests that it takes in, and of the lifecycle messages that it sends. What a
//! message or a request says of its trace is handed on whether or not this process exports spans.

use std::collections::HashMap;

use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderMap, Method},
    middleware::Next,
    response::Response,
};
use everstep_broker::{HeaderValue, Message, Outgoing};
use everstep_protocol::{
    InstanceUid, Position, Run, TraceContext,
    journal::Fact,
    topology,
    trace::{TRACEPARENT, TRACESTATE},
};
use everstep_store::Range;
use everstep_telemetry::trace::{self, FutureExt as _, KeyValue, Open, begin};
use opentelemetry::trace::SpanKind;

use crate::shared::Shared;

/// What a message's headers say.
fn of_message(message: &Message) -> Option<TraceContext> {
    let headers = &message.properties.headers;
    let text = |name| headers.get(name).and_then(HeaderValue::as_text);
    TraceContext::read(text(TRACEPARENT)?, text(TRACESTATE))
}

/// What a request's headers say.
fn of_request(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext::read(text(TRACEPARENT)?, text(TRACESTATE))
}

/// A message of a producer while it is taken in.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    theirs: Option<TraceContext>,
    span: Option<Box<Open>>,
}

impl Taken {
    /// A start message. One that was delivered before begins a trace of its own, with a link: whoever had it then may have gone on
    /// with the producer's.
    pub(crate) fn start(message: &Message) -> Self {
        let theirs = of_message(message);
        if !trace::is_on() {
            return Self { theirs, span: None };
        }
        let mut span = begin(format!("process {}", topology::START_EXCHANGE), SpanKind::Consumer)
            .saying(of_messaging(
                topology::START_EXCHANGE,
                "process",
                &message.routing_key,
                message.body.len(),
            ))
            .and(
                message
                    .properties
                    .message_id
                    .iter()
                    .map(|id| KeyValue::new(trace::MESSAGING_MESSAGE_ID, id.clone())),
            );
        if let Some(theirs) = &theirs {
            span = if message.redelivered { span.after(theirs) } else { span.under(theirs) };
        }
        Self { theirs, span: Some(Box::new(span.now())) }
    }

    /// Runs what is done with it: what it starts goes on with its trace.
    pub(crate) fn within<T>(&self, take: impl FnOnce() -> T) -> T {
        let context = match (&self.span, &self.theirs) {
            (Some(span), _) => span.context().clone(),
            (None, Some(theirs)) => trace::read(theirs),
            (None, None) => return take(),
        };
        let _attached = context.attach();
        take()
    }

    /// The span, which lasts until what was taken is decided.
    pub(crate) fn span(self) -> Option<Box<Open>> {
        self.span
    }
}

/// What a start that has come in no trace goes on with: with one that begins here, if this process exports spans.
pub(crate) fn of_start(workflow: &everstep_protocol::WorkflowName) -> Option<Box<TraceContext>> {
    let begun = || {
        begin(format!("start {workflow}"), SpanKind::Internal)
            .saying([KeyValue::new(trace::WORKFLOW, workflow.to_string())])
            .now()
            .handed_on()
    };
    trace::current().or_else(|| trace::is_on().then(begun).flatten()).map(Box::new)
}

/// Lifecycle messages while they are sent: their headers name the trace of their instance.
pub(crate) async fn sending(
    shared: &Shared,
    batch: &mut [((InstanceUid, Run), Outgoing)],
) -> Vec<Option<Open>> {
    if !trace::is_on() {
        return Vec::new();
    }
    let traces = of_instances(shared, batch.iter().map(|(row, _)| *row)).await;
    let span = |(row, message): &mut ((InstanceUid, Run), Outgoing)| {
        let theirs = traces.get(row)?;
        let exchange = topology::LIFECYCLE_EXCHANGE;
        let id = message.properties.message_id.iter();
        let span = begin(format!("send {exchange}"), SpanKind::Producer)
            .under(theirs)
            .saying(of_messaging(exchange, "send", &message.routing_key, message.body.len()))
            .and(id.map(|id| KeyValue::new(trace::MESSAGING_MESSAGE_ID, id.clone())))
            .now();
        let handed_on = span.handed_on().unwrap_or_else(|| theirs.clone());
        let headers = &mut message.properties.headers;
        headers.insert(TRACEPARENT.to_owned(), handed_on.parent().into());
        if let Some(state) = handed_on.state() {
            headers.insert(TRACESTATE.to_owned(), state.into());
        }
        Some(span)
    };
    batch.iter_mut().map(span).collect()
}

/// The traces of instances, from their first entries: read only where spans are exported, since only there it is worth a query.
async fn of_instances(
    shared: &Shared,
    rows: impl Iterator<Item = (InstanceUid, Run)>,
) -> HashMap<(InstanceUid, Run), TraceContext> {
    let rows: Vec<_> = rows.collect();
    let ranges = rows.iter().map(|(uid, run)| Range { uid: *uid, run: *run, after: Position(0) }).collect();
    match shared.store.journal(ranges, 1).await {
        Ok(parts) => rows
            .into_iter()
            .zip(parts)
            .filter_map(|(row, part)| match part.into_iter().next()?.fact {
                Fact::Started(started) => Some((row, *started.trace?)),
                _ => None,
            })
            .collect(),
        Err(error) => {
            tracing::warn!(%error, "lifecycle messages are sent without their traces, which were not read");
            HashMap::new()
        }
    }
}

fn of_messaging(
    exchange: &'static str,
    operation: &'static str,
    routing_key: &str,
    bytes: usize,
) -> [KeyValue; 6] {
    [
        KeyValue::new(trace::MESSAGING_SYSTEM, trace::RABBITMQ),
        KeyValue::new(trace::MESSAGING_OPERATION_NAME, operation),
        KeyValue::new(trace::MESSAGING_OPERATION_TYPE, operation),
        KeyValue::new(trace::MESSAGING_DESTINATION, exchange),
        KeyValue::new(trace::ROUTING_KEY, routing_key.to_owned()),
        KeyValue::new(trace::MESSAGING_BODY_SIZE, i64::try_from(bytes).unwrap_or(i64::MAX)),
    ]
}

/// Serves a request in the caller's trace. What only reads makes no span, unless its caller has begun a trace.
pub(crate) async fn served(request: Request, next: Next) -> Response {
    let theirs = of_request(request.headers());
    if !trace::is_on() || theirs.is_none() && matches!(*request.method(), Method::GET | Method::HEAD) {
        return match theirs {
            Some(theirs) => next.run(request).with_context(trace::read(&theirs)).await,
            None => next.run(request).await,
        };
    }
    let method = request.method().to_string();
    // No path and no query: ids and cursors are user data.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let mut span = begin(format!("{method} {route}"), SpanKind::Server)
        .saying([KeyValue::new(trace::HTTP_METHOD, method), KeyValue::new(trace::HTTP_ROUTE, route)]);
    if let Some(theirs) = &theirs {
        span = span.under(theirs);
    }
    let span = span.now();
    let response = next.run(request).with_context(span.context().clone()).await;
    let status = response.status();
    span.say(trace::HTTP_STATUS, i64::from(status.as_u16()));
    if status.is_server_error() {
        span.failed(status.as_str());
    }
    response
}
