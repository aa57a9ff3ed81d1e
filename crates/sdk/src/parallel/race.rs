//! The first of many of one type.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The first of several: awaiting it gives its place, from 0, and its output. From
/// [`Workflow::race`](crate::Workflow::race).
#[must_use = "nothing is raced until it is awaited"]
pub struct Race<F> {
    runners: Vec<Pin<Box<F>>>,
}

impl<F: Future> Race<F> {
    pub(super) fn new(runners: impl IntoIterator<Item = F>) -> Self {
        Self { runners: runners.into_iter().map(Box::pin).collect() }
    }
}

impl<F: Future> Future for Race<F> {
    type Output = (usize, F::Output);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let runners = &mut self.get_mut().runners;
        assert!(
            !runners.is_empty(),
            "Workflow::race was given nothing to race, or was polled after it had ended"
        );
        for (place, runner) in runners.iter_mut().enumerate() {
            if let Poll::Ready(output) = runner.as_mut().poll(context) {
                // The losers go now, whatever becomes of this value.
                runners.clear();
                return Poll::Ready((place, output));
            }
        }
        Poll::Pending
    }
}

impl<F> fmt::Debug for Race<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("runners", &self.runners.len()).finish()
    }
}
