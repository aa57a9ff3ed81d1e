//! Ids of spans that are known before, and after, and elsewhere.

use std::cell::Cell;

use everstep_protocol::{Attempt, CallHash, Epoch, InstanceUid};
use opentelemetry::trace::SpanId;

thread_local! {
    static NEXT: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// The id that the next span of this thread is to have, for a generator of ids to [take](Self::take).
///
/// A provider of one's own takes it like this; with any other the spans are the same, but links between them lead nowhere.
///
/// ```
/// use everstep_telemetry::trace::NextId;
/// use opentelemetry::trace::SpanId;
///
/// fn new_span_id(random: SpanId) -> SpanId {
///     NextId::take().unwrap_or(random)
/// }
/// assert_eq!(new_span_id(SpanId::from(7)), SpanId::from(7));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NextId;

impl NextId {
    /// The id that was asked for, once.
    #[must_use]
    pub fn take() -> Option<SpanId> {
        NEXT.take()
    }

    /// Asks for an id while a span is made.
    pub(super) fn with<T>(id: Option<SpanId>, make: impl FnOnce() -> T) -> T {
        NEXT.set(id);
        let span = make();
        // A generator that does not ask must not leave it to a span of somebody else.
        NEXT.set(None);
        span
    }
}

/// The span of a lease.
#[must_use]
pub fn lease_id(instance: InstanceUid, epoch: Epoch) -> SpanId {
    let mut hash = blake3::Hasher::new();
    hash.update(b"everstep lease");
    hash.update(instance.0.as_bytes());
    hash.update(&epoch.0.to_be_bytes());
    id(&hash)
}

/// The span of an attempt. `within` tells apart what has the same call: the run of a step, what asked for a remote one.
#[must_use]
pub fn attempt_id(instance: InstanceUid, within: u64, call: CallHash, attempt: Attempt) -> SpanId {
    let mut hash = blake3::Hasher::new();
    hash.update(b"everstep attempt");
    hash.update(instance.0.as_bytes());
    hash.update(&within.to_be_bytes());
    hash.update(&call.0);
    hash.update(&attempt.0.to_be_bytes());
    id(&hash)
}

/// Zero is no id.
fn id(hash: &blake3::Hasher) -> SpanId {
    let mut bytes = [0; 8];
    hash.finalize_xof().fill(&mut bytes);
    SpanId::from(u64::from_be_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_one_lease_or_attempt_and_the_same_wherever_it_is_derived() {
        let instance = InstanceUid::generate();
        let call = CallHash([7; 16]);
        let ids = [
            lease_id(instance, Epoch(1)),
            lease_id(instance, Epoch(2)),
            lease_id(InstanceUid::generate(), Epoch(1)),
            attempt_id(instance, 1, call, Attempt(1)),
            attempt_id(instance, 1, call, Attempt(2)),
            attempt_id(instance, 2, call, Attempt(1)),
            attempt_id(instance, 1, CallHash([8; 16]), Attempt(1)),
        ];
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_eq!(lease_id(instance, Epoch(1)), ids[0]);
    }

    #[test]
    fn an_id_that_nobody_took_is_nobody_elses() {
        NextId::with(Some(SpanId::from(7)), || ());
        assert_eq!(NextId::take(), None);
        assert_eq!(NextId::with(Some(SpanId::from(7)), NextId::take), Some(SpanId::from(7)));
    }
}
