//! What operators look at and begin: messages that could not be accepted, the state of the installation, operations on many instances.

use everstep_protocol::InstanceId;
use serde::Serialize;

use super::{Answer, Api, query};
use crate::error::Error;

impl Api {
    /// The newest rejected messages.
    pub async fn rejected(&self, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.url(&["rejected"]);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    /// What the auditor has found and mended, newest first.
    pub async fn breaches(&self, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.url(&["breaches"]);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    /// The state of the installation, whatever the namespace.
    pub async fn doctor(&self) -> Result<Answer, Error> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["v1", "doctor"]);
        }
        self.get(url).await
    }

    /// Begins an operation on many instances, or counts them. Repeating it with the same id begins none more.
    pub async fn begin_bulk(&self, id: &InstanceId, body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.keyed(self.url(&["bulk"]), id.as_str(), body)?).await
    }

    /// The newest operations on many instances.
    pub async fn bulks(&self, limit: Option<u32>) -> Result<Answer, Error> {
        let mut url = self.url(&["bulk"]);
        query(&mut url, &[("limit", &limit.map(|limit| limit.to_string()))]);
        self.get(url).await
    }

    /// One of them.
    pub async fn bulk(&self, id: &InstanceId) -> Result<Answer, Error> {
        self.get(self.url(&["bulk", id.as_str()])).await
    }

    /// Stops one of them.
    pub async fn stop_bulk(&self, id: &InstanceId) -> Result<Answer, Error> {
        self.send(self.http.post(self.url(&["bulk", id.as_str(), "stop"]))).await
    }
}
