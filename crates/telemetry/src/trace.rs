//! Spans, and the contexts that tie them together.
//!
//! | span | kind | parent | links |
//! | --- | --- | --- | --- |
//! | `process everstep.start` | consumer | the producer's message | instead of the parent, if the message was delivered before |
//! | `POST /v1/...` | server | the caller's request | |
//! | `run {workflow}` | internal | what started the instance | the lease before |
//! | `step {name}` | internal | the run of its lease; of a remote step, that which asked for it | the attempt before |
//! | `send everstep.lifecycle` | producer | what started the instance | |
//!
//! What started an instance stands in its first entry, so that each lease, wherever it is, continues the same trace. Over a sleep, a
//! wait or a lost lease nothing is anybody's parent: a span that lasted for days would be of no use, and that of a dead process never
//! comes. The lease before is a link, and its span is known without being stored: the ids of leases and attempts are derived from
//! what they are about ([`lease_id`], [`attempt_id`]), by whatever provider has [`NextId`] in its generator of ids.

mod ids;
mod names;
mod open;

use std::sync::atomic::{AtomicBool, Ordering};

use everstep_protocol::TraceContext;
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId},
};

pub use self::{
    ids::{NextId, attempt_id, lease_id},
    names::*,
    open::{Open, Spanning, begin},
};
pub use opentelemetry::{KeyValue, trace::FutureExt};

static ON: AtomicBool = AtomicBool::new(false);

/// Says that this process exports spans: from now on coordinators make them. Workers need no such word.
pub fn switch_on() {
    ON.store(true, Ordering::Relaxed);
}

/// Whether this process exports spans.
#[must_use]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The context that the running code is in, to be handed on.
#[must_use]
pub fn current() -> Option<TraceContext> {
    Context::map_current(written)
}

/// A context as it is handed on; none if it is in no trace.
#[must_use]
pub fn written(context: &Context) -> Option<TraceContext> {
    let span = context.span();
    let span = span.span_context();
    if !span.is_valid() {
        return None;
    }
    let flags = span.trace_flags().to_u8();
    let parent = format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id());
    TraceContext::read(&parent, Some(&span.trace_state().header()))
}

/// The context that was handed on, to be the parent of what is done here.
#[must_use]
pub fn read(trace: &TraceContext) -> Context {
    Context::new().with_remote_span_context(span_context(trace))
}

/// The trace that the ids of the running code's lines name.
#[must_use]
pub fn current_ids() -> Option<(TraceId, SpanId)> {
    Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| (span.trace_id(), span.span_id()))
    })
}

/// The span that has this context.
pub(crate) fn span_context(trace: &TraceContext) -> SpanContext {
    // What was checked when it was read is readable.
    let trace_id = TraceId::from_hex(trace.trace_id()).unwrap_or(TraceId::INVALID);
    let span_id = SpanId::from_hex(trace.span_id()).unwrap_or(SpanId::INVALID);
    let flags = TraceFlags::default().with_sampled(trace.is_sampled());
    let state = trace.state().and_then(|state| state.parse().ok()).unwrap_or_default();
    SpanContext::new(trace_id, span_id, flags, true, state)
}

#[cfg(test)]
mod tests {
    //! Proves that a context comes back as it was handed on. What the spans of a whole system are to each other the system tests prove.
    use super::*;

    #[test]
    fn a_context_is_handed_on_as_it_came() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        for (parent, state) in [(text.to_owned(), Some("a=1,b=2")), (text.replace("-01", "-00"), None)] {
            let trace = TraceContext::read(&parent, state).unwrap();
            assert_eq!(written(&read(&trace)), Some(trace));
        }
        assert_eq!(written(&Context::new()), None);
        assert_eq!(current(), None);
    }
}
