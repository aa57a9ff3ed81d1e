//! Which due times a schedule has, and when each is started.

use everstep_protocol::{Millis, ScheduleId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Definition, DefinitionError, mixed};

/// The moments that a cron expression names.
pub trait Times: Send + Sync {
    /// The first one after this moment, if there is one.
    fn after(&self, moment: Timestamp) -> Option<Timestamp>;
}

/// For schedules without an expression.
impl Times for () {
    fn after(&self, _: Timestamp) -> Option<Timestamp> {
        None
    }
}

/// The due times of a schedule. All are whole seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum When {
    /// What a cron expression names in a time zone.
    Cron {
        /// The expression.
        expression: String,
        /// The zone's name.
        zone: String,
    },
    /// Every so much, counted from 1970-01-01T00:00:00Z, and so much later.
    Every {
        /// The interval.
        every: Millis,
        /// How much later.
        offset: Millis,
    },
    /// Once.
    At {
        /// The moment.
        at: Timestamp,
    },
}

/// What becomes of a due time while an instance of an earlier one is still open (rule S8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case", deny_unknown_fields)]
pub enum Overlap {
    /// It is skipped.
    #[default]
    Skip,
    /// It waits for the end of that one; while one waits, others are skipped.
    QueueOne,
    /// It waits for its turn; while so many wait, others are skipped.
    Queue {
        /// How many may wait.
        max: u32,
    },
    /// That one is cancelled, and it waits for its end; the newest replaces the one that waits.
    CancelOther,
    /// That one is terminated, and it is started at once.
    TerminateOther,
    /// It is started beside it.
    Allow,
}

impl Overlap {
    /// How many may wait where nothing is said.
    pub const QUEUE_DEFAULT: u32 = 100;
    /// The words.
    pub const WORDS: [&'static str; 6] =
        ["skip", "queue_one", "queue", "cancel_other", "terminate_other", "allow"];

    /// The policy of a word; `max` is how many may wait.
    #[must_use]
    pub fn parse(word: &str, max: Option<u32>) -> Option<Self> {
        let max = max.unwrap_or(Self::QUEUE_DEFAULT);
        let all = [
            Self::Skip,
            Self::QueueOne,
            Self::Queue { max },
            Self::CancelOther,
            Self::TerminateOther,
            Self::Allow,
        ];
        all.into_iter().find(|policy| policy.word() == word)
    }

    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        let [skip, queue_one, queue, cancel_other, terminate_other, allow] = Self::WORDS;
        match self {
            Self::Skip => skip,
            Self::QueueOne => queue_one,
            Self::Queue { .. } => queue,
            Self::CancelOther => cancel_other,
            Self::TerminateOther => terminate_other,
            Self::Allow => allow,
        }
    }
}

/// Which due times are started late (rule S9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// All of them, in their order.
    All,
    /// The last of them, unless a later one is due in time.
    #[default]
    Latest,
    /// None.
    None,
}

everstep_protocol::every! {
    /// Every choice.
    pub Which: All, Latest, None
}

impl Which {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Latest => "latest",
            Self::None => "none",
        }
    }
}

/// What becomes of due times that nobody started in time, such as while everything was down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatchUp {
    /// Which of them are started after all.
    pub which: Which,
    /// Those that are later than this are missed in any case.
    pub within: Millis,
}

impl CatchUp {
    /// A due time is late after so much: what a busy coordinator takes is not.
    pub const LATE: Millis = Millis::from_secs(10);

    /// After how much a due time is missed in any case.
    #[must_use]
    pub fn horizon(self) -> Millis {
        match self.which {
            Which::None => Self::LATE,
            Which::All | Which::Latest => self.within.max(Self::LATE),
        }
    }
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { which: Which::Latest, within: Millis::from_secs(86_400) }
    }
}

const SECOND: i64 = 1_000_000;

impl When {
    /// What a cron expression names, in UTC.
    #[must_use]
    pub fn cron(expression: &str) -> Self {
        Self::Cron { expression: expression.to_owned(), zone: "UTC".to_owned() }
    }

    /// The same in a time zone, such as `Europe/Berlin`; of anything but a cron expression nothing changes.
    #[must_use]
    pub fn zone(self, name: &str) -> Self {
        match self {
            Self::Cron { expression, .. } => Self::Cron { expression, zone: name.to_owned() },
            other => other,
        }
    }

    /// Every so much.
    #[must_use]
    pub const fn every(every: Millis) -> Self {
        Self::Every { every, offset: Millis::ZERO }
    }

    pub(super) fn check(&self) -> Result<(), DefinitionError> {
        let refuse = |field, value: String, rule| Err(DefinitionError { field, value, rule });
        match self {
            Self::Every { every, offset } => {
                let is_whole = |span: Millis| span.as_u64().is_multiple_of(1_000);
                if !(1_000..=Definition::EVERY_MAX.as_u64()).contains(&every.as_u64()) || !is_whole(*every) {
                    return refuse("every", every.to_string(), "1 second to 366 days, in whole seconds");
                }
                if offset >= every || !is_whole(*offset) {
                    return refuse("offset", offset.to_string(), "shorter than every, in whole seconds");
                }
                Ok(())
            }
            Self::At { at } if at.0 % SECOND != 0 || at.0 < 0 => {
                refuse("at", at.to_string(), "a whole second")
            }
            Self::Cron { .. } | Self::At { .. } => Ok(()),
        }
    }

    fn after(&self, times: &dyn Times, moment: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron { .. } => times.after(moment),
            Self::Every { every, offset } => {
                let every = i64::try_from(every.as_u64()).ok()?.checked_mul(1_000)?;
                let offset = i64::try_from(offset.as_u64()).ok()?.checked_mul(1_000)?;
                let passed = moment.0.checked_sub(offset)?.checked_div_euclid(every)?;
                let next = passed.checked_add(1)?.checked_mul(every)?.checked_add(offset)?;
                Some(Timestamp(next))
            }
            Self::At { at } => (*at > moment).then_some(*at),
        }
    }
}

impl Definition {
    /// The first due time after a moment, within its bounds.
    #[must_use]
    pub fn due_after(&self, times: &dyn Times, moment: Timestamp) -> Option<Timestamp> {
        let before = self.from.map_or(moment, |from| moment.max(Timestamp(from.0.saturating_sub(1))));
        let next = self.when.after(times, before)?;
        // A source of times that stood still would be asked for ever.
        (next > moment && self.until.is_none_or(|until| next < until)).then_some(next)
    }

    /// When a due time is started: so much later as the jitter says, which is never past the next one, so that they stay in order.
    #[must_use]
    pub fn starts_at(&self, id: &ScheduleId, times: &dyn Times, due: Timestamp) -> Timestamp {
        if self.jitter == Millis::ZERO {
            return due;
        }
        let gap = self.when.after(times, due).map_or(self.jitter, |next| next.since(due));
        let most = self.jitter.min(Millis(gap.as_u64().saturating_sub(1)));
        let drawn = mixed(id.as_str().as_bytes(), &due.0.to_le_bytes());
        due.plus(Millis(((u128::from(drawn) * (u128::from(most.as_u64()) + 1)) >> 64) as u64))
    }
}

/// The next due times after a moment, at most so many, each with when it will be started.
#[must_use]
pub fn next_runs(
    definition: &Definition,
    id: &ScheduleId,
    times: &dyn Times,
    after: Timestamp,
    count: usize,
) -> Vec<(Timestamp, Timestamp)> {
    let next = |due: &Timestamp| definition.due_after(times, *due);
    std::iter::successors(definition.due_after(times, after), next)
        .map(|due| (due, definition.starts_at(id, times, due)))
        .take(count)
        .collect()
}
