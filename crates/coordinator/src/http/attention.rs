//! What people are asked: why instances are parked, and what came of attempts of which nobody knows it (rule L8). Listed over all
//! workflows, looked at and answered.

use axum::{
    Json,
    extract::{FromRequest, FromRequestParts, Request, State},
    http::request::Parts,
    response::Response,
};
use everstep_engine::{
    decide::{Rekeying, Unparking},
    rows::{Evidence, Question, Told},
    start::NameKey,
    transition::Operation as Kind,
};
use everstep_protocol::{
    Call, Failure, FailureKind, InstanceId, Millis, Namespace, Payload, Run, Timestamp, WorkflowName,
    journal::{Choice, KeyChoice, ParkCode, Parked, QuestionId},
};
use everstep_store::{
    AskedView, AttentionFilter, AttentionMark, AttentionView, InstanceView, UNKNOWN_OUTCOME,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    control::{answered, checked},
    document::{Always, BodyProblems, Conflict, NotFound},
    extract::{Acting, InstancePath, JsonBody, NamespacePath, NoQuery, Operation, Strict, limit, path},
    instances::{Done, done, not_found},
    problem::Refusal,
    view::{CallView, Error as ErrorView, raw, time},
};
use crate::{Decision, Error, Handle};

const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 200;
/// Under what the question of a parked instance is asked.
const PARKED: &str = "parked";
const RETRY_SAYS_NOTHING: &str = "by and why are refused with retry, whose entry has neither";
/// The longest name of who decides, in characters.
const BY_CHARS_MAX: usize = 200;

/// Something that a person is asked.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Question)]
pub(super) struct Item {
    namespace: String,
    workflow: String,
    id: String,
    /// Under what it is answered.
    question: String,
    /// `unknown_outcome`, or the code of why the instance is parked.
    kind: &'static str,
    since: String,
    message: String,
    /// What can be answered.
    choices: &'static [&'static str],
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallView>,
    /// The attempt of which nobody knows what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    /// The idempotency key that it bore.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
    /// What its worker said too late.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<EvidenceView>,
}

/// A late report of the attempt that is asked about. It decides nothing by itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Evidence)]
struct EvidenceView {
    at: String,
    session: String,
    build: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    output: Option<Box<RawValue>>,
    /// Instead of an output that is too large to be kept: its bytes of JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

impl Item {
    fn new(name: &NameKey, since: Timestamp) -> Self {
        Self {
            namespace: name.namespace.to_string(),
            workflow: name.workflow.to_string(),
            id: name.id.to_string(),
            question: PARKED.to_owned(),
            kind: UNKNOWN_OUTCOME,
            since: time(since),
            message: String::new(),
            choices: &["retry", "terminate"],
            call: None,
            attempt: None,
            key: None,
            error: None,
            evidence: None,
        }
    }

    fn parked(name: &NameKey, run: Run, since: Timestamp, parked: &Parked) -> Self {
        let asked = Self::new(name, since);
        let asked = Self { kind: parked.code.word(), message: parked.message.clone(), ..asked };
        let Some((changed, position)) =
            parked.changed.as_ref().and_then(|changed| Some((changed, changed.asked_at?)))
        else {
            return asked;
        };
        Self {
            question: QuestionId { run, position }.to_string(),
            choices: &["old_key", "new_key", "retry", "terminate"],
            call: Some(CallView::from(&changed.call)),
            key: Some(changed.key.to_string()),
            ..asked
        }
    }

    fn unknown(name: &NameKey, run: Run, since: Timestamp, (call, question): (&Call, &Question)) -> Self {
        let id = QuestionId { run, position: question.position };
        let evidence = question.evidence.as_ref();
        Self {
            question: id.to_string(),
            message: format!(
                "nobody knows whether attempt {} of {call} took effect: {}",
                question.attempt,
                question.failure.clone().of_sensitive(question.sensitive)
            ),
            choices: &["done", "again", "fail"],
            call: Some(CallView::from(call)),
            attempt: Some(question.attempt.0),
            key: Some(question.key.to_string()),
            error: Some(ErrorView::from(question.failure.clone().of_sensitive(question.sensitive))),
            evidence: evidence.map(|evidence| EvidenceView::of(evidence, question.sensitive)),
            ..Self::new(name, since)
        }
    }
}

impl EvidenceView {
    fn of(evidence: &Evidence, sensitive: bool) -> Self {
        let (outcome, output, error) = match &evidence.told {
            Told::Succeeded(output) => ("succeeded", (!sensitive).then(|| raw(output)), None),
            Told::Large(_) => ("succeeded", None, None),
            Told::Failed(failure) => {
                ("failed", None, Some(ErrorView::from(failure.clone().of_sensitive(sensitive))))
            }
        };
        Self {
            at: time(evidence.at),
            session: evidence.session.to_string(),
            build: evidence.build.to_string(),
            outcome,
            output,
            output_bytes: if let Told::Large(bytes) = evidence.told { Some(bytes) } else { None },
            error,
        }
    }
}

impl From<AttentionView> for Item {
    fn from(view: AttentionView) -> Self {
        match &view.asked {
            AskedView::Parked(parked) => Self::parked(&view.name, view.run, view.since, parked),
            AskedView::Unknown(call, question) => {
                Self::unknown(&view.name, view.run, view.since, (call, question))
            }
        }
    }
}

/// What is asked about the calls of an instance.
pub(super) fn of_calls(view: &InstanceView) -> Vec<Item> {
    let asked = view.waiting.iter().filter_map(|wait| Some((wait, wait.question.as_deref()?)));
    let name = name_of(view);
    asked.map(|(wait, question)| Item::unknown(&name, view.run, wait.since, (&wait.call, question))).collect()
}

/// What is asked about an instance and its calls.
fn all_of(view: &InstanceView) -> Vec<Item> {
    let name = name_of(view);
    let parked = view.parked.as_ref().map(|(since, parked)| Item::parked(&name, view.run, *since, parked));
    parked.into_iter().chain(of_calls(view)).collect()
}

fn name_of(view: &InstanceView) -> NameKey {
    let (namespace, workflow, id) = (view.namespace.clone(), view.workflow.clone(), view.id.clone());
    NameKey { namespace, workflow, id }
}

/// Questions in the order in which they were asked, and where to go on.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Questions)]
pub(super) struct Page {
    questions: Vec<Item>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only of this workflow
    #[param(pattern = "^[a-z0-9_-]{1,50}$")]
    workflow: Option<String>,
    /// Only of this kind: `unknown_outcome`, or the code of what is parked
    kind: Option<String>,
    /// Only what was asked at least so long ago: a duration
    older_than: Option<String>,
    /// The `next` of an earlier page
    after: Option<String>,
    /// How many at most; default 50
    #[param(minimum = 1, maximum = 200)]
    limit: Option<u32>,
}

/// What instances ask people, oldest first.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/attention",
    operation_id = "list_questions",
    tag = "attention",
    params(NamespacePath, ListQuery),
    responses((status = 200, description = "A page", body = Page), Always)
)]
pub(super) async fn list(
    State(handle): State<Handle>,
    NamespacePath(namespace): NamespacePath,
    Strict(query): Strict<ListQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let after = query.after.as_deref().map(mark).transpose()?;
    let filter = AttentionFilter {
        namespace,
        workflow: query.workflow.map(WorkflowName::new).transpose()?,
        kind: query.kind.map(kind).transpose()?,
        older_than: query.older_than.map(|age| read_age(&age)).transpose()?,
    };
    let found = handle.store().attention(&filter, after.as_ref(), limit).await?;
    let next = found.last().filter(|_| found.len() == limit as usize).map(|last| written(&last.mark()));
    Ok(Json(Page { questions: found.into_iter().map(Item::from).collect(), next }))
}

/// The cursor of a place in the list.
fn written(mark: &AttentionMark) -> String {
    format!("{}.{}.{}", mark.since.0, mark.uid, uuid::Uuid::from_bytes(mark.call))
}

fn mark(text: &str) -> Result<AttentionMark, Refusal> {
    let refused = || Refusal::Query(format!("after {text:?} is refused, it is no cursor of this list"));
    let mut parts = text.split('.');
    let (Some(since), Some(uid), Some(call), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(refused());
    };
    Ok(AttentionMark {
        since: Timestamp(since.parse().map_err(|_| refused())?),
        uid: everstep_protocol::InstanceUid(uid.parse().map_err(|_| refused())?),
        call: call.parse::<uuid::Uuid>().map_err(|_| refused())?.into_bytes(),
    })
}

fn kind(word: String) -> Result<String, Refusal> {
    if word == UNKNOWN_OUTCOME || ParkCode::ALL.into_iter().any(|code| code.word() == word) {
        return Ok(word);
    }
    Err(Refusal::Query(format!(
        "kind {word:?} is refused, it is {UNKNOWN_OUTCOME} or a code of what is parked, such as journal_mismatch"
    )))
}

fn read_age(text: &str) -> Result<Millis, Refusal> {
    Millis::parse(text).map_err(|error| Refusal::Query(format!("older_than: {error}")))
}

/// What one instance asks people.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention",
    operation_id = "list_questions_of_instance",
    tag = "attention",
    params(InstancePath),
    responses((status = 200, description = "All of them", body = Page), Always, NotFound)
)]
pub(super) async fn of_instance(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Json<Page>, Refusal> {
    let view = handle.store().instance(&name).await?.ok_or_else(|| not_found(&name))?;
    Ok(Json(Page { questions: all_of(&view), next: None }))
}

/// `/v1/{namespace}/workflows/{workflow}/instances/{id}/attention/{question}/...`
#[derive(Debug)]
pub(super) struct QuestionPath {
    name: NameKey,
    /// None for that of a parked instance.
    question: Option<QuestionId>,
}

impl<S: Sync> FromRequestParts<S> for QuestionPath {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let (namespace, workflow, id, text): (String, String, String, String) = path(parts).await?;
        let namespace = Namespace::new(namespace)?;
        let name = NameKey { namespace, workflow: WorkflowName::new(workflow)?, id: InstanceId::new(id)? };
        let question = match text.as_str() {
            PARKED => None,
            text => Some(text.parse().map_err(|error| Refusal::Path(format!("question {text:?}: {error}")))?),
        };
        Ok(Self { name, question })
    }
}

/// One question of an instance.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention/{question}",
    operation_id = "get_question",
    tag = "attention",
    params(QuestionPath),
    responses((status = 200, description = "The question", body = Item), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    QuestionPath { name, question }: QuestionPath,
    Strict(NoQuery {}): Strict<NoQuery>,
) -> Result<Json<Item>, Refusal> {
    let view = handle.store().instance(&name).await?.ok_or_else(|| not_found(&name))?;
    let wanted = question.map_or(PARKED.to_owned(), |question| question.to_string());
    let is_it = |item: &Item| match question {
        Some(_) => item.question == wanted,
        None => item.kind != UNKNOWN_OUTCOME,
    };
    let item = all_of(&view).into_iter().find(is_it);
    item.map(Json).ok_or(Refusal::NoQuestion(wanted))
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResolveBody<'a> {
    #[serde(default)]
    choice: Option<String>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<Value>)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    why: Option<String>,
}

/// What an answer is given with.
#[derive(Debug)]
pub(super) struct Answering {
    handle: Handle,
    path: QuestionPath,
    operation: String,
    body: JsonBody,
}

impl FromRequest<Handle> for Answering {
    type Rejection = Refusal;

    async fn from_request(request: Request, handle: &Handle) -> Result<Self, Refusal> {
        let (mut parts, body) = request.into_parts();
        let path = QuestionPath::from_request_parts(&mut parts, handle).await?;
        let Strict(NoQuery {}) = Strict::from_request_parts(&mut parts, handle).await?;
        let operation = Operation::from_request_parts(&mut parts, handle).await?.id;
        let Ok(Acting(acting)) = Acting::from_request_parts(&mut parts, handle).await;
        let body = JsonBody::from_request(Request::from_parts(parts, body), handle).await?;
        Ok(Self { handle: acting, path, operation, body })
    }
}

/// Answers a question.
///
/// `done` with an `output`, `again` or `fail` with a `message` decide about a call of which nobody knows whether it took effect;
/// `retry` or `terminate` about a parked instance (rule L8).
#[utoipa::path(
    post,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/attention/{question}/resolve",
    operation_id = "answer_question",
    tag = "attention",
    params(QuestionPath, Operation),
    request_body(content = ResolveBody, description = "What is asked for"),
    responses((status = 200, description = "The instance afterwards", body = Done), Always, NotFound, Conflict, BodyProblems)
)]
pub(super) async fn resolve(
    Answering { handle, path: QuestionPath { name, question }, operation, body }: Answering,
) -> Result<Response, Refusal> {
    let body: ResolveBody<'_> = body.read()?;
    let Some(question) = question else { return unpark(&handle, &name, operation, body).await };
    if let Some(choice) = unparking(body.choice.as_deref()) {
        return rekey(&handle, &name, operation, rekeying(question, choice, body)?).await;
    }
    let decision = decision(body)?;
    let answer = handle.resolve(name.clone(), operation, question, decision).await;
    let answer = answer.map_err(|error| match error {
        Error::NotAsked(reason) => Refusal::NotAsked(reason),
        error => Refusal::Engine(error),
    })?;
    match answer {
        everstep_engine::Answer::Done => Ok(done(&handle, &name).await),
        everstep_engine::Answer::NotFound => Err(not_found(&name)),
        everstep_engine::Answer::NotAsked => Err(Refusal::NotAsked("it was not open before".to_owned())),
        other => Err(Refusal::Bug(format!("an answer to a question was answered with {other:?}"))),
    }
}

/// A parked instance goes on, or ends.
async fn unpark(
    handle: &Handle,
    name: &NameKey,
    operation: String,
    body: ResolveBody<'_>,
) -> Result<Response, Refusal> {
    if body.output.is_some() || body.message.is_some() {
        let detail = "output and message are refused, they are no part of an answer about a parked instance";
        return Err(Refusal::Body(detail.to_owned()));
    }
    if body.choice.as_deref() == Some("retry") && (body.by.is_some() || body.why.is_some()) {
        return Err(Refusal::Body(RETRY_SAYS_NOTHING.to_owned()));
    }
    let reason = checked(reason(body.by.as_deref(), body.why))?;
    match body.choice.as_deref() {
        Some("retry") => {
            let answer = handle.retry(name.clone(), operation).await?;
            answered(handle, Kind::Retry, name, answer).await
        }
        Some("terminate") => {
            let answer = handle.abandon(name, operation, reason).await?;
            answered(handle, Kind::Terminate, name, answer).await
        }
        other => Err(unknown_choice(
            other,
            "retry or terminate; old_key and new_key answer the question about the step",
        )),
    }
}

fn unparking(word: Option<&str>) -> Option<Unparking> {
    Some(match word? {
        "old_key" => Unparking::Key(KeyChoice::OldKey),
        "new_key" => Unparking::Key(KeyChoice::NewKey),
        "retry" => Unparking::Retry,
        "terminate" => Unparking::Terminate,
        _ => return None,
    })
}

fn rekeying(question: QuestionId, choice: Unparking, body: ResolveBody<'_>) -> Result<Rekeying, Refusal> {
    if body.output.is_some() || body.message.is_some() {
        let detail = "output and message are refused, they are no part of an answer about a step's key";
        return Err(Refusal::Body(detail.to_owned()));
    }
    if choice == Unparking::Retry && (body.by.is_some() || body.why.is_some()) {
        return Err(Refusal::Body(RETRY_SAYS_NOTHING.to_owned()));
    }
    let (by, why) = (signed(body.by)?, checked(body.why)?);
    let why = if choice == Unparking::Terminate { checked(reason(by.as_deref(), why))? } else { why };
    Ok(Rekeying { question, choice, by, why })
}

/// Why an instance ends, and who says so, in one text.
fn reason(by: Option<&str>, why: Option<String>) -> Option<String> {
    match (by, why) {
        (Some(by), Some(why)) => Some(format!("{by}: {why}")),
        (by, why) => by.map(str::to_owned).or(why),
    }
}

/// Answers what is asked about a step whose input has changed (rule P8).
async fn rekey(
    handle: &Handle,
    name: &NameKey,
    operation: String,
    rekeying: Rekeying,
) -> Result<Response, Refusal> {
    let kind = if rekeying.choice == Unparking::Terminate { Kind::Terminate } else { Kind::Retry };
    match handle.rekey(name, operation, rekeying).await? {
        everstep_engine::Answer::NotAsked | everstep_engine::Answer::NotParked => {
            let reason = "it does not ask, or no longer, what is to become of a step whose input has changed";
            Err(Refusal::NotAsked(reason.to_owned()))
        }
        answer => answered(handle, kind, name, answer).await,
    }
}

/// Who decides, if it is said.
fn signed(by: Option<String>) -> Result<Option<String>, Refusal> {
    if by.as_ref().is_some_and(|by| by.chars().count() > BY_CHARS_MAX) {
        return Err(Refusal::Body(format!("by is longer than {BY_CHARS_MAX} characters")));
    }
    Ok(by)
}

fn unknown_choice(choice: Option<&str>, choices: &str) -> Refusal {
    Refusal::Body(match choice {
        Some(choice) => format!("choice {choice:?} is refused, it must be {choices}"),
        None => format!("choice: it is missing, it must be {choices}"),
    })
}

fn decision(body: ResolveBody<'_>) -> Result<Decision, Refusal> {
    let ResolveBody { choice, output, message, by, why } = body;
    let by = signed(by)?;
    let why = checked(why)?;
    let word = choice.as_deref();
    if output.is_some() && word != Some("done") {
        return Err(Refusal::Body("output is refused, only the choice done takes it".to_owned()));
    }
    if message.is_some() && word != Some("fail") {
        return Err(Refusal::Body("message is refused, only the choice fail takes it".to_owned()));
    }
    let choice = match word {
        Some("done") => {
            let text = output.map_or("null", RawValue::get);
            Choice::Done(Payload::from_text(text).map_err(Refusal::Payload)?)
        }
        Some("again") => Choice::Again,
        Some("fail") => {
            let message =
                checked(message)?.unwrap_or_else(|| "somebody decided that it has failed".to_owned());
            Choice::Fail(Failure { permanent: true, ..Failure::new(FailureKind::Error, message) })
        }
        other => return Err(unknown_choice(other, "done, again or fail")),
    };
    Ok(Decision { choice, by, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Decision, String> {
        let body = serde_json::from_str(text).map_err(|error| error.to_string())?;
        decision(body).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn l08_an_answer_is_checked_field_by_field() {
        let done =
            read(r#"{"choice":"done","output":{"n":1.10},"by":"ann","why":"the bank says so"}"#).unwrap();
        let Choice::Done(output) = &done.choice else { panic!("{done:?}") };
        assert_eq!((output.as_str(), done.by.as_deref()), (r#"{"n":1.10}"#, Some("ann")));
        assert_eq!(read(r#"{"choice":"again"}"#).unwrap().choice, Choice::Again);
        let Choice::Fail(failure) = read(r#"{"choice":"fail","message":"no"}"#).unwrap().choice else {
            panic!()
        };
        assert!(failure.permanent && failure.message == "no");
        for (text, part) in [
            ("{}", "choice: it is missing"),
            (r#"{"choice":"perhaps"}"#, "perhaps"),
            (r#"{"choice":"again","output":1}"#, "output is refused"),
            (r#"{"choice":"done","message":"x"}"#, "message is refused"),
            (r#"{"choice":"done","colour":1}"#, "colour"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn l08_a_place_in_the_list_comes_back() {
        let place = AttentionMark {
            since: Timestamp(17),
            uid: everstep_protocol::InstanceUid::generate(),
            call: [7; 16],
        };
        assert_eq!(mark(&written(&place)).unwrap(), place);
        for text in ["", "1", "a.b.c", "1.2.3.4"] {
            assert!(matches!(mark(text), Err(Refusal::Query(_))), "{text}");
        }
        assert!(kind("unknown_outcome".to_owned()).is_ok() && kind("poison".to_owned()).is_ok());
        assert!(matches!(kind("x".to_owned()), Err(Refusal::Query(_))));
    }
}
