//! Sleeps.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use everstep_protocol::Timestamp;

use super::Pending;
use crate::Error;
use crate::host::Spec;

/// A sleep: awaiting it ends when its time has come. From [`Workflow::sleep`](crate::Workflow::sleep) and
/// [`Workflow::sleep_until`](crate::Workflow::sleep_until).
#[derive(Debug)]
#[must_use = "a sleep does not begin until it is awaited"]
pub struct Sleep {
    pending: Pending,
    spec: Option<Spec>,
}

impl Sleep {
    pub(crate) fn new(pending: Pending, spec: Option<Spec>) -> Self {
        Self { pending, spec }
    }
}

impl Future for Sleep {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, spec } = self.get_mut();
        pending
            .poll(context, || spec.take().expect("a call with a number that is not refused has its moment"))
            .map_ok(|_| ())
    }
}

/// What names a moment: a [`SystemTime`], or a [`Timestamp`].
pub trait IntoTimestamp {
    /// The moment in whole microseconds, never earlier than the value; none if it is too far away to be counted.
    fn into_timestamp(self) -> Option<Timestamp>;
}

impl IntoTimestamp for Timestamp {
    fn into_timestamp(self) -> Option<Timestamp> {
        Some(self)
    }
}

impl IntoTimestamp for SystemTime {
    fn into_timestamp(self) -> Option<Timestamp> {
        let micros = match self.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos().div_ceil(1_000)).ok()?,
            Err(before) => -i64::try_from(before.duration().as_nanos() / 1_000).ok()?,
        };
        Some(Timestamp(micros))
    }
}
