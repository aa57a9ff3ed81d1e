//! The wall clock times that an expression names, without any zone.

use croner::{
    Cron as Read, CronComponent, CronPattern, Weekday,
    parser::{CronParser, Seconds, Year},
};
use jiff::civil::{self, Date, DateTime, time};

/// So many months are looked at: the 29th of February on one day of the week comes every 40 years at least.
const MONTHS_MAX: usize = 41 * 12;

/// The longest expression, in bytes.
const BYTES_MAX: usize = 256;

/// Short names for common expressions.
const NICKNAMES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

#[cfg(test)]
std::thread_local! {
    /// How many days this thread has looked at.
    pub(crate) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// An expression, read.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    days: CronPattern,
    hours: Vec<i8>,
    minutes: Vec<i8>,
    seconds: Vec<i8>,
}

impl Pattern {
    /// Reads an expression of five fields, or of six with the seconds first. The error says what is wrong with it.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("it is longer than {BYTES_MAX} bytes"));
        }
        let fields = match text.trim().strip_prefix('@') {
            Some(_) => nickname(text.trim())?,
            None => text,
        };
        let count = fields.split_whitespace().count();
        if !(5..=6).contains(&count) {
            return Err(format!("it has {count} fields, it must have five, or six with the seconds first"));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let Read { pattern } = parser.parse(fields).map_err(|error| error.to_string())?;
        let [hours, minutes, seconds] = [&pattern.hours, &pattern.minutes, &pattern.seconds].map(values);
        let read = Self { days: pattern, hours, minutes, seconds };
        let any = Date::constant(2000, 1, 1).to_datetime(time(0, 0, 0, 0));
        if read.from(any).is_none() {
            return Err("it names no moment at all".to_owned());
        }
        Ok(read)
    }

    /// Whether it runs in every hour of its days.
    pub(crate) fn is_every_hour(&self) -> bool {
        self.hours.len() == 24
    }

    /// The first wall clock time that it names, from this one on.
    pub(crate) fn from(&self, first: DateTime) -> Option<DateTime> {
        let mut date = first.date();
        let mut from = (first.hour(), first.minute(), first.second());
        // Month by month, so that what comes in one month of the year, or of four years, costs no look at each day until then.
        for _ in 0..MONTHS_MAX {
            let last = date.last_of_month();
            while self.is_month(date) {
                if self.is_day(date)
                    && let Some((hour, minute, second)) = self.time_from(from)
                {
                    return Some(date.at(hour, minute, second, 0));
                }
                if date == last {
                    break;
                }
                date = date.tomorrow().ok()?;
                from = (0, 0, 0);
            }
            date = last.tomorrow().ok()?;
            from = (0, 0, 0);
        }
        None
    }

    fn is_month(&self, date: Date) -> bool {
        self.days.month_match(u32::from(date.month().unsigned_abs())).unwrap_or(false)
    }

    /// In a month that matches.
    fn is_day(&self, date: Date) -> bool {
        #[cfg(test)]
        LOOKS.set(LOOKS.get() + 1);
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        let (year, month, day) = (i32::from(date.year()), u32::from(month), u32::from(day));
        self.days.day_match(year, month, day, weekday(date)).unwrap_or(false)
    }

    fn time_from(&self, (hour, minute, second): (i8, i8, i8)) -> Option<(i8, i8, i8)> {
        let first = |of: &[i8]| of.first().copied();
        let at_or_after = |of: &[i8], least: i8| of.iter().copied().find(|value| *value >= least);
        if self.hours.contains(&hour) {
            if self.minutes.contains(&minute)
                && let Some(second) = at_or_after(&self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = at_or_after(&self.minutes, minute + 1) {
                return Some((hour, minute, first(&self.seconds)?));
            }
        }
        Some((at_or_after(&self.hours, hour + 1)?, first(&self.minutes)?, first(&self.seconds)?))
    }
}

fn nickname(text: &str) -> Result<&'static str, String> {
    let known = NICKNAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    known.map(|(_, fields)| *fields).ok_or_else(|| {
        let names = NICKNAMES.map(|(name, _)| name).join(", ");
        format!("it is none of the names that there are, {names}")
    })
}

fn values(field: &CronComponent) -> Vec<i8> {
    field.values().into_iter().filter_map(|value| i8::try_from(value).ok()).collect()
}

fn weekday(date: Date) -> Weekday {
    match date.weekday() {
        civil::Weekday::Monday => Weekday::Monday,
        civil::Weekday::Tuesday => Weekday::Tuesday,
        civil::Weekday::Wednesday => Weekday::Wednesday,
        civil::Weekday::Thursday => Weekday::Thursday,
        civil::Weekday::Friday => Weekday::Friday,
        civil::Weekday::Saturday => Weekday::Saturday,
        civil::Weekday::Sunday => Weekday::Sunday,
    }
}
