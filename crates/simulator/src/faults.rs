//! Faults: which kinds there are, how often each comes under a seed, and whether it comes now.
//!
//! Some seeds are quiet and some are wild: each kind is left out of many seeds, so that one that hides another does not hide it
//! always. Faults cease at a moment that is drawn too, and from then on everything must come to rest.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::seed::{Draws, SharedDraws};

/// Lists the kinds with their words and how often they may come at most.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $word:literal, $most:literal;)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($(#[$doc])* $kind),+ }

        impl Kind {
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$kind),+];

            pub const fn word(self) -> &'static str {
                match self { $(Self::$kind => $word),+ }
            }

            /// The highest rate that is drawn: per million calls, or, for what strikes from outside, per million milliseconds.
            const fn most(self) -> u32 {
                match self { $(Self::$kind => $most),+ }
            }
        }
    };
}

kinds! {
    /// A process dies just before or after a call to store or broker, or at an attempt of a step.
    CrashInCall = "crash in a call", 2_000;
    /// A coordinator dies at any moment.
    CrashCoordinator = "coordinator crash", 150;
    /// A worker dies at any moment.
    CrashWorker = "worker crash", 300;
    /// A worker stands still, and goes on later as if nothing had been.
    FreezeWorker = "worker frozen", 150;
    /// The same of a coordinator.
    FreezeCoordinator = "coordinator frozen", 100;
    /// A connection to the broker is cut, and restored later.
    Cut = "connection cut", 300;
    /// Everything that is ready in one of the engine's queues is lost.
    Purge = "queue purged", 200;
    /// A new, empty broker takes the place of the old one.
    Wipe = "broker emptied", 40;
    /// The store is away for a while.
    StoreAway = "store away", 80;
    /// A message of the engine is lost.
    Drop = "message dropped", 60_000;
    /// A message of the engine comes twice.
    Double = "message doubled", 60_000;
    /// A message of the engine comes later, and so after others.
    Delay = "message delayed", 200_000;
    /// A confirm is not heard; the message may be there or not.
    Unconfirmed = "confirm lost", 60_000;
    /// The store refuses for once, and nothing is written.
    Refuse = "store refused", 20_000;
    /// The store has committed, and the answer is lost.
    AnswerLost = "answer lost", 20_000;
    /// The store takes its time, before or after.
    Slow = "store slow", 200_000;
    /// A head is locked by somebody else.
    Elsewhere = "head locked elsewhere", 50_000;
    /// A step fails before it has an effect, or after.
    StepFails = "step failed", 200_000;
    /// A step takes long.
    StepSlow = "step slow", 100_000;
}

/// What happens to all at once, or to those that own nothing: no worker may lose its session for it (rule W8). Some seeds know
/// nothing else.
const OUTAGES: [Kind; 7] = [
    Kind::CrashCoordinator,
    Kind::Wipe,
    Kind::StoreAway,
    Kind::Refuse,
    Kind::AnswerLost,
    Kind::Unconfirmed,
    Kind::Elsewhere,
];

/// How often each kind comes under a seed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rates(BTreeMap<Kind, u32>);

impl Rates {
    /// Each kind is there in about half of all seeds; one seed in eight is quiet, and one in eight knows outages alone.
    pub(crate) fn draw(draws: &mut Draws) -> Self {
        if draws.once_in(8) {
            return Self::default();
        }
        let wild = draws.between(1, 4);
        let rate = |kind: Kind, draws: &mut Draws| {
            // Rare ones are as interesting as frequent ones.
            let most = u64::from(kind.most()) * wild / 4;
            let least = most / 20;
            draws.between(least, most) as u32
        };
        let kinds: &[Kind] = if draws.once_in(8) { &OUTAGES } else { &Kind::ALL };
        let there: Vec<_> = kinds.iter().copied().filter(|_| draws.once_in(2)).collect();
        Self(there.into_iter().map(|kind| (kind, rate(kind, draws))).collect())
    }

    /// Nothing but this.
    #[cfg(test)]
    pub(crate) fn only(kind: Kind, rate: u32) -> Self {
        Self([(kind, rate)].into())
    }

    pub(crate) fn of(&self, kind: Kind) -> u32 {
        self.0.get(&kind).copied().unwrap_or(0)
    }

    /// In words.
    pub(crate) fn plan(&self) -> String {
        let rate = |(kind, rate): (&Kind, &u32)| format!("{} {rate}", kind.word());
        let rates: Vec<_> = self.0.iter().map(rate).collect();
        if rates.is_empty() { "no faults".to_owned() } else { format!("per million: {}", rates.join(", ")) }
    }
}

/// Says whether a fault comes, and counts those that came.
#[derive(Debug)]
pub(crate) struct Faults {
    rates: Rates,
    draws: SharedDraws,
    ceased: AtomicBool,
    store_away: AtomicBool,
    counts: Mutex<BTreeMap<Kind, u64>>,
}

impl Faults {
    pub(crate) fn new(seed: u64, rates: Rates) -> Self {
        Self {
            rates,
            draws: SharedDraws::new(seed, "faults"),
            ceased: AtomicBool::new(false),
            store_away: AtomicBool::new(false),
            counts: Mutex::default(),
        }
    }

    /// Whether it comes in this call.
    pub(crate) fn comes(&self, kind: Kind) -> bool {
        self.comes_within(kind, 1)
    }

    /// Whether it comes in the course of so many units.
    pub(crate) fn comes_within(&self, kind: Kind, units: u64) -> bool {
        let rate = self.rates.of(kind);
        if rate == 0 || self.have_ceased() {
            return false;
        }
        let rate = u32::try_from(u64::from(rate) * units).unwrap_or(u32::MAX);
        let comes = self.draws.draw(|draws| draws.hits(rate));
        if comes {
            self.count(kind);
        }
        comes
    }

    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Draws) -> T) -> T {
        self.draws.draw(draw)
    }

    pub(crate) fn cease(&self) {
        self.ceased.store(true, Ordering::Relaxed);
        self.store_away.store(false, Ordering::Relaxed);
    }

    pub(crate) fn have_ceased(&self) -> bool {
        self.ceased.load(Ordering::Relaxed)
    }

    pub(crate) fn set_store_away(&self, away: bool) {
        self.store_away.store(away, Ordering::Relaxed);
    }

    pub(crate) fn is_store_away(&self) -> bool {
        self.store_away.load(Ordering::Relaxed)
    }

    pub(crate) fn plan(&self) -> String {
        self.rates.plan()
    }

    pub(crate) fn counts(&self) -> BTreeMap<Kind, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, kind: Kind) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_after_faults_have_ceased() {
        let rates = Rates(Kind::ALL.into_iter().map(|kind| (kind, 1_000_000)).collect());
        let faults = Faults::new(1, rates);
        assert!(Kind::ALL.into_iter().all(|kind| faults.comes(kind)));
        faults.cease();
        assert!(!Kind::ALL.into_iter().any(|kind| faults.comes(kind)));
        assert_eq!(faults.counts().values().sum::<u64>(), Kind::ALL.len() as u64);
    }
}
