//! Events: accepted and kept, or delivered at once; delivered to a wait that opens; returned when a wait is closed that its
//! body had dropped before (rules P21 to P24, P26).

use everstep_protocol::{
    EventType,
    journal::{Awaiting, Closed, Delivered, Entry, Fact, Opened, Received, Wait},
};

use super::{Draft, hook};
use crate::{
    effect::{Answer, Change, Effect},
    mailbox::{Delivery, EventRow, KnownEvent, Mailbox, SentEvent},
    rows::{Subject, WaitKind, WaitRow},
};

/// Somebody sends an event. The same id again gets the first answer, whatever has become of the event or the instance.
pub(super) fn accept(draft: &mut Draft<'_>, sent: &SentEvent) -> Answer {
    if let Some(known) = draft.context.rows.event_ids.get(&(draft.uid(), sent.id.clone()))
        && !everstep_protocol::planted("event_accepted_twice")
    {
        return if is_repeated(known, sent) { Answer::Done } else { Answer::EventIdTaken };
    }
    if draft.head.status.is_ended() {
        return Answer::Refused(draft.head.status);
    }
    let mut mailbox = Mailbox::of(draft.context.rows, draft.uid());
    let waiter = mailbox.waiter(&sent.kind, sent.key.as_ref()).cloned();
    if waiter.is_none() && draft.head.unread >= draft.context.limits.events_unread {
        return Answer::MailboxFull;
    }
    draft.head.events += 1;
    let row = EventRow {
        sequence: draft.head.events,
        event: sent.clone(),
        received_at: draft.context.now,
        delivery: None,
    };
    draft.head.unread += 1;
    draft.changes.push(Change::Event(row.clone()));
    if let Some(wait) = waiter {
        draft.deliver(&mut mailbox, &row, &wait);
        if !everstep_protocol::planted("event_wakes_nobody") {
            draft.wake();
        }
    }
    Answer::Done
}

fn is_repeated(known: &KnownEvent, sent: &SentEvent) -> bool {
    known.kind == sent.kind && known.key == sent.key && known.fingerprint == sent.fingerprint
}

/// What the entries of a report, which are appended already, mean for events: those of closed waits return, and each goes to
/// the oldest wait that it fits; then each new wait takes the oldest event that fits. Nothing is delivered where the report
/// `ends` the instance. Answers whether anything was appended.
pub(super) fn settle(draft: &mut Draft<'_>, written: &[Entry], ends: bool) -> bool {
    if !written.iter().any(is_about_events) {
        return false;
    }
    let before = draft.entries.len();
    let mut mailbox = Mailbox::of(draft.context.rows, draft.uid());
    let mut returned = Vec::new();
    for entry in written {
        if let Fact::Closed(closed) = &entry.fact {
            returned.extend(draft.take_back(&mut mailbox, closed));
            hook::let_go(draft, closed);
        }
    }
    if ends {
        return false;
    }
    returned.sort_unstable_by_key(|row| row.sequence);
    for row in returned {
        let waiter = mailbox.waiter(&row.event.kind, row.event.key.as_ref()).cloned();
        if let Some(wait) = waiter {
            draft.deliver(&mut mailbox, &row, &wait);
        }
    }
    for entry in written {
        hook::create(draft, entry);
        if let Some(wait) = awaiting(entry) {
            draft.serve(&mut mailbox, &wait, entry);
        }
    }
    draft.entries.len() > before
}

fn is_about_events(entry: &Entry) -> bool {
    let creates = matches!(&entry.fact, Fact::Opened(Opened { wait: Wait::Hook(_), .. }));
    creates || matches!(&entry.fact, Fact::Closed(_)) || awaiting(entry).is_some()
}

/// The wait for an event that an entry opened.
pub(crate) fn awaiting(entry: &Entry) -> Option<WaitRow> {
    let Fact::Opened(opened) = &entry.fact else { return None };
    let (kind, types, key, due_at) = match &opened.wait {
        Wait::Event { types, key, until } => (WaitKind::Event, types.clone(), key.clone(), Some(*until)),
        Wait::Payload(awaiting) => (WaitKind::Hook, vec![EventType::of_hook(awaiting.hook)], None, None),
        Wait::Sleep { .. }
        | Wait::Remote(_)
        | Wait::Child(_)
        | Wait::Instance(_)
        | Wait::Send(_)
        | Wait::Reply(_)
        | Wait::Resume(_)
        | Wait::Hook(_) => return None,
    };
    let awaited = crate::mailbox::Awaited { types, key, opened: entry.position };
    let (call, since) = (opened.call.clone(), entry.at);
    Some(WaitRow { call, kind, since, due_at, awaited: Some(awaited), question: None })
}

/// The entry of an event, or of what a hook was resumed with, that met a wait.
fn delivered(wait: &WaitRow, row: &EventRow) -> Fact {
    let (call, sequence, id) = (wait.call.clone(), row.sequence, row.event.id.id.clone());
    let (received_at, payload) = (row.received_at, row.event.payload.clone());
    if let Some(hook) = row.event.kind.hook() {
        return Fact::Received(Received { call, hook, sequence, id, received_at, payload });
    }
    let (kind, key) = (row.event.kind.clone(), row.event.key.clone());
    Fact::Delivered(Delivered { call, kind, sequence, id, key, received_at, payload })
}

impl Draft<'_> {
    /// A call was dropped by its body: nothing waits for it any more. A remote step ends with its call, like one whose instance
    /// has ended.
    pub(super) fn close(&mut self, closed: &Closed) {
        let call = closed.call.hash();
        let Some(wait) = self.context.rows.waits.get(&(self.uid(), call)) else { return };
        self.head.waits = self.head.waits.saturating_sub(1);
        self.changes.push(Change::WaitEnd(call));
        match wait.kind {
            WaitKind::Sleep | WaitKind::Retry | WaitKind::Event | WaitKind::Hook => {}
            // That of a remote step has been kept, in case it is run again.
            WaitKind::Person => {
                if self.context.rows.remotes.contains_key(&(self.uid(), call)) {
                    self.changes.push(Change::RemoteEnd(call));
                }
            }
            WaitKind::Instance => self.give_up(&closed.call),
            WaitKind::Remote => {
                self.changes.push(Change::RemoteEnd(call));
                self.changes.push(Change::ReadyEnd(Subject::step(call)));
                self.changes.push(Change::LeaseEnd(Subject::step(call)));
                if let Some(lease) = self.context.rows.leases.get(&(self.uid(), Subject::step(call))) {
                    self.effects.push(Effect::step_over(self.uid(), call, *lease));
                }
            }
        }
    }

    /// The event that a closed call got and its body never saw is unread again, at its place in line.
    fn take_back(&mut self, mailbox: &mut Mailbox, closed: &Closed) -> Option<EventRow> {
        let call = closed.call.hash();
        if let Some(wait) = self.context.rows.waits.get(&(self.uid(), call)) {
            mailbox.close(wait);
        }
        let row = mailbox.delivered(self.head.run, call, closed.after)?.clone();
        self.head.unread += 1;
        self.put(mailbox, &row, None);
        Some(EventRow { delivery: None, ..row })
    }

    /// A wait that was just opened takes the oldest event that fits. Without one it is over at once if it has no time, or waits for
    /// a hook that is over.
    fn serve(&mut self, mailbox: &mut Mailbox, wait: &WaitRow, entry: &Entry) {
        let unread = wait.awaited.as_ref().and_then(|awaited| mailbox.unread(awaited)).cloned();
        if let Some(row) = unread {
            self.deliver(mailbox, &row, wait);
        } else if wait.due_at.is_some_and(|due_at| due_at <= self.context.now) || self.waits_in_vain(entry) {
            self.fire(wait);
        }
    }

    fn waits_in_vain(&self, entry: &Entry) -> bool {
        match &entry.fact {
            Fact::Opened(Opened { wait: Wait::Payload(Awaiting { hook, token }), .. }) => {
                self.is_over(token, *hook)
            }
            _ => false,
        }
    }

    /// A wait is over without an event.
    pub(super) fn fire(&mut self, wait: &WaitRow) {
        self.head.waits = self.head.waits.saturating_sub(1);
        self.changes.push(Change::WaitEnd(wait.call.hash()));
        self.append(Fact::Fired { call: wait.call.clone() });
    }

    /// The match of event and wait is an entry; the wait is over.
    pub(super) fn deliver(&mut self, mailbox: &mut Mailbox, row: &EventRow, wait: &WaitRow) {
        let call = wait.call.hash();
        self.head.waits = self.head.waits.saturating_sub(1);
        self.head.unread = self.head.unread.saturating_sub(1);
        self.changes.push(Change::WaitEnd(call));
        self.append(delivered(wait, row));
        let delivery = Delivery { call, run: self.head.run, position: self.head.position };
        if !everstep_protocol::planted("event_twice") {
            self.put(mailbox, row, Some(delivery));
        }
        mailbox.close(wait);
    }

    fn put(&mut self, mailbox: &mut Mailbox, row: &EventRow, delivery: Option<Delivery>) {
        mailbox.set(row.sequence, delivery);
        let (kind, sequence) = (row.event.kind.clone(), row.sequence);
        self.changes.push(Change::Delivery { kind, sequence, delivery });
    }
}
