//! O-21: workflow code that changes under sleeping instances. What may change goes on, what may not is stopped with the entry and
//! the call that disagree, and the former code finishes it. No step of either version runs twice.

use everstep::{Error, Registry, Workflow};
use everstep_conformance::noting;
use everstep_engine::Answer;
use everstep_protocol::BuildName;
use everstep_store::StatusWord;
use everstep_system_tests::{Kind, Log, Setup, World, world::name};
use futures::future::BoxFuture;

/// How the code is: names of the steps before the sleep, its length, and what comes after.
#[derive(Clone)]
struct Code {
    before: Vec<&'static str>,
    nap: &'static str,
    waits: bool,
    after: Vec<&'static str>,
}

fn v1() -> Code {
    Code { before: vec!["a", "b"], nap: "400ms", waits: false, after: vec!["c"] }
}

impl Code {
    fn registry(&self, log: &Log) -> Registry {
        Registry::new().workflow_fn("course", self.body(log))
    }

    /// Instances stay with the build that began them.
    fn pinned(&self, log: &Log) -> Registry {
        Registry::new().pinned_workflow_fn("course", self.body(log))
    }

    fn body(
        &self,
        log: &Log,
    ) -> impl Fn(Workflow, ()) -> BoxFuture<'static, Result<(), Error>> + Send + Sync + use<> {
        let (code, log) = (self.clone(), log.clone());
        move |cx: Workflow, (): ()| {
            let (code, log) = (code.clone(), log.clone());
            Box::pin(async move {
                for name in code.before {
                    cx.step(name, (), noting(&log, name.to_owned())).await?;
                }
                if code.waits {
                    cx.event::<()>("go").timeout(code.nap).await?;
                } else {
                    cx.sleep("nap", code.nap).await?;
                }
                for name in code.after {
                    cx.step(name, (), noting(&log, name.to_owned())).await?;
                }
                Ok::<_, Error>(())
            })
        }
    }
}

const COUNT: usize = 5;

fn ids() -> impl Iterator<Item = String> {
    (0..COUNT).map(|number| format!("i-{number}"))
}

/// Instances that sleep on the first version, and workers of another.
async fn deployed(log: &Log, code: &Code) -> (World, usize) {
    let mut world = Setup::new(Kind::Embedded).serve(v1().registry(log)).await;
    for id in ids() {
        world.begin("course", &id, &()).await;
    }
    for id in ids() {
        world.until("course", &id, "it sleeps", |view| view.waits == 1).await;
    }
    world.stop_worker(0).await;
    let worker = add(&mut world, code, log, "build-2").await;
    (world, worker)
}

async fn add(world: &mut World, code: &Code, log: &Log, build: &str) -> usize {
    let build = BuildName::new(build).unwrap();
    world.add_worker_with(code.registry(log), |settings| settings.build = Some(build)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_what_may_change_goes_on_and_nothing_runs_again() {
    let changed = [
        // The code of a step that has not run yet, the length of a sleep that has begun, a branch after it.
        (v1(), vec!["c"]),
        (Code { nap: "1 day", ..v1() }, vec!["c"]),
        (Code { after: vec!["d", "c", "e"], ..v1() }, vec!["d", "c", "e"]),
    ];
    for (code, after) in changed {
        let log = Log::new();
        let (world, _) = deployed(&log, &code).await;
        for id in ids() {
            world.end("course", &id).await.output::<()>();
        }
        for name in ["a", "b"].into_iter().chain(after) {
            assert_eq!(log.count(&format!("{name} 1")), COUNT, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_what_may_not_change_is_stopped_by_name_and_the_former_code_finishes_it() {
    let step = "entry 3 (attempted)";
    let cases = [
        (
            "a new step before b",
            Code { before: vec!["a", "x", "b"], ..v1() },
            [step, "step \"b\" #1", "step \"x\" #1"],
        ),
        ("b renamed", Code { before: vec!["a", "y"], ..v1() }, [step, "step \"b\" #1", "step \"y\" #1"]),
        ("b gone", Code { before: vec!["a"], ..v1() }, [step, "step \"b\" #1", "sleep \"nap\" #1"]),
        (
            "a and b in the other order",
            Code { before: vec!["b", "a"], ..v1() },
            ["entry 2 (attempted)", "step \"a\" #1", "step \"b\" #1"],
        ),
        (
            "a wait instead of the sleep",
            Code { waits: true, ..v1() },
            ["entry 4 (opened)", "sleep \"nap\" #1", "event \"go\" #1"],
        ),
    ];
    for (what, code, named) in cases {
        let log = Log::new();
        let (mut world, worker) = deployed(&log, &code).await;
        for id in ids() {
            let view = world.until("course", &id, what, |view| view.status == StatusWord::Attention).await;
            let (_, parked) = view.parked.expect("it says why");
            for part in named {
                assert!(parked.message.contains(part), "{what}: {} does not name {part}", parked.message);
            }
        }
        assert_eq!(log.lines().len(), 2 * COUNT, "{what}: no step ran: {:?}", log.lines());
        // Parked, it is left alone: nobody tries again by himself.
        let epochs = async |world: &World| {
            let mut epochs = Vec::new();
            for id in ids() {
                epochs.push(world.view("course", &id).await.unwrap().epoch);
            }
            epochs
        };
        let before = epochs(&world).await;
        world.stop_worker(worker).await;
        add(&mut world, &v1(), &log, "build-3").await;
        assert_eq!(epochs(&world).await, before, "{what}");
        for id in ids() {
            assert_eq!(world.retry("course", &id, &format!("retry {id}")).await, Answer::Done);
            world.end("course", &id).await.output::<()>();
        }
        for name in ["a", "b", "c"] {
            assert_eq!(log.count(&format!("{name} 1")), COUNT, "{what}: {name}");
        }
        assert_eq!(log.lines().len(), 3 * COUNT, "{what}");
    }
}

/// Old and new workers side by side, and instances that pass through both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_two_versions_side_by_side_share_their_instances_and_double_nothing() {
    let (log, code) = (Log::new(), Code { nap: "50ms", ..v1() });
    let mut world = Setup::new(Kind::Embedded).serve(code.registry(&log)).await;
    add(&mut world, &code, &log, "build-2").await;
    for number in 0..30 {
        world.begin("course", &format!("i-{number}"), &()).await;
        if number == 15 {
            world.stop_worker(0).await;
            add(&mut world, &code, &log, "build-1").await;
        }
    }
    for number in 0..30 {
        world.end("course", &format!("i-{number}")).await.output::<()>();
    }
    for name in ["a", "b", "c"] {
        assert_eq!(log.count(&format!("{name} 1")), 30, "{name}");
    }
    assert_eq!(log.lines().len(), 90);
}

/// What the recorded steps of an instance are called, in order.
async fn recorded(world: &World, id: &str) -> Vec<String> {
    let attempts = world.attempts("course", id).await;
    attempts.into_iter().map(|(_, attempted)| attempted.call.name.to_string()).collect()
}

const PASSING: usize = 50;

fn passing() -> impl Iterator<Item = String> {
    (0..PASSING).map(|number| format!("p-{number}"))
}

/// Workers of two versions that contradict each other, both alive, with instances of both; each has slept through the end of the
/// worker that began it, so that whoever comes first takes it up.
async fn rolling(log: &Log, registries: [Registry; 2]) -> (World, [usize; 2]) {
    let mut world = Setup::new(Kind::Embedded).start().await;
    let mut workers = [0, 0];
    let builds = ["build-1", "build-2"];
    for (place, registry) in registries.iter().enumerate() {
        let build = BuildName::new(builds[place]).unwrap();
        workers[place] =
            world.add_worker_with(registry.clone(), |settings| settings.build = Some(build)).await;
    }
    for id in passing() {
        world.begin("course", &id, &()).await;
    }
    for id in passing() {
        world.until("course", &id, "it sleeps", |view| view.waits == 1).await;
    }
    // Nobody has a body of theirs in its cache any more.
    for (place, registry) in registries.iter().enumerate() {
        world.stop_worker(workers[place]).await;
        let build = BuildName::new(builds[place]).unwrap();
        workers[place] =
            world.add_worker_with(registry.clone(), |settings| settings.build = Some(build)).await;
    }
    assert_eq!(log.count("a 1"), PASSING);
    (world, workers)
}

/// Both alive, and nothing says which instance is whose: who takes up what it cannot go on with stops it, and the right one goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_an_incompatible_version_alive_beside_mixes_nothing_and_loses_nothing() {
    let log = Log::new();
    // Long enough for all of them to fall asleep, and for the workers to be replaced.
    let v1 = Code { nap: "5s", ..v1() };
    let v2 = Code { before: vec!["a", "y"], ..v1.clone() };
    let (mut world, workers) = rolling(&log, [v1.registry(&log), v2.registry(&log)]).await;
    let mut stopped = Vec::new();
    for id in passing() {
        let settled = |status: StatusWord| status.is_ended() || status == StatusWord::Attention;
        let view = world.until("course", &id, "it ends or is stopped", |view| settled(view.status)).await;
        let steps = recorded(&world, &id).await;
        assert!(steps.starts_with(&["a".to_owned()]) && steps.len() >= 2, "{steps:?}");
        if let Some((_, parked)) = view.parked {
            assert_eq!(steps.len(), 2, "nothing ran of the version that cannot go on: {steps:?}");
            let (own, other) = if steps[1] == "b" { ("b", "y") } else { ("y", "b") };
            for part in [format!("step \"{own}\" #1"), format!("step \"{other}\" #1")] {
                assert!(parked.message.contains(&part), "{} does not name {part}", parked.message);
            }
            stopped.push((id, steps[1] == "b"));
        }
    }
    // The way out: each gets the code that it began with.
    world.stop_worker(workers[1]).await;
    for (id, _) in stopped.iter().filter(|(_, first)| *first) {
        assert_eq!(world.retry("course", id, &format!("retry {id}")).await, Answer::Done);
        world.end("course", id).await.output::<()>();
    }
    world.stop_worker(workers[0]).await;
    add(&mut world, &v2, &log, "build-2").await;
    for (id, _) in stopped.iter().filter(|(_, first)| !*first) {
        assert_eq!(world.retry("course", id, &format!("retry {id}")).await, Answer::Done);
        world.end("course", id).await.output::<()>();
    }
    for id in passing() {
        let steps = recorded(&world, &id).await;
        assert!(steps == ["a", "b", "c"] || steps == ["a", "y", "c"], "{id} is of one version: {steps:?}");
    }
    assert_eq!(log.count("b 1") + log.count("y 1"), PASSING);
    assert_eq!((log.count("a 1"), log.count("c 1"), log.lines().len()), (PASSING, PASSING, 3 * PASSING));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_pinned_instances_stay_with_their_version_while_another_is_alive_beside() {
    let log = Log::new();
    // Long enough for all of them to fall asleep, and for the workers to be replaced.
    let v1 = Code { nap: "5s", ..v1() };
    let v2 = Code { before: vec!["a", "y"], ..v1.clone() };
    let (world, _) = rolling(&log, [v1.pinned(&log), v2.pinned(&log)]).await;
    for id in passing() {
        world.end("course", &id).await.output::<()>();
        let steps = recorded(&world, &id).await;
        assert!(steps == ["a", "b", "c"] || steps == ["a", "y", "c"], "{id} is of one version: {steps:?}");
    }
    assert!(log.count("b 1") > 0 && log.count("y 1") > 0, "both have begun some");
    assert_eq!(log.lines().len(), 3 * PASSING);
}

/// The other way out: the new code from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn o21_what_was_stopped_can_be_restarted_on_the_new_code() {
    let (log, code) = (Log::new(), Code { before: vec!["a", "x", "b"], ..v1() });
    let (world, _) = deployed(&log, &code).await;
    for id in ids() {
        world.until("course", &id, "it is stopped", |view| view.status == StatusWord::Attention).await;
        let answer =
            world.handle().restart(name("course", &id), format!("restart {id}"), None).await.unwrap();
        assert_eq!(answer, Answer::Done);
        world.end("course", &id).await.output::<()>();
        assert_eq!(world.view("course", &id).await.unwrap().run.0, 2);
    }
    for (name, times) in [("a", 2), ("x", 1), ("b", 2), ("c", 1)] {
        assert_eq!(log.count(&format!("{name} 1")), times * COUNT, "{name}");
    }
}
