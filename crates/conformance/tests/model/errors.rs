//! Errors: which are retried, which end a step, and what is left of them in the records.

use std::num::ParseIntError;

use everstep::{Error, Retry, Step, Workflow};
use everstep_conformance::{attempts, echo, failing, noting};
use everstep_system_tests::Log;
use everstep_testkit::{Status, TestKit, journal::Outcome};
use serde::{Deserialize, Serialize};

/// One step that fails with what it is told; the workflow hands its error on, or catches it.
fn one_step(log: &Log, retry: Retry, error: Error, catches: bool) -> TestKit {
    let log = log.clone();
    TestKit::new().workflow_fn("one", move |cx: Workflow, (): ()| {
        let (log, retry, error) = (log.clone(), retry.clone(), error.clone());
        async move {
            match cx.step("s", (), failing::<u32>(&log, error)).retry(retry).await {
                Err(error) if catches => Ok(format!("caught {error}")),
                other => other.map(|_| "no error".to_owned()),
            }
        }
    })
}

#[test]
fn b001_b002_t05_a_permanent_error_is_one_attempt_and_its_words_reach_record_and_instance() {
    let log = Log::new();
    let kit =
        one_step(&log, Retry::constant("1s"), Error::permanent("no such card").named("CardUnknown"), false);
    kit.run(async move |kit| {
        let run = kit.start_instance("one", &()).await.unwrap();
        let error = run.error().await.unwrap();
        assert_eq!((error.name(), error.message()), ("CardUnknown", "no such card"));
        assert_eq!(log.lines(), ["s 1"]);
        let journal = run.journal().await.unwrap();
        let attempts = attempts(&journal);
        let Outcome::Failed { failure, retry_at: None } = &attempts[0].1.outcome else {
            panic!("{attempts:?}")
        };
        assert_eq!((failure.name.as_str(), failure.message.as_str()), ("CardUnknown", "no such card"));
        assert_eq!(run.status().await.unwrap(), Status::Errored);
    });
}

#[test]
fn b003_t07_retries_used_up_inside_a_catch_do_not_fail_the_instance() {
    let log = Log::new();
    one_step(&log, Retry::none(), Error::failed("503"), true).run(async move |kit| {
        let run = kit.start_instance("one", &()).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "caught Error: 503");
        assert_eq!(log.lines(), ["s 1"], "no retries: one attempt");
        assert_eq!(attempts(&run.journal().await.unwrap()).len(), 1);
    });
}

#[test]
fn t08_a_permanent_error_is_caught_and_replayed_without_another_attempt() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().workflow_fn("one", move |cx: Workflow, (): ()| {
        let log = told.clone();
        async move {
            let failed = cx.step("s", (), failing::<()>(&log, Error::permanent("no"))).await;
            cx.sleep("then", "1 day").await?;
            Ok::<_, Error>(failed.is_err_and(|error| error.is_permanent()))
        }
    });
    kit.run(async move |kit| {
        let run = kit.start_instance("one", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.crash_worker();
        assert!(run.result::<bool>().await.unwrap());
        assert_eq!(log.lines(), ["s 1"]);
    });
}

#[test]
fn b128_b129_an_empty_message_is_a_message() {
    for (error, attempts) in [(Error::failed(""), 4), (Error::permanent(""), 1)] {
        let log = Log::new();
        one_step(&log, Retry::constant("1s").limit(3), error, false).run(async move |kit| {
            let run = kit.start_instance("one", &()).await.unwrap();
            assert_eq!(run.error().await.unwrap().message(), "");
            assert_eq!(log.lines().len(), attempts);
        });
    }
}

#[test]
fn t04_an_error_is_retried_until_it_succeeds_and_the_attempts_can_be_counted() {
    let kit = TestKit::new().workflow_fn("third", |cx: Workflow, (): ()| async move {
        let third = async |step: Step, (): ()| match step.attempt() {
            3 => Ok(step.attempt()),
            other => Err(Error::failed(format!("attempt {other}"))),
        };
        cx.step("third", (), third).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("third", &()).await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 3);
        let journal = run.journal().await.unwrap();
        let numbers: Vec<_> = attempts(&journal).iter().map(|(_, attempted)| attempted.attempt.0).collect();
        assert_eq!(numbers, [1, 2, 3]);
    });
}

/// Two levels of helpers below the workflow.
async fn nested(cx: &Workflow, text: &str) -> Result<u32, Error> {
    async fn deeper(cx: &Workflow, text: &str) -> Result<u32, Error> {
        let number = text.parse::<u32>()?;
        cx.step("keep", number, echo).await
    }
    deeper(cx, text).await
}

#[test]
fn t09_an_error_from_deep_inside_the_workflow_keeps_name_and_message() {
    let kit = TestKit::new()
        .workflow_fn("deep", |cx: Workflow, text: String| async move { nested(&cx, &text).await });
    kit.run(async |kit| {
        let run = kit.start_instance("deep", "many").await.unwrap();
        let error = run.error().await.unwrap();
        let cause: ParseIntError = "many".parse::<u32>().unwrap_err();
        assert_eq!((error.name(), error.message()), ("ParseIntError", cause.to_string().as_str()));
    });
}

#[derive(Debug)]
struct Outer(ParseIntError);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the quantity cannot be read")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn t10_an_error_of_a_step_keeps_name_message_and_what_caused_it() {
    let kit = TestKit::new().workflow_fn("read", |cx: Workflow, text: String| async move {
        let read = async |_: Step, text: String| text.parse::<u32>().map_err(Outer);
        cx.step("read", text, read).retry(Retry::none()).await
    });
    kit.run(async |kit| {
        let run = kit.start_instance("read", "many").await.unwrap();
        let error = run.step_error("read").await.unwrap();
        assert_eq!(error.name(), "Outer");
        assert!(error.message().contains("the quantity cannot be read"), "{error}");
        assert!(error.message().contains("invalid digit"), "its cause: {error}");
        assert_eq!(run.error().await.unwrap(), error);
    });
}

/// What an error is, is a field of its record. Nothing that users write can be mistaken for it.
#[test]
fn b150_words_of_ours_in_names_and_messages_change_nothing() {
    let words = [
        "(permanent)",
        "Permanent: no",
        "TimedOut: late",
        "Cancelled",
        "NonRetryableError: x",
        "timed_out",
        "fatal",
    ];
    let kit = TestKit::new().workflow_fn("words", move |cx: Workflow, word: String| async move {
        let fails = async |step: Step, word: String| {
            Err::<u32, _>(Error::failed(&word).named(format!("{word}{}", step.attempt())))
        };
        let failed =
            cx.step(format!("permanent: {word}"), &word, fails).retry(Retry::constant("1s").limit(2)).await;
        let error = failed.expect_err("it fails");
        Ok::<_, Error>((
            error.name().to_owned(),
            error.is_permanent() || error.is_timed_out() || error.is_cancelled(),
        ))
    });
    kit.run(async move |kit| {
        for word in words {
            let run = kit.start_instance("words", word).await.unwrap();
            assert_eq!(
                run.result::<(String, bool)>().await.unwrap(),
                (format!("{word}3"), false),
                "all three attempts"
            );
        }
    });
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Shape {
    Circle { radius: f64 },
    Polygon { corners: Vec<(i64, i64)>, label: Option<String> },
    Nothing,
}

#[test]
fn t50_types_of_the_users_own_come_back_as_they_were_and_errors_with_their_data() {
    let kit = TestKit::new().workflow_fn("shapes", |cx: Workflow, shapes: Vec<Shape>| async move {
        let mut back = Vec::new();
        for shape in shapes {
            back.push(cx.step("shape", shape, echo::<Shape>).await?);
        }
        let spoilt = async |_: Step, shape: Shape| Err::<(), _>(Error::permanent("spoilt").with_data(&shape));
        let error = cx.step("spoil", back.first(), spoilt).await.expect_err("it fails");
        // A replay in between reads both from the record.
        cx.sleep("a replay", "1 hour").await?;
        Ok::<_, Error>((back, error.data::<Shape>()))
    });
    let corners = vec![(i64::MIN, i64::MAX), (0, -1)];
    let shapes = vec![
        Shape::Circle { radius: 0.1 + 0.2 },
        Shape::Polygon { corners, label: Some("é\u{0}".to_owned()) },
        Shape::Nothing,
    ];
    kit.run(async move |kit| {
        let run = kit.start_instance("shapes", &shapes).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.crash_worker();
        let (back, data) = run.result::<(Vec<Shape>, Option<Shape>)>().await.unwrap();
        assert_eq!((&back, data.as_ref()), (&shapes, shapes.first()));
    });
}

#[test]
fn t12_a_remote_step_that_no_worker_of_its_pool_knows_can_be_caught_and_fails_uncaught() {
    let log = Log::new();
    let told = log.clone();
    let kit = TestKit::new().pool("labels").workflow_fn("ships", move |cx: Workflow, catches: bool| {
        let log = told.clone();
        async move {
            let label =
                cx.remote::<String>("label", ()).on("labels").retry(Retry::constant("1s").limit(1)).await;
            if catches && label.is_err() {
                return cx.step("by hand", (), noting(&log, "by hand".to_owned())).await;
            }
            label
        }
    });
    kit.run(async move |kit| {
        let caught = kit.start_instance("ships", &true).await.unwrap();
        assert_eq!(caught.result::<String>().await.unwrap(), "by hand");
        let uncaught = kit.start_instance("ships", &false).await.unwrap();
        let error = uncaught.error().await.unwrap();
        assert!(error.message().contains("label"), "it names the function: {error}");
    });
}
