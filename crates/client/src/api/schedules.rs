//! Schedules.

use everstep_protocol::ScheduleId;
use reqwest::Method;
use serde::Serialize;

use super::{Answer, Api, query};
use crate::error::Error;

/// A span that is to be made up for; times as in `2026-01-31T12:00:00Z`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Backfill {
    /// Due times from here on.
    pub from: String,
    /// Due times before this.
    pub until: String,
    /// Whether they are started side by side; none for as the schedule's overlap says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_by_side: Option<bool>,
}

#[derive(Serialize)]
struct Note<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

#[derive(Serialize)]
struct Stop<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
}

impl Api {
    /// Creates a schedule, or changes the one that there is; the same again changes nothing. `by` names who asks, for the record.
    pub async fn put_schedule(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        body: &impl Serialize,
    ) -> Result<Answer, Error> {
        self.send(self.json(Method::PUT, self.of_schedule(id, &[], by), body)?).await
    }

    /// Schedules, in the order of their ids.
    pub async fn schedules(&self, after: Option<&ScheduleId>, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.url(&["schedules"]);
        let (after, limit) = (after.map(ToString::to_string), limit.map(|limit| limit.to_string()));
        query(&mut url, &[("after", &after), ("limit", &limit)]);
        self.get(url).await
    }

    /// One of them, with so many of its next due times.
    pub async fn schedule(&self, id: &ScheduleId, next: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.of_schedule(id, &[], None);
        query(&mut url, &[("next", &next.map(|next| next.to_string()))]);
        self.get(url).await
    }

    /// Nothing more is started at due times, for the reason in the note.
    pub async fn pause_schedule(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        note: Option<&str>,
    ) -> Result<Answer, Error> {
        self.send(self.json(Method::POST, self.of_schedule(id, &["pause"], by), &Note { note })?).await
    }

    /// It goes on from now.
    pub async fn resume_schedule(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        note: Option<&str>,
    ) -> Result<Answer, Error> {
        self.send(self.json(Method::POST, self.of_schedule(id, &["resume"], by), &Note { note })?).await
    }

    /// Starts an instance at once. Repeating it with the same key makes no second one.
    pub async fn trigger_schedule(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        key: &str,
    ) -> Result<Answer, Error> {
        let nothing = serde_json::Map::new();
        self.send(self.keyed(self.of_schedule(id, &["trigger"], by), key, &nothing)?).await
    }

    /// Starts the due times of a span that has passed. Repeating it starts none twice.
    pub async fn backfill_schedule(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        key: &str,
        span: &Backfill,
    ) -> Result<Answer, Error> {
        self.send(self.keyed(self.of_schedule(id, &["backfill"], by), key, span)?).await
    }

    /// Stops the backfill of this name, or all of them; what they have started stays.
    pub async fn stop_backfill(
        &self,
        id: &ScheduleId,
        by: Option<&str>,
        backfill: Option<&str>,
    ) -> Result<Answer, Error> {
        let url = self.of_schedule(id, &["backfill", "stop"], by);
        self.send(self.json(Method::POST, url, &Stop { id: backfill })?).await
    }

    /// Deletes a schedule; what it has started stays.
    pub async fn delete_schedule(&self, id: &ScheduleId, by: Option<&str>) -> Result<Answer, Error> {
        self.send(self.http.delete(self.of_schedule(id, &[], by))).await
    }

    /// Who has changed a schedule, newest first.
    pub async fn schedule_changes(&self, id: &ScheduleId, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.of_schedule(id, &["changes"], None);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    fn of_schedule(&self, id: &ScheduleId, rest: &[&str], by: Option<&str>) -> reqwest::Url {
        let mut url = self.url(&[&["schedules", id.as_str()], rest].concat());
        query(&mut url, &[("by", &by.map(str::to_owned))]);
        url
    }
}
