//! The audit log, for people.

use super::{finish, plain, table};
use crate::answer::Action;

/// Records of the audit log.
#[must_use]
pub fn actions(actions: &[Action]) -> String {
    let mut table = table(&["AT", "NAMESPACE", "OPERATION", "TARGET", "OUTCOME", "WHO", "FROM", "DETAIL"]);
    for action in actions {
        let who = match &action.by {
            Some(by) => format!("{}, for {by}", action.who),
            None => action.who.clone(),
        };
        table.add_row([
            plain(&action.at),
            plain(&action.namespace),
            plain(&action.operation),
            plain(&action.target),
            plain(&action.outcome),
            plain(&who),
            plain(&action.from),
            plain(action.detail.as_deref().unwrap_or_default()),
        ]);
    }
    finish(table)
}
