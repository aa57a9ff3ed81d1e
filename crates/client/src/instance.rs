//! A handle on one instance: what people do to it (rules P29 to P32), and how it ended. Each call is an operation of its own.

use std::{
    fmt,
    time::{Duration, Instant},
};

use everstep_engine::StatusWord;
use everstep_protocol::{
    CallKind, EventKey, EventType, Failure, FailureKind, InstanceId, Payload, WorkflowName,
    duration::IntoMillis,
};
use everstep_sdk::SendEvent;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{json, value::RawValue};
use uuid::Uuid;

use crate::{
    api::{Answer, Api, Event},
    client::payload,
    error::{Error, Problem},
};

/// How long the wait for an end sits out that nobody answers; the instance goes on without us.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_secs(1);

/// One instance of a fleet.
#[derive(Clone, Debug)]
pub struct InstanceHandle {
    api: Api,
    workflow: WorkflowName,
    id: InstanceId,
}

/// Why an operation was not done. Nothing has changed, unless [`Error::Unreachable`] says that this is not known.
#[derive(Clone, Debug, thiserror::Error)]
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
    #[error("{reason}")]
    Refused {
        /// What was asked.
        operation: &'static str,
        /// What the coordinator says.
        reason: String,
    },
    /// It moved on while the operation was prepared; trying again is safe.
    #[error("{0} was not done: the instance moved on meanwhile; trying again is safe")]
    Moved(&'static str),
    /// A text is no duration.
    #[error("{0}")]
    Duration(String),
    /// Asking failed.
    #[error(transparent)]
    Client(#[from] Error),
}

/// Why an instance gave no output.
pub type ResultError = everstep_sdk::ResultError<Error>;

/// What the coordinator says of an instance. What this version does not know stands in [`View::text`].
#[derive(Clone, Debug)]
pub struct View {
    /// The status.
    pub status: StatusWord,
    /// Its run, from 1.
    pub run: u32,
    /// When it was created, as in `2026-01-31T12:00:00.000000Z`.
    pub created_at: String,
    /// When it ended.
    pub ended_at: Option<String>,
    /// Everything, as JSON text.
    pub text: String,
}

#[derive(Deserialize)]
struct Shown {
    status: String,
    run: u32,
    created_at: String,
    #[serde(default)]
    ended_at: Option<String>,
    #[serde(default)]
    state: Option<Box<RawValue>>,
    #[serde(default)]
    output: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<ShownError>,
    #[serde(default)]
    termination: Option<Termination>,
}

#[derive(Deserialize)]
struct ShownError {
    /// A kind of a newer version is some error.
    #[serde(default)]
    kind: String,
    name: String,
    message: String,
    #[serde(default)]
    data: Option<Box<RawValue>>,
    #[serde(default)]
    permanent: bool,
}

#[derive(Deserialize)]
struct Termination {
    #[serde(default)]
    reason: Option<String>,
}

type Done = Result<(), OperationError>;

impl InstanceHandle {
    pub(crate) const fn new(api: Api, workflow: WorkflowName, id: InstanceId) -> Self {
        Self { api, workflow, id }
    }

    /// Its workflow.
    #[must_use]
    pub fn workflow(&self) -> &str {
        self.workflow.as_str()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.id.as_str()
    }

    /// What the coordinator says of it; none if there is no such instance.
    pub async fn view(&self) -> Result<Option<View>, Error> {
        let Some(answer) = found(self.api.instance(&self.workflow, &self.id).await)? else {
            return Ok(None);
        };
        let Shown { status, run, created_at, ended_at, .. } = self.read(&answer)?;
        let status = self.status_of(&status)?;
        Ok(Some(View { status, run, created_at, ended_at, text: answer.text }))
    }

    /// Its status; none if there is no such instance.
    pub async fn status(&self) -> Result<Option<StatusWord>, Error> {
        Ok(self.view().await?.map(|view| view.status))
    }

    /// The state that its workflow has published last (rule P37); none if there is none, or it does not fit the type.
    pub async fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        let Some(answer) = found(self.api.instance(&self.workflow, &self.id).await)? else {
            return Ok(None);
        };
        let Shown { state, .. } = self.read(&answer)?;
        Ok(state.and_then(|state| serde_json::from_str(state.get()).ok()))
    }

    /// Waits until it has ended, however long that takes, and gives its output. Coordinators may come and go meanwhile; dropping
    /// this loses nothing: it may be asked again.
    ///
    /// Errors: [`ResultError`] says how else it ended, that there is no such instance, or that nobody has answered for a minute.
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T, ResultError> {
        let mut heard = Instant::now();
        loop {
            match self.api.instance_or_its_end(&self.workflow, &self.id).await {
                Ok(answer) => {
                    let shown = self.read(&answer)?;
                    if shown.ended_at.is_some() {
                        return self.end(shown);
                    }
                    heard = Instant::now();
                }
                Err(Error::Problem(problem)) if problem.code == "not_found" => {
                    return Err(ResultError::NotFound(self.to_string()));
                }
                Err(error) if error.is_retry_safe() && heard.elapsed() < PATIENCE => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn end<T: DeserializeOwned>(&self, shown: Shown) -> Result<T, ResultError> {
        let instance = self.to_string();
        let reason = shown.termination.and_then(|termination| termination.reason);
        match self.status_of(&shown.status)? {
            StatusWord::Terminated => Err(ResultError::Terminated { instance, reason }),
            StatusWord::Cancelled => Err(ResultError::Cancelled { instance, reason }),
            StatusWord::Errored => {
                let failure = shown.error.map_or_else(
                    || Failure::new(FailureKind::Error, "the coordinator does not say how it failed"),
                    failure,
                );
                Err(ResultError::Errored { instance, error: everstep_sdk::Error::from_failure(failure) })
            }
            StatusWord::Complete
            | StatusWord::Queued
            | StatusWord::Running
            | StatusWord::Waiting
            | StatusWord::Pausing
            | StatusWord::Paused
            | StatusWord::Attention => {
                let output = shown.output.as_deref().map_or("null", RawValue::get);
                serde_json::from_str(output)
                    .map_err(|error| ResultError::Misfit { instance, reason: error.to_string() })
            }
        }
    }

    /// Sends it an event, and answers when that is safe in the database. The same event id, type, key and payload again is the
    /// same event (rule P24); without an id every call sends another one.
    pub async fn send_event<P: Serialize + ?Sized>(&self, event: &SendEvent<'_>, value: &P) -> Done {
        let sent = Event {
            kind: EventType::new(event.kind()).map_err(Error::from)?,
            key: event.correlation_key().map(EventKey::new).transpose().map_err(Error::from)?,
            id: event.event_id().map_or_else(|| Uuid::now_v7().to_string(), str::to_owned),
            payload: payload("payload", value)?,
        };
        let answer = self.api.send_event(&self.workflow, &self.id, &sent).await.map_err(|error| {
            // Another call would choose another id.
            error.repeatable_if(event.event_id().is_some())
        });
        self.done("send", answer)
    }

    /// Lets what runs finish, and nothing more begin, until it is resumed.
    pub async fn pause(&self) -> Done {
        self.operate("pause", None).await
    }

    /// Lets it go on.
    pub async fn resume(&self) -> Done {
        self.operate("resume", None).await
    }

    /// Asks it to end by itself. What has not ended by the deadline of the settings is terminated.
    pub async fn cancel(&self, reason: Option<&str>) -> Done {
        self.operate("cancel", Some(json!({ "reason": reason }))).await
    }

    /// The same, with a deadline of its own.
    pub async fn cancel_within(&self, reason: Option<&str>, within: impl IntoMillis) -> Done {
        let within = within.into_millis().map_err(|error| OperationError::Duration(error.to_string()))?;
        self.operate("cancel", Some(json!({ "reason": reason, "within": within.to_string() }))).await
    }

    /// Like [`cancel`](Self::cancel); if it ends with the cancel, or not in time, its compensations run (rule P38).
    pub async fn cancel_and_roll_back(&self, reason: Option<&str>) -> Done {
        self.operate("cancel", Some(json!({ "reason": reason, "rollback": true }))).await
    }

    /// Ends it now.
    pub async fn terminate(&self, reason: Option<&str>) -> Done {
        self.operate("terminate", Some(json!({ "reason": reason }))).await
    }

    /// Stops it where it stands, has the compensations of its steps run, last call first, and ends it as terminated (rule P38). It
    /// is open until that is done.
    pub async fn roll_back(&self, reason: Option<&str>) -> Done {
        self.operate("terminate", Some(json!({ "reason": reason, "rollback": true }))).await
    }

    /// Lets a parked one go on.
    pub async fn retry(&self) -> Done {
        self.operate("retry", None).await
    }

    /// Answers what it asks people about a call, by the question's id: the call took effect, and this is its output (rule L8).
    pub async fn resolve_done<T: Serialize + ?Sized>(&self, question: &str, output: &T, by: &str) -> Done {
        self.resolve(question, json!({ "choice": "done", "output": output, "by": by })).await
    }

    /// Answers a question: the call is to be made again.
    pub async fn resolve_again(&self, question: &str, by: &str) -> Done {
        self.resolve(question, json!({ "choice": "again", "by": by })).await
    }

    /// Answers a question: the call has failed, with this message.
    pub async fn resolve_failed(&self, question: &str, message: &str, by: &str) -> Done {
        self.resolve(question, json!({ "choice": "fail", "message": message, "by": by })).await
    }

    async fn resolve(&self, question: &str, body: serde_json::Value) -> Done {
        let key = uuid::Uuid::now_v7().to_string();
        let answer = self.api.resolve(&self.workflow, &self.id, question, &key, &body).await;
        self.done("resolve", answer)
    }

    /// Runs it again from the beginning, in a new run with the same input and keys.
    pub async fn restart(&self) -> Done {
        self.operate("restart", None).await
    }

    /// Runs it again from a step on: the first call of that name is `count` 1. What was called before its outcome was known stays.
    pub async fn restart_from(&self, step: &str, count: u32) -> Done {
        let from = json!({ "from": { "kind": CallKind::Step, "name": step, "count": count } });
        self.operate("restart", Some(from)).await
    }

    /// Runs it again from the beginning; steps with the same input as before get their outputs from the run before, without a call
    /// (rule L4). Not those that failed or were compensated.
    pub async fn restart_and_reuse(&self) -> Done {
        self.operate("restart", Some(json!({ "reuse": true }))).await
    }

    /// Lets only workers of this build take it up, from the next time on.
    pub async fn pin(&self, build: &str) -> Done {
        self.operate("pin", Some(json!({ "build": build }))).await
    }

    /// Lets workers of any build take it up.
    pub async fn unpin(&self) -> Done {
        self.operate("unpin", None).await
    }

    /// Removes every trace of it, once it has ended.
    pub async fn delete(&self) -> Done {
        self.done("delete", self.api.delete(&self.workflow, &self.id, false).await)
    }

    /// Terminates it if it has not ended, and removes every trace of it.
    pub async fn terminate_and_delete(&self) -> Done {
        self.done("delete", self.api.delete(&self.workflow, &self.id, true).await)
    }

    async fn operate(&self, operation: &'static str, body: Option<serde_json::Value>) -> Done {
        let answer = self.api.operate(&self.workflow, &self.id, operation, body.as_ref()).await;
        self.done(operation, answer)
    }

    fn done(&self, operation: &'static str, answer: Result<Answer, Error>) -> Done {
        let Err(error) = answer else { return Ok(()) };
        let Error::Problem(problem) = error else { return Err(error.into()) };
        let Problem { code, detail, .. } = *problem.clone();
        Err(match code.as_str() {
            "not_found" => {
                OperationError::NotFound { workflow: self.workflow.to_string(), id: self.id.to_string() }
            }
            "not_allowed" | "not_parked" | "not_asked" => {
                OperationError::Refused { operation, reason: detail }
            }
            "moved" => OperationError::Moved(operation),
            _ => Error::Problem(problem).into(),
        })
    }

    fn read(&self, answer: &Answer) -> Result<Shown, Error> {
        serde_json::from_str(&answer.text).map_err(|error| self.api.alien(answer.status, error.to_string()))
    }

    fn status_of(&self, word: &str) -> Result<StatusWord, Error> {
        StatusWord::parse(word).ok_or_else(|| {
            self.api.alien(200, format!("the status {word:?} is not known to this version of the client"))
        })
    }
}

/// None for what does not exist.
fn found(answer: Result<Answer, Error>) -> Result<Option<Answer>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Error::Problem(problem)) if problem.code == "not_found" => Ok(None),
        Err(error) => Err(error),
    }
}

fn failure(shown: ShownError) -> Failure {
    let ShownError { kind, name, message, data, permanent } = shown;
    let kind = FailureKind::ALL.into_iter().find(|known| known.word() == kind);
    let data = data.and_then(|data| Payload::from_text(data.get()).ok());
    Failure { name, permanent, data, ..Failure::new(kind.unwrap_or(FailureKind::Error), message) }
}

/// `workflow/id`.
impl fmt::Display for InstanceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workflow, self.id)
    }
}
