//! Operations on many instances (rule P33): what is done, to which instances, and how far it has come. Each instance is operated
//! by an input of its own, under an id that follows from the bulk's, so that it is done once however often a page is repeated.

use everstep_protocol::{Attribute, Call, Millis, Timestamp, WorkflowName};
use serde::{Deserialize, Serialize};

use crate::{status::StatusWord, transition::Operation};

/// What is done to each instance. A field of a newer version is not passed over: without it something else would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Let what runs finish, and start nothing more.
    Pause,
    /// Let it go on.
    Resume,
    /// Ask it to end by itself.
    Cancel {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// How long it may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Millis>,
        /// Its compensations run when it ends with that (rule P38).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rollback: bool,
    },
    /// End it now.
    Terminate {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Its compensations run before (rule P38).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        rollback: bool,
    },
    /// Let a parked one go on.
    Retry,
    /// Run it again.
    Restart {
        /// What of the run before stays.
        #[serde(default, skip_serializing_if = "Again::is_whole")]
        how: Again,
    },
    /// Remove every trace of it.
    Delete {
        /// An open one is terminated first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        terminate: bool,
    },
}

/// How an instance is run again (rule P31).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// From the beginning.
    #[default]
    Whole,
    /// From this call on; what came before stays.
    From(Call),
    /// From the beginning; steps with the same input as before get their outputs from the run before (rule L4).
    Reuse,
}

impl Again {
    fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

impl Act {
    /// The operation.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Pause => Operation::Pause,
            Self::Resume => Operation::Resume,
            Self::Cancel { .. } => Operation::Cancel,
            Self::Terminate { rollback: true, .. } => Operation::Rollback,
            Self::Terminate { rollback: false, .. } => Operation::Terminate,
            Self::Retry => Operation::Retry,
            Self::Restart { .. } => Operation::Restart,
            Self::Delete { .. } => Operation::Delete,
        }
    }

    /// The word that it is asked for by: a rollback is a way to terminate.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self.operation() {
            Operation::Rollback => Operation::Terminate.word(),
            other => other.word(),
        }
    }

    /// Whether each is prepared from its whole journal, which takes memory.
    #[must_use]
    pub const fn reads_journals(&self) -> bool {
        matches!(self, Self::Restart { how: Again::From(_) | Again::Reuse })
    }

    /// Whether no instance that has ended allows it.
    #[must_use]
    pub const fn is_for_open(&self) -> bool {
        match self {
            Self::Pause | Self::Resume | Self::Cancel { .. } | Self::Terminate { .. } | Self::Retry => true,
            Self::Restart { .. } | Self::Delete { .. } => false,
        }
    }
}

/// Which statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statuses {
    /// Every one that has not ended.
    Open,
    /// This one.
    Only(StatusWord),
}

impl Statuses {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Only(status) => status.word(),
        }
    }

    /// The statuses of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        if word == "open" { Some(Self::Open) } else { StatusWord::parse(word).map(Self::Only) }
    }
}

impl Serialize for Statuses {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word).ok_or_else(|| serde::de::Error::custom(format!("status {word:?} is not known")))
    }
}

/// Which instances: those that fulfil every condition. A condition of a newer version is not read as none, which would mean more
/// instances: whoever does not know it leaves the operation to those who do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Which {
    /// Of this workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<WorkflowName>,
    /// In this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Statuses>,
    /// Created at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// Created before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// Ended at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_from: Option<Timestamp>,
    /// Ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_before: Option<Timestamp>,
    /// Ended with an error of this name or kind, or parked with this code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With all these attributes. The store finds instances by them, as by their workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<Attribute>,
}

/// What of an instance the conditions are about.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its status.
    pub status: StatusWord,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The codes of its error or open question.
    pub errors: [Option<&'a str>; 2],
}

impl Which {
    /// Whether there is no condition at all.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// The statuses to look for: an operation that no ended instance allows looks at open ones alone.
    #[must_use]
    pub const fn statuses(&self, act: &Act) -> Option<Statuses> {
        match self.status {
            None if act.is_for_open() => Some(Statuses::Open),
            given => given,
        }
    }

    /// Whether an instance, which is of the workflow, has the attributes and was found by status, fulfils the other conditions. The status counts as
    /// it was seen; by the time of the operation it may have changed, and then the operation is allowed or refused by that.
    #[must_use]
    pub fn fits(&self, candidate: &Candidate<'_>) -> bool {
        let status = match self.status {
            None => true,
            Some(Statuses::Open) => !candidate.status.is_ended(),
            Some(Statuses::Only(status)) => candidate.status == status,
        };
        let from = |bound: Option<Timestamp>, at: Option<Timestamp>| {
            bound.is_none_or(|bound| at.is_some_and(|at| at >= bound))
        };
        let before = |bound: Option<Timestamp>, at: Option<Timestamp>| {
            bound.is_none_or(|bound| at.is_some_and(|at| at < bound))
        };
        let (created, ended) = (Some(candidate.created_at), candidate.ended_at);
        status
            && from(self.created_from, created)
            && before(self.created_before, created)
            && from(self.ended_from, ended)
            && before(self.ended_before, ended)
            && self.error.as_deref().is_none_or(|error| candidate.errors.contains(&Some(error)))
    }
}

/// A bulk operation as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bulk {
    /// What is done.
    pub act: Act,
    /// To which instances.
    pub which: Which,
}

impl Bulk {
    /// The text that stores keep.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("it is texts and numbers")
    }

    /// Reads that text.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is more to do.
    Running,
    /// All was done.
    Done,
    /// Somebody has stopped it.
    Stopped,
}

everstep_protocol::every! {
    /// Every state, in the order of their codes.
    pub State: Running, Done, Stopped
}

impl State {
    /// The number that stores keep. Never changes.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Running => 0,
            Self::Done => 1,
            Self::Stopped => 2,
        }
    }

    /// The state of a stored number.
    #[must_use]
    pub fn from_code(code: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The word shown to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Instances looked at.
    pub looked_at: u64,
    /// Instances that fulfilled the conditions.
    pub matched: u64,
    /// Of those, instances to which it was done, or with which there was nothing to do.
    pub done: u64,
    /// Of those, instances whose status forbade it by then.
    pub refused: u64,
}

#[cfg(test)]
mod tests {
    use everstep_protocol::CallKind;

    use super::*;

    fn candidate(status: StatusWord, created: i64, ended: Option<i64>) -> Candidate<'static> {
        let (created_at, ended_at) = (Timestamp(created), ended.map(Timestamp));
        Candidate { status, created_at, ended_at, errors: [Some("CardDeclined"), Some("error")] }
    }

    #[test]
    fn p33_every_condition_must_be_fulfilled() {
        let errored = candidate(StatusWord::Errored, 10, Some(20));
        let waiting = candidate(StatusWord::Waiting, 10, None);
        let at = |micros| Some(Timestamp(micros));
        let only = |status| Some(Statuses::Only(status));
        let error = |code: &str| Which { error: Some(code.to_owned()), ..Which::default() };
        for (which, fits_errored, fits_waiting) in [
            (Which::default(), true, true),
            (Which { status: only(StatusWord::Errored), ..Which::default() }, true, false),
            (Which { status: Some(Statuses::Open), ..Which::default() }, false, true),
            (Which { created_from: at(10), ..Which::default() }, true, true),
            (Which { created_from: at(11), ..Which::default() }, false, false),
            (Which { created_before: at(10), ..Which::default() }, false, false),
            (Which { created_before: at(11), ..Which::default() }, true, true),
            (Which { ended_from: at(20), ..Which::default() }, true, false),
            (Which { ended_before: at(21), ..Which::default() }, true, false),
            (Which { ended_before: at(20), ..Which::default() }, false, false),
            (error("CardDeclined"), true, true),
            (error("error"), true, true),
            (error("TimedOut"), false, false),
            (Which { status: only(StatusWord::Errored), ..error("TimedOut") }, false, false),
        ] {
            let got = (which.fits(&errored), which.fits(&waiting));
            assert_eq!(got, (fits_errored, fits_waiting), "{which:?}");
        }
    }

    #[test]
    fn p33_what_only_open_instances_allow_looks_at_those_alone() {
        let all = Which::default();
        let terminate = Act::Terminate { reason: None, rollback: false };
        let roll_back = Act::Terminate { reason: None, rollback: true };
        assert_eq!(all.statuses(&terminate), Some(Statuses::Open));
        assert_eq!(all.statuses(&Act::Restart { how: Again::Whole }), None);
        let errored = Which { status: Some(Statuses::Only(StatusWord::Errored)), ..Which::default() };
        assert_eq!(errored.statuses(&terminate), errored.status);
        for status in StatusWord::ALL.into_iter().filter(|status| status.is_ended()) {
            for act in [Act::Pause, Act::Resume, Act::Retry, terminate.clone(), roll_back.clone()] {
                assert_eq!(act.operation().on(status), crate::transition::Outcome::Refused);
            }
        }
    }

    #[test]
    fn p33_what_is_kept_is_read_back() {
        let which =
            Which { status: Some(Statuses::Open), created_before: Some(Timestamp(5)), ..Which::default() };
        let call = Call { kind: CallKind::Step, name: "charge".parse().unwrap(), count: 2 };
        let which = Which { attributes: vec![Attribute::from_words("vip=true").unwrap()], ..which };
        for act in [
            Act::Pause,
            Act::Cancel { reason: Some("old".to_owned()), within: Some(Millis(5)), rollback: true },
            Act::Terminate { reason: None, rollback: true },
            Act::Restart { how: Again::Whole },
            Act::Restart { how: Again::From(call) },
            Act::Restart { how: Again::Reuse },
            Act::Delete { terminate: true },
        ] {
            let bulk = Bulk { act, which: which.clone() };
            let text = bulk.to_text();
            assert_eq!(Bulk::from_text(&text).unwrap(), bulk, "{text}");
        }
        let of_tomorrow = r#"{"act":{"operation":"delete"},"which":{"of_tomorrow":1}}"#;
        assert!(Bulk::from_text(of_tomorrow).is_err(), "fewer conditions would mean more instances");
        let of_tomorrow = r#"{"act":{"operation":"terminate","softly":true},"which":{"status":"open"}}"#;
        assert!(Bulk::from_text(of_tomorrow).is_err(), "it would be done another way");
        let of_before = r#"{"act":{"operation":"restart"},"which":{"status":"errored"}}"#;
        assert_eq!(Bulk::from_text(of_before).unwrap().act, Act::Restart { how: Again::Whole });
        for state in State::ALL {
            assert_eq!(State::from_code(state.code()), Some(state));
        }
        for word in ["open", "waiting", "cancelled"] {
            assert_eq!(Statuses::parse(word).map(Statuses::word), Some(word));
        }
        assert_eq!(Statuses::parse("done"), None);
    }
}
