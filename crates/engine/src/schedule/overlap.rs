//! What becomes of one due time while an instance of an earlier one is still open (rule S8).

use everstep_protocol::Timestamp;

use super::{Action, ActionKind, Due, DueKind, Overlap, State};

impl State {
    /// Whether an earlier due time is still open, is about to be started, or waits.
    pub(super) fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.pending.is_empty() || !self.queue.is_empty()
    }

    /// Puts a due time that has come where it belongs.
    pub(super) fn place(&mut self, policy: Overlap, due: Due, now: Timestamp) {
        if policy == Overlap::Allow || !self.is_busy() {
            self.taken += 1;
            return self.pending.push(due);
        }
        match policy {
            Overlap::Skip => self.note(Action::new(ActionKind::Overlap, Some(due.at), now)),
            Overlap::QueueOne => self.wait(1, due, now),
            Overlap::Queue { max } => self.wait(max, due, now),
            Overlap::CancelOther => {
                self.supersede(now);
                self.taken += 1;
                // What is not open any more has nothing to be waited for.
                if self.open.is_empty() { self.pending.push(due) } else { self.queue.push(due) }
            }
            Overlap::TerminateOther | Overlap::Allow => {
                self.supersede(now);
                self.taken += 1;
                self.pending.push(due);
            }
        }
    }

    fn wait(&mut self, max: u32, due: Due, now: Timestamp) {
        if self.queue.len() < max as usize {
            self.taken += 1;
            self.queue.push(due);
        } else {
            self.note(Action::new(ActionKind::QueueFull, Some(due.at), now));
        }
    }

    /// A newer due time takes the place of everything before it: what is open is asked to end, what was not started yet never is.
    fn supersede(&mut self, now: Timestamp) {
        self.stopping = self.open.iter().map(|run| run.id.clone()).collect();
        let planned = |due: &Due| due.kind == DueKind::Planned;
        let gone: Vec<Due> = self.queue.extract_if(.., |due| planned(due)).collect();
        let gone =
            gone.into_iter().chain(self.pending.extract_if(.., |due| planned(due)).collect::<Vec<_>>());
        for due in gone.collect::<Vec<_>>() {
            self.taken = self.taken.saturating_sub(1);
            self.note(Action::new(ActionKind::Replaced, Some(due.at), now));
        }
    }
}
