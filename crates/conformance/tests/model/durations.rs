//! O-08: durations as people write them. Each accepted text has one meaning, and everything else is refused with its text.

use everstep::{Error, Millis, Workflow};
use everstep_testkit::{Run, Status, TestKit};

const DAY: u64 = 86_400_000;

fn kit() -> TestKit {
    let kit = TestKit::new()
        .workflow_fn("text", |cx: Workflow, text: String| async move { cx.sleep("nap", text).await });
    kit.workflow_fn(
        "number",
        |cx: Workflow, millis: u64| async move { cx.sleep("nap", Millis(millis)).await },
    )
    .time_by_hand()
}

/// How long it sleeps, as its status says.
async fn wakes_in(run: &Run) -> u64 {
    run.reaches(Status::Waiting).await.unwrap();
    let wait = run.view().await.unwrap().waiting.swap_remove(0);
    run.terminate("seen").await.unwrap();
    wait.due_at.unwrap().since(wait.since).as_u64()
}

#[test]
fn o08_each_accepted_text_has_one_meaning() {
    kit().run(async |kit| {
        let cases = [
            ("30s", 30_000),
            ("30 seconds", 30_000),
            (" 5s ", 5_000),
            ("5S", 5_000),
            ("1m", 60_000),
            ("1M", 60_000),
            ("1 month", 30 * DAY),
            ("1 months", 30 * DAY),
            ("1.5 months", 45 * DAY),
            ("1 year", 365 * DAY),
            ("1d", DAY),
            ("1w", 7 * DAY),
            ("1.5 h", 5_400_000),
            ("1h30m", 5_400_000),
            ("5 min", 300_000),
            ("5 Minutes", 300_000),
            ("10 secs", 10_000),
            ("P1M", 30 * DAY),
            ("PT1M", 60_000),
            ("P1D", DAY),
        ];
        for (text, millis) in cases {
            let run = kit.start_instance("text", text).await.unwrap();
            assert_eq!(wakes_in(&run).await, millis, "{text:?}");
        }
        let run = kit.start_instance("number", &30_000).await.unwrap();
        assert_eq!(wakes_in(&run).await, 30_000, "a number is milliseconds");
    });
}

/// A day is 24 hours, whatever the clocks on the wall do meanwhile.
#[test]
fn o08_a_day_is_86400_seconds_over_a_change_of_the_clocks() {
    // 2027-03-27T12:00:00Z: in Berlin the next day has 23 hours.
    let before = everstep_testkit::Timestamp(1_806_148_800_000_000);
    kit().begins_at(before).run(async move |kit| {
        let run = kit.start_instance("text", "1 day").await.unwrap();
        assert_eq!(wakes_in(&run).await, DAY);
    });
}

#[test]
fn o08_everything_else_is_refused_and_quoted() {
    kit().run(async |kit| {
        let texts = [
            "30",
            "30.0",
            "1mo",
            "90",
            "1e3s",
            "5 s s",
            "٥s",
            "+5s",
            "5 s; 6 s",
            "",
            " ",
            "s",
            "5 fortnights",
            "-5 minutes",
            "Infinity",
            "NaN",
            "1..5s",
            "0x10s",
            "5 s 3",
            "0.0004 s",
        ];
        for text in texts {
            let run = kit.start_instance("text", text).await.unwrap();
            let error = run.error().await.unwrap();
            let quoted = format!("{text:?}");
            assert!(error.is_permanent() && error.message().contains(&quoted), "{text:?}: {error}");
        }
    });
}

/// Wherever a duration is asked for, the same text is read in the same way or refused.
#[test]
fn o08_timeouts_and_delays_are_read_like_sleeps() {
    let kit = TestKit::new().workflow_fn("waits", |cx: Workflow, text: String| async move {
        cx.event::<()>("never").timeout(text).await
    });
    kit.time_by_hand().run(async |kit| {
        let run = kit.start_instance("waits", "1h30m").await.unwrap();
        assert_eq!(wakes_in(&run).await, 5_400_000);
        let run = kit.start_instance("waits", "1mo").await.unwrap();
        let error: Error = run.error().await.unwrap();
        assert!(error.message().contains("\"1mo\""), "{error}");
    });
}
