//! Progress of attempts: rule P5. Not here: what else a step is told (steps.rs).

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_protocol::{Pool, journal::Fact};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, World, on_both};

/// Attempt 1 tells 7 and then does as it is told; the next one says what it was given.
async fn imports(step: Step, fails: bool, log: Log) -> Result<(u32, Option<u32>), Error> {
    if step.attempt() > 1 {
        return Ok((step.attempt(), step.last_progress()));
    }
    step.heartbeat(7)?;
    log.push("told");
    if fails {
        return Err(Error::failed("not yet"));
    }
    Gate::closed().pass().await;
    Ok((1, None))
}

fn registry(log: &Log) -> Registry {
    let (inline, remote) = (log.clone(), log.clone());
    Registry::new()
        .workflow_fn("inline", move |cx: Workflow, (fails, delay): (bool, u64)| {
            let log = inline.clone();
            async move {
                let step = cx
                    .step("import", fails, move |step: Step, fails: bool| imports(step, fails, log.clone()));
                step.retry(Retry::constant(delay)).await
            }
        })
        .workflow_fn("remote", |cx: Workflow, (fails, delay): (bool, u64)| async move {
            let call = cx.remote::<(u32, Option<u32>)>("import", fails).on("imports");
            call.retry(Retry::constant(delay)).await
        })
        .function("import", move |step: Step, fails: bool| imports(step, fails, remote.clone()))
}

async fn worker(world: &mut World, log: &Log) -> usize {
    world
        .add_worker_with(registry(log), |settings| {
            settings.pools = vec![Pool::new("imports").expect("a name")];
        })
        .await
}

/// How many attempts' progress the store has of live sessions.
async fn kept(world: &World) -> usize {
    let store = world.store();
    let sessions: Vec<_> =
        store.sessions().await.expect("it answers").iter().map(|session| session.open.session).collect();
    store.kept_progress(&sessions).await.expect("it answers").values().map(Vec::len).sum()
}

on_both! {
    async fn p05_progress_of_a_failed_attempt_reaches_the_next_on_another_worker(setup) {
        let log = Log::new();
        let mut world = setup.start().await;
        let first = worker(&mut world, &log).await;
        for workflow in ["inline", "remote"] {
            world.begin(workflow, "one", &(true, 1_000_u64)).await;
            world.until(workflow, "one", "waiting for its retry", |view| view.status == StatusWord::Waiting).await;
        }
        log.reached("told", 2).await;
        world.eventually("both are recorded", async || {
            world.attempts("inline", "one").await.len() == 1 && world.attempts("remote", "one").await.len() == 1
        }).await;
        world.stop_worker(first).await;
        worker(&mut world, &log).await;
        for workflow in ["inline", "remote"] {
            let output = world.end(workflow, "one").await.output::<(u32, Option<u32>)>();
            assert_eq!(output, (2, Some(7)), "{}", world.report(workflow, "one").await);
        }
    }

    async fn p05_progress_of_a_worker_that_dies_reaches_the_next_attempt(setup) {
        let log = Log::new();
        let mut world = setup.start().await;
        let first = worker(&mut world, &log).await;
        for workflow in ["inline", "remote"] {
            world.begin(workflow, "one", &(false, 5_u64)).await;
        }
        log.reached("told", 2).await;
        world.eventually("a heartbeat says it", async || kept(&world).await == 2).await;
        world.crash_worker(first).await;
        worker(&mut world, &log).await;
        for workflow in ["inline", "remote"] {
            let output = world.end(workflow, "one").await.output::<(u32, Option<u32>)>();
            assert_eq!(output, (2, Some(7)), "{}", world.report(workflow, "one").await);
            let journal = world.journal(workflow, "one").await;
            let told = journal.iter().any(|entry| matches!(&entry.fact, Fact::Lost(lost) if !lost.progress.is_empty()));
            assert_eq!(told, workflow == "inline", "a remote step's is in the record of its attempt");
        }
    }
}
