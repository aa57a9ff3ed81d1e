//! Sizes that both sides check (rule P4). Bytes are those of the compact JSON text as stored.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// The limits of an installation. The limit itself is accepted, one byte or one step more is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes of one step's output. Default 1 MiB, at most 8 MiB.
    pub output_bytes: u64,
    /// Bytes of a start's input. Default 1 MiB, at most 8 MiB.
    pub input_bytes: u64,
    /// Steps per generation; sleeps and waits are not counted. Default 25,000.
    pub steps: u64,
    /// Bytes of one instance's journal. Default 1 GiB.
    pub journal_bytes: u64,
    /// Bytes of one event's payload. Default 1 MiB, at most 8 MiB.
    #[serde(skip_serializing_if = "is_event_bytes")]
    pub event_bytes: u64,
    /// Events of one instance that no wait has taken yet; more are refused. Default 1,000.
    #[serde(skip_serializing_if = "is_events_unread")]
    pub events_unread: u64,
    /// How long the retention of a hook may be at most, in milliseconds. Default 30 days.
    #[serde(skip_serializing_if = "is_hook_retention")]
    pub hook_retention: Millis,
}

const EVENT_BYTES: u64 = 1 << 20;
const EVENTS_UNREAD: u64 = 1_000;
const HOOK_RETENTION: Millis = Millis::from_secs(30 * 86_400);

// Later than the first four: where they are the default, messages are as they were.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_event_bytes(bytes: &u64) -> bool {
    *bytes == EVENT_BYTES
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_events_unread(count: &u64) -> bool {
    *count == EVENTS_UNREAD
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_hook_retention(retention: &Millis) -> bool {
    retention.0 == HOOK_RETENTION.0
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            output_bytes: 1 << 20,
            input_bytes: 1 << 20,
            steps: 25_000,
            journal_bytes: 1 << 30,
            event_bytes: EVENT_BYTES,
            events_unread: EVENTS_UNREAD,
            hook_retention: HOOK_RETENTION,
        }
    }
}

/// The most that a limit of one payload may be set to. A payload travels whole, in a message of its own if it is large, and this
/// keeps that message well below what RabbitMQ carries by default (16 MiB since 4.0).
pub const PAYLOAD_BYTES_MAX: u64 = 8 << 20;

/// Bytes of what an attempt may tell of its progress: a place to go on from, carried by every heartbeat while it runs.
pub const PROGRESS_BYTES: usize = 4 << 10;

/// Bytes of the state that a workflow publishes (rule P37).
pub const STATE_BYTES: usize = 16 << 10;

/// The most entries' bytes in one engine message (rules W20, W26); what is larger goes in parts.
pub const PART_BYTES: usize = 512 * 1024;
