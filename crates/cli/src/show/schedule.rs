//! Schedules, for people.

use std::fmt::Write as _;

use super::{finish, plain, table};
use crate::answer::{Schedule, ScheduleAction, ScheduleChange};

/// A list of schedules.
#[must_use]
pub fn schedules(schedules: &[Schedule]) -> String {
    let mut table =
        table(&["ID", "WORKFLOW", "WHEN", "STATE", "NEXT", "STARTED", "SKIPPED", "MISSED", "REFUSED"]);
    for schedule in schedules {
        let next = schedule.next.first().map(|next| next.starts_at.as_str());
        table.add_row([
            plain(&schedule.id),
            plain(&schedule.workflow),
            plain(&when(schedule)),
            plain(&state(schedule)),
            plain(next.unwrap_or_default()),
            schedule.counts.started.to_string(),
            schedule.counts.skipped.to_string(),
            schedule.counts.missed.to_string(),
            schedule.counts.refused.to_string(),
        ]);
    }
    finish(table)
}

/// One schedule: what is to come, and what happened last.
#[must_use]
pub fn schedule(schedule: &Schedule) -> String {
    let mut shown = schedules(std::slice::from_ref(schedule));
    let mut say = |line: String| writeln!(shown, "{}", plain(&line)).expect("a string takes any text");
    if let Some(paused) = &schedule.paused {
        let note = paused.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        say(format!("paused since {}{note}", paused.since));
    }
    if let Some(failing) = &schedule.failing {
        let (code, message) = (failing.code.as_deref(), failing.message.as_deref());
        say(format!(
            "the last start was refused ({}): {}",
            code.unwrap_or_default(),
            message.unwrap_or_default()
        ));
    }
    for open in &schedule.open {
        say(format!("open: {}/{}", open.workflow, open.id));
    }
    if !schedule.waiting.is_empty() {
        say(format!("waiting: {}", schedule.waiting.join(", ")));
    }
    if !schedule.next.is_empty() {
        let mut next = table(&["NEXT DUE", "STARTS AT"]);
        for run in &schedule.next {
            next.add_row([plain(&run.due), plain(&run.starts_at)]);
        }
        write!(shown, "\n{}", finish(next)).expect("a string takes any text");
    }
    if !schedule.recent.is_empty() {
        write!(shown, "\n{}", actions(&schedule.recent)).expect("a string takes any text");
    }
    shown
}

/// Who has changed one.
#[must_use]
pub fn schedule_changes(changes: &[ScheduleChange]) -> String {
    let mut table = table(&["AT", "OPERATION", "BY", "DETAIL"]);
    for change in changes {
        let (by, detail) = (change.by.as_deref(), change.detail.as_deref());
        table.add_row([
            plain(&change.at),
            plain(&change.operation),
            plain(by.unwrap_or_default()),
            plain(detail.unwrap_or_default()),
        ]);
    }
    finish(table)
}

fn actions(actions: &[ScheduleAction]) -> String {
    let mut table = table(&["AT", "DUE", "OUTCOME", "TIMES", "INSTANCE"]);
    for action in actions {
        table.add_row([
            plain(&action.at),
            plain(action.due.as_deref().unwrap_or("by hand")),
            plain(&action.outcome),
            action.times.to_string(),
            plain(action.instance.as_deref().or(action.code.as_deref()).unwrap_or_default()),
        ]);
    }
    finish(table)
}

fn state(schedule: &Schedule) -> String {
    if schedule.failing.is_some() { format!("{}, failing", schedule.state) } else { schedule.state.clone() }
}

fn when(schedule: &Schedule) -> String {
    let behind = |word: &str, text: &Option<String>| {
        text.as_ref().map(|text| format!("{word}{text}")).unwrap_or_default()
    };
    if let Some(cron) = &schedule.cron {
        return format!("{cron}{}", behind(" ", &schedule.zone));
    }
    match (&schedule.every, &schedule.at) {
        (Some(every), _) => format!("every {every}{}", behind(" + ", &schedule.offset)),
        (None, Some(at)) => format!("at {at}"),
        (None, None) => String::new(),
    }
}
