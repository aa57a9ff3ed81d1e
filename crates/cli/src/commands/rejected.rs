//! `everstep rejected`.

use super::Asking;
use crate::{
    answer::{self, RejectedList},
    args::RejectedCommand,
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: RejectedCommand) -> Result<(), Failure> {
    let RejectedCommand::List { limit } = command;
    let answer = asking.client.rejected(limit).await?;
    asking.print(&answer, |text| Ok(show::rejected(&answer::read::<RejectedList>(text)?.rejected)))
}
