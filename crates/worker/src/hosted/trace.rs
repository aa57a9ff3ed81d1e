//! The spans of a hosted instance: one for the lease, and what its attempts, children and remote steps go on with. Without a trace in
//! the first entry there is none of it.

use everstep_protocol::{
    Attempt, Call, Epoch, InstanceUid, TraceContext, journal::Started, message::OpenWait,
};
use everstep_sdk::host::InstanceInfo;
use everstep_telemetry::trace::{self, KeyValue, Open, Spanning, attempt_id, begin, lease_id};
use opentelemetry::{Context, ContextGuard, trace::SpanKind};

use super::{Finish, Hosted, Order};

/// The trace of an instance.
#[derive(Debug)]
pub(super) struct Traced {
    /// What started it: the parent of each of its leases.
    started: TraceContext,
    /// The lease, while it is held.
    lease: Option<Open>,
}

impl Traced {
    /// The instance begins, or begins again to be fed, under a lease.
    pub(super) fn of(started: &Started) -> Option<Box<Self>> {
        let started = TraceContext::clone(started.trace.as_deref()?);
        Some(Box::new(Self { started, lease: None }))
    }

    /// What goes on with the next generation: a generation after the other is no tower of parents.
    pub(super) fn started(&self) -> TraceContext {
        self.started.clone()
    }

    fn context(&self) -> Option<&Context> {
        self.lease.as_ref().map(Open::context)
    }

    /// What children and remote steps go on with.
    fn handed_on(&self) -> TraceContext {
        self.lease.as_ref().and_then(Open::handed_on).unwrap_or_else(|| self.started.clone())
    }
}

impl Hosted {
    /// The span of the lease begins. That of the lease before, wherever it was, is a link.
    pub(super) fn lease_begins(&mut self) {
        let Some(traced) = &mut self.trace else { return };
        let (uid, epoch, info) = (self.uid, self.epoch, &self.info);
        let mut span = begin(format!("run {}", info.workflow), SpanKind::Internal)
            .under(&traced.started)
            .with_id(lease_id(uid, epoch))
            .saying(whose(info).into_iter().chain([
                KeyValue::new(trace::EPOCH, number(epoch.0)),
                KeyValue::new(trace::SESSION, self.env.session.to_string()),
            ]));
        if epoch > Epoch(1) {
            span = span.after_id(lease_id(uid, Epoch(epoch.0 - 1)));
        }
        traced.lease = Some(span.now());
    }

    /// The lease is over; none where it was taken away.
    pub(super) fn lease_ends(&mut self, finish: Option<Finish>) {
        let Some(lease) = self.trace.as_mut().and_then(|traced| traced.lease.take()) else { return };
        lease.say(trace::OUTCOME, finish.map_or("taken_away", Finish::word));
    }

    /// Spans that the body's code makes are of the lease. Those of code that repeats what it has done are nobody's.
    pub(super) fn in_trace(&self, is_quiet: bool) -> Option<ContextGuard> {
        let context = self.trace.as_ref()?.context()?;
        Some(if is_quiet { context.with_telemetry_suppressed() } else { context.clone() }.attach())
    }

    /// The attempt's span is to begin with it.
    pub(super) fn trace_attempt(&self, order: &mut Order, call: &Call) {
        let Some(context) = self.trace.as_ref().and_then(|traced| traced.context()) else { return };
        let attempt = order.info.attempt;
        let id = |attempt| attempt_id(self.uid, u64::from(self.info.run.0), call.hash(), attempt);
        let mut span = step(order)
            .within(context)
            .with_id(id(attempt))
            .saying(whose(&self.info).into_iter().chain(of_step(order)));
        if let Some(before) = before(attempt) {
            span = span.after_id(id(before));
        }
        order.span = Some(Box::new(span));
    }

    /// A child or a remote step goes on with the lease that asked for it.
    pub(super) fn trace_open(&self, wait: &mut OpenWait) {
        let Some(traced) = &self.trace else { return };
        match wait {
            OpenWait::Child(child) => child.trace = Some(Box::new(traced.handed_on())),
            OpenWait::Remote(remote) => remote.trace = Some(Box::new(traced.handed_on())),
            _ => {}
        }
    }
}

/// The span of an attempt of a remote step. All attempts have the same parent, which tells runs of the instance apart.
pub(crate) fn trace_remote(order: &mut Order, instance: InstanceUid, call: &Call, asked: &TraceContext) {
    let parent = u64::from_str_radix(asked.span_id(), 16).unwrap_or_default();
    let (attempt, hash) = (order.info.attempt, call.hash());
    let own = [
        KeyValue::new(trace::NAMESPACE, order.info.namespace.to_string()),
        KeyValue::new(trace::WORKFLOW, order.info.workflow.to_string()),
        KeyValue::new(trace::INSTANCE, order.info.instance.to_string()),
    ];
    let mut span = step(order)
        .under(asked)
        .with_id(attempt_id(instance, parent, hash, attempt))
        .saying(own.into_iter().chain(of_step(order)));
    if let Some(before) = before(attempt) {
        span = span.after_id(attempt_id(instance, parent, hash, before));
    }
    order.span = Some(Box::new(span));
}

fn step(order: &Order) -> Spanning {
    begin(format!("step {}", order.info.name), SpanKind::Internal)
}

fn whose(info: &InstanceInfo) -> [KeyValue; 4] {
    [
        KeyValue::new(trace::NAMESPACE, info.namespace.to_string()),
        KeyValue::new(trace::WORKFLOW, info.workflow.to_string()),
        KeyValue::new(trace::INSTANCE, info.id.to_string()),
        KeyValue::new(trace::RUN, i64::from(info.run.0)),
    ]
}

fn of_step(order: &Order) -> [KeyValue; 4] {
    [
        KeyValue::new(trace::STEP, order.info.name.to_string()),
        KeyValue::new(trace::CALL, order.info.kind.word()),
        KeyValue::new(trace::COUNT, i64::from(order.info.count)),
        KeyValue::new(trace::ATTEMPT, i64::from(order.info.attempt.0)),
    ]
}

fn before(attempt: Attempt) -> Option<Attempt> {
    (attempt > Attempt::FIRST).then(|| Attempt(attempt.0 - 1))
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
