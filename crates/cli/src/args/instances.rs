//! `everstep instances`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use everstep_protocol::{BuildName, InstanceId, WorkflowName};

/// Commands about instances.
#[derive(Debug, Subcommand)]
pub enum InstancesCommand {
    /// List instances, newest first
    List(ListArgs),
    /// Show one instance
    Get {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Its journal too
        #[arg(long)]
        journal: bool,
        /// The journal of an earlier run
        #[arg(long, value_name = "N", requires = "journal")]
        run: Option<u32>,
    },
    /// Show what goes on in an instance, as it happens, until it has ended
    Watch {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Go on after this event, which an earlier watch has shown; or now. The current run from its beginning if absent
        #[arg(long, value_name = "CURSOR|now")]
        after: Option<String>,
    },
    /// Show instances that end, as they do
    WatchEnds(WatchEndsArgs),
    /// Write the journals of open instances to files, for `check` before a deploy
    Export(ExportArgs),
    /// Let what runs of an instance finish, and nothing more begin
    Pause {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
    },
    /// Let a paused instance go on
    Resume {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
    },
    /// Ask an instance to end by itself, with its clean-up
    Cancel {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Why; stands in its journal
        #[arg(long)]
        reason: Option<String>,
        /// How long it may take, such as "5 min"; then it is terminated
        #[arg(long, value_name = "DURATION")]
        within: Option<String>,
        /// Run its compensations when it ends with the cancel
        #[arg(long)]
        rollback: bool,
    },
    /// Run an instance again, in a new run with the same input and keys
    Restart {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Begin again at this step; what was called before its outcome was known stays
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// Which call of that name; the first if absent
        #[arg(long, requires = "from")]
        count: Option<u32>,
        /// Steps with the same input as before get their outputs from the run before, without a call
        #[arg(long, conflicts_with = "from")]
        reuse: bool,
    },
    /// Remove every trace of an ended instance
    Delete {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Terminate it first if it has not ended
        #[arg(long)]
        terminate: bool,
    },
    /// End an instance now
    Terminate {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// Why; stands in its journal
        #[arg(long)]
        reason: Option<String>,
        /// Run its compensations first, last call first; it is open until they are over
        #[arg(long)]
        rollback: bool,
    },
    /// Let only workers of one build take an instance up
    Pin {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// The build
        #[arg(long)]
        build: BuildName,
    },
    /// Let workers of any build take an instance up
    Unpin {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
    },
    /// Let an instance that is parked in attention go on
    Retry {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
    },
}

/// Options of `instances watch-ends`.
#[derive(Debug, Args)]
pub struct WatchEndsArgs {
    /// Only of this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// Only with this end: complete, errored, terminated or cancelled
    #[arg(long)]
    pub status: Option<String>,
    /// Only what has this attribute; may be given several times
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub attributes: Vec<String>,
    /// Go on after this event, which an earlier watch has shown; or from the beginning of what is kept. Now if absent
    #[arg(long, value_name = "CURSOR|beginning")]
    pub after: Option<String>,
}

/// Names an instance.
#[derive(Debug, Args)]
pub struct InstanceArgs {
    /// The workflow
    pub workflow: WorkflowName,
    /// The instance's id
    pub id: InstanceId,
}

/// Options of `instances list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// Only this status: open, queued, running, waiting, pausing, paused, attention, complete, errored,
    /// terminated or cancelled
    #[arg(long)]
    pub status: Option<String>,
    /// Only what was created at this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub created_from: Option<String>,
    /// Only what was created before this time
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<String>,
    /// Only what ended at this time or later
    #[arg(long, value_name = "TIME")]
    pub ended_from: Option<String>,
    /// Only what ended before this time
    #[arg(long, value_name = "TIME")]
    pub ended_before: Option<String>,
    /// Only what ended with an error of this name or kind, or is parked with this code
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// Only what has an id that begins so
    #[arg(long, value_name = "TEXT")]
    pub id_prefix: Option<String>,
    /// Only what has this attribute; may be given several times
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub attributes: Vec<String>,
    /// How many, 1 to 200; default 50
    #[arg(long)]
    pub limit: Option<u32>,
    /// Where an earlier page ended
    #[arg(long)]
    pub cursor: Option<String>,
}

/// Options of `instances export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The directory, one file for each instance; made if absent
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Only this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// With their seeds, without which the check cannot repeat what they draw. Whoever has a seed can foretell the draws
    #[arg(long)]
    pub seeds: bool,
}
