//! Rollbacks of whole systems: rules P38 and P39. Not here: what runs, in which order and with what; see the test kit's rules.

use everstep::{Compensation, Error, Registry, Retry, Step, Undo, Workflow};
use everstep_engine::Answer;
use everstep_protocol::journal::{Fact, UndoneEnd};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, on_both, world::name};

/// Reserves, sleeps, and takes back what it reserved, which waits for the gate.
fn booking(log: &Log, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("booking", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let release = Compensation::new(move |_: Step, undo: Undo<(), String>| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    log.push(format!("release {}", undo.output().map_or("nothing", String::as_str)));
                    gate.pass().await;
                    Ok::<_, Error>(())
                }
            });
            cx.step("reserve", (), async |_: Step, (): ()| Ok::<_, Error>("hold".to_owned()))
                .compensate_with(release.retry(Retry::constant("50ms").limit(9)))
                .await?;
            cx.sleep("long", "30 days").await
        }
    })
}

on_both! {
    async fn p38_a_rollback_waits_visibly_for_a_worker_and_survives_the_death_of_one(setup) {
        let (log, gate) = (Log::new(), Gate::closed());
        let mut world = setup.serve(booking(&log, &gate)).await;
        world.begin("booking", "one", &()).await;
        world.until("booking", "one", "it sleeps", |view| view.status == StatusWord::Waiting).await;
        world.stop_worker(0).await;
        let asked = world.handle().roll_back(name("booking", "one"), "o".to_owned(), Some("ann".to_owned())).await;
        assert_eq!(asked.expect("it is decided"), Answer::Done);
        world.until("booking", "one", "it waits for a worker", |view| {
            view.status == StatusWord::Queued && !view.served && view.control.compensating_at.is_some()
        }).await;
        let second = world.add_worker(booking(&log, &gate)).await;
        log.reached("release hold", 1).await;
        let view = world.view("booking", "one").await.expect("it exists");
        assert_eq!((view.status, view.control.compensating_at.is_some()), (StatusWord::Running, true));
        world.crash_worker(second).await;
        world.add_worker(booking(&log, &gate)).await;
        log.reached("release hold", 2).await;
        gate.open();
        assert_eq!(world.end("booking", "one").await.status, "terminated");
        let journal = world.journal("booking", "one").await;
        let words: Vec<_> = journal.iter().map(|entry| entry.fact.word()).collect();
        assert_eq!(words.iter().filter(|word| **word == "compensating").count(), 1, "{words:?}");
        let Fact::Compensated(compensated) = &journal[journal.len() - 2].fact else { panic!("{words:?}") };
        assert_eq!(compensated.steps[0].end, UndoneEnd::Done);
    }
}
