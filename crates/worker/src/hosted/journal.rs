//! Entries that are here and not fed yet, by position, and asking for those that are missing (rules W1, W26).

use std::{collections::BTreeMap, time::Duration};

use everstep_protocol::{Position, journal::Entry};
use tokio::time::Instant;

use crate::clock::Resend;

/// How long a gap may stay open before it is asked about: pushes and acks of two coordinators overtake each other.
const GAP: Duration = Duration::from_millis(100);

/// The part of the journal between what was fed and what is known to exist.
#[derive(Debug, Default)]
pub(super) struct Journal {
    waiting: BTreeMap<Position, Entry>,
    last: Position,
    /// More is known to follow: it is asked for without waiting whether it comes by itself.
    more: bool,
    gap_since: Option<Instant>,
    asked: Option<(Position, Resend)>,
}

impl Journal {
    /// The last position that is known to exist.
    pub(super) const fn last(&self) -> Position {
        self.last
    }

    /// A grant brought entries. Those before them it left out, since the worker was thought to have them: where it does not, they
    /// are asked for without waiting (rule W27).
    pub(super) fn begin(&mut self, entries: Vec<Entry>, last: Position, fed: Position) {
        let first = entries.first().map(|entry| entry.position);
        self.add(entries, last, fed);
        self.more |= first.is_some_and(|first| self.have(fed) < first);
    }

    /// Entries arrived, of a journal that ended at `last` when they were sent.
    pub(super) fn add(&mut self, entries: Vec<Entry>, last: Position, fed: Position) {
        let end = entries.last().map(|entry| entry.position);
        self.last = self.last.max(last).max(end.unwrap_or_default());
        // A part says where it ends, the grant said where the journal does.
        let known = if self.is_asked_for(&entries) { self.last } else { last };
        if end.is_none_or(|end| end < known) {
            self.more = true;
        }
        for entry in entries {
            if entry.position > fed {
                self.waiting.insert(entry.position, entry);
            }
        }
    }

    /// Entries that this worker's own report became. Those before them are on their way.
    pub(super) fn written(&mut self, entries: Vec<Entry>, last: Position, fed: Position) {
        self.last = self.last.max(last);
        self.waiting.extend(
            entries.into_iter().filter(|entry| entry.position > fed).map(|entry| (entry.position, entry)),
        );
    }

    /// Entries exist up to here and were not sent.
    pub(super) fn known_to(&mut self, last: Position) {
        self.last = self.last.max(last);
        self.more = true;
    }

    /// The entry after `fed`, if it is here.
    pub(super) fn take(&mut self, fed: Position) -> Option<Entry> {
        // A journal's first position is 1, so the entry after the last possible one does not exist.
        if everstep_protocol::planted("entries_out_of_order") {
            return self.waiting.pop_first().map(|(_, entry)| entry).filter(|entry| entry.position > fed);
        }
        self.waiting.remove(&fed.next()).filter(|entry| entry.position > fed)
    }

    /// The position after which to ask for entries, if it is time to.
    pub(super) fn ask(&mut self, fed: Position, now: Instant) -> Option<Position> {
        let have = self.have(fed);
        if have >= self.last {
            self.more = false;
            self.gap_since = None;
            self.asked = None;
            return None;
        }
        if let Some((after, resend)) = &mut self.asked
            && *after == have
        {
            return resend.is_due(now).then_some(have);
        }
        let since = *self.gap_since.get_or_insert(now);
        if !self.more && now < since + GAP {
            return None;
        }
        self.more = false;
        self.gap_since = None;
        self.asked = Some((have, Resend::begin(now)));
        Some(have)
    }

    pub(super) fn hurry(&mut self, now: Instant) {
        if let Some((_, resend)) = &mut self.asked {
            resend.hurry(now);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let gap = self.gap_since.map(|since| since + GAP);
        [gap, self.asked.as_ref().map(|(_, resend)| resend.at())].into_iter().flatten().min()
    }

    /// Whether these entries are the part that was asked for.
    fn is_asked_for(&self, entries: &[Entry]) -> bool {
        let first = entries.first().map(|entry| entry.position);
        self.asked.as_ref().is_some_and(|(after, _)| first == Some(after.next()))
    }

    /// The last position up to which nothing is missing.
    pub(super) fn have(&self, fed: Position) -> Position {
        let mut have = fed;
        for position in self.waiting.range(fed.next()..).map(|(position, _)| *position) {
            if position != have.next() {
                break;
            }
            have = position;
        }
        have
    }
}

#[cfg(test)]
mod tests {
    //! Proves when entries are asked for. Not: what is fed.
    use everstep_protocol::{Timestamp, journal::Fact};

    use super::*;

    fn entry(position: u64) -> Entry {
        Entry { position: Position(position), at: Timestamp(0), fact: Fact::Retried }
    }

    #[test]
    fn w01_a_gap_is_asked_about_after_100_ms() {
        let begin = Instant::now();
        let mut journal = Journal::default();
        journal.add(vec![entry(1)], Position(1), Position(0));
        assert!(journal.take(Position(0)).is_some());
        journal.add(vec![entry(3)], Position(3), Position(1));
        assert_eq!(journal.ask(Position(1), begin), None);
        assert_eq!(journal.deadline(), Some(begin + GAP));
        assert_eq!(journal.ask(Position(1), begin + GAP), Some(Position(1)));
        assert_eq!(journal.ask(Position(1), begin + GAP), None);
        assert_eq!(journal.ask(Position(1), begin + GAP + Resend::FIRST), Some(Position(1)));
        journal.add(vec![entry(2)], Position(3), Position(1));
        assert_eq!(journal.ask(Position(1), begin), None);
        assert_eq!(journal.deadline(), None);
    }

    #[test]
    fn w26_the_next_part_is_asked_for_before_this_one_is_fed() {
        let now = Instant::now();
        let mut journal = Journal::default();
        journal.add(vec![entry(1), entry(2)], Position(9), Position(0));
        assert_eq!(journal.ask(Position(0), now), Some(Position(2)));
        journal.add((3..=5).map(entry).collect(), Position(9), Position(0));
        assert_eq!(journal.ask(Position(0), now), Some(Position(5)));
    }

    #[test]
    fn w27_what_a_grant_left_out_is_asked_for_at_once() {
        let now = Instant::now();
        let mut journal = Journal::default();
        journal.begin(vec![entry(8), entry(9)], Position(9), Position(0));
        assert_eq!(journal.ask(Position(0), now), Some(Position(0)));
        let mut kept = Journal::default();
        kept.begin(vec![entry(8), entry(9)], Position(9), Position(7));
        assert_eq!(kept.ask(Position(7), now), None);
    }

    #[test]
    fn w26_each_part_is_followed_by_the_next_without_a_pause() {
        let now = Instant::now();
        let mut journal = Journal::default();
        journal.add(vec![entry(1), entry(2)], Position(9), Position(0));
        for (after, end) in [(2, 4), (4, 7)] {
            assert_eq!(journal.ask(Position(0), now), Some(Position(after)));
            // A part bears its own last position, not the journal's.
            journal.add((after + 1..=end).map(entry).collect(), Position(end), Position(0));
        }
        assert_eq!(journal.ask(Position(0), now), Some(Position(7)));
        // A push that was overtaken is no part: what is missing before it may be on its way.
        journal.add(vec![entry(9)], Position(9), Position(0));
        journal.add(vec![entry(8)], Position(9), Position(0));
        assert_eq!(journal.ask(Position(0), now), None);
    }
}
