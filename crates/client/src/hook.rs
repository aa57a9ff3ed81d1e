//! Hooks over HTTP: claimed by a start, resumed, looked up (rules H1 to H57), under the names that the embedded system has.

use everstep_protocol::{
    InstanceId, Payload, Token, WorkflowName,
    hook::StartHook,
    journal::Other,
    start::{StartOutcome, StartReply},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    api::{self, Answer},
    client::{Client, StartWith, payload},
    error::{Error, Problem, unknown_start},
};

/// What became of a resume. Each but the first means that nothing was kept by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// The payload is safe in the database, now or before, and its instance is woken.
    Accepted {
        /// Whose hook it is.
        owner: Other,
    },
    /// No open instance has the token (rules H46, H50).
    NotFound,
    /// The payload does not fit the schema of the hook, or its code gets requests and this is none: where, and which rule. The same will be refused again (rule H57).
    Unfit(String),
    /// Another payload has this id.
    IdTaken,
    /// The instance has as many unread events as it may; trying again may help.
    MailboxFull,
    /// The token went from hand to hand; trying again may help.
    Moved,
}

/// Who has a token, or keeps it by a retention.
#[derive(Clone, Debug, Deserialize)]
pub struct HookView {
    /// The token.
    pub token: String,
    /// Its owner.
    #[serde(flatten)]
    pub owner: Other,
    /// The owner's status: open, or how it has ended.
    pub status: String,
    /// Which hook of its owner it is.
    pub hook: String,
    /// Since when, as in `2026-01-31T12:00:00.000000Z`.
    pub since: String,
    /// Until when it is kept if the owner ends without letting it go.
    #[serde(default)]
    pub retain_until: Option<String>,
    /// The owner has ended: it keeps the token by its retention, and cannot be resumed.
    #[serde(default)]
    pub retained: bool,
    /// Anybody who knows the token may resume it.
    #[serde(default)]
    pub webhook: bool,
    /// What it was given for whoever looks it up.
    #[serde(default)]
    pub metadata: Option<serde_json::Value>,
    /// What every payload must fit.
    #[serde(default)]
    pub schema: Option<serde_json::Value>,
    /// From whom it was taken.
    #[serde(default)]
    pub taken_from: Option<Other>,
}

#[derive(Deserialize)]
struct Started {
    id: String,
    #[serde(default)]
    status: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    hooks: Vec<HookView>,
}

impl Client {
    /// Starts an instance that claims a token, so that no other instance can have it (rule H1). While another one has it, nothing is
    /// created, and the reply's outcome is a conflict with that one as its owner. So a start of which nobody knows what became of it
    /// can be made again, with an id or without: it becomes the owner, or is told who is, which may be the start before (rule H27).
    ///
    /// ```no_run
    /// use everstep_client::{Client, StartHook};
    ///
    /// # async fn example(everstep: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let hook = StartHook::new("order:17".parse()?);
    /// let reply = everstep.start_with_hook("fulfil", None, &42, hook).await?;
    /// match reply.owner {
    ///     None => println!("started {:?}", reply.id),
    ///     Some(owner) => println!("{} has the order already", owner.id),
    /// }
    /// everstep.resume_hook("order:17", Some("note-1"), &"gift wrap").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Errors: [`Error::StartUnknown`] names the instance that may have been started (rule H26).
    pub async fn start_with_hook<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
        hook: StartHook,
    ) -> Result<StartReply, Error> {
        let workflow = WorkflowName::new(workflow)?;
        let id = match id {
            Some(id) => InstanceId::new(id)?,
            None => InstanceId::new(Uuid::now_v7().to_string())?,
        };
        let input = payload("input", input)?;
        let StartWith { mut options } = StartWith::new();
        options.hook = Some(written(hook)?);
        let reply = |outcome, status| StartReply {
            outcome,
            workflow: Some(workflow.to_string()),
            id: Some(id.to_string()),
            status,
            code: None,
            message: None,
            owner: None,
            retry_safe: true,
        };
        match self.api().start(&workflow, &id, &input, &options).await {
            Ok(answer) => {
                let Started { id: answered, status } = self.read(&answer)?;
                let created = answer.status == 201;
                let outcome = if created { StartOutcome::Created } else { StartOutcome::Exists };
                Ok(StartReply { id: Some(answered), ..reply(outcome, status.filter(|_| !created)) })
            }
            Err(Error::Problem(problem)) if problem.code == "hook_held" => {
                // Who has it is what this answer is for (rule H32).
                let Problem { owner: Some(owner), code, detail, .. } = *problem else {
                    return Err(self.api().alien(409, "a token is held by nobody".to_owned()));
                };
                let held = reply(StartOutcome::Conflict, None);
                let (code, message) = (Some(code), Some(detail));
                Ok(StartReply { id: None, code, message, owner: Some(owner), retry_safe: false, ..held })
            }
            Err(error) => Err(unknown_start(error, &workflow, &id, true)),
        }
    }

    /// Resumes the hook of whoever has this token, and answers when the payload is safe in the database. The same resume id and
    /// payload again is the same payload (rule H48); without an id every call sends another one.
    ///
    /// Errors: where the answer is lost, the payload may be kept, and sending it again is safe with its id (rule H47).
    pub async fn resume_hook<P: Serialize + ?Sized>(
        &self,
        token: &str,
        id: Option<&str>,
        value: &P,
    ) -> Result<Resumed, Error> {
        let token = Token::new(token)?;
        let payload = payload("payload", value)?;
        let chosen = id.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        match self.api().resume_hook(&token, &chosen, &payload).await {
            Ok(answer) => Ok(Resumed::Accepted { owner: self.read(&answer)? }),
            Err(Error::Problem(problem)) => match problem.code.as_str() {
                "hook_not_found" => Ok(Resumed::NotFound),
                "payload_misfit" => Ok(Resumed::Unfit(problem.detail)),
                "resume_id_taken" => Ok(Resumed::IdTaken),
                "mailbox_full" => Ok(Resumed::MailboxFull),
                "moved" => Ok(Resumed::Moved),
                _ => Err(Error::Problem(problem)),
            },
            // Another call would choose another id.
            Err(error) => Err(error.repeatable_if(id.is_some())),
        }
    }

    /// Who has a token, or keeps it by a retention; advice only, since it may change at any time (rule H56).
    pub async fn hook(&self, token: &str) -> Result<Option<HookView>, Error> {
        match self.api().hook(&Token::new(token)?).await {
            Ok(answer) => self.read(&answer).map(Some),
            Err(Error::Problem(problem)) if problem.code == "hook_not_found" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tokens of the namespace that somebody has or keeps, after this one, in their order: at most 200.
    pub async fn hooks(&self, after: Option<&str>, limit: u32) -> Result<Vec<HookView>, Error> {
        let after = after.map(Token::new).transpose()?;
        let answer = self.api().hooks(after.as_ref(), Some(limit)).await?;
        Ok(self.read::<Listed>(&answer)?.hooks)
    }

    fn read<T: for<'de> Deserialize<'de>>(&self, answer: &Answer) -> Result<T, Error> {
        serde_json::from_str(&answer.text).map_err(|error| self.api().alien(answer.status, error.to_string()))
    }
}

/// As it is sent.
fn written(hook: StartHook) -> Result<api::StartHook, Error> {
    let StartHook { token, retention, metadata, schema } = hook;
    let raw = |what: &'static str, value: Option<Payload>| {
        let value = value.map(|value| RawValue::from_string(value.as_str().to_owned())).transpose();
        value.map_err(|error| Error::Value { what, reason: error.to_string() })
    };
    Ok(api::StartHook {
        token,
        retention: retention.map(|retention| retention.to_string().into()),
        metadata: raw("metadata", metadata)?,
        schema: raw("schema", schema)?,
    })
}
