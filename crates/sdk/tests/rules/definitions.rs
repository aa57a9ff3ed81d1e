//! Workflows as values: the macro, plain functions, the registry.

use everstep::host::{BodyState, Definition, Host, Payload};
use everstep::{Error, Registry, Step, Timestamp, Workflow};
use everstep_protocol::{Attempt, FailureKind, Position};

use crate::driver::{SEED, attempt, echo, info, step_spec};

/// Docs stay.
#[everstep::workflow]
async fn fulfil(cx: Workflow, (order, count): (u64, u32)) -> Result<u64, Error> {
    let sum = cx.step("sum", order + u64::from(count), echo).await?;
    Ok(sum)
}

mod inner {
    use super::{Error, Workflow};

    #[everstep::workflow(name = "tick-2", crate = "everstep_sdk")]
    pub(super) async fn tick(mut cx: Workflow) -> Result<(), std::fmt::Error> {
        cx = cx.clone();
        let _: Result<(), Error> = cx.sleep("a", 1).await;
        Err(std::fmt::Error)
    }
}

fn begin(definition: &impl Definition, input: &str) -> (Vec<String>, BodyState) {
    let host = Host::new(info(), SEED);
    let mut body = definition.begin(host.workflow(), &Payload::from_text(input).unwrap());
    let polled = host.poll(&mut body, Position(1), Timestamp(0));
    (polled.made.iter().map(|made| made.call.to_string()).collect(), polled.state)
}

#[test]
fn the_macro_makes_a_definition() {
    assert_eq!(Definition::name(&fulfil), "fulfil");
    assert_eq!(begin(&fulfil, "[1,2]").0, ["step \"sum\" #1"]);
    assert_eq!(Definition::name(&inner::tick), "tick-2");
    assert_eq!(begin(&inner::tick, "null").0, ["sleep \"a\" #1"]);
}

#[test]
fn an_input_that_does_not_fit_is_invalid_and_permanent() {
    match begin(&fulfil, r#"{"order":1}"#).1 {
        BodyState::Done(Err(failure)) => {
            assert_eq!(failure.kind, FailureKind::Invalid);
            assert!(failure.permanent && failure.message.contains("workflow \"fulfil\""), "{failure}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_function_may_call_before_its_first_await() {
    let registry = Registry::new().workflow_fn("eager", |cx: Workflow, n: u64| cx.step("early", n, echo));
    registry.validate().unwrap();
    let definition = registry.definition(&"eager".parse().unwrap()).unwrap();
    let host = Host::new(info(), SEED);
    let mut body = definition.begin(host.workflow(), &Payload::encode(&5).unwrap());
    assert_eq!(host.poll(&mut body, Position(1), Timestamp(0)).made.len(), 1);
}

#[test]
fn the_registry_lists_all_its_problems() {
    let registry = Registry::new()
        .workflow(fulfil)
        .workflow(fulfil)
        .workflow(inner::tick)
        .workflow_fn("Big Name", |_cx: Workflow, (): ()| async { Ok::<_, Error>(()) })
        .function("label", echo)
        .function("label", echo)
        .function("", echo);
    let problems = registry.validate().unwrap_err().problems;
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert_eq!(problems[0], "workflow \"fulfil\" is registered twice");
    assert!(problems[1].contains("Big Name"));
    assert_eq!(problems[2], "function \"label\" is registered twice");
    let names: Vec<_> = registry.workflow_names().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["fulfil", "tick-2"]);
    assert_eq!(registry.function_names().count(), 1);
}

#[test]
fn a_remote_function_runs_its_step_function() {
    let registry = Registry::new()
        .function("twice", async |step: Step, n: u64| Ok::<_, Error>(n * 2 + u64::from(step.attempt())));
    let function = registry.remote_function(&"twice".parse().unwrap()).unwrap();
    let mut driver = crate::driver::Driver::new(|cx: Workflow| async move { cx.step("a", 1u64, echo).await });
    let made = driver.poll().made.remove(0);
    let run = |input: &str| {
        let mut spec = step_spec(&made).clone();
        spec.run = function.run(&Payload::from_text(input).unwrap());
        attempt(&spec, &made.call, Attempt::FIRST.0, None).0
    };
    assert_eq!(run("20").unwrap().as_str(), "41");
    let failure = run("\"many\"").unwrap_err();
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert!(failure.message.starts_with("function \"twice\": reading the input"), "{failure}");
}
