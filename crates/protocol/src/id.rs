//! Identities and counters. Each is a type of its own, so that an epoch is never compared with a position.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The one after this; stays at the maximum instead of wrapping round.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new one, ordered by time within this process (UUID version 7).
            #[must_use]
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

identity! {
    /// The internal id of one creation of an instance. Users see [`InstanceId`](crate::InstanceId); this one is never reused.
    InstanceUid
}
identity! {
    /// One live worker process, from its open to its end. Never comes back (rule W10).
    SessionId
}

impl SessionId {
    /// Of whoever it was that nothing names any more.
    pub const UNKNOWN: Self = Self(Uuid::nil());
}
identity! {
    /// One coordinator process.
    CoordinatorId
}

counter! {
    /// The place of an entry in an instance's journal: dense, from 1; 0 means "before the first" (rule W1).
    Position(u64)
}
counter! {
    /// The fencing number of a lease; only ever grows (rule W2).
    Epoch(u64)
}
counter! {
    /// One journal of an instance: 1, then one more per restart and per continue-as-new.
    Run(u32)
}
counter! {
    /// One more per continue-as-new; the first is 1.
    Generation(u32)
}
counter! {
    /// One try of a step, from 1.
    Attempt(u32)
}
counter! {
    /// The life of an installation; an operator bumps it after restoring an older database.
    Incarnation(u64)
}

impl Attempt {
    /// The first try.
    pub const FIRST: Self = Self(1);
}

/// A moment by the database's clock (rule W18), in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This moment plus a duration; stays at the maximum instead of wrapping round.
    #[must_use]
    pub fn plus(self, duration: crate::Millis) -> Self {
        let micros = i64::try_from(duration.as_u64()).unwrap_or(i64::MAX).saturating_mul(1000);
        Self(self.0.saturating_add(micros))
    }

    /// This moment minus a duration; stays at the minimum instead of wrapping round.
    #[must_use]
    pub fn minus(self, duration: crate::Millis) -> Self {
        let micros = i64::try_from(duration.as_u64()).unwrap_or(i64::MAX).saturating_mul(1000);
        Self(self.0.saturating_sub(micros))
    }

    /// Reads a moment by RFC 3339, such as `2026-01-31T12:00:00Z`, from 1970 on.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let moment = humantime::parse_rfc3339(text).ok()?;
        let since = moment.duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok().map(Self)
    }

    /// How long after `earlier` this is; zero if it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> crate::Millis {
        crate::Millis(u64::try_from(self.0.saturating_sub(earlier.0) / 1000).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with microseconds; moments outside the years 1970 to 9999 as a count of microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LAST: i64 = 253_402_300_799_000_000;
        match u64::try_from(self.0) {
            Ok(micros) if self.0 <= LAST => {
                let moment = std::time::UNIX_EPOCH + std::time::Duration::from_micros(micros);
                humantime::format_rfc3339_micros(moment).fmt(f)
            }
            _ => write!(f, "{}us", self.0),
        }
    }
}
