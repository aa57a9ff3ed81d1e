//! What an operator does to an instance: pause, resume, cancel, restart, delete (rules P29 to P32).

use std::sync::atomic::Ordering;

use everstep_engine::Answer;
use everstep_protocol::{Call, CallKind, CallName, Run as RunNumber, journal::Entry};
use everstep_sdk::IntoMillis;

use super::{Run, StepName};
use crate::KitError;

impl Run {
    /// Lets what runs finish, and nothing more begin. Done twice it is done once.
    ///
    /// Errors: [`KitError::Invalid`] with the status that forbids it; nothing has changed. So do all operations.
    pub async fn pause(&self) -> Result<(), KitError> {
        let asked = self.kit.system.handle.pause(self.name.clone(), self.operation());
        self.done("pause", asked.await.map_err(KitError::system)?)
    }

    /// Lets it go on after a pause, or takes back a pause that has not come about yet.
    pub async fn resume(&self) -> Result<(), KitError> {
        let asked = self.kit.system.handle.resume(self.name.clone(), self.operation());
        self.done("resume", asked.await.map_err(KitError::system)?)
    }

    /// Asks it to end by itself; after 5 minutes it is terminated.
    pub async fn cancel(&self, reason: &str) -> Result<(), KitError> {
        self.cancel_within(reason, "5 min").await
    }

    /// Asks it to end by itself within this time, at which it is terminated.
    pub async fn cancel_within(&self, reason: &str, within: impl IntoMillis) -> Result<(), KitError> {
        let within = Some(within.into_millis().map_err(KitError::invalid)?);
        let handle = &self.kit.system.handle;
        let asked = handle.cancel(self.name.clone(), self.operation(), Some(reason.to_owned()), within);
        self.done("cancel", asked.await.map_err(KitError::system)?)
    }

    /// Asks it to end by itself, and then to take back what it did; after 5 minutes it is stopped and does (rule P38).
    pub async fn cancel_and_roll_back(&self, reason: &str) -> Result<(), KitError> {
        let (name, reason) = (self.name.clone(), Some(reason.to_owned()));
        let asked = self.kit.system.handle.cancel_and_roll_back(name, self.operation(), reason, None);
        self.done("cancel", asked.await.map_err(KitError::system)?)
    }

    /// Stops it where it stands and has its compensations run, after which it is terminated (rule P38).
    pub async fn roll_back(&self, reason: &str) -> Result<(), KitError> {
        let asked =
            self.kit.system.handle.roll_back(self.name.clone(), self.operation(), Some(reason.to_owned()));
        self.done("roll back", asked.await.map_err(KitError::system)?)
    }

    /// Runs it again from its beginning; steps with the same input get the outputs of the run before (rule L4).
    pub async fn restart_and_reuse(&self) -> Result<(), KitError> {
        let asked = self.kit.system.handle.restart_and_reuse(self.name.clone(), self.operation());
        self.done("restart", asked.await.map_err(KitError::system)?)
    }

    /// Runs it again from its beginning, as another run.
    pub async fn restart(&self) -> Result<(), KitError> {
        self.begin_again(None).await
    }

    /// Runs it again from a step on: what was called before the outcome of that step was known stays as it is.
    ///
    /// Errors: also a step that was never called.
    pub async fn restart_from(&self, step: impl Into<StepName>) -> Result<(), KitError> {
        let StepName { name, count } = step.into();
        let name = CallName::new(&name).map_err(KitError::invalid)?;
        self.begin_again(Some(Call { kind: CallKind::Step, name, count })).await
    }

    /// Removes every trace of an ended instance.
    pub async fn delete(&self) -> Result<(), KitError> {
        self.remove(false).await
    }

    /// Removes every trace of it, and terminates it first if it is open.
    pub async fn delete_and_terminate(&self) -> Result<(), KitError> {
        self.remove(true).await
    }

    /// The journal of one of its runs, the first of which is 1.
    pub async fn journal_of_run(&self, run: u32) -> Result<Vec<Entry>, KitError> {
        let mut view = self.view().await?;
        view.run = RunNumber(run);
        self.kit.system.journal(&view).await
    }

    async fn begin_again(&self, from: Option<Call>) -> Result<(), KitError> {
        let asked = self.kit.system.handle.restart(self.name.clone(), self.operation(), from);
        // Only what the caller asked for can be wrong here: the system itself stands in this process.
        let answer: Result<Answer, _> = asked.await;
        self.done("restart", answer.map_err(KitError::invalid)?)
    }

    async fn remove(&self, terminate: bool) -> Result<(), KitError> {
        let asked = self.kit.system.handle.delete(self.name.clone(), self.operation(), terminate);
        self.done("delete", asked.await.map_err(KitError::system)?)
    }

    /// Another one each time: what a test does twice is asked for twice.
    pub(super) fn operation(&self) -> String {
        format!("kit {}", self.kit.system.operations.fetch_add(1, Ordering::Relaxed))
    }
}
