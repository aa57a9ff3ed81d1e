//! Takes in spans by OTLP over gRPC, as a collector does.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use tokio::{net::TcpListener, sync::watch};
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

/// A span as it came over the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) links: Vec<(String, String)>,
    pub(crate) said: BTreeMap<String, String>,
    pub(crate) is_error: bool,
}

/// What was taken in.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    told: watch::Receiver<Vec<Told>>,
}

struct Sink(watch::Sender<Vec<Told>>);

#[tonic::async_trait]
impl TraceService for Sink {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let of = |resource: opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
            resource.scope_spans.into_iter().flat_map(|scope| scope.spans)
        };
        let spans = request.into_inner().resource_spans.into_iter().flat_map(of).map(read);
        self.0.send_modify(|told| told.extend(spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn read(span: Span) -> Told {
    let link =
        |link: &opentelemetry_proto::tonic::trace::v1::span::Link| (hex(&link.trace_id), hex(&link.span_id));
    Told {
        kind: span.kind,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        links: span.links.iter().map(link).collect(),
        said: span.attributes.into_iter().map(said).collect(),
        is_error: span.status.is_some_and(|status| status.code == 2),
        name: span.name,
    }
}

fn said(attribute: KeyValue) -> (String, String) {
    let value = match attribute.value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    (attribute.key, value)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

impl Receiver {
    /// Serves on a thread of its own: it outlives the runtimes of the tests.
    pub(crate) fn begin() -> Self {
        let (sink, told) = watch::channel(Vec::new());
        let (ready, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
                ready.send(listener.local_addr().expect("it is bound")).expect("somebody waits");
                let server =
                    tonic::transport::Server::builder().add_service(TraceServiceServer::new(Sink(sink)));
                server.serve_with_incoming(TcpIncoming::from(listener)).await.expect("it serves");
            });
        });
        Self { address: address.recv().expect("it is bound"), told }
    }

    /// All that was taken in by now.
    pub(crate) fn all(&self) -> Vec<Told> {
        self.told.borrow().clone()
    }
}
