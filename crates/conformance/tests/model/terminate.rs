//! Terminate (O-06 among them): at once, once, and whatever comes late is refused.

use std::time::Duration;

use everstep::{Error, Retry, Step, Workflow};
use everstep_conformance::{attempts, noting};
use everstep_system_tests::Log;
use everstep_testkit::{Kit, Run, Status, TestKit};

/// A step that cannot be interrupted and takes so many milliseconds, then another.
fn deaf(log: &Log, millis: u64, fails: bool) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("deaf", move |cx: Workflow, (): ()| {
        let log = log.clone();
        async move {
            let told = log.clone();
            let first = cx.step("s1", (), move |step: Step, (): ()| {
                let log = told.clone();
                // A task of its own goes on whatever happens to the attempt.
                async move {
                    let task = tokio::spawn(async move {
                        log.push(format!("s1 {} begins", step.attempt()));
                        tokio::time::sleep(Duration::from_millis(millis)).await;
                        log.push(format!("s1 {} ends", step.attempt()));
                    });
                    task.await.map_err(Error::failed)?;
                    if fails { Err(Error::failed("503")) } else { Ok(()) }
                }
            });
            first.retry(Retry::constant("1s").limit(5)).await?;
            cx.step("s2", (), noting(&log, "done".to_owned())).await
        }
    })
}

#[test]
fn o06_a_result_that_comes_after_the_end_is_stored_nowhere() {
    for fails in [false, true] {
        let log = Log::new();
        deaf(&log, 10_000, fails).time_by_hand().run(async move |kit| {
            let run = kit.start_instance("deaf", &()).await.unwrap();
            kit.advance("3s").await.unwrap();
            run.terminate("enough").await.unwrap();
            let ended_at = run.view().await.unwrap().ended_at.unwrap();
            kit.advance("1s").await.unwrap();
            assert!(run.send("x", &1).await.is_err());
            kit.advance("20s").await.unwrap();
            let view = run.view().await.unwrap();
            assert_eq!((view.status, view.ended_at), (Status::Terminated, Some(ended_at)));
            assert!(attempts(&run.journal().await.unwrap()).is_empty(), "no late result, and no retry");
            assert_eq!(log.lines(), ["s1 1 begins", "s1 1 ends"]);
            // The worker takes new work at once.
            let next = kit.start_instance("deaf", &()).await.unwrap();
            kit.advance("1s").await.unwrap();
            assert_eq!(log.lines().len(), 3);
            next.terminate("enough").await.unwrap();
        });
    }
}

async fn refused(run: &Run, word: &str) {
    let before = run.view().await.unwrap();
    for (what, answer) in [
        ("terminate", run.terminate("again").await),
        ("pause", run.pause().await),
        ("resume", run.resume().await),
        ("cancel", run.cancel("again").await),
    ] {
        let error = answer.expect_err(what).to_string();
        assert!(error.contains(word), "{what}: {error}");
    }
    assert_eq!(run.view().await.unwrap(), before, "nothing has changed");
}

#[test]
fn b016_b017_b018_o06_what_has_ended_refuses_and_keeps_its_end() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("ends", move |cx: Workflow, fails: Option<bool>| {
        let log = told.clone();
        async move {
            match fails {
                None => cx.sleep("for long", "1 day").await.map(|()| 0),
                Some(true) => Err(Error::permanent("as told")),
                Some(false) => cx.step("s", (), noting(&log, 7)).await,
            }
        }
    });
    kit.run(async |kit| {
        let complete = kit.start_instance("ends", &Some(false)).await.unwrap();
        assert_eq!(complete.result::<u32>().await.unwrap(), 7);
        refused(&complete, "Complete").await;
        assert_eq!(complete.result::<u32>().await.unwrap(), 7);
        let errored = kit.start_instance("ends", &Some(true)).await.unwrap();
        assert_eq!(errored.error().await.unwrap().message(), "as told");
        refused(&errored, "Errored").await;
        let terminated = kit.start_instance("ends", &None::<bool>).await.unwrap();
        terminated.terminate("the first time").await.unwrap();
        refused(&terminated, "Terminated").await;
    });
}

/// Two hundred instances whose step ends around the moment of their termination.
#[test]
fn o06_an_end_and_a_termination_that_meet_agree_with_the_answer() {
    let kit = TestKit::new().workflow_fn("short", |cx: Workflow, (): ()| async move {
        // A sleep stands for the step: what matters is which of two ends comes first.
        cx.sleep("short", 300).await?;
        Ok::<_, Error>("done".to_owned())
    });
    kit.time_by_hand().run(async |kit| {
        let mut runs = Vec::new();
        for _ in 0..200 {
            runs.push(kit.start_instance("short", &()).await.unwrap());
        }
        kit.advance("200ms").await.unwrap();
        let mut said = Vec::new();
        for run in &runs {
            let (terminated, _) = futures::join!(run.terminate("race"), kit.advance(1));
            said.push(if terminated.is_ok() { Status::Terminated } else { Status::Complete });
        }
        let mut ends = Vec::new();
        for (run, said) in runs.iter().zip(&said) {
            kit.settle().await.unwrap();
            assert_eq!(run.status().await.unwrap(), *said, "{run}");
            ends.push(run.view().await.unwrap());
        }
        kit.advance("1 hour").await.unwrap();
        for (run, end) in runs.iter().zip(ends) {
            assert_eq!(run.view().await.unwrap(), end, "what was final stays");
        }
        assert!(said.contains(&Status::Complete) && said.contains(&Status::Terminated));
    });
}

#[test]
fn o06_whatever_it_waits_for_it_is_terminated_at_once_and_no_timer_fires() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("waits", move |cx: Workflow, how: String| {
        let log = told.clone();
        async move {
            match how.as_str() {
                "sleep" => cx.sleep("nap", "10s").await?,
                "event" => cx.event::<()>("x").timeout("10s").await?,
                "retry" => {
                    let fails = async |_: Step, (): ()| Err::<(), _>(Error::failed("503"));
                    cx.step("fails", (), fails).retry(Retry::constant("10s")).await?;
                }
                _ => cx.remote::<()>("nobody", ()).on("nowhere").await?,
            }
            cx.step("after", (), noting(&log, ())).await
        }
    });
    kit.time_by_hand().run(async move |kit| {
        let mut runs = Vec::new();
        for how in ["sleep", "event", "retry", "remote"] {
            for paused in [false, true] {
                let run = started(&kit, how).await;
                if paused {
                    run.pause().await.unwrap();
                }
                run.terminate("enough").await.unwrap();
                let view = run.view().await.unwrap();
                assert_eq!((view.status, view.waits), (Status::Terminated, 0), "{how}");
                runs.push(run);
            }
        }
        kit.advance("2 days").await.unwrap();
        assert!(log.lines().is_empty());
        for run in runs {
            assert_eq!(run.status().await.unwrap(), Status::Terminated);
        }
    });
}

async fn started(kit: &Kit, how: &str) -> Run {
    let run = kit.start_instance("waits", how).await.unwrap();
    run.reaches(Status::Waiting).await.unwrap();
    run
}
