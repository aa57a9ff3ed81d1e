//! Whoever sends events and resumes hooks, over HTTP, until a coordinator has taken it.

use std::time::{Duration, Instant};

use everstep_client::api::{Api, Event};
use serde_json::value::RawValue;

use crate::{load::Accepted, work::Shape};

/// So long after the start: the instance then waits for it.
const AFTER: Duration = Duration::from_millis(400);
/// A coordinator that stands still is not waited for any longer.
const WITHIN: Duration = Duration::from_secs(4);
/// Without success for this long nobody will take it: its instance then never ends, and is counted.
const PATIENCE: Duration = Duration::from_mins(4);

/// Tells an instance what it will wait for.
pub(crate) fn tell(desks: Vec<Api>, start: &Accepted) {
    if !matches!(start.shape, Shape::Waiter | Shape::Hooked) {
        return;
    }
    let start = start.clone();
    tokio::spawn(async move {
        let began = Instant::now();
        loop {
            tokio::time::sleep(AFTER).await;
            for desk in &desks {
                // The same id again is the same event: whatever went wrong, it may be sent once more.
                let told = tokio::time::timeout(WITHIN, told(desk, &start)).await;
                if matches!(told, Ok(true)) || began.elapsed() > PATIENCE {
                    return;
                }
            }
        }
    });
}

async fn told(desk: &Api, start: &Accepted) -> bool {
    let Ok(payload) = RawValue::from_string("1".to_owned()) else { return false };
    let id = format!("go-{}", start.id);
    let outcome = if start.shape == Shape::Waiter {
        let (Ok(workflow), Ok(instance), Ok(kind)) =
            (start.shape.workflow().parse(), start.id.parse(), "go".parse())
        else {
            return false;
        };
        desk.send_event(&workflow, &instance, &Event { kind, key: None, id, payload }).await
    } else {
        let Ok(token) = start.id.parse() else { return false };
        desk.resume_hook(&token, &id, &payload).await
    };
    outcome.is_ok()
}
