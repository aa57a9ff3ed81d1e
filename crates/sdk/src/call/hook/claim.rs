//! Who has a token, as errors say it, and for how long it is kept.

use std::time::{Duration, SystemTime};

use everstep_protocol::duration::IntoMillis;
use everstep_protocol::hook::{HOOK_CONFLICT, HOOK_TAKEN, HookRetention};
use everstep_protocol::{Millis, Timestamp, journal::Other};
use serde::{Deserialize, Serialize};

use crate::call::{Instance, IntoTimestamp};
use crate::host::Shared;
use crate::{Error, Workflow};

/// An instance that has a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Owner {
    /// Its workflow.
    pub workflow: String,
    /// Its id.
    pub id: String,
}

impl Owner {
    /// The instance as a workflow reaches it: to wait for its end, or to send it an event.
    #[must_use]
    pub fn instance(&self, cx: &Workflow) -> Instance {
        cx.instance(&self.workflow, &self.id)
    }
}

/// An await, or the start of a child, failed because another instance has the token (rules H32, H37). From [`Error::hook_conflict`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookConflict {
    /// Who has it.
    pub owner: Owner,
}

/// An await failed because another instance has taken the token by force (rule H60). From [`Error::hook_taken`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HookTaken {
    /// Who has it now.
    pub claimant: Owner,
    /// The claimant's hook.
    pub hook: String,
}

#[derive(Deserialize)]
struct Claimant {
    #[serde(flatten)]
    instance: Owner,
    hook: String,
}

/// The error of an await whose token another instance has.
pub(super) fn conflict(what: &str, owner: &Other) -> Error {
    let Other { workflow, id } = owner;
    Error::permanent(format_args!("{what}: {workflow}/{id} has the token"))
        .named(HOOK_CONFLICT)
        .with_data(owner)
}

impl Error {
    /// Another instance has the token of the hook that was awaited, or that a child was to be started with (rules H32, H37): which one.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<String, Error> {
    /// let hook = cx.hook::<String>("order").token("order:17").create()?;
    /// match hook.next().await {
    ///     Err(error) if let Some(conflict) = error.hook_conflict() => Ok(conflict.owner.id),
    ///     payload => payload,
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn hook_conflict(&self) -> Option<HookConflict> {
        let owner = (self.name() == HOOK_CONFLICT).then(|| self.data::<Owner>())??;
        Some(HookConflict { owner })
    }

    /// Another instance has taken the token of the hook that was awaited (rule H60): which one.
    #[must_use]
    pub fn hook_taken(&self) -> Option<HookTaken> {
        let Claimant { instance, hook } = (self.name() == HOOK_TAKEN).then(|| self.data())??;
        Some(HookTaken { claimant: instance, hook })
    }
}

/// A retention that is over is refused before anybody is asked (rule H30).
pub(in crate::call) fn check_moment(shared: &Shared, retention: Option<HookRetention>) -> Result<(), String> {
    let now = shared.lock().now;
    match retention.map(|retention| retention.until(now)) {
        Some(until) if until <= now => {
            Err(format!("retention {until} is refused, it must end in the future"))
        }
        Some(_) | None => Ok(()),
    }
}

/// For how long a token stays its instance's: a duration as for a sleep, or a moment as text, [`SystemTime`] or [`Timestamp`].
pub trait IntoRetention {
    /// The retention, or why there is none such.
    fn into_retention(self) -> Result<HookRetention, String>;
}

impl IntoRetention for &str {
    fn into_retention(self) -> Result<HookRetention, String> {
        HookRetention::parse(self)
    }
}

impl IntoRetention for String {
    fn into_retention(self) -> Result<HookRetention, String> {
        HookRetention::parse(&self)
    }
}

macro_rules! of_length {
    ($($length:ty),*) => {$(
        impl IntoRetention for $length {
            fn into_retention(self) -> Result<HookRetention, String> {
                let length = self.into_millis().map_err(|error| format!("retention: {error}"))?;
                HookRetention::of_millis(length.as_u64())
            }
        }
    )*};
}

of_length!(Millis, Duration, u64, u32, i64, i32);

impl IntoRetention for SystemTime {
    fn into_retention(self) -> Result<HookRetention, String> {
        let moment = self.into_timestamp().ok_or("retention: the moment is too far away to be counted")?;
        Ok(HookRetention::Until(moment))
    }
}

impl IntoRetention for Timestamp {
    fn into_retention(self) -> Result<HookRetention, String> {
        Ok(HookRetention::Until(self))
    }
}
