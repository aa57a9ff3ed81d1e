//! Programs: what an instance does, drawn from the seed, so that features meet in every order.

use serde::{Deserialize, Serialize};

use super::{TOKENS, TYPES, effects::Class};
use crate::seed::Draws;

/// One thing that an instance does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// A step in the worker that holds the instance; with a compensation, if it is `undone`.
    Step {
        class: Class,
        undone: bool,
    },
    /// A step of the pool.
    Remote {
        class: Class,
    },
    Sleep {
        millis: u64,
    },
    /// Waits for an event of this type.
    Event {
        kind: u64,
        millis: u64,
    },
    /// Sends an event to another instance.
    Send {
        kind: u64,
        to: u64,
    },
    /// Claims a token, and waits for a payload.
    Hook {
        token: u64,
        force: bool,
        millis: u64,
    },
    /// Claims a token for a webhook, and waits for a request, which it answers if it is `replying`.
    Webhook {
        token: u64,
        replying: bool,
        millis: u64,
    },
    /// Resumes whoever has a token.
    Resume {
        token: u64,
    },
    Child {
        ops: Vec<Op>,
        detached: bool,
    },
    /// Several at once, and all of them awaited.
    All(Vec<Vec<Op>>),
    /// Several at once, and the first awaited.
    Race(Vec<Vec<Op>>),
    /// A plan of so many actions.
    Plan {
        actions: u64,
    },
    /// Fails, so that compensations run.
    Fail,
}

/// What an instance is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// So many generations follow.
    pub(crate) again: u32,
    /// The token that it was started with.
    pub(crate) token: Option<u64>,
}

/// How close together things happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Few instances that mostly wait: timers, leases and sessions meet each other.
    Slow,
    /// Many at once, with many steps each: batches fill, and everything meets everything.
    Busy,
}

impl Pace {
    /// The longest pause between two things that a producer does, in milliseconds.
    pub(crate) const fn pause(self) -> u64 {
        match self {
            Self::Slow => 4_000,
            Self::Busy => 400,
        }
    }
}

/// Which features a seed uses, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The most operations of a list.
    pub(crate) ops: u64,
    pace: Pace,
    /// Only operations of these kinds, by their bits.
    kinds: u64,
    instances: u64,
}

impl Shape {
    pub(crate) fn draw(draws: &mut Draws, instances: u64, pace: Pace) -> Self {
        let kinds = if draws.once_in(3) { u64::MAX } else { draws.next() | draws.next() };
        let ops = match pace {
            Pace::Slow => draws.between(2, 9),
            Pace::Busy => draws.between(8, 50),
        };
        Self { ops, pace, kinds, instances }
    }

    /// The same features, in lists of at most so many operations.
    pub(crate) const fn brief(self, ops: u64) -> Self {
        Self { ops, ..self }
    }
}

pub(crate) fn draw(draws: &mut Draws, shape: Shape) -> Program {
    let mut ops = list(draws, shape, 2);
    if draws.once_in(8) {
        ops.push(Op::Fail);
    }
    let again = if draws.once_in(6) { draws.between(1, 3) as u32 } else { 0 };
    let token = draws.once_in(6).then(|| draws.below(TOKENS));
    Program { ops, again, token }
}

fn list(draws: &mut Draws, shape: Shape, depth: u32) -> Vec<Op> {
    let count = if depth == 2 { draws.between(1, shape.ops) } else { draws.between(1, 3) };
    (0..count).map(|_| op(draws, shape, depth)).collect()
}

fn op(draws: &mut Draws, shape: Shape, depth: u32) -> Op {
    // Half of all that is done are steps, or more.
    let others = match shape.pace {
        Pace::Slow => 2,
        Pace::Busy => 4,
    };
    if !draws.once_in(others) {
        return step(draws);
    }
    let kind = draws.below(14);
    if shape.kinds >> kind & 1 == 0 {
        return step(draws);
    }
    match kind {
        0 | 12 => Op::Remote { class: *draws.pick(&Class::ALL) },
        1 => Op::Sleep { millis: patience(draws, shape.pace) },
        2 => Op::Event { kind: draws.below(TYPES), millis: patience(draws, shape.pace) },
        3 => Op::Hook {
            token: draws.below(TOKENS),
            force: draws.once_in(3),
            millis: patience(draws, shape.pace),
        },
        4 => Op::Plan { actions: draws.between(1, 3) },
        5 => Op::Send { kind: draws.below(TYPES), to: draws.below(shape.instances) },
        13 => Op::Webhook {
            token: draws.below(TOKENS),
            replying: draws.once_in(2),
            millis: patience(draws, shape.pace),
        },
        6 => Op::Resume { token: draws.below(TOKENS) },
        7 | 8 if depth > 0 => Op::Child { ops: list(draws, shape, 0), detached: draws.once_in(3) },
        9 | 10 if depth > 0 => {
            let branches = draws.between(2, 4);
            Op::All((0..branches).map(|_| list(draws, shape, depth - 1)).collect())
        }
        11 if depth > 0 => {
            let branches = draws.between(2, 3);
            Op::Race((0..branches).map(|_| list(draws, shape, depth - 1)).collect())
        }
        _ => step(draws),
    }
}

fn step(draws: &mut Draws) -> Op {
    let class = if draws.once_in(2) { Class::Keyed } else { *draws.pick(&Class::ALL) };
    Op::Step { class, undone: draws.once_in(4) }
}

/// Mostly brief, sometimes long enough for others to come in between.
fn patience(draws: &mut Draws, pace: Pace) -> u64 {
    let long = match pace {
        Pace::Slow => draws.below(4),
        Pace::Busy => draws.below(16).saturating_sub(12),
    };
    match long {
        0 => draws.between(1, 90),
        1 => draws.between(100, 900),
        2 => draws.between(1_000, 8_000),
        _ => draws.between(8_000, 30_000),
    }
}

/// How many steps a list has, roughly: for choosing the size of a run.
#[cfg(test)]
fn steps(ops: &[Op]) -> usize {
    let nested = |op: &Op| match op {
        Op::Step { .. } | Op::Remote { .. } => 1,
        Op::Child { ops, .. } => steps(ops),
        Op::All(lists) | Op::Race(lists) => lists.iter().map(|list| steps(list)).sum(),
        _ => 0,
    };
    ops.iter().map(nested).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_repeat_and_have_steps() {
        let draw_one = |seed| {
            let mut draws = Draws::new(seed, "programs");
            let shape = Shape::draw(&mut draws, 5, Pace::Slow);
            draw(&mut draws, shape)
        };
        assert_eq!(draw_one(3), draw_one(3));
        let total: usize = (0..200).map(|seed| steps(&draw_one(seed).ops)).sum();
        assert!(total > 400, "{total}");
    }
}
