//! A payload for whoever has a token, as a workflow sends it (rules H28, H45 to H50).

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use everstep_protocol::{FailureKind, Payload, Token, hook::HOOK_NOT_FOUND, journal::Other};

use super::{Instance, Pending};
use crate::Error;
use crate::host::{ResumeSpec, Spec};

/// A payload for whoever has a token. From [`Workflow::resume_hook`](crate::Workflow::resume_hook).
#[must_use = "nobody is resumed until this is awaited"]
pub struct ResumeCall {
    pending: Pending,
    resume: Option<ResumeSpec>,
}

impl ResumeCall {
    pub(crate) fn new(mut pending: Pending, token: &str, payload: Option<Payload>) -> Self {
        let token = Token::new(token).map_err(|error| pending.refuse(FailureKind::Invalid, error)).ok();
        let resume = token.zip(payload).map(|(token, payload)| ResumeSpec { token, payload });
        Self { pending, resume }
    }
}

impl Future for ResumeCall {
    type Output = Result<Option<Instance>, Error>;

    /// The handle is made of what was recorded, as that of a child.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { pending, resume } = self.get_mut();
        let outcome = ready!(pending.poll(context, || {
            Spec::Resume(resume.take().expect("a call without a payload was refused"))
        }));
        let accepted = match outcome {
            Err(error) if error.name() == HOOK_NOT_FOUND => return Poll::Ready(Ok(None)),
            accepted => ready!(pending.decode::<Other>(accepted)),
        };
        Poll::Ready(accepted.map(|owner| Some(Instance::of(pending.shared(), owner))))
    }
}

impl fmt::Debug for ResumeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ResumeCall").field(&self.pending).finish()
    }
}
