//! Schedules (rules S1 to S16): what a schedule starts and when, where it stands, and what is done about the due times that have come.
//!
//! | module | what it decides |
//! | --- | --- |
//! | `when` | which due times there are, and when each is started |
//! | `state` | where a schedule stands: what is kept beside what was asked for |
//! | `turn` | what becomes of the due times that have come, and when to look again |
//! | `overlap` | what becomes of one due time while an earlier one is still open |
//! | `operate` | what people do with a schedule |
//!
//! Nothing here knows cron or time zones: the moments that an expression names are handed in ([`Times`]).

mod operate;
mod overlap;
mod state;
mod turn;
mod when;

use everstep_protocol::{
    Attribute, AttributeName, AttributeValue, InstanceId, Millis, Payload, Pin, ScheduleId, Timestamp,
    WorkflowName, name::NameError, payload::PayloadError,
};
use serde::{Deserialize, Serialize};

pub use self::{
    operate::OperateError,
    state::{Action, ActionKind, Backfill, Counts, Due, DueKind, Paused, Run, State},
    turn::{Look, Outcome, Turn},
    when::{CatchUp, Overlap, Times, When, Which, next_runs},
};
use crate::retention::Own;

/// The attribute by which the instances of a schedule are found.
pub const ATTRIBUTE: &str = "everstep.schedule";

/// A schedule as it was asked for. A field of a newer version is not passed over: without it something else would be started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// What is started.
    pub workflow: WorkflowName,
    /// With this input.
    pub input: Payload,
    /// How long each instance is kept after its end, where it differs from what its workflow says.
    #[serde(default)]
    pub retention: Own,
    /// To which build each is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Whether a start is refused while no worker serves the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// What each can be found by, beside [`ATTRIBUTE`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
    /// Its due times.
    pub when: When,
    /// No due time lies before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// No due time lies at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// So many due times are started at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Each due time is started up to so much later, the same whoever starts it.
    #[serde(default)]
    pub jitter: Millis,
    /// What becomes of a due time while an earlier one is still open.
    #[serde(default)]
    pub overlap: Overlap,
    /// What becomes of due times that nobody started in time.
    #[serde(default)]
    pub catch_up: CatchUp,
}

/// A field of a definition that is refused. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value} is refused, it must be {rule}")]
pub struct DefinitionError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What holds for each that is accepted.
    pub rule: &'static str,
}

/// Why a definition cannot be made. Trying again gives the same answer.
#[derive(Debug, thiserror::Error)]
pub enum StartsError {
    /// The name of the workflow breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The input has no JSON form.
    #[error(transparent)]
    Input(#[from] PayloadError),
}

impl Definition {
    /// What starts a workflow with an input at these times; everything else is as if nothing was said of it.
    pub fn starts(
        workflow: &str,
        input: &(impl Serialize + ?Sized),
        when: When,
    ) -> Result<Self, StartsError> {
        Ok(Self {
            workflow: WorkflowName::new(workflow)?,
            input: Payload::encode(input)?,
            retention: Own::default(),
            pin: None,
            strict: None,
            attributes: Vec::new(),
            when,
            from: None,
            until: None,
            limit: None,
            jitter: Millis::ZERO,
            overlap: Overlap::default(),
            catch_up: CatchUp::default(),
        })
    }

    /// The longest jitter.
    pub const JITTER_MAX: Millis = Millis::from_secs(86_400);
    /// The longest span within which missed due times are caught up.
    pub const CATCH_UP_MAX: Millis = Millis::from_secs(366 * 86_400);
    /// The longest interval.
    pub const EVERY_MAX: Millis = Millis::from_secs(366 * 86_400);
    /// The most due times that wait for their turn.
    pub const QUEUE_MAX: u32 = 1_000;

    /// Checks what its types do not. That a cron expression can be read is checked by whoever can.
    pub fn check(&self) -> Result<(), DefinitionError> {
        let refuse = |field, value: String, rule| Err(DefinitionError { field, value, rule });
        self.when.check()?;
        if self.jitter > Self::JITTER_MAX {
            return refuse("jitter", self.jitter.to_string(), "at most 1 day");
        }
        if self.catch_up.within > Self::CATCH_UP_MAX {
            return refuse("catch_up_within", self.catch_up.within.to_string(), "at most 366 days");
        }
        if let Overlap::Queue { max } = self.overlap
            && !(1..=Self::QUEUE_MAX).contains(&max)
        {
            return refuse("queue_max", max.to_string(), "1 to 1000");
        }
        if self.limit == Some(0) {
            return refuse("limit", "0".to_owned(), "at least 1");
        }
        if let (Some(from), Some(until)) = (self.from, self.until)
            && until <= from
        {
            return refuse("until", until.to_string(), "later than from");
        }
        if self.attributes.len() >= everstep_protocol::attribute::ATTRIBUTES_MAX {
            return refuse(
                "attributes",
                format!("of {}", self.attributes.len()),
                "at most 31: one more names the schedule",
            );
        }
        if self.attributes.iter().any(|attribute| attribute.name.as_str() == ATTRIBUTE) {
            return refuse("attributes", ATTRIBUTE.to_owned(), "names that the engine does not give itself");
        }
        Ok(())
    }

    /// Reads the text that stores keep.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The text that stores keep.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("it is texts and numbers")
    }

    /// The attributes that each instance starts with.
    #[must_use]
    pub fn attributes_of(&self, id: &ScheduleId) -> Vec<Attribute> {
        let own = AttributeName::new(ATTRIBUTE).ok().zip(AttributeValue::from_text(id.as_str()).ok());
        let own = own.map(|(name, value)| Attribute { name, value: Some(value) });
        self.attributes.iter().cloned().chain(own).collect()
    }
}

/// The id of the instance that a schedule starts for a due time: the same whoever starts it, however often (rule S5).
#[must_use]
pub fn instance_id(schedule: &ScheduleId, due: Timestamp) -> InstanceId {
    let digits: String = due.to_string().chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
    InstanceId::new(format!("{schedule}:{digits}Z")).expect("an id of 60 characters leaves room for a time")
}

/// The id of the instance that somebody asked for at once: the same for the same request.
#[must_use]
pub fn triggered_id(schedule: &ScheduleId, operation: &str) -> InstanceId {
    let hash = mixed(operation.as_bytes(), &[]);
    InstanceId::new(format!("{schedule}:by-hand-{hash:016x}"))
        .expect("an id of 60 characters leaves room for a number")
}

/// A number that two byte strings come to, spread evenly. Never changes: what was started under it must be found again.
fn mixed(first: &[u8], second: &[u8]) -> u64 {
    let hash = first.iter().chain(second).fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
