//! A request to a webhook, for whoever calls one without HTTP: programs with an embedded system, and tests.

use bytes::Bytes;
use everstep_protocol::{Namespace, Token, hook::Method, name::NameError};
use serde::Serialize;
use uuid::Uuid;

use super::WebhookCall;

impl WebhookCall {
    /// A `POST` without a body, with an id of its own, to a webhook of the namespace `default`.
    pub fn post(token: impl AsRef<str>) -> Result<Self, NameError> {
        Self::new(Method::Post, token)
    }

    /// The same with another method.
    pub fn new(method: Method, token: impl AsRef<str>) -> Result<Self, NameError> {
        Ok(Self {
            namespace: Namespace::default(),
            token: Token::new(token)?,
            id: Uuid::now_v7().to_string(),
            method,
            query: Vec::new(),
            headers: Vec::new(),
            body: Bytes::new(),
        })
    }

    /// With an id by which a repetition is known.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// With a part of the query.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// With a body of JSON; a value that has no JSON form is an empty body.
    #[must_use]
    pub fn json(self, body: &(impl Serialize + ?Sized)) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.header("content-type", "application/json").body(body)
    }

    /// With a body, of whatever type a header says.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }
}
