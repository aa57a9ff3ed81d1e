//! Changed code against a recorded journal.

use everstep_engine::What;
use everstep_protocol::journal::ParkCode;
use everstep_sdk::{Error, Registry, Retry, Step, Workflow};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::rig::Rig;

/// One step of this name and input, then an hour's sleep.
fn one(name: &'static str, input: u32, fails: bool) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        let value = cx
            .step(name, input, move |step: Step, input: u32| async move {
                if fails && step.attempt() == 1 { Err(Error::failed("first")) } else { Ok(input) }
            })
            .retry(Retry::constant("1h").limit(3))
            .await?;
        cx.sleep("nap", "1h").await?;
        Ok::<_, Error>(value)
    })
}

fn until_waiting(rig: &mut Rig) {
    rig.claim();
    rig.exchange();
    rig.attempt();
    rig.exchange();
    assert!(rig.hosted.is_none(), "it waits");
}

#[test]
fn p41_a_mismatch_parks_with_the_entry_and_the_call_and_retry_goes_on() {
    let mut rig = Rig::new(one("a", 1, false));
    until_waiting(&mut rig);
    rig.registry = one("b", 1, false);
    rig.run();
    let parked = rig.parked().unwrap();
    assert_eq!(parked.code, ParkCode::JournalMismatch);
    assert!(
        parked.message.contains("entry 2 (attempted)") && parked.message.contains("step \"a\" #1"),
        "{parked:?}"
    );
    rig.registry = one("a", 1, false);
    rig.co.on(rig.uid, What::Retry { operation: "op".to_owned() });
    assert_eq!(rig.output::<u32>(), 1);
}

/// What a body calls, one after the other.
#[derive(Clone, Copy)]
enum Calls {
    Step(&'static str),
    Remote(&'static str),
    Sleep(&'static str),
}

fn calling(calls: &'static [Calls]) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        for call in calls {
            match *call {
                Calls::Step(name) => cx.step(name, 1u32, async |_: Step, _: u32| Ok::<_, Error>(())).await?,
                Calls::Remote(name) => cx.remote(name, 1u32).on("pool").await?,
                Calls::Sleep(name) => cx.sleep(name, "1h").await?,
            }
        }
        Ok::<_, Error>(())
    })
}

/// Each change of the code, with what it disagrees with: the entry, its call, and what the code asks for instead.
#[test]
fn p41_a_changed_course_is_named_by_entry_and_call_and_the_former_code_goes_on() {
    use Calls::{Remote, Sleep, Step};
    const FORMER: &[Calls] = &[Step("a"), Sleep("s"), Step("b"), Sleep("t")];
    const ASKS: &str = "the code has not called";
    let cases: [(&str, &'static [Calls], &str); 9] = [
        (
            "added",
            &[Step("x"), Step("a")],
            "2 (attempted): {} step \"a\" #1 by then; it asks for step \"x\" #1",
        ),
        (
            "added later",
            &[Step("a"), Sleep("s"), Step("x")],
            "5 (attempted): {} step \"b\" #1 by then; it asks for step \"x\" #1",
        ),
        (
            "removed",
            &[Sleep("s"), Step("b")],
            "2 (attempted): {} step \"a\" #1 by then; it asks for sleep \"s\" #1",
        ),
        (
            "the last removed",
            &[Step("a"), Sleep("s")],
            "5 (attempted): {} step \"b\" #1 by then; it asks for nothing more",
        ),
        (
            "reordered",
            &[Step("b"), Sleep("s"), Step("a")],
            "2 (attempted): {} step \"a\" #1 by then; it asks for step \"b\" #1",
        ),
        (
            "renamed",
            &[Step("a"), Sleep("pause")],
            "3 (opened): {} sleep \"s\" #1 by then; it asks for sleep \"pause\" #1",
        ),
        (
            "counted otherwise",
            &[Step("a"), Step("a")],
            "3 (opened): {} sleep \"s\" #1 by then; it asks for step \"a\" #2",
        ),
        (
            "another kind",
            &[Sleep("a")],
            "2 (attempted): {} step \"a\" #1 by then; it asks for sleep \"a\" #1",
        ),
        (
            "elsewhere",
            &[Step("a"), Remote("s")],
            "3 (opened): {} sleep \"s\" #1 by then; it asks for step \"s\" #1",
        ),
    ];
    for (what, changed, says) in cases {
        let mut rig = Rig::new(calling(FORMER));
        while rig.words().last().map(String::as_str) != Some("opened t1") {
            assert!(rig.move_on());
            rig.exchange();
        }
        rig.registry = calling(changed);
        rig.run();
        let parked = rig.parked().unwrap_or_else(|| panic!("{what}: not parked, {:?}", rig.words()));
        assert_eq!(parked.code, ParkCode::JournalMismatch);
        let says = format!("the code disagrees with entry {}", says.replace("{}", ASKS));
        assert_eq!(parked.message, says, "{what}");
        rig.registry = calling(FORMER);
        rig.co.on(rig.uid, What::Retry { operation: "op".to_owned() });
        rig.output::<()>();
    }
}

#[test]
fn p41_a_body_that_returns_too_early_is_a_mismatch() {
    let mut rig = Rig::new(one("a", 1, false));
    until_waiting(&mut rig);
    rig.registry = Registry::new().workflow_fn("w", |_: Workflow, (): ()| async { Ok::<_, Error>(9) });
    rig.run();
    assert_eq!(rig.parked().unwrap().code, ParkCode::JournalMismatch);
}

/// A step whose output is a text in one build and a number in the other.
fn output<Out>(output: Out) -> Registry
where
    Out: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| {
        let output = output.clone();
        async move {
            let step = cx.step("a", (), move |_: Step, (): ()| {
                let output = output.clone();
                async move { Ok::<_, Error>(output) }
            });
            // A body that catches errors must not take this for one.
            let Ok(output) = step.await else { return Ok(None) };
            cx.sleep("nap", "1h").await?;
            Ok::<_, Error>(Some(output))
        }
    })
}

#[test]
fn p41_an_output_that_no_longer_fits_parks_with_the_entry_and_the_call_and_retry_goes_on() {
    let mut rig = Rig::new(output("many".to_owned()));
    until_waiting(&mut rig);
    rig.registry = output(5);
    rig.build = "b2".parse().unwrap();
    rig.run();
    let parked = rig.parked().unwrap();
    assert_eq!(parked.code, ParkCode::JournalMismatch);
    let says = ["entry 2 (attempted)", "step \"a\" #1: reading the recorded output"];
    assert!(says.iter().all(|says| parked.message.contains(says)), "{parked:?}");
    rig.registry = output("other".to_owned());
    rig.co.on(rig.uid, What::Retry { operation: "op".to_owned() });
    assert_eq!(rig.output::<Option<String>>().as_deref(), Some("many"));
}

/// The output is recorded with the question in one report: what was done is done.
#[test]
fn p41_an_output_that_its_own_code_cannot_read_is_recorded_and_parks() {
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Odd {
        #[serde(rename(serialize = "written", deserialize = "read"))]
        field: u8,
    }
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        cx.step("a", (), async |_: Step, (): ()| Ok::<_, Error>(Odd { field: 1 })).await.map(drop)
    });
    let mut rig = Rig::new(registry);
    rig.run();
    assert_eq!(rig.words(), ["started", "a1 1 ok", "parked"]);
    assert!(rig.parked().unwrap().message.contains("entry 2 (attempted)"));
}

#[test]
fn p08_another_input_under_the_same_build_is_a_mismatch() {
    let mut rig = Rig::new(one("a", 1, false));
    until_waiting(&mut rig);
    rig.registry = one("a", 2, false);
    rig.run();
    assert_eq!(rig.parked().unwrap().code, ParkCode::JournalMismatch);
}

#[test]
fn p08_another_input_under_another_build_uses_the_recorded_output_and_is_counted() {
    let mut rig = Rig::new(one("a", 1, false));
    until_waiting(&mut rig);
    rig.registry = one("a", 2, false);
    rig.build = "b2".parse().unwrap();
    assert_eq!(rig.output::<u32>(), 1);
    assert_eq!(rig.metrics.drifted.get(), 1);
}

#[test]
fn p08_attempts_without_an_outcome_and_another_input_are_parked() {
    let mut rig = Rig::new(one("a", 1, true));
    until_waiting(&mut rig);
    rig.registry = one("a", 2, true);
    rig.build = "b2".parse().unwrap();
    rig.run();
    assert_eq!(rig.parked().unwrap().code, ParkCode::InputChanged);
}

#[test]
fn p08_the_first_attempt_pins_key_and_policy() {
    let mut rig = Rig::held(one("a", 1, true));
    let first = rig.orders[0].info.clone();
    rig.attempt();
    rig.exchange();
    // The new build gives the step another policy.
    rig.registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let step = cx.step("a", 1, async |_: Step, input: u32| Ok::<_, Error>(input));
        step.retry(Retry::none()).await
    });
    rig.build = "b2".parse().unwrap();
    rig.wait();
    rig.claim();
    rig.exchange();
    let second = rig.orders[0].info.clone();
    assert_eq!((second.key, second.policy), (first.key, first.policy));
    assert_eq!(second.attempt.0, 2);
}

#[test]
fn p05_the_key_is_the_same_in_every_attempt_and_differs_by_count() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let key = async |step: Step, (): ()| Ok::<_, Error>(step.idempotency_key().to_owned());
        let (one, two) = (cx.step("a", (), key).await?, cx.step("a", (), key).await?);
        Ok::<_, Error>((one, two))
    });
    let (one, two) = Rig::new(registry).output::<(String, String)>();
    assert_eq!((one.len(), two.len()), (64, 64));
    assert_ne!(one, two);
}

#[test]
fn an_unreadable_input_fails_the_instance_and_not_the_worker() {
    let registry = Registry::new().workflow_fn("w", |_: Workflow, _: u32| async { Ok::<_, Error>(()) });
    let mut rig = Rig::with_input(registry, "not a number");
    rig.run();
    assert_eq!(rig.words(), ["started", "ended"]);
}
