//! The samples of the guide to schedules, `docs/guides/schedules.md`.

use everstep::{
    Error, IntoMillis, Workflow,
    embedded::{Embedded, InstanceHandle, Overlap, Schedule, Timestamp, When},
};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// A report on everything, or on something.
#[everstep::workflow]
pub async fn report(cx: Workflow, about: String) -> Result<String, Error> {
    let written = |_step, about: String| async move { Ok::<_, Error>(format!("all is well with {about}")) };
    cx.step("write", about, written).await
}

/// A report each night.
pub async fn each_night(everstep: &Embedded) -> Result<(), AnyError> {
    let nightly = Schedule {
        overlap: Overlap::QueueOne,
        jitter: "5 min".into_millis()?,
        ..Schedule::starts("report", &"all", When::cron("30 2 * * *").zone("Europe/Berlin"))?
    };
    everstep.put_schedule("nightly", &nightly).await?;
    Ok(())
}

/// A week is made up for, and one more is made now.
pub async fn make_up(everstep: &Embedded) -> Result<Option<InstanceHandle>, AnyError> {
    let week = (moment("2026-11-01T00:00:00Z")?, moment("2026-11-08T00:00:00Z")?);
    everstep.backfill_schedule("nightly", week, false).await?;
    let now = everstep.trigger_schedule("nightly", Some("ticket-4711")).await?;
    Ok(now)
}

fn moment(text: &str) -> Result<Timestamp, AnyError> {
    Timestamp::parse(text).ok_or_else(|| format!("{text} is no moment").into())
}
