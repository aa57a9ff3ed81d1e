//! Code that is changed while instances are open: rules P41 and P8, where other files do not show them. Not here: which entry
//! contradicts which call (the engine's own tests).

use everstep::{Error, Registry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::{BuildName, Pool, journal::ParkCode};
use everstep_store::StatusWord;
use everstep_system_tests::{on_both, world::WorkerSettings};
use futures::future;
use serde::{Serialize, de::DeserializeOwned};

fn build(name: &str) -> impl FnOnce(&mut WorkerSettings) {
    let build = BuildName::new(name).expect("a valid name");
    move |settings| settings.build = Some(build)
}

/// A step with this output, then a sleep.
fn counts<Out>(count: Out) -> Registry
where
    Out: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    Registry::new().workflow_fn("counts", move |cx: Workflow, nap: u64| {
        let count = count.clone();
        async move {
            let step = cx.step("count", (), move |_: Step, (): ()| {
                let count = count.clone();
                async move { Ok::<_, Error>(count) }
            });
            let Ok(count) = step.await else { return Ok(None) };
            cx.sleep("nap", nap).await?;
            Ok::<_, Error>(Some(count))
        }
    })
}

/// One step of the old course or the new, then a sleep.
fn course(is_patched: bool) -> Registry {
    async fn echo(_: Step, text: String) -> Result<String, Error> {
        Ok(text)
    }
    Registry::new().workflow_fn("course", move |cx: Workflow, nap: u64| async move {
        let is_new = is_patched && cx.patched("course").await?;
        let word = if is_new { "new" } else { "old" };
        let course = cx.step(word, word, echo).await?;
        cx.sleep("nap", nap).await?;
        Ok::<_, Error>(course)
    })
}

on_both! {
    async fn p40_an_open_instance_keeps_its_course_over_a_deploy_and_a_new_one_takes_the_other(setup) {
        let mut world = setup.serve(course(false)).await;
        world.begin("course", "open", &500_u64).await;
        world.until("course", "open", "asleep", |view| view.status == StatusWord::Waiting).await;
        world.stop_worker(0).await;
        world.add_worker_with(course(true), build("build-2")).await;
        world.begin("course", "new", &10_u64).await;
        assert_eq!(world.end("course", "new").await.output::<String>(), "new");
        assert_eq!(world.end("course", "open").await.output::<String>(), "old");
    }

    /// The message says what the code asks for, and the deploy of the former code lets the instance go on.
    async fn p41_a_step_that_was_renamed_parks_until_the_former_code_is_back(setup) {
        fn registry(name: &'static str) -> Registry {
            Registry::new().workflow_fn("renamed", move |cx: Workflow, nap: u64| async move {
                cx.step(name, (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
                cx.sleep("nap", nap).await
            })
        }
        let mut world = setup.serve(registry("pay")).await;
        world.begin("renamed", "one", &300_u64).await;
        world.until("renamed", "one", "asleep", |view| view.status == StatusWord::Waiting).await;
        world.stop_worker(0).await;
        let second = world.add_worker_with(registry("charge"), build("build-2")).await;
        let parked = world.until("renamed", "one", "parked", |view| view.status == StatusWord::Attention).await;
        let (_, parked) = parked.parked.expect("it says why");
        assert_eq!(
            parked.message,
            "the code disagrees with entry 2 (attempted): the code has not called step \"pay\" #1 by then; it asks for step \"charge\" #1"
        );
        world.stop_worker(second).await;
        world.add_worker_with(registry("pay"), build("build-3")).await;
        assert_eq!(world.retry("renamed", "one", "deployed").await, Answer::Done);
        world.end("renamed", "one").await.output::<()>();
    }

    async fn p41_an_output_that_no_longer_fits_parks_until_a_build_that_reads_it(setup) {
        let mut world = setup.serve(counts("many".to_owned())).await;
        world.begin("counts", "one", &300_u64).await;
        world.until("counts", "one", "asleep", |view| view.status == StatusWord::Waiting).await;
        world.stop_worker(0).await;
        let second = world.add_worker_with(counts(5_u32), build("build-2")).await;
        let parked = world.until("counts", "one", "parked", |view| view.status == StatusWord::Attention).await;
        let (_, parked) = parked.parked.expect("it says why");
        assert_eq!(parked.code, ParkCode::JournalMismatch);
        assert!(parked.message.contains("entry 2 (attempted): step \"count\" #1"), "{parked:?}");
        world.stop_worker(second).await;
        world.add_worker_with(counts("other".to_owned()), build("build-3")).await;
        assert_eq!(world.retry("counts", "one", "deployed").await, Answer::Done);
        assert_eq!(world.end("counts", "one").await.output::<Option<String>>().as_deref(), Some("many"));
    }

    /// The call is open while the code changes; the pool answers afterwards.
    async fn p08_a_remote_step_whose_input_changed_is_treated_like_an_inline_one(setup) {
        fn caller(input: u32) -> Registry {
            Registry::new().workflow_fn("caller", move |cx: Workflow, (): ()| async move {
                let call = cx.remote::<u32>("square", input).on("numbers");
                let (square, nap) = future::join(call, cx.sleep("nap", "600ms")).await;
                nap?;
                square
            })
        }
        let mut world = setup.serve(caller(7)).await;
        let mut current = 0;
        for (id, name, code) in [("same", "build-1", ParkCode::JournalMismatch), ("other", "build-2", ParkCode::InputChanged)] {
            world.begin("caller", id, &()).await;
            world.until("caller", id, "waiting", |view| view.status == StatusWord::Waiting).await;
            world.stop_worker(current).await;
            current = world.add_worker_with(caller(8), build(name)).await;
            let parked = world.until("caller", id, "parked", |view| view.status == StatusWord::Attention).await;
            let (_, parked) = parked.parked.expect("it says why");
            assert_eq!(parked.code, code, "{parked:?}");
            assert!(parked.message.contains("step \"square\" #1"), "{parked:?}");
            if id == "same" {
                world.stop_worker(current).await;
                current = world.add_worker_with(caller(7), build(name)).await;
            }
        }
        // With its outcome there is nothing left to choose: it is used, though it is that of the former input.
        let pool = Registry::new().function("square", |_: Step, n: u32| async move { Ok::<_, Error>(n * n) });
        world.add_worker_with(pool, |settings| settings.pools = vec![Pool::new("numbers").expect("a name")]).await;
        world.eventually("the pool has answered", async || world.attempts("caller", "other").await.len() == 1).await;
        assert_eq!(world.retry("caller", "other", "answered").await, Answer::Done);
        assert_eq!(world.end("caller", "other").await.output::<u32>(), 49);
    }
}
