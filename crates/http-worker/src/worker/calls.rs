//! The remote function: one attempt of one call.

use std::{path::PathBuf, sync::Arc};

use everstep_sdk::Step;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tokio::time::Instant;
use url::Url;

use super::{
    Metrics, Resolve, Secrets, Settings, SystemResolver,
    answer::{Meaning, meaning},
    exchange::{Answer, Fault, Sending, Wanted, Wire},
    outcome,
    plan::{self, Condition, Look, Outgoing, Plan},
    redact::Redactor,
};
use crate::{Request, Response};

/// The name of the error of an attempt that was told to end.
pub(super) const CANCELLED: &str = "HttpCancelled";

/// Makes the calls of one worker. Clones share connections and counters.
#[derive(Clone, Debug)]
pub struct HttpCalls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    secrets: Secrets,
    wire: Wire,
    metrics: Metrics,
}

/// Why calls cannot be made at all. Trying again gives the same until the settings change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings contradict themselves.
    #[error("the settings cannot be used: {}", .0.join("; "))]
    Settings(Vec<String>),
    /// The file of certificates cannot be used.
    #[error("calls.ca_file {file:?} cannot be used: {reason}")]
    CaFile {
        /// Which.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// What one attempt has in hand.
struct Attempt<'a> {
    inner: &'a Inner,
    redactor: Redactor,
}

impl HttpCalls {
    /// With the system's resolver and counters of its own.
    pub fn new(settings: &Settings, secrets: Secrets) -> Result<Self, Error> {
        Self::with(settings, secrets, Arc::new(SystemResolver), Metrics::default())
    }

    /// With a resolver and counters of the owner's.
    pub fn with(
        settings: &Settings,
        secrets: Secrets,
        resolver: Arc<dyn Resolve>,
        metrics: Metrics,
    ) -> Result<Self, Error> {
        let problems = [settings.validate(), secrets.validate()].concat();
        if !problems.is_empty() {
            return Err(Error::Settings(problems));
        }
        let wire = Wire::new(settings, resolver)?;
        Ok(Self(Arc::new(Inner { settings: settings.clone(), secrets, wire, metrics })))
    }

    /// One attempt of a call, under the key of its step.
    pub async fn call(&self, step: &Step, request: Request) -> Result<Response, everstep_sdk::Error> {
        let began = Instant::now();
        let attempt = Attempt { inner: &self.0, redactor: Redactor::default() };
        let result = tokio::select! {
            biased;
            () = step.cancelled() => Err(everstep_sdk::Error::failed("the call was told to end").named(CANCELLED)),
            result = attempt.run(step.idempotency_key(), request) => result,
        };
        self.0.metrics.called(&result, began.elapsed());
        result
    }

    /// The same as a function to be registered under [`FUNCTION`](crate::FUNCTION).
    pub fn function(
        &self,
    ) -> impl Fn(
        Step,
        Request,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Response, everstep_sdk::Error>> + Send>>
    + Send
    + Sync
    + 'static {
        let calls = self.clone();
        move |step, request| {
            let calls = calls.clone();
            Box::pin(async move { calls.call(&step, request).await })
        }
    }
}

impl Attempt<'_> {
    async fn run(mut self, key: &str, request: Request) -> Result<Response, everstep_sdk::Error> {
        let Inner { settings, secrets, .. } = self.inner;
        let plan = plan::read(request, key, settings, secrets).map_err(outcome::refused)?;
        if let Some(look) = &plan.look
            && let Some(found) = self.look(look, &plan).await?
        {
            return Ok(Response { found: true, ..found });
        }
        self.make(&plan).await
    }

    /// The answer of the look, if it says that the call was made already.
    async fn look(&mut self, look: &Look, plan: &Plan) -> Result<Option<Response>, everstep_sdk::Error> {
        let began = Instant::now();
        let found = self.ask(look, plan).await.map_err(|error| outcome::look_failed(&error));
        let word = match &found {
            Ok(Some(_)) => "found",
            Ok(None) => "absent",
            Err(_) => "failed",
        };
        self.inner.metrics.looked(word, began.elapsed());
        found
    }

    async fn ask(&mut self, look: &Look, plan: &Plan) -> Result<Option<Response>, everstep_sdk::Error> {
        let what = said(&look.call);
        let limit = self.limit();
        let sending = self.filled(&look.call, &what).await?;
        let wanted = |status| if status == StatusCode::OK { Wanted::All(limit) } else { Wanted::Beginning };
        let deadline = Instant::now() + plan.timeout;
        let answer = self.inner.wire.exchange(sending, wanted, deadline).await;
        let answer = answer.map_err(|fault| outcome::fault(&what, fault, &self.redactor))?;
        match (answer.status, meaning(answer.status, &[])) {
            (StatusCode::OK, _) if is_as_said(look.when.as_ref(), &answer) => {
                self.response(&what, &answer, plan).map(Some)
            }
            (StatusCode::OK | StatusCode::NOT_FOUND, _) => Ok(None),
            (_, Meaning::Elsewhere) => {
                Err(outcome::redirect(&what, &answer, "a look does not follow", &self.redactor))
            }
            (_, meaning) => Err(self.refusal(&what, &answer, meaning)),
        }
    }

    async fn make(&mut self, plan: &Plan) -> Result<Response, everstep_sdk::Error> {
        let what = said(&plan.call);
        let limit = self.limit();
        let mut sending = self.filled(&plan.call, &what).await?;
        let deadline = Instant::now() + plan.timeout;
        let mut hop = 0;
        loop {
            let wanted = |status| match meaning(status, &plan.expect) {
                Meaning::Done if plan.discard_body => Wanted::Nothing,
                Meaning::Done => Wanted::All(limit),
                Meaning::Again | Meaning::Elsewhere | Meaning::No => Wanted::Beginning,
            };
            let answer = self.inner.wire.exchange(sending.clone(), wanted, deadline).await;
            let answer = answer.map_err(|fault| {
                outcome::fault(&what, if hop == 0 { fault } else { after(fault) }, &self.redactor)
            })?;
            match meaning(answer.status, &plan.expect) {
                Meaning::Done => return self.response(&what, &answer, plan),
                meaning @ (Meaning::Again | Meaning::No) => return Err(self.refusal(&what, &answer, meaning)),
                Meaning::Elsewhere if hop == plan.redirects => {
                    let why =
                        if hop == 0 { "is not followed" } else { "is one more than the request allows" };
                    return Err(outcome::redirect(&what, &answer, why, &self.redactor));
                }
                Meaning::Elsewhere => {
                    sending = next(&sending, &answer, &self.inner.settings)
                        .map_err(|why| outcome::redirect(&what, &answer, &why, &self.redactor))?;
                    hop += 1;
                }
            }
        }
    }

    /// With its secrets.
    async fn filled(&mut self, call: &Outgoing, what: &str) -> Result<Sending, everstep_sdk::Error> {
        let mut headers = HeaderMap::new();
        for (name, value) in &call.headers {
            let value = value.fill(&self.inner.secrets, &mut self.redactor).await;
            headers.append(name.clone(), value.map_err(|reason| outcome::not_sent(what, &reason))?);
        }
        let (method, url, body) = (call.method.clone(), call.url.clone(), call.body.clone());
        Ok(Sending { method, url, headers, body })
    }

    fn response(&self, what: &str, answer: &Answer, plan: &Plan) -> Result<Response, everstep_sdk::Error> {
        outcome::response(what, answer, &plan.keep, &self.redactor, self.inner.settings.output_bytes)
    }

    fn refusal(&self, what: &str, answer: &Answer, meaning: Meaning) -> everstep_sdk::Error {
        let (again, max) = (meaning == Meaning::Again, self.inner.settings.retry_after_max);
        outcome::refusal(what, answer, again, &self.redactor, max)
    }

    fn limit(&self) -> usize {
        usize::try_from(self.inner.settings.response_bytes).unwrap_or(usize::MAX)
    }
}

/// As messages name a call.
fn said(call: &Outgoing) -> String {
    format!("{} {}", call.method, plan::origin(&call.url))
}

fn is_as_said(when: Option<&Condition>, answer: &Answer) -> bool {
    let Some(when) = when else { return true };
    serde_json::from_slice(&answer.body).is_ok_and(|body| when.holds(&body))
}

/// The same after a redirect: something was sent before, to somebody else.
fn after(fault: Fault) -> Fault {
    match fault {
        Fault::NotSent(reason) | Fault::NotAllowed(reason) => {
            Fault::Broken(None, format!("after a redirect: {reason}"))
        }
        fault @ (Fault::TimedOut(_) | Fault::Broken(..) | Fault::TooLarge(_)) => fault,
    }
}

/// Headers that say who calls.
const CALLER: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// Where a redirect leads; the error says why it is not followed.
fn next(sending: &Sending, answer: &Answer, settings: &Settings) -> Result<Sending, String> {
    let location = answer.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let location = location.ok_or("says not where to")?;
    let url: Url = sending.url.join(location).map_err(|_| "leads nowhere")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("leads to a URL with a user or password, and is not followed".to_owned());
    }
    plan::check_sendable(&url).map_err(|_| "leads to a URL that cannot be sent")?;
    // Not by its name: where it leads to is the callee's word, and may be an echo of what nobody is to read.
    plan::check_host(&url, settings)
        .map_err(|_| "leads to a host or address that the settings do not allow")?;
    let mut next = Sending { url, ..sending.clone() };
    let changes_nothing = matches!(sending.method, Method::GET | Method::HEAD);
    match answer.status.as_u16() {
        307 | 308 => {}
        301 | 302 if changes_nothing => {}
        303 => {
            if sending.method != Method::HEAD {
                next.method = Method::GET;
            }
            next.body = bytes::Bytes::new();
            next.headers.remove(header::CONTENT_TYPE);
        }
        _ => return Err(format!("is not followed for a {}", sending.method)),
    }
    if plan::origin(&next.url) != plan::origin(&sending.url) {
        let secret = |name: &HeaderName| {
            CALLER.contains(name) || sending.headers.get_all(name).iter().any(http::HeaderValue::is_sensitive)
        };
        for name in sending.headers.keys().filter(|name| secret(name)) {
            next.headers.remove(name);
        }
    }
    Ok(next)
}
