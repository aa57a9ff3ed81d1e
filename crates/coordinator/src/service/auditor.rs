//! The auditor (promise 5, rule W42): walks through the open instances, page by page, and looks whether each has a reason to move.
//! What has none is mended by a decision like any other, counted by its kind, and explained in the log and in a record.

use std::{sync::Arc, time::Duration};

use everstep_engine::{Answer, Input, What, breach::BreachKind};
use everstep_protocol::{Position, crash::around};
use everstep_store::{BreachRow, Range, Suspect};
use tokio::time::Instant;

use super::duties::AUDIT;
use crate::{Error, arrival::Arrival, shared::Shared};

/// Instances of one page.
const PAGE: u32 = 500;
/// The pause between two walks.
const EVERY: Duration = Duration::from_secs(10);
/// After a page passes as many times as long as it took, so that the walk takes a twentieth of one connection at most.
const SPARSE: u32 = 20;
/// The shortest pause between two pages.
const BREATH: Duration = Duration::from_millis(20);
/// So much of a journal is read at once.
const PART_BYTES: usize = 1 << 20;

/// Runs until the coordinator stops; one has the duty.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut after = None;
    loop {
        if !shared.has_duty(AUDIT) {
            after = None;
            tokio::time::sleep(EVERY).await;
            continue;
        }
        let began = Instant::now();
        match page(&shared, after).await {
            Ok(next) => after = next,
            Err(error) => {
                tracing::warn!(%error, "whether every open instance has a reason to move is not known");
                tokio::time::sleep(EVERY.max(began.elapsed() * SPARSE)).await;
                continue;
            }
        }
        let pause = if after.is_none() {
            shared.metrics.auditor.walks.inc();
            EVERY
        } else {
            BREATH
        };
        tokio::time::sleep(pause.max(began.elapsed() * SPARSE)).await;
    }
}

/// Looks at one page, and mends what is wrong. Answers with where the walk goes on; none at its end.
async fn page(
    shared: &Arc<Shared>,
    after: Option<everstep_protocol::InstanceUid>,
) -> Result<Option<everstep_protocol::InstanceUid>, Error> {
    let walked = shared.store.suspects(after, PAGE).await?;
    shared.metrics.auditor.checked.inc_by(walked.open);
    let mut found = Vec::new();
    for suspect in walked.suspects {
        let (uid, breach) = (suspect.uid, suspect.breach.kind());
        match mend(shared, suspect).await {
            Ok(mended) => found.extend(mended),
            // Nobody else has to wait for it.
            Err(error) => {
                tracing::warn!(%error, instance = %uid, breach = breach.word(), "a suspect could not be looked at; the walk goes on");
            }
        }
    }
    // Whatever has become of the records, it is mended, counted and in the log.
    if !found.is_empty()
        && let Err(error) = around("commit.breaches", shared.store.keep_breaches(&found)).await
    {
        tracing::warn!(%error, breaches = found.len(), "breaches that were mended are not recorded");
    }
    Ok(walked.next)
}

/// One that has moved on meanwhile, or whose decision did not come about, is left to the next walk.
async fn mend(shared: &Arc<Shared>, mut suspect: Suspect) -> Result<Option<BreachRow>, Error> {
    read(shared, &mut suspect).await?;
    let Suspect { uid, name, run, breach } = suspect;
    let kind = breach.kind();
    let (arrival, answer) = Arrival::answered(Input::On { instance: uid, what: What::Breach(breach) });
    shared.submit(arrival);
    let is_asked = match answer.await {
        Ok(Ok(told)) if told.answer == Answer::Done => false,
        Ok(Ok(told)) if told.answer == Answer::Parked => true,
        Ok(_) | Err(_) => return Ok(None),
    };
    let message = explained(kind, is_asked);
    shared.metrics.auditor.breaches.inc(kind.word());
    tracing::error!(
        kind = kind.word(),
        namespace = %name.namespace,
        workflow = %name.workflow,
        id = %name.id,
        run = run.0,
        message,
        "an open instance had nothing that would move it as it should; it was mended"
    );
    Ok(Some(BreachRow { uid, name, run, kind, message }))
}

fn explained(kind: BreachKind, is_asked: bool) -> String {
    let (meaning, mending) = (kind.meaning(), kind.mending());
    if is_asked {
        format!(
            "{meaning}; what it waited for cannot be made anew, so the instance is parked and a person is asked"
        )
    } else {
        format!("{meaning}; {mending}")
    }
}

/// The journal says what an instance is to wait for.
async fn read(shared: &Arc<Shared>, suspect: &mut Suspect) -> Result<(), Error> {
    let (uid, run) = (suspect.uid, suspect.run);
    let Some(calls) = suspect.breach.calls() else { return Ok(()) };
    let mut after = Position(0);
    loop {
        let range = Range { uid, run, after };
        let part = shared.store.journal(vec![range], PART_BYTES).await?.pop().unwrap_or_default();
        let Some(last) = part.last() else { return Ok(()) };
        after = last.position;
        for entry in &part {
            calls.read(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves that a page is mended, counted and explained. Not: each kind of breach; see the store's conformance, which does each
    //! to both stores. Nor when pages are looked at.
    use everstep_engine::{
        Writes,
        rows::{Lease, Subject},
    };
    use everstep_protocol::{Epoch, InstanceUid, SessionId};

    use super::*;
    use crate::rehearsal::{Rehearsal, named};

    /// Looks at all of it, while the loop takes what is sent.
    async fn looks(coordinator: &mut Rehearsal, decisions: usize) -> Option<InstanceUid> {
        let shared = Arc::clone(&coordinator.shared);
        let looking = tokio::spawn(async move { page(&shared, None).await });
        for _ in 0..decisions {
            let arrival = coordinator.next().await;
            coordinator.turn(arrival).await;
        }
        looking.await.expect("it ends").expect("the store answers")
    }

    fn counted(coordinator: &Rehearsal, kind: &str) -> u64 {
        coordinator.shared.metrics.auditor.breaches.of_word(kind).expect("it is a kind").get()
    }

    async fn is_ready(coordinator: &Rehearsal, id: &str) -> bool {
        let view = coordinator.store().instance(&named(id)).await.expect("it is read").expect("it is there");
        view.ready_at.is_some()
    }

    #[tokio::test]
    async fn w42_a_breach_is_mended_counted_and_explained() {
        let mut coordinator = Rehearsal::new();
        let (idle, held) = (coordinator.start("idle", None).await, coordinator.start("held", None).await);
        coordinator.start("well", None).await;
        let lease = Lease { session: SessionId::generate(), epoch: Epoch(1) };
        let ready_deletes = vec![(idle, Subject::INSTANCE), (held, Subject::INSTANCE)];
        let leases = vec![(held, Subject::INSTANCE, lease)];
        coordinator.write(Writes { ready_deletes, leases, ..Writes::default() }).await;
        assert_eq!(looks(&mut coordinator, 2).await, None, "it is the whole walk");
        assert!(is_ready(&coordinator, "idle").await && is_ready(&coordinator, "held").await);
        assert_eq!((counted(&coordinator, "idle"), counted(&coordinator, "session_unknown")), (1, 1));
        assert_eq!(coordinator.shared.metrics.auditor.checked.get(), 3);
        let name = named("idle");
        let records = coordinator.store().breaches(&name.namespace, 10).await.expect("they are listed");
        let of = |id: &str| {
            let found = records.iter().find(|view| view.breach.name.id.as_str() == id);
            found.map(|view| view.breach.message.clone()).expect("it is recorded")
        };
        assert_eq!(records.len(), 2);
        assert!(of("idle").contains("made runnable"), "{records:?}");
        assert!(of("held").contains("never opened"), "{records:?}");
        looks(&mut coordinator, 0).await;
        assert_eq!(counted(&coordinator, "idle"), 1, "nothing is wrong any more");
    }

    /// Between the look and the decision it was claimed.
    #[tokio::test]
    async fn w42_what_has_moved_on_is_no_breach() {
        let mut coordinator = Rehearsal::new();
        let uid = coordinator.start("i", None).await;
        coordinator
            .write(Writes { ready_deletes: vec![(uid, Subject::INSTANCE)], ..Writes::default() })
            .await;
        let shared = Arc::clone(&coordinator.shared);
        let looking = tokio::spawn(async move { page(&shared, None).await });
        let arrival = coordinator.next().await;
        let session = coordinator.opens().await;
        coordinator.leases(uid, session).await;
        coordinator.turn(arrival).await;
        looking.await.expect("it ends").expect("the store answers");
        assert_eq!(counted(&coordinator, "idle"), 0);
        let records = coordinator.store().breaches(&named("i").namespace, 10).await.expect("they are listed");
        assert!(records.is_empty(), "{records:?}");
    }
}
