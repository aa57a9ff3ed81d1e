//! Shows that each planted fault turns its ordinary test red: builds the tests once with the feature `planted`, and runs each without
//! its fault, when it must be green, and with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Read,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{FAULTS, Fault};

/// A test that takes longer has been brought to a standstill by its fault: that is red too.
const PATIENCE: Duration = Duration::from_mins(1);
/// Names the fault to the processes of tests.
const VARIABLE: &str = "EVERSTEP_PLANTED";

/// What came of the test of one fault.
#[derive(Clone, Debug)]
pub struct Proved {
    pub fault: &'static Fault,
    /// Without the fault the test was run and passed.
    pub green: bool,
    /// With the fault it did not pass.
    pub red: bool,
}

impl fmt::Display for Proved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { name, package, test } = self.fault;
        let word = match (self.green, self.red) {
            (true, true) => "red",
            (true, false) => "NOT RED",
            (false, _) => "NOT GREEN WITHOUT IT",
        };
        write!(f, "{name:<26} {word:<8} {package} {test}")
    }
}

/// Builds the tests, and runs those of all faults, or of the one of this name. `done` sees each.
pub fn prove(only: &str, mut done: impl FnMut(&Proved)) -> Result<Vec<Proved>, String> {
    let faults: Vec<_> = FAULTS.iter().filter(|fault| only.is_empty() || fault.name == only).collect();
    let packages: BTreeSet<_> = faults.iter().map(|fault| fault.package).collect();
    let programs = build(&packages)?;
    let prove = |fault: &&'static Fault| {
        let programs = programs.get(fault.package).map_or(&[][..], Vec::as_slice);
        let ends = |planted, ran| !fault.test.is_empty() && run(programs, fault.test, planted) == ran;
        let (green, red) = (ends(None, Ran::Passed), ends(Some(fault.name), Ran::Failed));
        let proved = Proved { fault, green, red };
        done(&proved);
        proved
    };
    Ok(faults.iter().map(prove).collect())
}

/// A program of tests, and where it is run.
struct Program {
    path: PathBuf,
    directory: PathBuf,
}

/// The programs of tests, by package.
fn build(packages: &BTreeSet<&str>) -> Result<BTreeMap<String, Vec<Program>>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--no-run", "--message-format=json", "--features", "everstep-protocol/planted"]);
    cargo.args(["-p", "everstep-protocol"]);
    for package in packages {
        cargo.args(["-p", package]);
    }
    let built = cargo.stderr(Stdio::inherit()).output().map_err(|error| format!("cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests were not built".to_owned());
    }
    let mut programs: BTreeMap<String, Vec<Program>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let (Some(path), Some(manifest)) =
            (message["executable"].as_str(), message["manifest_path"].as_str().map(PathBuf::from))
        else {
            continue;
        };
        let Some(directory) = manifest.parent().filter(|_| message["profile"]["test"] == true) else {
            continue;
        };
        let folder = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let program = Program { path: path.into(), directory: directory.to_owned() };
        programs.entry(format!("everstep-{folder}")).or_default().push(program);
    }
    Ok(programs)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    /// No test has this name.
    Nothing,
    Passed,
    Failed,
}

fn run(programs: &[Program], test: &str, fault: Option<&str>) -> Ran {
    let mut ran = Ran::Nothing;
    for program in programs {
        match run_one(program, test, fault) {
            Ran::Nothing => {}
            Ran::Passed => ran = Ran::Passed,
            Ran::Failed => return Ran::Failed,
        }
    }
    ran
}

fn run_one(program: &Program, test: &str, fault: Option<&str>) -> Ran {
    let mut command = Command::new(&program.path);
    command.arg(test).current_dir(&program.directory).env_remove(VARIABLE);
    command.envs(fault.map(|fault| (VARIABLE, fault)));
    let Ok(mut child) = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() else {
        return Ran::Failed;
    };
    let stdout = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut said = String::new();
        // What cannot be read says nothing.
        let _ = stdout.map(|mut stdout| stdout.read_to_string(&mut said));
        said
    });
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
            Ok(None) | Err(_) => break None,
        }
    };
    if status.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let said = reader.join().unwrap_or_default();
    match status {
        Some(status) if !status.success() => Ran::Failed,
        None => Ran::Failed,
        Some(_) if said.contains("result: ok. 0 passed") => Ran::Nothing,
        Some(_) => Ran::Passed,
    }
}
