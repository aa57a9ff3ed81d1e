//! What a body may do: rules W30, W31, W33. Not here: the order of feeding (the worker's own tests).

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_engine::Answer;
use everstep_protocol::journal::ParkCode;
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Log, on_both};

on_both! {
    async fn w30_a_body_that_awaits_something_foreign_is_parked_by_name(setup) {
        let registry = |foreign: bool| {
            Registry::new().workflow_fn("foreign", move |cx: Workflow, (): ()| async move {
                cx.step("before", (), |_: Step, (): ()| async { Ok::<_, Error>(()) }).await?;
                if foreign {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                Ok::<_, Error>("through")
            })
        };
        let mut world = setup.serve(registry(true)).await;
        world.begin("foreign", "one", &()).await;
        let view = world.until("foreign", "one", "parked", |view| view.status == StatusWord::Attention).await;
        assert_eq!(view.parked.expect("it says why").1.code, ParkCode::ForeignAwait);
        world.stop_worker(0).await;
        world.add_worker(registry(false)).await;
        assert_eq!(world.retry("foreign", "one", "fixed").await, Answer::Done);
        assert_eq!(world.end("foreign", "one").await.output::<String>(), "through");
    }

    async fn w30_the_context_answers_only_inside_its_body(setup) {
        let registry = Registry::new().workflow_fn("escapes", |cx: Workflow, (): ()| async move {
            let escaped = cx.clone();
            let inside: Result<String, Error> = cx.step("inside", (), move |_: Step, (): ()| {
                let cx = escaped.clone();
                async move {
                    let error = cx.sleep("nap", 1).await.expect_err("a step is not the body");
                    Ok::<_, Error>(error.to_string())
                }
            }).await;
            inside
        });
        let world = setup.serve(registry).await;
        world.begin("escapes", "one", &()).await;
        let error = world.end("escapes", "one").await.output::<String>();
        assert!(error.contains("nap"), "{error}");
    }

    async fn w33_random_values_and_time_are_the_same_in_every_replay_and_others_elsewhere(setup) {
        fn registry(log: &Log, gate: &Gate) -> Registry {
            let (log, gate) = (log.clone(), gate.clone());
            Registry::new().workflow_fn("dice", move |cx: Workflow, (): ()| {
                let (log, gate) = (log.clone(), gate.clone());
                async move {
                    let (number, id, bytes) = (cx.random::<u64>(), cx.uuid(), cx.random_bytes(40));
                    let now = cx.now();
                    let seen = format!("{number} {id} {bytes:?} {now:?}");
                    let (log, gate) = (log.clone(), gate.clone());
                    let step = cx.step("hold", &seen, move |_: Step, seen: String| {
                        let (log, gate) = (log.clone(), gate.clone());
                        async move {
                            log.push("hold");
                            gate.pass().await;
                            Ok::<_, Error>(seen)
                        }
                    });
                    let first: String = step.retry(Retry::constant("10ms")).await?;
                    Ok::<_, Error>((first, seen))
                }
            })
        }
        let (log, gate) = (Log::new(), Gate::closed());
        let mut world = setup.serve(registry(&log, &gate)).await;
        world.begin("dice", "one", &()).await;
        world.begin("dice", "two", &()).await;
        log.reached("hold", 2).await;
        world.crash_worker(0).await;
        gate.open();
        world.add_worker(registry(&log, &gate)).await;
        let one = world.end("dice", "one").await.output::<(String, String)>();
        let two = world.end("dice", "two").await.output::<(String, String)>();
        assert_eq!(one.0, one.1);
        assert_eq!(two.0, two.1);
        assert_ne!(one.0.split(' ').next(), two.0.split(' ').next());
    }

    async fn w31_the_body_gets_what_the_record_says_live_too(setup) {
        #[derive(serde::Serialize, serde::Deserialize)]
        struct Lossy {
            kept: u32,
            #[serde(skip)]
            lost: u32,
        }
        let registry = Registry::new().workflow_fn("lossy", |cx: Workflow, (): ()| async move {
            let made: Lossy = cx.step("make", Lossy { kept: 1, lost: 2 }, |_: Step, input: Lossy| async move {
                Ok::<_, Error>(Lossy { kept: input.kept * 10, lost: input.lost + 7 })
            }).await?;
            Ok::<_, Error>((made.kept, made.lost))
        });
        let world = setup.serve(registry).await;
        world.begin("lossy", "one", &()).await;
        assert_eq!(world.end("lossy", "one").await.output::<(u32, u32)>(), (10, 0));
    }
}
