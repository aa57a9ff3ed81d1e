//! The services that steps call, one for each class: it honours keys, it can be looked up, or neither. They count.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use everstep_sdk::{Error, Step};
use serde::{Deserialize, Serialize};

use crate::{faults::Kind, life::Life};

/// What can be known of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Class {
    /// The service honours keys.
    Keyed,
    /// The service can be asked.
    Lookup,
    /// Neither.
    Once,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::Keyed, Self::Lookup, Self::Once];

    /// The name of steps of this class.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Keyed => "keyed",
            Self::Lookup => "lookup",
            Self::Once => "once",
        }
    }
}

/// How often one effect came.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub class: Class,
    /// With these keys it was asked for.
    pub keys: BTreeSet<String>,
    pub times: u32,
    /// So many of these came from a process that had stood still between its look and its call: nothing can keep that from calling.
    pub past_a_freeze: u32,
}

/// All effects, by what they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counted {
    pub effects: BTreeMap<String, Effect>,
    /// Which effect a key is for.
    pub by_key: HashMap<String, String>,
}

impl Counted {
    fn come(&mut self, class: Class, what: &str, key: &str, past_a_freeze: bool) {
        self.by_key.insert(key.to_owned(), what.to_owned());
        let effect = self.effects.entry(what.to_owned()).or_insert_with(|| Effect {
            class,
            keys: BTreeSet::new(),
            times: 0,
            past_a_freeze: 0,
        });
        let is_known = !effect.keys.insert(key.to_owned());
        if class == Class::Keyed && is_known {
            return;
        }
        effect.times += 1;
        effect.past_a_freeze += u32::from(past_a_freeze && effect.times > 1);
    }

    /// How often this effect came.
    pub(crate) fn times(&self, what: &str) -> u32 {
        self.effects.get(what).map_or(0, |effect| effect.times)
    }
}

/// The books of all services, which outlive every process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books(Arc<Mutex<Counted>>);

impl Books {
    pub(crate) fn read(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The services, as one process calls them.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) books: Books,
    pub(crate) life: Arc<Life>,
}

impl Services {
    /// Has the effect. It may fail before that, or after, and take its time.
    pub(crate) async fn act(&self, class: Class, step: &Step, what: String) -> Result<String, Error> {
        let faults = &self.life.faults;
        let freezes = self.life.freezes();
        let slow = faults.comes(Kind::StepSlow);
        let (brief, long) = faults.draw(|draws| (draws.between(0, 15), draws.between(500, 15_000)));
        // A service that can be looked up is called right after the look.
        let (before, after) = match (slow, class) {
            (false, _) => (brief, 0),
            (true, Class::Lookup) => (brief, long),
            (true, Class::Keyed | Class::Once) => (long, 0),
        };
        pause(before).await;
        self.life.passes("before an effect").await;
        let fails = faults.comes(Kind::StepFails);
        if fails && faults.draw(|draws| draws.once_in(2)) {
            return Err(Error::not_sent("the service could not be reached"));
        }
        self.life.note(format_args!("effect {what} under {}", &step.idempotency_key()[..8]));
        self.books.read().come(class, &what, step.idempotency_key(), self.life.freezes() != freezes);
        self.life.passes("after an effect").await;
        pause(after).await;
        if fails {
            return Err(Error::failed("the service did not answer"));
        }
        Ok(what)
    }

    /// Looks whether an effect has come.
    pub(crate) fn look(&self, step: &Step, what: String) -> Option<String> {
        let mut books = self.books.read();
        if books.times(&what) == 0 {
            return None;
        }
        books.by_key.insert(step.idempotency_key().to_owned(), what.clone());
        Some(what)
    }
}

async fn pause(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_honoured_where_they_are_and_nowhere_else() {
        let mut counted = Counted::default();
        for (class, what) in [(Class::Keyed, "a"), (Class::Once, "b")] {
            counted.come(class, what, what, false);
            counted.come(class, what, what, false);
        }
        counted.come(Class::Keyed, "a", "another", false);
        assert_eq!((counted.times("a"), counted.times("b"), counted.times("c")), (2, 2, 0));
    }
}
