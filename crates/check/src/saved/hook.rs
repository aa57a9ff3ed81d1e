//! Hooks: created, registered, resumed, taken over.

use everstep_protocol::{
    HookId, Position,
    hook::{HookRetention, Registration, StartHook},
    journal::{Awaiting, Fact, HookOutcome, Opened, Received, Registered, Reply, TakenOver, Wait},
};

use super::{
    Error, Line,
    read::{moment, need, payload},
    write::raw,
};

impl Line {
    /// What a child claims by its start.
    pub(super) fn of_start_hook(self, hook: Option<&StartHook>) -> Self {
        let Some(hook) = hook else { return self };
        Self {
            token: Some(hook.token.clone()),
            retention: hook.retention.map(|retention| retention.to_string()),
            payload: hook.metadata.as_ref().map(raw),
            ..self
        }
    }

    pub(super) fn start_hook(&self) -> Result<Option<StartHook>, String> {
        let Some(token) = self.token.clone() else { return Ok(None) };
        let retention = self.retention.as_deref().map(HookRetention::parse).transpose()?;
        let metadata = self.payload.as_deref().map(payload).transpose()?;
        Ok(Some(StartHook { token, retention, metadata, schema: None }))
    }

    pub(super) fn of_created(self, hook: &Registration) -> Self {
        Self {
            wait: Some("hook".to_owned()),
            token: Some(hook.token.clone()),
            retention: hook.retention.map(|retention| retention.to_string()),
            payload: hook.metadata.as_ref().map(raw),
            webhook: hook.webhook.clone(),
            schema: hook.schema.as_ref().map(raw),
            force: hook.force,
            ..self
        }
    }

    pub(super) fn of_awaiting(self, awaiting: &Awaiting) -> Self {
        let (token, hook) = (Some(awaiting.token.clone()), Some(awaiting.hook.to_string()));
        Self { wait: Some("payload".to_owned()), token, hook, ..self }
    }

    pub(super) fn of_reply(self, reply: &Reply) -> Self {
        Self {
            wait: Some("reply".to_owned()),
            token: Some(reply.token.clone()),
            event: Some(reply.id.clone()),
            response: Some(reply.response.clone()),
            ..self
        }
    }

    pub(super) fn of_registered(self, outcome: &HookOutcome) -> Self {
        match outcome {
            HookOutcome::Owned { hook, from } => Self {
                outcome: Some("owned".to_owned()),
                hook: Some(hook.to_string()),
                instance: from.clone(),
                ..self
            },
            HookOutcome::Conflict { owner } => {
                Self { outcome: Some("conflict".to_owned()), instance: Some(owner.clone()), ..self }
            }
            HookOutcome::Refused(failure) => {
                Self { outcome: Some("refused".to_owned()), error: Some(Error::of(failure)), ..self }
            }
        }
    }

    pub(super) fn of_received(self, received: &Received) -> Self {
        Self {
            hook: Some(received.hook.to_string()),
            event: Some(received.id.clone()),
            sequence: Some(received.sequence),
            received_at: Some(received.received_at.to_string()),
            payload: Some(raw(&received.payload)),
            ..self
        }
    }

    pub(super) fn of_taken_over(self, taken: &TakenOver) -> Self {
        Self {
            hook: Some(taken.hook.to_string()),
            instance: Some(taken.by.clone()),
            by_hook: Some(taken.by_hook.to_string()),
            ..self
        }
    }

    pub(super) fn of_hook(self) -> Result<Fact, String> {
        Ok(match self.kind.as_str() {
            "registered" => {
                let call = need("call", self.call.clone())?;
                Fact::Registered(Registered { call, outcome: self.registered()? })
            }
            "received" => Fact::Received(Received {
                call: need("call", self.call)?,
                hook: id("hook", self.hook)?,
                sequence: self.sequence.unwrap_or(0),
                id: need("event", self.event)?,
                received_at: moment("received_at", &need("received_at", self.received_at)?)?,
                payload: payload(&need("payload", self.payload)?)?,
            }),
            _ => Fact::TakenOver(TakenOver {
                hook: id("hook", self.hook)?,
                by: need("instance", self.instance)?,
                by_hook: id("by_hook", self.by_hook)?,
            }),
        })
    }

    fn registered(self) -> Result<HookOutcome, String> {
        Ok(match need("outcome", self.outcome)?.as_str() {
            "owned" => HookOutcome::Owned { hook: id("hook", self.hook)?, from: self.instance },
            "conflict" => HookOutcome::Conflict { owner: need("instance", self.instance)? },
            "refused" => HookOutcome::Refused(need("error", self.error)?.failure()?),
            other => return Err(format!("outcome: {other:?} is not known")),
        })
    }

    pub(super) fn opened_hook(self) -> Result<Opened, String> {
        let token = need("token", self.token)?;
        let wait = match self.wait.as_deref() {
            Some("payload") => Wait::Payload(Awaiting { hook: id("hook", self.hook)?, token }),
            Some("reply") => {
                let (id, response) = (need("event", self.event)?, need("response", self.response)?);
                Wait::Reply(Reply { token, id, response })
            }
            _ => {
                let retention = self.retention.map(|text| HookRetention::parse(&text)).transpose()?;
                let metadata = self.payload.as_deref().map(payload).transpose()?;
                let schema = self.schema.as_deref().map(payload).transpose()?;
                let (webhook, force) = (self.webhook, self.force);
                Wait::Hook(Registration { token, retention, metadata, webhook, force, schema })
            }
        };
        let called_after = Position(need("called_after", self.called_after)?);
        Ok(Opened { call: need("call", self.call)?, called_after, wait, build: self.build })
    }
}

fn id(field: &str, text: Option<String>) -> Result<HookId, String> {
    need(field, text)?.parse().map_err(|error| format!("{field}: {error}"))
}

#[cfg(test)]
mod tests {
    //! Proves that what an export says of webhooks and their answers is read back as it was. Not: what the code makes of it.
    use everstep_protocol::{
        Call, CallKind, Payload, Timestamp,
        hook::{Carried, Method, Webhook, WebhookResponse},
        journal::Entry,
    };

    use super::*;

    #[test]
    fn p43_webhooks_schemas_and_answers_come_back_as_they_were() {
        let call = |kind| Call { kind, name: "pay".parse().unwrap(), count: 1 };
        let token = || "t".parse().unwrap();
        let headers = vec![("x-order".to_owned(), "17".to_owned())];
        let response = WebhookResponse {
            status: 201,
            headers: headers.clone(),
            body: Some("/wA=".to_owned()),
            base64: true,
        };
        let webhook = Webhook {
            methods: vec![Method::Get, Method::Put],
            carries: Carried::RawRequest,
            headers,
            ..Webhook::default()
        };
        let schema = Some(Payload::from_text(r#"{"const":1.50}"#).unwrap());
        let hook = Registration { webhook: Some(webhook), schema, ..Registration::new(token()) };
        let reply = Reply { token: token(), id: "r-1".to_owned(), response };
        for (kind, wait) in [(CallKind::Hook, Wait::Hook(hook)), (CallKind::Reply, Wait::Reply(reply))] {
            let opened = Opened { call: call(kind), called_after: Position(1), wait, build: None };
            let entry = Entry { position: Position(2), at: Timestamp(0), fact: Fact::Opened(opened) };
            let text = serde_json::to_string(&Line::of(&entry)).unwrap();
            let read: Line = serde_json::from_str(&text).unwrap();
            assert_eq!(read.entry(), Ok(entry), "{text}");
        }
    }
}
