//! How long an instance is kept after its end (rule P32).

use std::collections::HashMap;

pub use everstep_protocol::start::Retention as Own;
use everstep_protocol::{Millis, Timestamp, WorkflowName};

use serde::{Deserialize, Serialize};

use crate::head::{Head, Status};

/// How long ended instances are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// Those that ended with an output.
    pub complete: Millis,
    /// Those that ended in any other way.
    pub failed: Millis,
}

impl Retention {
    /// 30 days.
    pub const DEFAULT: Self = Self { complete: Millis(30 * DAY), failed: Millis(30 * DAY) };
}

const DAY: u64 = 24 * 60 * 60 * 1000;

impl Default for Retention {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The installation's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// For workflows without a rule of their own.
    pub default: Retention,
    /// By workflow.
    pub workflows: HashMap<WorkflowName, Retention>,
}

impl Rules {
    /// When an instance that has just ended is to be deleted.
    #[must_use]
    pub fn delete_at(&self, head: &Head, ended_at: Timestamp) -> Timestamp {
        let rule = self.workflows.get(&head.workflow).unwrap_or(&self.default);
        let kept = if head.status == Status::Complete {
            head.retention.complete.unwrap_or(rule.complete)
        } else {
            head.retention.failed.unwrap_or(rule.failed)
        };
        ended_at.plus(kept)
    }
}

#[cfg(test)]
mod tests {
    use everstep_protocol::{InstanceId, InstanceUid, Namespace};

    use super::*;

    #[test]
    fn p32_retention_is_that_of_the_instance_else_of_the_workflow_else_the_default() {
        let name = |text| WorkflowName::new(text).unwrap();
        let short = Retention { complete: Millis(5), failed: Millis(7) };
        let rules = Rules { workflows: HashMap::from([(name("short"), short)]), ..Rules::default() };
        let own = Own { complete: Some(Millis(1)), failed: None };
        let month = 30 * DAY;
        let cases = [
            ("long", Own::default(), Status::Complete, month),
            ("long", Own::default(), Status::Errored, month),
            ("short", Own::default(), Status::Complete, 5),
            ("short", Own::default(), Status::Errored, 7),
            ("short", Own::default(), Status::Terminated, 7),
            ("short", Own::default(), Status::Cancelled, 7),
            ("short", own, Status::Complete, 1),
            ("short", own, Status::Errored, 7),
            ("long", own, Status::Complete, 1),
            ("long", own, Status::Cancelled, month),
        ];
        for (workflow, own, status, millis) in cases {
            let uid = InstanceUid(uuid::Uuid::nil());
            let id = InstanceId::new("i").unwrap();
            let mut head = Head::new(uid, Namespace::default(), name(workflow), id, Timestamp(0));
            (head.retention, head.status) = (own, status);
            let at = rules.delete_at(&head, Timestamp(9));
            assert_eq!(at, Timestamp(9).plus(Millis(millis)), "{workflow} {own:?} {status:?}");
        }
    }
}
