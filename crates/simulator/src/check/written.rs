//! What is decided can be written: a store that refuses rows for good has been given some that contradict those it has.

use super::{Checker, Seen};

#[derive(Debug, Default)]
pub(super) struct Written;

impl Checker for Written {
    fn name(&self) -> &'static str {
        "written"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Unwritable { reason } => {
                Err(format!("the store will never take what was decided: {reason}"))
            }
            _ => Ok(()),
        }
    }
}
