//! Sessions end for their reasons only (rule W8): the process has died, said goodbye, or could not be heard for a cause of its own.
//! A broker that begins anew, however long that takes, a store that is away, and coordinators that die end no session.

use std::collections::HashMap;

use everstep_protocol::SessionId;

use super::{Checker, Seen};

/// So long after something befell a process its session may end for it: a lease, until the last sign of life that was still on its
/// way is handled, and until a coordinator looks.
const AFTERWARDS: i64 = 25_000_000;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Until when each may end.
    excused: HashMap<SessionId, i64>,
    /// Until when any may.
    all_excused: i64,
}

impl Sessions {
    fn excuse(&mut self, session: Option<SessionId>, until: i64) {
        let until = until.saturating_add(AFTERWARDS);
        let excused = match session {
            Some(session) => self.excused.entry(session).or_default(),
            None => &mut self.all_excused,
        };
        *excused = (*excused).max(until);
    }

    fn ended(&self, session: SessionId, at: i64) -> Result<(), String> {
        let excused = self.excused.get(&session).copied().unwrap_or_default().max(self.all_excused);
        if at <= excused {
            return Ok(());
        }
        Err(format!("session {session} was ended, though its process lives and could be heard"))
    }
}

impl Checker for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Troubled { session, until } => {
                self.excuse(*session, *until);
                Ok(())
            }
            Seen::SessionEnded { session, at, .. } => self.ended(*session, *at),
            _ => Ok(()),
        }
    }
}
