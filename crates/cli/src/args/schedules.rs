//! `everstep schedules`.

use clap::{ArgGroup, Args, Subcommand};
use everstep_protocol::{Pin, ScheduleId, WorkflowName};

/// Commands about schedules.
#[derive(Debug, Subcommand)]
pub enum SchedulesCommand {
    /// Create a schedule, or change the one of this id; the same again changes nothing
    Put(Box<PutArgs>),
    /// List schedules by their ids
    List {
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
        /// Where an earlier page ended
        #[arg(long)]
        after: Option<ScheduleId>,
    },
    /// Show a schedule, what is to come and what happened last
    Get {
        /// Its id
        id: ScheduleId,
        /// How many of the next due times, 1 to 100; default 5
        #[arg(long)]
        next: Option<u32>,
    },
    /// Start nothing more at due times
    Pause {
        /// Its id
        id: ScheduleId,
        /// Why
        #[arg(long)]
        note: Option<String>,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Go on from now
    Resume {
        /// Its id
        id: ScheduleId,
        /// Why
        #[arg(long)]
        note: Option<String>,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Start an instance now, whatever is open or paused
    Trigger {
        /// Its id
        id: ScheduleId,
        /// By what a repetition is known; generated if absent
        #[arg(long)]
        key: Option<String>,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Start the due times of a span that has passed; those that were started are there already
    Backfill {
        /// Its id
        id: ScheduleId,
        /// Due times from here on, such as 2026-01-31T12:00:00Z
        #[arg(long)]
        from: String,
        /// Due times before this
        #[arg(long)]
        until: String,
        /// Side by side, or one after the other with --side-by-side=false; as the overlap says if absent
        #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        side_by_side: Option<bool>,
        /// By what a repetition is known; generated if absent
        #[arg(long)]
        key: Option<String>,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Stop making up for spans; what was started stays
    StopBackfill {
        /// Its id
        id: ScheduleId,
        /// The id of the backfill, as `get` shows it; all of them if absent
        #[arg(long)]
        backfill: Option<String>,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Delete a schedule; what it has started stays
    Delete {
        /// Its id
        id: ScheduleId,
        /// Who asks, for the record
        #[arg(long)]
        by: Option<String>,
    },
    /// Show who has changed a schedule, newest first, also of one that is deleted
    Changes {
        /// Its id
        id: ScheduleId,
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
}

/// Options of `schedules put`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("when").required(true).args(["cron", "every", "at"]))]
pub struct PutArgs {
    /// Its id
    pub id: ScheduleId,
    /// The workflow that it starts
    pub workflow: WorkflowName,
    /// A cron expression of five fields, or six with the seconds first, such as "30 2 * * MON-FRI"
    #[arg(long)]
    pub cron: Option<String>,
    /// The time zone of the expression, such as Europe/Berlin; default UTC
    #[arg(long, requires = "cron")]
    pub zone: Option<String>,
    /// An interval such as "1 hour", counted from 1970 on
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
    /// So much later than the interval says
    #[arg(long, value_name = "DURATION", requires = "every")]
    pub offset: Option<String>,
    /// Once, at a moment such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<String>,
    /// The input: JSON text, @FILE, or - for standard input; null if absent
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub input: Option<String>,
    /// No due time lies before
    #[arg(long, value_name = "MOMENT")]
    pub from: Option<String>,
    /// No due time lies at this moment or later
    #[arg(long, value_name = "MOMENT")]
    pub until: Option<String>,
    /// So many due times are started at most
    #[arg(long)]
    pub limit: Option<u64>,
    /// Each is started up to so much later, always the same for one due time
    #[arg(long, value_name = "DURATION")]
    pub jitter: Option<String>,
    /// While an earlier one is open: skip, `queue_one`, queue, `cancel_other`, `terminate_other` or allow; default skip
    #[arg(long)]
    pub overlap: Option<String>,
    /// How many wait at most with the overlap queue, 1 to 1000; default 100
    #[arg(long)]
    pub queue_max: Option<u32>,
    /// Of due times that nobody started in time, start: all, latest or none; default latest
    #[arg(long)]
    pub catch_up: Option<String>,
    /// Those that are later than this are missed in any case; default "1 day"
    #[arg(long, value_name = "DURATION")]
    pub catch_up_within: Option<String>,
    /// An attribute of each instance; may be given several times. The value is a number, true, false or a text
    #[arg(long = "attribute", value_name = "NAME=VALUE")]
    pub attributes: Vec<String>,
    /// How long each is kept after its end, such as "30 days"
    #[arg(long, value_name = "DURATION")]
    pub retention: Option<String>,
    /// Pin each to this build, or without one to the build of the worker that takes it up first
    #[arg(long, value_name = "BUILD", num_args = 0..=1, require_equals = true, default_missing_value = "*")]
    pub pin: Option<Pin>,
    /// Refuse a start while no worker serves the workflow; or accept it all the same with --strict=false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict: Option<bool>,
    /// Who asks, for the record
    #[arg(long)]
    pub by: Option<String>,
}
