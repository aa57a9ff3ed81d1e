//! Hooks: durable addresses that outsiders resume with payloads (rules H8, H9, H23 to H25, H36 to H44, H52 to H54, H59 to H69).

mod claim;
mod payloads;

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use everstep_protocol::hook::{Registration, Webhook, check_metadata};
use everstep_protocol::{CallKind, FailureKind, Payload, Token, journal::HookOutcome};
use serde::Serialize;

use self::claim::conflict;
pub use self::claim::{HookConflict, HookTaken, IntoRetention, Owner};
pub use self::payloads::{NextPayload, Payloads};
use super::{Instance, Pending};
use crate::Error;
use crate::host::{Created, Numbered, Shared, Standing};

/// A hook in the making: [`create`](Self::create) makes it. From [`Workflow::hook`](crate::Workflow::hook).
#[must_use = "nobody has the token until it is created"]
pub struct HookCall<T> {
    pending: Pending,
    token: Option<Token>,
    asked: Asked,
    payload: PhantomData<fn() -> T>,
}

#[derive(Default)]
struct Asked {
    retention: Option<everstep_protocol::hook::HookRetention>,
    metadata: Option<Payload>,
    webhook: Option<Webhook>,
    force: bool,
}

impl<T> HookCall<T> {
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending, token: None, asked: Asked::default(), payload: PhantomData }
    }

    /// The token by which it is resumed, of 1 to 256 characters: whoever knows it may resume the hook. One instance of the namespace
    /// has a token at a time. Without it the token is one that nobody can guess, and the same in every replay.
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        match Token::new(token) {
            Ok(token) => self.token = Some(token),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// For how long, from its creation, the token stays this instance's although that has ended: a duration as for a sleep, or a
    /// moment. It holds only for a hook that is never let go, so [`keep`](Hook::keep) it. Default: none, the token is free when the
    /// instance ends.
    pub fn retention(mut self, retention: impl IntoRetention) -> Self {
        match retention.into_retention() {
            Ok(retention) => self.asked.retention = Some(retention),
            Err(error) => self.pending.refuse(FailureKind::Invalid, error),
        }
        self
    }

    /// What whoever looks the token up reads: any value of at most 16 KiB of JSON.
    pub fn metadata(mut self, metadata: &impl Serialize) -> Self {
        match Payload::encode(metadata) {
            Ok(metadata) => match check_metadata(&metadata) {
                Ok(()) => self.asked.metadata = Some(metadata),
                Err(error) => self.pending.refuse(FailureKind::Invalid, error),
            },
            Err(error) => {
                self.pending
                    .refuse(FailureKind::Unserialisable, format_args!("recording the metadata: {error}"));
            }
        }
        self
    }

    /// Takes the token from whoever has it (rule H59): from then on this instance receives what the hook is resumed with. The
    /// instance before fails with [`HookTaken`] where it awaits the hook, once it has received what came before.
    pub fn force(mut self) -> Self {
        self.asked.force = true;
        self
    }

    /// Anybody who knows the token may resume it over HTTP, and is answered 202 without a body.
    pub fn webhook(mut self) -> Self {
        self.asked.webhook = Some(Webhook::default());
        self
    }

    /// Like [`webhook`](Self::webhook), with an answer of its own: a status of 200 to 599, and a body of plain text.
    pub fn webhook_answering(mut self, status: u16, body: impl Into<String>) -> Self {
        if !(200..=599).contains(&status) {
            let reason = format_args!("webhook status {status} is refused, it must be 200 to 599");
            self.pending.refuse(FailureKind::Invalid, reason);
        }
        let webhook = Webhook { status: Some(status), body: Some(body.into()), content_type: None };
        self.asked.webhook = Some(webhook);
        self
    }

    /// Creates the hook. Whether the token is this instance's is known a moment later, without this function waiting for it:
    /// [`conflict`](Hook::conflict) does, and so does [`next`](Hook::next). Steps that are called before that begin all the same
    /// (rule H39).
    ///
    /// The token that the instance was started with is already its own: the hook is that one, as the start made it, and nothing but
    /// the token may be said of it (rules H8, H9).
    ///
    /// # Errors
    /// What is not valid: a token, a retention, metadata; a webhook with a retention or by force; force without a token; a token that
    /// another hook of this instance has. The same call fails the same way again.
    pub fn create(mut self) -> Result<Hook<T>, Error> {
        let is_generated = self.token.is_none();
        let shared = self.pending.shared().clone();
        let (name, what) = (self.pending.name().to_owned(), self.pending.describe());
        if is_generated && self.asked.force {
            self.pending.refuse(FailureKind::Invalid, "force needs a token to take, and none is given");
        }
        let generated = self.pending.call().and_then(|call| crate::random::token(&shared, call.hash()));
        let numbered = self.pending.into_numbered()?;
        let Some(token) = self.token.or(generated) else {
            return Err(Error::permanent("the call has no name").of_kind(FailureKind::Invalid));
        };
        let Asked { retention, metadata, webhook, force } = self.asked;
        let registration = Registration { token: token.clone(), retention, metadata, webhook, force };
        let refused = |reason: &dyn fmt::Display| {
            Error::permanent(format_args!("{what}: {reason}")).of_kind(FailureKind::Invalid).named("Invalid")
        };
        if let Some(contradiction) = registration.contradiction() {
            return Err(refused(&contradiction));
        }
        check_moment(&shared, &registration).map_err(|reason| refused(&reason))?;
        let number = numbered.number;
        match create(&shared, numbered, registration) {
            Ok(()) => {
                Ok(Hook { core: Core { shared, number, name, token }, keeps: false, payload: PhantomData })
            }
            Err(reason) => Err(refused(&reason)),
        }
    }
}

/// A retention that is over is refused before anybody is asked (rule H30).
fn check_moment(shared: &Shared, registration: &Registration) -> Result<(), String> {
    let now = shared.lock().now;
    match registration.retention.map(|retention| retention.until(now)) {
        Some(until) if until <= now => {
            Err(format!("retention {until} is refused, it must end in the future"))
        }
        Some(_) | None => Ok(()),
    }
}

fn create(shared: &Shared, numbered: Numbered, registration: Registration) -> Result<(), String> {
    let token = registration.token.clone();
    match shared.create_hook(numbered, registration) {
        Created::Yes => Ok(()),
        Created::Twice(call) => Err(format!(
            "token {token:?} is refused, {call} of this instance has it; let go of that one first"
        )),
        Created::StartWith(field) => Err(format!(
            "{field} is refused, token {token:?} is the one that the instance was started with, and its hook is as the start made it"
        )),
    }
}

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
        Error::permanent(format_args!("{} was let go of", self.describe())).named(DISPOSED)
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

/// The name of the error of an await whose hook was let go.
const DISPOSED: &str = "HookDisposed";

impl<T> fmt::Debug for HookCall<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookCall").field("call", &self.pending).finish_non_exhaustive()
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
