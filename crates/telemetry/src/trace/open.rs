//! A span while it is open.

use std::borrow::Cow;

use everstep_protocol::TraceContext;
use opentelemetry::{
    Context, KeyValue, global,
    trace::{Link, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, Tracer},
};

use super::{ERROR_TYPE, ids::NextId, span_context, written};

/// The scope under which all spans are made.
const SCOPE: &str = "everstep";

/// What a span is to be.
#[derive(Debug)]
#[must_use = "a span is made by begin()"]
pub struct Spanning {
    builder: SpanBuilder,
    parent: Context,
    id: Option<SpanId>,
}

/// A span in the making: its name bears no id and nothing of users but names that code has.
pub fn begin(name: impl Into<Cow<'static, str>>, kind: SpanKind) -> Spanning {
    let builder = SpanBuilder::from_name(name).with_kind(kind);
    Spanning { builder, parent: Context::new(), id: None }
}

impl Spanning {
    /// What caused it.
    pub fn under(mut self, parent: &TraceContext) -> Self {
        self.parent = Context::new().with_remote_span_context(span_context(parent));
        self
    }

    /// What caused it, in this process.
    pub fn within(mut self, parent: &Context) -> Self {
        self.parent = parent.clone();
        self
    }

    /// What came before without having caused it, or too long ago to be its parent.
    pub fn after(mut self, before: &TraceContext) -> Self {
        let links = vec![Link::with_context(span_context(before))];
        self.builder = self.builder.with_links(links);
        self
    }

    /// The same, for a span of this trace whose id is derived.
    pub fn after_id(mut self, before: SpanId) -> Self {
        let here = self.parent.span().span_context().clone();
        let linked =
            SpanContext::new(here.trace_id(), before, here.trace_flags(), true, here.trace_state().clone());
        self.builder = self.builder.with_links(vec![Link::with_context(linked)]);
        self
    }

    /// Its id, if the provider's generator asks.
    pub fn with_id(mut self, id: SpanId) -> Self {
        self.id = Some(id);
        self
    }

    /// What is said of it.
    pub fn saying(mut self, attributes: impl IntoIterator<Item = KeyValue>) -> Self {
        self.builder = self.builder.with_attributes(attributes);
        self
    }

    /// What else is said of it.
    pub fn and(mut self, attributes: impl IntoIterator<Item = KeyValue>) -> Self {
        self.builder.attributes.get_or_insert_default().extend(attributes);
        self
    }

    /// Begins now.
    pub fn now(self) -> Open {
        let tracer = global::tracer(SCOPE);
        let span = NextId::with(self.id, || tracer.build_with_context(self.builder, &self.parent));
        Open(self.parent.with_span(span))
    }
}

/// A span that has begun. It ends when it is dropped.
#[derive(Debug)]
#[must_use = "a span that is dropped has ended"]
pub struct Open(Context);

impl Open {
    /// The context in which what it is about is done.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.0
    }

    /// What is handed on to what it causes.
    #[must_use]
    pub fn handed_on(&self) -> Option<TraceContext> {
        written(&self.0)
    }

    /// Something more is known of it.
    pub fn say(&self, key: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value.into()));
    }

    /// It failed. The kind of the failure is said, and never its message, which may repeat a payload.
    pub fn failed(&self, kind: &str) {
        self.0.span().set_attribute(KeyValue::new(ERROR_TYPE, kind.to_owned()));
        self.0.span().set_status(Status::error(kind.to_owned()));
    }
}

/// What it was about may hold its context for longer.
impl Drop for Open {
    fn drop(&mut self) {
        self.0.span().end();
    }
}
