//! The services around the loop. Each has one job and ends with the coordinator.

pub(crate) mod attention;
pub(crate) mod auditor;
pub(crate) mod bulks;
pub(crate) mod census;
pub(crate) mod clean;
pub(crate) mod deadlines;
pub(crate) mod dispatch;
pub(crate) mod duties;
pub(crate) mod events;
mod heartbeats;
pub(crate) mod intake;
pub(crate) mod later;
pub(crate) mod letters;
mod loops;
pub(crate) mod measure;
pub(crate) mod outbox;
pub(crate) mod rejections;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod standing;
pub(crate) mod starts;
pub(crate) mod timers;
pub(crate) mod unserved;
pub(crate) mod watch;

pub(crate) use dispatch::served;
pub(crate) use sessions::refresh as refresh_sessions;
