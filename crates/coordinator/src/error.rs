//! How the coordinator fails.

/// A coordinator's error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody knows yet whether it was done: the answer did not come in time. Sending the same again tells.
    #[error("{doing}: no answer in time; repeating it with the same id is safe")]
    Unknown {
        /// What was tried.
        doing: &'static str,
    },
    /// The decision could not be made, or the store will not take what was decided: `unwritable` or `broken`. A start creates
    /// nothing, any other instance is parked.
    #[error("it could not be done ({code}): {reason}; repeating it cannot help")]
    Undecided {
        /// The code, as in the record of a rejected message.
        code: String,
        /// What went wrong.
        reason: String,
    },
    /// The coordinator is stopping.
    #[error("{doing}: this coordinator is stopping; repeating it elsewhere is safe")]
    Stopping {
        /// What was tried.
        doing: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] everstep_store::Error),
    /// The broker failed.
    #[error(transparent)]
    Broker(#[from] everstep_broker::Error),
    /// A batch has too few or too many items.
    #[error("a batch of {0} starts is refused, it must have 1 to {max}; nothing was created", max = crate::BATCH_STARTS_MAX)]
    BatchSize(usize),
    /// An item of a batch is refused, and with it the batch.
    #[error("item {index} of a batch is refused, and nothing was created: {error}")]
    BatchItem {
        /// Which, from 0.
        index: usize,
        /// Why.
        error: Box<Error>,
    },
    /// A list of instances has too few or too many ids.
    #[error("a list of {0} ids is refused, it must have 1 to {max}; nothing was done", max = crate::IDS_MAX)]
    IdsSize(usize),
    /// A restart names a step that the instance has not called. Nothing has changed.
    #[error("restart from {0} is refused: the instance has not called it; nothing has changed")]
    UnknownStep(String),
    /// A restart from a step would copy too much. Nothing has changed.
    #[error(
        "restart from a step is refused: the journal is over {limit} bytes; restart from the beginning, nothing has changed"
    )]
    JournalTooLarge {
        /// The most that is copied.
        limit: u64,
    },
    /// A restart would make a call again of which nobody knows whether it took effect (rule L7). Nothing has changed.
    #[error(
        "restart is refused: nobody knows whether {0} took effect, and it must not be made twice; restart from that very call to make it \
         again, or answer the question about it first; nothing has changed"
    )]
    Unsettled(String),
    /// A question that is to be answered is not open, or no longer. Nothing has changed.
    #[error("the question is not open: {0}; nothing has changed")]
    NotAsked(String),
    /// The hook of a start cannot be had as it is asked for. Nothing was created.
    #[error("{0}; nothing was created")]
    Hook(#[from] everstep_protocol::hook::HookError),
    /// The database has begun another life meanwhile: it was restored (`everstep restored`). Starting the coordinator again helps.
    #[error("the database has begun life {now} while this coordinator lives in {mine}: start it again")]
    AnotherLife {
        /// The incarnation that this coordinator began in.
        mine: u64,
        /// That of the database now.
        now: u64,
    },
    /// The settings cannot work.
    #[error("the settings cannot work: {}", .0.join("; "))]
    Settings(Vec<String>),
}

/// What a caller does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Repeat it, with the same id.
    Retry,
    /// Repeating cannot help.
    Refused,
    /// A person has to look.
    Broken,
}

impl Error {
    /// What a caller does about it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } | Self::Stopping { .. } | Self::AnotherLife { .. } | Self::Broker(_) => {
                ErrorKind::Retry
            }
            Self::Store(error) => match error.kind() {
                everstep_store::ErrorKind::Unavailable | everstep_store::ErrorKind::Conflict => {
                    ErrorKind::Retry
                }
                everstep_store::ErrorKind::Refused => ErrorKind::Refused,
                everstep_store::ErrorKind::Corrupt
                | everstep_store::ErrorKind::NotMigrated
                | everstep_store::ErrorKind::InUse => ErrorKind::Broken,
            },
            Self::Settings(_)
            | Self::Hook(_)
            | Self::BatchSize(_)
            | Self::BatchItem { .. }
            | Self::IdsSize(_)
            | Self::Undecided { .. }
            | Self::UnknownStep(_)
            | Self::Unsettled(_)
            | Self::NotAsked(_)
            | Self::JournalTooLarge { .. } => ErrorKind::Refused,
        }
    }

    /// Whether repeating it is safe and may help.
    #[must_use]
    pub const fn is_retry_safe(&self) -> bool {
        matches!(self.kind(), ErrorKind::Retry)
    }
}
