//! Cron expressions, read once: a schedule is looked at each time that it is due.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use everstep_calendar::{Cron, Error};
use everstep_engine::schedule::{Definition, Times, When};
use everstep_protocol::Timestamp;

/// So many are kept; then all are read anew.
const KEPT_MAX: usize = 10_000;
const SECOND: i64 = 1_000_000;

/// What was read, by expression and zone.
#[derive(Debug, Default)]
pub(crate) struct Calendars(Mutex<HashMap<(String, String), Arc<Cron>>>);

/// The moments of a definition.
#[derive(Clone, Debug)]
pub(crate) struct Moments(Option<Arc<Cron>>);

impl Times for Moments {
    fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let next = self.0.as_ref()?.after(moment.0.div_euclid(SECOND))?;
        next.checked_mul(SECOND).map(Timestamp)
    }
}

impl Calendars {
    /// The moments that a definition's expression names; none of one that has no expression.
    pub(crate) fn of(&self, definition: &Definition) -> Result<Moments, Error> {
        let When::Cron { expression, zone } = &definition.when else { return Ok(Moments(None)) };
        let key = (expression.clone(), zone.clone());
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if kept.is_some() {
            return Ok(Moments(kept));
        }
        let read = Arc::new(Cron::new(expression, zone)?);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT_MAX {
            all.clear();
        }
        all.insert(key, Arc::clone(&read));
        Ok(Moments(Some(read)))
    }
}
