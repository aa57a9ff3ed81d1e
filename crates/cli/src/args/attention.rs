//! `everstep attention`.

use clap::{Args, Subcommand};
use everstep_protocol::WorkflowName;

use super::InstanceArgs;

/// Commands about what instances ask people.
#[derive(Debug, Subcommand)]
pub enum AttentionCommand {
    /// List what is asked, oldest first
    List(AttentionListArgs),
    /// Show what one instance asks
    Get {
        /// Which
        #[command(flatten)]
        instance: InstanceArgs,
        /// One question of it, such as 1.7 or parked; all if absent
        question: Option<String>,
    },
    /// Answer a question
    Resolve(Box<ResolveArgs>),
    /// Answer all questions that can be answered like this, oldest first
    ResolveAll(Box<ResolveAllArgs>),
}

/// Which questions are meant.
#[derive(Debug, Args)]
pub struct QuestionFilter {
    /// Only of this workflow
    #[arg(long)]
    pub workflow: Option<WorkflowName>,
    /// Only of this kind: `unknown_outcome`, or the code of what is parked
    #[arg(long)]
    pub kind: Option<String>,
    /// Only what was asked at least so long ago, such as "1 hour"
    #[arg(long, value_name = "DURATION")]
    pub older_than: Option<String>,
}

/// Options of `attention list`.
#[derive(Debug, Args)]
pub struct AttentionListArgs {
    /// Which
    #[command(flatten)]
    pub which: QuestionFilter,
    /// How many, 1 to 200; default 50
    #[arg(long)]
    pub limit: Option<u32>,
    /// Where an earlier page ended
    #[arg(long)]
    pub after: Option<String>,
}

/// Options of `attention resolve`.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// Which instance
    #[command(flatten)]
    pub instance: InstanceArgs,
    /// The question, such as 1.7 or parked
    pub question: String,
    /// The answer
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// Options of `attention resolve-all`.
#[derive(Debug, Args)]
pub struct ResolveAllArgs {
    /// The answer
    #[command(flatten)]
    pub answer: AnswerArgs,
    /// Which
    #[command(flatten)]
    pub which: QuestionFilter,
    /// Show what would be answered, and answer nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// How a question is answered.
#[derive(Debug, Args)]
pub struct AnswerArgs {
    /// The answer. About a call: done, again or fail. About a parked instance: retry or terminate;
    /// `old_key` or `new_key` if it is parked for a step's other input
    pub choice: String,
    /// With done: the output of the call: JSON text, @FILE, or - for standard input; null if absent
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub result: Option<String>,
    /// With fail: the message of the call's error
    #[arg(long)]
    pub message: Option<String>,
    /// Who decides; stands in the journal
    #[arg(long)]
    pub by: Option<String>,
    /// Why; stands in the journal
    #[arg(long)]
    pub why: Option<String>,
    /// By what a repetition is known, 1 to 100 visible ASCII characters; generated if absent
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}
