//! Ends sessions that are silent, or whose inbox is gone (rules W8, W9), and hands the leases of ended sessions on.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use everstep_protocol::{
    SessionId,
    message::{CoordinatorItem, ToWorker},
    wire,
};
use tokio::time::Instant;

use super::{duties::WATCH, sessions};
use crate::{arrival::Arrival, shared::Shared};

const EVERY: Duration = Duration::from_secs(1);
const PAGE: u32 = 500;

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut unroutable = HashMap::new();
    loop {
        if shared.has_duty(WATCH) {
            if let Err(error) = silent(&shared).await {
                tracing::warn!(%error, "silent sessions were not read; no session ends meanwhile");
            }
            if let Err(error) = gone(&shared, &mut unroutable).await {
                tracing::debug!(%error, "inboxes were not probed; no session ends early meanwhile");
                unroutable.clear();
            }
        } else {
            unroutable.clear();
        }
        hand_on(&shared).await;
        tokio::select! {
            biased;
            () = tokio::time::sleep(EVERY) => {}
            () = shared.orphans.notified() => {}
        }
    }
}

async fn silent(shared: &Shared) -> Result<(), crate::Error> {
    for session in shared.store.silent(shared.settings.lease).await? {
        end(shared, session, "silent").await?;
    }
    Ok(())
}

/// Pings every inbox; one that is unroutable for long enough ends its session. Not so within a lease after a gap, in which
/// nobody could observe it, unless the session was heard since: then it was there after the gap.
async fn gone(shared: &Shared, since: &mut HashMap<SessionId, Instant>) -> Result<(), crate::Error> {
    let live = shared.sessions();
    if live.is_empty() {
        since.clear();
        return Ok(());
    }
    let inboxes = live.iter().map(|open| open.inbox.clone()).collect();
    let ping = ToWorker {
        incarnation: shared.incarnation,
        coordinator: shared.id,
        session: live[0].session,
        items: vec![CoordinatorItem::Ping],
    };
    let unroutable = shared.broker.unroutable(inboxes, wire::encode(&ping)).await?;
    since.retain(|session, _| {
        live.iter().any(|open| open.session == *session && unroutable.contains(&open.inbox))
    });
    let limit = Duration::from_millis(shared.settings.unroutable.as_u64());
    let mut over = Vec::new();
    for open in live.iter().filter(|open| unroutable.contains(&open.inbox)) {
        let first = *since.entry(open.session).or_insert_with(Instant::now);
        if first.elapsed() + Duration::from_millis(50) >= limit {
            over.push(open.session);
        }
    }
    if over.is_empty() {
        return Ok(());
    }
    for session in shared.store.observed(&over, shared.settings.lease).await? {
        since.remove(&session);
        end(shared, session, "unroutable").await?;
    }
    Ok(())
}

async fn end(shared: &Shared, session: SessionId, cause: &'static str) -> Result<(), crate::Error> {
    shared.store.end_session(session, true).await?;
    tracing::warn!(%session, cause, "a session is ended");
    shared.metrics.sessions_ended.with_label_values(&[cause]).inc();
    shared.forget(session);
    Ok(())
}

/// Ends the leases of ended sessions, page by page. Any coordinator does it: the decisions check again.
async fn hand_on(shared: &Arc<Shared>) {
    loop {
        if everstep_protocol::planted("orphans_left") {
            return;
        }
        let orphans = match shared.store.orphans(PAGE).await {
            Ok(orphans) => orphans,
            Err(error) => {
                tracing::warn!(%error, "leases of ended sessions were not read; tried again in a second");
                return;
            }
        };
        if orphans.is_empty() {
            return;
        }
        let sessions: HashSet<_> = orphans.iter().map(|orphan| orphan.open.session).collect();
        let sessions: Vec<_> = sessions.into_iter().collect();
        let progress = match shared.store.kept_progress(&sessions).await {
            Ok(progress) => progress,
            Err(error) => {
                tracing::warn!(%error, "the progress of lost attempts was not read; tried again in a second");
                return;
            }
        };
        let full = orphans.len() == PAGE as usize;
        let mut answers = Vec::with_capacity(orphans.len());
        for orphan in orphans {
            let told = progress.get(&orphan.open.session).map_or(&[][..], Vec::as_slice);
            let of = if orphan.lease.subject.call().is_some() { "step" } else { "instance" };
            shared.metrics.leases_lost.with_label_values(&[of]).inc_by(u64::from(orphan.counts));
            let input = sessions::end_input(&orphan.open, &orphan.lease, None, orphan.counts, told);
            let (arrival, answer) = Arrival::answered(input);
            shared.submit(arrival);
            answers.push(answer);
        }
        for answer in answers {
            drop(answer.await);
        }
        if !full {
            return;
        }
    }
}
