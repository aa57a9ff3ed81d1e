//! Time and randomness are the same in every replay (W33).

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use everstep::{Error, Workflow};

use crate::driver::{Driver, SEED, done, echo};

type Draws = (u64, i8, [u8; 16], Vec<u8>, String, bool);

async fn draws(cx: Workflow) -> Result<Draws, Error> {
    Ok((cx.random(), cx.random(), cx.random(), cx.random_bytes(100), cx.uuid().to_string(), cx.random()))
}

#[test]
fn w33_the_same_seed_draws_the_same_and_another_something_else() {
    let first: Draws = Driver::seeded(SEED, draws).output();
    assert_eq!(first, Driver::seeded(SEED, draws).output::<Draws>());
    let mut seed = SEED;
    seed[31] ^= 1;
    let other: Draws = Driver::seeded(seed, draws).output();
    assert_ne!(first.0, other.0);
    assert_ne!(first.4, other.4);
}

/// Recorded once: other values would change what instances that are under way do.
#[test]
fn w33_draws_never_change_between_releases() {
    let first: Draws = Driver::seeded(SEED, draws).output();
    assert_eq!((first.0, first.4.as_str()), RECORDED);
}

const RECORDED: (u64, &str) = (2_248_609_881_144_377_399, "9821f996-d990-4297-a26d-f185e777bf6a");

#[test]
fn w33_no_draw_repeats() {
    let draws: Vec<u64> = Driver::new(|cx: Workflow| async move {
        Ok::<_, Error>((0..1_000).map(|_| cx.random::<u64>()).collect::<Vec<_>>())
    })
    .output();
    assert_eq!(draws.iter().collect::<HashSet<_>>().len(), 1_000);
}

#[test]
fn w33_a_random_float_is_within_zero_and_one() {
    let floats: Vec<f64> = Driver::new(|cx: Workflow| async move {
        Ok::<_, Error>((0..1_000).map(|_| cx.random_f64()).collect::<Vec<_>>())
    })
    .output();
    assert!(floats.iter().all(|float| (0.0..1.0).contains(float)));
    let mean = floats.iter().sum::<f64>() / 1_000.0;
    assert!((0.4..0.6).contains(&mean), "{mean}");
}

#[test]
fn w33_a_uuid_is_version_4() {
    let uuid: uuid::Uuid = Driver::new(|cx: Workflow| async move { Ok::<_, Error>(cx.uuid()) }).output();
    assert_eq!(uuid.get_version_num(), 4);
}

#[test]
fn w33_now_is_the_time_of_the_last_entry_fed() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let before = cx.now();
        cx.step("a", 1u64, echo).await?;
        let micros = |at: std::time::SystemTime| at.duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(cx.now(), cx.now());
        Ok::<_, Error>((micros(before), micros(cx.now())))
    });
    driver.poll();
    let times: (Duration, Duration) = done(driver.feed(0, 1u64));
    assert_eq!(times, (Duration::from_micros(1), Duration::from_micros(2)));
}
