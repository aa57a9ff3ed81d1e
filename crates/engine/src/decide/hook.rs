//! Hooks: resumed, claimed, let go, taken over (rules H1 to H70). Their payloads are events of a type of their own, which
//! [`event`](super::event) keeps and delivers.

use everstep_protocol::{
    Call, EventType, Failure, FailureKind, HookId, InstanceUid, Token,
    hook::{HookError, Registration, check_metadata, check_schema},
    journal::{Closed, Entry, Fact, HookOutcome, Opened, Other, Registered, TakenOver, Wait},
};

use super::{Draft, event};
use crate::{
    effect::{Answer, Change, Effect},
    hook::{Claim, HookEnd, HookRow, ReplyKey, SentPayload, TokenKey, name_of, retained},
    letter::{Address, Caller, NewLetter, Said},
    mailbox::{Mailbox, SentEvent},
    rows::{WaitKind, WaitRow},
};

/// Somebody resumes a hook. The same id again gets the first answer, also after the hook is over.
pub(super) fn resume(draft: &mut Draft<'_>, sent: &SentPayload) -> Answer {
    let id = sent.event_id();
    if let Some(known) = draft.context.rows.event_ids.get(&(draft.uid(), id.clone())) {
        return if known.fingerprint == sent.fingerprint { Answer::Done } else { Answer::EventIdTaken };
    }
    if draft.head.status.is_ended() {
        return Answer::Refused(draft.head.status);
    }
    let row = draft.own(&sent.token);
    if row.is_none_or(|row| row.id != sent.hook) {
        return Answer::Moved;
    }
    let (payload, fingerprint) = (sent.payload.clone(), sent.fingerprint);
    event::accept(
        draft,
        &SentEvent { id, kind: EventType::of_hook(sent.hook), key: None, payload, fingerprint },
    )
}

/// What the code answers whoever sent its webhooks requests: kept with the request, and told to whoever waits for it.
pub(super) fn answer(draft: &mut Draft<'_>, written: &[Entry]) {
    for entry in written {
        let Fact::Opened(Opened { wait: Wait::Reply(reply), .. }) = &entry.fact else { continue };
        let to = ReplyKey { instance: draft.uid(), token: reply.token.clone(), id: reply.id.clone() };
        draft.changes.push(Change::Reply(to.clone(), reply.response.clone()));
        draft.effects.push(Effect::Reply(to, Box::new(reply.response.clone())));
    }
}

/// The body lets a hook go: its token is free at once, whatever its retention (rules H21, H23).
pub(super) fn let_go(draft: &mut Draft<'_>, closed: &Closed) {
    let Some(token) = closed.hook.as_ref() else { return };
    if draft.own(token).is_some() {
        draft.lose_hook(token);
    }
}

/// The body has created a hook.
pub(super) fn create(draft: &mut Draft<'_>, entry: &Entry) {
    let Fact::Opened(Opened { call, wait: Wait::Hook(asked), .. }) = &entry.fact else { return };
    let id = HookId { run: draft.head.run, position: entry.position };
    match claim(draft, call, id, asked) {
        Some(outcome) => draft.append(Fact::Registered(Registered { call: call.clone(), outcome })),
        None => draft.open_wait(WaitRow {
            call: call.clone(),
            kind: WaitKind::Instance,
            since: entry.at,
            due_at: None,
            awaited: None,
            question: None,
        }),
    }
}

/// What comes of a claim; none if the owner is asked.
fn claim(draft: &mut Draft<'_>, call: &Call, id: HookId, asked: &Registration) -> Option<HookOutcome> {
    let until = match allowed(draft, asked) {
        Ok(until) => until,
        Err(reason) => return Some(HookOutcome::Refused(Failure::new(FailureKind::Invalid, reason))),
    };
    let now = draft.context.now;
    let held = draft.hook(&asked.token).cloned();
    match held {
        Some(row) if row.owner == draft.uid() && !row.ended => {
            if row.unheard {
                // The answer to an earlier claim may still be under way: it is not to take this one for its own.
                draft.count_hook(row.retain_until);
                draft.end_hook(&asked.token, row.owner, HookEnd::Own);
                draft.put_hook(&asked.token, HookRow { unheard: false, ..row.clone() });
            }
            return Some(HookOutcome::Owned { hook: row.id, from: row.from });
        }
        Some(row) if !row.is_free(now) && asked.force => {
            ask_owner(
                draft,
                call,
                &row,
                Claim {
                    namespace: draft.head.namespace.clone(),
                    claimant: name_of(&draft.head),
                    hook: id,
                    asked: asked.clone(),
                    held: row.id,
                },
            );
            return None;
        }
        Some(row) if everstep_protocol::planted("token_stolen") => {
            draft.end_hook(&asked.token, row.owner, HookEnd::Own);
        }
        Some(row) if !row.is_free(now) => return Some(HookOutcome::Conflict { owner: row.name }),
        Some(row) => draft.end_hook(&asked.token, row.owner, HookEnd::Free),
        None => {
            if let Some(gone) = draft.orphan(&asked.token) {
                draft.end_hook(&asked.token, gone, HookEnd::Own);
            }
        }
    }
    draft.count_hook(until);
    let row = HookRow {
        owner: draft.uid(),
        name: name_of(&draft.head),
        id,
        since: now,
        retain_until: until,
        ended: false,
        webhook: asked.webhook.clone(),
        metadata: asked.metadata.clone(),
        schema: asked.schema.clone(),
        from: None,
        unheard: false,
    };
    draft.put_hook(&asked.token, row);
    Some(HookOutcome::Owned { hook: id, from: None })
}

/// When the retention is over, or why there is no such hook.
fn allowed(draft: &Draft<'_>, asked: &Registration) -> Result<Option<everstep_protocol::Timestamp>, String> {
    if let Some(contradiction) = asked.contradiction() {
        return Err(contradiction.to_owned());
    }
    if let Some(metadata) = &asked.metadata {
        check_metadata(metadata).map_err(|error| error.to_string())?;
    }
    if let Some(webhook) = &asked.webhook {
        webhook.check().map_err(|error| error.to_string())?;
    }
    if let Some(schema) = &asked.schema {
        check_schema(schema).map_err(|error| error.to_string())?;
        (draft.context.compiles)(schema).map_err(|reason| HookError::Schema(reason).to_string())?;
    }
    retained(asked.retention, draft.context.now, draft.context.limits.hook_retention)
}

/// A forced claim is a letter to the owner, which alone may move its row (rule W22). The hook counts from now on, since the row may
/// be the claimant's before it hears of it.
fn ask_owner(draft: &mut Draft<'_>, call: &Call, row: &HookRow, claim: Claim) {
    draft.count_hook(claim.asked.retention.map(|retention| retention.until(draft.context.now)));
    let caller = Caller { uid: draft.uid(), run: draft.head.run, call: call.hash() };
    let (to, said) = (Address::Instance(row.owner), Said::Claim(claim));
    draft.changes.push(Change::Letter(NewLetter { to, caller, said }));
}

/// Another instance claims a token by force. What was accepted before stays this one's, which is woken (rules H59 to H66).
pub(super) fn hand_over(draft: &mut Draft<'_>, caller: Caller, claim: &Claim) -> Answer {
    let token = &claim.asked.token;
    let held = draft.hook(token);
    let Some(row) = held.filter(|row| row.owner == draft.uid() && row.id == claim.held).cloned() else {
        draft.reply(caller, claim, None);
        return Answer::Nothing;
    };
    let now = draft.context.now;
    draft.lose_hook(token);
    let moved = HookRow {
        owner: caller.uid,
        name: claim.claimant.clone(),
        id: claim.hook,
        since: now,
        retain_until: claim.asked.retention.map(|retention| retention.until(now)),
        ended: false,
        webhook: None,
        metadata: claim.asked.metadata.clone(),
        schema: claim.asked.schema.clone(),
        from: Some(name_of(&draft.head)),
        unheard: true,
    };
    draft.put_hook(token, moved);
    draft.reply(caller, claim, Some(name_of(&draft.head)));
    if !draft.head.status.is_ended() {
        let (by, by_hook) = (claim.claimant.clone(), claim.hook);
        draft.append(Fact::TakenOver(TakenOver { hook: row.id, by, by_hook }));
        draft.end_waits(row.id);
        draft.wake();
    }
    Answer::Done
}

/// What came of a forced claim. One that nobody waits for any more gives back what it got.
pub(super) fn claimed(draft: &mut Draft<'_>, caller: Caller, claim: &Claim, from: Option<&Other>) -> Answer {
    let wait = draft.context.rows.waits.get(&(draft.uid(), caller.call));
    let is_current = draft.head.run == caller.run && !draft.head.status.is_ended();
    let Some(wait) = wait.filter(|wait| is_current && wait.kind == WaitKind::Instance).cloned() else {
        let token = &claim.asked.token;
        let is_claimed = |row: &HookRow| {
            row.owner == draft.uid() && row.id == claim.hook && row.unheard && row.from.as_ref() == from
        };
        if draft.hook(token).is_some_and(is_claimed) {
            // It is not counted down: the count may be another run's by now, and must not be less than there are.
            draft.end_hook(token, draft.uid(), HookEnd::Own);
        }
        return Answer::Nothing;
    };
    let outcome = match from {
        Some(from) => Some(HookOutcome::Owned { hook: claim.hook, from: Some(from.clone()) }),
        None => self::claim(draft, &wait.call, claim.hook, &claim.asked),
    };
    let Some(outcome) = outcome else { return Answer::Done };
    draft.head.waits = draft.head.waits.saturating_sub(1);
    draft.changes.push(Change::WaitEnd(caller.call));
    draft.append(Fact::Registered(Registered { call: wait.call, outcome }));
    draft.wake();
    Answer::Done
}

impl Draft<'_> {
    /// The row of a token, as this decision leaves it.
    fn hook(&self, token: &Token) -> Option<&HookRow> {
        match self.hooks.get(token) {
            Some(changed) => changed.as_ref(),
            None => self.context.rows.hooks.get(&(self.head.namespace.clone(), token.clone())),
        }
    }

    /// Of whom a row is left that stands for nobody.
    fn orphan(&self, token: &Token) -> Option<InstanceUid> {
        let key = (self.head.namespace.clone(), token.clone());
        self.context.rows.orphans.get(&key).copied().filter(|_| !self.hooks.contains_key(token))
    }

    /// The row of a token that this instance owns and has not ended with.
    pub(super) fn own(&self, token: &Token) -> Option<&HookRow> {
        self.hook(token).filter(|row| row.owner == self.uid() && !row.ended)
    }

    /// Whether a hook is over: no payload will be accepted for it any more.
    pub(super) fn is_over(&self, token: &Token, hook: HookId) -> bool {
        // A hook that was created in this very decision cannot be awaited yet.
        self.own(token).is_none_or(|row| row.id != hook)
    }

    fn put_hook(&mut self, token: &Token, row: HookRow) {
        self.hooks.insert(token.clone(), Some(row.clone()));
        self.changes.push(Change::Hook(token.clone(), row));
    }

    fn end_hook(&mut self, token: &Token, owner: InstanceUid, end: HookEnd) {
        self.hooks.insert(token.clone(), None);
        self.changes.push(Change::HookEnd(token.clone(), owner, end));
    }

    /// The instance has the token no more. An ended one keeps its count, which is never less than its rows.
    fn lose_hook(&mut self, token: &Token) {
        if !self.head.status.is_ended() {
            self.head.hooks = self.head.hooks.saturating_sub(1);
        }
        self.end_hook(token, self.uid(), HookEnd::Own);
    }

    /// It may have one more row.
    fn count_hook(&mut self, until: Option<everstep_protocol::Timestamp>) {
        self.head.hooks = self.head.hooks.saturating_add(1);
        self.head.hooks_until = self.head.hooks_until.max(until);
    }

    fn reply(&mut self, caller: Caller, claim: &Claim, from: Option<Other>) {
        let said = Said::Claimed { claim: claim.clone(), from };
        self.changes.push(Change::Letter(NewLetter { to: Address::Instance(caller.uid), caller, said }));
    }

    /// Nothing will come any more for the awaits of a hook. While one is open nothing unread is left.
    fn end_waits(&mut self, hook: HookId) {
        let mut mailbox = Mailbox::of(self.context.rows, self.uid());
        let kind = EventType::of_hook(hook);
        while let Some(wait) = mailbox.waiter(&kind, None).cloned() {
            mailbox.close(&wait);
            self.fire(&wait);
        }
    }

    /// The instance is run again: its hooks are let go, but not the one that it was started with, if it still has it (rule P31).
    /// Answers with that one's token.
    pub(super) fn drop_hooks(&mut self, was_ended: bool) -> Option<Token> {
        if self.head.hooks == 0 {
            return None;
        }
        self.changes.push(Change::HooksDrop);
        let (uid, now) = (self.uid(), self.context.now);
        let is_start = |(_, row): &(&TokenKey, &HookRow)| row.owner == uid && row.id == HookId::START;
        let start = self.context.rows.hooks.iter().find(is_start);
        let start = start.map(|((_, token), row)| (token.clone(), row.clone()));
        let Some((token, row)) = start else {
            self.head.hooks = 0;
            return None;
        };
        self.head.hooks = 1;
        if !was_ended {
            return Some(token);
        }
        self.end_hook(&token, uid, HookEnd::Own);
        if row.is_free(now) {
            self.head.hooks = 0;
            return None;
        }
        self.put_hook(&token, HookRow { ended: false, ..row });
        Some(token)
    }
}
