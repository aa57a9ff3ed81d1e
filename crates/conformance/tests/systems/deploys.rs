//! O-21: workflow code that changes under sleeping instances. What may change goes on, what may not is stopped with the entry and
//! the call that disagree, and the former code finishes it. No step of either version runs twice.

use everstep::{Error, Registry, Workflow};
use everstep_conformance::noting;
use everstep_engine::Answer;
use everstep_protocol::BuildName;
use everstep_store::StatusWord;
use everstep_system_tests::{Kind, Log, Setup, World, world::name};

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
        let (code, log) = (self.clone(), log.clone());
        Registry::new().workflow_fn("course", move |cx: Workflow, (): ()| {
            let (code, log) = (code.clone(), log.clone());
            async move {
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
            }
        })
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
