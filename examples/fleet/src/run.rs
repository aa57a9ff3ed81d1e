//! A fleet of real processes on one machine, for the fleet demo: started, disturbed, counted.

mod disturb;
mod processes;

use std::{
    collections::HashMap,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_examples::{
    audit::charged_twice,
    orders::{Case, Tally},
};
use everstep_testbed::Installation;

pub(crate) use self::disturb::Purges;
use self::processes::Fleet;

/// Without an ended instance for this long a run has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// From the first order published to the last instance ended.
    pub(crate) took: Duration,
    /// What became of the orders.
    pub(crate) tally: Tally,
    /// What the purges took, if the run was disturbed.
    pub(crate) purges: Option<Purges>,
}

/// Runs all orders on a fresh installation.
pub(crate) fn run(python: &str, cases: &[Case], disturbed: bool) -> Result<Outcome> {
    let installation = Installation::fresh("fleet")?;
    let directory = tempfile::tempdir()?;
    let ledger = directory.path().join("charges.jsonl");
    let mut fleet = Fleet::start(&installation, &ledger)?;
    let began = Instant::now();
    let producer = publish(python, &installation)?;
    let purges = disturbed.then(|| disturb::disturb(&mut fleet, &installation, cases.len())).transpose()?;
    let accepted = accepted(producer)?;
    wait(&installation, accepted)?;
    let took = began.elapsed();
    let ended = fleet.endings()?;
    let as_expected = cases.iter().filter(|case| ended.get(&case.id) == Some(&case.expect)).count();
    report_strays(cases, &ended);
    let (charged, twice) = charged_twice(&ledger)?;
    let tally = Tally { accepted, ended: as_expected, charged, charged_twice: twice };
    Ok(Outcome { took, tally, purges })
}

/// The first few orders that did not end as expected: where to look.
fn report_strays(cases: &[Case], ended: &HashMap<String, String>) {
    for case in cases.iter().filter(|case| ended.get(&case.id) != Some(&case.expect)).take(5) {
        println!("  {}: expected {}, is {:?}", case.id, case.expect, ended.get(&case.id));
    }
}

/// A Python that has pika: the given one, or one from a virtual environment that is made for it.
pub(crate) fn python(given: Option<String>) -> Result<String> {
    if let Some(python) = given {
        return Ok(python);
    }
    let output = Command::new("scripts/python-env.sh").output().context("run scripts/python-env.sh")?;
    if !output.status.success() {
        bail!("no Python with pika: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().last().context("scripts/python-env.sh printed nothing")?.trim().to_owned())
}

fn publish(python: &str, installation: &Installation) -> Result<std::process::Child> {
    Command::new(python)
        .arg("examples/producers/publish_orders.py")
        .args(["--url", &installation.amqp, "--orders", "examples/orders.jsonl"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .context("start the producer")
}

/// How many orders the broker confirmed to the producer.
fn accepted(producer: std::process::Child) -> Result<usize> {
    let output = producer.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("the producer failed: {text}");
    }
    let count = text.split_whitespace().find_map(|word| word.replace(',', "").parse().ok());
    count.with_context(|| format!("the producer printed no count: {text}"))
}

fn wait(installation: &Installation, accepted: usize) -> Result<()> {
    let mut last = (0, Instant::now());
    loop {
        let ended: usize = installation.sql("SELECT count(*) FROM instance WHERE status <> 0")?.parse()?;
        if ended >= accepted {
            return Ok(());
        }
        if ended > last.0 {
            last = (ended, Instant::now());
        }
        if last.1.elapsed() > PATIENCE {
            bail!("only {ended} of {accepted} instances have ended, and none for a minute");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
