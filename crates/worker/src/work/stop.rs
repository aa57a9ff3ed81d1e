//! How the loop ends: gracefully, or because its session has ended under it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Work, owner_of_step};
use crate::{attempt::Owner, clock::Now, hosted::Hosted};

/// How long after the grace unacknowledged reports are waited for (rule W14).
const LAST_ACKS: Duration = Duration::from_secs(5);

impl Work {
    /// Nothing new is taken or started. What runs may end within the grace; the rest is given back.
    pub(super) fn stop(&mut self, now: Now) {
        if self.stopping.is_some() {
            return;
        }
        self.stopping = Some(now.at + self.parts.shutdown_grace);
        self.claims.clear();
        self.step_claims.clear();
        for owner in self.parts.attempts.drain() {
            match owner {
                Owner::Call(instance, epoch, number) => {
                    self.with(instance, Some(epoch), |hosted| hosted.unstarted(number));
                }
                Owner::Remote(instance, call, epoch) => self.step_give_back((instance, call), epoch, true),
            }
        }
        for instance in self.held.keys().copied().collect::<Vec<_>>() {
            self.with(instance, None, Hosted::stop);
        }
    }

    /// The grace is over: what still runs is cancelled and goes back with the goodbye.
    pub(super) fn overdue(&mut self, now: Now) {
        if self.stopping.is_none_or(|at| now.at < at) {
            return;
        }
        let running: Vec<_> =
            self.held.iter().filter(|(_, slot)| slot.hosted.running() > 0).map(|(id, _)| *id).collect();
        for instance in running {
            self.dismiss(instance, now);
        }
        for (key, epoch) in self.remotes.running() {
            self.parts.attempts.cancel(owner_of_step(key, epoch), now.at);
            self.step_give_back(key, epoch, false);
        }
    }

    pub(super) fn stop_deadline(&self) -> Option<Instant> {
        let grace = self.stopping?;
        Some(if Instant::now() < grace { grace } else { grace + LAST_ACKS })
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        let Some(grace) = self.stopping else { return false };
        (self.held.is_empty() && self.remotes.is_empty())
            || self.session.is_none()
            || now >= grace + LAST_ACKS
    }

    /// The session has ended: nothing that is held is ours (rule W10).
    pub(super) fn drop_all(&mut self, now: Now) {
        for instance in self.held.keys().copied().collect::<Vec<_>>() {
            self.dismiss(instance, now);
        }
        for (key, epoch) in self.remotes.clear() {
            self.parts.attempts.cancel(owner_of_step(key, epoch), now.at);
        }
        self.claims.clear();
        self.step_claims.clear();
        // Epochs go on, but a grant of the new session may bear one that the old session never saw end.
        self.over.clear();
        self.steps_over.clear();
        self.steps_changed = true;
        self.items.clear();
        self.session = None;
        // The doubt was about the session that has ended; the next one begins without (rule W10).
        self.parts.attempts.pause(false, now.at);
    }
}
