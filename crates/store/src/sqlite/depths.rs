//! How much waits in queues. Goes from queue to queue by the indexes `ready_run` and `ready_step`, and reads of each a bounded number of
//! rows.

use std::{borrow::Cow, collections::HashSet};

use everstep_engine::batch::pinned_queue;
use everstep_protocol::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::{
    column,
    fault::{Fault, Result},
};
use crate::{Depth, Queue, UNSERVED_COUNTED};

/// The statements of one kind of queue. What is not offered yet stands in the order of its age; what is offered is at most a window.
struct Statements {
    is_step: bool,
    measure: &'static str,
    next: &'static str,
}

const RUN: Statements = Statements {
    is_step: false,
    measure: "SELECT count(*), min(at) FROM (SELECT ready_at AS at FROM ready
            WHERE pool IS NULL AND namespace = ?1 AND workflow = ?2
            ORDER BY offered_at, ready_at LIMIT ?3)
        UNION ALL
        SELECT 0, min(at) FROM (SELECT ready_at AS at FROM ready
            WHERE pool IS NULL AND namespace = ?1 AND workflow = ?2 AND offered_at IS NOT NULL LIMIT ?3)",
    next: "SELECT namespace, workflow FROM ready WHERE pool IS NULL AND (namespace, workflow) > (?1, ?2)
        ORDER BY namespace, workflow LIMIT 1",
};

const STEP: Statements = Statements {
    is_step: true,
    measure: "SELECT count(*), min(at) FROM (SELECT ready_at AS at FROM ready
            WHERE pool IS NOT NULL AND namespace = ?1 AND pool = ?2
            ORDER BY offered_at, ready_at LIMIT ?3)
        UNION ALL
        SELECT 0, min(at) FROM (SELECT ready_at AS at FROM ready
            WHERE pool IS NOT NULL AND namespace = ?1 AND pool = ?2 AND offered_at IS NOT NULL LIMIT ?3)",
    next: "SELECT namespace, pool FROM ready WHERE pool IS NOT NULL AND (namespace, pool) > (?1, ?2)
        ORDER BY namespace, pool LIMIT 1",
};

/// Of these queues, and of so many others, those with ready rows.
pub(super) fn of(
    connection: &Connection,
    queues: &[Queue],
    others: usize,
    now: Timestamp,
) -> Result<Vec<Depth>> {
    let named: HashSet<&Queue> = queues.iter().collect();
    let mut depths = Vec::new();
    for queue in &named {
        depths.extend(measure(connection, queue, now)?);
    }
    let most = depths.len() + others;
    for statements in [&RUN, &STEP] {
        let mut last = (String::new(), String::new());
        while depths.len() < most
            && let Some(next) = next(connection, statements, &last)?
        {
            let queue = Queue::named(&next.0, &next.1, statements.is_step)
                .map_err(|error| Fault::corrupt("queue", error))?;
            if !named.contains(&queue) {
                depths.extend(measure(connection, &queue, now)?);
            }
            last = next;
        }
    }
    Ok(depths)
}

/// The queue with ready rows that comes next in the index.
fn next(
    connection: &Connection,
    statements: &Statements,
    last: &(String, String),
) -> Result<Option<(String, String)>> {
    let mut statement = connection.prepare_cached(statements.next)?;
    let row = statement.query_row(params![last.0, last.1], |row| Ok((row.get(0)?, row.get(1)?)));
    Ok(row.optional()?)
}

fn measure(connection: &Connection, queue: &Queue, now: Timestamp) -> Result<Option<Depth>> {
    let (statements, namespace, name): (_, _, Cow<'_, str>) = match queue {
        Queue::Run(namespace, workflow) => (&RUN, namespace, workflow.as_str().into()),
        Queue::Pinned(namespace, workflow, build) => (&RUN, namespace, pinned_queue(workflow, build).into()),
        Queue::Step(namespace, pool) => (&STEP, namespace, pool.as_str().into()),
    };
    let mut statement = connection.prepare_cached(statements.measure)?;
    let mut found = statement.query(params![namespace.as_str(), name, UNSERVED_COUNTED as i64])?;
    let (mut rows, mut oldest) = (0, None);
    while let Some(row) = found.next()? {
        rows += column::count(row, 0)?;
        let at = column::time_if_any(row, 1)?;
        oldest = oldest.into_iter().chain(at).min();
    }
    Ok(oldest.map(|oldest| Depth { queue: queue.clone(), rows, oldest: now.since(oldest) }))
}
