//! Many remote steps of one name (rules P7, W39).

use std::fmt;

use everstep_protocol::duration::IntoMillis;
use serde::de::DeserializeOwned;

use super::RemoteCall;
use crate::{Joined, Retry};

/// Remote steps of one name: awaiting them gives their outcomes, in the order of their inputs. From
/// [`Workflow::remote_all`](crate::Workflow::remote_all).
#[must_use = "remote steps do not run until they are awaited"]
pub struct RemoteCalls<Out> {
    calls: Vec<RemoteCall<Out>>,
    at_most: usize,
}

impl<Out> RemoteCalls<Out> {
    pub(crate) fn new(calls: Vec<RemoteCall<Out>>) -> Self {
        Self { calls, at_most: usize::MAX }
    }

    /// The pool whose workers run them. Required.
    pub fn on(self, pool: impl AsRef<str>) -> Self {
        self.each(|call| call.on(pool.as_ref()))
    }

    /// The registered function, if it is not called like the steps.
    pub fn function(self, function: impl AsRef<str>) -> Self {
        self.each(|call| call.function(function.as_ref()))
    }

    /// See [`RemoteCall::retry`]; each has its own attempts.
    #[allow(clippy::needless_pass_by_value, reason = "taken as one call takes it")]
    pub fn retry(self, retry: Retry) -> Self {
        self.each(|call| call.retry(retry.clone()))
    }

    /// See [`RemoteCall::timeout`]; each has its own.
    #[allow(clippy::needless_pass_by_value, reason = "taken as one call takes it")]
    pub fn timeout(self, timeout: impl IntoMillis + Clone) -> Self {
        self.each(|call| call.timeout(timeout.clone()))
    }

    /// No more than so many are open at once; 0 counts as 1. Default: all of them, and the pool takes what it has slots for.
    pub fn at_most(self, open: usize) -> Self {
        Self { at_most: open, ..self }
    }

    fn each(self, change: impl FnMut(RemoteCall<Out>) -> RemoteCall<Out>) -> Self {
        Self { calls: self.calls.into_iter().map(change).collect(), ..self }
    }
}

impl<Out: DeserializeOwned> IntoFuture for RemoteCalls<Out> {
    type Output = Vec<Result<Out, crate::Error>>;
    type IntoFuture = Joined<std::vec::IntoIter<RemoteCall<Out>>>;

    fn into_future(self) -> Self::IntoFuture {
        Joined::new(self.calls.into_iter(), self.at_most)
    }
}

impl<Out> fmt::Debug for RemoteCalls<Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteCalls").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}
