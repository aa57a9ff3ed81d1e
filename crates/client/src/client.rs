//! What a program asks first: start an instance, or take up one that there is.

use everstep_protocol::{
    Attribute, BuildName, Fingerprint, InstanceId, Namespace, Payload, Pin, WorkflowName,
    duration::IntoMillis,
};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    api::{Api, Options},
    error::{Error, unknown_start},
    instance::InstanceHandle,
};

/// The instances of a namespace, over the HTTP API of a coordinator. Cheap to clone; holds nothing of the fleet.
///
/// ```no_run
/// use everstep_client::{Client, SendEvent};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let everstep = Client::new("http://127.0.0.1:7070")?;
/// let order = everstep.start("fulfil", Some("o-17"), &vec!["book"]).await?;
/// order.send_event(&SendEvent::new("approval").id("approval-17"), &true).await?;
/// let receipt: String = order.result().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    api: Api,
}

/// What a start may say beside its input.
#[derive(Clone, Debug, Default)]
pub struct StartWith {
    pub(crate) options: Options,
}

impl StartWith {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An attribute to find it by (rule P37): a text, a number or a `bool`.
    pub fn attribute(mut self, name: &str, value: impl Into<serde_json::Value>) -> Result<Self, Error> {
        let attribute = Attribute::new(name, &value.into())?;
        self.options.attributes.extend(everstep_protocol::attribute::object(&[attribute]));
        Ok(self)
    }

    /// How long it is kept after its end, such as `"30 days"`.
    pub fn retention(mut self, keep: impl IntoMillis) -> Result<Self, Error> {
        let keep = keep
            .into_millis()
            .map_err(|error| Error::Value { what: "retention", reason: error.to_string() })?;
        self.options.retention = Some(keep.to_string().into());
        Ok(self)
    }

    /// Only workers of this build take it up (rule P40).
    pub fn pin(mut self, build: &str) -> Result<Self, Error> {
        self.options.pin = Some(Pin::Build(BuildName::new(build)?));
        Ok(self)
    }

    /// Whether it is refused while no worker serves the workflow; the installation decides unless it is said here.
    pub fn strict(mut self, strict: bool) -> Self {
        self.options.strict = Some(strict);
        self
    }
}

impl Client {
    /// The namespace `default` of the API at this address, which is only looked for when something is asked.
    ///
    /// Errors: [`Error::Url`].
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self { api: Api::new(url, Namespace::default())? })
    }

    /// The same API, asked with an access token. Needed wherever the API is not on loopback; its text is in no error.
    ///
    /// Errors: [`Error::Value`], for what can be no access token.
    pub fn access_token(self, token: &str) -> Result<Self, Error> {
        Ok(Self { api: self.api.with_access_token(token)? })
    }

    /// The same API about another namespace.
    pub fn namespace(self, namespace: &str) -> Result<Self, Error> {
        Ok(Self { api: self.api.in_namespace(Namespace::new(namespace)?) })
    }

    /// Starts an instance, and answers when it is safe in the database. With an id it can be repeated without harm: the same input
    /// meets the same instance (rule P27).
    ///
    /// Errors: [`Error::Problem`] with the code `conflict` where the id has another input. [`Error::StartUnknown`] where the answer is lost: it
    /// names the instance that may have been started, and only with an id of yours can the start be made again.
    pub async fn start<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
    ) -> Result<InstanceHandle, Error> {
        self.start_with(workflow, id, input, &StartWith::new()).await
    }

    /// The same, with more to say.
    pub async fn start_with<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        id: Option<&str>,
        input: &I,
        with: &StartWith,
    ) -> Result<InstanceHandle, Error> {
        let workflow = WorkflowName::new(workflow)?;
        let chosen = match id {
            Some(id) => InstanceId::new(id)?,
            None => InstanceId::new(Uuid::now_v7().to_string())?,
        };
        let input = payload("input", input)?;
        match self.api.start(&workflow, &chosen, &input, &with.options).await {
            Ok(_) => Ok(InstanceHandle::new(self.api.clone(), workflow, chosen)),
            // Another call would choose another id.
            Err(error) => Err(unknown_start(error, &workflow, &chosen, id.is_some())),
        }
    }

    /// A handle on one instance: wait for its end, send it events, operate it. It need not exist, and nothing is asked yet.
    pub fn handle(&self, workflow: &str, id: &str) -> Result<InstanceHandle, Error> {
        Ok(InstanceHandle::new(self.api.clone(), WorkflowName::new(workflow)?, InstanceId::new(id)?))
    }

    /// The routes themselves.
    #[must_use]
    pub const fn api(&self) -> &Api {
        &self.api
    }
}

/// A value as JSON that the coordinator will accept.
pub(crate) fn payload<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<Box<RawValue>, Error> {
    let refused = |reason: String| Error::Value { what, reason };
    let payload = Payload::encode(value).map_err(|error| refused(error.to_string()))?;
    Fingerprint::of(&payload).map_err(|error| refused(error.to_string()))?;
    RawValue::from_string(payload.as_str().to_owned()).map_err(|error| refused(error.to_string()))
}
