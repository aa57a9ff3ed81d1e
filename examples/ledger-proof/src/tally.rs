//! What came of it.

use std::{collections::BTreeMap, fmt};

/// Where a worker dies, and that a coordinator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    BeforeTheIntent,
    AfterTheIntent,
    AfterTheCall,
    AfterTheRecord,
    BetweenActions,
    Coordinator,
}

impl Place {
    pub(crate) const ALL: [Self; 6] = [
        Self::BeforeTheIntent,
        Self::AfterTheIntent,
        Self::AfterTheCall,
        Self::AfterTheRecord,
        Self::BetweenActions,
        Self::Coordinator,
    ];
    /// Where workers die.
    pub(crate) const OF_WORKERS: [Self; 5] = [
        Self::BeforeTheIntent,
        Self::AfterTheIntent,
        Self::AfterTheCall,
        Self::AfterTheRecord,
        Self::BetweenActions,
    ];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::BeforeTheIntent => "before the intent",
            Self::AfterTheIntent => "after the intent",
            Self::AfterTheCall => "after the call",
            Self::AfterTheRecord => "after the record",
            Self::BetweenActions => "between two actions",
            Self::Coordinator => "coordinator",
        }
    }
}

/// The whole run.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) steps: u32,
    pub(crate) kills: BTreeMap<Place, u32>,
    /// Effects that came more than once.
    pub(crate) duplicates: Vec<String>,
    /// Questions that a person was asked.
    pub(crate) attention: usize,
    /// Steps without an effect, or whose instance has not ended complete.
    pub(crate) unexplained: Vec<String>,
}

/// Of what is wrong so many are shown.
const SHOWN: usize = 5;

impl Tally {
    /// Whether it proves anything: every kind of kill came, and every effect once.
    pub(crate) fn is_proof(&self) -> bool {
        let all = Place::ALL.iter().all(|place| self.kills.contains_key(place));
        all && self.duplicates.is_empty() && self.unexplained.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for place in Place::ALL {
            writeln!(f, "killed, {}: {}", place.word(), self.kills.get(&place).copied().unwrap_or(0))?;
        }
        for (what, effects) in [("more than once", &self.duplicates), ("unexplained", &self.unexplained)] {
            for effect in effects.iter().take(SHOWN) {
                writeln!(f, "{what}: {effect}")?;
            }
        }
        write!(
            f,
            "ledger: {} steps, {} kills, {} duplicates, {} in attention, {} unexplained",
            self.steps,
            self.kills.values().sum::<u32>(),
            self.duplicates.len(),
            self.attention,
            self.unexplained.len()
        )
    }
}
