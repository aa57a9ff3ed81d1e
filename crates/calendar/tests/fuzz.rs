//! Expressions and zones that people write, whatever they are: read or refused with words, and what is read names moments that come
//! later and later, in bounded time. `EVERSTEP_TEST_FUZZ` is how many cases there are; `make fuzz` asks for many.

use everstep_calendar::Cron;
use proptest::{
    collection::vec,
    prelude::{Strategy, any, prop_oneof},
    sample::select,
    test_runner::{Config, TestRunner},
};

#[allow(clippy::disallowed_methods, reason = "the tests' own switch")]
fn cases(ordinary: u32) -> u32 {
    let wanted = std::env::var("EVERSTEP_TEST_FUZZ").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(ordinary)
}

/// Fields that are nearly right.
fn expression() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "*",
        "0",
        "59",
        "60",
        "-1",
        "1-5",
        "5-1",
        "*/0",
        "*/7",
        "L",
        "W",
        "15W",
        "#3",
        "MON",
        "mon-fri",
        "JAN",
        "?",
        ",",
        "/",
        "-",
        "@daily",
        "@never",
        "31",
        "29",
        "2",
        "99999999999",
        "1,2,3",
        "\u{0}",
        "\u{ff0a}",
        "H",
    ]);
    let field = vec(piece, 1..3).prop_map(|pieces| pieces.concat());
    prop_oneof![vec(field, 0..8).prop_map(|fields| fields.join(" ")), any::<String>()]
}

fn zone() -> impl Strategy<Value = String> {
    let known = select(vec![
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Etc/GMT+12",
        "",
        "../../etc/passwd",
        "europe/berlin",
        "Z",
        "\u{0}",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

#[test]
fn fuzz_expressions_are_read_or_refused_and_name_later_and_later_moments() {
    let config = Config { cases: cases(300), failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&(expression(), zone(), any::<i64>()), |(expression, zone, anywhere)| {
            let cron = match Cron::new(&expression, &zone) {
                Ok(cron) => cron,
                Err(error) => {
                    let told = error.to_string();
                    assert!(!told.is_empty() && told.len() < 2_000, "{told}");
                    return Ok(());
                }
            };
            for from in [0, 1_700_000_000, i64::MIN, i64::MAX, anywhere] {
                let mut from = from;
                for _ in 0..3 {
                    let Some(next) = cron.after(from) else { break };
                    assert!(next > from, "{expression:?} in {zone:?}: {next} after {from}");
                    from = next;
                }
            }
            Ok(())
        })
        .expect("nothing panics");
}
