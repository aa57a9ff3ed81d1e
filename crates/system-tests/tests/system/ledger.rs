//! Steps that may not simply be called again (rules L5 to L8), with their workers killed at each point.

use std::time::Duration;

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_coordinator::Decision;
use everstep_engine::Answer;
use everstep_protocol::{
    Payload,
    journal::{Choice, Fact, QuestionId},
};
use everstep_store::StatusWord;
use everstep_system_tests::{Gate, Kind, Log, World, on_both};

/// Where its worker is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    BeforeTheIntent,
    /// It is announced, and waits for a slot.
    BeforeTheCall,
    InTheCall,
    AfterTheReport,
}

/// A step, a transfer that is made at most once, and another step, each of which may be held.
fn transfer(log: &Log, gate: &Gate, point: Point) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new().workflow_fn("transfer", move |cx: Workflow, (): ()| {
        let (log, gate) = (log.clone(), gate.clone());
        async move {
            let step = |name: &'static str, held: bool| {
                let (log, gate) = (log.clone(), gate.clone());
                move |_: Step, (): ()| {
                    let (log, gate) = (log.clone(), gate.clone());
                    async move {
                        log.push(name);
                        if held {
                            gate.pass().await;
                        }
                        Ok::<_, Error>(1_u32)
                    }
                }
            };
            let retry = || Retry::constant("20ms").limit(10);
            cx.step("before", (), step("before", point == Point::BeforeTheIntent)).retry(retry()).await?;
            let busy = cx.step("busy", (), step("busy", point == Point::BeforeTheCall)).retry(retry());
            let paid = cx.step("transfer", (), step("transfer", point == Point::InTheCall)).at_most_once();
            let (_, paid): (u32, u32) = futures::try_join!(busy, paid)?;
            cx.step("after", (), step("after", point == Point::AfterTheReport)).retry(retry()).await?;
            Ok::<_, Error>(paid)
        }
    })
}

/// `pay` has an invoice charged under its ledger key; the charge passes a gate.
fn payers(log: &Log, gate: &Gate) -> Registry {
    let (log, gate) = (log.clone(), gate.clone());
    Registry::new()
        .workflow_fn("pay", |cx: Workflow, cents: u64| async move {
            cx.child::<String>("charge", "charge", cents).ledger_key("invoice:7").await
        })
        .workflow_fn("charge", move |cx: Workflow, cents: u64| {
            let (log, gate) = (log.clone(), gate.clone());
            async move {
                let charge = move |step: Step, _: u64| {
                    let (log, gate) = (log.clone(), gate.clone());
                    async move {
                        log.push("charge");
                        gate.pass().await;
                        Ok::<_, Error>(step.idempotency_key().to_owned())
                    }
                };
                cx.step("charge", cents, charge).await
            }
        })
}

async fn has(world: &World, id: &str, what: &str, is_it: impl Fn(&Fact) -> bool) {
    world
        .eventually(what, async || world.journal("transfer", id).await.iter().any(|entry| is_it(&entry.fact)))
        .await;
}

/// Somebody answers the question that it asks.
async fn answer(world: &World, id: &str, choice: Choice) {
    let view =
        world.until("transfer", id, "asking a person", |view| view.status == StatusWord::Attention).await;
    let position = view.waiting[0].question.as_ref().expect("it asks").position;
    let question = QuestionId { run: view.run, position };
    let decision = || Decision { choice: choice.clone(), by: Some("ann".to_owned()), why: None };
    let name = everstep_engine::start::NameKey {
        namespace: view.namespace.clone(),
        workflow: view.workflow.clone(),
        id: view.id.clone(),
    };
    for _ in 0..2 {
        let answer = world.handle().resolve(name.clone(), "op".to_owned(), question, decision()).await;
        assert_eq!(answer.expect("it is answered"), Answer::Done, "the same operation gets its first answer");
    }
}

on_both! {
    async fn l07_a_worker_that_dies_at_each_point_makes_no_call_twice(setup) {
        let mut world = setup.start().await;
        for point in [Point::BeforeTheIntent, Point::BeforeTheCall, Point::InTheCall, Point::AfterTheReport] {
            let (log, gate, id) = (Log::new(), Gate::closed(), format!("{point:?}"));
            let first = world
                .add_worker_with(transfer(&log, &gate, point), |settings| settings.slots = 1)
                .await;
            world.begin("transfer", &id, &()).await;
            match point {
                Point::BeforeTheIntent => log.reached("before", 1).await,
                Point::BeforeTheCall => {
                    log.reached("busy", 1).await;
                    has(&world, &id, "the intent", |fact| matches!(fact, Fact::Intended(_))).await;
                }
                Point::InTheCall => log.reached("transfer", 1).await,
                Point::AfterTheReport => log.reached("after", 1).await,
            }
            world.crash_worker(first).await;
            gate.open();
            let second = world.add_worker(transfer(&log, &gate, point)).await;
            // Nobody knows whether it was made: a person does, who looks into the bank's books.
            let asks = matches!(point, Point::BeforeTheCall | Point::InTheCall);
            if asks {
                let made = log.count("transfer");
                assert_eq!(made, usize::from(point == Point::InTheCall));
                let done = Choice::Done(Payload::encode(&1).expect("it has a JSON form"));
                answer(&world, &id, if made == 0 { Choice::Again } else { done }).await;
            }
            assert_eq!(world.end("transfer", &id).await.output::<u32>(), 1);
            let report = world.report("transfer", &id).await;
            assert_eq!(log.count("transfer"), 1, "{point:?}\n{report}");
            let asked = world.journal("transfer", &id).await;
            let asked = asked.iter().filter(|entry| matches!(entry.fact, Fact::Resolved(_))).count();
            assert_eq!(asked, usize::from(asks), "{point:?}\n{report}");
            world.stop_worker(second).await;
        }
    }

    async fn l07_a_worker_that_stops_gives_its_intent_back_or_asks(setup) {
        let mut world = setup.start().await;
        // It waits for a slot, which does not come: its intent is given back, and nobody is asked.
        let (log, gate) = (Log::new(), Gate::closed());
        let first = world
            .add_worker_with(transfer(&log, &gate, Point::BeforeTheCall), |settings| {
                settings.slots = 1;
                settings.shutdown_grace = Duration::from_millis(300);
            })
            .await;
        world.begin("transfer", "one", &()).await;
        log.reached("busy", 1).await;
        has(&world, "one", "the intent", |fact| matches!(fact, Fact::Intended(_))).await;
        world.stop_worker(first).await;
        gate.open();
        let second = world.add_worker(transfer(&log, &gate, Point::BeforeTheCall)).await;
        assert_eq!(world.end("transfer", "one").await.output::<u32>(), 1);
        has(&world, "one", "the intent is given back", |fact| matches!(fact, Fact::Withdrawn(_))).await;
        assert_eq!(log.count("transfer"), 1);
        world.stop_worker(second).await;
        // It runs beyond the grace: whether it took effect a goodbye does not tell.
        let (log, gate) = (Log::new(), Gate::closed());
        let third = world
            .add_worker_with(transfer(&log, &gate, Point::InTheCall), |settings| {
                settings.shutdown_grace = Duration::from_millis(100);
            })
            .await;
        world.begin("transfer", "two", &()).await;
        log.reached("transfer", 1).await;
        world.stop_worker(third).await;
        gate.open();
        world.add_worker(transfer(&log, &gate, Point::InTheCall)).await;
        answer(&world, "two", Choice::Done(Payload::encode(&7).expect("it has a JSON form"))).await;
        assert_eq!(world.end("transfer", "two").await.output::<u32>(), 7);
        assert_eq!(log.count("transfer"), 1);
    }

    async fn l04_many_instances_race_for_one_ledger_key_and_one_effect_answers_all(setup) {
        let coordinators = if setup.kind() == Kind::Fleet { 2 } else { 1 };
        let mut world = setup.coordinators(coordinators).start().await;
        let (log, gate) = (Log::new(), Gate::closed());
        for _ in 0..2 {
            world.add_worker(payers(&log, &gate)).await;
        }
        for number in 0..30 {
            world.begin("pay", &format!("payer-{number}"), &100).await;
        }
        log.reached("charge", 1).await;
        gate.open();
        let mut outputs = std::collections::BTreeSet::new();
        for number in 0..30 {
            outputs.insert(world.end("pay", &format!("payer-{number}")).await.output::<String>());
        }
        world.begin("pay", "late", &100).await;
        outputs.insert(world.end("pay", "late").await.output::<String>());
        assert_eq!(outputs.len(), 1, "{outputs:?}");
        assert_eq!(log.count("charge"), 1);
    }
}
