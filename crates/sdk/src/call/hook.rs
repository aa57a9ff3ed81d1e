//! Hooks: durable addresses that outsiders resume with payloads (rules H8, H9, H23 to H25, H36 to H44, H52 to H54, H59 to H69).

mod claim;
mod create;
mod payloads;
mod webhook;

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use everstep_protocol::{CallKind, Token, hook::HOOK_DISPOSED, journal::HookOutcome};

pub(super) use self::claim::check_moment;
use self::claim::conflict;
pub use self::claim::{HookConflict, HookTaken, IntoRetention, Owner};
pub use self::create::HookCall;
pub(super) use self::create::{encode_metadata, encode_schema};
pub use self::payloads::{NextPayload, Payloads};
pub use self::webhook::{NextRequest, RespondCall, Webhook, WebhookCall, WebhookRequest, WebhookResponse};
use super::Instance;
use crate::Error;
use crate::host::{Shared, Standing};

/// A hook of this instance: whoever knows its token resumes it with payloads, each of which [`next`](Self::next) receives once.
///
/// This value is a guard. When it is dropped, at the end of its scope or because an error leaves it, the hook is let go
/// ([`dispose`](Self::dispose)): the token is free, and what comes for it finds nobody (rule H52). [`keep`](Self::keep) it where the
/// hook is to last as long as the instance, which is what its retention and the next generation need. That the worker puts
/// an instance aside drops nothing.
///
/// ```
/// # use everstep_sdk::{Error, Workflow};
/// # async fn body(cx: Workflow, order: u64) -> Result<String, Error> {
/// let approval = cx.hook::<String>("approval").token(format!("order:{order}")).create()?;
/// let approved_by = approval.next().await?;
/// # Ok(approved_by) }
/// ```
pub struct Hook<T> {
    core: Core,
    /// Dropping it does nothing.
    keeps: bool,
    payload: PhantomData<fn() -> T>,
}

/// What a hook and its awaits share.
#[derive(Clone)]
struct Core {
    shared: Arc<Shared>,
    /// Of the call that created it.
    number: u64,
    name: String,
    token: Token,
}

impl<T> Hook<T> {
    /// The token by which it is resumed.
    #[must_use]
    pub fn token(&self) -> &str {
        self.core.token.as_str()
    }

    /// The hook lasts until the instance ends, and its retention after that; only [`dispose`](Self::dispose) lets it go.
    #[must_use = "what is kept is this value, which awaits the hook as before"]
    pub fn keep(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// Waits until it is known whether the token is this instance's: none if so, otherwise who has it (rules H37, H38). Asking again
    /// gives the same answer, also after somebody has taken the token by force.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<String, Error> {
    /// let hook = cx.hook::<()>("order").token(format!("order:{order}")).create()?;
    /// if let Some(owner) = hook.conflict().await? {
    ///     return owner.result().await;
    /// }
    /// # Ok("done".to_owned()) }
    /// ```
    pub fn conflict(&self) -> ConflictCall {
        ConflictCall { core: self.core.clone() }
    }

    /// Waits for the next payload: the oldest that nobody has received, or the first that comes. Each is received by one await, of
    /// which the oldest is served first; one that comes too late for the loser of a race goes to the next (rules H41 to H44).
    ///
    /// Errors, which can be caught: [`HookConflict`] where another instance has the token, [`HookTaken`] once another has taken it and
    /// what came before is received, one with the name `HookDisposed` after the hook was let go, and one with the name
    /// `HookPayload` for a payload that is no `T`, which is received all the same.
    pub fn next(&self) -> NextPayload<T> {
        NextPayload::new(self.core.clone())
    }

    /// All payloads, one after the other, as a stream that ends when the hook is let go.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Hook};
    /// # async fn body(hook: Hook<u64>) -> Result<u64, Error> {
    /// let (mut payloads, mut sum) = (hook.payloads(), 0);
    /// while let Some(payload) = payloads.next().await {
    ///     sum += payload?;
    ///     if sum > 100 {
    ///         hook.dispose().await;
    ///     }
    /// }
    /// # Ok(sum) }
    /// ```
    pub fn payloads(&self) -> Payloads<T> {
        Payloads::new(self.core.clone())
    }

    /// Lets the hook go: its awaits end, no payload is accepted any more, and its retention is void (rules H21, H23, H52). The future
    /// is ready when the token is free for others, and need not be awaited. Twice does nothing.
    pub fn dispose(&self) -> Disposal {
        self.core.let_go();
        Disposal { core: self.core.clone() }
    }
}

impl Core {
    fn let_go(&self) {
        // A drop means something only inside a poll of the body (rule W29).
        if self.shared.is_polling() {
            self.shared.let_go(self.number).into_iter().for_each(std::task::Waker::wake);
        }
    }

    fn describe(&self) -> String {
        format!("{} {:?}", CallKind::Hook, self.name)
    }
}

impl<T> Drop for Hook<T> {
    fn drop(&mut self) {
        if !self.keeps {
            self.core.let_go();
        }
    }
}

/// Whether a token is this instance's. From [`Hook::conflict`].
#[must_use = "nothing is known until this is awaited"]
pub struct ConflictCall {
    core: Core,
}

impl Future for ConflictCall {
    type Output = Result<Option<Instance>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let core = &self.core;
        core.inside()?;
        let Some(outcome) = core.shared.hook_outcome(core.number) else {
            return match core.shared.hook(core.number, context.waker()) {
                Standing::Unknown => Poll::Pending,
                Standing::LetGo | Standing::Owned(_) | Standing::Not(_) => Poll::Ready(Err(core.over())),
            };
        };
        Poll::Ready(match outcome {
            Ok(HookOutcome::Owned { .. }) => Ok(None),
            Ok(HookOutcome::Conflict { owner }) => Ok(Some(Instance::of(&core.shared, owner))),
            Ok(HookOutcome::Refused(failure)) | Err(failure) => Err(Error::from_failure(failure)),
        })
    }
}

/// The token of a hook becomes free. From [`Hook::dispose`].
pub struct Disposal {
    core: Core,
}

impl Future for Disposal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Outside of the body nothing was let go, and nobody would wake it.
        if !self.core.shared.is_polling() || self.core.shared.is_let_go(self.core.number, context.waker()) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Core {
    /// The context answers only inside its own body (rule W30).
    fn inside(&self) -> Result<(), Error> {
        if self.shared.is_polling() {
            return Ok(());
        }
        Err(Error::from_failure(super::pending::outside(&self.describe())))
    }

    /// The error of an await of a hook that was let go.
    fn over(&self) -> Error {
        Error::permanent(format_args!("{} was let go of", self.describe())).named(HOOK_DISPOSED)
    }

    /// The error of an await of a hook that is not to be had.
    fn not_had(&self, outcome: Result<HookOutcome, everstep_protocol::Failure>) -> Error {
        match outcome {
            Ok(HookOutcome::Conflict { owner }) => conflict(&self.describe(), &owner),
            Ok(HookOutcome::Refused(failure)) | Err(failure) => Error::from_failure(failure),
            Ok(HookOutcome::Owned { .. }) => self.over(),
        }
    }
}

/// Not the token, which whoever reads a log could resume it by.
impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.core).finish()
    }
}

impl fmt::Debug for ConflictCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConflictCall").field(&self.core).finish()
    }
}

impl fmt::Debug for Disposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Disposal").field(&self.core).finish()
    }
}
