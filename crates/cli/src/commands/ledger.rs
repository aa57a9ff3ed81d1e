//! `everstep ledger`.

use everstep_client::api::LedgerSearch;

use super::Asking;
use crate::{
    answer::{self, Ledger},
    args::{FindArgs, LedgerCommand},
    failure::Failure,
    show,
};

pub(super) async fn run(asking: &Asking, command: LedgerCommand) -> Result<(), Failure> {
    let answer = match command {
        LedgerCommand::Get { instance, step, run, limit, after } => {
            let (workflow, id) = (&instance.workflow, &instance.id);
            asking.client.ledger(workflow, id, (step.as_deref(), run), (after, limit)).await?
        }
        LedgerCommand::Find(args) => asking.client.search_ledger(&meant(args)).await?,
    };
    asking.print(&answer, |text| Ok(show::ledger(&answer::read::<Ledger>(text)?)))
}

fn meant(args: FindArgs) -> LedgerSearch {
    let FindArgs { key, reference, since, until, limit } = args;
    LedgerSearch { key, reference, since, until, limit }
}
