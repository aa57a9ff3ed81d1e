//! Tables for people. What others wrote (names, messages) is shown without control characters, so that it cannot steer
//! the terminal.

mod access;
mod audit;
mod doctor;
mod schedule;

use std::{fmt::Write as _, io::IsTerminal};

use comfy_table::{Cell, Color, Table, presets};

use crate::answer::{
    Bulk, Call, Child, Decision, Entry, Hook, Instance, Ledger, Question, QuestionList, Reason, Rejected,
    Rollback,
};

pub use self::access::{about_new_access_token, access_tokens, secret};
pub use self::audit::actions;
pub use self::doctor::{breaches, diagnosis};
pub use self::schedule::{schedule, schedule_changes, schedules};

/// Text in which control characters are escaped.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// A list of instances.
#[must_use]
pub fn instances(instances: &[Instance]) -> String {
    let mut table = table(&["WORKFLOW", "ID", "STATUS", "REASON", "STEPS", "CREATED AT"]);
    for instance in instances {
        table.add_row([
            Cell::new(plain(&instance.workflow)),
            Cell::new(plain(&instance.id)),
            status(instance.status.as_deref()),
            Cell::new(why(instance)),
            Cell::new(instance.steps),
            Cell::new(plain(&instance.created_at)),
        ]);
    }
    finish(table)
}

/// Everything about one instance.
#[must_use]
pub fn instance(instance: &Instance) -> String {
    let mut table = table(&[]);
    let mut line = |label: &str, cell: Cell| {
        table.add_row([Cell::new(label), cell]);
    };
    let text = |text: &str| Cell::new(plain(text));
    line("instance", text(&format!("{}/{}/{}", instance.namespace, instance.workflow, instance.id)));
    line("status", status(instance.status.as_deref()));
    let why = why(instance);
    if !why.is_empty() {
        line("reason", Cell::new(why));
    }
    line("run", Cell::new(instance.run));
    if instance.generation > 1 {
        line("generation", Cell::new(instance.generation));
    }
    line("steps", Cell::new(instance.steps));
    line("created at", text(&instance.created_at));
    if let Some(ended_at) = &instance.ended_at {
        line("ended at", text(ended_at));
    }
    if let Some(pin) = &instance.pin {
        let build = pin.build().map_or("that of the worker that takes it up first", |build| build.as_str());
        line("pinned to build", text(build));
    }
    if let Some(parent) = &instance.parent {
        line("parent", text(&format!("{}/{}", parent.workflow, parent.id)));
    }
    if let Some(holder) = &instance.holder {
        line("holder", text(&format!("{} on {}, build {}", holder.session, holder.host, holder.build)));
    }
    if let Some(attention) = &instance.attention {
        line("asks since", text(&attention.since));
    }
    for unread in &instance.events_unread {
        line("unread events", text(&format!("{:?}: {}", unread.r#type, unread.count)));
    }
    if let Some(hint) = &instance.events_hint {
        line("hint", text(hint));
    }
    for (name, value) in &instance.attributes {
        line("attribute", text(&format!("{name}={value}")));
    }
    if let Some(state) = &instance.state {
        line("state", text(state.get()));
    }
    if let Some(output) = &instance.output {
        line("output", text(output.get()));
    }
    let mut shown = finish(table);
    if instance.waits_open > 1 {
        shown.push('\n');
        shown.push_str(&waits(&instance.waits));
        let missing = instance.waits_open.saturating_sub(instance.waits.len() as u64);
        if missing > 0 {
            writeln!(shown, "and {missing} more").expect("a string takes any text");
        }
    }
    if !instance.questions.is_empty() {
        shown.push('\n');
        shown.push_str(&asked(&instance.questions));
    }
    if !instance.children.is_empty() {
        shown.push('\n');
        shown.push_str(&children(&instance.children));
        let missing = instance.children_total.saturating_sub(instance.children.len() as u64);
        if missing > 0 {
            writeln!(shown, "and {missing} more").expect("a string takes any text");
        }
    }
    if let Some(rollback) = &instance.rollback {
        shown.push_str(&undone(rollback));
    }
    shown
}

/// How each compensation ended, in the order in which they ran.
fn undone(rollback: &Rollback) -> String {
    if rollback.compensations.is_empty() {
        return String::new();
    }
    let mut table = table(&["COMPENSATION", "OUTCOME", "ERROR"]);
    for undone in &rollback.compensations {
        let error = undone.error.as_ref().map(|error| format!("{}: {}", error.name, error.message));
        table.add_row([call(&undone.call), plain(&undone.outcome), plain(&error.unwrap_or_default())]);
    }
    let mut shown = format!("\n{}", finish(table));
    if rollback.more > 0 {
        writeln!(shown, "and {} more, see the journal", rollback.more).expect("a string takes any text");
    }
    shown
}

/// Operations on many instances.
#[must_use]
pub fn bulks(bulks: &[Bulk]) -> String {
    let mut table =
        table(&["ID", "OPERATION", "WHERE", "STATE", "LOOKED AT", "MATCHED", "DONE", "REFUSED", "BEGAN AT"]);
    for bulk in bulks {
        let conditions: Vec<_> =
            bulk.which.iter().map(|(field, value)| format!("{field} {}", words(value))).collect();
        table.add_row([
            plain(&bulk.id),
            plain(&bulk.operation),
            plain(&conditions.join(", ")),
            plain(&bulk.state),
            bulk.looked_at.to_string(),
            bulk.matched.to_string(),
            bulk.done.to_string(),
            bulk.refused.to_string(),
            plain(&bulk.created_at),
        ]);
    }
    finish(table)
}

/// A text without its quotes, anything else as JSON.
fn words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn asked(questions: &[Question]) -> String {
    let mut table = table(&["QUESTION", "ABOUT", "SINCE", "ANSWERS"]);
    for question in questions {
        table.add_row([
            plain(&question.question),
            question.call.as_ref().map(call).unwrap_or_default(),
            plain(&question.since),
            plain(&question.choices.join(", ")),
        ]);
    }
    finish(table)
}

fn children(children: &[Child]) -> String {
    let mut table = table(&["CHILD", "STATUS", ""]);
    for child in children {
        table.add_row([
            Cell::new(plain(&format!("{}/{}", child.workflow, child.id))),
            status(Some(child.status.as_deref().unwrap_or("not there"))),
            Cell::new(if child.detached { "detached" } else { "" }),
        ]);
    }
    finish(table)
}

fn waits(waits: &[Reason]) -> String {
    let mut table = table(&["WAITS FOR", "CALL", "SINCE", "UNTIL"]);
    for wait in waits {
        table.add_row([
            plain(&wait.kind),
            wait.call.as_ref().map(call).unwrap_or_default(),
            plain(wait.since.as_deref().unwrap_or_default()),
            plain(wait.until.as_deref().unwrap_or_default()),
        ]);
    }
    finish(table)
}

/// A journal.
#[must_use]
pub fn journal(entries: &[Entry]) -> String {
    let mut table = table(&["POSITION", "AT", "ENTRY", "CALL", "DETAIL"]);
    for entry in entries {
        table.add_row([
            entry.position.to_string(),
            plain(&entry.at),
            plain(&entry.kind),
            entry.call.as_ref().map(call).unwrap_or_default(),
            plain(&detail(entry)),
        ]);
    }
    finish(table)
}

/// One entry as a line of a timeline, with where a watch goes on after it.
#[must_use]
pub fn line(cursor: Option<&str>, entry: &Entry) -> String {
    let call = entry.call.as_ref().map(call).unwrap_or_default();
    let line =
        format!("{}  {:8} {:12} {call}  {}", entry.at, cursor.unwrap_or_default(), entry.kind, detail(entry));
    plain(line.trim_end()) + "\n"
}

/// What an instance is doing now, as a line of a timeline.
#[must_use]
pub fn happened(instance: &Instance) -> String {
    let why = why(instance);
    let why = if why.is_empty() { why } else { format!(": {why}") };
    plain(&format!("= {}{why}", instance.status.as_deref().unwrap_or("not known"))) + "\n"
}

/// An instance that has ended, as a line.
#[must_use]
pub fn ended(cursor: Option<&str>, instance: &Instance) -> String {
    let at = instance.ended_at.as_deref().unwrap_or_default();
    let status = instance.status.as_deref().unwrap_or("not known");
    let (name, cursor) = (format!("{}/{}", instance.workflow, instance.id), cursor.unwrap_or_default());
    plain(format!("{at}  {status:10} {name}  {cursor}  {}", why(instance)).trim_end()) + "\n"
}

fn detail(entry: &Entry) -> String {
    let mut parts = Vec::new();
    if let Some(attempt) = entry.attempt {
        parts.push(format!("attempt {attempt}"));
    }
    parts.extend(entry.outcome.clone());
    parts.extend(entry.wait.clone());
    parts.extend(entry.until.as_ref().map(|until| format!("until {until}")));
    parts.extend(entry.code.clone());
    parts.extend(entry.message.clone());
    parts.extend(entry.error.as_ref().map(|error| format!("{}: {}", error.name, error.message)));
    parts.extend(entry.retry_at.as_ref().map(|at| format!("again at {at}")));
    parts.join(", ")
}

/// What people are asked.
#[must_use]
pub fn questions(list: &QuestionList) -> String {
    let mut table = table(&["WORKFLOW", "ID", "QUESTION", "KIND", "SINCE", "ABOUT"]);
    for question in &list.questions {
        table.add_row([
            plain(&question.workflow),
            plain(&question.id),
            plain(&question.question),
            plain(&question.kind),
            plain(&question.since),
            question.call.as_ref().map_or_else(|| plain(&question.message), call),
        ]);
    }
    let mut shown = finish(table);
    if let Some(next) = &list.next {
        writeln!(shown, "more with --after {}", plain(next)).expect("a string takes any text");
    }
    shown
}

/// Calls of steps.
#[must_use]
pub fn ledger(list: &Ledger) -> String {
    let mut table =
        table(&["WORKFLOW", "ID", "CALL", "CLASS", "CALLS", "OUTCOME", "DECIDED", "REFERENCE", "KEY"]);
    for entry in &list.entries {
        let decided = entry.decision.as_ref().map(decided).unwrap_or_default();
        table.add_row([
            plain(&entry.workflow),
            plain(&entry.id),
            call(&entry.call),
            plain(&entry.class),
            entry.calls.to_string(),
            plain(&entry.outcome),
            decided,
            plain(entry.reference.as_deref().unwrap_or_default()),
            plain(&entry.key),
        ]);
    }
    let mut shown = finish(table);
    if let Some(next) = &list.next {
        writeln!(shown, "more with --after {next}").expect("a string takes any text");
    }
    if list.truncated {
        shown.push_str("there may be more: narrow the search, or raise --limit\n");
    }
    shown
}

fn decided(decision: &Decision) -> String {
    let by = decision.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let why = decision.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
    plain(&format!("{}{by}{why}", decision.choice))
}

/// Questions and what came of answering each.
#[must_use]
pub fn answered(outcomes: &[(Question, &str)]) -> String {
    let mut table = table(&["WORKFLOW", "ID", "QUESTION", "OUTCOME"]);
    for (question, outcome) in outcomes {
        let Question { workflow, id, question, .. } = question;
        table.add_row([plain(workflow), plain(id), plain(question), (*outcome).to_owned()]);
    }
    finish(table)
}

/// Everything about one question.
#[must_use]
pub fn question(question: &Question) -> String {
    let mut table = table(&[]);
    let mut line = |label: &str, text: &str| {
        table.add_row([Cell::new(label), Cell::new(plain(text))]);
    };
    line("instance", &format!("{}/{}", question.workflow, question.id));
    line("question", &question.question);
    line("kind", &question.kind);
    line("asked at", &question.since);
    line("what", &question.message);
    if let Some(key) = &question.key {
        line("idempotency key", key);
    }
    if let Some(evidence) = &question.evidence {
        let error = evidence.error.as_ref().map(|error| format!("{}: {}", error.name, error.message));
        let output = evidence.output.as_ref().map(|output| output.get().to_owned());
        let said = error.or(output).unwrap_or_default();
        line("said too late", &format!("{} at {}: {said}", evidence.outcome, evidence.at));
    }
    line("answers", &question.choices.join(", "));
    finish(table)
}

/// Tokens and who has them.
#[must_use]
pub fn hooks(hooks: &[Hook]) -> String {
    let mut table = table(&["TOKEN", "WORKFLOW", "ID", "STATUS", "SINCE", "KEPT UNTIL"]);
    for hook in hooks {
        table.add_row([
            plain(&hook.token),
            plain(&hook.workflow),
            plain(&hook.id),
            plain(&hook.status),
            plain(&hook.since),
            plain(hook.retain_until.as_deref().unwrap_or_default()),
        ]);
    }
    finish(table)
}

/// Rejected messages.
#[must_use]
pub fn rejected(rejected: &[Rejected]) -> String {
    let mut table = table(&["AT", "CODE", "REASON", "MESSAGE ID", "BYTES"]);
    for message in rejected {
        table.add_row([
            plain(&message.at),
            plain(&message.code),
            plain(&message.reason),
            plain(message.message_id.as_deref().unwrap_or_default()),
            message.body_bytes.to_string(),
        ]);
    }
    finish(table)
}

/// Why an instance is in its status, in one line.
#[must_use]
pub fn why(instance: &Instance) -> String {
    let text = if let Some(attention) = &instance.attention {
        format!("{}: {}", attention.code, attention.message)
    } else if let Some(error) = &instance.error {
        format!("{}: {}", error.name, error.message)
    } else if let Some(termination) = &instance.termination {
        termination.reason.clone().unwrap_or_default()
    } else {
        instance.reason.as_ref().map(reason).unwrap_or_default()
    };
    plain(&text)
}

fn reason(reason: &Reason) -> String {
    if let Some(message) = &reason.message {
        return message.clone();
    }
    let what = match &reason.call {
        None => reason.kind.clone(),
        Some(of) if of.kind == reason.kind => call(of),
        Some(of) if reason.kind == "remote_step" => format!("remote {}", call(of)),
        Some(of) => format!("{} of {}", reason.kind, call(of)),
    };
    let what = match &reason.instance {
        Some(other) => format!("{what}: {}/{}", other.workflow, other.id),
        None => what,
    };
    reason.until.as_ref().map_or_else(|| what.clone(), |until| format!("{what} until {until}"))
}

fn call(call: &Call) -> String {
    plain(&format!("{} \"{}\" #{}", call.kind, call.name, call.count))
}

fn status(status: Option<&str>) -> Cell {
    let word = status.unwrap_or("not known");
    let cell = Cell::new(plain(word));
    match word {
        "complete" => cell.fg(Color::Green),
        "errored" | "attention" => cell.fg(Color::Red),
        "running" => cell.fg(Color::Cyan),
        _ => cell,
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !std::io::stdout().is_terminal() {
        table.force_no_tty();
    }
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table
}

fn finish(mut table: Table) -> String {
    table.discover_columns();
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_steers_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(plain("Größe №1"), "Größe №1");
    }
}
