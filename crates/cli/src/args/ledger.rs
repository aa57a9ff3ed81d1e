//! `everstep ledger`.

use clap::{ArgGroup, Args, Subcommand};

use super::InstanceArgs;

/// Commands about the calls that steps have made.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// Show the calls of one instance: key, reference, class, calls, outcome, who decided
    Get {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Only the steps of this name
        #[arg(long)]
        step: Option<String>,
        /// An earlier run; the current one if absent
        #[arg(long)]
        run: Option<u32>,
        /// How many, 1 to 1000; default 100
        #[arg(long)]
        limit: Option<u32>,
        /// Where an earlier page ended
        #[arg(long)]
        after: Option<u64>,
    },
    /// Find calls in all instances, by what a service knows of them
    Find(FindArgs),
}

/// Options of `ledger find`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("by").required(true).args(["key", "reference"]))]
pub struct FindArgs {
    /// The idempotency key that the service was given. Its instance is looked for in the journals of a time: see --since
    #[arg(long)]
    pub key: Option<String>,
    /// What the service calls what was done, as the step said it
    #[arg(long)]
    pub reference: Option<String>,
    /// The instance was created after this: a time such as 2026-01-31T12:00:00Z, or a duration before now; default "7 days"
    #[arg(long, conflicts_with = "reference")]
    pub since: Option<String>,
    /// The instance was created before this
    #[arg(long, conflicts_with = "reference")]
    pub until: Option<String>,
    /// How many, 1 to 1000; default 100
    #[arg(long)]
    pub limit: Option<u32>,
}
