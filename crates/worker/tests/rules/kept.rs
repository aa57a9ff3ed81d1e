//! Bodies that are kept over a suspend (rule W27): what they save, and that nothing depends on them.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use everstep_protocol::{
    Generation, Namespace, Position, Run,
    message::{CoordinatorItem, Grant},
};
use everstep_sdk::{Error, Registry, Workflow};
use everstep_worker::hosted::{Finish, Hosted};

use crate::rig::Rig;

/// Rounds of a step and a long sleep; the counter says how often the body was begun.
fn rounds(count: u64) -> (Registry, Arc<AtomicUsize>) {
    let begun = Arc::new(AtomicUsize::new(0));
    let counter = begun.clone();
    let registry = Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let begun = counter.clone();
        async move {
            begun.fetch_add(1, Ordering::Relaxed);
            let mut sum = 0;
            for round in 0..count {
                sum += cx.step("add", round, async |_, round: u64| Ok::<_, Error>(round)).await?;
                cx.sleep("nap", "1 hour").await?;
            }
            Ok::<_, Error>(sum)
        }
    });
    (registry, begun)
}

fn keeping(registry: Registry) -> Rig {
    let mut rig = Rig::new(registry);
    rig.caches = true;
    rig
}

#[test]
fn w27_a_wake_costs_what_was_written_since_not_the_whole_journal() {
    let (registry, begun) = rounds(50);
    let mut rig = keeping(registry);
    assert_eq!(rig.output::<u64>(), 49 * 50 / 2);
    assert_eq!(begun.load(Ordering::Relaxed), 1, "it is never replayed");
    assert_eq!((rig.metrics.resumed.get(), rig.metrics.replays.get()), (50, 0));
    // The first entry, then in each round the step's, the sleep's, and its end.
    assert_eq!(rig.granted, 1 + 50 * 3);
    assert_eq!(rig.finished.iter().filter(|finish| **finish == Finish::Suspended).count(), 50);

    let (registry, begun) = rounds(50);
    let mut without = Rig::new(registry);
    assert_eq!(without.output::<u64>(), 49 * 50 / 2);
    assert_eq!(begun.load(Ordering::Relaxed), 51);
    assert_eq!(rig.words(), without.words(), "the journal is the same");
}

#[test]
fn w27_nothing_counts_on_a_body_that_was_kept() {
    let (registry, begun) = rounds(20);
    let mut rig = keeping(registry);
    while rig.move_on() {
        let claimed = !rig.inbox.is_empty();
        // In turn: let go of before the claim, after the claim said that it is there, and not at all.
        if rig.finished.len() % 3 == 1 + usize::from(claimed) {
            rig.kept = None;
        }
    }
    assert_eq!(rig.output::<u64>(), 19 * 20 / 2);
    let suspended = 20;
    assert_eq!(begun.load(Ordering::Relaxed), 1 + suspended - suspended / 3);
    assert_eq!(rig.metrics.resumed.get(), suspended as u64 / 3);
}

#[test]
fn w27_a_claim_says_what_is_kept_and_another_run_is_another_journal() {
    let (registry, _) = rounds(2);
    let mut rig = keeping(registry);
    while rig.kept.is_none() {
        assert!(rig.move_on());
    }
    let mut kept = rig.kept.take().unwrap();
    assert_eq!(
        (kept.have().run, kept.have().position),
        (Run(1), Position(1)),
        "what it was fed, not what it wrote"
    );
    rig.claim();
    let Some(CoordinatorItem::Grant(grant)) = rig.inbox.pop_front() else { panic!() };
    for other in [
        Grant { run: Run(2), ..grant.clone() },
        Grant { generation: Generation(2), ..grant.clone() },
        Grant { last: Position(0), ..grant.clone() },
    ] {
        assert!(!kept.fits(&other), "{other:?}");
    }
    assert!(kept.is_asleep() && kept.fits(&grant));
    kept.resume(grant);
    assert!(!kept.is_asleep());
}

#[test]
fn w27_a_body_that_is_asleep_takes_memory_and_says_how_much() {
    let (registry, _) = rounds(40);
    let mut rig = keeping(registry);
    let mut sizes = Vec::new();
    while rig.move_on() {
        sizes.extend(rig.kept.as_ref().map(Hosted::bytes));
    }
    sizes.dedup();
    assert!(sizes.len() >= 40 && sizes.is_sorted(), "it grows with what the body was told: {sizes:?}");
}

/// The answer to the suspend and the grant of the next lease come by ways of their own, or are found together by a busy worker.
#[test]
fn w27_a_grant_that_overtakes_the_answer_to_the_suspend_finds_the_body() {
    for answer in ["before", "behind", "lost"] {
        let (registry, begun) = rounds(10);
        let mut rig = keeping(registry);
        rig.co.room.serve(rig.session, &Namespace::default(), &["w".parse().unwrap()]);
        rig.claim();
        rig.exchange();
        while rig.co.end(rig.uid).is_none() {
            rig.co.room.credit(rig.session, u64::MAX);
            assert!(rig.attempt());
            rig.turn();
            rig.flush();
            let answers = std::mem::take(&mut rig.inbox);
            let (before, behind) = match answer {
                "before" => (answers.clone(), VecDeque::new()),
                "behind" => (VecDeque::new(), answers.clone()),
                _ => (VecDeque::new(), VecDeque::new()),
            };
            assert_eq!(answers.len(), 1, "the outcome, the sleep and the suspend are one report");
            assert!(rig.wait());
            assert!(
                matches!(&rig.inbox[0], CoordinatorItem::Grant(grant) if grant.direct),
                "{:?}",
                rig.inbox
            );
            let grants = std::mem::replace(&mut rig.inbox, before);
            rig.inbox.extend(grants);
            rig.inbox.extend(behind);
            // All of it before the instance takes its turn.
            rig.receive();
            rig.exchange();
        }
        assert_eq!(rig.output::<u64>(), 45);
        assert_eq!((begun.load(Ordering::Relaxed), rig.metrics.resumed.get()), (1, 10), "answer {answer}");
    }
}

#[test]
fn w27_only_the_next_direct_grant_from_there_says_that_the_suspend_was_taken() {
    let (registry, _) = rounds(2);
    let mut rig = keeping(registry);
    rig.co.room.serve(rig.session, &Namespace::default(), &["w".parse().unwrap()]);
    rig.claim();
    rig.exchange();
    assert!(rig.attempt());
    rig.turn();
    rig.co.room.credit(rig.session, u64::MAX);
    rig.flush();
    rig.inbox.clear();
    rig.wait();
    let Some(CoordinatorItem::Grant(grant)) = rig.inbox.pop_front() else { panic!() };
    let hosted = rig.hosted.as_ref().unwrap();
    assert!(hosted.is_followed_by(&grant));
    let whole = rig.journal().to_vec();
    for other in [
        Grant { direct: false, ..grant.clone() },
        Grant { epoch: grant.epoch.next(), ..grant.clone() },
        Grant { entries: whole, ..grant.clone() },
        Grant { entries: Vec::new(), ..grant.clone() },
    ] {
        assert!(!hosted.is_followed_by(&other), "{other:?}");
    }
}
