//! Plans: a step that thinks and does nothing, and the actions that it decided on (rules L10, L11).

use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::Payload;
use everstep_protocol::duration::IntoMillis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{RemoteCall, StepCall};
use crate::{Error, Retry, Step, Workflow};

/// A plan as it is recorded: with the key of the step that made it, of which the keys of its actions are derived.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Recorded<A> {
    key: String,
    actions: Vec<A>,
}

impl<A> Recorded<A> {
    pub(crate) fn new(step: &Step, actions: Vec<A>) -> Self {
        Self { key: step.idempotency_key().to_owned(), actions }
    }
}

/// A step that makes a plan: awaiting it gives the plan, once that is on record. From [`Workflow::plan`].
#[must_use = "a plan is not made until it is awaited"]
pub struct PlanCall<A> {
    cx: Workflow,
    step: StepCall<Recorded<A>>,
}

impl<A> PlanCall<A> {
    pub(crate) const fn new(cx: Workflow, step: StepCall<Recorded<A>>) -> Self {
        Self { cx, step }
    }

    /// When thinking that failed begins anew. Without it: five retries, exponential from 10 s.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.step = self.step.retry(retry);
        self
    }

    /// How long one attempt at thinking may take: text, milliseconds or a [`Duration`](std::time::Duration). Default: 10 min.
    pub fn timeout(mut self, timeout: impl IntoMillis) -> Self {
        self.step = self.step.timeout(timeout);
        self
    }
}

impl<A: DeserializeOwned> PlanCall<A> {
    /// The plan is shown to nobody; see [`StepCall::sensitive`]. What its actions are given is theirs to hide.
    pub fn sensitive(mut self) -> Self {
        self.step = self.step.sensitive();
        self
    }
}

impl<A: DeserializeOwned> Future for PlanCall<A> {
    type Output = Result<Plan<A>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let recorded = ready!(Pin::new(&mut this.step).poll(context));
        Poll::Ready(recorded.map(|Recorded { key, actions }| {
            let planned = |(index, action)| Planned { cx: this.cx.clone(), plan: key.clone(), index, action };
            Plan { actions: actions.into_iter().enumerate().map(planned).collect() }
        }))
    }
}

impl<A> fmt::Debug for PlanCall<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlanCall").field("step", &self.step).finish_non_exhaustive()
    }
}

/// What a step has decided to do, in order. It is on record: whatever happens, these are the actions, and none that has its outcome
/// is done again.
#[derive(Debug)]
pub struct Plan<A> {
    actions: Vec<Planned<A>>,
}

impl<A> Plan<A> {
    /// How many actions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The actions in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Planned<A>> {
        self.actions.iter()
    }
}

impl<A> IntoIterator for Plan<A> {
    type Item = Planned<A>;
    type IntoIter = std::vec::IntoIter<Planned<A>>;

    fn into_iter(self) -> Self::IntoIter {
        self.actions.into_iter()
    }
}

impl<'a, A> IntoIterator for &'a Plan<A> {
    type Item = &'a Planned<A>;
    type IntoIter = std::slice::Iter<'a, Planned<A>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One action of a plan, read as what the plan says of it.
pub struct Planned<A> {
    cx: Workflow,
    /// The key of the step that made the plan.
    plan: String,
    index: usize,
    action: A,
}

impl<A> Planned<A> {
    /// Its place in the plan, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Does it: a step like any other, counted among those of its name, with a record and a policy of its own. Its key derives from the plan's, the place in it and the
    /// input, so that no other plan's action ever has it.
    pub fn step<In, Out, E, F, Fut>(
        &self,
        name: impl AsRef<str>,
        input: impl Serialize,
        function: F,
    ) -> StepCall<Out>
    where
        In: DeserializeOwned,
        Out: Serialize + DeserializeOwned,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        self.cx.step(name, input, function).known_as(|input| self.identity(input))
    }

    /// Has a pool do it: a [remote step](Workflow::remote) with a key like that of [`step`](Self::step).
    pub fn remote<Out: DeserializeOwned>(
        &self,
        name: impl AsRef<str>,
        input: impl Serialize,
    ) -> RemoteCall<Out> {
        self.cx.remote(name, input).known_as(|input| self.identity(input))
    }

    /// What its key and fingerprint are made of in place of the input alone.
    fn identity(&self, input: &Payload) -> Payload {
        Payload::from_trusted(format!(r#"["{}",{},{}]"#, self.plan, self.index, input.as_str()))
    }
}

impl<A> Deref for Planned<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.action
    }
}

impl<A: fmt::Debug> fmt::Debug for Planned<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planned")
            .field("index", &self.index)
            .field("action", &self.action)
            .finish_non_exhaustive()
    }
}
