//! The orders of the demo and the fleet, with the status that each must end with.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

/// One order of the file.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// The instance's id.
    pub id: String,
    /// The status that it must end with.
    pub expect: String,
    /// The input.
    pub input: Box<serde_json::value::RawValue>,
}

/// The orders that the repository brings along.
const BUILT_IN: &str = include_str!("../orders.jsonl");

/// Reads a file of orders, one JSON object a line; the built-in ones if there is no path.
pub fn read(path: Option<&Path>) -> anyhow::Result<Vec<Case>> {
    let text = match path {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?,
        None => BUILT_IN.to_owned(),
    };
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("order in line {}", index + 1))
        })
        .collect()
}

/// What became of all orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accepted orders.
    pub accepted: usize,
    /// Orders whose instance has ended as the file says.
    pub ended: usize,
    /// Orders charged at least once.
    pub charged: usize,
    /// Orders with more than one charge, over all keys.
    pub charged_twice: usize,
}

impl Tally {
    /// Accepted, but without an ended instance of the expected status.
    #[must_use]
    pub const fn lost(&self) -> usize {
        self.accepted - self.ended
    }

    /// Whether everything is as it must be.
    #[must_use]
    pub const fn is_good(&self, orders: usize) -> bool {
        self.accepted == orders && self.lost() == 0 && self.charged_twice == 0
    }

    /// The last line of demo and fleet.
    #[must_use]
    pub fn line(&self, name: &str, orders: usize) -> String {
        format!(
            "{name}: {} of {orders} ended, {} lost, {} charged twice",
            self.ended,
            self.lost(),
            self.charged_twice
        )
    }
}
