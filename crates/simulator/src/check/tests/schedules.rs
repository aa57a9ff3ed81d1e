//! What a history of schedules may be, and what not.

use everstep_engine::{
    access::Asker,
    action::{Action, Target},
    schedule::{CatchUp, Counts, Definition, Due, DueKind, Overlap, Paused, State, Turn, When, Which},
};
use everstep_protocol::{Millis, ScheduleId, Scope};
use everstep_store::{ScheduleChange, ScheduleWrite};

use super::{Schedules, *};

/// A second that is a multiple of every interval here, and the seconds after it.
fn at(second: i64) -> Timestamp {
    Timestamp((1_800_000_000 + second) * SECOND)
}

fn id() -> ScheduleId {
    ScheduleId::new("s").expect("an id")
}

/// Each second, three times.
fn definition(overlap: Overlap) -> Definition {
    Definition {
        overlap,
        catch_up: CatchUp { which: Which::All, ..CatchUp::default() },
        until: Some(at(4)),
        ..Definition::starts("w", &(), When::every(Millis::from_secs(1))).expect("it is valid")
    }
}

fn changed(
    operation: &'static str,
    version: Option<u64>,
    after: Option<(Definition, State)>,
) -> ScheduleChange {
    let after = after.map(|(definition, state)| (definition, Turn { state, wake_at: None }));
    let (namespace, id) = (Namespace::default(), id());
    let action =
        Action::done(&Asker::program(), Scope::Of(namespace.clone()), Target::Schedule(&id), operation);
    ScheduleChange { namespace, id, version, after, action }
}

fn settled(second: i64) -> State {
    State { settled: at(second), ..State::default() }
}

/// A schedule that was created at the beginning.
fn created(overlap: Overlap) -> Schedules {
    let mut schedules = Schedules::default();
    let change = changed("put", None, Some((definition(overlap), settled(0))));
    assert_eq!(schedules.sees(&Seen::Changed(&change)), Ok(()));
    schedules
}

fn starts(schedules: &mut Schedules, due: &str, uid: u128, created: i64) -> Result<(), String> {
    let id = format!("s:20270115T08{due}Z").parse().expect("an id");
    let mut commit = Commit::default();
    let head = head(InstanceUid(Uuid::from_u128(uid)));
    commit.writes.created.push(Head { id, created_at: at(created), ..head });
    sees(schedules, &commit)
}

fn ends(schedules: &mut Schedules, uid: u128, second: i64) {
    let mut commit = Commit::default();
    let head = head(InstanceUid(Uuid::from_u128(uid)));
    commit.writes.heads.push(Head { ended_at: Some(at(second)), ..head });
    assert_eq!(sees(schedules, &commit), Ok(()));
}

fn settles(schedules: &mut Schedules, counts: Counts) {
    let turn = Turn { state: State { counts, ..settled(3) }, wake_at: None };
    let write = ScheduleWrite { namespace: Namespace::default(), id: id(), version: 1, turn };
    assert_eq!(schedules.sees(&Seen::Settled(&write)), Ok(()));
}

fn at_end(mut schedules: Schedules) -> Result<(), String> {
    rests(&mut schedules, &Counted::default(), &[], &[])
}

#[test]
fn s05_each_due_time_is_started_once_and_not_before_it_has_come() {
    let mut schedules = created(Overlap::Allow);
    for (due, second) in [("0001", 1), ("0002", 2), ("0003", 5)] {
        assert_eq!(starts(&mut schedules, due, second as u128, second), Ok(()));
    }
    says(starts(&mut schedules, "0001", 9, 6), "twice for 2027-01-15T08:00:01");
    says(starts(&mut schedules, "0004", 9, 6), "nothing was due");
    settles(&mut schedules, Counts { started: 2, existed: 1, ..Counts::default() });
    assert_eq!(at_end(schedules), Ok(()));
    says(starts(&mut created(Overlap::Allow), "0002", 9, 1), "before it had come");
    says(starts(&mut created(Overlap::Allow), "0000", 9, 1), "nothing was due");
}

#[test]
fn s05_none_is_passed_over_without_a_reason() {
    let mut schedules = created(Overlap::Skip);
    assert_eq!(starts(&mut schedules, "0001", 1, 1), Ok(()));
    ends(&mut schedules, 1, 2);
    assert_eq!(starts(&mut schedules, "0003", 3, 3), Ok(()));
    settles(&mut schedules, Counts { started: 2, skipped: 1, ..Counts::default() });
    assert_eq!(at_end(schedules), Ok(()), "the first was open when the second was due");
    let mut schedules = created(Overlap::Skip);
    assert_eq!(starts(&mut schedules, "0001", 1, 1), Ok(()));
    ends(&mut schedules, 1, 2);
    says(at_end(schedules), "never started for 2027-01-15T08:00:03");
    let mut schedules = created(Overlap::Queue { max: 1_000 });
    assert_eq!(starts(&mut schedules, "0001", 1, 1), Ok(()));
    says(at_end(schedules), "never started for 2027-01-15T08:00:02");
}

#[test]
fn s05_what_became_of_each_is_noted_once() {
    let mut schedules = created(Overlap::Allow);
    for (due, second) in [("0001", 1), ("0002", 2), ("0003", 3)] {
        assert_eq!(starts(&mut schedules, due, second as u128, second), Ok(()));
    }
    settles(&mut schedules, Counts { started: 4, ..Counts::default() });
    says(at_end(schedules), "had 3 due times, and 4 are noted");
}

#[test]
fn s08_they_come_one_after_the_other_where_the_schedule_says_so() {
    for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::Queue { max: 2 }, Overlap::CancelOther] {
        let mut schedules = created(overlap);
        assert_eq!(starts(&mut schedules, "0001", 1, 1), Ok(()));
        says(starts(&mut schedules, "0002", 2, 2), "while that of 2027-01-15T08:00:01");
    }
    let mut schedules = created(Overlap::TerminateOther);
    assert_eq!(starts(&mut schedules, "0001", 1, 1), Ok(()));
    assert_eq!(starts(&mut schedules, "0002", 2, 2), Ok(()));
}

#[test]
fn s11_nothing_is_started_while_it_is_paused_but_what_was_being_started() {
    let mut schedules = created(Overlap::Allow);
    let pending = Due { at: at(1), start_at: at(1), kind: DueKind::Planned };
    let paused = Some(Paused { since: at(2), note: None });
    let state = State { paused, pending: vec![pending], ..settled(2) };
    let change = changed("pause", Some(1), Some((definition(Overlap::Allow), state)));
    assert_eq!(schedules.sees(&Seen::Changed(&change)), Ok(()));
    assert_eq!(starts(&mut schedules, "0001", 1, 3), Ok(()));
    says(starts(&mut schedules, "0002", 2, 3), "while it was paused");
    let change = changed("resume", Some(2), Some((definition(Overlap::Allow), settled(3))));
    assert_eq!(schedules.sees(&Seen::Changed(&change)), Ok(()));
    says(starts(&mut schedules, "0003", 3, 4), "nothing was due");
}

#[test]
fn s12_what_is_made_up_for_may_be_started_whatever_was_due() {
    let mut schedules = created(Overlap::Allow);
    let span = everstep_engine::schedule::Backfill {
        operation: "o".to_owned(),
        settled: Timestamp(at(-5).0 - 1),
        until: at(0),
        beside: true,
    };
    let state = State { backfills: vec![span], ..settled(0) };
    let change = changed("backfill", Some(1), Some((definition(Overlap::Allow), state)));
    assert_eq!(schedules.sees(&Seen::Changed(&change)), Ok(()));
    let starts_before = |schedules: &mut Schedules, minute_and_second: &str| {
        let mut commit = Commit::default();
        let id = format!("s:20270115T07{minute_and_second}Z").parse().expect("an id");
        commit.writes.created.push(Head { id, created_at: at(1), ..head(ONE) });
        sees(schedules, &commit)
    };
    assert_eq!(starts_before(&mut schedules, "5955"), Ok(()));
    says(starts_before(&mut schedules, "5954"), "nothing was due");
}
