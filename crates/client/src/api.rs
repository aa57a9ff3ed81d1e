//! The routes: one request, one answer, and a failure that says whether repeating it is safe.

mod access;
mod audit;
mod operators;
mod schedules;

use std::time::Duration;

use everstep_protocol::{EventKey, EventType, InstanceId, Namespace, Pin, Token, WorkflowName};
use reqwest::{Method, RequestBuilder, Url, header, header::HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

pub use self::{access::WantedAccess, audit::AuditSearch, schedules::Backfill};
use crate::error::{Error, Problem};

/// Longer than a coordinator takes to say that it does not know.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long a stream of events may go on: it is the silence that ends it.
const STREAM_WITHIN: Duration = Duration::from_hours(10_000);
/// How long a coordinator is asked to wait for an end: shorter than most proxies give a request.
pub(crate) const WAIT: Duration = Duration::from_secs(30);

/// Speaks to one coordinator, or what stands before several, about one namespace.
#[derive(Clone, Debug)]
pub struct Api {
    http: reqwest::Client,
    base: Url,
    namespace: Namespace,
    /// What opens the API, where it demands that. It shows nothing of itself.
    bearer: Option<HeaderValue>,
}

/// A JSON answer, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status: 201 for a start that created an instance.
    pub status: u16,
    /// The JSON text.
    pub text: String,
}

/// Which instances to list.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// Only this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only this status.
    pub status: Option<String>,
    /// Only what was created at this time or later, as RFC 3339.
    pub created_from: Option<String>,
    /// Only what was created before.
    pub created_before: Option<String>,
    /// Only what ended at this time or later.
    pub ended_from: Option<String>,
    /// Only what ended before.
    pub ended_before: Option<String>,
    /// Only with an error of this name or kind, or parked with this code.
    pub error: Option<String>,
    /// Only with an id that begins so.
    pub id_prefix: Option<String>,
    /// Only what has these attributes, each as `name=value`.
    pub attributes: Vec<String>,
    /// How many.
    pub limit: Option<u32>,
    /// Where an earlier page ended.
    pub cursor: Option<String>,
}

/// Which questions to list.
#[derive(Clone, Debug, Default)]
pub struct Questions {
    /// Only of this workflow.
    pub workflow: Option<WorkflowName>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only those that were asked at least so long ago.
    pub older_than: Option<String>,
    /// How many.
    pub limit: Option<u32>,
    /// Where an earlier page ended.
    pub after: Option<String>,
}

/// Which calls of steps are searched for: by one of `key` and `reference`.
#[derive(Clone, Debug, Default)]
pub struct LedgerSearch {
    /// The idempotency key.
    pub key: Option<String>,
    /// What the service calls what the step did.
    pub reference: Option<String>,
    /// The instance was created at this moment, as RFC 3339, or later; or at most this duration ago. Only of a key; default `7 days`.
    pub since: Option<String>,
    /// The instance was created before; only of a key.
    pub until: Option<String>,
    /// How many.
    pub limit: Option<u32>,
}

/// An event to send.
#[derive(Debug)]
pub struct Event {
    /// Its type.
    pub kind: EventType,
    /// Its correlation key.
    pub key: Option<EventKey>,
    /// By what a repetition is known.
    pub id: String,
    /// What it says.
    pub payload: Box<RawValue>,
}

#[derive(Serialize)]
struct StartBody<'a> {
    id: &'a InstanceId,
    input: &'a RawValue,
    #[serde(flatten)]
    with: &'a Options,
}

/// What a start may say beside its input.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Options {
    /// How long the instance is kept after its end: a duration, or `{"complete": .., "failed": ..}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<serde_json::Value>,
    /// To which build it is pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
    /// Whether it is refused while no worker serves the workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// What it can be found by.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub attributes: serde_json::Map<String, serde_json::Value>,
    /// The token that it claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook: Option<StartHook>,
}

/// A token that a start claims.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartHook {
    /// The token.
    pub token: Token,
    /// For how long it is the instance's at least: a duration, milliseconds, or a moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<serde_json::Value>,
    /// What whoever looks it up reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
    /// The JSON Schema that every payload must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Box<RawValue>>,
}

/// One start of a batch.
#[derive(Debug, Serialize)]
pub struct BatchItem {
    /// The instance's id.
    pub id: InstanceId,
    /// The input.
    pub input: Box<RawValue>,
    /// What else it says.
    #[serde(flatten)]
    pub with: Options,
}

#[derive(Serialize)]
struct BatchBody<'a> {
    instances: &'a [BatchItem],
}

impl Api {
    /// The API at `url`, which is only looked for when something is asked.
    pub fn new(url: &str, namespace: Namespace) -> Result<Self, Error> {
        let refused = |reason: &str| Error::Url { url: url.to_owned(), reason: reason.to_owned() };
        let base = Url::parse(url).map_err(|error| refused(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(refused("it must begin with http:// or https://"));
        }
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            // The API is asked directly: a proxy for the web has no business between.
            .no_proxy()
            .build()
            .map_err(|error| refused(&error.to_string()))?;
        Ok(Self { http, base, namespace, bearer: None })
    }

    /// The same API about another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    /// The same API, asked with an access token. Its text is in no error and in nothing that is printed.
    pub fn with_access_token(self, token: &str) -> Result<Self, Error> {
        let refused = || Error::Value {
            what: "access token",
            reason: "it must be visible ASCII characters, as it was given to you".to_owned(),
        };
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused());
        }
        let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| refused())?;
        bearer.set_sensitive(true);
        Ok(Self { bearer: Some(bearer), ..self })
    }

    /// Starts an instance. Repeating it with the same id makes no second one.
    pub async fn start(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        input: &RawValue,
        with: &Options,
    ) -> Result<Answer, Error> {
        let url = self.url(&["workflows", workflow.as_str(), "instances"]);
        self.send(self.json(Method::POST, url, &StartBody { id, input, with })?).await
    }

    /// Starts a batch of instances. Repeating it with the same ids makes no second ones.
    pub async fn start_batch(&self, workflow: &WorkflowName, items: &[BatchItem]) -> Result<Answer, Error> {
        let url = self.url(&["workflows", workflow.as_str(), "instances:batch"]);
        self.send(self.json(Method::POST, url, &BatchBody { instances: items })?).await
    }

    /// One instance.
    pub async fn instance(&self, workflow: &WorkflowName, id: &InstanceId) -> Result<Answer, Error> {
        self.get(self.of(workflow, id, None)).await
    }

    /// One instance, once it has ended or some seconds are over: its view says which.
    pub async fn instance_or_its_end(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
    ) -> Result<Answer, Error> {
        let mut url = self.of(workflow, id, None);
        url.query_pairs_mut().append_pair("wait", &format!("{}s", WAIT.as_secs()));
        self.send(self.http.get(url).timeout(ANSWER_WITHIN + WAIT)).await
    }

    /// A page of an instance's journal.
    pub async fn journal(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        run: Option<u32>,
        after: u64,
    ) -> Result<Answer, Error> {
        let mut url = self.of(workflow, id, Some("journal"));
        url.query_pairs_mut().append_pair("after", &after.to_string()).append_pair("limit", "1000");
        query(&mut url, &[("run", &run.map(|run| run.to_string()))]);
        self.get(url).await
    }

    /// A page of instances.
    pub async fn instances(&self, list: &List) -> Result<Answer, Error> {
        let mut url = match &list.workflow {
            Some(workflow) => self.url(&["workflows", workflow.as_str(), "instances"]),
            None => self.url(&["instances"]),
        };
        let limit = list.limit.map(|limit| limit.to_string());
        for attribute in &list.attributes {
            url.query_pairs_mut().append_pair("attribute", attribute);
        }
        query(
            &mut url,
            &[
                ("status", &list.status),
                ("created_from", &list.created_from),
                ("created_before", &list.created_before),
                ("ended_from", &list.ended_from),
                ("ended_before", &list.ended_before),
                ("error", &list.error),
                ("id_prefix", &list.id_prefix),
                ("limit", &limit),
                ("cursor", &list.cursor),
            ],
        );
        self.get(url).await
    }

    /// Does an operation to an instance, with a body if it takes one.
    pub async fn operate(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        operation: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, Error> {
        let url = self.of(workflow, id, Some(operation));
        let request = match body {
            Some(body) => self.json(Method::POST, url, body)?,
            None => self.http.post(url).header("idempotency-key", Uuid::now_v7().to_string()),
        };
        // Each restart begins a new run.
        self.send_once(request, operation != "restart").await
    }

    /// Deletes an instance.
    pub async fn delete(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        terminate: bool,
    ) -> Result<Answer, Error> {
        let mut url = self.of(workflow, id, None);
        if terminate {
            url.query_pairs_mut().append_pair("terminate", "true");
        }
        self.send(self.http.delete(url).header("idempotency-key", Uuid::now_v7().to_string())).await
    }

    /// Does one operation to many instances, which the body names. Repeating it with the same key does nothing twice.
    pub async fn operate_each(
        &self,
        workflow: &WorkflowName,
        key: &str,
        body: &impl Serialize,
    ) -> Result<Answer, Error> {
        let url = self.url(&["workflows", workflow.as_str(), "instances:operate"]);
        self.send(self.keyed(url, key, body)?).await
    }

    /// Sends an event. Repeating it with the same id makes no second one.
    pub async fn send_event(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        event: &Event,
    ) -> Result<Answer, Error> {
        let path = ["workflows", workflow.as_str(), "instances", id.as_str(), "events", event.kind.as_str()];
        let mut url = self.url(&path);
        query(&mut url, &[("key", &event.key.as_ref().map(ToString::to_string))]);
        self.send(self.keyed(url, &event.id, &event.payload)?).await
    }

    /// What instances ask people, in the order in which they asked.
    pub async fn attention(&self, list: &Questions) -> Result<Answer, Error> {
        let mut url = self.url(&["attention"]);
        let workflow = list.workflow.as_ref().map(ToString::to_string);
        let limit = list.limit.map(|limit| limit.to_string());
        query(
            &mut url,
            &[
                ("workflow", &workflow),
                ("kind", &list.kind),
                ("older_than", &list.older_than),
                ("limit", &limit),
                ("after", &list.after),
            ],
        );
        self.get(url).await
    }

    /// What one instance asks, or one of its questions.
    pub async fn questions(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        question: Option<&str>,
    ) -> Result<Answer, Error> {
        let path = ["workflows", workflow.as_str(), "instances", id.as_str(), "attention"];
        self.get(self.url(&path.into_iter().chain(question).collect::<Vec<_>>())).await
    }

    /// Answers a question. Repeating it with the same key answers it once.
    pub async fn resolve(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        question: &str,
        key: &str,
        body: &impl Serialize,
    ) -> Result<Answer, Error> {
        let path =
            ["workflows", workflow.as_str(), "instances", id.as_str(), "attention", question, "resolve"];
        self.send(self.keyed(self.url(&path), key, body)?).await
    }

    /// Which calls the steps of an instance have made, under which keys, and what came of them; of the
    /// current run unless another is named, and of one step, if one is named.
    pub async fn ledger(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        (step, run): (Option<&str>, Option<u32>),
        (after, limit): (Option<u64>, Option<u32>),
    ) -> Result<Answer, Error> {
        let mut url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str(), "ledger"]);
        let (step, after) = (step.map(ToOwned::to_owned), after.map(|after| after.to_string()));
        let (run, limit) = (run.map(|run| run.to_string()), limit.map(|limit| limit.to_string()));
        query(&mut url, &[("step", &step), ("run", &run), ("after", &after), ("limit", &limit)]);
        self.get(url).await
    }

    /// The same of all instances, by an idempotency key or an external reference.
    pub async fn search_ledger(&self, search: &LedgerSearch) -> Result<Answer, Error> {
        let mut url = self.url(&["ledger"]);
        let limit = search.limit.map(|limit| limit.to_string());
        query(
            &mut url,
            &[
                ("key", &search.key),
                ("reference", &search.reference),
                ("since", &search.since),
                ("until", &search.until),
                ("limit", &limit),
            ],
        );
        self.get(url).await
    }

    /// Tokens and who has them.
    pub async fn hooks(&self, after: Option<&Token>, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.url(&["hooks"]);
        let (after, limit) = (after.map(ToString::to_string), limit.map(|limit| limit.to_string()));
        query(&mut url, &[("after", &after), ("limit", &limit)]);
        self.get(url).await
    }

    /// Who has a token.
    pub async fn hook(&self, token: &Token) -> Result<Answer, Error> {
        self.get(self.url(&["hooks", token.as_str()])).await
    }

    /// Resumes a hook. Repeating it with the same id keeps no second payload.
    pub async fn resume_hook(&self, token: &Token, id: &str, payload: &RawValue) -> Result<Answer, Error> {
        self.send(self.keyed(self.url(&["hooks", token.as_str(), "resume"]), id, &payload)?).await
    }

    /// What answered is not understood.
    pub(crate) fn alien(&self, status: u16, reason: String) -> Error {
        Error::Alien { url: self.base.to_string(), status, reason }
    }

    fn of(&self, workflow: &WorkflowName, id: &InstanceId, rest: Option<&str>) -> Url {
        let path = ["workflows", workflow.as_str(), "instances", id.as_str()];
        self.url(&path.into_iter().chain(rest).collect::<Vec<_>>())
    }

    pub(crate) fn url(&self, rest: &[&str]) -> Url {
        self.url_in(self.namespace.as_str(), rest)
    }

    fn url_in(&self, namespace: &str, rest: &[&str]) -> Url {
        let mut url = self.base.clone();
        // That it can be a base was checked when this was made.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["v1", namespace]).extend(rest);
        }
        url
    }

    async fn get(&self, url: Url) -> Result<Answer, Error> {
        self.send(self.http.get(url)).await
    }

    fn json(&self, method: Method, url: Url, body: &impl Serialize) -> Result<RequestBuilder, Error> {
        let key = Uuid::now_v7().to_string();
        Ok(with_body(self.http.request(method, url), &key, &body_of(body)?))
    }

    fn keyed(&self, url: Url, key: &str, body: &impl Serialize) -> Result<RequestBuilder, Error> {
        Ok(with_body(self.http.post(url), key, &body_of(body)?))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Answer, Error> {
        self.send_once(request, true).await
    }

    async fn send_once(&self, request: RequestBuilder, is_repeatable: bool) -> Result<Answer, Error> {
        let unreachable = |error: &reqwest::Error| Error::Unreachable {
            url: self.base.to_string(),
            reason: innermost(error),
            is_sent: !error.is_connect(),
            is_repeatable,
        };
        let response = self.opened(request).send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| unreachable(&error))?;
        if status.is_success() {
            return Ok(Answer { status: status.as_u16(), text });
        }
        Err(self.problem(status.as_u16(), &text))
    }

    fn opened(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.bearer {
            Some(bearer) => request.header(header::AUTHORIZATION, bearer.clone()),
            None => request,
        }
    }

    fn problem(&self, status: u16, text: &str) -> Error {
        match serde_json::from_str::<Problem>(text) {
            Ok(problem) if !problem.code.is_empty() => Error::Problem(Box::new(problem)),
            _ => self.alien(status, "it is no problem as the API tells them".to_owned()),
        }
    }

    /// Begins an answer that goes on for as long as there is something to tell.
    pub(crate) async fn begin(&self, url: Url, after: Option<&str>) -> Result<reqwest::Response, Error> {
        let mut request = self.opened(self.http.get(url).timeout(STREAM_WITHIN));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        match tokio::time::timeout(ANSWER_WITHIN, request.send()).await {
            Ok(answer) => answer.map_err(|error| self.broken(innermost(&error))),
            Err(_) => Err(self.broken("it took too long".to_owned())),
        }
    }

    /// Why a stream was not begun.
    pub(crate) async fn refusal(&self, response: reqwest::Response) -> Error {
        let status = response.status().as_u16();
        match response.text().await {
            Ok(text) => self.problem(status, &text),
            Err(error) => self.broken(innermost(&error)),
        }
    }

    /// A stream that broke: reading it again does no harm.
    pub(crate) fn broken(&self, reason: String) -> Error {
        Error::Unreachable { url: self.base.to_string(), reason, is_sent: true, is_repeatable: true }
    }
}

fn body_of(body: &impl Serialize) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body).map_err(|error| Error::Value { what: "body", reason: error.to_string() })
}

fn with_body(request: RequestBuilder, key: &str, body: &[u8]) -> RequestBuilder {
    request
        .header(header::CONTENT_TYPE, "application/json")
        .header("idempotency-key", key)
        .body(body.to_owned())
}

fn query(url: &mut Url, fields: &[(&str, &Option<String>)]) {
    for (name, value) in fields {
        if let Some(value) = value {
            url.query_pairs_mut().append_pair(name, value);
        }
    }
}

/// The error that caused all the others says it best: "connection refused".
fn innermost(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
