//! Where two features meet: a cancel and an open wait, a restart from a step and events that were delivered, two changes of code
//! that are asked about at once.

use everstep::{Error, Workflow};
use everstep_conformance::{echo, noting, words};
use everstep_system_tests::Log;
use everstep_testkit::{Kit, KitError, Run, Status, TestKit, crash_everywhere};

/// Waits for an event; if it is cancelled, waits once more and ends with what it has.
fn careful() -> TestKit {
    TestKit::new().workflow_fn("careful", |cx: Workflow, (): ()| async move {
        let first = match cx.event::<u64>("n").await {
            Ok(number) => Some(number),
            Err(error) if error.is_cancelled() => None,
            Err(error) => return Err(error),
        };
        // A cancel that comes only now ends this instead.
        let slept = if first.is_some() { cx.sleep("then", "1 hour").await } else { Ok(()) };
        let second = if first.is_none() { cx.event::<u64>("n").timeout("1 hour").await.ok() } else { None };
        Ok::<_, Error>((first, second, cx.is_cancelled(), slept.is_err()))
    })
}

type Got = (Option<u64>, Option<u64>, bool, bool);

#[test]
fn p30_a_cancel_ends_an_open_wait_and_a_later_event_goes_to_the_clean_up() {
    careful().time_by_hand().run(async |kit| {
        let run = kit.start_instance("careful", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        futures::future::try_join(run.cancel("enough"), run.send("n", &1)).await.unwrap();
        let (first, second, cancelled, _) = run.result::<Got>().await.unwrap();
        assert_eq!((first.or(second), cancelled), (Some(1), true));
        assert_eq!(run.view().await.unwrap().waits, 0);
    });
}

#[test]
fn p30_cancelled_while_it_waits_for_an_event_it_ends_and_takes_none() {
    let kit =
        TestKit::new().workflow_fn("plain", |cx: Workflow, (): ()| async move { cx.event::<u64>("n").await });
    kit.time_by_hand().run(async |kit| {
        let run = kit.start_instance("plain", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.cancel("enough").await.unwrap();
        assert!(matches!(run.result::<u64>().await.unwrap_err(), KitError::Cancelled { .. }));
        assert_eq!(words(&run.journal().await.unwrap()), ["started", "opened", "cancelled", "ended"]);
        assert!(run.send("n", &1).await.unwrap_err().to_string().contains("Cancelled"));
    });
}

/// Fifty times a cancel and an event at once, in both orders: the event is read once, before the cancel or after it.
#[test]
fn p30_p22_a_cancel_and_an_event_that_meet_lose_no_event_and_double_none() {
    careful().time_by_hand().run(async |kit| {
        for number in 0..50_u64 {
            let run = kit.start_instance("careful", &()).await.unwrap();
            run.reaches(Status::Waiting).await.unwrap();
            let (cancel, send) = (run.cancel("race"), run.send("n", &number));
            if number % 2 == 0 {
                futures::future::try_join(cancel, send).await.unwrap();
            } else {
                futures::future::try_join(send, cancel).await.unwrap();
            }
            if number % 5 == 0 {
                kit.crash_worker();
                kit.advance("20s").await.unwrap();
            }
            let (first, second, cancelled, slept) = run.result::<Got>().await.unwrap();
            let read: Vec<_> = first.into_iter().chain(second).collect();
            assert_eq!((read, cancelled, slept), (vec![number], true, first.is_some()), "{number}");
        }
    });
}

/// Two events, each kept by a step; a third is sent and never read.
fn reader(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("reader", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let mut got = Vec::new();
            for _ in 0..2 {
                let number: u64 = cx.event("n").await?;
                cx.step("keep", (), noting(&log, ())).await?;
                got.push(number);
            }
            Ok::<_, Error>(got)
        }
    })
}

async fn read_two_of_three(kit: &Kit) -> Run {
    let run = kit.start_instance("reader", &()).await.unwrap();
    for number in 1..=3 {
        run.send("n", &number).await.unwrap();
    }
    assert_eq!(run.result::<Vec<u64>>().await.unwrap(), [1, 2]);
    run
}

#[test]
fn p31_p22_a_restart_from_a_step_keeps_the_events_that_were_read_before_it() {
    let log = Log::new();
    reader(&log).run(async move |kit| {
        let run = read_two_of_three(&kit).await;
        run.restart_from(("keep", 2)).await.unwrap();
        assert_eq!(
            run.result::<Vec<u64>>().await.unwrap(),
            [1, 2],
            "both waits began before that step was done"
        );
        assert_eq!(log.count("keep 1"), 3);
    });
}

#[test]
fn p31_p22_what_was_read_after_the_step_stays_read_and_the_next_event_comes() {
    reader(&Log::new()).run(async |kit| {
        let run = read_two_of_three(&kit).await;
        run.restart_from(("keep", 1)).await.unwrap();
        kit.crash_worker();
        assert_eq!(run.result::<Vec<u64>>().await.unwrap(), [1, 3]);
        // Nothing is unread any more: a whole run needs two new ones.
        run.restart().await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        assert!(run.view().await.unwrap().unread.is_empty());
        for number in [4, 5] {
            run.send("n", &number).await.unwrap();
        }
        assert_eq!(run.result::<Vec<u64>>().await.unwrap(), [4, 5]);
    });
}

/// The wait was open beside the step, so its event is one that the step's outcome did not bring about.
#[test]
fn p31_p22_an_event_that_was_awaited_beside_the_step_is_kept() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("beside", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            let (number, kept) = futures::join!(cx.event::<u64>("n"), cx.step("a", (), noting(&log, ())));
            kept?;
            cx.step("b", number?, echo::<u64>).await
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("beside", &()).await.unwrap();
        run.step::<()>("a").await.unwrap();
        run.send("n", &7).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 7);
        run.restart_from("a").await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 7, "without another event");
        assert_eq!(log.lines(), ["a 1", "a 1"]);
    });
}

/// Asks about changes at once, and makes a step named after the answers.
async fn asks(cx: Workflow, changes: Vec<String>) -> Result<Vec<bool>, Error> {
    let asked = futures::future::try_join_all(changes.iter().map(|change| cx.patched(change))).await?;
    cx.step(format!("{asked:?}"), (), echo::<()>).await?;
    cx.sleep("nap", "1 hour").await?;
    let again = futures::future::try_join_all(changes.iter().rev().map(|change| cx.patched(change))).await?;
    let same = again.into_iter().rev().collect::<Vec<_>>() == asked;
    if same { Ok(asked) } else { Err(Error::permanent("one change had two answers")) }
}

#[test]
fn p40_two_changes_asked_about_at_once_have_their_answers_wherever_the_worker_dies() {
    for changes in [&["a", "b"][..], &["a", "a"], &["a", "b", "a"]] {
        crash_everywhere(move || {
            (TestKit::new().workflow_fn("asks", asks), async move |kit: Kit| {
                let run = kit.start_instance_as("asks", "one", changes).await.unwrap();
                assert_eq!(run.result::<Vec<bool>>().await.unwrap(), vec![true; changes.len()]);
            })
        });
    }
}

/// An instance that was past the place when the second change was deployed: the first applies, the second does not.
#[test]
fn p40_a_change_that_joined_another_later_has_an_answer_of_its_own() {
    fn saved(code: fn(bool) -> TestKit) -> String {
        code(false).run(async |kit| {
            let run = kit.start_instance_as("change", "one", &()).await.unwrap();
            run.result::<String>().await.unwrap();
            run.export().await.unwrap()
        })
    }
    let code = |is_new: bool| {
        TestKit::new().workflow_fn("change", move |cx: Workflow, (): ()| async move {
            let (a, b) = if is_new {
                futures::try_join!(cx.patched("a"), cx.patched("b"))?
            } else {
                (cx.patched("a").await?, false)
            };
            cx.step(format!("a {a}, b {b}"), (), async |step: everstep::Step, (): ()| {
                Ok::<_, Error>(step.name().to_owned())
            })
            .await
        })
    };
    let journal = saved(code);
    code(true).run(async move |kit| {
        let replayed = kit.replay(&journal).unwrap();
        assert!(replayed.ended, "it went through the course of a, without b: {replayed:?}");
        let fresh = kit.start_instance("change", &()).await.unwrap();
        assert_eq!(fresh.result::<String>().await.unwrap(), "a true, b true");
    });
}
