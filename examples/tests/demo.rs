//! The demo as a user runs it: real processes, killed with -9 at moments that its own ledger shows. Proves its last line, its
//! exit status, and that what the payment service wrote stays true over any number of kills. Not: that a step is begun only
//! once (the ledger shows each key once), which crates/cli/tests/processes.rs does with a ledger of attempts.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use everstep_examples::{audit::charged_twice, orders};
use everstep_testbed::Process;

const ORDERS: usize = 120;
/// Far beyond what a run takes; a run that is slower is broken.
const PATIENCE: Duration = Duration::from_mins(2);

/// A file of orders, and a data directory.
struct Place {
    directory: tempfile::TempDir,
    orders: usize,
}

impl Place {
    fn new(orders: usize) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let all = include_str!("../orders.jsonl");
        let text: Vec<&str> = all.lines().take(orders).collect();
        assert_eq!(text.len(), orders);
        fs::write(directory.path().join("orders.jsonl"), text.join("\n")).expect("the orders are written");
        Self { directory, orders }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn ledger(&self) -> PathBuf {
        self.data().join("charges.jsonl")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
        command
            .arg("--data")
            .arg(self.data())
            .arg("--orders")
            .arg(self.directory.path().join("orders.jsonl"));
        command.stdin(Stdio::null()).env_remove("RUST_LOG");
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("the demo starts")
    }

    fn spawn(&self) -> Process {
        Process::spawn("demo", &mut self.command()).expect("the demo starts")
    }

    /// The whole lines of the ledger: a last one without an end was never answered.
    fn charges(&self) -> Vec<String> {
        let text = fs::read_to_string(self.ledger()).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// How many orders of the file are valid, and so must be charged.
    fn valid(&self) -> usize {
        let cases =
            orders::read(Some(&self.directory.path().join("orders.jsonl"))).expect("the orders are read");
        cases.iter().filter(|case| case.expect == "complete").count()
    }

    fn good_line(&self) -> String {
        format!("demo: {0} of {0} ended, 0 lost, 0 charged twice", self.orders)
    }

    fn assert_good(&self, output: &Output) {
        assert_eq!(last_line(output), self.good_line(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(charged_twice(&self.ledger()).expect("the ledger is read"), (self.valid(), 0));
    }
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

/// Watches until something holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_prefix(before: &[String], after: &[String]) -> bool {
    after.get(..before.len()).is_some_and(|begin| begin == before)
}

/// The processes whose command line names this file: the payment service of a demo.
fn services_of(ledger: &Path) -> BTreeSet<String> {
    let name = ledger.as_os_str().as_encoded_bytes();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0).any(|argument| argument == name)
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn every_order_ends_and_nobody_is_charged_twice() {
    let place = Place::new(ORDERS);
    place.assert_good(&place.run(&[]));
    until("the payment service ends with the demo", || services_of(&place.ledger()).is_empty());
}

#[test]
fn a_run_that_has_ended_is_begun_afresh_and_strange_files_are_left_alone() {
    let place = Place::new(10);
    place.assert_good(&place.run(&[]));
    let mine = place.data().join("mine.txt");
    fs::write(&mine, "precious").expect("a file is written");
    let first = place.charges();
    place.assert_good(&place.run(&[]));
    assert_eq!(first.len(), place.charges().len());
    place.assert_good(&place.run(&["--fresh"]));
    assert_eq!(fs::read_to_string(mine).expect("the file is there"), "precious");
}

#[test]
fn killed_again_and_again_it_goes_on_where_it_was() {
    let place = Place::new(ORDERS);
    let valid = place.valid();
    // From the first charge to the last, after which orders still cool off, print their labels and ship.
    for at_least in [1, 2, valid / 4, valid / 2, valid - 1, valid] {
        let mut demo = place.spawn();
        until("charges", || place.charges().len() >= at_least);
        demo.kill().expect("the demo is killed");
        let before = place.charges();
        assert!(
            !place.data().join("done").exists(),
            "the demo ended before it was killed at {at_least} charges"
        );
        until("the payment service ends with the demo", || services_of(&place.ledger()).is_empty());
        let after = place.charges();
        assert!(is_prefix(&before, &after), "the ledger was rewritten");
    }
    let before = place.charges();
    place.assert_good(&place.run(&[]));
    assert!(is_prefix(&before, &place.charges()), "what was charged before the last kill was charged again");
    assert_eq!(place.charges().len(), valid, "one charge for each valid order");
}

#[test]
fn killed_before_it_started_everything_it_still_starts_everything() {
    let place = Place::new(ORDERS);
    for _ in 0..3 {
        let mut demo = place.spawn();
        until("the database is made", || place.data().join("everstep.db").exists());
        demo.kill().expect("the demo is killed");
    }
    place.assert_good(&place.run(&[]));
}

#[test]
fn the_planted_fault_is_noticed() {
    // Which requests fail follows from the keys, and those from the orders' ids: the same in every run.
    let place = Place::new(400);
    let output = place.run(&["--planted-attempt-in-key"]);
    let line = last_line(&output);
    let (_, twice) = charged_twice(&place.ledger()).expect("the ledger is read");
    assert!(twice > 0, "{line}");
    assert_eq!(line, format!("demo: 400 of 400 ended, 0 lost, {twice} charged twice"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_second_demo_on_the_same_data_is_refused_and_harms_nothing() {
    let place = Place::new(ORDERS);
    let mut first = place.spawn();
    until("the first charge", || !place.charges().is_empty());
    for arguments in [&[][..], &["--fresh"]] {
        let second = place.run(arguments);
        let told = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{told}");
        assert!(told.contains("another demo runs on") && told.contains("--data"), "{told}");
        assert!(second.stdout.is_empty());
    }
    let mut last = String::new();
    while let Ok(line) = first.line() {
        last = line;
    }
    assert_eq!(last, place.good_line());
    assert!(first.wait(PATIENCE).expect("it ends").success());
}
