//! One instance, as a test sees it.

mod attention;
mod control;

pub use attention::Asked;
use everstep_coordinator::EventRequest;
use everstep_engine::{Answer, mailbox::EventId, start::NameKey};
use everstep_protocol::{
    CallKind, CallName, EventType, Failure, Payload,
    journal::{Attempted, End, Entry, Fact, Outcome},
};
use everstep_sdk::Error;
use everstep_store::{InstanceView, StatusWord};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Kit, KitError, Status};

/// One instance. Every wait fails at once when what it waits for cannot come any more.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) kit: Kit,
    pub(crate) name: NameKey,
}

/// A step by its name, the first of it unless a count says otherwise: `"charge"` or `("charge", 2)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepName {
    name: String,
    count: u32,
}

impl From<&str> for StepName {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), count: 1 }
    }
}

impl From<(&str, u32)> for StepName {
    fn from((name, count): (&str, u32)) -> Self {
        Self { name: name.to_owned(), count }
    }
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {:?} #{}", self.name, self.count)
    }
}

impl Run {
    /// The workflow's name.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.name.workflow.as_str()
    }

    /// The instance's id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.name.id.as_str()
    }

    /// Waits for its end and gives its output.
    ///
    /// Errors: [`KitError::Errored`] with what the workflow returned, [`KitError::Terminated`], [`KitError::Cancelled`],
    /// [`KitError::Parked`].
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T, KitError> {
        match self.end().await? {
            End::Complete(output) => read(&self.to_string(), &output),
            End::Errored(failure) => {
                Err(KitError::Errored { instance: self.to_string(), error: Error::from_failure(failure) })
            }
            End::Terminated { .. } => Err(KitError::Terminated { instance: self.to_string() }),
            End::Cancelled { .. } => Err(KitError::Cancelled { instance: self.to_string() }),
        }
    }

    /// Waits for its end, which must be an error, and gives that.
    pub async fn error(&self) -> Result<Error, KitError> {
        match self.end().await? {
            End::Errored(failure) => Ok(Error::from_failure(failure)),
            End::Complete(_) => Err(self.unreachable("an error", StatusWord::Complete, None)),
            End::Terminated { .. } => Err(KitError::Terminated { instance: self.to_string() }),
            End::Cancelled { .. } => Err(KitError::Cancelled { instance: self.to_string() }),
        }
    }

    /// Waits for its end, whichever it is.
    pub async fn end(&self) -> Result<End, KitError> {
        let wanted = format!("the end of {self}");
        let check = async || {
            let view = self.view().await?;
            self.not_parked(&view)?;
            Ok(view.end)
        };
        self.kit.system.wait(self.kit.mover, &wanted, check).await
    }

    /// Waits until it has this status. Waiting, attention and the ends last; queued and running may pass unseen.
    ///
    /// Errors: [`KitError::Unreachable`] as soon as it has ended, or is parked, in another way.
    pub async fn reaches(&self, status: Status) -> Result<(), KitError> {
        let wanted = format!("{self} with status {}", status.word());
        let check = async || {
            let view = self.view().await?;
            if view.status == status {
                if status == StatusWord::Attention {
                    self.kit.see(view.uid);
                }
                return Ok(Some(()));
            }
            self.still_open(&view, &format!("status {}", status.word()))?;
            Ok(None)
        };
        self.kit.system.wait(self.kit.mover, &wanted, check).await
    }

    /// Waits for the output of a step.
    ///
    /// Errors: [`KitError::Errored`] if the step fails for good; [`KitError::Unreachable`] as soon as the instance has ended, or
    /// is parked, without it.
    pub async fn step<T: DeserializeOwned>(&self, step: impl Into<StepName>) -> Result<T, KitError> {
        let step = step.into();
        let name = format!("{step} of {self}");
        match self.outcome(&step).await? {
            Ok(output) => read(&name, &output),
            Err(failure) => Err(KitError::Errored { instance: name, error: Error::from_failure(failure) }),
        }
    }

    /// Waits for a step to fail for good, and gives its error.
    pub async fn step_error(&self, step: impl Into<StepName>) -> Result<Error, KitError> {
        let step = step.into();
        if let Err(failure) = self.outcome(&step).await? {
            return Ok(Error::from_failure(failure));
        }
        let status = self.view().await?.status;
        Err(self.unreachable(&format!("a failure of {step}, which succeeded"), status, None))
    }

    /// Its status now.
    pub async fn status(&self) -> Result<Status, KitError> {
        let view = self.view().await?;
        if view.status == StatusWord::Attention {
            self.kit.see(view.uid);
        }
        Ok(view.status)
    }

    /// The state that its workflow has published last (rule P37); none if it has published none yet.
    pub async fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, KitError> {
        let state = self.view().await?.state;
        state.map(|(_, state)| read(&format!("the state of {self}"), &state)).transpose()
    }

    /// Everything that is known of it now: what it waits for, since when and until when.
    pub async fn view(&self) -> Result<InstanceView, KitError> {
        let view = self.kit.system.view(&self.name).await?;
        view.ok_or_else(|| KitError::Invalid(format!("there is no instance {self}")))
    }

    /// Its journal so far.
    pub async fn journal(&self) -> Result<Vec<Entry>, KitError> {
        self.kit.system.journal(&self.view().await?).await
    }

    /// Its journal so far as JSON, to be kept and replayed by [`Kit::replay`].
    pub async fn export(&self) -> Result<String, KitError> {
        let saved = self.kit.saved(&self.view().await?).await?;
        saved.write().map_err(KitError::System)
    }

    /// Terminates it.
    pub async fn terminate(&self, reason: &str) -> Result<(), KitError> {
        let handle = &self.kit.system.handle;
        let asked = handle.terminate(self.name.clone(), self.operation(), Some(reason.to_owned()));
        self.done("terminate", asked.await.map_err(KitError::system)?)
    }

    /// Sends it an event (rule P42). Whether anything waits for it makes no difference: it is kept.
    pub async fn send<P: Serialize + ?Sized>(&self, kind: &str, payload: &P) -> Result<(), KitError> {
        let view = self.view().await?;
        let event = EventRequest {
            kind: EventType::new(kind).map_err(KitError::invalid)?,
            key: None,
            // Another one each time: the instance counts its events.
            id: EventId { app_id: "kit".to_owned(), id: view.events.to_string() },
            payload: Payload::encode(payload).map_err(KitError::invalid)?,
        };
        let asked = self.kit.system.handle.send_event(self.name.clone(), event);
        self.done("send an event to", asked.await.map_err(KitError::system)?)
    }

    /// Lets it go on after it was parked.
    pub async fn retry(&self) -> Result<(), KitError> {
        let asked = self.kit.system.handle.retry(self.name.clone(), self.operation());
        self.done("retry", asked.await.map_err(KitError::system)?)
    }

    fn done(&self, what: &str, answer: Answer) -> Result<(), KitError> {
        match answer {
            Answer::Done | Answer::Nothing => Ok(()),
            other => Err(KitError::Invalid(format!("{what} {self}: refused: {other:?}"))),
        }
    }

    async fn outcome(&self, step: &StepName) -> Result<Result<Payload, Failure>, KitError> {
        CallName::new(&step.name).map_err(KitError::invalid)?;
        let wanted = format!("{step} of {self}");
        let check = async || {
            let view = self.view().await?;
            let journal = self.kit.system.journal(&view).await?;
            if let Some(outcome) = journal.iter().find_map(|entry| outcome_of(entry, step)) {
                return Ok(Some(outcome));
            }
            self.still_open(&view, &step.to_string())?;
            Ok(None)
        };
        self.kit.system.wait(self.kit.mover, &wanted, check).await
    }

    fn not_parked(&self, view: &InstanceView) -> Result<(), KitError> {
        match &view.parked {
            Some((_, parked)) if view.status == StatusWord::Attention => {
                self.kit.see(view.uid);
                Err(KitError::Parked { instance: self.to_string(), parked: parked.clone() })
            }
            None if view.status == StatusWord::Attention => {
                self.kit.see(view.uid);
                let asked = view.waiting.iter().find_map(|wait| Some((&wait.call, wait.question.as_ref()?)));
                let (call, reason) = asked.map_or_else(Default::default, |(call, question)| {
                    (call.to_string(), question.failure.to_string())
                });
                Err(KitError::Asked { instance: self.to_string(), call, reason })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether what is wanted can still come.
    fn still_open(&self, view: &InstanceView, wanted: &str) -> Result<(), KitError> {
        self.not_parked(view)?;
        match &view.end {
            None => Ok(()),
            Some(End::Errored(failure)) => Err(self.unreachable(wanted, view.status, Some(failure.clone()))),
            Some(End::Complete(_) | End::Terminated { .. } | End::Cancelled { .. }) => {
                Err(self.unreachable(wanted, view.status, None))
            }
        }
    }

    fn unreachable(&self, wanted: &str, status: Status, why: Option<Failure>) -> KitError {
        KitError::Unreachable {
            instance: self.to_string(),
            wanted: wanted.to_owned(),
            status,
            why: why.map(Box::new),
        }
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name.workflow, self.name.id)
    }
}

fn read<T: DeserializeOwned>(what: &str, output: &Payload) -> Result<T, KitError> {
    output.decode().map_err(|error| KitError::Misfit {
        what: format!("the output of {what}"),
        reason: error.to_string(),
    })
}

fn outcome_of(entry: &Entry, step: &StepName) -> Option<Result<Payload, Failure>> {
    let Fact::Attempted(Attempted { call, outcome, .. }) = &entry.fact else { return None };
    let is_it = call.kind == CallKind::Step && call.name.as_str() == step.name && call.count == step.count;
    match outcome {
        _ if !is_it => None,
        Outcome::Succeeded(output) => Some(Ok(output.clone())),
        Outcome::Failed { failure, retry_at: None } => Some(Err(failure.clone())),
        Outcome::Failed { retry_at: Some(_), .. } | Outcome::Unknown { .. } => None,
    }
}
