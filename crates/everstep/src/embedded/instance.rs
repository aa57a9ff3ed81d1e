//! A handle on one instance: what people do to it (rules P29 to P32). Each call is an operation of its own; to repeat one under
//! its own id, use [`Embedded::coordinator`](super::Embedded::coordinator).

use std::{fmt, time::Duration};

use everstep_coordinator::{Decision, Handle};
use everstep_engine::{
    Answer, Operated,
    decide::{Rekeying, Unparking},
    start::NameKey,
};
use everstep_protocol::{
    BuildName, Call, CallKind, CallName, Failure, FailureKind, Millis, Payload, Pin, SessionId,
    duration::IntoMillis,
    journal::{Changed, Choice, End, KeyChoice, QuestionId},
    name::NameError,
    payload::PayloadError,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{EmbeddedError, InstanceView, SendEvent, Status, WaitView, event_request};

/// One instance of an embedded system.
#[derive(Clone, Debug)]
pub struct InstanceHandle {
    handle: Handle,
    name: NameKey,
}

/// Why an operation was not done. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// There is no such instance.
    #[error("there is no instance {id} of workflow {workflow}")]
    NotFound {
        /// The workflow.
        workflow: String,
        /// The id.
        id: String,
    },
    /// Its status forbids it.
    #[error("{operation} is not possible, the instance is {status}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// The current status.
        status: &'static str,
    },
    /// It moved on while the operation was prepared; trying again is safe.
    #[error("{0} was not done: the instance moved on meanwhile; trying again is safe")]
    Moved(&'static str),
    /// The question that it answers is not open.
    #[error("the question is not open: {0}")]
    NotAsked(String),
    /// A name breaks its rule.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The payload of an event has no JSON form.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// An event was not kept.
    #[error("the event was not kept: {0}")]
    NotKept(&'static str),
    /// A text is no duration.
    #[error("{0}")]
    Duration(String),
    /// The engine contradicts itself; whether it was done is not known.
    #[error("{0}: this is a bug, please report it")]
    Bug(String),
    /// The coordinator failed.
    #[error(transparent)]
    Coordinator(#[from] everstep_coordinator::Error),
}

/// Why an instance gave no output.
pub type ResultError = everstep_sdk::ResultError<everstep_coordinator::Error>;

/// The end is waited for in parts of this length.
const PART: Duration = Duration::from_hours(1);

type Done = Result<(), OperationError>;

impl InstanceHandle {
    pub(super) const fn new(handle: Handle, name: NameKey) -> Self {
        Self { handle, name }
    }

    /// Its workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.name.workflow.as_str()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.name.id.as_str()
    }

    /// Its status; none if there is no such instance.
    pub async fn status(&self) -> Result<Option<Status>, EmbeddedError> {
        Ok(self.view().await?.map(|view| view.status))
    }

    /// What the store says of it; none if there is no such instance.
    pub async fn view(&self) -> Result<Option<InstanceView>, EmbeddedError> {
        Ok(self.handle.store().instance(&self.name).await?)
    }

    /// The state that its workflow has published last (rule P37); none if there is none, or it does not fit the type.
    pub async fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, EmbeddedError> {
        let view = self.view().await?;
        Ok(view.and_then(|view| view.state).and_then(|(_, state)| state.decode().ok()))
    }

    /// Waits until it has ended, however long that takes, and gives its output. Dropping this loses nothing: it may be asked again.
    ///
    /// Errors: [`ResultError`] says how else it ended, or that there is no such instance.
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        let end = loop {
            let view = self.handle.ended(&self.name, PART).await?;
            let view = view.ok_or_else(|| ResultError::NotFound(self.to_string()))?;
            if let Some(end) = view.end {
                break end;
            }
        };
        match end {
            End::Complete(output) => output.decode().map_err(|error| ResultError::Misfit {
                instance: self.to_string(),
                reason: error.to_string(),
            }),
            End::Errored(failure) => Err(ResultError::Errored {
                instance: self.to_string(),
                error: everstep_sdk::Error::from_failure(failure),
            }),
            End::Terminated { reason } => Err(ResultError::Terminated { instance: self.to_string(), reason }),
            End::Cancelled { reason } => Err(ResultError::Cancelled { instance: self.to_string(), reason }),
        }
    }

    /// Sends it an event, and answers when that is safe on disk. The same event id, type, key and payload again is the same event
    /// (rule P24); without an id every call sends another one.
    pub async fn send_event<P: Serialize + ?Sized>(&self, event: &SendEvent<'_>, payload: &P) -> Done {
        let request = event_request(event, payload).map_err(|error| match error {
            EmbeddedError::Name(error) => OperationError::Name(error),
            EmbeddedError::Input(error) => OperationError::Payload(error),
            other => OperationError::Bug(other.to_string()),
        })?;
        match self.handle.send_event(self.name.clone(), request).await? {
            Answer::EventIdTaken => Err(OperationError::NotKept("the instance has another event of this id")),
            Answer::MailboxFull => Err(OperationError::NotKept("the instance has too many unread events")),
            answer => self.done("send", &answer),
        }
    }

    /// Lets what runs finish, and nothing more begin, until it is resumed.
    pub async fn pause(&self) -> Done {
        self.done("pause", &self.handle.pause(self.name.clone(), id()).await?)
    }

    /// Lets it go on.
    pub async fn resume(&self) -> Done {
        self.done("resume", &self.handle.resume(self.name.clone(), id()).await?)
    }

    /// Asks it to end by itself. What has not ended by the deadline of the settings is terminated.
    pub async fn cancel(&self, reason: Option<&str>) -> Done {
        self.cancelled(reason, None).await
    }

    /// The same, with a deadline of its own.
    pub async fn cancel_within(&self, reason: Option<&str>, within: impl IntoMillis) -> Done {
        let within = within.into_millis().map_err(|error| OperationError::Duration(error.to_string()))?;
        self.cancelled(reason, Some(within)).await
    }

    /// Ends it now.
    pub async fn terminate(&self, reason: Option<&str>) -> Done {
        let reason = reason.map(str::to_owned);
        self.done("terminate", &self.handle.terminate(self.name.clone(), id(), reason).await?)
    }

    /// Lets a parked one go on.
    pub async fn retry(&self) -> Done {
        self.done("retry", &self.handle.retry(self.name.clone(), id()).await?)
    }

    /// The step whose input has changed, if that is why it is parked and a person may choose the step's key, and under what that is
    /// answered (rule P8).
    pub async fn changed(&self) -> Result<Option<(QuestionId, Changed)>, EmbeddedError> {
        let Some(view) = self.view().await? else { return Ok(None) };
        let changed = view.parked.and_then(|(_, parked)| parked.changed);
        let asked = changed.and_then(|changed| Some((changed.asked_at?, changed)));
        Ok(asked.map(|(position, changed)| (QuestionId { run: view.run, position }, *changed)))
    }

    /// Lets the step whose input has [changed](Self::changed) go on, under its old key or a new one (rule P8).
    pub async fn rekey(&self, question: QuestionId, choice: KeyChoice, by: &str) -> Done {
        let rekeying =
            Rekeying { question, choice: Unparking::Key(choice), by: Some(by.to_owned()), why: None };
        match self.handle.rekey(&self.name, id(), rekeying).await? {
            Answer::NotAsked | Answer::NotParked => {
                let reason = "it does not ask, or no longer, under which key a step is to go on";
                Err(OperationError::NotAsked(reason.to_owned()))
            }
            answer => self.done("retry", &answer),
        }
    }

    /// What it asks people about its calls: each with its question, and under what it is answered (rule L8).
    pub async fn questions(&self) -> Result<Vec<(QuestionId, WaitView)>, EmbeddedError> {
        let Some(view) = self.view().await? else { return Ok(Vec::new()) };
        let asked = view.waiting.into_iter().filter_map(|wait| {
            let position = wait.question.as_ref()?.position;
            Some((QuestionId { run: view.run, position }, wait))
        });
        Ok(asked.collect())
    }

    /// Answers a question: the call took effect, and this is its output.
    pub async fn resolve_done<T: Serialize + ?Sized>(
        &self,
        question: QuestionId,
        output: &T,
        by: &str,
    ) -> Done {
        self.resolve(question, Choice::Done(Payload::encode(output)?), by).await
    }

    /// Answers a question: the call is to be made again.
    pub async fn resolve_again(&self, question: QuestionId, by: &str) -> Done {
        self.resolve(question, Choice::Again, by).await
    }

    /// Answers a question: the call has failed, with this message.
    pub async fn resolve_failed(&self, question: QuestionId, message: &str, by: &str) -> Done {
        let failure = Failure { permanent: true, ..Failure::new(FailureKind::Error, message) };
        self.resolve(question, Choice::Fail(failure), by).await
    }

    async fn resolve(&self, question: QuestionId, choice: Choice, by: &str) -> Done {
        let decision = Decision { choice, by: Some(by.to_owned()), why: None };
        match self.handle.resolve(self.name.clone(), id(), question, decision).await {
            Ok(answer) => self.done("resolve", &answer),
            Err(everstep_coordinator::Error::NotAsked(reason)) => Err(OperationError::NotAsked(reason)),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs it again from the beginning, in a new run with the same input and keys.
    pub async fn restart(&self) -> Done {
        self.done("restart", &self.handle.restart(self.name.clone(), id(), None).await?)
    }

    /// Runs it again from a step on: the first call of that name is `count` 1. What was called before its outcome was known stays.
    pub async fn restart_from(&self, step: &str, count: u32) -> Done {
        let call = Call { kind: CallKind::Step, name: CallName::new(step)?, count };
        self.done("restart", &self.handle.restart(self.name.clone(), id(), Some(call)).await?)
    }

    /// Lets only workers of this build take it up, from the next time on.
    pub async fn pin(&self, build: &str) -> Done {
        let pin = Some(Pin::Build(BuildName::new(build)?));
        self.done("pin", &self.handle.pin(self.name.clone(), id(), pin).await?)
    }

    /// Lets workers of any build take it up.
    pub async fn unpin(&self) -> Done {
        self.done("pin", &self.handle.pin(self.name.clone(), id(), None).await?)
    }

    /// Removes every trace of it, once it has ended.
    pub async fn delete(&self) -> Done {
        self.done("delete", &self.handle.delete(self.name.clone(), id(), false).await?)
    }

    /// Terminates it if it has not ended, and removes every trace of it.
    pub async fn terminate_and_delete(&self) -> Done {
        self.done("delete", &self.handle.delete(self.name.clone(), id(), true).await?)
    }

    /// Stops it where it stands, has the compensations of its steps run, last call first, and ends it as terminated (rule P38). It
    /// is open until that is done.
    pub async fn roll_back(&self, reason: Option<&str>) -> Done {
        let reason = reason.map(str::to_owned);
        self.done("rollback", &self.handle.roll_back(self.name.clone(), id(), reason).await?)
    }

    /// Like [`cancel`](Self::cancel); if it ends with the cancel, or not in time, its compensations run (rule P38).
    pub async fn cancel_and_roll_back(&self, reason: Option<&str>) -> Done {
        let reason = reason.map(str::to_owned);
        let answer = self.handle.cancel_and_roll_back(self.name.clone(), id(), reason, None).await?;
        self.done("cancel", &answer)
    }

    /// Runs it again from the beginning; steps with the same input as before get their outputs from the run before, without a call
    /// (rule L4). Not those that failed or were compensated.
    pub async fn restart_and_reuse(&self) -> Done {
        self.done("restart", &self.handle.restart_and_reuse(self.name.clone(), id()).await?)
    }

    async fn cancelled(&self, reason: Option<&str>, within: Option<Millis>) -> Done {
        let reason = reason.map(str::to_owned);
        self.done("cancel", &self.handle.cancel(self.name.clone(), id(), reason, within).await?)
    }

    fn done(&self, operation: &'static str, answer: &Answer) -> Done {
        match answer.operated() {
            Some(Operated::Done) => Ok(()),
            Some(Operated::NotAllowed(status)) => Err(OperationError::Refused { operation, status }),
            Some(Operated::NotParked) => Err(OperationError::Refused { operation, status: "not parked" }),
            Some(Operated::Moved) => Err(OperationError::Moved(operation)),
            Some(Operated::NotAsked) => Err(OperationError::NotAsked("it was not open before".to_owned())),
            Some(Operated::NotFound) => Err(OperationError::NotFound {
                workflow: self.name.workflow.to_string(),
                id: self.name.id.to_string(),
            }),
            None => Err(OperationError::Bug(format!("{operation} was answered with {answer:?}"))),
        }
    }
}

/// `workflow/id`.
impl fmt::Display for InstanceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name.workflow, self.name.id)
    }
}

/// An operation of its own.
fn id() -> String {
    SessionId::generate().to_string()
}
