//! O-17, O-18 and O-19: timers of several coordinators, commits whose answer is lost, and many timers due at one moment.

use std::time::{Duration, Instant};

use everstep::{Registry, Workflow};
use everstep_conformance::noting;
use everstep_engine::Answer;
use everstep_protocol::{journal::Fact, start::StartOutcome};
use everstep_system_tests::{DEADLINE, Kind, Log, Setup, World, on_both, within, world::name};

/// Sleeps until a moment, then one step.
fn sleeps(log: &Log) -> Registry {
    let log = log.clone();
    Registry::new().workflow_fn("sleeps", move |cx: Workflow, millis: u64| {
        let log = log.clone();
        async move {
            cx.sleep("until", millis).await?;
            let id = cx.instance_id().to_owned();
            log.push(format!("body of {id}"));
            cx.step("after", (), noting(&log, ())).await
        }
    })
}

/// All have ended, each woken once.
async fn each_once(world: &World, log: &Log, count: usize) {
    within("all ends", DEADLINE, world.ends().count(count)).await;
    assert!(world.ends().doubled().is_empty());
    for number in 0..count {
        let id = number.to_string();
        let journal = world.journal("sleeps", &id).await;
        let fired = journal.iter().filter(|entry| matches!(entry.fact, Fact::Fired { .. })).count();
        let after = journal.iter().filter(|entry| matches!(entry.fact, Fact::Attempted(_))).count();
        assert_eq!((fired, after), (1, 1), "{id}");
    }
    assert_eq!(log.count("after 1"), count, "one start line an instance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o17_two_coordinators_fire_each_timer_once_whichever_dies() {
    const COUNT: usize = 60;
    for dies in [None, Some(0), Some(1)] {
        let log = Log::new();
        let mut world = Setup::new(Kind::Fleet).coordinators(2).serve(sleeps(&log)).await;
        let due = Instant::now() + Duration::from_secs(3);
        for number in 0..COUNT {
            let rest = due.saturating_duration_since(Instant::now()).as_millis() as u64;
            let handle = world.handle_of(number % 2);
            let request = world.request("sleeps", Some(&number.to_string()), &rest);
            handle.start(request).await.expect("it is decided");
        }
        if let Some(number) = dies {
            tokio::time::sleep_until((due + Duration::from_millis(20)).into()).await;
            world.crash_coordinator(number).await;
        }
        each_once(&world, &log, COUNT).await;
    }
}

/// Coordinators that come just before the moment and go just after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o17_coordinators_that_come_and_go_around_the_moment_fire_nothing_twice() {
    const COUNT: usize = 40;
    let log = Log::new();
    let mut world = Setup::new(Kind::Fleet).serve(sleeps(&log)).await;
    let due = Instant::now() + Duration::from_secs(3);
    for number in 0..COUNT {
        let rest = due.saturating_duration_since(Instant::now()).as_millis() as u64;
        world.begin("sleeps", &number.to_string(), &rest).await;
    }
    for _ in 0..2 {
        world.add_coordinator().await;
    }
    tokio::time::sleep_until((due + Duration::from_millis(100)).into()).await;
    world.stop_coordinator(0).await;
    world.stop_coordinator(1).await;
    each_once(&world, &log, COUNT).await;
}

/// Ends every connection to the database that waits for its commit or runs anything else.
fn cut_database(world: &World) {
    let database = world.database();
    world.sql(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    ));
}

/// The database is cut off under every kind of commit, and whoever does not know asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o18_commits_whose_answer_is_lost_are_repeated_and_count_once() {
    let log = Log::new();
    let world = Setup::new(Kind::Fleet).serve(sleeps(&log)).await;
    let count = 40;
    for number in 0..count {
        let id = number.to_string();
        let request = world.request("sleeps", Some(&id), &200_u64);
        let handle = world.handle();
        let start = tokio::spawn({
            let (handle, request) = (handle.clone(), request.clone());
            async move { handle.start(request).await }
        });
        if number % 4 == 0 {
            cut_database(&world);
        }
        let first = start.await.expect("no panic");
        // A caller that does not know asks again, and is told of that instance, never of a conflict with itself.
        if first.is_err() || number % 4 == 0 {
            within("the repeated start is decided", DEADLINE, async {
                loop {
                    if let Ok(reply) = handle.start(request.clone()).await {
                        let known = matches!(reply.outcome, StartOutcome::Created | StartOutcome::Exists);
                        assert!(known, "{reply:?}");
                        return;
                    }
                }
            })
            .await;
        }
    }
    for _ in 0..5 {
        cut_database(&world);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    each_once(&world, &log, count).await;
    // An operation with an id gets its first answer, whatever was lost.
    let mut answers = Vec::new();
    for _ in 0..4 {
        cut_database(&world);
        let answer = world.handle().terminate(name("sleeps", "0"), "t".to_owned(), None).await;
        answers.extend(answer.ok());
    }
    assert!(
        answers.iter().all(|answer| *answer == answers[0] && matches!(answer, Answer::Refused(_))),
        "{answers:?}"
    );
}

on_both! {
    /// Those that ask in the middle of it are answered, and small ones are not stuck behind it.
    async fn o19_many_timers_due_at_one_moment_hold_up_nobody(setup) {
        let count = if setup.kind() == Kind::Fleet { 400 } else { 1_000 };
        let log = Log::new();
        let world = setup.serve(sleeps(&log)).await;
        let due = Instant::now() + Duration::from_secs(if world.kind() == Kind::Fleet { 6 } else { 4 });
        for number in 0..count {
            let rest = due.saturating_duration_since(Instant::now()).as_millis() as u64;
            world.begin("sleeps", &number.to_string(), &rest).await;
            // Terminated before its time, none fires.
            if number < 10 {
                assert_eq!(world.terminate("sleeps", &number.to_string(), "t").await, Answer::Done);
            }
        }
        tokio::time::sleep_until(due.into()).await;
        for probe in 0..3 {
            let id = format!("probe-{probe}");
            let asked = Instant::now();
            world.begin("sleeps", &id, &100_u64).await;
            world.view("sleeps", "11").await.expect("it is shown");
            world.end("sleeps", &id).await.output::<()>();
            assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        }
        within("all ends", DEADLINE, world.ends().count(count + 3)).await;
        assert!(world.ends().doubled().is_empty());
        assert_eq!(log.count("after 1"), count + 3 - 10);
        let fired = |id: String| {
            let world = &world;
            async move { world.journal("sleeps", &id).await.iter().any(|entry| matches!(entry.fact, Fact::Fired { .. })) }
        };
        for number in 0..10 {
            assert!(!fired(number.to_string()).await, "{number} was terminated");
        }
    }
}

/// Another session of the database holds a snapshot open all the time: dead rows pile up, and the wakes do not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o19_a_long_transaction_of_somebody_else_stops_no_timer() {
    let log = Log::new();
    let world = Setup::new(Kind::Fleet).serve(sleeps(&log)).await;
    let database = world.database().to_owned();
    let held = format!(
        "SELECT pg_sleep(0); SELECT 'held'::text FROM (SELECT count(*) FROM instance) q, pg_sleep(8) WHERE current_database() = '{database}'"
    );
    let count = 60;
    let holding = tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| world.sql(&held));
            tokio::runtime::Handle::current().block_on(async {
                for number in 0..count {
                    world.begin("sleeps", &number.to_string(), &300_u64).await;
                }
                each_once(&world, &log, count).await;
            });
            holder.join().expect("it held")
        })
    });
    assert!(holding.contains("held"), "{holding}");
}
