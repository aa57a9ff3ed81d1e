//! Continue-as-new as a body comes to it (rule P36): keys, draws and counts of the next generation, and events that it never saw.
//! Not: what is decided; see the engine's rules.

use everstep_protocol::{
    FailureKind,
    journal::{End, Fact},
    message::{Report, Then, WorkerItem},
};
use everstep_sdk::{Error, Next, Registry, Step, Undo, Workflow};
use everstep_worker::hosted::Finish;

use crate::rig::{Log, Rig};

async fn same(_step: Step, n: u64) -> Result<u64, Error> {
    Ok(n)
}

/// The keys of the steps in a journal.
fn keys(journal: &[everstep_protocol::journal::Entry]) -> Vec<String> {
    let key = |entry: &everstep_protocol::journal::Entry| match &entry.fact {
        Fact::Attempted(attempted) => Some(attempted.key.to_string()),
        _ => None,
    };
    journal.iter().filter_map(key).collect()
}

#[test]
fn p36_each_generation_has_its_own_journal_keys_and_draws() {
    let draws = Log::default();
    let log = draws.clone();
    let registry = Registry::new().workflow_fn("w", move |cx: Workflow, left: u64| {
        let log = log.clone();
        async move {
            cx.step("charge", 1, same).await?;
            let draw = format!("{} {}", cx.generation(), cx.random::<u64>());
            if !log.all().contains(&draw) {
                log.add(draw);
            }
            if left > 0 {
                return cx.continue_as_new(left - 1);
            }
            Ok::<_, Error>(Next::Done(cx.generation()))
        }
    });
    let mut rig = Rig::with_input(registry, 2);
    assert_eq!(rig.output::<u32>(), 3);
    assert_eq!(rig.finished, [Finish::Continued, Finish::Continued, Finish::Ended]);
    assert_eq!(rig.words(), ["started", "charge1 1 ok", "ended"]);
    let mut all: Vec<_> = rig.co.earlier.iter().flat_map(|journal| keys(journal)).collect();
    all.extend(keys(rig.journal()));
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3, "the input is the same, the keys are not (L1)");
    let draws = draws.all();
    assert_eq!(draws.len(), 3, "draws are repeated within a generation only: {draws:?}");
}

#[test]
fn p36_a_crash_at_any_move_comes_to_the_same_next_generation() {
    let registry = || {
        Registry::new().workflow_fn("w", |cx: Workflow, left: u64| async move {
            cx.step("a", left, same).await?;
            if left > 0 {
                cx.continue_as_new(left - 1)
            } else {
                Ok::<_, Error>(Next::Done(cx.random::<u64>()))
            }
        })
    };
    let mut whole = Rig::with_input(registry(), 2);
    let expected = whole.output::<u64>();
    for moves in 0..40 {
        let mut rig = Rig::with_input(registry(), 2);
        for _ in 0..moves {
            rig.move_on();
        }
        rig.crash(false);
        assert_eq!(rig.output::<u64>(), expected, "after {moves} moves");
    }
}

#[test]
fn p36_an_event_that_the_body_never_saw_is_for_the_next_generation() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, first: bool| async move {
        if first {
            let (event, one, other) =
                (cx.event::<String>("note"), cx.step("a", 1, same), cx.step("b", 2, same));
            futures::pin_mut!(event, one, other);
            futures::future::select(futures::future::select(one, other), event).await;
            return cx.continue_as_new(false);
        }
        Ok::<_, Error>(Next::Done(cx.event::<String>("note").timeout("1 min").await?))
    });
    let mut rig = Rig::with_input(registry, true);
    rig.claim();
    rig.exchange();
    // One step ends while the other runs, so that its outcome is recorded before the body sees it.
    rig.attempt();
    rig.turn();
    rig.flush();
    rig.receive();
    rig.turn();
    let last = rig.out.back();
    assert!(matches!(last, Some(WorkerItem::Report(Report { then: Then::Again(_), .. }))), "{last:?}");
    // The body has gone on, and the wait is still open where events are taken in.
    rig.event("e-1", "note", "\"hello\"");
    assert_eq!(rig.output::<String>(), "hello");
    assert_eq!(rig.co.earlier.len(), 1);
}

#[test]
fn p36_the_counts_of_a_generation_begin_anew() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, left: u64| async move {
        for _ in 0..3 {
            cx.step("a", left, same).await?;
        }
        if left > 0 { cx.continue_as_new(left - 1) } else { Ok::<_, Error>(Next::Done(())) }
    });
    let mut rig = Rig::with_input(registry, 3);
    rig.co.rules.limits.steps = 3;
    rig.output::<()>();
    assert_eq!(rig.words().iter().filter(|word| word.ends_with("ok")).count(), 3);
}

#[test]
fn p04_a_next_input_over_the_limit_is_an_error_of_the_instance() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, _: String| async move {
        cx.continue_as_new::<_, (), Error>("x".repeat(100))
    });
    let mut rig = Rig::with_input(registry, "");
    rig.co.rules.limits.input_bytes = 101;
    let failure = rig.failure();
    assert_eq!(failure.kind, FailureKind::TooLarge);
    assert!(failure.message.contains("102 bytes"), "{failure}");
    assert!(matches!(rig.co.end(rig.uid), Some(End::Errored(_))));
}

#[test]
fn p36_p38_a_next_input_over_the_limit_is_taken_back_like_any_error() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, _: String| async move {
        cx.step("a", 1, same).compensate(async |_: Step, _: Undo<u64, u64>| Ok::<_, Error>(())).await?;
        cx.continue_as_new::<_, (), Error>("x".repeat(100))
    });
    let mut rig = Rig::with_input(registry, "");
    rig.co.rules.limits.input_bytes = 101;
    assert_eq!(rig.failure().kind, FailureKind::TooLarge);
    assert_eq!(rig.words(), ["started", "a1 1 ok", "compensating", "a1 1 ok", "compensated", "ended"]);
}
