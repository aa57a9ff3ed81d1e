//! Chance that repeats: the same starts in the same order get the same internal ids and seeds, so that keys, `random` and
//! `uuid` come out the same in every run of a test.

use std::sync::atomic::{AtomicU64, Ordering};

use everstep_coordinator::Chance;
use everstep_protocol::InstanceUid;

#[derive(Debug)]
pub(crate) struct Sequence {
    seed: u64,
    drawn: AtomicU64,
}

impl Sequence {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }

    fn draw(&self, what: &str) -> (u64, [u8; 32]) {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut hasher = blake3::Hasher::new();
        hasher.update(what.as_bytes());
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(&number.to_le_bytes());
        (number, *hasher.finalize().as_bytes())
    }
}

impl Chance for Sequence {
    fn instance(&self) -> InstanceUid {
        let (number, bytes) = self.draw("instance");
        let mut random = [0; 10];
        random.copy_from_slice(&bytes[..10]);
        // Version 7 begins with milliseconds: counted up, later ids sort after earlier ones.
        InstanceUid(uuid::Builder::from_unix_timestamp_millis(number, &random).into_uuid())
    }

    fn seed(&self) -> [u8; 32] {
        self.draw("seed").1
    }
}
