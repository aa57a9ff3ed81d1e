//! What reaches other instances, and lets others reach this one: hooks, children, instances.

use everstep_protocol::CallKind;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Workflow;
use crate::WorkflowRef;
use crate::call::{ChildCall, HookCall, Instance, Pending, ResumeCall};

impl Workflow {
    /// A hook: an address of this instance, by whose token anybody resumes it with payloads, also before it is awaited. One
    /// instance has a token at a time, which makes a token the key by which work is done once. The name is the call's, as of a step.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<(), Error> {
    /// let hook = cx.hook::<String>("order").token(format!("order:{order}")).create()?;
    /// if let Some(owner) = hook.conflict().await? {
    ///     return Err(Error::permanent(format!("{} does this order", owner.id())));
    /// }
    /// let address = hook.next().await?;
    /// # Ok(()) }
    /// ```
    pub fn hook<T: DeserializeOwned>(&self, name: impl AsRef<str>) -> HookCall<T> {
        HookCall::new(Pending::make(&self.shared, CallKind::Hook, name.as_ref()))
    }

    /// A child: another instance, of any workflow, that this one starts and whose output it gets, or whose error. The workflow is
    /// named, or given as what `#[workflow]` makes; any worker that serves it runs the child. While this instance waits it
    /// occupies no worker (rule P36).
    ///
    /// A child is an instance like any other, with an id that follows from the call unless [`id`](ChildCall::id) says another.
    /// Terminating, cancelling and restarting this instance does the same to it, or terminates it, unless it is
    /// [`detached`](ChildCall::detached). Dropping the call, as the loser of a race, cancels it in the same way.
    ///
    /// ```
    /// use everstep_sdk::{Error, Workflow};
    ///
    /// #[everstep_sdk::workflow(crate = "everstep_sdk")]
    /// async fn pack(cx: Workflow, item: String) -> Result<u32, Error> { Ok(item.len() as u32) }
    ///
    /// # async fn body(cx: Workflow, items: Vec<String>) -> Result<(), Error> {
    /// let weight: u32 = cx.child("pack", pack, &items[0]).await?;
    /// let report = cx.child::<()>("report", "daily-report", weight).detached().start().await?;
    /// report.send("approved", true).await?;
    /// # Ok(()) }
    /// ```
    #[allow(
        clippy::needless_pass_by_value,
        reason = "a workflow is named by value: a text, or a struct without fields"
    )]
    pub fn child<Out>(
        &self,
        name: impl AsRef<str>,
        workflow: impl WorkflowRef,
        input: impl Serialize,
    ) -> ChildCall<Out> {
        let (pending, input) = self.call_of(CallKind::Child, name.as_ref(), input);
        ChildCall::new(pending, workflow.workflow_name(), input)
    }

    /// Resumes the hook of whoever has this token with a payload: the instance that has accepted it, or none if nobody has the token
    /// whom a payload could reach, and then nothing was kept (rules H45 to H50). The name is the call's, as of a step. It arrives once,
    /// whoever carries it, also when this instance is run again; which token and payload it was is recorded.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<(), Error> {
    /// match cx.resume_hook("tell", format!("order:{order}"), "5 Elm Street").await? {
    ///     Some(owner) => cx.publish(&format!("{} has it", owner.id()))?,
    ///     None => return Err(Error::permanent("nobody does this order")),
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// Errors have the name `PayloadMisfit` where the payload does not fit the schema of the hook, or the hook is a webhook whose code gets
    /// requests (rule H57); `MailboxFull`; or `EventIdTaken` where an earlier run has sent the same owner something else by the same
    /// call; or they say what is wrong with token or payload.
    pub fn resume_hook(
        &self,
        name: impl AsRef<str>,
        token: impl AsRef<str>,
        payload: impl Serialize,
    ) -> ResumeCall {
        let (pending, payload) = self.call_of(CallKind::Resume, name.as_ref(), payload);
        ResumeCall::new(pending, token.as_ref(), payload)
    }

    /// Another instance of the same namespace: to wait for its end, or to send it an event.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, order: String) -> Result<(), Error> {
    /// let fulfilment = cx.instance("fulfil", &order);
    /// fulfilment.send("address changed", "5 Elm Street").await?;
    /// let receipt: String = fulfilment.result().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    #[allow(clippy::needless_pass_by_value, reason = "as above")]
    pub fn instance(&self, workflow: impl WorkflowRef, id: impl AsRef<str>) -> Instance {
        Instance::new(&self.shared, workflow.workflow_name(), id.as_ref())
    }
}
