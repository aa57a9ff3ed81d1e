//! Durations as people write them and as everything else counts them: whole milliseconds (rules P17, P18).
//!
//! Text is read exactly or refused; nothing is rounded, guessed or read as something else. A month is always
//! 30 days and a year always 365 days. This module knows no clock and no calendar.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;
const MONTH: u64 = 30 * DAY;
const YEAR: u64 = 365 * DAY;

/// The longest sleep that is accepted: ten years of 365 days (P18).
pub const SLEEP_MAX: Millis = Millis(10 * YEAR);

/// What an error shows of the refused text, in characters.
const SHOWN_CHARS: usize = 60;

/// A span of time in whole milliseconds, from zero to more than 500 million years. On the wire it is a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Millis = Millis(0);
    /// The longest span that can be counted.
    pub const MAX: Millis = Millis(u64::MAX);

    /// Reads text such as `10s`, `1.5 h`, `1 hour 30 minutes` or the ISO 8601 form `P1DT12H` (P17).
    ///
    /// Units, in any case, each at most once, in any order, with or without blanks: `ms`, `s`, `m`/`min`, `h`, `d`,
    /// `w` and `msec`, `millisecond`, `sec`, `second`, `minute`, `hr`, `hour`, `day`, `week`, `month` (30 days),
    /// `year` (365 days), the words also in the plural. `m` is minutes, except before the `T` of ISO 8601. A number
    /// without a unit is refused, and so is a part smaller than a millisecond.
    pub fn parse(text: &str) -> Result<Millis, DurationError> {
        read(text.trim_matches(BLANKS)).map(Millis).map_err(|fault| DurationError::new(text, fault))
    }

    /// A span of whole seconds; stops at [`Millis::MAX`].
    pub const fn from_secs(seconds: u64) -> Millis {
        Millis(seconds.saturating_mul(SECOND))
    }

    /// The number of milliseconds.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The same span for the standard library and timers.
    pub const fn to_std(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The sum, which stops at [`Millis::MAX`] instead of wrapping.
    pub const fn saturating_add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

/// A part below a millisecond counts as a whole one, so that a measured span never becomes shorter; what exceeds
/// [`Millis::MAX`] becomes that. Where a person gives the value use [`IntoMillis`], which refuses both.
impl From<Duration> for Millis {
    fn from(span: Duration) -> Millis {
        Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for Duration {
    fn from(span: Millis) -> Duration {
        span.to_std()
    }
}

/// Days to milliseconds, zero parts left out: `1d 2h 30m`, `250ms`, `0ms`. [`Millis::parse`] reads it back.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0ms");
        }
        let mut rest = self.0;
        let mut blank = "";
        for (unit, millis) in [("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND), ("ms", 1)] {
            let count = rest / millis;
            rest %= millis;
            if count > 0 {
                write!(f, "{blank}{count}{unit}")?;
                blank = " ";
            }
        }
        Ok(())
    }
}

/// A value that is not a duration, with the reason. Trying again gives the same answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a duration: {fault}")]
pub struct DurationError {
    /// The refused value as it was given, at most 60 characters of it.
    pub text: String,
    /// What is wrong with it.
    pub fault: DurationFault,
}

impl DurationError {
    fn new(text: &str, fault: DurationFault) -> DurationError {
        let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        DurationError { text: shown, fault }
    }
}

/// Why a duration was refused (P17, P18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DurationFault {
    /// Below zero.
    #[error("it is negative")]
    Negative,
    /// Beyond [`Millis::MAX`].
    #[error("it is longer than 2^64 - 1 milliseconds")]
    TooLong,
    /// It has a part smaller than a whole millisecond.
    #[error("it has a part below a whole millisecond")]
    TooFine,
    /// One unit was given twice, perhaps in two spellings.
    #[error("the unit {0} is given twice")]
    UnitTwice(&'static str),
    /// Anything else; the text says what was expected where reading stopped.
    #[error("{0}, write for example \"10s\", \"1 hour 30 minutes\" or \"PT5M\"")]
    Unreadable(&'static str),
}

/// What the model accepts wherever a duration is asked for: text (P17), a number of milliseconds, or a span.
pub trait IntoMillis {
    /// The span in whole milliseconds, or why there is none.
    fn into_millis(self) -> Result<Millis, DurationError>;
}

impl IntoMillis for Millis {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Ok(self)
    }
}

impl IntoMillis for &str {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Millis::parse(self)
    }
}

impl IntoMillis for String {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Millis::parse(&self)
    }
}

impl IntoMillis for &String {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Millis::parse(self)
    }
}

/// Exact: a part below a millisecond is refused.
impl IntoMillis for Duration {
    fn into_millis(self) -> Result<Millis, DurationError> {
        let refuse = |fault| DurationError::new(&format!("{self:?}"), fault);
        if !self.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(refuse(DurationFault::TooFine));
        }
        u64::try_from(self.as_millis()).map(Millis).map_err(|_| refuse(DurationFault::TooLong))
    }
}

/// Milliseconds.
impl IntoMillis for u64 {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Ok(Millis(self))
    }
}

/// Milliseconds.
impl IntoMillis for u32 {
    fn into_millis(self) -> Result<Millis, DurationError> {
        Ok(Millis(self.into()))
    }
}

/// Milliseconds; a negative number is refused.
impl IntoMillis for i64 {
    fn into_millis(self) -> Result<Millis, DurationError> {
        u64::try_from(self)
            .map(Millis)
            .map_err(|_| DurationError::new(&self.to_string(), DurationFault::Negative))
    }
}

/// Milliseconds; a negative number is refused.
impl IntoMillis for i32 {
    fn into_millis(self) -> Result<Millis, DurationError> {
        i64::from(self).into_millis()
    }
}

const BLANKS: [char; 2] = [' ', '\t'];

struct Unit {
    name: &'static str,
    millis: u64,
    spellings: &'static [&'static str],
}

const UNITS: [Unit; 8] = [
    Unit { name: "ms", millis: 1, spellings: &["ms", "msec", "msecs", "millisecond", "milliseconds"] },
    Unit { name: "s", millis: SECOND, spellings: &["s", "sec", "secs", "second", "seconds"] },
    Unit { name: "m", millis: MINUTE, spellings: &["m", "min", "mins", "minute", "minutes"] },
    Unit { name: "h", millis: HOUR, spellings: &["h", "hr", "hrs", "hour", "hours"] },
    Unit { name: "d", millis: DAY, spellings: &["d", "day", "days"] },
    Unit { name: "w", millis: WEEK, spellings: &["w", "week", "weeks"] },
    Unit { name: "month", millis: MONTH, spellings: &["month", "months"] },
    Unit { name: "year", millis: YEAR, spellings: &["year", "years"] },
];

const ISO_DATE: [(u8, u64); 4] = [(b'Y', YEAR), (b'M', MONTH), (b'W', WEEK), (b'D', DAY)];
const ISO_TIME: [(u8, u64); 3] = [(b'H', HOUR), (b'M', MINUTE), (b'S', SECOND)];

fn read(text: &str) -> Result<u64, DurationFault> {
    match text.as_bytes() {
        [] => Err(DurationFault::Unreadable("it is empty")),
        [b'P' | b'p', ..] => read_iso(&text[1..]),
        [b'-', b'0'..=b'9' | b'.' | b'P' | b'p', ..] => Err(DurationFault::Negative),
        _ => read_pairs(text),
    }
}

fn read_pairs(text: &str) -> Result<u64, DurationFault> {
    let mut rest = text;
    let mut total = 0u64;
    let mut seen = [false; UNITS.len()];
    while !rest.is_empty() {
        let (number, after) = Decimal::read(rest, &['.'])?;
        let after = after.trim_start_matches(BLANKS);
        let (word, after) = split_at_first(after, |c| !c.is_ascii_alphabetic());
        let at = UNITS
            .iter()
            .position(|unit| unit.spellings.iter().any(|spelling| spelling.eq_ignore_ascii_case(word)))
            .ok_or(DurationFault::Unreadable("a known unit must follow each number"))?;
        if std::mem::replace(&mut seen[at], true) {
            return Err(DurationFault::UnitTwice(UNITS[at].name));
        }
        total = add(total, number.times(UNITS[at].millis)?)?;
        rest = after.trim_start_matches(BLANKS);
    }
    Ok(total)
}

/// `rest` is what follows the `P`. Parts come in the order of the standard, so none can come twice; only the last
/// may have a fraction.
fn read_iso(rest: &str) -> Result<u64, DurationFault> {
    let (date, time) = match rest.find(['T', 't']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    if time == Some("") || (date.is_empty() && time.is_none()) {
        return Err(DurationFault::Unreadable("after P and T there must be a number and its unit"));
    }
    let days = read_iso_parts(date, &ISO_DATE, time.is_some())?;
    add(days, read_iso_parts(time.unwrap_or(""), &ISO_TIME, false)?)
}

fn read_iso_parts(text: &str, mut units: &[(u8, u64)], more: bool) -> Result<u64, DurationFault> {
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let (number, after) = Decimal::read(rest, &['.', ','])?;
        let at = units
            .iter()
            .position(|(letter, _)| {
                after.as_bytes().first().is_some_and(|first| first.eq_ignore_ascii_case(letter))
            })
            .ok_or(DurationFault::Unreadable("the parts must be Y, M, W, D, T, H, M, S in this order"))?;
        rest = &after[1..];
        if !number.fraction.is_empty() && (more || !rest.is_empty()) {
            return Err(DurationFault::Unreadable("only the last part may have a fraction"));
        }
        total = add(total, number.times(units[at].1)?)?;
        units = &units[at + 1..];
    }
    Ok(total)
}

/// A decimal number, kept as its digits so that nothing is rounded.
struct Decimal<'a> {
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str, points: &[char]) -> Result<(Decimal<'a>, &'a str), DurationFault> {
        let (whole, rest) = split_at_first(text, |c| !c.is_ascii_digit());
        if whole.is_empty() {
            return Err(DurationFault::Unreadable("each part must begin with a number"));
        }
        let Some(after_point) = rest.strip_prefix(points) else {
            return Ok((Decimal { whole, fraction: "" }, rest));
        };
        let (fraction, rest) = split_at_first(after_point, |c| !c.is_ascii_digit());
        if fraction.is_empty() {
            return Err(DurationFault::Unreadable("digits must follow the decimal point"));
        }
        Ok((Decimal { whole, fraction }, rest))
    }

    fn times(&self, unit_ms: u64) -> Result<u64, DurationFault> {
        let whole = self.whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit_ms));
        add(whole.ok_or(DurationFault::TooLong)?, self.fraction_times(unit_ms)?)
    }

    /// With trailing zeros gone, `k` digits are whole milliseconds only if 2^k or 5^k divides the unit. No unit comes
    /// near 2^20, so more than 20 digits are always too fine.
    fn fraction_times(&self, unit_ms: u64) -> Result<u64, DurationFault> {
        let digits = self.fraction.trim_end_matches('0');
        if digits.is_empty() {
            return Ok(0);
        }
        if digits.len() > 20 {
            return Err(DurationFault::TooFine);
        }
        let scale = 10u128.pow(digits.len() as u32);
        let scaled = digits.parse::<u128>().map_err(|_| DurationFault::TooFine)? * u128::from(unit_ms);
        if scaled.is_multiple_of(scale) { Ok((scaled / scale) as u64) } else { Err(DurationFault::TooFine) }
    }
}

fn add(left: u64, right: u64) -> Result<u64, DurationFault> {
    left.checked_add(right).ok_or(DurationFault::TooLong)
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    //! Proves what each spelling means and that everything else is refused by name. Not: what waits do with it.
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn p17_text_has_one_meaning() {
        let cases: &[(&str, u64)] = &[
            ("10s", 10_000),
            ("5 min", 300_000),
            ("1 hour 30 minutes", 5_400_000),
            ("1h30m", 5_400_000),
            ("30m 1h", 5_400_000),
            ("2 days", 172_800_000),
            (" 5s ", 5_000),
            ("5\ts", 5_000),
            ("5S", 5_000),
            ("1m", 60_000),
            ("1M", 60_000),
            ("2 MINS", 120_000),
            ("1 month", 2_592_000_000),
            ("1 Months", 2_592_000_000),
            ("1.5 months", 3_888_000_000),
            ("1 year", 31_536_000_000),
            ("2 years", 63_072_000_000),
            ("30 years", 946_080_000_000),
            ("1d", 86_400_000),
            ("1w", 604_800_000),
            ("3 weeks", 1_814_400_000),
            ("1.5 h", 5_400_000),
            ("2 hrs", 7_200_000),
            ("1hr", 3_600_000),
            ("3 secs", 3_000),
            ("1 sec", 1_000),
            ("7msec", 7),
            ("7 milliseconds", 7),
            ("0s", 0),
            ("0.000 ms", 0),
            ("0.5 s", 500),
            ("0.001 s", 1),
            ("1.50000000000000000000000000000s", 1_500),
            ("0005s", 5_000),
            ("2147485648 ms", 2_147_485_648),
            ("4294969296 ms", 4_294_969_296),
            ("4294967298 s", 4_294_967_298_000),
            ("9223372039 s", 9_223_372_039_000),
            ("18446744076 s", 18_446_744_076_000),
            ("9223372036854775807 ms", 9_223_372_036_854_775_807),
            ("18446744073709551615ms", u64::MAX),
            ("100000 years", 3_153_600_000_000_000),
            ("P1M", 2_592_000_000),
            ("PT1M", 60_000),
            ("P1D", 86_400_000),
            ("P1W", 604_800_000),
            ("P1Y2M3W4DT5H6M7.089S", 38_898_367_089),
            ("p1dt12h", 129_600_000),
            ("PT0.5S", 500),
            ("PT0,5S", 500),
            ("P0.5D", 43_200_000),
            ("P1MT1M", 2_592_060_000),
        ];
        for (text, millis) in cases {
            assert_eq!(Millis::parse(text), Ok(Millis(*millis)), "{text:?}");
        }
    }

    #[test]
    fn p17_all_else_is_refused_and_named() {
        let unreadable = [
            "",
            " ",
            "30",
            "30.0",
            "1mo",
            "1y",
            "5 fortnights",
            "1e3s",
            "1e400",
            "1e308 s",
            "NaN",
            "inf",
            "5 s s",
            "s",
            "٥s",
            "5ſ",
            "+5s",
            "5 s; 6 s",
            "1 hour, 30 minutes",
            "1 hour and 30 minutes",
            ".5s",
            "5.s",
            "1.5.5s",
            "1,5s",
            "1_000ms",
            "5\u{a0}s",
            "5\ns",
            "5s\0",
            "−5s",
            "- 5s",
            "10us",
            "10µs",
            "P",
            "PT",
            "P1",
            "P1DT",
            "P1H",
            "PT1D",
            "P1D1M",
            "P1D1D",
            "PT1M1M",
            "P 1D",
            "P1D T1H",
            "P-1D",
            "P1.5DT1H",
            "PT1.5H1M",
            "P1DT1HT1H",
            "Pé",
            "PT5é",
        ];
        for text in unreadable {
            let error = Millis::parse(text).expect_err(text);
            assert!(matches!(error.fault, DurationFault::Unreadable(_)), "{text:?} {error:?}");
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
        let faults = [
            ("-5 s", DurationFault::Negative),
            ("-1ms", DurationFault::Negative),
            ("-P1D", DurationFault::Negative),
            ("0.0004 s", DurationFault::TooFine),
            ("1.0005s", DurationFault::TooFine),
            ("0.5ms", DurationFault::TooFine),
            ("PT0.0001S", DurationFault::TooFine),
            ("0.1000000000000000000000001 years", DurationFault::TooFine),
            ("5s 5 seconds", DurationFault::UnitTwice("s")),
            ("1m 1min", DurationFault::UnitTwice("m")),
            ("1 month 1 months", DurationFault::UnitTwice("month")),
            ("18446744073709551616 ms", DurationFault::TooLong),
            ("18446744073709551615 ms 1 s", DurationFault::TooLong),
            ("18446744073709551.616 s", DurationFault::TooLong),
            ("999999999999999999999999999999999999999999 years", DurationFault::TooLong),
            ("P18446744073709551615Y", DurationFault::TooLong),
        ];
        for (text, fault) in faults {
            let error = Millis::parse(text).expect_err(text);
            assert_eq!(error.fault, fault, "{text:?}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn p17_a_long_text_is_shown_in_part() {
        let error = Millis::parse(&"ä".repeat(1_000_000)).expect_err("no duration");
        assert_eq!(error.text.chars().count(), SHOWN_CHARS + 1);
    }

    #[test]
    fn p17_numbers_and_spans_are_milliseconds() {
        assert_eq!(1500.into_millis(), Ok(Millis(1_500)));
        assert_eq!(1500u32.into_millis(), Ok(Millis(1_500)));
        assert_eq!(u64::MAX.into_millis(), Ok(Millis::MAX));
        assert_eq!(Duration::from_secs(2).into_millis(), Ok(Millis(2_000)));
        assert_eq!("2s".into_millis(), Ok(Millis(2_000)));
        assert_eq!(String::from("2s").into_millis(), Ok(Millis(2_000)));
        assert_eq!((&String::from("2s")).into_millis(), Ok(Millis(2_000)));
        let cases = [
            (i64::MIN.into_millis(), "-9223372036854775808", DurationFault::Negative),
            ((-5).into_millis(), "-5", DurationFault::Negative),
            (Duration::from_micros(1_500).into_millis(), "1.5ms", DurationFault::TooFine),
            (Duration::from_secs(u64::MAX).into_millis(), "18446744073709551615s", DurationFault::TooLong),
        ];
        for (result, text, fault) in cases {
            assert_eq!(result, Err(DurationError { text: text.to_owned(), fault }));
        }
    }

    #[test]
    fn p18_a_measured_span_never_becomes_shorter() {
        assert_eq!(Millis::from(Duration::from_nanos(1)), Millis(1));
        assert_eq!(Millis::from(Duration::from_millis(7)), Millis(7));
        assert_eq!(Millis::from(Duration::MAX), Millis::MAX);
        assert_eq!(Millis::MAX.saturating_add(Millis(1)), Millis::MAX);
        assert_eq!(Millis::parse("10 years"), Ok(SLEEP_MAX));
    }

    #[test]
    fn p17_display_is_for_people() {
        let cases = [(0, "0ms"), (250, "250ms"), (90_061_001, "1d 1h 1m 1s 1ms"), (600_000, "10m")];
        for (millis, text) in cases {
            assert_eq!(Millis(millis).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn p17_what_is_shown_is_read_back(millis: u64) {
            prop_assert_eq!(Millis::parse(&Millis(millis).to_string()), Ok(Millis(millis)));
        }

        #[test]
        fn p17_no_text_panics(text in prop_oneof![".*", "[pP]?[0-9]{0,25}[.,]?[0-9]{0,25} ?[a-zA-Z]{0,7}.{0,3}"]) {
            if let Err(error) = Millis::parse(&text) {
                prop_assert!(error.text.chars().count() <= SHOWN_CHARS + 1);
            }
        }
    }
}
