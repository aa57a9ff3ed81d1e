//! How a command fails, what it prints then and with which exit code.

use std::{fmt::Write as _, io, process::ExitCode};

use everstep_client::{Error, Problem};

/// A failed command.
#[derive(Debug)]
pub enum Failure {
    /// The command line or an input cannot be used.
    Usage(String),
    /// The settings cannot be used: all problems.
    Settings(Vec<String>),
    /// The server refused, and says why.
    Problem(Box<Problem>),
    /// The server could not be reached, or its answer was lost.
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What went wrong.
        reason: String,
        /// What the user can do: an advice that is safe.
        advice: String,
    },
    /// What was waited for has ended, but not complete.
    NotComplete {
        /// What, such as `instance fulfil/o-1`.
        what: String,
        /// Its status.
        status: String,
        /// Its error, or who ended it.
        why: Option<String>,
    },
    /// The command has said everything itself.
    Said(ExitCode),
    /// Anything else.
    Other(anyhow::Error),
}

impl Failure {
    /// A failed request, with an advice that is safe where it may have arrived.
    pub fn advising(error: Error, advice: &str) -> Self {
        match error {
            Error::Url { url, reason } => Self::Usage(format!("--url {url:?} is refused: {reason}")),
            Error::Problem(problem) => Self::Problem(problem),
            Error::Unreachable { url, reason, is_sent, .. } => {
                let advice = if is_sent { advice } else { "nothing was sent, trying again is safe" };
                Self::Unreachable { url, reason, advice: advice.to_owned() }
            }
            // The command asks by the routes themselves, which do not know of it.
            Error::StartUnknown { .. } => Self::Other(anyhow::anyhow!(error.to_string())),
            Error::Alien { url, status, .. } => {
                // With its words, where it has some.
                let status = reqwest::StatusCode::from_u16(status)
                    .map_or_else(|_| status.to_string(), |status| status.to_string());
                Self::Other(anyhow::anyhow!("{url} answered {status}; is it an everstep coordinator?"))
            }
            Error::Name(_) | Error::Attributes(_) | Error::Value { .. } => Self::Usage(error.to_string()),
        }
    }

    /// The exit code; [`crate::args::EXIT_CODES`] says what each means.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Problem(_) | Self::Other(_) => ExitCode::from(1),
            Self::Usage(_) | Self::Settings(_) => ExitCode::from(2),
            Self::Unreachable { .. } => ExitCode::from(3),
            Self::NotComplete { .. } => ExitCode::from(4),
            Self::Said(code) => *code,
        }
    }

    /// What is printed on standard error.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        let mut line = |label: &str, value: &str| {
            writeln!(text, "{label}: {}", crate::show::plain(value)).expect("a string takes any text");
        };
        match self {
            Self::Usage(message) => line("error", message),
            Self::Settings(problems) => {
                line("error", "the settings cannot be used");
                for problem in problems {
                    line("  problem", problem);
                }
            }
            Self::Problem(problem) => {
                line("error", &problem.detail);
                if let Some(hint) = &problem.hint {
                    line("  hint", hint);
                }
                line("  code", &problem.code);
                if problem.retry_safe {
                    line("  retry", "trying again is safe");
                }
            }
            Self::Unreachable { url, reason, advice } => {
                line("error", &format!("no answer from {url}: {reason}"));
                line("  retry", advice);
                line(
                    "  hint",
                    "is the coordinator running there? `everstep dev` starts one; --url names another",
                );
            }
            Self::NotComplete { what, status, why } => {
                line("error", &format!("{what} has ended {status}, not complete"));
                if let Some(why) = why {
                    line("  why", why);
                }
            }
            Self::Said(_) => {}
            Self::Other(error) => line("error", &format!("{error:#}")),
        }
        text
    }

    /// Whoever read the output has gone: no failure of ours.
    #[must_use]
    pub fn is_broken_pipe(&self) -> bool {
        let Self::Other(error) = self else { return false };
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::advising(error, "trying again is safe")
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Other(error.into())
    }
}
