//! Schedules, typed: what starts instances at their times (rules S1 to S16).

use everstep_engine::schedule::{Counts, Definition, Overlap, When};
use everstep_protocol::{InstanceId, ScheduleId, WorkflowName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

use crate::{
    api::{Answer, Backfill},
    client::Client,
    error::Error,
    instance::InstanceHandle,
};

/// A schedule as the coordinator shows it; moments as in `2026-01-31T12:00:00.000000Z`.
#[derive(Clone, Debug, Deserialize)]
pub struct ScheduleView {
    /// Its id.
    pub id: ScheduleId,
    /// `active`, `paused`, or `ended` if nothing is to come.
    pub state: String,
    /// What it starts.
    pub workflow: WorkflowName,
    /// The next due times.
    #[serde(default)]
    pub next: Vec<ScheduleRun>,
    /// What happened so far.
    #[serde(default)]
    pub counts: Counts,
    /// What happened last, newest first.
    #[serde(default)]
    pub recent: Vec<ScheduleAction>,
    /// Why the last start was refused, if nothing was started since.
    #[serde(default)]
    pub failing: Option<ScheduleAction>,
}

/// A due time that is to come.
#[derive(Clone, Debug, Deserialize)]
pub struct ScheduleRun {
    /// The due time.
    pub due: String,
    /// When it will be started, which is later by the jitter.
    pub starts_at: String,
}

/// Something that happened.
#[derive(Clone, Debug, Deserialize)]
pub struct ScheduleAction {
    /// The due time; none if somebody asked for a start at once.
    #[serde(default)]
    pub due: Option<String>,
    /// When it happened.
    pub at: String,
    /// `started`, `existed`, `refused`, `overlap`, `queue_full`, `replaced` or `missed`.
    pub outcome: String,
    /// The instance.
    #[serde(default)]
    pub instance: Option<InstanceId>,
    /// To how many due times; `due` is the last of them.
    #[serde(default)]
    pub times: u64,
    /// The code of a refusal.
    #[serde(default)]
    pub code: Option<String>,
    /// The refusal in words.
    #[serde(default)]
    pub message: Option<String>,
}

#[derive(Deserialize)]
struct Started {
    workflow: WorkflowName,
    id: InstanceId,
}

impl Client {
    /// Creates a schedule, or puts this one in the place of the one that there is. The same again changes nothing.
    ///
    /// ```no_run
    /// use everstep_client::{Client, schedule::{Definition, Overlap, When}};
    ///
    /// # async fn example(everstep: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let nightly = Definition {
    ///     overlap: Overlap::QueueOne,
    ///     ..Definition::starts("report", &"all", When::cron("30 2 * * *").zone("Europe/Berlin"))?
    /// };
    /// let schedule = everstep.put_schedule("nightly", &nightly).await?;
    /// println!("next at {}", schedule.next[0].due);
    /// # Ok(()) }
    /// ```
    pub async fn put_schedule(&self, id: &str, schedule: &Definition) -> Result<ScheduleView, Error> {
        let answer = self.api().put_schedule(&ScheduleId::new(id)?, None, &body(schedule)).await?;
        self.parsed(&answer)
    }

    /// A schedule, with its next five due times.
    pub async fn schedule(&self, id: &str) -> Result<ScheduleView, Error> {
        self.parsed(&self.api().schedule(&ScheduleId::new(id)?, None).await?)
    }

    /// Nothing more is started at due times, for this reason.
    pub async fn pause_schedule(&self, id: &str, note: Option<&str>) -> Result<ScheduleView, Error> {
        self.parsed(&self.api().pause_schedule(&ScheduleId::new(id)?, None, note).await?)
    }

    /// It goes on from now.
    pub async fn resume_schedule(&self, id: &str) -> Result<ScheduleView, Error> {
        self.parsed(&self.api().resume_schedule(&ScheduleId::new(id)?, None, None).await?)
    }

    /// Starts an instance at once. With a key it can be repeated without harm.
    pub async fn trigger_schedule(&self, id: &str, key: Option<&str>) -> Result<InstanceHandle, Error> {
        let key = key.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
        let answer = self.api().trigger_schedule(&ScheduleId::new(id)?, None, &key).await?;
        let Started { workflow, id } = self.parsed(&answer)?;
        Ok(InstanceHandle::new(self.api().clone(), workflow, id))
    }

    /// Starts the due times of a span that has passed; those that were started are there already.
    pub async fn backfill_schedule(&self, id: &str, span: &Backfill) -> Result<ScheduleView, Error> {
        let key = Uuid::now_v7().to_string();
        self.parsed(&self.api().backfill_schedule(&ScheduleId::new(id)?, None, &key, span).await?)
    }

    /// Stops all that is being made up for; what was started stays.
    pub async fn stop_backfill(&self, id: &str) -> Result<ScheduleView, Error> {
        self.parsed(&self.api().stop_backfill(&ScheduleId::new(id)?, None, None).await?)
    }

    /// Deletes a schedule; what it has started stays.
    pub async fn delete_schedule(&self, id: &str) -> Result<(), Error> {
        self.api().delete_schedule(&ScheduleId::new(id)?, None).await?;
        Ok(())
    }

    fn parsed<T: serde::de::DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        serde_json::from_str(&answer.text).map_err(|error| self.api().alien(answer.status, error.to_string()))
    }
}

/// A definition by the names of the API; the input keeps every digit.
#[derive(Serialize)]
struct Body {
    input: Option<Box<RawValue>>,
    #[serde(flatten)]
    rest: Value,
}

fn body(schedule: &Definition) -> Body {
    let input = RawValue::from_string(schedule.input.as_str().to_owned()).ok();
    Body { input, rest: rest(schedule) }
}

fn rest(schedule: &Definition) -> Value {
    let mut body = json!({
        "workflow": schedule.workflow,
        "pin": schedule.pin,
        "strict": schedule.strict,
        "attributes": everstep_protocol::attribute::object(&schedule.attributes),
        "from": schedule.from.map(|at| at.to_string()),
        "until": schedule.until.map(|at| at.to_string()),
        "limit": schedule.limit,
        "jitter": schedule.jitter.to_string(),
        "overlap": schedule.overlap.word(),
        "catch_up": schedule.catch_up.which.word(),
        "catch_up_within": schedule.catch_up.within.to_string(),
        "retention": {
            "complete": schedule.retention.complete.map(|span| span.to_string()),
            "failed": schedule.retention.failed.map(|span| span.to_string()),
        },
    });
    let mut put = |field: &str, value: Value| {
        body.as_object_mut().and_then(|body| body.insert(field.to_owned(), value))
    };
    if let Overlap::Queue { max } = schedule.overlap {
        put("queue_max", max.into());
    }
    match &schedule.when {
        When::Cron { expression, zone } => {
            put("cron", expression.as_str().into());
            put("zone", zone.as_str().into());
        }
        When::Every { every, offset } => {
            put("every", every.to_string().into());
            put("offset", offset.to_string().into());
        }
        When::At { at } => {
            put("at", at.to_string().into());
        }
    }
    body
}
