//! The pure machine: given an instance's head, one input and `now`, it decides what is written and what is sent after
//! the commit. No async, no clock, no randomness, no I/O: same arguments, same answer.
//!
//! | module | what it decides |
//! | --- | --- |
//! | [`access`] | whether an access token lets a request pass |
//! | [`action`] | what the audit log tells of what people do |
//! | [`account`] | what a session's heartbeat shows that it lacks, and what it holds no longer |
//! | [`start`] | whether a start creates an instance, meets an existing one, or conflicts |
//! | [`mod@decide`] | what one input does to one instance |
//! | [`batch`] | how the decisions of one batch add up to one transaction |
//! | [`bulk`] | which instances an operation on many is about |
//! | [`schedule`] | which due times of a schedule are started, skipped or missed, and when to look again |
//! | [`breach`] | what is wrong with an instance that nothing will move, and how it is mended |
//! | [`transition`] | what an operation does in each status |
//! | [`mod@keep`] | what a restart from a step keeps of a journal |
//! | [`mod@reuse`] | what a restart with `reuse` takes over of a journal |
//! | [`retention`] | how long an ended instance is kept |
//! | [`retry`] | when a failed attempt is tried again |
//! | [`report`] | which entries a report becomes; run by coordinator and worker alike |
//! | [`replay`] | how a journal is fed to a body, and what the body may do next |

pub mod access;
pub mod account;
pub mod action;
pub mod audit;
pub mod batch;
pub mod breach;
pub mod bulk;
pub mod decide;
pub mod effect;
pub mod head;
pub mod hook;
pub mod input;
pub mod keep;
pub mod letter;
pub mod lifecycle;
pub mod mailbox;
pub mod place;
pub mod replay;
pub mod report;
pub mod retention;
pub mod retry;
pub mod reuse;
pub mod rows;
pub mod schedule;
pub mod start;
pub mod status;
pub mod transition;

pub use batch::{Batch, Writes};
pub use decide::decide;
pub use effect::{Answer, Change, Decision, Effect, Operated};
pub use head::{Head, Status};
pub use input::{Input, What};
pub use rows::Rows;
pub use status::StatusWord;
