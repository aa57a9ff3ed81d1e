//! What people do to an instance. Each operation has an id: repeated, it gets its first answer (rule W4).

use everstep_engine::{
    Answer, What,
    bulk::{Act, Again},
    decide::Prepared,
    keep::{keep, unsettled},
    reuse::reuse,
    start::NameKey,
};
use everstep_protocol::{Call, InstanceUid, Millis, Pin, Position, Run, journal::Entry, limits::PART_BYTES};
use everstep_store::Range;

use super::{Handle, act::Whom};
use crate::error::Error;

/// The largest journal that a restart from a step copies, in bytes of payloads.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// How often a restart is prepared again, since the instance has moved on.
const PREPARED_MAX: u32 = 5;

pub(super) const RESTARTING: &str = "restart an instance";

/// What of the run before a restart keeps.
#[derive(Clone, Debug)]
pub(super) enum Preparation {
    /// What came before this call (rule P31).
    From(Call),
    /// The outputs of steps whose input stays the same (rule L4).
    Reuse,
}

impl Preparation {
    fn of(&self, entries: &[Entry]) -> Result<Vec<Entry>, Error> {
        let asked = if let Self::From(step) = self { Some(step) } else { None };
        if let Some(call) = unsettled(entries, asked) {
            return Err(Error::Unsettled(call.to_string()));
        }
        match self {
            Self::From(step) => keep(entries, step).ok_or_else(|| Error::UnknownStep(step.to_string())),
            Self::Reuse => reuse(entries).ok_or_else(|| Error::UnknownStep("the first entry".to_owned())),
        }
    }
}

impl Handle {
    /// Lets what runs finish, and nothing more begin (rule P29).
    pub async fn pause(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Pause).await
    }

    /// Lets a paused instance go on (rule P29).
    pub async fn resume(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Resume).await
    }

    /// Asks an instance to end by itself; what has not ended after `within`, by default the setting `cancel_within`, is
    /// terminated (rule P30).
    pub async fn cancel(
        &self,
        name: NameKey,
        operation: String,
        reason: Option<String>,
        within: Option<Millis>,
    ) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Cancel { reason, within, rollback: false }).await
    }

    /// Cancels an instance and has its compensations run when it ends with that, or when its time is over (rule P38).
    pub async fn cancel_and_roll_back(
        &self,
        name: NameKey,
        operation: String,
        reason: Option<String>,
        within: Option<Millis>,
    ) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Cancel { reason, within, rollback: true }).await
    }

    /// Stops an instance where it stands, has its compensations run, and then ends it as terminated (rule P38). It is open until a
    /// worker has done that.
    pub async fn roll_back(
        &self,
        name: NameKey,
        operation: String,
        reason: Option<String>,
    ) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Terminate { reason, rollback: true }).await
    }

    /// Ends an instance now (rule P30).
    pub async fn terminate(
        &self,
        name: NameKey,
        operation: String,
        reason: Option<String>,
    ) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Terminate { reason, rollback: false }).await
    }

    /// Lets a parked instance go on (rule P41).
    pub async fn retry(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Retry).await
    }

    /// Pins an instance to a build, or lets any build have it (rule P40). Whoever holds it goes on until it gives it up.
    pub async fn pin(&self, name: NameKey, operation: String, pin: Option<Pin>) -> Result<Answer, Error> {
        self.on("pin an instance", &name, What::Pin { operation, pin }).await
    }

    /// Deletes an ended instance; an open one is terminated first if `terminate` says so (rule P32). Its journal is removed
    /// soon after.
    pub async fn delete(&self, name: NameKey, operation: String, terminate: bool) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Delete { terminate }).await
    }

    /// Runs an instance again, in a new run: from the beginning, or from a step on (rule P31).
    ///
    /// Errors: [`Error::UnknownStep`] and [`Error::JournalTooLarge`]; nothing has changed.
    pub async fn restart(
        &self,
        name: NameKey,
        operation: String,
        from: Option<Call>,
    ) -> Result<Answer, Error> {
        let how = from.map_or(Again::Whole, Again::From);
        self.act(Whom::named(name), operation, Act::Restart { how }).await
    }

    /// Runs an instance again from the beginning, in a new run whose steps get the outputs of the run before where they have the same
    /// input (rule L4).
    ///
    /// Errors: [`Error::JournalTooLarge`]; nothing has changed.
    pub async fn restart_and_reuse(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.act(Whom::named(name), operation, Act::Restart { how: Again::Reuse }).await
    }

    pub(super) async fn restart_prepared(
        &self,
        whom: &Whom,
        operation: String,
        preparation: &Preparation,
    ) -> Result<Answer, Error> {
        for _ in 0..PREPARED_MAX {
            let view = self.shared.store.instance(&whom.name).await?;
            let Some(view) = view.filter(|view| whom.uid.is_none_or(|uid| uid == view.uid)) else {
                return Ok(Answer::NotFound);
            };
            let entries = self.whole_journal(view.uid, view.run).await;
            let seen = entries.as_ref().ok().and_then(|entries| entries.last());
            let seen = seen.map_or(Position(0), |entry| entry.position);
            let kept = match entries {
                Ok(entries) => preparation.of(&entries),
                Err(error @ Error::JournalTooLarge { .. }) => Err(error),
                Err(error) => return Err(error),
            };
            // An operation that was done before is told so, whatever the journal is by now; its run is none that exists.
            let (from, entries, refused) = match kept {
                Ok(entries) => (view.run, entries, None),
                Err(refused) => (Run(0), Vec::new(), Some(refused)),
            };
            let prepared = Some(Prepared { from, seen, entries });
            let what = What::Restart { operation: operation.clone(), prepared };
            match (self.of(RESTARTING, view.uid, what).await?, refused) {
                // A refusal by a journal that is not, or no longer, that of the instance says nothing.
                (Answer::Moved, Some(refused)) => {
                    let now = self.store().instance(&whom.name).await?;
                    if now.is_some_and(|now| (now.uid, now.run) == (view.uid, view.run)) {
                        return Err(refused);
                    }
                }
                (Answer::Moved, None) => {}
                (answer, _) => return Ok(answer),
            }
        }
        Ok(Answer::Moved)
    }

    async fn whole_journal(&self, uid: InstanceUid, run: Run) -> Result<Vec<Entry>, Error> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bytes = 0_u64;
        loop {
            let after = entries.last().map_or(Position(0), |entry| entry.position);
            let range = Range { uid, run, after };
            let part = self.shared.store.journal(vec![range], PART_BYTES).await?.pop().unwrap_or_default();
            if part.is_empty() {
                return Ok(entries);
            }
            bytes += part.iter().map(|entry| entry.fact.payload_bytes()).sum::<u64>();
            if bytes > COPY_BYTES_MAX {
                return Err(Error::JournalTooLarge { limit: COPY_BYTES_MAX });
            }
            entries.extend(part);
        }
    }
}
