//! Restart, whole and from a step.

use everstep::{Error, Step, Workflow};
use everstep_conformance::noting;
use everstep_system_tests::Log;
use everstep_testkit::{
    Run, Status, TestKit,
    journal::{Fact, Outcome},
};

/// Three steps, each of which gives how often it ran; a sleep of the second's name between.
fn three(log: &Log) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("three", move |cx: Workflow, end: String| {
        let log = log.clone();
        async move {
            let mut got = Vec::new();
            for name in ["a", "b", "c"] {
                let told = log.clone();
                let times = move |step: Step, (): ()| {
                    let log = told.clone();
                    async move {
                        log.push(step.name().to_owned());
                        Ok::<_, Error>(log.count(step.name()))
                    }
                };
                got.push(cx.step(name, (), times).await?);
                if name == "b" {
                    cx.sleep("b", "1s").await?;
                }
            }
            match end.as_str() {
                "fails" => Err(Error::permanent("as told")),
                "sleeps" => cx.sleep("for long", "1 day").await.map(|()| got),
                _ => Ok(got),
            }
        }
    })
}

async fn at(run: &Run, status: Status) {
    run.step::<usize>("c").await.unwrap();
    run.reaches(status).await.unwrap();
}

#[test]
fn b019_b020_b021_b022_b023_b106_a_restart_from_any_status_runs_everything_again() {
    for (end, operation, status) in [
        ("completes", "", Status::Complete),
        ("fails", "", Status::Errored),
        ("sleeps", "terminate", Status::Terminated),
        ("sleeps", "", Status::Waiting),
        ("sleeps", "pause", Status::Paused),
    ] {
        let log = Log::new();
        three(&log).run(async move |kit| {
            let run = kit.start_instance("three", end).await.unwrap();
            at(&run, if end == "sleeps" { Status::Waiting } else { status }).await;
            match operation {
                "terminate" => run.terminate("enough").await.unwrap(),
                "pause" => run.pause().await.unwrap(),
                _ => {}
            }
            assert_eq!(run.status().await.unwrap(), status);
            run.restart().await.unwrap();
            let view = run.view().await.unwrap();
            assert_eq!((view.run.0, view.end, view.parked), (2, None, None), "{status:?}");
            at(&run, if end == "sleeps" { Status::Waiting } else { status }).await;
            assert_eq!(log.lines(), ["a", "b", "c", "a", "b", "c"], "{status:?}");
            assert_eq!(run.view().await.unwrap().id.as_str(), run.id());
        });
    }
}

/// While a step runs: that attempt is over, and what it still reports belongs to nobody.
#[test]
fn b022_a_restart_while_a_step_runs_begins_anew() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("hangs", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            let hangs = move |step: Step, (): ()| {
                let log = log.clone();
                async move {
                    log.push("begins");
                    if log.count("begins") == 1 {
                        step.cancelled().await;
                        log.push("told");
                        return Ok(1);
                    }
                    Ok::<_, Error>(2)
                }
            };
            cx.step("hangs", (), hangs).await
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("hangs", &()).await.unwrap();
        log.reached("begins", 1).await;
        assert_eq!(run.status().await.unwrap(), Status::Running);
        run.restart().await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 2);
        assert_eq!((log.count("begins"), log.count("told")), (2, 1));
        assert_eq!(run.journal_of_run(1).await.unwrap().len(), 1, "nothing of it in the earlier run");
    });
}

#[test]
fn b024_b025_a_restart_from_a_step_keeps_what_came_before_and_a_sleep_of_its_name_is_another_thing() {
    let log = Log::new();
    three(&log).run(async move |kit| {
        let run = kit.start_instance("three", "completes").await.unwrap();
        assert_eq!(run.result::<Vec<usize>>().await.unwrap(), [1, 1, 1]);
        let first = run.journal_of_run(1).await.unwrap();
        run.restart_from("b").await.unwrap();
        assert_eq!(run.result::<Vec<usize>>().await.unwrap(), [1, 2, 2]);
        assert_eq!(log.lines(), ["a", "b", "c", "b", "c"]);
        let second = run.journal_of_run(2).await.unwrap();
        let outcome = |journal: &[everstep_testkit::journal::Entry], name: &str| {
            journal.iter().find_map(|entry| match &entry.fact {
                Fact::Attempted(attempted) if attempted.call.name.as_str() == name => {
                    Some(attempted.outcome.clone())
                }
                _ => None,
            })
        };
        assert_eq!(outcome(&second, "a"), outcome(&first, "a"));
        assert!(
            matches!(outcome(&second, "c"), Some(Outcome::Succeeded(_)))
                && outcome(&second, "c") != outcome(&first, "c")
        );
        let slept = second.iter().filter(|entry| matches!(entry.fact, Fact::Fired { .. })).count();
        assert_eq!(slept, 1, "the sleep was called after it, and was slept again");
    });
}

#[test]
fn b026_a_restart_from_an_unknown_step_changes_nothing() {
    three(&Log::new()).run(async |kit| {
        let run = kit.start_instance("three", "completes").await.unwrap();
        at(&run, Status::Complete).await;
        let before = (run.view().await.unwrap(), run.journal().await.unwrap());
        for (name, count, named) in
            [("d", 1, "step \"d\" #1"), ("a", 2, "step \"a\" #2"), ("", 1, "1 to 256")]
        {
            let error = run.restart_from((name, count)).await.unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        assert_eq!((run.view().await.unwrap(), run.journal().await.unwrap()), before);
    });
}

#[test]
fn b132_restarted_while_it_waits_it_completes_on_an_event_sent_afterwards() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("waits", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            cx.step("before", (), noting(&log, ())).await?;
            cx.event::<String>("go").await
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("waits", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.restart().await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        run.send("go", "now").await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "now");
        assert_eq!(log.lines(), ["before 1", "before 1"]);
    });
}

/// What a mock stands for, it stands for in the next run too.
#[test]
fn b146_mocks_outlive_a_restart() {
    let log = Log::new();
    three(&log).run(async move |kit| {
        kit.mock(everstep_testkit::Mock::step("a").returns(&41)).unwrap();
        let run = kit.start_instance("three", "completes").await.unwrap();
        assert_eq!(run.result::<Vec<usize>>().await.unwrap()[0], 41);
        run.restart().await.unwrap();
        assert_eq!(run.result::<Vec<usize>>().await.unwrap()[0], 41);
        assert_eq!(log.count("a"), 0);
    });
}
