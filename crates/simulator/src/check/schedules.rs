//! Schedules: each due time is started once, under its own id, and not before it has come; in its turn, where the schedule says so; none
//! while the schedule is paused, or after it was deleted; and none is passed over without a reason (rules S5, S8, S9, S11, S12).
//!
//! Which due times there are it reckons by itself. It learns what people wanted from what they wrote, and what was started from the
//! instances that were created.

use std::collections::{BTreeMap, HashMap};

use everstep_engine::schedule::{CatchUp, Definition, Due, Overlap, State, When, Which};
use everstep_protocol::{InstanceUid, Millis, ScheduleId, Timestamp};
use everstep_store::ScheduleChange;

use super::{Checker, Commit, Rest, Seen};

/// Due times are whole seconds.
const SECOND: i64 = 1_000_000;
/// What is caught up within so long is caught up in every run.
const LONG: Millis = Millis::from_secs(3_600);

#[derive(Debug, Default)]
pub(super) struct Schedules {
    schedules: BTreeMap<ScheduleId, Known>,
    uids: HashMap<InstanceUid, (ScheduleId, Option<Timestamp>)>,
}

/// One schedule, over all of its changes.
#[derive(Debug, Default)]
struct Known {
    eras: Vec<Era>,
    /// Where it stands.
    state: State,
    /// While it is paused, or deleted: due times that were being started already.
    held: Option<Vec<Due>>,
    /// Due times that waited when it was deleted.
    lost: Vec<Due>,
    /// Spans that people wanted to have made up for.
    spans: Vec<(Timestamp, Timestamp)>,
    /// Somebody has done more with it than to create it.
    touched: bool,
    /// Starts side by side were asked for, or it was deleted while something was being started: there is no turn any more.
    beside: bool,
    started: BTreeMap<Timestamp, Started>,
    by_hand: Vec<Started>,
}

/// Due times after one moment and up to another are started as a definition says.
#[derive(Debug)]
struct Era {
    definition: Definition,
    after: Timestamp,
    last: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Started {
    uid: InstanceUid,
    ended_at: Option<Timestamp>,
    /// Somebody ran it again after its end.
    again: bool,
}

impl Started {
    /// It may have been in the way of what was due at this moment.
    fn is_in_the_way(&self, due: Timestamp) -> bool {
        self.again || self.ended_at.is_none_or(|ended| ended >= due)
    }
}

impl Era {
    fn has(&self, due: Timestamp) -> bool {
        let Definition { from, until, .. } = &self.definition;
        due > self.after
            && self.last.is_none_or(|last| due <= last)
            && from.is_none_or(|from| due >= from)
            && until.is_none_or(|until| due < until)
            && is_named(&self.definition.when, due)
    }

    /// Its due times, if it has an end.
    fn dues(&self) -> Vec<Timestamp> {
        let end = [self.last, self.definition.until].into_iter().flatten().min();
        let Some(end) = end else { return Vec::new() };
        let first = self.after.0.div_euclid(SECOND);
        let seconds = (first..=end.0.div_euclid(SECOND)).map(|second| Timestamp(second * SECOND));
        seconds.filter(|due| self.has(*due)).collect()
    }

    /// Starts come one after the other.
    fn is_in_turn(&self) -> bool {
        match self.definition.overlap {
            Overlap::Skip | Overlap::QueueOne | Overlap::Queue { .. } | Overlap::CancelOther => true,
            Overlap::TerminateOther | Overlap::Allow => false,
        }
    }

    fn replaces(&self) -> bool {
        matches!(self.definition.overlap, Overlap::CancelOther | Overlap::TerminateOther)
    }
}

/// Whether a moment is one of these. Of cron expressions it knows those that name every so many seconds.
fn is_named(when: &When, due: Timestamp) -> bool {
    let every = |seconds: i64, offset: i64| (due.0 - offset * SECOND).rem_euclid(seconds * SECOND) == 0;
    match when {
        When::Every { every: span, offset } => {
            every(span.as_u64() as i64 / 1_000, offset.as_u64() as i64 / 1_000)
        }
        When::Cron { expression, .. } => {
            let step = expression.strip_prefix("*/").and_then(|rest| rest.split(' ').next()?.parse().ok());
            step.is_some_and(|step| every(step, 0))
        }
        When::At { at } => due == *at,
    }
}

impl Known {
    fn changed(&mut self, change: &ScheduleChange) {
        self.touched |= change.version.is_some();
        let Some((definition, turn)) = &change.after else {
            let settled = self.state.settled;
            self.close(settled);
            self.beside |= !self.state.pending.is_empty();
            self.lost.extend(self.state.pending.iter().chain(&self.state.queue));
            self.held = Some(std::mem::take(&mut self.state).pending);
            return;
        };
        let (before, state) = (std::mem::replace(&mut self.state, turn.state.clone()), &turn.state);
        for span in &state.backfills {
            if !before.backfills.contains(span) {
                self.spans.push((span.settled, span.until));
                self.beside |= span.beside;
            }
        }
        let is_paused = state.paused.is_some();
        match change.action.operation {
            "put" | "resume" => {
                self.close(state.settled);
                // What is changed while it is paused has no due times yet; it says how what waits is started afterwards.
                let last = is_paused.then_some(state.settled);
                self.eras.push(Era { definition: definition.clone(), after: state.settled, last });
                if !is_paused {
                    self.held = None;
                }
            }
            "pause" if self.held.is_none() => {
                self.close(state.settled);
                self.held = Some(state.pending.clone());
            }
            _ => {}
        }
    }

    fn close(&mut self, at: Timestamp) {
        if let Some(era) = self.eras.last_mut().filter(|era| era.last.is_none()) {
            era.last = Some(at);
        }
    }

    fn is_made_up(&self, due: Timestamp) -> bool {
        let is_named = self.eras.iter().any(|era| is_named(&era.definition.when, due));
        is_named && self.spans.iter().any(|(after, until)| due > *after && due < *until)
    }

    /// An instance of this due time was created.
    fn starts(&mut self, due: Timestamp, started: Started, created_at: Timestamp) -> Result<(), String> {
        let is_made_up = self.is_made_up(due);
        if !is_made_up && !self.eras.iter().any(|era| era.has(due)) {
            return Err(format!("was started for {due}, when nothing was due"));
        }
        if created_at < due {
            return Err(format!("was started at {created_at} for {due}, before it had come"));
        }
        if let Some(held) = &self.held
            && !is_made_up
            && !held.iter().any(|pending| pending.at == due)
        {
            return Err(format!("was started for {due} while it was paused, or deleted"));
        }
        let in_turn = !self.beside && self.eras.iter().all(Era::is_in_turn);
        let open = |(_, other): &(&Timestamp, &Started)| other.ended_at.is_none();
        if in_turn && let Some((other, _)) = self.started.iter().find(open) {
            return Err(format!("was started for {due} while that of {other} was open"));
        }
        match self.started.insert(due, started) {
            Some(_) => Err(format!("was started twice for {due}")),
            None => Ok(()),
        }
    }

    /// Looks whether each due time was started, or there was a reason not to.
    fn rests(&self) -> Result<(), String> {
        for (number, era) in self.eras.iter().enumerate() {
            for due in era.dues() {
                if !self.started.contains_key(&due) && !self.may_pass_over(due, era, &self.eras[number..]) {
                    return Err(format!("was never started for {due}"));
                }
            }
        }
        self.adds_up()
    }

    fn may_pass_over(&self, due: Timestamp, era: &Era, later: &[Era]) -> bool {
        let Definition { limit, catch_up, overlap, .. } = &era.definition;
        let waits = |of: &[Due]| of.iter().any(|other| other.at == due);
        let catches_up = *catch_up == CatchUp { which: Which::All, within: catch_up.within.max(LONG) };
        if limit.is_some() || !catches_up || waits(&self.lost) || waits(&self.state.queue) {
            return true;
        }
        let is_followed = || later.iter().any(|era| era.dues().iter().any(|next| *next > due));
        if later.iter().any(Era::replaces) && is_followed() {
            return true;
        }
        let open = || {
            let before = self.started.range(..due).map(|(_, started)| started);
            let span =
                self.started.iter().filter(|(of, _)| self.is_made_up(**of)).map(|(_, started)| started);
            before.chain(span).chain(&self.by_hand).any(|started| started.is_in_the_way(due))
        };
        match overlap {
            Overlap::Skip | Overlap::QueueOne => open(),
            Overlap::Queue { max } => *max < 1_000 && open(),
            Overlap::CancelOther | Overlap::TerminateOther | Overlap::Allow => false,
        }
    }

    /// What became of each due time was noted once, in one of these ways.
    fn adds_up(&self) -> Result<(), String> {
        let [era] = &self.eras[..] else { return Ok(()) };
        if self.touched || era.definition.limit.is_some() {
            return Ok(());
        }
        let counts = self.state.counts;
        let noted = counts.started + counts.existed + counts.refused + counts.skipped + counts.missed;
        let due = era.dues().len() as u64;
        if noted == due {
            return Ok(());
        }
        Err(format!("had {due} due times, and {noted} are noted: {counts:?}"))
    }
}

impl Schedules {
    fn changed(&mut self, change: &ScheduleChange) {
        self.schedules.entry(change.id.clone()).or_default().changed(change);
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), String> {
        for head in &commit.writes.created {
            let Some((schedule, due)) = head.id.as_str().split_once(':') else { continue };
            let Ok(id) = ScheduleId::new(schedule) else { continue };
            let Some(known) = self.schedules.get_mut(&id) else { continue };
            let started = Started { uid: head.uid, ended_at: head.ended_at, again: false };
            let due = moment(due);
            match due {
                Some(due) => known
                    .starts(due, started, head.created_at)
                    .map_err(|what| format!("schedule {id} {what}"))?,
                None => known.by_hand.push(started),
            }
            self.uids.insert(head.uid, (id, due));
        }
        for head in &commit.writes.heads {
            let Some((id, due)) = self.uids.get(&head.uid) else { continue };
            let Some(known) = self.schedules.get_mut(id) else { continue };
            let started = match due {
                Some(due) => known.started.get_mut(due),
                None => known.by_hand.iter_mut().find(|started| started.uid == head.uid),
            };
            let Some(started) = started else { continue };
            started.again |= started.ended_at.is_some() && head.ended_at.is_none();
            started.ended_at = started.ended_at.or(head.ended_at);
        }
        Ok(())
    }
}

/// The due time that an instance's id ends in; none of what was started by hand.
fn moment(digits: &str) -> Option<Timestamp> {
    let part = |range: std::ops::Range<usize>| digits.get(range);
    let (year, month, day) = (part(0..4)?, part(4..6)?, part(6..8)?);
    let (hour, minute, second) = (part(9..11)?, part(11..13)?, part(13..15)?);
    Timestamp::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

impl Checker for Schedules {
    fn name(&self) -> &'static str {
        "schedules"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Committed(commit) => return self.committed(commit),
            Seen::Changed(change) => self.changed(change),
            Seen::Settled(write) => {
                if let Some(known) = self.schedules.get_mut(&write.id) {
                    known.state = write.turn.state.clone();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, _: &Rest<'_>) -> Result<(), String> {
        let rests = |(id, known): (&ScheduleId, &Known)| {
            known.rests().map_err(|what| format!("schedule {id} {what}"))
        };
        self.schedules.iter().try_for_each(rests)
    }
}
