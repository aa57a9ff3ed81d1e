//! Room for direct grants, told to the coordinators as a window that moves on (rule W35).

use std::{collections::HashMap, time::Duration};

use everstep_protocol::{CoordinatorId, message::Credit};
use tokio::time::Instant;

/// A coordinator that was not heard for so long gets no share of the room.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(10);

/// What each coordinator has granted directly so far.
#[derive(Debug, Default)]
pub(crate) struct Credits {
    known: HashMap<CoordinatorId, Known>,
}

#[derive(Debug)]
struct Known {
    received: u64,
    heard: Instant,
}

impl Credits {
    /// A message of this coordinator arrived.
    pub(crate) fn heard(&mut self, coordinator: CoordinatorId, now: Instant) {
        self.known.entry(coordinator).or_insert(Known { received: 0, heard: now }).heard = now;
    }

    /// It brought a direct grant.
    pub(crate) fn received(&mut self, coordinator: CoordinatorId) {
        if let Some(known) = self.known.get_mut(&coordinator) {
            known.received += 1;
        }
    }

    /// The windows when there is room for so many instances: the room is divided among the coordinators that live.
    pub(crate) fn windows(&self, room: usize, now: Instant) -> Vec<Credit> {
        let live = |known: &Known| now.saturating_duration_since(known.heard) < FORGOTTEN_AFTER;
        let count = self.known.values().filter(|known| live(known)).count().max(1);
        let share = (room / count) as u64;
        let mut windows: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| live(known))
            .map(|(coordinator, known)| Credit { coordinator: *coordinator, limit: known.received + share })
            .collect();
        windows.sort_unstable_by_key(|credit| credit.coordinator);
        windows
    }
}

#[cfg(test)]
mod tests {
    //! Proves that the windows move on with what arrives and share the room. Not: that coordinators keep to them.
    use super::*;

    #[test]
    fn w35_the_room_is_divided_among_those_that_live() {
        let now = Instant::now();
        let (one, two) = (CoordinatorId::generate(), CoordinatorId::generate());
        let mut credits = Credits::default();
        credits.heard(one, now);
        assert_eq!(credits.windows(10, now), [Credit { coordinator: one, limit: 10 }]);
        credits.heard(two, now);
        credits.received(one);
        let windows = credits.windows(9, now);
        assert_eq!(windows, [Credit { coordinator: one, limit: 5 }, Credit { coordinator: two, limit: 4 }]);
        let later = now + FORGOTTEN_AFTER;
        credits.heard(two, later);
        assert_eq!(credits.windows(9, later), [Credit { coordinator: two, limit: 9 }]);
    }
}
