//! Code that is changed while instances are open: rules P40, P41 and P8, and what nobody serves (rule P35), where other files do not show them. Not here: which entry
//! contradicts which call (the engine's own tests).

use everstep::{Error, Registry, Step, Workflow};
use everstep_broker::Properties;
use everstep_engine::Answer;
use everstep_protocol::{BuildName, Namespace, Pin, Pool, journal::ParkCode, start::StartOutcome};
use everstep_store::StatusWord;
use everstep_system_tests::{
    on_both,
    world::{WorkerSettings, name},
};
use futures::future;
use serde::{Serialize, de::DeserializeOwned};

fn build(name: &str) -> impl FnOnce(&mut WorkerSettings) {
    let build = BuildName::new(name).expect("a valid name");
    move |settings| settings.build = Some(build)
}

async fn echo(_: Step, text: String) -> Result<String, Error> {
    Ok(text)
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

    /// The new build gets what is new, and nothing that the old one began, however long that waits.
    async fn p40_pinned_instances_stay_with_the_build_that_they_began_on(setup) {
        fn words(word: &'static str) -> Registry {
            Registry::new().pinned_workflow_fn("words", move |cx: Workflow, (): ()| async move {
                let first: String = cx.step("first", word, echo).await?;
                cx.event::<()>("go").timeout("5 min").await?;
                let second: String = cx.step("second", word, echo).await?;
                Ok::<_, Error>(format!("{first} {second}"))
            })
        }
        let mut world = setup.serve(words("old")).await;
        for id in ["stays", "moves", "lonely"] {
            world.begin("words", id, &()).await;
            let view = world.until("words", id, "waiting", |view| view.status == StatusWord::Waiting).await;
            assert_eq!(view.pin, Some(Pin::Build("build-1".parse().expect("a name"))));
        }
        world.add_worker_with(words("new"), build("build-2")).await;
        world.begin("words", "new", &()).await;
        let moved = Some(Pin::Build("build-2".parse().expect("a name")));
        assert_eq!(world.handle().pin(name("words", "moves"), "op".to_owned(), moved).await.expect("it answers"), Answer::Done);
        for id in ["stays", "moves", "new"] {
            assert_eq!(world.send("words", id, ("1", "go"), &()).await, Answer::Done);
        }
        assert_eq!(world.end("words", "stays").await.output::<String>(), "old old");
        assert_eq!(world.end("words", "moves").await.output::<String>(), "old new");
        let new = world.end("words", "new").await.output::<String>();
        assert!(new == "new new" || new == "old old", "one build from start to end: {new}");
    }

    async fn p40_without_a_worker_of_its_build_it_waits_visibly_until_it_is_unpinned(setup) {
        let mut world = setup.serve(course(false)).await;
        let mut request = world.request("course", Some("one"), &10_u64);
        request.pin = Some(Pin::Build("build-9".parse().expect("a name")));
        world.handle().start(request.clone()).await.expect("it is started");
        let view = world.until("course", "one", "known", |view| view.ready_at.is_some()).await;
        assert_eq!((view.status, view.served), (StatusWord::Queued, false));
        // Another one of the same workflow goes past it.
        world.begin("course", "other", &10_u64).await;
        world.end("course", "other").await;
        assert_eq!(world.view("course", "one").await.map(|view| view.epoch.0), Some(0));
        request.id = Some("two".parse().expect("an id"));
        world.handle().start(request).await.expect("it is started");
        let unpinned = world.handle().pin(name("course", "one"), "op".to_owned(), None).await;
        assert_eq!(unpinned.expect("it answers"), Answer::Done);
        world.end("course", "one").await;
        world.add_worker_with(course(false), build("build-9")).await;
        world.end("course", "two").await;
    }

    /// A producer is told, and the message is kept as a record; once a worker serves the workflow the same start is accepted.
    async fn p35_a_strict_installation_refuses_what_nobody_serves(setup) {
        let mut world = setup.coordinator(|settings| settings.strict_starts = true).start().await;
        let refused = world.start("course", "one", &10_u64).await;
        assert_eq!((refused.outcome, refused.code.as_deref(), refused.retry_safe), (StartOutcome::Rejected, Some("not_served"), true));
        assert_eq!(world.view("course", "one").await, None);
        let mut lenient = world.request("course", Some("lenient"), &10_u64);
        lenient.strict = Some(false);
        assert_eq!(world.handle().start(lenient).await.expect("it is decided").outcome, StartOutcome::Created);
        world.publish(r#"{"workflow":"course","id":"by-message","input":10}"#, Properties::default()).await;
        let rejected = async || {
            let rows = world.store().rejected(&Namespace::default(), 9).await.expect("the store answers");
            rows.iter().any(|row| row.code == "not_served" && row.reason.contains("course"))
        };
        world.eventually("the message is recorded", rejected).await;
        world.add_worker(course(false)).await;
        // The worker's session may have been opened a moment ago, elsewhere.
        world.eventually("it is served", async || {
            world.start("course", "one", &10_u64).await.outcome == StartOutcome::Created
        })
        .await;
        world.end("course", "one").await;
        world.end("course", "lenient").await;
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
