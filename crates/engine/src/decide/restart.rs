//! Restart (rule P31): the same instance, id, input and keys, in a new run with a journal of its own. The earlier journal stays.

use everstep_protocol::{
    Attribute, Position, Run, Token,
    journal::{Entry, Fact},
    message::{CoordinatorItem, FenceReason},
};

use super::{Draft, control::gated, report::count_outcome};
use crate::{
    effect::{Answer, Change, Effect},
    head::Status,
    letter::Said,
    reuse::kept_keys,
    transition::Operation,
};

/// What of the earlier run the new one keeps, worked out beforehand (see [`mod@crate::keep`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// The run that it was taken from.
    pub from: Run,
    /// How far that journal was looked at.
    pub seen: Position,
    /// The new journal, its first entry included.
    pub entries: Vec<Entry>,
}

/// Begins the next run: from the first entry, or from a journal that was prepared.
pub(super) fn restart(draft: &mut Draft<'_>, operation: &str, prepared: Option<&Prepared>) -> Answer {
    if let Some(prepared) = prepared
        && (prepared.from != draft.head.run || prepared.seen != draft.head.position)
        && !draft.is_known(operation)
    {
        return Answer::Moved;
    }
    gated(draft, Operation::Restart, operation, |draft| {
        if let Some(prepared) = prepared {
            // What is kept was done with the hook that it was started with: if that is gone, it is over.
            begin(draft);
            if let Some(Entry { fact: Fact::Started(started), .. }) = prepared.entries.first() {
                draft.attributes_of(&started.attributes);
            }
            for entry in &prepared.entries {
                draft.copy(entry);
            }
        } else {
            let first = draft.context.rows.firsts.get(&draft.uid());
            let Some(Entry { fact: Fact::Started(started), .. }) = first else {
                return Answer::Moved;
            };
            let mut started = started.clone();
            started.hook = begin(draft);
            draft.attributes_of(&started.attributes);
            // The seed too: what the code draws goes into inputs, and these into the keys of its steps.
            draft.append(Fact::Started(started));
            let decided = draft.context.rows.keys.get(&draft.uid()).map_or(&[][..], Vec::as_slice);
            for entry in kept_keys(decided) {
                draft.copy(entry);
            }
        }
        draft.make_runnable();
        Answer::Done
    })
}

impl Draft<'_> {
    /// Those that it was started with, instead of those that it has. Where it has none, none have to be removed.
    fn attributes_of(&mut self, started: &[Attribute]) {
        if self.context.rows.attributed.contains(&self.uid()) {
            self.changes.push(Change::Attributes(started.to_vec()));
        } else {
            self.changes.extend(started.iter().cloned().map(Change::Attribute));
        }
    }

    /// Appends an entry as it was, with the time that it was written at.
    fn copy(&mut self, entry: &Entry) {
        count_outcome(self, entry);
        self.append(entry.fact.clone());
        if let Some(last) = self.entries.last_mut() {
            last.at = entry.at;
        }
    }
}

/// What the earlier run had under way is over.
/// What it was started with is still its own, where it is.
fn begin(draft: &mut Draft<'_>) -> Option<Token> {
    if let Some(lease) = draft.lease() {
        let why = FenceReason::Stale;
        let item = CoordinatorItem::Fence { instance: draft.uid(), epoch: lease.epoch, why };
        draft.effects.push(Effect::Item(lease.session, item));
    }
    let was_ended = draft.head.status.is_ended();
    if was_ended {
        draft.changes.push(Change::EndedNoMore);
    }
    let reason = Some("its parent is run again".to_owned());
    draft.cascade(None, Said::Terminate { reason });
    if !everstep_protocol::planted("restart_keeps_waits") {
        draft.changes.push(Change::Everything);
    }
    draft.control = None;
    draft.head.run = draft.head.run.next();
    draft.head.status = Status::Open;
    draft.head.ended_at = None;
    draft.head.waits = 0;
    draft.begin_journal();
    draft.drop_hooks(was_ended)
}
