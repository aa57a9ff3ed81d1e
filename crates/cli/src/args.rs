//! The command line.

mod access;
mod attention;
mod audit;
mod instances;
mod ledger;
mod schedules;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use everstep_protocol::{EventKey, EventType, InstanceId, Namespace, Pin, Token, WorkflowName};

pub use self::access::{AccessArgs, AccessCommand, Secret};
pub use self::attention::{
    AnswerArgs, AttentionCommand, AttentionListArgs, QuestionFilter, ResolveAllArgs, ResolveArgs,
};
pub use self::audit::AuditArgs;
pub use self::instances::{ExportArgs, InstanceArgs, InstancesCommand, ListArgs, WatchEndsArgs};
pub use self::ledger::{FindArgs, LedgerCommand};
pub use self::schedules::{PutArgs, SchedulesCommand};

/// What the exit codes mean.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the operation failed or was refused; standard error says why
  2  the command line or the settings cannot be used
  3  the server cannot be reached
  4  with --wait and instances watch: what was waited for has ended, but not complete
  5  with doctor: something is not as it should be, or could not be looked at; notes alone are 0";

/// Durable workflows on a worker fleet.
#[derive(Debug, Parser)]
#[command(name = "everstep", version, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    /// What every command knows.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Where the HTTP API is
    #[arg(
        long,
        global = true,
        env = "EVERSTEP_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:7070"
    )]
    pub url: String,
    /// The namespace
    #[arg(
        long,
        global = true,
        env = "EVERSTEP_NAMESPACE",
        hide_env_values = true,
        default_value = "default"
    )]
    pub namespace: Namespace,
    /// The access token that opens the HTTP API, where it demands one. Whoever sees the list of processes sees what is on a
    /// command line: prefer the variable or the file
    #[arg(long, global = true, env = "EVERSTEP_ACCESS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub access_token: Option<Secret>,
    /// A file that holds it, alone
    #[arg(
        long,
        global = true,
        env = "EVERSTEP_ACCESS_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub access_token_file: Option<PathBuf>,
    /// How to print
    #[arg(
        long,
        global = true,
        env = "EVERSTEP_OUTPUT",
        hide_env_values = true,
        value_enum,
        default_value = "table"
    )]
    pub output: Format,
    /// A file of settings in TOML; environment variables go before it
    #[arg(long, global = true, env = "EVERSTEP_CONFIG", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs: the server's answer as it is, one line.
    Json,
    /// The same, for people and programs.
    Yaml,
}

/// What becomes of a restore.
#[derive(Debug, Args)]
pub struct RestoredArgs {
    /// End its questions instead: whatever the history that was lost may have done is known by now
    #[arg(long)]
    pub settled: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Bring the PostgreSQL schema up to this version
    Migrate,
    /// Begin a new life of a restored older database; coordinators must be stopped
    Restored(RestoredArgs),
    /// Run a coordinator on PostgreSQL and RabbitMQ, with the HTTP API
    Coordinator(CoordinatorArgs),
    /// Run everything in this process on an embedded store, with the example workflows
    Dev(DevArgs),
    /// Start an instance of a workflow
    Start(StartArgs),
    /// Look at instances and operate them
    #[command(subcommand)]
    Instances(InstancesCommand),
    /// Operate many instances at once
    #[command(subcommand)]
    Bulk(BulkCommand),
    /// Start instances at their times: cron, intervals, single moments
    #[command(subcommand)]
    Schedules(SchedulesCommand),
    /// Look at what instances ask people, and answer
    #[command(subcommand)]
    Attention(AttentionCommand),
    /// Look up which calls steps have made, under which keys, and what came of them
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Send events to instances
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at tokens and who has them, and resume hooks
    #[command(subcommand)]
    Hooks(HooksCommand),
    /// Feed the journals of open instances to the code of the example workflows, and list those that would break. Your own
    /// code checks itself: give its program a `main` of `everstep::check`, see docs/guides/deploys.md
    Check(everstep_check::Options),
    /// Look at messages that could not be accepted
    #[command(subcommand)]
    Rejected(RejectedCommand),
    /// Make, list and revoke access tokens: what opens the HTTP API
    #[command(subcommand)]
    AccessToken(AccessCommand),
    /// Look up in the audit log who did what, newest first
    Audit(AuditArgs),
    /// Look at the state of the installation: what is wrong, what it means, what to do
    Doctor,
    /// List open instances that nothing would have moved, which the auditor found and mended
    Breaches {
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Print the effective settings as TOML, secrets masked
    Settings(SettingsArgs),
    /// Print the SQL that makes the table of effects in a database of your own, for steps that write to it; see
    /// docs/guides/database-writes.md
    EffectsMigration {
        /// The schema of the table, made if absent; without it the search path of whoever runs the SQL decides
        #[arg(long)]
        schema: Option<everstep_postgres::Schema>,
    },
    /// Make a small project of your own, which runs at once
    New(NewArgs),
    /// Explain the code of an error, a problem, a failure or a parked instance; without one list all codes
    Errors {
        /// The code, such as conflict
        code: Option<String>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
}

/// Options of `coordinator`.
#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// Where to serve HTTP; default from the settings
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
}

/// Options of `dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// The directory of the database; made if absent
    #[arg(long, value_name = "DIR", default_value = ".everstep")]
    pub data: PathBuf,
    /// Where to serve HTTP; default from the settings
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
}

/// Options of `new`.
#[derive(Debug, Args)]
pub struct NewArgs {
    /// The project's name, as cargo takes it
    pub name: String,
    /// Where to make it; default a directory of that name
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Use the crate `everstep` from here, instead of the one that is published
    #[arg(long, value_name = "DIR")]
    pub path: Option<PathBuf>,
}

/// Options of `start`.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// The workflow
    pub workflow: WorkflowName,
    /// The instance's id; generated if absent
    #[arg(long)]
    pub id: Option<InstanceId>,
    /// The input: JSON text, @FILE, or - for standard input; null if absent
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub input: Option<String>,
    /// An attribute to find it by; may be given several times. The value is a number, true, false or a text
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub attributes: Vec<String>,
    /// Start up to 1,000: a file with one JSON object {"id": ..., "input": ...} a line, or - for standard input. A line may
    /// have "attributes", "retention", "pin" and "strict" of its own. All are checked before any is created
    #[arg(long, value_name = "FILE.jsonl|-", conflicts_with_all = ["id", "input", "wait", "attributes"])]
    pub batch: Option<String>,
    /// Wait for the end and print the output
    #[arg(long)]
    pub wait: bool,
    /// A token that no other instance has meanwhile; while one has it, the start is refused and says which
    #[arg(long, value_name = "TOKEN", conflicts_with = "batch")]
    pub hook: Option<Token>,
    /// For how long the token is the instance's at least: a duration such as "10 min", or a moment
    #[arg(long, value_name = "DURATION|MOMENT", requires = "hook")]
    pub hook_retention: Option<String>,
    /// What whoever looks the token up reads: JSON text, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", requires = "hook")]
    pub hook_metadata: Option<String>,
    /// The JSON Schema that every payload of the hook must fit: JSON text, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", requires = "hook")]
    pub hook_schema: Option<String>,
    /// How long it is kept after its end, such as "30 days"
    #[arg(long, value_name = "DURATION")]
    pub retention: Option<String>,
    /// Pin it to this build, or without one to the build of the worker that takes it up first
    #[arg(long, value_name = "BUILD", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub pin: Option<Pin>,
    /// Refuse the start while no worker serves the workflow; or accept it all the same with --strict=false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict: Option<bool>,
}

/// Commands about operations on many instances.
#[derive(Debug, Subcommand)]
pub enum BulkCommand {
    /// Begin one, which goes on in the background; with --dry-run only count
    Start(Box<BulkArgs>),
    /// Operate up to 1,000 instances of a workflow that are named by their ids, at once, and print what became of each
    Ids(Box<IdsArgs>),
    /// List them, newest first
    List {
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Show one, and how far it has come
    Get {
        /// Its id
        id: InstanceId,
        /// Wait until it has ended
        #[arg(long)]
        wait: bool,
    },
    /// Stop one
    Stop {
        /// Its id
        id: InstanceId,
    },
}

/// Options of `bulk start`. Instances that fulfil every condition are operated.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// What is done: pause, resume, cancel, terminate, retry, restart or delete
    pub operation: String,
    /// Of this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// In this status, or open
    #[arg(long)]
    pub status: Option<String>,
    /// Created at this time or later, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub created_from: Option<String>,
    /// Created before this time
    #[arg(long, value_name = "TIME")]
    pub created_before: Option<String>,
    /// Ended at this time or later
    #[arg(long, value_name = "TIME")]
    pub ended_from: Option<String>,
    /// Ended before this time
    #[arg(long, value_name = "TIME")]
    pub ended_before: Option<String>,
    /// Ended with an error of this name or kind, or parked with this code
    #[arg(long, value_name = "CODE")]
    pub error: Option<String>,
    /// With this attribute; may be given several times
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub attributes: Vec<String>,
    /// Only count
    #[arg(long, conflicts_with = "wait")]
    pub dry_run: bool,
    /// Wait until it has ended, and show how far it has come
    #[arg(long)]
    pub wait: bool,
    /// By what a repetition is known; generated if absent
    #[arg(long)]
    pub id: Option<InstanceId>,
    /// How
    #[command(flatten)]
    pub how: HowArgs,
}

/// How many instances are operated.
#[derive(Debug, Args)]
pub struct HowArgs {
    /// Why; with cancel and terminate
    #[arg(long)]
    pub reason: Option<String>,
    /// How long each may take, with cancel
    #[arg(long, value_name = "DURATION")]
    pub within: Option<String>,
    /// Terminate first what has not ended, with delete
    #[arg(long)]
    pub terminate: bool,
    /// Run their compensations, with cancel and terminate
    #[arg(long)]
    pub rollback: bool,
    /// Begin again at this step, with restart
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// Which call of that name; the first if absent
    #[arg(long, requires = "from")]
    pub count: Option<u32>,
    /// Steps with the same input as before get their outputs from the run before, with restart
    #[arg(long, conflicts_with = "from")]
    pub reuse: bool,
}

/// Options of `bulk ids`.
#[derive(Debug, Args)]
pub struct IdsArgs {
    /// What is done: pause, resume, cancel, terminate, retry, restart or delete
    pub operation: String,
    /// The workflow
    pub workflow: WorkflowName,
    /// The ids
    #[arg(required_unless_present = "file")]
    pub ids: Vec<String>,
    /// A file with one id a line, or - for standard input; blank lines are passed over
    #[arg(long, value_name = "FILE|-", conflicts_with = "ids")]
    pub file: Option<String>,
    /// By what a repetition is known, 1 to 100 visible ASCII characters; generated if absent
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// How
    #[command(flatten)]
    pub how: HowArgs,
}

/// Commands about events.
#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// Send an event to an instance
    Send(SendArgs),
}

/// Options of `events send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Which instance
    #[command(flatten)]
    pub instance: InstanceArgs,
    /// The event's type, 1 to 100 characters
    #[arg(value_name = "TYPE")]
    pub kind: EventType,
    /// What it says: JSON text, @FILE, or - for standard input; null if absent
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub payload: Option<String>,
    /// By what a repetition is known, 1 to 100 visible ASCII characters; generated if absent
    #[arg(long = "id", value_name = "ID")]
    pub event: Option<String>,
    /// The correlation key
    #[arg(long)]
    pub key: Option<EventKey>,
}

/// Commands about hooks.
#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// List tokens and who has them, in their order
    List {
        /// Only tokens after this one
        #[arg(long, value_name = "TOKEN")]
        after: Option<Token>,
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Show who has a token
    Get {
        /// The token
        token: Token,
    },
    /// Resume the hook of whoever has a token
    Resume {
        /// The token
        token: Token,
        /// What it is resumed with: JSON text, @FILE, or - for standard input; null if absent
        #[arg(long, value_name = "JSON|@FILE|-")]
        payload: Option<String>,
        /// By what a repetition is known, 1 to 100 visible ASCII characters; generated if absent
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
}

/// Commands about rejected messages.
#[derive(Debug, Subcommand)]
pub enum RejectedCommand {
    /// List them, newest first
    List {
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
}

/// Options of `settings`.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// Print the reference page of all settings instead
    #[arg(long)]
    pub reference: bool,
    /// Print what each operation does in each status instead
    #[arg(long, conflicts_with = "reference")]
    pub transitions: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
