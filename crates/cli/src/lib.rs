//! The `everstep` command, as a library so that the demo and tests can use its parts.
//!
//! It wires and shows; it decides nothing. Only `migrate`, `coordinator` and `dev` open a store (rule W13); everything
//! else speaks HTTP through [`everstep_client`]. The environment is read in one module, [`settings`].

pub mod answer;
pub mod args;
pub mod commands;
pub mod failure;
pub mod serve;
pub mod settings;
pub mod show;
pub mod telemetry;
pub mod wait;
mod yaml;

use std::{ffi::OsString, io::Write, process::ExitCode};

use clap::Parser;

use crate::{args::Cli, failure::Failure};

/// Runs a command line and says how it went. Exit codes are listed in [`args::EXIT_CODES`].
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are errors to clap; if nobody reads them there is nobody to tell.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Other(error.into()))
        .and_then(|runtime| runtime.block_on(commands::run(cli)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            drop(write!(std::io::stderr().lock(), "{}", failure.report()));
            failure.exit_code()
        }
    }
}
