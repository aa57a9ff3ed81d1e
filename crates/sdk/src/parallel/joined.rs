//! All of many, so many at once.

use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::future::{Join, join};
use futures::stream::FuturesUnordered;

/// All of many: awaiting it gives their outputs, in the order in which they were given. From
/// [`Workflow::join_all`](crate::Workflow::join_all) and others.
#[must_use = "nothing runs until it is awaited"]
pub struct Joined<Calls>
where
    Calls: Iterator<Item: Future>,
{
    calls: Calls,
    /// Those that have begun, each with its place.
    open: FuturesUnordered<Join<Ready<usize>, Calls::Item>>,
    outputs: Vec<Option<Output<Calls>>>,
    at_most: usize,
}

type Output<Calls> = <<Calls as Iterator>::Item as Future>::Output;

impl<Calls: Iterator<Item: Future>> Joined<Calls> {
    pub(crate) fn new(calls: Calls, at_most: usize) -> Self {
        Self { calls, open: FuturesUnordered::new(), outputs: Vec::new(), at_most: at_most.max(1) }
    }

    /// Begins what there is room for, in order.
    fn fill(&mut self) {
        while self.open.len() < self.at_most
            && let Some(call) = self.calls.next()
        {
            self.open.push(join(ready(self.outputs.len()), call));
            self.outputs.push(None);
        }
    }
}

/// The calls that have begun are pinned where `FuturesUnordered` keeps them, the rest is never pinned.
impl<Calls: Iterator<Item: Future>> Unpin for Joined<Calls> {}

impl<Calls: Iterator<Item: Future>> Future for Joined<Calls> {
    type Output = Vec<Output<Calls>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            this.fill();
            match this.open.poll_next_unpin(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some((place, output))) => {
                    if let Some(slot) = this.outputs.get_mut(place) {
                        *slot = Some(output);
                    }
                }
                Poll::Ready(None) => {
                    return Poll::Ready(std::mem::take(&mut this.outputs).into_iter().flatten().collect());
                }
            }
        }
    }
}

impl<Calls: Iterator<Item: Future>> fmt::Debug for Joined<Calls> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("open", &self.open.len()).finish_non_exhaustive()
    }
}

/// Many items, for each of which the same is to be done. From [`Workflow::each`](crate::Workflow::each).
#[derive(Clone, Debug)]
#[must_use = "nothing is done until it is told what, with `run`"]
pub struct Each<Items> {
    items: Items,
    at_most: usize,
}

impl<Items: IntoIterator> Each<Items> {
    pub(super) fn new(items: Items) -> Self {
        Self { items, at_most: usize::MAX }
    }

    /// No more than so many at once; the next begins when one ends. 0 counts as 1. Default: all at once.
    pub fn at_most(self, at_most: usize) -> Self {
        Self { at_most, ..self }
    }

    /// Awaiting it gives the outputs in the order of the items, failures among them. The calls are made in the order of the
    /// items, each when its turn comes.
    pub fn run<F, Run>(self, run: Run) -> Joined<std::iter::Map<Items::IntoIter, Run>>
    where
        F: Future,
        Run: FnMut(Items::Item) -> F,
    {
        Joined::new(self.items.into_iter().map(run), self.at_most)
    }
}
