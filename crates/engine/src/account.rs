//! What a session says that it holds, against what is stored (rule W6): what it lacks, what it holds no longer, and which
//! leases it never confirmed.
//!
//! | the lease is stored, and | what follows |
//! | --- | --- |
//! | named, up to date | nothing |
//! | named, behind its head | the entries and the ack that it lacks |
//! | not named, for the first time | nothing: its grant may be under way |
//! | not named again | its grant once more |
//! | not named although the grant was repeated and answered for | it ends |
//!
//! A lease that is named and not stored is not the session's.

use std::collections::HashMap;

use everstep_protocol::{
    Epoch, InstanceUid, Millis, Position, Run,
    message::{Heartbeat, Held, HeldStep},
};

use crate::rows::Subject;

/// So many times the grant of a lease is repeated to a session that is heard and hears nothing; then the lease ends.
const REPEATS_MAX: u32 = 5;
/// A work loop comes round each second; one that has not for this long has not taken in what came meanwhile (rule W12).
const LATE: Millis = Millis(2_000);

/// A lease as stored, with what its head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The instance.
    pub uid: InstanceUid,
    /// The instance itself, or one of its remote steps.
    pub subject: Subject,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The instance's run.
    pub run: Run,
    /// The last position of its journal.
    pub position: Position,
    /// The number of the last report taken from its lease.
    pub reports: u64,
    /// The instance is being paused.
    pub paused: bool,
}

/// What a session lacks of an instance that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The lease, and how far its head has come.
    pub kept: Kept,
    /// It lacks the entries after this position.
    pub entries_after: Option<Position>,
    /// It lacks the answer to reports up to the last that was taken.
    pub ack: bool,
    /// It has to give the lease up, since the instance is being paused (rule P29): said until it has.
    pub pause: bool,
}

/// What a heartbeat showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Leases whose grants are to be repeated.
    pub again: Vec<Kept>,
    /// Leases that were never confirmed: they end.
    pub unconfirmed: Vec<Kept>,
    /// What is to be sent of instances that are held.
    pub lacks: Vec<Lack>,
    /// Leases that are not, or no longer, the session's.
    pub not_yours: Vec<(InstanceUid, Epoch)>,
    /// The same of remote steps.
    pub steps_not_yours: Vec<HeldStep>,
}

/// Leases of one session that its heartbeats did not name so far. Kept from heartbeat to heartbeat; whoever has lost it, or has just begun
/// to listen, repeats a grant too often rather than too late.
#[derive(Clone, Debug, Default)]
pub struct Unnamed {
    doubts: HashMap<(InstanceUid, Subject, Epoch), Doubt>,
    /// A heartbeat was compared before.
    begun: bool,
}

#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// The heartbeat that first did not name it.
    since: u64,
    /// How often its grant was repeated.
    repeats: u32,
}

/// Compares a heartbeat with the leases that its session has.
#[must_use]
pub fn compare(heartbeat: &Heartbeat, kept: &[Kept], unnamed: &mut Unnamed) -> Shown {
    let held: HashMap<_, _> = heartbeat.held.iter().map(|held| ((held.instance, held.epoch), held)).collect();
    let steps: std::collections::HashSet<_> =
        heartbeat.steps.iter().map(|step| (step.instance, Subject::step(step.call), step.epoch)).collect();
    let mut shown = Shown::default();
    let mut still = HashMap::new();
    let begun = std::mem::replace(&mut unnamed.begun, true);
    for kept in kept {
        let named = match kept.subject.call() {
            None => held.get(&(kept.uid, kept.epoch)).map(|held| lack(held, kept)),
            Some(_) => steps.contains(&(kept.uid, kept.subject, kept.epoch)).then_some(None),
        };
        let key = (kept.uid, kept.subject, kept.epoch);
        match named {
            Some(lack) => shown.lacks.extend(lack),
            None => match doubt(unnamed.doubts.get(&key), heartbeat, begun) {
                Some(doubt) => {
                    if doubt.repeats > 0 {
                        shown.again.push(*kept);
                    }
                    still.insert(key, doubt);
                }
                None => shown.unconfirmed.push(*kept),
            },
        }
    }
    unnamed.doubts = still;
    not_yours(heartbeat, kept, &mut shown);
    shown
}

/// What is thought of a lease that was not named; none if it ends. Only a heartbeat that was made after an answer had come
/// proves that the grant would have come too, unless so many have passed that no answer comes at all.
fn doubt(before: Option<&Doubt>, heartbeat: &Heartbeat, begun: bool) -> Option<Doubt> {
    match before {
        // Where nobody has listened before, whoever made the grant may have died before sending it: it is repeated at once.
        None => Some(Doubt { since: heartbeat.number, repeats: u32::from(!begun) }),
        Some(doubt) if doubt.repeats >= REPEATS_MAX => None,
        // What it holds is told as it was before its work loop stood still.
        Some(doubt) if heartbeat.turned.is_some_and(|ago| ago >= LATE) => {
            Some(Doubt { since: heartbeat.number, repeats: doubt.repeats + 1 })
        }
        Some(doubt) if heartbeat.answered > doubt.since => None,
        Some(doubt) => Some(Doubt { repeats: doubt.repeats + 1, ..*doubt }),
    }
}

/// What the holder lacks. What is on its way to it counts as lacking: to get it twice does no harm.
fn lack(held: &Held, kept: &Kept) -> Option<Lack> {
    if held.run != Some(kept.run) {
        return None;
    }
    let entries_after = (held.position < kept.position).then_some(held.position);
    let ack = held.reports.is_some_and(|answered| answered < kept.reports);
    let lack = Lack { kept: *kept, entries_after, ack, pause: kept.paused };
    (entries_after.is_some() || ack || kept.paused).then_some(lack)
}

fn not_yours(heartbeat: &Heartbeat, kept: &[Kept], shown: &mut Shown) {
    let stored: HashMap<_, _> = kept.iter().map(|kept| ((kept.uid, kept.subject), kept.epoch)).collect();
    let over = |uid, subject, epoch: &Epoch| stored.get(&(uid, subject)) != Some(epoch);
    let instances = heartbeat.held.iter().filter(|held| over(held.instance, Subject::INSTANCE, &held.epoch));
    shown.not_yours = instances.map(|held| (held.instance, held.epoch)).collect();
    let steps =
        heartbeat.steps.iter().filter(|step| over(step.instance, Subject::step(step.call), &step.epoch));
    shown.steps_not_yours = steps.copied().collect();
}

#[cfg(test)]
mod tests {
    //! Proves what follows from a heartbeat. Not: that it is sent.
    use everstep_protocol::{CallHash, SessionId};

    use super::*;

    fn uid(number: u128) -> InstanceUid {
        InstanceUid(uuid::Uuid::from_u128(number))
    }

    const CALL: CallHash = CallHash([7; 16]);

    fn kept(epoch: u64, position: u64, reports: u64) -> Kept {
        Kept {
            uid: uid(1),
            subject: Subject::INSTANCE,
            epoch: Epoch(epoch),
            run: Run(2),
            position: Position(position),
            reports,
            paused: false,
        }
    }

    fn step(epoch: u64) -> Kept {
        Kept { subject: Subject::step(CALL), ..kept(epoch, 9, 9) }
    }

    fn held(epoch: u64, position: u64, reports: u64) -> Held {
        Held {
            instance: uid(1),
            epoch: Epoch(epoch),
            position: Position(position),
            run: Some(Run(2)),
            reports: Some(reports),
        }
    }

    fn heartbeat(number: u64, answered: u64, held: &[Held], steps: &[u64]) -> Heartbeat {
        let step = |epoch: &u64| HeldStep { instance: uid(1), call: CALL, epoch: Epoch(*epoch) };
        Heartbeat {
            session: SessionId(uuid::Uuid::from_u128(9)),
            number,
            answered,
            inbox: "inbox".to_owned(),
            held: held.to_vec(),
            steps: steps.iter().map(step).collect(),
            running: 0,
            turned: None,
            credits: Vec::new(),
            progress: Vec::new(),
        }
    }

    #[test]
    fn w06_what_the_holder_lacks_follows_from_position_and_reports() {
        let stored = kept(3, 10, 4);
        let lack = |entries_after: Option<u64>, ack| {
            vec![Lack { kept: stored, entries_after: entries_after.map(Position), ack, pause: false }]
        };
        let cases = [
            ("up to date", held(3, 10, 4), vec![]),
            ("a push was lost", held(3, 8, 4), lack(Some(8), false)),
            ("an ack was lost", held(3, 9, 3), lack(Some(9), true)),
            ("the ack of a report without entries was lost", held(3, 10, 3), lack(None, true)),
            ("ahead of what was read", held(3, 11, 5), vec![]),
            ("another run", Held { run: Some(Run(1)), ..held(3, 8, 4) }, vec![]),
            ("an earlier version", Held { run: None, reports: None, ..held(3, 8, 0) }, vec![]),
            ("no word of reports", Held { reports: None, ..held(3, 8, 0) }, lack(Some(8), false)),
        ];
        for (case, held, lacks) in cases {
            let mut unnamed = listening();
            let shown = compare(&heartbeat(1, 0, &[held], &[]), &[stored], &mut unnamed);
            assert_eq!(shown, Shown { lacks, ..Shown::default() }, "{case}");
        }
    }

    #[test]
    fn w06_what_is_held_and_not_stored_is_not_the_sessions() {
        let beat = heartbeat(1, 0, &[held(3, 8, 4)], &[5]);
        let not_yours = vec![(uid(1), Epoch(3))];
        let steps_not_yours = beat.steps.clone();
        let all = Shown { not_yours, steps_not_yours, ..Shown::default() };
        assert_eq!(compare(&beat, &[], &mut listening()), all);
        // Leases of another epoch are other leases.
        let shown = compare(&beat, &[kept(4, 10, 4), step(6)], &mut listening());
        assert_eq!(shown, all);
        let shown = compare(&beat, &[kept(3, 8, 4), step(5)], &mut listening());
        assert_eq!(shown, Shown::default());
    }

    /// Of a session that was heard before.
    fn listening() -> Unnamed {
        Unnamed { begun: true, ..Unnamed::default() }
    }

    /// What becomes of a lease that no heartbeat names: (number, answered) of each, and what follows.
    fn unnamed(stored: Kept, beats: &[(u64, u64, &str)]) {
        let mut unnamed = listening();
        for (number, answered, expected) in beats {
            let shown = compare(&heartbeat(*number, *answered, &[], &[]), &[stored], &mut unnamed);
            let (again, ends) = (vec![stored], vec![stored]);
            let expected = match *expected {
                "wait" => Shown::default(),
                "again" => Shown { again, ..Shown::default() },
                _ => Shown { unconfirmed: ends, ..Shown::default() },
            };
            assert_eq!(shown, expected, "heartbeat {number}");
        }
    }

    #[test]
    fn w06_a_lease_that_is_not_confirmed_in_two_heartbeats_ends() {
        for stored in [kept(3, 10, 4), step(3)] {
            unnamed(stored, &[(7, 6, "wait"), (8, 7, "again"), (9, 8, "end"), (10, 9, "wait")]);
            // Heartbeats that were under way before the answer came prove nothing.
            unnamed(stored, &[(7, 6, "wait"), (8, 6, "again"), (9, 7, "again"), (10, 8, "end")]);
        }
    }

    #[test]
    fn w06_a_session_that_hears_nothing_keeps_no_lease_for_ever() {
        let mut beats = vec![(7, 6, "wait")];
        beats.extend((8..13).map(|number| (number, 6, "again")));
        beats.push((13, 6, "end"));
        unnamed(kept(3, 10, 4), &beats);
    }

    #[test]
    fn w06_whoever_has_just_begun_to_listen_repeats_at_once_what_is_not_named() {
        let stored = kept(3, 10, 4);
        let mut unnamed = Unnamed::default();
        let mut shown = |beat| compare(&beat, &[stored], &mut unnamed);
        let again = Shown { again: vec![stored], ..Shown::default() };
        assert_eq!(shown(heartbeat(1, 0, &[], &[])), again);
        assert_eq!(shown(heartbeat(2, 0, &[], &[])), again, "no answer has come that would prove anything");
        let ends = Shown { unconfirmed: vec![stored], ..Shown::default() };
        assert_eq!(shown(heartbeat(3, 2, &[], &[])), ends);
    }

    #[test]
    fn w06_a_loop_that_stands_still_proves_nothing_for_a_while() {
        let stored = kept(3, 10, 4);
        let mut unnamed = listening();
        let mut beat = |number, turned| {
            let turned = Some(Millis(turned));
            let beat = Heartbeat { turned, ..heartbeat(number, number - 1, &[], &[]) };
            let Shown { again, unconfirmed, .. } = compare(&beat, &[stored], &mut unnamed);
            (again.len(), unconfirmed.len())
        };
        assert_eq!(beat(1, 300), (0, 0));
        for number in 2..5 {
            assert_eq!(beat(number, 2_000 * number), (1, 0), "heartbeat {number}");
        }
        assert_eq!(beat(5, 300), (1, 0), "it has come round, and had no answer since");
        assert_eq!(beat(6, 300), (0, 1), "it has come round after an answer, and does not have it");
        assert_eq!(beat(7, 300), (0, 0));
        for number in 8..13 {
            assert_eq!(beat(number, 60_000), (1, 0), "heartbeat {number}");
        }
        assert_eq!(beat(13, 60_000), (0, 1), "a loop that never comes round keeps nothing for ever");
    }

    #[test]
    fn w06_a_lease_that_was_confirmed_meanwhile_begins_anew() {
        let stored = kept(3, 10, 4);
        let mut unnamed = listening();
        let mut shown = |beat| compare(&beat, &[stored], &mut unnamed);
        assert_eq!(shown(heartbeat(1, 0, &[], &[])), Shown::default());
        assert_eq!(shown(heartbeat(2, 1, &[held(3, 10, 4)], &[])), Shown::default());
        assert_eq!(shown(heartbeat(3, 2, &[], &[])), Shown::default());
        assert_eq!(shown(heartbeat(4, 3, &[], &[])), Shown { again: vec![stored], ..Shown::default() });
    }
}
