//! Whether a change of the code applies to this instance (rule P40).

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Pending;
use crate::Error;
use crate::host::Spec;

/// Awaiting it says whether a change of the code applies. From [`Workflow::patched`](crate::Workflow::patched).
#[derive(Debug)]
#[must_use = "nothing is asked until it is awaited"]
pub struct Patched {
    pending: Pending,
}

impl Patched {
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending }
    }
}

impl Future for Patched {
    type Output = Result<bool, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending } = self.get_mut();
        if let Some(applies) = pending.answered() {
            return Poll::Ready(Ok(applies));
        }
        let outcome = ready!(pending.poll(context, || Spec::Patch));
        let applies = ready!(pending.decode(outcome));
        if let Ok(applies) = applies {
            pending.answer(applies);
        }
        Poll::Ready(applies)
    }
}
