//! What replay knows of compensations (rule P39): those that the journal says a step has and that the code does not register any
//! more. A rollback that would pass them over in silence parks the instance.

use std::collections::{BTreeSet, HashSet};

use everstep_protocol::{
    Call,
    journal::{Fact, ParkCode, Parked, Wait},
};

/// How many steps the message of a missing compensation names.
const STEPS_NAMED: usize = 3;

#[derive(Debug, Default)]
pub(super) struct Saga {
    registered: HashSet<Call>,
    missing: BTreeSet<Call>,
    /// The body is over, and its compensations run.
    pub(super) begun: bool,
}

impl Saga {
    pub(super) fn registers(&mut self, call: Call) {
        self.registered.insert(call);
    }

    /// What an entry says of the step that it is about.
    pub(super) fn fed(&mut self, fact: &Fact) {
        let (call, marks) = match fact {
            Fact::Attempted(attempted) => (&attempted.call, attempted.marks),
            Fact::Intended(intended) => (&intended.call, intended.marks),
            Fact::Opened(opened) => match &opened.wait {
                Wait::Remote(remote) => (&opened.call, remote.marks),
                Wait::Sleep { .. }
                | Wait::Event { .. }
                | Wait::Child(_)
                | Wait::Instance(_)
                | Wait::Hook(_)
                | Wait::Payload(_)
                | Wait::Reply(_)
                | Wait::Resume(_)
                | Wait::Send(_) => return,
            },
            Fact::Started(_)
            | Fact::Fired { .. }
            | Fact::Lost(_)
            | Fact::Parked(_)
            | Fact::Retried
            | Fact::Rekeyed(_)
            | Fact::Patched(_)
            | Fact::Ended(_)
            | Fact::Delivered(_)
            | Fact::Registered(_)
            | Fact::Received(_)
            | Fact::TakenOver(_)
            | Fact::Withdrawn(_)
            | Fact::Resolved(_)
            | Fact::Closed(_)
            | Fact::Cancelled(_)
            | Fact::Returned(_)
            | Fact::Continued(_)
            | Fact::Compensating(_)
            | Fact::Compensated(_)
            | Fact::Rollback(_)
            | Fact::Reusable(_) => return,
        };
        if marks.compensated && !self.registered.contains(call) {
            self.missing.insert(call.clone());
        }
    }

    /// Why no rollback may begin, if none may.
    pub(super) fn unregistered(&self) -> Option<Parked> {
        if self.missing.is_empty() {
            return None;
        }
        let named: Vec<String> = self.missing.iter().take(STEPS_NAMED).map(ToString::to_string).collect();
        let more = match self.missing.len().saturating_sub(STEPS_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "a rollback has to take back {}{more}, for which the code no longer registers a compensation",
            named.join(", ")
        );
        Some(Parked::new(ParkCode::CompensationMissing, message))
    }
}
