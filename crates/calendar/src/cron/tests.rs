//! Proves which moments expressions name, above all where clocks change. Not: what is done at such a moment.
use super::*;

/// The moments that an expression names from `from` on, as many as `expected` has, in UTC.
fn check(expression: &str, zone: &str, from: &str, expected: &[&str]) {
    let cron = Cron::new(expression, zone).unwrap();
    let mut at = from.parse::<Timestamp>().unwrap().as_second() - 1;
    let mut found = Vec::new();
    for _ in expected {
        at = cron.after(at).unwrap();
        found.push(Timestamp::from_second(at).unwrap().to_string());
    }
    assert_eq!(found, expected, "{expression} in {zone}");
}

#[test]
fn s02_fields_names_steps_and_lists_are_read_as_cron_reads_them() {
    let from = "2026-01-01T00:00:00Z"; // A Thursday.
    for (expression, first) in [
        ("* * * * *", ["2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"]),
        ("*/20 * * * * *", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:20Z"]),
        ("30 5 8 * * *", ["2026-01-01T08:05:30Z", "2026-01-02T08:05:30Z"]),
        ("0 9 * * MON-FRI", ["2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"]),
        ("0 9 * * sat,sun", ["2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z"]),
        ("0 0 * * 7", ["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]),
        ("0 0 1 JAN,jul *", ["2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"]),
        ("15,45 */6 * * *", ["2026-01-01T00:15:00Z", "2026-01-01T00:45:00Z"]),
        ("0 22-23 * * *", ["2026-01-01T22:00:00Z", "2026-01-01T23:00:00Z"]),
        // Both days are given: either will do.
        ("0 0 13 * FRI", ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]),
        ("0 0 L * *", ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"]),
        ("0 0 * * FRI#2", ["2026-01-09T00:00:00Z", "2026-02-13T00:00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("@monthly", ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
        ("@Daily", ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    ] {
        check(expression, "UTC", from, &first);
    }
}

#[test]
fn s02_what_cannot_be_read_or_names_nothing_is_refused_with_the_reason() {
    let long = "0 ".repeat(200);
    for (expression, part) in [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 0 0 1 1 * 2030", "7 fields"),
        ("60 * * * *", "60"),
        ("0 24 * * *", "24"),
        ("0 0 0 * *", ""),
        ("0 0 * 13 *", "13"),
        ("0 0 * * 8", "8"),
        ("*/0 * * * *", ""),
        ("x * * * *", ""),
        ("30-10 * * * *", ""),
        ("0 0 30 2 *", "names no moment"),
        ("@reboot", "@hourly"),
        ("@", "@hourly"),
        (&long, "longer than 256"),
    ] {
        let error = Cron::new(expression, "UTC").expect_err(expression).to_string();
        assert!(error.starts_with("cron ") && error.contains(part), "{expression}: {error}");
    }
    for zone in ["", "Europe/Atlantis", "CEST+1", "../etc/passwd", "local"] {
        assert!(matches!(Cron::new("* * * * *", zone), Err(Error::Zone(_))), "{zone}");
    }
}

#[test]
fn s03_a_time_that_does_not_exist_is_read_with_the_offset_before_and_one_that_comes_twice_is_the_first() {
    for (expression, zone, from, moments) in [
        // Berlin: 02:00 becomes 03:00 on the 29th of March, 03:00 becomes 02:00 on the 25th of October, both at 01:00 UTC.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            &["2026-03-28T01:30:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"][..],
        ),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T00:00:00Z",
            &["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        (
            "*/20 2 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z", "2026-03-29T01:40:00Z", "2026-03-30T00:00:00Z"],
        ),
        // What is read with the offset before stands in its order among what exists.
        (
            "30 2,3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "15 3 * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T01:15:00Z", "2026-03-30T01:15:00Z"],
        ),
        // New York: the 8th of March at 07:00 UTC, the 1st of November at 06:00 UTC.
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-08T00:00:00Z",
            &["2026-03-08T07:30:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-11-01T00:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        // Midnight itself does not exist: Cairo on the 24th of April, Santiago on the 6th of September.
        (
            "0 0 * * *",
            "Africa/Cairo",
            "2026-04-22T23:00:00Z",
            &["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"],
        ),
        (
            "@daily",
            "America/Santiago",
            "2026-09-05T05:00:00Z",
            &["2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"],
        ),
        // Half an hour: Lord Howe, 02:00 becomes 02:30 on the 4th of October, 02:00 becomes 01:30 on the 5th of April.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["2026-10-03T15:45:00Z", "2026-10-04T15:15:00Z"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T00:00:00Z",
            &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        ),
        // A whole day: Samoa had no 30th of December 2011. What was due on it and on the 31st at the same time is one moment.
        (
            "0 9 * * *",
            "Pacific/Apia",
            "2011-12-29T00:00:00Z",
            &["2011-12-29T19:00:00Z", "2011-12-30T19:00:00Z", "2011-12-31T19:00:00Z"],
        ),
        // No change at all.
        (
            "30 2 * * *",
            "Asia/Kolkata",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T21:00:00Z", "2026-03-30T21:00:00Z"],
        ),
    ] {
        check(expression, zone, from, moments);
    }
}

#[test]
fn s03_what_runs_in_every_hour_goes_by_the_time_that_passes() {
    check(
        "0 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"],
    );
    check(
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-25T00:00:00Z",
        &[
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ],
    );
    check(
        "0-59/30 0-23 * * *",
        "America/New_York",
        "2026-11-01T05:00:00Z",
        &["2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z"],
    );
    // 02:00 does not exist, and 01:45 comes twice.
    check(
        "0 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03T14:00:00Z",
        &["2026-10-03T14:30:00Z", "2026-10-03T16:00:00Z"],
    );
    check(
        "45 * * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"],
    );
}

#[test]
fn s03_a_named_hour_is_one_moment_on_every_day_of_a_year_whatever_the_zone() {
    for zone in [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "America/Santiago",
        "UTC",
    ] {
        for hour in 0..24 {
            let cron = Cron::new(&format!("30 {hour} * * *"), zone).unwrap();
            let mut at = "2026-01-01T12:00:00Z".parse::<Timestamp>().unwrap().as_second();
            let end = "2027-01-01T12:00:00Z".parse::<Timestamp>().unwrap().as_second();
            let mut count = 0;
            while let Some(next) = cron.after(at).filter(|next| *next <= end) {
                assert!(next > at, "{zone} {hour}");
                count += 1;
                at = next;
            }
            assert_eq!(count, 365, "{zone} {hour}");
        }
    }
}

#[test]
fn s02_a_day_that_is_decades_away_is_found_and_the_end_of_time_is_none() {
    // The 29th of February was a Monday in 2016 and is one again in 2044.
    check("0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z", &["2104-02-28T23:00:00Z"]);
    let cron = Cron::new("* * * * *", "Europe/Berlin").unwrap();
    assert_eq!(cron.after(i64::MAX), None);
    assert_eq!(cron.after(i64::MAX - 5), None);
    assert!(cron.after(253_402_207_000).is_some());
}

/// What comes once in four years, or in 28, is not looked for day by day, nor anew at each change of the clock until then.
#[test]
fn s02_what_is_rare_is_found_with_few_looks() {
    for (expression, zone, from, found) in [
        ("0 0 29 2 *", "Europe/Berlin", "2028-03-01T00:00:00Z", "2032-02-28T23:00:00Z"),
        ("0 0 29 2 *", "America/New_York", "2096-03-01T00:00:00Z", "2104-02-29T05:00:00Z"),
        ("30 * 1 1 *", "Australia/Lord_Howe", "2026-01-02T00:00:00Z", "2026-12-31T13:30:00Z"),
    ] {
        let cron = Cron::new(expression, zone).unwrap();
        crate::wall::LOOKS.set(0);
        let next = cron.after(from.parse::<Timestamp>().unwrap().as_second()).unwrap();
        assert_eq!(Timestamp::from_second(next).unwrap().to_string(), found, "{expression} in {zone}");
        let looks = crate::wall::LOOKS.get();
        assert!(looks < 500, "{expression} in {zone} took {looks} looks at days");
    }
}
