//! The HTTP client of the API: one request, one answer, every failure with an advice that is safe.

use std::time::Duration;

use everstep_protocol::{EventKey, EventType, InstanceId, Namespace, Pin, Token, WorkflowName};
use reqwest::{Method, RequestBuilder, Url, header};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::failure::{Failure, Problem};

/// Longer than the server takes to say that it does not know.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Speaks to one server about one namespace.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    namespace: Namespace,
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
    /// Only what has these attributes, each as `name=value`.
    pub attributes: Vec<String>,
    /// How many.
    pub limit: Option<u32>,
    /// Where an earlier page ended.
    pub cursor: Option<String>,
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
    with: &'a StartWith,
}

/// What a start may say beside its input.
#[derive(Debug, Default, Serialize)]
pub struct StartWith {
    /// How long the instance is kept after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
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
#[derive(Debug, Serialize)]
pub struct StartHook {
    /// The token.
    pub token: Token,
    /// For how long it is the instance's at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<String>,
    /// What whoever looks it up reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Box<RawValue>>,
}

/// One start of a batch.
#[derive(Debug, Serialize)]
pub struct BatchItem {
    /// The instance's id.
    pub id: InstanceId,
    /// The input.
    pub input: Box<RawValue>,
    /// What it can be found by.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub attributes: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct BatchBody<'a> {
    instances: &'a [BatchItem],
}

#[derive(Serialize)]
struct TerminateBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Client {
    /// A client of the server at `url`, which is only looked for when something is asked.
    pub fn new(url: &str, namespace: Namespace) -> Result<Self, Failure> {
        let refused = |why: &str| Failure::Usage(format!("--url {url:?} is refused: {why}"));
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
            .map_err(|error| Failure::Other(error.into()))?;
        Ok(Self { http, base, namespace })
    }

    /// Starts an instance. Repeating it with the same id makes no second one.
    pub async fn start(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        input: &RawValue,
        with: &StartWith,
    ) -> Result<Answer, Failure> {
        let url = self.url(&["workflows", workflow.as_str(), "instances"]);
        let request = self.json(Method::POST, url, &StartBody { id, input, with })?;
        let advice = format!("with --id {id} trying again is safe: it makes no second instance");
        self.send(request, &advice).await
    }

    /// Starts a batch of instances. Repeating it with the same ids makes no second ones.
    pub async fn start_batch(&self, workflow: &WorkflowName, items: &[BatchItem]) -> Result<Answer, Failure> {
        let url = self.url(&["workflows", workflow.as_str(), "instances:batch"]);
        let request = self.json(Method::POST, url, &BatchBody { instances: items })?;
        let advice = "trying again is safe where each line has an id: it makes no second instances";
        self.send(request, advice).await
    }

    /// One instance.
    pub async fn instance(&self, workflow: &WorkflowName, id: &InstanceId) -> Result<Answer, Failure> {
        self.get(self.url(&["workflows", workflow.as_str(), "instances", id.as_str()])).await
    }

    /// A page of an instance's journal.
    pub async fn journal(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        run: Option<u32>,
        after: u64,
    ) -> Result<Answer, Failure> {
        let mut url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str(), "journal"]);
        url.query_pairs_mut().append_pair("after", &after.to_string()).append_pair("limit", "1000");
        query(&mut url, &[("run", &run.map(|run| run.to_string()))]);
        self.get(url).await
    }

    /// A page of instances.
    pub async fn instances(&self, list: &List) -> Result<Answer, Failure> {
        let mut url = match &list.workflow {
            Some(workflow) => self.url(&["workflows", workflow.as_str(), "instances"]),
            None => self.url(&["instances"]),
        };
        let limit = list.limit.map(|limit| limit.to_string());
        for attribute in &list.attributes {
            url.query_pairs_mut().append_pair("attribute", attribute);
        }
        query(&mut url, &[("status", &list.status), ("limit", &limit), ("cursor", &list.cursor)]);
        self.get(url).await
    }

    /// Ends an instance.
    pub async fn terminate(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        reason: Option<&str>,
    ) -> Result<Answer, Failure> {
        let url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str(), "terminate"]);
        let request = self.json(Method::POST, url, &TerminateBody { reason })?;
        self.send(request, "trying again is safe").await
    }

    /// Does an operation to an instance, with a body if it takes one.
    pub async fn operate(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        operation: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Answer, Failure> {
        let url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str(), operation]);
        let request = match body {
            Some(body) => self.json(Method::POST, url, body)?,
            None => self.http.post(url).header("idempotency-key", Uuid::now_v7().to_string()),
        };
        let advice = match operation {
            "restart" => "look at the instance before trying again: each restart begins a new run",
            _ => "trying again is safe",
        };
        self.send(request, advice).await
    }

    /// Deletes an instance.
    pub async fn delete(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        terminate: bool,
    ) -> Result<Answer, Failure> {
        let mut url = self.url(&["workflows", workflow.as_str(), "instances", id.as_str()]);
        if terminate {
            url.query_pairs_mut().append_pair("terminate", "true");
        }
        let request = self.http.delete(url).header("idempotency-key", Uuid::now_v7().to_string());
        self.send(request, "trying again is safe").await
    }

    /// Sends an event. Repeating it with the same id makes no second one.
    pub async fn send_event(
        &self,
        workflow: &WorkflowName,
        id: &InstanceId,
        event: &Event,
    ) -> Result<Answer, Failure> {
        let path = ["workflows", workflow.as_str(), "instances", id.as_str(), "events", event.kind.as_str()];
        let mut url = self.url(&path);
        query(&mut url, &[("key", &event.key.as_ref().map(ToString::to_string))]);
        let request = self
            .http
            .post(url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", &event.id)
            .body(event.payload.get().to_owned());
        let advice = format!("with --id {} trying again is safe: it makes no second event", event.id);
        self.send(request, &advice).await
    }

    /// Tokens and who has them.
    pub async fn hooks(&self, after: Option<&Token>, limit: Option<u32>) -> Result<Answer, Failure> {
        let mut url = self.url(&["hooks"]);
        let (after, limit) = (after.map(ToString::to_string), limit.map(|limit| limit.to_string()));
        query(&mut url, &[("after", &after), ("limit", &limit)]);
        self.get(url).await
    }

    /// Who has a token.
    pub async fn hook(&self, token: &Token) -> Result<Answer, Failure> {
        self.get(self.url(&["hooks", token.as_str()])).await
    }

    /// Resumes a hook. Repeating it with the same id keeps no second payload.
    pub async fn resume_hook(&self, token: &Token, id: &str, payload: &RawValue) -> Result<Answer, Failure> {
        let request = self
            .http
            .post(self.url(&["hooks", token.as_str(), "resume"]))
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", id)
            .body(payload.get().to_owned());
        let advice = format!("with --id {id} trying again is safe: it keeps no second payload");
        self.send(request, &advice).await
    }

    /// The newest rejected messages.
    pub async fn rejected(&self, limit: Option<u32>) -> Result<Answer, Failure> {
        let mut url = self.url(&["rejected"]);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    /// Begins an operation on many instances, or counts them. Repeating it with the same id begins none more.
    pub async fn begin_bulk(&self, id: &InstanceId, body: &impl Serialize) -> Result<Answer, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Other(error.into()))?;
        let request = self
            .http
            .post(self.url(&["bulk"]))
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", id.as_str())
            .body(body);
        self.send(request, &format!("with --id {id} trying again is safe: it begins none more")).await
    }

    /// The newest operations on many instances.
    pub async fn bulks(&self, limit: Option<u32>) -> Result<Answer, Failure> {
        let mut url = self.url(&["bulk"]);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    /// One of them.
    pub async fn bulk(&self, id: &InstanceId) -> Result<Answer, Failure> {
        self.get(self.url(&["bulk", id.as_str()])).await
    }

    /// Stops one of them.
    pub async fn stop_bulk(&self, id: &InstanceId) -> Result<Answer, Failure> {
        let request = self.http.post(self.url(&["bulk", id.as_str(), "stop"]));
        self.send(request, "trying again is safe").await
    }

    fn url(&self, rest: &[&str]) -> Url {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .expect("checked when the client was made")
            .pop_if_empty()
            .extend(["v1", self.namespace.as_str()])
            .extend(rest);
        url
    }

    async fn get(&self, url: Url) -> Result<Answer, Failure> {
        self.send(self.http.get(url), "trying again is safe").await
    }

    fn json(&self, method: Method, url: Url, body: &impl Serialize) -> Result<RequestBuilder, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Other(error.into()))?;
        Ok(self
            .http
            .request(method, url)
            .header(header::CONTENT_TYPE, "application/json")
            .header("idempotency-key", Uuid::now_v7().to_string())
            .body(body))
    }

    async fn send(&self, request: RequestBuilder, advice: &str) -> Result<Answer, Failure> {
        let unreachable = |error: &reqwest::Error| Failure::Unreachable {
            url: self.base.to_string(),
            reason: innermost(error),
            advice: if error.is_connect() { "nothing was sent, trying again is safe" } else { advice }
                .to_owned(),
        };
        let response = request.send().await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let text = response.text().await.map_err(|error| unreachable(&error))?;
        if status.is_success() {
            return Ok(Answer { status: status.as_u16(), text });
        }
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) if !problem.code.is_empty() => Err(Failure::Problem(Box::new(problem))),
            _ => Err(Failure::Other(anyhow::anyhow!(
                "{} answered {status}; is it an everstep coordinator?",
                self.base
            ))),
        }
    }
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
