//! Work loops that stand still (rule W12), as far as this coordinator hears of them: listed in a metric and in the log. It
//! ends nothing. A worker whose loop is blocked by a body says so itself, gives the rest back and ends; one that cannot do
//! even that is silent before long.

use std::collections::HashSet;

use everstep_protocol::{Millis, SessionId};

use crate::shared::Shared;

/// A loop that has not come round for this long stands still: no body needs that long, and a worker that waits for work
/// comes round each second.
const STILL: Millis = Millis(5_000);

/// Sessions whose work loop stood still at their last heartbeat.
#[derive(Debug, Default)]
pub(super) struct Loops(HashSet<SessionId>);

impl Loops {
    /// A heartbeat says how long ago the loop last came round. An earlier version does not say it.
    pub(super) fn heard(&mut self, shared: &Shared, session: SessionId, turned: Option<Millis>) {
        if turned.is_none_or(|turned| turned < STILL) {
            if self.0.remove(&session) {
                tracing::info!(%session, "the work loop of a session turns again");
            }
        } else if self.0.insert(session) {
            let host = shared.session(session).map(|open| open.host.clone());
            tracing::warn!(%session, ?host, ?turned, "the work loop of a session stands still");
        }
    }

    /// Sessions that have ended are forgotten.
    pub(super) fn keep(&mut self, shared: &Shared, live: &HashSet<SessionId>) {
        self.0.retain(|session| live.contains(session));
        shared.metrics.loops_still.set(i64::try_from(self.0.len()).unwrap_or(i64::MAX));
        shared.set_still(self.0.clone());
    }
}
