//! Admission: whether a start creates an instance, meets an existing one, or conflicts with it (rule P27).

use everstep_protocol::{
    Attribute, Fingerprint, Generation, HookId, InstanceId, InstanceUid, Millis, Namespace, Payload, Pin,
    Timestamp, WorkflowName,
    hook::StartHook,
    journal::{Entry, Fact, Started},
};

use crate::{
    effect::{Answer, Change},
    head::{Head, Status},
    hook::{HookEnd, HookRow, name_of, retained},
    rows::Needs,
};

/// What the user calls an instance: unique for as long as the instance is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameKey {
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// Id.
    pub id: InstanceId,
}

/// The message that a start came in: the decision on it is kept, refusals too, so that a redelivery gets the first answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageKey {
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The producer's application id; empty if it gave none.
    pub app_id: String,
    /// The producer's message id.
    pub message_id: String,
}

/// A start that passed the checks at the edge.
#[derive(Clone, Debug)]
pub struct Start {
    /// The internal id that a new instance gets.
    pub uid: InstanceUid,
    /// Its user-visible name; the id is generated where the producer gave none.
    pub name: NameKey,
    /// The input.
    pub input: Payload,
    /// The fingerprint of the input's canonical form.
    pub fingerprint: Fingerprint,
    /// Random bytes for the instance (rule W33).
    pub seed: [u8; 32],
    /// How long the instance is kept after its end, where the start says so.
    pub retention: crate::retention::Own,
    /// To which build the instance is pinned (rule P40).
    pub pin: Option<Pin>,
    /// No instance is created while no live session serves the workflow, with that build if one is named (rule P35).
    pub strict: bool,
    /// What it can be found by.
    pub attributes: Vec<Attribute>,
    /// The token that it claims (rule H1).
    pub hook: Option<StartHook>,
    /// The message that it came in, if it has an id.
    pub message: Option<MessageKey>,
    /// The trace that the instance belongs to.
    pub trace: Option<Box<everstep_protocol::TraceContext>>,
    /// The letter of a parent that it is (rule P36).
    pub letter: Option<crate::letter::Letter>,
}

impl Start {
    pub(crate) fn needs(&self, needs: &mut Needs) {
        needs.names.push(self.name.clone());
        if let Some(message) = &self.message {
            needs.messages.push(message.clone());
        }
        if let Some(hook) = &self.hook {
            needs.tokens.push((self.name.namespace.clone(), hook.token.clone()));
        }
        if let Some(letter) = &self.letter {
            needs.letters.push(letter.number);
        }
    }
}

/// An instance that has the name that a start asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// Its internal id.
    pub uid: InstanceUid,
    /// The fingerprint of its input.
    pub fingerprint: Fingerprint,
    /// Its stored status.
    pub status: Status,
}

/// The decision on a message, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The id of the instance that it was about.
    pub id: InstanceId,
    /// The answer that was given.
    pub answer: Answer,
}

/// What a start comes to.
#[derive(Clone, Debug)]
pub enum Admission {
    /// A new instance, with its first entry.
    Created(Box<Head>, Box<Entry>),
    /// No instance is created; this is the answer.
    Known(Decided),
}

/// What a start finds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    /// The kept decision on the same message.
    pub earlier: Option<&'a Decided>,
    /// The instance of its name.
    pub existing: Option<&'a Existing>,
    /// The row of its token.
    pub hook: Option<&'a HookRow>,
}

/// Decides on a start. A hook is kept at most for `longest`.
#[must_use]
pub fn admit(start: &Start, found: Found<'_>, now: Timestamp, longest: Millis) -> Admission {
    if let Some(decided) = found.earlier {
        return Admission::Known(decided.clone());
    }
    if let Some(existing) = found.existing {
        let answer = if existing.fingerprint == start.fingerprint {
            Answer::Exists(existing.status)
        } else {
            Answer::Conflict(existing.status)
        };
        return Admission::Known(Decided { id: start.name.id.clone(), answer });
    }
    let refused = |answer| Admission::Known(Decided { id: start.name.id.clone(), answer });
    let Ok(until) = retained(start.hook.as_ref().and_then(|hook| hook.retention), now, longest) else {
        return refused(Answer::HookRetention);
    };
    if let Some(held) = found.hook.filter(|row| !row.is_free(now)) {
        return refused(Answer::HookHeld(held.name.clone()));
    }
    let mut head = Head::new(
        start.uid,
        start.name.namespace.clone(),
        start.name.workflow.clone(),
        start.name.id.clone(),
        now,
    );
    head.retention = start.retention;
    head.pin.clone_from(&start.pin);
    head.hooks = u32::from(start.hook.is_some());
    head.hooks_until = until;
    let fact = Fact::Started(Started {
        input: start.input.clone(),
        seed: start.seed,
        generation: Generation(1),
        attributes: start.attributes.clone(),
        hook: start.hook.as_ref().map(|hook| hook.token.clone()),
        trace: start.trace.clone(),
    });
    head.position = head.position.next();
    head.journal_bytes = fact.payload_bytes();
    let entry = Entry { position: head.position, at: now, fact };
    Admission::Created(Box::new(head), Box::new(entry))
}

/// The token of a start that was admitted, and the row that it replaces: of an owner that has only kept it, or that was deleted.
pub(crate) fn claimed(
    hook: &StartHook,
    head: &Head,
    kept: Option<&HookRow>,
    orphan: Option<InstanceUid>,
) -> Vec<Change> {
    let token = &hook.token;
    let kept = kept.map(|row| (row.owner, HookEnd::Free));
    let replaced = kept.or_else(|| Some((orphan?, HookEnd::Own)));
    let freed = replaced.map(|(owner, end)| Change::HookEnd(token.clone(), owner, end));
    let row = HookRow {
        owner: head.uid,
        name: name_of(head),
        id: HookId::START,
        since: head.created_at,
        retain_until: head.hooks_until,
        ended: false,
        webhook: None,
        schema: hook.schema.clone(),
        metadata: hook.metadata.clone(),
        from: None,
        unheard: false,
    };
    freed.into_iter().chain([Change::Hook(token.clone(), row)]).collect()
}
