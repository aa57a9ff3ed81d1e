//! `everstep check`: of the example workflows, whose code this program has.

use std::process::ExitCode;

use everstep_check::Options;

use crate::failure::Failure;

/// The check has printed what it found, and how it failed.
pub(super) async fn run(options: Options) -> Result<(), Failure> {
    let check = move || everstep_check::check(&everstep_examples::registry(), &options);
    let code = tokio::task::spawn_blocking(check).await.map_err(anyhow::Error::from)?;
    if code == ExitCode::SUCCESS { Ok(()) } else { Err(Failure::Said(code)) }
}
