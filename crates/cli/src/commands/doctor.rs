//! `everstep doctor`, and `everstep breaches`.

use std::process::ExitCode;

use super::Asking;
use crate::{
    answer::{self, BreachList, Diagnosis},
    failure::Failure,
    show,
};

/// The exit code where something is not as it should be.
const FOUND: u8 = 5;

/// Prints what is wrong with the installation; fails if anything is.
pub(super) async fn run(asking: &Asking) -> Result<(), Failure> {
    let answer = asking.client.doctor().await?;
    let diagnosis: Diagnosis = answer::read(&answer.text)?;
    asking.print(&answer, |_| Ok(show::diagnosis(&diagnosis)))?;
    if diagnosis.healthy { Ok(()) } else { Err(Failure::Said(ExitCode::from(FOUND))) }
}

/// Lists what the auditor has found and mended.
pub(super) async fn breaches(asking: &Asking, limit: Option<u32>) -> Result<(), Failure> {
    let answer = asking.client.breaches(limit).await?;
    asking.print(&answer, |text| Ok(show::breaches(&answer::read::<BreachList>(text)?.breaches)))
}
