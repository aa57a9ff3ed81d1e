//! Hooks as a test sees them from outside: instances started with a token, tokens resumed and looked up (rules H5, H41, H56).

use std::task::Poll;

use everstep_coordinator::{ResumeRequest, Resumed, StartRequest, WebhookAnswer, WebhookCall};
use everstep_protocol::{Namespace, Payload, Token, hook::StartHook, journal::Other, start::StartOutcome};
use everstep_store::HookView;
use serde::Serialize;

use super::Kit;
use crate::{KitError, Run};

/// What became of a start with a token.
#[derive(Clone, Debug)]
pub enum HookStart {
    /// It was started, and has the token.
    Started(Run),
    /// Nothing was started: this one has the token.
    Held(Run),
}

impl HookStart {
    /// The instance that has the token.
    #[must_use]
    pub fn owner(self) -> Run {
        match self {
            Self::Started(run) | Self::Held(run) => run,
        }
    }
}

impl Kit {
    /// Starts an instance, with a generated id, that has this token from the first moment; or tells who has it.
    ///
    /// ```
    /// # use everstep::{Error, Hook, Workflow};
    /// # use everstep_testkit::{HookStart, KitError, TestKit};
    /// # fn main() -> Result<(), KitError> {
    /// let kit = TestKit::new().workflow_fn("order", |cx: Workflow, id: u64| async move {
    ///     let hook: Hook<u64> = cx.hook("order").token(format!("order:{id}")).create()?;
    ///     hook.next().await
    /// });
    /// kit.run(async |kit| {
    ///     let order = kit.start_with_token("order", "order:7", &7).await?.owner();
    ///     let again = kit.start_with_token("order", "order:7", &7).await?;
    ///     assert!(matches!(again, HookStart::Held(held) if held.id() == order.id()));
    ///     kit.resume("order:7", &12).await?;
    ///     assert_eq!(order.result::<u64>().await?, 12);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn start_with_token<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        token: &str,
        input: &I,
    ) -> Result<HookStart, KitError> {
        let token = Token::new(token).map_err(KitError::invalid)?;
        self.start_with_hook(workflow, StartHook::new(token), input).await
    }

    /// The same with everything that a start may say of its hook.
    pub async fn start_with_hook<I: Serialize + ?Sized>(
        &self,
        workflow: &str,
        hook: StartHook,
        input: &I,
    ) -> Result<HookStart, KitError> {
        let request = self.request(workflow, None, input)?;
        let request = StartRequest { hook: Some(hook), ..request };
        let refused = |reason: String| KitError::NotStarted {
            workflow: workflow.to_owned(),
            id: "(no id)".to_owned(),
            reason,
        };
        let reply = self.system.handle.start(request).await.map_err(|error| refused(error.to_string()))?;
        match (reply.outcome, reply.id, reply.owner) {
            (StartOutcome::Created, Some(id), _) => Ok(HookStart::Started(self.instance(workflow, &id)?)),
            (StartOutcome::Conflict, _, Some(owner)) => Ok(HookStart::Held(self.named(owner)?)),
            (outcome, _, _) => {
                Err(refused(reply.message.unwrap_or_else(|| format!("the answer was {outcome:?}"))))
            }
        }
    }

    /// Resumes whoever has this token, and gives that instance; none if nobody has it whom a payload could reach, and then nothing was
    /// kept (rule H46). Each call is a payload of its own.
    pub async fn resume<P: Serialize + ?Sized>(
        &self,
        token: &str,
        payload: &P,
    ) -> Result<Option<Run>, KitError> {
        let request = ResumeRequest {
            namespace: Namespace::default(),
            token: Token::new(token).map_err(KitError::invalid)?,
            id: format!("kit-{}", self.next_resume()),
            payload: Payload::encode(payload).map_err(KitError::invalid)?,
        };
        match self.system.handle.resume_hook(request).await.map_err(KitError::system)? {
            Resumed::Accepted { owner } => self.named(owner).map(Some),
            Resumed::NotFound => Ok(None),
            Resumed::Unfit(misfit) => Err(KitError::Invalid(misfit.to_string())),
            other @ (Resumed::IdTaken | Resumed::MailboxFull | Resumed::Moved) => {
                Err(KitError::Invalid(format!("resume the hook: refused: {other:?}")))
            }
        }
    }

    /// Calls a webhook as whoever knows its token does over HTTP, and gives what that one would be answered. Time goes on meanwhile,
    /// so that code which answers late is waited for as long as the settings say.
    ///
    /// ```
    /// # use everstep::{Error, WebhookResponse, Workflow};
    /// # use everstep_testkit::{KitError, TestKit, WebhookCall};
    /// # fn main() -> Result<(), KitError> {
    /// let kit = TestKit::new().workflow_fn("pay", |cx: Workflow, (): ()| async move {
    ///     let webhook = cx.webhook("payment").token("payment").replying().create()?;
    ///     let request = webhook.next().await?;
    ///     let cents: u64 = request.json()?;
    ///     request.respond(WebhookResponse::new(201).text(format!("{cents} cents"))).await?;
    ///     Ok::<_, Error>(cents)
    /// });
    /// kit.run(async |kit| {
    ///     let pay = kit.start_instance("pay", &()).await?;
    ///     pay.reaches(everstep_testkit::Status::Waiting).await?;
    ///     let answer = kit.webhook(WebhookCall::post("payment").unwrap().json(&500)).await?;
    ///     let response = answer.response().unwrap();
    ///     assert_eq!((response.status, response.body.as_deref()), (201, Some("500 cents")));
    ///     assert_eq!(pay.result::<u64>().await?, 500);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn webhook(&self, call: WebhookCall) -> Result<WebhookAnswer, KitError> {
        let wanted = "the answer of a webhook";
        let mut calling = std::pin::pin!(self.system.handle.webhook(&call));
        let check = async || match futures::poll!(calling.as_mut()) {
            Poll::Ready(answer) => answer.map(Some).map_err(KitError::system),
            Poll::Pending => Ok(None),
        };
        self.system.wait(self.mover, wanted, check).await
    }

    /// Who has this token, with what there is to know about the hook; also one that has ended and keeps it by its retention.
    pub async fn hook(&self, token: &str) -> Result<Option<HookView>, KitError> {
        let token = Token::new(token).map_err(KitError::invalid)?;
        self.system.hook(&Namespace::default(), &token).await
    }

    fn named(&self, Other { workflow, id }: Other) -> Result<Run, KitError> {
        self.instance(workflow.as_str(), id.as_str())
    }
}
