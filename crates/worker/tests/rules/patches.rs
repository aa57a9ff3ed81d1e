//! Changes of code that say of themselves which instances they apply to (rule P40). Not: which entry answers which question (the
//! engine's own tests).

use everstep_engine::What;
use everstep_protocol::journal::ParkCode;
use everstep_sdk::{Error, Registry, Step, Workflow};

use crate::rig::Rig;

async fn echo(_step: Step, value: u32) -> Result<u32, Error> {
    Ok(value)
}

/// What stands between the first step and the last.
#[derive(Clone, Copy, Debug)]
enum Code {
    Before,
    Patched,
    Deprecated,
    Removed,
}

/// Ends with 1 for the old course and with 2 for the new.
fn code(code: Code) -> Registry {
    Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
        cx.sleep("first", "1h").await?;
        let is_new = match code {
            Code::Before => false,
            Code::Patched => cx.patched("change").await?,
            Code::Deprecated => cx.deprecate_patch("change").await.map(|()| true)?,
            Code::Removed => true,
        };
        let course = if is_new { cx.step("new", 2, echo) } else { cx.step("old", 1, echo) }.await?;
        cx.sleep("last", "1h").await?;
        Ok::<_, Error>(course)
    })
}

/// A rig on whose journal this code has gone up to this entry, with a new worker.
fn up_to(entry: &str, first: Registry) -> Rig {
    let mut rig = Rig::new(first);
    loop {
        rig.exchange();
        if rig.words().last().map(String::as_str) == Some(entry) {
            rig.crash(false);
            return rig;
        }
        assert!(rig.move_on(), "{:?}", rig.words());
    }
}

const OLD: [&str; 4] = ["started", "opened first1", "fired first1", "old1 1 ok"];
const NEW: [&str; 5] = ["started", "opened first1", "fired first1", "patched change1", "new1 1 ok"];

fn words(rig: &Rig) -> Vec<String> {
    rig.words().into_iter().filter(|word| word != "lost").collect()
}

#[test]
fn p40_an_instance_that_went_past_keeps_the_old_course() {
    let mut rig = up_to("opened last1", code(Code::Before));
    rig.registry = code(Code::Patched);
    assert_eq!(rig.output::<u32>(), 1);
    assert_eq!(words(&rig)[..4], OLD);
}

#[test]
fn p40_an_instance_that_did_not_get_there_takes_the_new_course() {
    let mut rig = up_to("opened first1", code(Code::Before));
    rig.registry = code(Code::Patched);
    assert_eq!(rig.output::<u32>(), 2);
    assert_eq!(words(&rig)[..5], NEW);
}

#[test]
fn p40_a_crash_at_any_move_does_not_change_the_course() {
    let mut moves = 0;
    let mut rig = Rig::new(code(Code::Patched));
    while rig.move_on() {
        moves += 1;
    }
    assert_eq!(words(&rig)[..5], NEW);
    for crash_after in 0..=moves {
        let mut rig = Rig::new(code(Code::Patched));
        for _ in 0..crash_after {
            rig.move_on();
        }
        if rig.co.end(rig.uid).is_none() {
            rig.crash(false);
        }
        assert_eq!(rig.output::<u32>(), 2, "crash after {crash_after}: {:?}", rig.words());
        assert_eq!(words(&rig)[..5], NEW);
    }
}

#[test]
fn p40_nothing_follows_from_a_change_before_it_is_recorded() {
    let mut rig = up_to("fired first1", code(Code::Before));
    rig.registry = code(Code::Patched);
    rig.claim();
    rig.receive();
    rig.turn();
    assert!(!rig.out.is_empty(), "the question is on its way");
    assert_eq!(rig.words().iter().filter(|word| word.starts_with("patched")).count(), 0);
    assert!(rig.orders.is_empty(), "the step of the new course waits");
    rig.exchange();
    assert_eq!(rig.orders.len(), 1);
    assert_eq!(rig.output::<u32>(), 2);
}

#[test]
fn p40_a_loop_keeps_the_answer_of_its_first_round() {
    fn registry(is_patched: bool) -> Registry {
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let mut sum = 0;
            for _ in 0..3 {
                let is_new = is_patched && cx.patched("round").await?;
                sum += cx.step(if is_new { "new" } else { "old" }, if is_new { 10 } else { 1 }, echo).await?;
                cx.sleep("pause", "1h").await?;
            }
            Ok::<_, Error>(sum)
        })
    }
    let mut rig = up_to("opened pause1", registry(false));
    rig.registry = registry(true);
    assert_eq!(rig.output::<u32>(), 3, "{:?}", rig.words());
    let mut rig = Rig::new(registry(true));
    assert_eq!(rig.output::<u32>(), 30);
    let recorded = rig.words().iter().filter(|word| word.starts_with("patched")).count();
    assert_eq!(recorded, 1, "one answer for all rounds: {:?}", rig.words());
}

#[test]
fn p40_branches_that_ask_at_once_get_one_answer() {
    fn registry(is_patched: bool) -> Registry {
        Registry::new().workflow_fn("w", move |cx: Workflow, (): ()| async move {
            let branch = async |n: u32| {
                let is_new = is_patched && cx.patched("both").await?;
                cx.step(if is_new { "new" } else { "old" }, n, echo).await?;
                cx.sleep("pause", "1h").await?;
                Ok::<_, Error>(is_new)
            };
            futures::try_join!(branch(1), branch(2))
        })
    }
    let mut rig = up_to("opened pause2", registry(false));
    rig.registry = registry(true);
    assert_eq!(rig.output::<(bool, bool)>(), (false, false), "{:?}", rig.words());
    assert_eq!(Rig::new(registry(true)).output::<(bool, bool)>(), (true, true));
}

#[test]
fn p40_the_old_course_is_removed_in_two_deploys() {
    // What has the change recorded goes on without the old course.
    let mut rig = up_to("opened last1", code(Code::Patched));
    rig.registry = code(Code::Deprecated);
    assert_eq!(rig.output::<u32>(), 2);
    // What was begun without the old course goes on under the code before.
    let mut rig = up_to("opened last1", code(Code::Deprecated));
    rig.registry = code(Code::Patched);
    assert_eq!(rig.output::<u32>(), 2);
    // Too early: an instance that still needs the old course, or one that has the change recorded.
    for (first, then, says) in [
        (Code::Before, Code::Deprecated, "step \"old\" #1"),
        (Code::Patched, Code::Removed, "patch \"change\" #1"),
    ] {
        let mut rig = up_to("opened last1", code(first));
        rig.registry = code(then);
        rig.run();
        let parked = rig.parked().unwrap();
        assert_eq!(parked.code, ParkCode::JournalMismatch);
        assert!(parked.message.contains(says), "{parked:?}");
        rig.registry = code(Code::Patched);
        rig.co.on(rig.uid, What::Retry { operation: "op".to_owned() });
        assert!([1, 2].contains(&rig.output::<u32>()));
    }
}
