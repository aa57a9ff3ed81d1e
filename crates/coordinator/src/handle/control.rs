//! What people do to an instance. Each operation has an id: repeated, it gets its first answer (rule W4).

use everstep_engine::{Answer, Input, What, decide::Prepared, keep::keep, start::NameKey};
use everstep_protocol::{Call, InstanceUid, Millis, Pin, Position, Run, journal::Entry, limits::PART_BYTES};
use everstep_store::Range;

use super::Handle;
use crate::error::Error;

/// The largest journal that a restart from a step copies, in bytes of payloads.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// How often a restart is prepared again, since the instance has moved on.
const PREPARED_MAX: u32 = 5;

impl Handle {
    /// Lets what runs finish, and nothing more begin (rule P29).
    pub async fn pause(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.on("pause an instance", &name, What::Pause { operation }).await
    }

    /// Lets a paused instance go on (rule P29).
    pub async fn resume(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.on("resume an instance", &name, What::Resume { operation }).await
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
        let within = within.unwrap_or(self.shared.settings.cancel_within);
        self.on("cancel an instance", &name, What::Cancel { operation, reason, within }).await
    }

    /// Ends an instance now (rule P30).
    pub async fn terminate(
        &self,
        name: NameKey,
        operation: String,
        reason: Option<String>,
    ) -> Result<Answer, Error> {
        self.on("terminate an instance", &name, What::Terminate { operation, reason }).await
    }

    /// Lets a parked instance go on (rule P41).
    pub async fn retry(&self, name: NameKey, operation: String) -> Result<Answer, Error> {
        self.on("retry an instance", &name, What::Retry { operation }).await
    }

    /// Pins an instance to a build, or lets any build have it (rule P40). Whoever holds it goes on until it gives it up.
    pub async fn pin(&self, name: NameKey, operation: String, pin: Option<Pin>) -> Result<Answer, Error> {
        self.on("pin an instance", &name, What::Pin { operation, pin }).await
    }

    /// Deletes an ended instance; an open one is terminated first if `terminate` says so (rule P32). Its journal is removed
    /// soon after.
    pub async fn delete(&self, name: NameKey, operation: String, terminate: bool) -> Result<Answer, Error> {
        let answer = self.on("delete an instance", &name, What::Delete { operation, terminate }).await?;
        self.shared.sweep.notify_one();
        Ok(answer)
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
        const DOING: &str = "restart an instance";
        let Some(step) = from else {
            return self.on(DOING, &name, What::Restart { operation, prepared: None }).await;
        };
        for _ in 0..PREPARED_MAX {
            let Some(view) = self.shared.store.instance(&name).await? else {
                return Ok(Answer::NotFound);
            };
            let entries = self.whole_journal(view.uid, view.run).await?;
            let seen = entries.last().map_or(Position(0), |entry| entry.position);
            let kept = keep(&entries, &step);
            // An operation that was done before is told so, whatever the journal is by now; its run is none that exists.
            let unknown = kept.is_none();
            let from = if unknown { Run(0) } else { view.run };
            let prepared = Some(Prepared { from, seen, entries: kept.unwrap_or_default() });
            let what = What::Restart { operation: operation.clone(), prepared };
            match self.ask(DOING, Input::On { instance: view.uid, what }).await?.answer {
                Answer::Moved if unknown => return Err(Error::UnknownStep(step.to_string())),
                Answer::Moved => {}
                answer => return Ok(answer),
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
