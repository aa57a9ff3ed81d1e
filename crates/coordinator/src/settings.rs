//! The coordinator's settings.

use std::collections::BTreeMap;

use everstep_engine::retention::{Retention, Rules};
use everstep_protocol::{
    Millis, Namespace, WorkflowName,
    limits::{Limits, PAYLOAD_BYTES_MAX},
};
use serde::{Deserialize, Serialize};

/// Settings of one coordinator. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The namespaces whose start queues it reads. Default: `default`.
    pub namespaces: Vec<Namespace>,
    /// How long a worker may be silent before its leases end, in milliseconds. Default 10,000.
    pub lease: Millis,
    /// How often workers send a heartbeat, in milliseconds. Default 2,000; at most a third of the lease.
    pub heartbeat: Millis,
    /// How long an inbox may be unroutable before its session ends early, in milliseconds. Default 2,000.
    pub unroutable: Millis,
    /// Report queues, by instance hash. The same on every coordinator and worker. Default 4.
    pub report_queues: u32,
    /// Unsettled messages that a report queue may have under way here. Default 200.
    pub report_prefetch: u16,
    /// Unsettled start messages under way here, per namespace. Default 500.
    pub start_prefetch: u16,
    /// Bytes that the records of rejected messages may take, for each namespace. At the bound its starts stay in the queue.
    /// Default 1 GiB.
    pub rejected_bytes: u64,
    /// Unsettled messages of the sessions queue under way here. Default 100.
    pub session_prefetch: u16,
    /// Tasks offered on one queue at once. Default 1,000.
    pub window: u32,
    /// How long an offer may stay unclaimed before it is made again, in milliseconds. Default 5,000.
    pub offer_again: Millis,
    /// Inputs in one transaction. Default 256.
    pub batch: usize,
    /// A second transaction begins only when this many inputs already wait. Default 64.
    pub second_at: usize,
    /// Holders of one instance that may die in a row without progress before it is parked: where no step is open, or one that
    /// may be tried for ever. At least 2, since the next holder is who knows what was open. Default 10.
    pub deaths_max: u32,
    /// Runnable instances go straight to workers that announced room. Default true.
    pub direct_grants: bool,
    /// A start is refused while no live worker serves its workflow, unless the start itself says otherwise. Default false: it is
    /// accepted and waits.
    pub strict_starts: bool,
    /// How long a cancelled instance may take to end by itself before it is terminated, in milliseconds, where the cancel does
    /// not say. Default 300,000.
    pub cancel_within: Millis,
    /// How long an instance that completed is kept, in milliseconds. Default 30 days.
    pub retention_complete: Millis,
    /// How long an instance that ended in any other way is kept, in milliseconds. Default 30 days.
    pub retention_failed: Millis,
    /// The same by workflow: `{ fulfil = { complete = 86400000, failed = 2592000000 } }`. Default: none. It counts for instances
    /// that end from then on.
    pub retention_of: BTreeMap<WorkflowName, Retention>,
    /// How long a request to a webhook waits at most for what its code answers, in milliseconds. Default 30,000.
    pub webhook_reply_within: Millis,
    /// Limits of sizes and counts.
    #[serde(deserialize_with = "strict_limits", serialize_with = "all_limits")]
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespaces: vec![Namespace::default()],
            lease: Millis(10_000),
            heartbeat: Millis(2_000),
            unroutable: Millis(2_000),
            report_queues: 4,
            report_prefetch: 200,
            start_prefetch: 500,
            rejected_bytes: 1 << 30,
            session_prefetch: 100,
            window: 1_000,
            offer_again: Millis(5_000),
            batch: 256,
            second_at: 64,
            deaths_max: 10,
            direct_grants: true,
            strict_starts: false,
            cancel_within: Millis(300_000),
            retention_complete: Retention::DEFAULT.complete,
            retention_failed: Retention::DEFAULT.failed,
            retention_of: BTreeMap::new(),
            webhook_reply_within: Millis(30_000),
            limits: Limits::default(),
        }
    }
}

impl Settings {
    /// How long ended instances are kept (rule P32).
    pub(crate) fn retention(&self) -> Rules {
        let default = Retention { complete: self.retention_complete, failed: self.retention_failed };
        let workflows =
            self.retention_of.iter().map(|(name, retention)| (name.clone(), *retention)).collect();
        Rules { default, workflows }
    }

    /// Every problem, not only the first.
    #[must_use]
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |good: bool, problem: &str| {
            if !good {
                problems.push(format!("coordinator.{problem}"));
            }
        };
        check(!self.namespaces.is_empty(), "namespaces must name at least one namespace");
        check(self.heartbeat.as_u64() > 0, "heartbeat must be more than zero");
        check(
            self.heartbeat.as_u64().saturating_mul(3) <= self.lease.as_u64(),
            "heartbeat must be at most a third of lease",
        );
        check(self.unroutable < self.lease, "unroutable must be less than lease");
        check((1..=64).contains(&self.report_queues), "report_queues must be 1 to 64");
        check(self.report_prefetch > 0, "report_prefetch must be more than zero");
        check(self.start_prefetch > 0, "start_prefetch must be more than zero");
        check(self.rejected_bytes > 0, "rejected_bytes must be more than zero");
        check(self.session_prefetch > 0, "session_prefetch must be more than zero");
        check(self.window > 0, "window must be more than zero");
        check((1..=10_000).contains(&self.batch), "batch must be 1 to 10000");
        check(self.second_at > 0, "second_at must be more than zero");
        let carried = |bytes: u64| (1..=PAYLOAD_BYTES_MAX).contains(&bytes);
        check(
            carried(self.limits.input_bytes),
            "limits.input_bytes must be 1 to 8388608: a message carries it whole",
        );
        check(
            carried(self.limits.output_bytes),
            "limits.output_bytes must be 1 to 8388608: a message carries it whole",
        );
        check(
            carried(self.limits.event_bytes),
            "limits.event_bytes must be 1 to 8388608: a message carries it whole",
        );
        check(self.limits.events_unread > 0, "limits.events_unread must be more than zero");
        check(self.limits.steps > 0, "limits.steps must be more than zero");
        check(self.limits.journal_bytes > 0, "limits.journal_bytes must be more than zero");
        check((1..=86_400_000).contains(&self.cancel_within.as_u64()), "cancel_within must be 1 ms to a day");
        check(
            (1..=600_000).contains(&self.webhook_reply_within.as_u64()),
            "webhook_reply_within must be 1 ms to 10 minutes",
        );
        check(self.deaths_max >= 2, "deaths_max must be at least 2");
        problems
    }
}

/// Limits as they stand in settings. They also travel to workers, where unknown ones are ignored and those that are as by default
/// may be left out (rule W25). In settings an unknown one is a typing error, and each is shown.
#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Shown {
    output_bytes: u64,
    input_bytes: u64,
    steps: u64,
    journal_bytes: u64,
    event_bytes: u64,
    events_unread: u64,
    hook_retention: Millis,
}

impl Default for Shown {
    fn default() -> Self {
        Self::from(&Limits::default())
    }
}

impl From<&Limits> for Shown {
    fn from(limits: &Limits) -> Self {
        let Limits {
            output_bytes,
            input_bytes,
            steps,
            journal_bytes,
            event_bytes,
            events_unread,
            hook_retention,
        } = *limits;
        Self { output_bytes, input_bytes, steps, journal_bytes, event_bytes, events_unread, hook_retention }
    }
}

fn strict_limits<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Limits, D::Error> {
    let Shown { output_bytes, input_bytes, steps, journal_bytes, event_bytes, events_unread, hook_retention } =
        Shown::deserialize(deserializer)?;
    Ok(Limits { output_bytes, input_bytes, steps, journal_bytes, event_bytes, events_unread, hook_retention })
}

fn all_limits<S: serde::Serializer>(limits: &Limits, serializer: S) -> Result<S::Ok, S::Error> {
    Shown::from(limits).serialize(serializer)
}

#[cfg(test)]
mod tests {
    //! Proves which settings are refused because the protocol could not keep what they promise.
    use super::*;

    #[test]
    fn w20_a_limit_above_what_a_message_carries_is_refused() {
        let with = |bytes| {
            let limits = Limits { output_bytes: bytes, ..Limits::default() };
            Settings { limits, ..Settings::default() }.validate()
        };
        assert_eq!(with(PAYLOAD_BYTES_MAX), Vec::<String>::new());
        for wrong in [0, PAYLOAD_BYTES_MAX + 1] {
            let problems = with(wrong);
            assert!(matches!(&problems[..], [only] if only.contains("limits.output_bytes")), "{problems:?}");
        }
    }
}
