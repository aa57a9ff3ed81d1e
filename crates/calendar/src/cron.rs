//! From wall clock times to moments.
//!
//! An expression that runs in every hour goes by the time that passes: whatever moment the clock shows a time that matches is one, so a time
//! that does not exist is passed over and an hour that comes twice runs twice. An expression that names hours goes by the clock: each time that it
//! names is one moment on each of its days. Of a time that comes twice that is the first; one that does not exist is read with the offset from
//! before the change, so that 02:30 becomes 03:30 where the clock jumps from 02:00 to 03:00. RFC 5545 says the same of appointments.

use jiff::{
    Timestamp,
    tz::{Offset, TimeZone, TimeZoneDatabase},
};

use crate::wall::Pattern;

/// Changes of the clock that are looked past for the next moment: an expression may name one day in 40 years.
const CHANGES_MAX: usize = 200;

/// Why an expression or a zone is refused. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The expression cannot be read, or names nothing.
    #[error("cron {text:?} is refused: {reason}")]
    Expression {
        /// The expression, at most 60 characters of it.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no such zone.
    #[error("zone {0:?} is refused, it must be the name of a time zone such as Europe/Berlin, or UTC")]
    Zone(String),
}

/// A cron expression in a time zone.
#[derive(Clone, Debug)]
pub struct Cron {
    pattern: Pattern,
    zone: TimeZone,
}

/// A time during which the zone has one offset, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Its first moment, and the offset before; none if it has no beginning.
    begin: Option<(i64, i32)>,
    /// The first moment after it.
    end: i64,
    offset: i32,
}

impl Cron {
    /// Reads an expression of five fields (minute, hour, day of month, month, day of week), of six with the seconds first, or a name such as
    /// `@daily`; and a zone of the IANA data by its name.
    pub fn new(expression: &str, zone: &str) -> Result<Self, Error> {
        let pattern = Pattern::read(expression)
            .map_err(|reason| Error::Expression { text: shown(expression), reason })?;
        let found = TimeZoneDatabase::bundled().get(zone).map_err(|_| Error::Zone(shown(zone)))?;
        Ok(Self { pattern, zone: found })
    }

    /// The first moment that it names after this one, in seconds since 1970. None if there is none in the next decades.
    #[must_use]
    pub fn after(&self, seconds: i64) -> Option<i64> {
        let mut from = seconds.checked_add(1)?;
        for _ in 0..CHANGES_MAX {
            from = self.skipped(from)?;
            let stretch = self.stretch(from)?;
            if let Some(found) = self.within(&stretch, from) {
                return Some(found);
            }
            if stretch.end == i64::MAX {
                return None;
            }
            from = stretch.end;
        }
        None
    }

    /// A moment from this one on, before which nothing is named: two days before the next wall clock time that matches, as no offset is a whole
    /// day. So what is rare is looked for once, and not once for each change of the clock until then.
    fn skipped(&self, from: i64) -> Option<i64> {
        const DAY: i64 = 86_400;
        let first = self.named(from.checked_sub(DAY)?, 0)?;
        Some(from.max(first.saturating_sub(2 * DAY)))
    }

    /// The stretch that a moment lies in.
    fn stretch(&self, seconds: i64) -> Option<Stretch> {
        let moment = Timestamp::from_second(seconds).ok()?;
        let offset = self.zone.to_offset(moment).seconds();
        let next = self.zone.following(moment).next();
        let end = next.map_or(i64::MAX, |change| change.timestamp().as_second());
        // What comes before is looked for from the second after, or a change at this very moment would be passed over.
        let begin = self.zone.preceding(Timestamp::from_second(seconds.checked_add(1)?).ok()?).next();
        let begin = begin.and_then(|change| {
            let at = change.timestamp().as_second();
            let before = Timestamp::from_second(at.checked_sub(1)?).ok()?;
            Some((at, self.zone.to_offset(before).seconds()))
        });
        Some(Stretch { begin, end, offset })
    }

    /// The first moment of a stretch that the expression names, from this one on.
    fn within(&self, stretch: &Stretch, from: i64) -> Option<i64> {
        let before_end = |moment: &i64| *moment < stretch.end;
        let Some((begin, offset_before)) = stretch.begin.filter(|_| !self.pattern.is_every_hour()) else {
            return self.named(from, stretch.offset).filter(before_end);
        };
        let change = i64::from(stretch.offset) - i64::from(offset_before);
        // Where the clock was set back, what it shows again has been already.
        let first = self.named(from.max(begin.saturating_sub(change)), stretch.offset);
        // Where it was set forward, what it has never shown is read with the offset before.
        let missing = self.named(from, offset_before).filter(|moment| *moment < begin.saturating_add(change));
        [first, missing].into_iter().flatten().filter(before_end).min()
    }

    /// The first moment from this one on whose wall clock time, at this offset, the expression names.
    fn named(&self, from: i64, offset: i32) -> Option<i64> {
        let offset = Offset::from_seconds(offset).ok()?;
        let wall = offset.to_datetime(Timestamp::from_second(from).ok()?);
        let found = self.pattern.from(wall)?;
        Some(offset.to_timestamp(found).ok()?.as_second())
    }
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests;
