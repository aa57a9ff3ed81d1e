//! The command line: reads journals, replays them, prints what was found, and says by its exit status whether all is well.

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{ArgGroup, Parser};
use everstep_protocol::{BuildName, Namespace, Pin, WorkflowName};
use everstep_sdk::Registry;
use everstep_worker::Settings;
use serde::Serialize;

use crate::{
    Finding, Findings, findings, guard,
    live::{Asked, Live, LiveError},
    saved::{Saved, Unread},
};

/// What the exit codes mean.
const EXIT_CODES: &str = "\
Exit codes:
  0  every instance that was checked would go on
  1  some would break, or their journals could not be read
  2  the command line cannot be used, or the journals not be found
  3  the server cannot be reached";

/// Feed the journals of open instances to the code of this program, and list those that would break. No step is run
#[derive(Clone, Debug, Parser)]
#[command(name = "check", after_help = EXIT_CODES, group(ArgGroup::new("source").required(true)))]
pub struct Options {
    /// Read what `everstep instances export` has written there
    #[arg(long, value_name = "DIR", group = "source")]
    pub journals: Option<PathBuf>,
    /// Ask the coordinator at this address for its open instances
    #[arg(long, value_name = "URL", group = "source")]
    pub live: Option<String>,
    /// The namespace to ask for
    #[arg(long, default_value = "default", requires = "live")]
    pub namespace: Namespace,
    /// Only this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// The build that the code counts as; the executable's hash if absent
    #[arg(long)]
    pub build: Option<BuildName>,
    /// An instance that was not checked counts as one that would break: its workflow is not served by this program, it is pinned to
    /// another build, or what it needs is sensitive
    #[arg(long)]
    pub all: bool,
    /// Check instances that are pinned to other builds too, as before they are moved to this one
    #[arg(long)]
    pub pinned: bool,
    /// Print JSON, one value a line
    #[arg(long)]
    pub json: bool,
}

/// Why nothing, or not everything, was checked.
enum Trouble {
    Usage(String),
    Unreachable(String),
    /// Whoever read what is printed has gone.
    Unread(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Unread(error)
    }
}

impl From<LiveError> for Trouble {
    fn from(error: LiveError) -> Self {
        let said = error.to_string();
        match error {
            LiveError::Url { .. } => Self::Usage(said),
            LiveError::Unreachable { .. } => Self::Unreachable(said),
            LiveError::Refused(_) => Self::Usage(format!("the journals cannot be read: {said}")),
        }
    }
}

/// Checks with the arguments of this process: all that a program of its own needs.
///
/// ```no_run
/// # use everstep_sdk::{Registry, Workflow, Error};
/// fn main() -> std::process::ExitCode {
///     let registry = Registry::new().workflow_fn("fulfil", |_: Workflow, order: String| async { Ok::<_, Error>(order) });
///     everstep_check::main(&registry)
/// }
/// ```
pub fn main(registry: &Registry) -> ExitCode {
    run(registry, std::env::args_os())
}

/// Checks with these arguments, of which the first is how the command is called: for a program that does more than this.
pub fn run(registry: &Registry, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Options::try_parse_from(args) {
        Ok(options) => check(registry, &options),
        Err(error) => {
            // Help is an error to clap; if nobody reads it there is nobody to tell.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// Checks with these options. Must not be called on a runtime.
pub fn check(registry: &Registry, options: &Options) -> ExitCode {
    check_to(registry, options, &mut io::stdout().lock())
}

/// As [`check`], with what was found written there.
pub fn check_to(registry: &Registry, options: &Options, out: &mut dyn Write) -> ExitCode {
    match checked(registry, options, out) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(trouble) => {
            let (said, code) = match trouble {
                Trouble::Usage(said) => (said, 2),
                Trouble::Unreachable(said) => (format!("{said}; trying again is safe"), 3),
                Trouble::Unread(error) => (error.to_string(), 1),
            };
            drop(writeln!(io::stderr().lock(), "error: {said}"));
            ExitCode::from(code)
        }
    }
}

/// Whether all is well.
fn checked(registry: &Registry, options: &Options, out: &mut dyn Write) -> Result<bool, Trouble> {
    registry.validate().map_err(|error| Trouble::Usage(error.to_string()))?;
    let settings = Settings { build: options.build.clone(), ..Settings::default() };
    let build = settings.build().map_err(|error| Trouble::Usage(error.to_string()))?;
    let mut check = Check { registry, options, findings: Findings::new(build), out };
    match (&options.journals, &options.live) {
        (Some(dir), _) => check.files(dir)?,
        (None, Some(url)) => check.live(url)?,
        (None, None) => return Err(Trouble::Usage("one of --journals and --live is needed".to_owned())),
    }
    check.finish()
}

struct Check<'a> {
    registry: &'a Registry,
    options: &'a Options,
    findings: Findings,
    out: &'a mut dyn Write,
}

/// One instance, for programs.
#[derive(Serialize)]
struct Line<'a> {
    workflow: &'a str,
    id: &'a str,
    #[serde(flatten)]
    finding: &'a Finding,
}

/// The last line, for programs.
#[derive(Serialize)]
struct Last<'a> {
    summary: &'a Findings,
}

impl Check<'_> {
    fn files(&mut self, dir: &Path) -> Result<(), Trouble> {
        for file in journals(dir).map_err(|error| {
            Trouble::Usage(format!("--journals {} cannot be read: {error}", dir.display()))
        })? {
            match fs::read_to_string(&file) {
                Ok(text) => self.text(&file.display().to_string(), &text)?,
                Err(error) => {
                    let reason = error.to_string();
                    self.found("file", &file.display().to_string(), &Finding::Unreadable { reason })?;
                }
            }
        }
        Ok(())
    }

    fn live(&mut self, url: &str) -> Result<(), Trouble> {
        let mut live = Live::new(Asked {
            url: url.to_owned(),
            namespace: self.options.namespace.to_string(),
            workflow: self.options.workflow.as_ref().map(ToString::to_string),
            seeds: true,
        })?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        while let Some(whole) = runtime.block_on(live.next())? {
            self.text(&format!("{}/{}", whole.named.workflow, whole.named.id), &whole.text)?;
        }
        Ok(())
    }

    /// One instance: `origin` is where it was found, for one that cannot be read.
    fn text(&mut self, origin: &str, text: &str) -> Result<(), Trouble> {
        let (workflow, id, pin, read) = match Saved::read(text) {
            Ok(saved) => (saved.workflow.clone(), saved.id.clone(), saved.pin.clone(), Ok(saved)),
            Err(Unread::Hidden { workflow, id, pin, reason }) => (workflow, id, pin, Err(reason)),
            Err(Unread::Wrong(reason)) => return self.found("file", origin, &Finding::Unreadable { reason }),
        };
        if self.options.workflow.as_ref().is_some_and(|only| *only != workflow) {
            return Ok(());
        }
        let finding = if self.registry.definition(&workflow).is_none() {
            Finding::Unserved
        } else if let Some(build) = self.elsewhere(pin.as_ref()) {
            Finding::Pinned { build }
        } else {
            match read {
                Ok(saved) => guard::replay(self.registry, &self.findings.build, saved).into(),
                Err(reason) => Finding::Hidden { reason },
            }
        };
        self.found(workflow.as_str(), id.as_str(), &finding)
    }

    /// The other build to which an instance is pinned, so that this program never gets it.
    fn elsewhere(&self, pin: Option<&Pin>) -> Option<BuildName> {
        let build = pin.and_then(Pin::build).filter(|build| **build != self.findings.build)?;
        (!self.options.pinned).then(|| build.clone())
    }

    fn found(&mut self, workflow: &str, id: &str, finding: &Finding) -> Result<(), Trouble> {
        self.findings.add(workflow, id, finding);
        if self.options.json {
            return json(self.out, &Line { workflow, id, finding });
        }
        if let Some(line) = findings::line(workflow, id, finding) {
            writeln!(self.out, "{}", plain(&line))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<bool, Trouble> {
        let Findings { breaks, unserved, pinned, hidden, .. } = &self.findings;
        let is_all = unserved.is_empty() && pinned.is_empty() && *hidden == 0;
        let is_well = *breaks == 0 && (is_all || !self.options.all);
        if self.options.json {
            json(self.out, &Last { summary: &self.findings })?;
        } else {
            writeln!(self.out, "{}", plain(&self.findings.to_string()))?;
        }
        self.out.flush()?;
        Ok(is_well)
    }
}

fn json(out: &mut dyn Write, value: &impl Serialize) -> Result<(), Trouble> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    Ok(writeln!(out, "{text}")?)
}

/// Names and messages come from outside: what steers a terminal is shown, not sent.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// The files below a directory whose names end in `.json`, sorted.
fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
