//! The fleet demo: two coordinators, three workers and a label pool as real processes, 1,000 orders from a Python producer. First
//! undisturbed, then with a worker and a coordinator killed and every kind of engine queue purged.

use std::process::ExitCode;

mod run;

use clap::Parser;
use everstep_examples::orders::read;

use crate::run::{Outcome, Purges, run};

/// Runs 1,000 orders on a fleet, twice: undisturbed, then with kills and purges.
#[derive(Debug, Parser)]
struct Arguments {
    /// Python with pika, for the producer.
    #[arg(long, env = "EVERSTEP_PYTHON")]
    python: Option<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let cases = read(None)?;
    let python = run::python(arguments.python)?;
    println!("undisturbed run ...");
    let calm = run(&python, &cases, false)?;
    println!("undisturbed: {:.1} s, {}", calm.took.as_secs_f64(), calm.tally.line("fleet", cases.len()));
    println!(
        "disturbed run: a worker and a coordinator are killed with -9, every kind of queue is purged ..."
    );
    let rough = run(&python, &cases, true)?;
    let purges = rough.purges.unwrap_or_default();
    println!("messages lost to purges: {purges}");
    println!(
        "wall time: {:.1} s undisturbed, {:.1} s disturbed",
        calm.took.as_secs_f64(),
        rough.took.as_secs_f64()
    );
    let good = judge(&calm, &rough, &purges, cases.len());
    println!("{}", rough.tally.line("fleet", cases.len()));
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn judge(calm: &Outcome, rough: &Outcome, purges: &Purges, orders: usize) -> bool {
    let bound = calm.took * 3 + std::time::Duration::from_secs(10);
    let mut good = true;
    let mut check = |holds: bool, what: String| {
        if !holds {
            println!("FAILED: {what}");
            good = false;
        }
    };
    check(calm.tally.is_good(orders), calm.tally.line("undisturbed", orders));
    check(rough.tally.is_good(orders), rough.tally.line("disturbed", orders));
    check(rough.took <= bound, format!("the disturbed run took more than {:.1} s", bound.as_secs_f64()));
    for kind in purges.missing() {
        check(false, format!("no message of kind {kind} was lost to a purge"));
    }
    good
}
