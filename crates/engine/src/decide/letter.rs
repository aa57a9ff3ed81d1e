//! Letters: what an instance writes when it calls another one, and what it does with one that it gets (rules P36, W22).

use everstep_protocol::{
    CallKind, Failure, FailureKind,
    journal::{Child, Entry, Fact, Other, Outcome, Resuming, Returned, Sending, Wait},
};

use super::{Draft, cancel, control, event, hook};
use crate::{
    effect::{Answer, Change},
    head::Status,
    hook::SentPayload,
    letter::{
        Address, CANCEL_WITHIN, Caller, Cascade, ChildRow, ENDED, EVENT_ID_TAKEN, Letter, MAILBOX_FULL,
        NewLetter, Said, failed, itself, named, nobody, outcome, refusal, started,
    },
    mailbox::{EventId, OWN_APP_ID, SentEvent},
    rows::{WaitKind, WaitRow},
};

/// Takes a letter. One that is not there any more was taken before.
pub(super) fn take(draft: &mut Draft<'_>, letter: &Letter) -> Answer {
    if !draft.context.rows.letters.contains(&letter.number) {
        return Answer::Nothing;
    }
    let caller = letter.caller;
    if let Said::Resume { sent, .. } = &letter.said {
        return resume(draft, letter, sent);
    }
    draft.changes.push(Change::LetterEnd(letter.number));
    match &letter.said {
        // It is for somebody who does not exist yet: see `Batch`.
        Said::Start { .. } | Said::Resume { .. } => Answer::Nothing,
        Said::Watch => watch(draft, caller),
        Said::Event(sent) => accept(draft, caller, sent),
        Said::Returned { outcome, over } => returned(draft, caller, outcome, *over),
        Said::Claim(claim) => hook::hand_over(draft, caller, claim),
        Said::Claimed { claim, from } => hook::claimed(draft, caller, claim, from.as_ref()),
        Said::Terminate { reason } => of_parent(draft, caller, |draft| {
            control::end_now(draft, reason.clone());
            Answer::Done
        }),
        Said::Cancel { reason, within } => of_parent(draft, caller, |draft| {
            let asked = cancel::Asked { reason: reason.as_ref(), within: *within, rollback: false };
            cancel::once(draft, &asked)
        }),
    }
}

/// Somebody wants to know how this instance ends. One that has ended says so at once.
fn watch(draft: &mut Draft<'_>, caller: Caller) -> Answer {
    if caller.uid == draft.uid() {
        draft.answer(caller, failed(itself("await")), true);
        return Answer::Nothing;
    }
    if !draft.head.status.is_ended() {
        draft.link();
        draft.changes.push(Change::Watcher(caller));
        return Answer::Done;
    }
    let last = draft.context.rows.lasts.get(&draft.uid()).map(|entry| &entry.fact);
    let outcome = match last {
        Some(Fact::Ended(end)) => outcome(&draft.head, end),
        _ => failed(refusal(ENDED, "the instance has ended, and how it did is not known".to_owned())),
    };
    draft.answer(caller, outcome, true);
    Answer::Done
}

/// An event of another instance.
fn accept(draft: &mut Draft<'_>, caller: Caller, sent: &SentEvent) -> Answer {
    let (bytes, limit) = (sent.payload.len() as u64, draft.context.limits.event_bytes);
    if bytes > limit {
        let message = format!("the payload is {bytes} bytes of JSON, the limit is {limit}; it was not sent");
        draft.answer(caller, failed(Failure::new(FailureKind::TooLarge, message)), false);
        return Answer::Nothing;
    }
    let answer = event::accept(draft, sent);
    let refused = |name: &str, message: String| failed(refusal(name, message));
    let (id, workflow) = (&draft.head.id, &draft.head.workflow);
    let outcome = match &answer {
        Answer::Refused(status) => {
            let status = status.word();
            refused(
                ENDED,
                format!("instance {id} of workflow {workflow} is {status}; the event was not kept"),
            )
        }
        Answer::EventIdTaken => refused(
            EVENT_ID_TAKEN,
            format!("an earlier run sent instance {id} of workflow {workflow} another event by this call"),
        ),
        Answer::MailboxFull => {
            refused(MAILBOX_FULL, format!("instance {id} of workflow {workflow} has too many unread events"))
        }
        _ => Outcome::Succeeded(everstep_protocol::Payload::null()),
    };
    draft.answer(caller, outcome, false);
    answer
}

/// A payload of another instance. Where the token has moved meanwhile the letter stays, and goes to whoever has it (rule H63).
fn resume(draft: &mut Draft<'_>, letter: &Letter, sent: &SentPayload) -> Answer {
    let caller = letter.caller;
    let (bytes, limit) = (sent.payload.len() as u64, draft.context.limits.event_bytes);
    if bytes > limit {
        let message = format!("the payload is {bytes} bytes of JSON, the limit is {limit}; it was not sent");
        draft.changes.push(Change::LetterEnd(letter.number));
        draft.answer(caller, failed(Failure::new(FailureKind::TooLarge, message)), false);
        return Answer::Nothing;
    }
    let answer = hook::resume(draft, sent);
    let (id, workflow) = (&draft.head.id, &draft.head.workflow);
    let outcome = match &answer {
        Answer::Moved if everstep_protocol::planted("letter_lost") => {
            draft.changes.push(Change::LetterEnd(letter.number));
            return answer;
        }
        Answer::Moved => return answer,
        Answer::Refused(_) => failed(nobody()),
        Answer::EventIdTaken => {
            let message = format!(
                "an earlier run resumed instance {id} of workflow {workflow} with another payload by this call"
            );
            failed(refusal(EVENT_ID_TAKEN, message))
        }
        Answer::MailboxFull => {
            let message = format!("instance {id} of workflow {workflow} has too many unread events");
            failed(refusal(MAILBOX_FULL, message))
        }
        _ => {
            let (namespace, me) = (draft.head.namespace.clone(), crate::hook::name_of(&draft.head));
            started(&named(&namespace, &me))
        }
    };
    draft.changes.push(Change::LetterEnd(letter.number));
    draft.answer(caller, outcome, false);
    answer
}

/// What came of a call of this instance. It is late where the call is over, or was an earlier run's.
fn returned(draft: &mut Draft<'_>, caller: Caller, outcome: &Outcome, over: bool) -> Answer {
    if draft.head.run != caller.run {
        return Answer::Nothing;
    }
    let wait = draft.context.rows.waits.get(&(draft.uid(), caller.call));
    let Some(wait) = wait.filter(|wait| wait.kind == WaitKind::Instance) else { return Answer::Nothing };
    let call = wait.call.clone();
    draft.head.waits = draft.head.waits.saturating_sub(1);
    draft.changes.push(Change::WaitEnd(caller.call));
    if over && call.kind == CallKind::Child {
        draft.changes.push(Change::ChildOver(caller.call));
    }
    draft.append(Fact::Returned(Returned { call, outcome: outcome.clone() }));
    draft.wake();
    Answer::Done
}

/// What a parent does to its child: only that very parent, and nothing to a child that is detached or has ended.
fn of_parent<'a>(
    draft: &mut Draft<'a>,
    caller: Caller,
    act: impl FnOnce(&mut Draft<'a>) -> Answer,
) -> Answer {
    let parent = draft.context.rows.parents.get(&draft.uid());
    let is_theirs = parent.is_some_and(|parent| parent.caller == caller && !parent.detached);
    if !is_theirs || draft.head.status.is_ended() {
        return Answer::Nothing;
    }
    act(draft)
}

/// The wait of a call to another instance, as its entry opened it.
pub(super) fn open(draft: &mut Draft<'_>, entry: &Entry) {
    let Fact::Opened(opened) = &entry.fact else { return };
    let namespace = draft.head.namespace.clone();
    let call = opened.call.hash();
    let (to, said) = match &opened.wait {
        Wait::Sleep { .. }
        | Wait::Remote(_)
        | Wait::Event { .. }
        | Wait::Hook(_)
        | Wait::Reply(_)
        | Wait::Payload(_) => {
            return;
        }
        Wait::Child(child) => {
            let name = named(&namespace, &child_of(child));
            draft.link();
            let (run, detached) = (draft.head.run, child.detached);
            draft.changes.push(Change::Child(ChildRow { call, run, name: name.clone(), detached }));
            (Address::Name(name), draft.start(child))
        }
        Wait::Instance(other) => (Address::Name(named(&namespace, other)), Said::Watch),
        Wait::Send(sending) => {
            (Address::Name(named(&namespace, &sending.to)), Said::Event(draft.sent(call, sending)))
        }
        Wait::Resume(resuming) => {
            (Address::Token, Said::Resume { namespace, sent: draft.resumes(call, resuming) })
        }
    };
    let caller = Caller { uid: draft.uid(), run: draft.head.run, call };
    draft.changes.push(Change::Letter(NewLetter { to, caller, said }));
    draft.open_wait(WaitRow {
        call: opened.call.clone(),
        kind: WaitKind::Instance,
        since: entry.at,
        due_at: None,
        awaited: None,
        question: None,
    });
}

fn child_of(child: &Child) -> Other {
    Other { workflow: child.workflow.clone(), id: child.id.clone() }
}

impl Draft<'_> {
    fn start(&self, child: &Child) -> Said {
        let parent = crate::hook::name_of(&self.head);
        // One that is detached begins a chain of its own.
        let above = self.context.rows.parents.get(&self.uid()).map_or(0, |parent| parent.depth);
        let depth = if child.detached { 0 } else { above.saturating_add(1) };
        Said::Start { child: child.clone(), parent, depth }
    }

    /// The id of an event follows from its call, so that a run that begins again sends nothing twice, as with the keys of steps.
    fn sent(&self, call: everstep_protocol::CallHash, sending: &Sending) -> SentEvent {
        SentEvent {
            id: EventId { app_id: OWN_APP_ID.to_owned(), id: self.id_of(call) },
            kind: sending.kind.clone(),
            key: sending.key.clone(),
            payload: sending.payload.clone(),
            fingerprint: sending.fingerprint,
        }
    }

    /// The same of a payload (rule H48).
    fn resumes(&self, call: everstep_protocol::CallHash, resuming: &Resuming) -> SentPayload {
        SentPayload {
            token: resuming.token.clone(),
            hook: everstep_protocol::HookId::START,
            app_id: OWN_APP_ID.to_owned(),
            id: self.id_of(call),
            payload: resuming.payload.clone(),
            fingerprint: resuming.fingerprint,
        }
    }

    fn id_of(&self, call: everstep_protocol::CallHash) -> String {
        let call = u128::from_be_bytes(call.0);
        format!("{}-{}-{call:032x}", self.head.uid, self.head.generation)
    }

    fn answer(&mut self, caller: Caller, outcome: Outcome, over: bool) {
        let (to, said) = (Address::Instance(caller.uid), Said::Returned { outcome, over });
        self.changes.push(Change::Letter(NewLetter { to, caller, said }));
    }

    /// One more row ties it to another instance.
    pub(super) fn link(&mut self) {
        self.head.links = self.head.links.saturating_add(1);
    }

    /// The same letter to its attached children, or to that of one call.
    pub(super) fn cascade(&mut self, call: Option<everstep_protocol::CallHash>, said: Said) {
        if self.head.links > 0 {
            let run = self.head.run;
            self.changes.push(Change::Cascade(Cascade { run, call, said }));
        }
    }

    /// The body has dropped the call of a child: nobody is left who wants its result.
    pub(super) fn give_up(&mut self, call: &everstep_protocol::Call) {
        if call.kind == CallKind::Child {
            let reason = Some("its parent has dropped the call that started it".to_owned());
            self.cascade(Some(call.hash()), Said::Cancel { reason, within: CANCEL_WITHIN });
        }
    }

    /// It has ended: whoever waits for that is told.
    pub(super) fn conclude(&mut self, end: &everstep_protocol::journal::End) {
        if self.head.links > 0
            && self.head.status != Status::Open
            && !everstep_protocol::planted("end_unheard")
        {
            self.changes.push(Change::Conclude(outcome(&self.head, end)));
        }
    }
}
