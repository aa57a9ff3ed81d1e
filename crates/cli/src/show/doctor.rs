//! What the doctor says, and what the auditor has mended.

use std::fmt::Write as _;

use comfy_table::Cell;

use super::{finish, plain, table};
use crate::answer::{Breach, Diagnosis};

/// What was found, each with what to do; then what could not be looked at.
#[must_use]
pub fn diagnosis(diagnosis: &Diagnosis) -> String {
    let mut shown = String::new();
    for finding in &diagnosis.findings {
        let lines = [
            format!("{}: {} {}", finding.severity, finding.check, plain(&finding.subject)),
            format!("  {}", plain(&finding.message)),
            format!("  do: {}", plain(&finding.advice)),
            format!("  see: {}", plain(&finding.page)),
        ];
        for line in lines {
            writeln!(shown, "{line}").expect("a string takes any text");
        }
        shown.push('\n');
    }
    let of = |state: &str| {
        let checks = diagnosis.checks.iter().filter(|check| check.state == state);
        checks.map(|check| plain(&check.check)).collect::<Vec<_>>().join(", ")
    };
    let (good, unknown) = (of("good"), of("unknown"));
    if !unknown.is_empty() {
        writeln!(shown, "could not be looked at: {unknown}").expect("a string takes any text");
    }
    if !good.is_empty() {
        writeln!(shown, "good: {good}").expect("a string takes any text");
    }
    shown
}

/// A list of breaches.
#[must_use]
pub fn breaches(breaches: &[Breach]) -> String {
    let mut table = table(&["AT", "KIND", "WORKFLOW", "ID", "RUN", "WHAT"]);
    for breach in breaches {
        table.add_row([
            Cell::new(plain(&breach.at)),
            Cell::new(plain(&breach.kind)),
            Cell::new(plain(&breach.workflow)),
            Cell::new(plain(&breach.id)),
            Cell::new(breach.run),
            Cell::new(plain(&breach.message)),
        ]);
    }
    finish(table)
}
