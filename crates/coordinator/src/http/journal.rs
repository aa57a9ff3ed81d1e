//! The journal of an instance as JSON, a page at a time.

use std::fmt::Write as _;

use axum::{Json, extract::State};
use everstep_protocol::{
    Class, Position, Run,
    hook::{Webhook, WebhookResponse},
    journal::{
        Attempted, Choice, Delivered, End, Entry, Fact, HookOutcome, Marks, Opened, Outcome, Received,
        Resolved, Wait,
    },
};
use everstep_store::{InstanceView, Range};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{
    document::{Always, NotFound, shapes},
    extract::{InstancePath, Strict, after, limit},
    instances::not_found,
    problem::Refusal,
    rollback::{RollbackView, UndoneView},
    view::{CallView, Error, InstanceName, raw, time},
};
use crate::Handle;

const PAGE_DEFAULT: u32 = 100;
/// What a store gives at most.
const PAGE_MAX: u32 = 1000;
/// The most bytes of payload in a page; at least one entry always comes.
pub(super) const PAGE_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalQuery {
    /// The position after which to begin: the `next` of an earlier page
    after: Option<u64>,
    /// How many entries at most; default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Which run; default the current one
    #[param(minimum = 1)]
    run: Option<u32>,
}

/// A page of a journal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JournalPage)]
pub(super) struct Page {
    run: u32,
    entries: Vec<EntryView>,
    /// What to give as `after` for the next page, if there is one.
    next: Option<u64>,
}

/// One entry; which fields it has depends on `kind`.
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the JSON that it is")]
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Entry)]
pub(super) struct EntryView {
    position: u64,
    at: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u32>,
    /// From which the instance's draws can be foretold: in exports that ask for it, and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    /// Those that a journal begins with.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = shapes::Attributes)]
    attributes: serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    called_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// Of the input of an attempt or a remote step, by which a replay sees whether the code still gives the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// The other instance that a call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<InstanceName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detached: Option<bool>,
    /// The call of a child ends when that has started.
    #[serde(skip_serializing_if = "Option::is_none")]
    only_started: Option<bool>,
    /// How long a child is kept after its end, where the call says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    keep_for: Option<String>,
    /// The types that are waited for, or that of the event that came.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<Vec<String>>,
    /// The sender's id of an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    /// The number of an event among those of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
    /// The correlation key of an event, or the one that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    payload: Option<Box<RawValue>>,
    /// The last position that the body had seen when it dropped the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    input: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<bool>,
    /// How many steps the lost worker could run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    slots: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The step has a compensation.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    compensated: bool,
    /// The output is sensitive, and so left out (rule P44).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sensitive: bool,
    /// The output is that of an earlier run (rule L4).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reused: bool,
    /// The output was found by looking, and is of no call of this attempt (rule L6).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    found: bool,
    /// What the service calls what the step did there (rule L14).
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// What may be done where nobody knows whether the step took effect, if it is not simply called again (rule L6).
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    /// How long what it did might not be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility_lag: Option<String>,
    /// The registered function that looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    look_first: Option<String>,
    /// The lease of an announced or unknown attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u64>,
    /// A person is asked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asks: bool,
    /// What a person has decided, who and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Of a cancel: compensations run if the body ends with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rollback: bool,
    /// The token of a hook: that a journal begins with, that is created, awaited or let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Which hook of the instance it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    hook: Option<String>,
    /// Which one of the instance that has taken it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_hook: Option<String>,
    /// For how long the token is the instance's at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<String>,
    /// What a webhook answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    webhook: Option<Webhook>,
    /// What every payload of a hook must fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    schema: Option<Box<RawValue>>,
    /// What the request of a webhook is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    response: Option<WebhookResponse>,
    /// The token is taken from whoever has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    force: bool,
    /// How many compensations there are to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    /// How each compensation ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    compensations: Option<Vec<UndoneView>>,
}

/// A page of the journal of an instance: of its current run, or of an earlier one.
#[utoipa::path(
    get,
    path = "/v1/{namespace}/workflows/{workflow}/instances/{id}/journal",
    operation_id = "get_journal",
    tag = "instances",
    params(InstancePath, JournalQuery),
    responses((status = 200, description = "Entries in order", body = Page), Always, NotFound)
)]
pub(super) async fn get(
    State(handle): State<Handle>,
    InstancePath(name): InstancePath,
    Strict(query): Strict<JournalQuery>,
) -> Result<Json<Page>, Refusal> {
    let limit = limit(query.limit, PAGE_DEFAULT, PAGE_MAX)?;
    let view = handle.store().instance(&name).await?.ok_or_else(|| not_found(&name))?;
    let run = run_of(&view, query.run)?;
    let range = Range { uid: view.uid, run, after: after(query.after)? };
    let mut entries = handle.store().journal(vec![range], PAGE_BYTES_MAX).await?.pop().unwrap_or_default();
    entries.truncate(limit as usize);
    // How far an earlier run goes only its journal knows: after its last page comes an empty one.
    let may_go_on = |last: &Position| run < view.run || *last < view.position;
    let next = entries.last().map(|entry| entry.position).filter(may_go_on).map(|last| last.0);
    Ok(Json(Page { run: run.0, entries: entries.into_iter().map(EntryView::from).collect(), next }))
}

/// The run that is asked for: the current one unless another is named.
pub(super) fn run_of(view: &InstanceView, asked: Option<u32>) -> Result<Run, Refusal> {
    let run = asked.map_or(view.run, Run);
    if run.0 == 0 || run > view.run {
        let detail = format!("run {run} is refused, the instance has runs 1 to {}", view.run);
        return Err(Refusal::Query(detail));
    }
    Ok(run)
}

impl EntryView {
    /// As an export gives it.
    pub(super) fn exported(entry: Entry, seeds: bool) -> Self {
        let seed = match &entry.fact {
            Fact::Started(started) if seeds => Some(hex(&started.seed)),
            _ => None,
        };
        Self { seed, ..Self::from(entry) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes any text");
        text
    })
}

impl From<Entry> for EntryView {
    fn from(entry: Entry) -> Self {
        let start = Self {
            position: entry.position.0,
            at: time(entry.at),
            kind: entry.fact.word(),
            call: entry.fact.call().map(CallView::from),
            ..Self::default()
        };
        match entry.fact {
            Fact::Started(started) => {
                let attributes = everstep_protocol::attribute::object(&started.attributes);
                let (generation, input) = (Some(started.generation.0), Some(raw(&started.input)));
                let token = started.hook.map(|token| token.to_string());
                Self { generation, attributes, input, token, ..start }
            }
            Fact::Attempted(attempted) => start.attempted(attempted),
            Fact::Opened(opened) => start.opened(opened),
            Fact::Lost(lost) => Self {
                session: Some(lost.session.to_string()),
                counts: Some(lost.counts),
                slots: Some(lost.slots),
                ..start
            },
            Fact::Parked(parked) => {
                Self { code: Some(parked.code.word()), message: Some(parked.message), ..start }
            }
            Fact::Delivered(delivered) => start.delivered(delivered),
            Fact::Closed(closed) => {
                let token = closed.hook.map(|token| token.to_string());
                Self { closed_after: Some(closed.after.0), token, ..start }
            }
            Fact::Registered(registered) => start.registered(registered.outcome),
            Fact::Received(received) => start.received(received),
            Fact::TakenOver(taken) => Self {
                hook: Some(taken.hook.to_string()),
                instance: Some(InstanceName::from(&taken.by)),
                by_hook: Some(taken.by_hook.to_string()),
                ..start
            },
            Fact::Fired { .. } | Fact::Retried => start,
            Fact::Rekeyed(rekeyed) => Self {
                choice: Some(rekeyed.choice().word()),
                fingerprint: Some(rekeyed.input.to_string()),
                key: rekeyed.kept.map(|key| key.to_string()),
                by: rekeyed.by,
                why: rekeyed.why,
                ..start
            },
            Fact::Patched(patched) => Self { called_after: Some(patched.called_after.0), ..start },
            Fact::Cancelled(cancelled) => Self {
                message: cancelled.reason,
                until: Some(time(cancelled.until)),
                rollback: cancelled.rollback,
                ..start
            },
            Fact::Compensating(compensating) => Self {
                called_after: Some(compensating.called_after.0),
                error: compensating.failure.map(Error::from),
                steps: Some(compensating.steps),
                ..start
            },
            Fact::Compensated(compensated) => {
                let compensations = RollbackView::over(compensated).into_compensations();
                Self { compensations: Some(compensations), ..start }
            }
            Fact::Continued(input) => Self { input: Some(raw(&input)), ..start },
            Fact::Returned(returned) => start.outcome(returned.outcome, false),
            Fact::Rollback(rollback) => Self { message: rollback.reason, ..start },
            Fact::Reusable(reusable) => Self {
                call: Some(CallView::from(&reusable.call)),
                key: Some(reusable.key.to_string()),
                fingerprint: Some(reusable.input.to_string()),
                output: (!reusable.marks.sensitive).then(|| raw(&reusable.output)),
                ..start.marked(reusable.marks)
            },
            Fact::Ended(end) => start.ended(end),
            Fact::Intended(intended) => Self {
                attempt: Some(intended.attempt.0),
                called_after: Some(intended.called_after.0),
                key: Some(intended.key.to_string()),
                fingerprint: Some(intended.input.to_string()),
                build: Some(intended.build.to_string()),
                session: Some(intended.session.to_string()),
                epoch: Some(intended.epoch.0),
                ..start.marked(intended.marks).of_class(intended.policy.class)
            },
            Fact::Withdrawn(withdrawn) => Self { attempt: Some(withdrawn.attempt.0), ..start },
            Fact::Resolved(resolved) => start.resolved(resolved),
        }
    }
}

impl EntryView {
    fn marked(self, marks: Marks) -> Self {
        let Marks { compensated, sensitive, reused, found } = marks;
        Self { compensated, sensitive, reused, found, ..self }
    }

    fn of_class(self, class: Class) -> Self {
        let visibility_lag = match class {
            Class::Lookup { visibility_lag } => Some(visibility_lag.to_string()),
            Class::Keyed | Class::AtMostOnce => None,
        };
        Self { class: class.is_intended().then(|| class.word()), visibility_lag, ..self }
    }

    fn resolved(self, resolved: Resolved) -> Self {
        let Resolved { call: _, attempt, choice, by, why, sensitive } = resolved;
        let decided =
            Self { attempt: Some(attempt.0), choice: Some(choice.word()), by, why, sensitive, ..self };
        match choice {
            Choice::Done(output) => Self { output: (!sensitive).then(|| raw(&output)), ..decided },
            Choice::Again => decided,
            Choice::Fail(failure) => {
                Self { error: Some(Error::from(failure.of_sensitive(sensitive))), ..decided }
            }
        }
    }

    fn attempted(self, attempted: Attempted) -> Self {
        let begun = Self {
            attempt: Some(attempted.attempt.0),
            called_after: Some(attempted.called_after.0),
            started_at: Some(time(attempted.started_at)),
            key: Some(attempted.key.to_string()),
            fingerprint: Some(attempted.input.to_string()),
            build: Some(attempted.build.to_string()),
            session: Some(attempted.session.to_string()),
            reference: attempted.reference.map(|reference| reference.to_string()),
            ..self.marked(attempted.marks).of_class(attempted.policy.class)
        };
        begun.outcome(attempted.outcome, attempted.marks.sensitive)
    }

    fn outcome(self, outcome: Outcome, sensitive: bool) -> Self {
        match outcome {
            Outcome::Succeeded(output) => {
                let output = (!sensitive).then(|| raw(&output));
                Self { outcome: Some("succeeded"), output, ..self }
            }
            Outcome::Failed { failure, retry_at } => Self {
                outcome: Some("failed"),
                error: Some(Error::from(failure.of_sensitive(sensitive))),
                retry_at: retry_at.map(time),
                ..self
            },
            Outcome::Unknown { failure, asks, epoch } => Self {
                outcome: Some("unknown"),
                error: Some(Error::from(failure.of_sensitive(sensitive))),
                asks,
                epoch: Some(epoch.0),
                ..self
            },
        }
    }

    fn opened(self, opened: Opened) -> Self {
        let build = opened.build.map(|build| build.to_string());
        let opening = Self { called_after: Some(opened.called_after.0), build, ..self };
        match opened.wait {
            Wait::Sleep { until } => Self { wait: Some("sleep"), until: Some(time(until)), ..opening },
            Wait::Event { types, key, until } => Self {
                wait: Some("event"),
                types: Some(types.iter().map(ToString::to_string).collect()),
                event_key: key.map(|key| key.to_string()),
                until: Some(time(until)),
                ..opening
            },
            Wait::Remote(remote) => Self {
                wait: Some("remote_step"),
                pool: Some(remote.pool.to_string()),
                function: Some(remote.function.to_string()),
                key: Some(remote.key.to_string()),
                fingerprint: Some(remote.fingerprint.to_string()),
                input: Some(raw(&remote.input)),
                look_first: remote.look.map(|look| look.to_string()),
                ..opening.marked(remote.marks).of_class(remote.policy.class)
            },
            Wait::Child(child) => Self {
                wait: Some("child"),
                instance: Some(InstanceName {
                    workflow: child.workflow.to_string(),
                    id: child.id.to_string(),
                }),
                fingerprint: Some(child.fingerprint.to_string()),
                input: Some(raw(&child.input)),
                detached: Some(child.detached),
                only_started: Some(child.only_started),
                keep_for: child.keep_for.map(|length| length.to_string()),
                token: child.hook.as_ref().map(|hook| hook.token.to_string()),
                retention: child.hook.as_ref().and_then(|hook| Some(hook.retention?.to_string())),
                payload: child.hook.as_ref().and_then(|hook| hook.metadata.as_ref()).map(raw),
                ..opening
            },
            Wait::Resume(resuming) => Self {
                wait: Some("resume"),
                token: Some(resuming.token.to_string()),
                fingerprint: Some(resuming.fingerprint.to_string()),
                payload: Some(raw(&resuming.payload)),
                ..opening
            },
            Wait::Hook(hook) => Self {
                wait: Some("hook"),
                token: Some(hook.token.to_string()),
                retention: hook.retention.map(|retention| retention.to_string()),
                payload: hook.metadata.as_ref().map(raw),
                schema: hook.schema.as_ref().map(raw),
                webhook: hook.webhook,
                force: hook.force,
                ..opening
            },
            Wait::Payload(awaiting) => Self {
                wait: Some("payload"),
                token: Some(awaiting.token.to_string()),
                hook: Some(awaiting.hook.to_string()),
                ..opening
            },
            Wait::Reply(reply) => Self {
                wait: Some("reply"),
                token: Some(reply.token.to_string()),
                event: Some(reply.id),
                response: Some(reply.response),
                ..opening
            },
            Wait::Instance(other) => {
                Self { wait: Some("instance"), instance: Some(InstanceName::from(&other)), ..opening }
            }
            Wait::Send(sending) => Self {
                wait: Some("send"),
                instance: Some(InstanceName::from(&sending.to)),
                types: Some(vec![sending.kind.to_string()]),
                event_key: sending.key.map(|key| key.to_string()),
                fingerprint: Some(sending.fingerprint.to_string()),
                payload: Some(raw(&sending.payload)),
                ..opening
            },
        }
    }

    fn delivered(self, delivered: Delivered) -> Self {
        Self {
            types: Some(vec![delivered.kind.to_string()]),
            event: Some(delivered.id),
            sequence: Some(delivered.sequence),
            event_key: delivered.key.map(|key| key.to_string()),
            received_at: Some(time(delivered.received_at)),
            payload: Some(raw(&delivered.payload)),
            ..self
        }
    }

    fn registered(self, outcome: HookOutcome) -> Self {
        match outcome {
            HookOutcome::Owned { hook, from } => Self {
                outcome: Some("owned"),
                hook: Some(hook.to_string()),
                instance: from.as_ref().map(InstanceName::from),
                ..self
            },
            HookOutcome::Conflict { owner } => {
                Self { outcome: Some("conflict"), instance: Some(InstanceName::from(&owner)), ..self }
            }
            HookOutcome::Refused(failure) => {
                Self { outcome: Some("refused"), error: Some(Error::from(failure)), ..self }
            }
        }
    }

    fn received(self, received: Received) -> Self {
        Self {
            hook: Some(received.hook.to_string()),
            event: Some(received.id),
            sequence: Some(received.sequence),
            received_at: Some(time(received.received_at)),
            payload: Some(raw(&received.payload)),
            ..self
        }
    }

    fn ended(self, end: End) -> Self {
        match end {
            End::Complete(output) => Self { outcome: Some("complete"), output: Some(raw(&output)), ..self },
            End::Errored(failure) => {
                Self { outcome: Some("errored"), error: Some(Error::from(failure)), ..self }
            }
            End::Cancelled { reason } => Self { outcome: Some("cancelled"), message: reason, ..self },
            End::Terminated { reason } => Self { outcome: Some("terminated"), message: reason, ..self },
        }
    }
}

#[cfg(test)]
mod tests;
