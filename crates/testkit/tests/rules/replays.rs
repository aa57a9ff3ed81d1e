//! Every finished instance is replayed a second time, and journals that were saved are replayed against the code.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use everstep::{Error, Step, Workflow};
use everstep_testkit::{KitError, Mock, Status, TestKit};
use serde_json::{Value, json};

use crate::{never, panic_of};

async fn echo(_: Step, text: String) -> Result<String, Error> {
    Ok(text)
}

/// What a workflow must not do: it asks the process, not its journal.
fn planted<Fut>(run: impl Fn(Workflow, u32) -> Fut + Send + Sync + 'static) -> TestKit
where
    Fut: Future<Output = Result<String, Error>> + Send + 'static,
{
    let polled = Arc::new(AtomicU32::new(0));
    TestKit::new().workflow_fn("planted", move |cx: Workflow, (): ()| {
        let begun = polled.fetch_add(1, Ordering::Relaxed);
        run(cx, begun)
    })
}

fn finished(kit: TestKit) {
    kit.run(async |kit| {
        let run = kit.start_instance_as("planted", "one", &()).await.unwrap();
        run.result::<String>().await.unwrap();
    });
}

#[test]
fn p43_a_second_replay_finds_a_step_whose_name_is_not_determined() {
    let kit = || planted(|cx, begun| async move { cx.step(format!("step {begun}"), "x", echo).await });
    let said = panic_of(|| finished(kit()));
    assert!(
        said.contains("planted/one") && said.contains("step \"step 0\" #1") && said.contains("entry 2"),
        "{said}"
    );
    finished(kit().without_replays());
}

#[test]
fn p43_a_second_replay_finds_an_input_that_is_not_determined() {
    let kit = planted(|cx, begun| async move { cx.step("echo", begun.to_string(), echo).await });
    let said = panic_of(|| finished(kit));
    assert!(said.contains("another input") && said.contains("step \"echo\" #1"), "{said}");
}

#[test]
fn p43_a_second_replay_finds_an_output_that_is_not_determined() {
    let kit = planted(|cx, begun| async move {
        cx.step("echo", "x", echo).await?;
        Ok(begun.to_string())
    });
    let said = panic_of(|| finished(kit));
    assert!(
        said.contains("entry 3 (ended)") && said.contains("completes with \"0\"") && said.contains("\"1\""),
        "{said}"
    );
}

#[test]
fn p43_a_second_replay_finds_a_body_that_goes_on_where_it_ended() {
    let kit = planted(|cx, begun| async move {
        if begun > 0 {
            cx.step("more", "x", echo).await?;
        }
        Ok("done".to_owned())
    });
    let said = panic_of(|| finished(kit));
    assert!(said.contains("goes on with step \"more\" #1"), "{said}");
}

/// An order, whose code is written anew in each test.
fn order<Fut>(body: impl Fn(Workflow) -> Fut + Send + Sync + 'static) -> TestKit
where
    Fut: Future<Output = Result<String, Error>> + Send + 'static,
{
    TestKit::new().workflow_fn("order", move |cx: Workflow, (): ()| body(cx)).pool("labels")
}

async fn first_version(cx: Workflow) -> Result<String, Error> {
    let draw: u64 = cx.random();
    let paid: String = cx.step("charge", draw, never_charged).await?;
    cx.sleep("cooling off", "14 days").await?;
    let label: String = cx.remote("label", &paid).on("labels").await?;
    Ok(format!("{paid}, {label}"))
}

/// The step is mocked, and a replay runs none.
async fn never_charged(step: Step, _: u64) -> Result<String, Error> {
    never(step, ()).await
}

/// The journal of an order, whole or as it stands while it cools off.
fn saved(ended: bool) -> String {
    order(first_version).time_by_hand().run(async move |kit| {
        kit.mock(Mock::step("charge").fails(1, Error::failed("503")).returns("paid")).unwrap();
        kit.mock(Mock::step("label").returns("label-1")).unwrap();
        let run = kit.start_instance_as("order", "one", &()).await.unwrap();
        kit.advance("1 day").await.unwrap();
        if ended {
            kit.advance("20 days").await.unwrap();
            assert_eq!(run.result::<String>().await.unwrap(), "paid, label-1");
        } else {
            run.reaches(Status::Waiting).await.unwrap();
        }
        run.export().await.unwrap()
    })
}

#[test]
fn p43_a_saved_journal_is_replayed_without_running_a_step() {
    let (whole, open) = (saved(true), saved(false));
    order(first_version).run(async move |kit| {
        let replayed = kit.replay(&whole).unwrap();
        assert!(replayed.ended && replayed.next.is_empty() && replayed.entries > 6, "{replayed:?}");
        let replayed = kit.replay(&open).unwrap();
        assert!(!replayed.ended, "{replayed:?}");
        assert!(kit.instances().await.unwrap().is_empty(), "nothing was started");
    });
}

#[test]
fn p43_a_saved_journal_that_the_code_contradicts_names_entry_and_call() {
    let open = saved(false);
    let check =
        |text: String, body: fn(Workflow) -> futures::future::BoxFuture<'static, Result<String, Error>>| {
            order(body).run(async move |kit| kit.replay(&text).unwrap_err().to_string())
        };
    let renamed = check(open.clone(), |cx| {
        Box::pin(async move {
            let draw: u64 = cx.random();
            cx.step("pay", draw, never_charged).await
        })
    });
    assert!(renamed.contains("entry 2 (attempted)") && renamed.contains("step \"charge\" #1"), "{renamed}");
    let inserted = check(open.clone(), |cx| {
        Box::pin(async move {
            cx.sleep("before", "1s").await?;
            first_version(cx).await
        })
    });
    assert!(inserted.contains("entry 2") && inserted.contains("step \"charge\" #1"), "{inserted}");
    let other_input = check(open, |cx| Box::pin(async move { cx.step("charge", 1, never_charged).await }));
    assert!(other_input.contains("another input"), "{other_input}");
}

/// What the HTTP API and the command give: without the seed.
fn as_the_api_gives_it(text: &str) -> Value {
    let mut saved: Value = serde_json::from_str(text).unwrap();
    saved["journal"][0].as_object_mut().unwrap().remove("seed");
    saved["instance"]["status"] = json!("waiting");
    saved
}

#[test]
fn p43_a_journal_as_the_command_prints_it_is_replayed_and_says_what_its_seed_may_explain() {
    async fn plain(cx: Workflow) -> Result<String, Error> {
        let paid: String = cx.step("charge", 1, never_charged).await?;
        cx.sleep("cooling off", "14 days").await?;
        Ok(paid)
    }
    let text = order(plain).run(async |kit| {
        kit.mock(Mock::step("charge").returns("paid")).unwrap();
        let run = kit.start_instance_as("order", "one", &()).await.unwrap();
        run.result::<String>().await.unwrap();
        run.export().await.unwrap()
    });
    let text = as_the_api_gives_it(&text).to_string();
    order(plain).run(async move |kit| assert!(kit.replay(&text).unwrap().ended));
    let draws = as_the_api_gives_it(&saved(false)).to_string();
    let said = order(first_version).run(async move |kit| kit.replay(&draws).unwrap_err().to_string());
    assert!(said.contains("another input") && said.contains("has no seed"), "{said}");
}

/// A patch of the code is exported and read like everything else (rule P40).
#[test]
fn p43_a_saved_journal_with_a_patch_is_replayed() {
    async fn patched(cx: Workflow) -> Result<String, Error> {
        let course = if cx.patched("course").await? { "new" } else { "old" };
        cx.step(course, course.to_owned(), echo).await
    }
    let text = order(patched).run(async |kit| {
        let run = kit.start_instance_as("order", "one", &()).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "new");
        run.export().await.unwrap()
    });
    order(patched).run(async move |kit| {
        assert!(kit.replay(&text).unwrap().ended);
        let mut before: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(before["journal"][1]["kind"], json!("patched"));
        before["journal"][1]["called_after"].take();
        let said = kit.replay(&before.to_string()).unwrap_err().to_string();
        assert!(said.contains("entry 2 (patched): called_after"), "{said}");
    });
}

#[test]
fn p43_a_saved_journal_that_cannot_be_read_names_entry_and_field() {
    let good: Value = serde_json::from_str(&saved(true)).unwrap();
    let mut cases = Vec::new();
    let mut case = |names: [&'static str; 2], change: &dyn Fn(&mut Value)| {
        let mut text = good.clone();
        change(&mut text);
        cases.push((text.to_string(), names));
    };
    case(["entry 2", "fingerprint"], &|text| {
        drop(text["journal"][1].as_object_mut().unwrap().remove("fingerprint"));
    });
    case(["entry 2", "outcome"], &|text| text["journal"][1]["outcome"] = json!("maybe"));
    case(["entry 1", "kind"], &|text| text["journal"][0]["kind"] = json!("begun"));
    case(["entry 3", "at"], &|text| text["journal"][2]["at"] = json!("yesterday"));
    case(["entry 3", "entry 2"], &|text| drop(text["journal"].as_array_mut().unwrap().remove(1)));
    case(["workflow", "name"], &|text| text["instance"]["workflow"] = json!(""));
    TestKit::new().run(async move |kit| {
        for (text, names) in cases {
            let error = kit.replay(&text).unwrap_err();
            assert!(matches!(error, KitError::Invalid(_)), "{error}");
            assert!(names.iter().all(|name| error.to_string().contains(name)), "{error} names {names:?}");
        }
    });
}
