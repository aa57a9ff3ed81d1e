//! Silence counts only while it could have been heard, and then it does count (rules W8, W9): no session ends within a lease after a
//! gap in which no coordinator heard anything, unless it was heard since and its inbox is gone; and one whose process speaks no more
//! ends when its lease has run.
//!
//! What is a gap it sees by itself: by when the coordinators' own heartbeat was noted.

use std::collections::HashMap;

use everstep_protocol::SessionId;

use super::{Checker, Seen};

/// The lease of a session, in microseconds, and how long the coordinators' own heartbeat may stay away without a gap: three tenths.
const LEASE: i64 = 10_000_000;
const GAP: i64 = 3_000_000;
/// Within one turn of a process the store's clock goes on a little, and the world's does not.
const ABOUT: i64 = 1_000;
/// So long after its lease has run a session has ended: whoever is to look may die before, and another one takes its place; calls of
/// the store take long, or fail.
const ENDED_WITHIN: i64 = 20_000_000;

#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the coordinators' own heartbeat was noted last, and since when that has been without a gap.
    beat: Option<(i64, i64)>,
    /// When each session that has not ended was heard last.
    heard: HashMap<SessionId, i64>,
    /// Since when processes are gone, or stand still for ever, by their session.
    gone: HashMap<SessionId, i64>,
}

impl Silence {
    fn beats(&mut self, at: i64) {
        self.beat = match self.beat {
            Some((last, since)) if at - last <= GAP => Some((at, since)),
            Some(_) | None => Some((at, at)),
        };
    }

    fn ended(&mut self, session: SessionId, at: i64, early: bool) -> Result<(), String> {
        let heard = self.heard.remove(&session).unwrap_or(0);
        let Some((last, since)) = self.beat else {
            return Err(format!("session {session} was ended before anybody could be heard"));
        };
        let (could, unheard) = (at - since, at - heard);
        if at - last > GAP + ABOUT {
            return Err(format!("session {session} was ended while nobody could be heard"));
        }
        if early && (could + ABOUT >= LEASE || heard >= since) {
            return Ok(());
        }
        if could + ABOUT < LEASE {
            return Err(format!(
                "session {session} was ended {} ms after a gap in which nobody could be heard",
                could / 1_000
            ));
        }
        if unheard + ABOUT < LEASE {
            return Err(format!(
                "session {session} was ended as silent {} ms after it was heard",
                unheard / 1_000
            ));
        }
        Ok(())
    }

    /// Of a process that speaks no more the session has ended by now, unless it could not be told from one that was not heard.
    fn looks(&self, now: i64) -> Result<(), String> {
        let Some((_, since)) = self.beat.filter(|(last, _)| now - last <= GAP) else { return Ok(()) };
        let is_late = |(session, gone): &(&SessionId, &i64)| {
            let heard = self.heard.get(*session);
            heard.is_some_and(|heard| now > **gone.max(&heard).max(&&since) + LEASE + ENDED_WITHIN)
        };
        match self.gone.iter().filter(is_late).min() {
            Some((session, gone)) => Err(format!(
                "session {session} has not ended, though its process has been gone for {} s",
                (now - gone) / 1_000_000
            )),
            None => Ok(()),
        }
    }
}

impl Checker for Silence {
    fn name(&self) -> &'static str {
        "silence"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Beat { at } => self.beats(*at),
            Seen::Heard { session, at } => {
                self.heard.insert(*session, *at);
            }
            Seen::Gone { session, at } => {
                self.gone.entry(*session).or_insert(*at);
            }
            Seen::Goodbye { session } => {
                self.heard.remove(session);
            }
            Seen::SessionEnded { session, at, early } => return self.ended(*session, *at, *early),
            Seen::Passed { at } => return self.looks(*at),
            _ => {}
        }
        Ok(())
    }
}
