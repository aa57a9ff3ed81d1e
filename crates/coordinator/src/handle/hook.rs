//! Resuming hooks: whoever has the token is looked up, and decides itself whether it still has it (rules H45 to H50).

use everstep_engine::{
    Answer, Input, What,
    hook::{HookRow, SentPayload},
    start::NameKey,
};
use everstep_protocol::{
    Fingerprint, HookId, InstanceUid, Namespace, Payload, Position, Run, Token,
    event::check_payload,
    hook::{Carried, Webhook},
    journal::Other,
};
use everstep_store::HookView;

use super::Handle;
use crate::{Error, Misfit};

/// How often a token that has moved meanwhile is looked up again.
const LOOKS: usize = 5;
const DOING: &str = "resume a hook";

/// What a hook is resumed with, after the checks at the edge.
#[derive(Clone, Debug)]
pub struct ResumeRequest {
    /// Namespace.
    pub namespace: Namespace,
    /// The hook's token.
    pub token: Token,
    /// By what a repetition is known (rule H48).
    pub id: String,
    /// What it is resumed with.
    pub payload: Payload,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resumed {
    /// It is durable, now or before, and its instance is woken.
    Accepted {
        /// Which one.
        owner: Other,
    },
    /// Nobody has the token, or only by a retention: nothing was kept (rules H46, H50).
    NotFound,
    /// It does not fit the schema of the hook, or the hook's code gets requests, and it is none: nothing was kept, and the same will be refused again (rule H57).
    Unfit(Misfit),
    /// Another payload has this id: nothing was kept.
    IdTaken,
    /// The instance has as many unread events as it may: nothing was kept.
    MailboxFull,
    /// The token went from hand to hand: nothing was kept, and trying again may help.
    Moved,
}

/// Whom a token is looked up for.
pub(super) struct Sender<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) token: &'a Token,
    /// Who numbers its resumes by itself; empty for who does not.
    pub(super) app_id: &'a str,
    pub(super) id: &'a str,
}

/// What is sent to a hook, as that one takes it.
pub(super) struct Sent {
    pub(super) payload: Payload,
    pub(super) fingerprint: Fingerprint,
    /// What must fit the schema of the hook; or why it fits none.
    pub(super) checked: Result<Payload, Misfit>,
}

/// Which hook nobody ever has: whoever is asked for that one says only what it knows, and keeps nothing.
const OF_NOBODY: HookId = HookId { run: Run(0), position: Position(u64::MAX) };

/// What an instance knows by the id of a payload.
pub(crate) enum Known {
    /// This very payload.
    Same,
    /// Another one.
    Other,
}

impl Known {
    fn delivered<E>(self, owner: Other, instance: InstanceUid, webhook: Option<Webhook>) -> Delivered<E> {
        match self {
            Self::Same => Delivered::Accepted { owner, instance, webhook },
            Self::Other => Delivered::Refused(Resumed::IdTaken),
        }
    }
}

/// Whether a hook can be resumed with a payload of a sender's own, whichever way it comes. The code of a webhook that gets requests could
/// not tell what it is.
pub(crate) fn check_plain(hook: &HookRow, namespace: &Namespace, token: &Token) -> Result<(), Misfit> {
    match &hook.webhook {
        Some(webhook) if webhook.carries != Carried::Body => Err(Misfit::no_request(namespace, token)),
        Some(_) | None => Ok(()),
    }
}

/// What became of what was sent.
pub(crate) enum Delivered<E> {
    /// It is kept, now or before.
    Accepted { owner: Other, instance: InstanceUid, webhook: Option<Webhook> },
    /// It is not, for what the hook itself says.
    Refused(Resumed),
    /// It is not, for what whoever sends it says of the hook.
    Unsent(E),
}

impl Handle {
    /// Resumes a hook, and answers after the commit that also wakes its owner. The same id with the same payload is kept once.
    ///
    /// Errors: [`Error::Unknown`] when the decision did not come in time; repeating with the same id is safe.
    pub async fn resume_hook(&self, request: ResumeRequest) -> Result<Resumed, Error> {
        self.resume_hook_of("", request).await
    }

    /// The same of an application that numbers its resumes by itself: two that count alike are apart.
    pub(crate) async fn resume_hook_of(
        &self,
        app_id: &str,
        request: ResumeRequest,
    ) -> Result<Resumed, Error> {
        let ResumeRequest { namespace, token, id, payload } = request;
        check_payload(&payload, self.limits().event_bytes).map_err(|error| refused(&error))?;
        let fingerprint = Fingerprint::of(&payload).map_err(|error| refused(&error))?;
        let sender = Sender { namespace: &namespace, token: &token, app_id, id: &id };
        let make = |hook: &HookRow| {
            let checked = check_plain(hook, &namespace, &token).map(|()| payload.clone());
            Ok::<_, Resumed>(Sent { payload: payload.clone(), fingerprint, checked })
        };
        match self.deliver(&sender, make).await? {
            Delivered::Accepted { owner, .. } => Ok(Resumed::Accepted { owner }),
            Delivered::Refused(resumed) | Delivered::Unsent(resumed) => Ok(resumed),
        }
    }

    /// Sends whoever has a token what `make` makes of its hook. The owner's decision looks whether that hook still has the token, so
    /// that nothing is kept that was made for another, or checked against the schema of another.
    pub(super) async fn deliver<E>(
        &self,
        sender: &Sender<'_>,
        make: impl Fn(&HookRow) -> Result<Sent, E>,
    ) -> Result<Delivered<E>, Error> {
        for _ in 0..LOOKS {
            let found = self.store().hook(sender.namespace, sender.token).await?;
            let Some(HookView { hook, .. }) = found.filter(|view| !view.hook.ended) else {
                return Ok(Delivered::Refused(Resumed::NotFound));
            };
            let Sent { payload, fingerprint, checked } = match make(&hook) {
                Ok(sent) => sent,
                Err(unsent) => return Ok(Delivered::Unsent(unsent)),
            };
            let (token, app_id, id) = (sender.token.clone(), sender.app_id.to_owned(), sender.id.to_owned());
            let sent = SentPayload { token, hook: hook.id, app_id, id, payload, fingerprint };
            // What came again since the token was taken over may be known to whom it was taken from.
            if let Some(from) = &hook.from
                && let Some((instance, known)) = self.known_before(sender.namespace, from, &sent).await?
            {
                return Ok(known.delivered(from.clone(), instance, None));
            }
            let misfit = self.misfit(&hook, checked);
            let HookRow { owner: instance, name: owner, webhook, .. } = hook;
            if let Some(misfit) = misfit {
                // What was kept before the token had this hook is still what it was.
                let known = self.known_to(instance, &sent).await?;
                let refused = Delivered::Refused(Resumed::Unfit(misfit));
                return Ok(known.map_or(refused, |known| known.delivered(owner, instance, webhook)));
            }
            match self.ask(DOING, Input::On { instance, what: What::Payload(sent) }).await?.answer {
                Answer::Done => return Ok(Delivered::Accepted { owner, instance, webhook }),
                Answer::EventIdTaken => return Ok(Delivered::Refused(Resumed::IdTaken)),
                Answer::MailboxFull => return Ok(Delivered::Refused(Resumed::MailboxFull)),
                // It has moved, was let go of, or its owner has ended: nothing was kept.
                _ => {}
            }
        }
        Ok(Delivered::Refused(Resumed::Moved))
    }

    /// Why what was sent does not fit a hook, if it does not.
    pub(crate) fn misfit(&self, hook: &HookRow, checked: Result<Payload, Misfit>) -> Option<Misfit> {
        match (checked, &hook.schema) {
            (Err(misfit), _) => Some(misfit),
            (Ok(checked), Some(schema)) => self.shared.schemas.fit(schema, &checked).err(),
            (Ok(_), None) => None,
        }
    }

    /// Which instance had the token before the owner, and what that one knows, if it knows the payload's id.
    pub(crate) async fn known_before(
        &self,
        namespace: &Namespace,
        from: &Other,
        sent: &SentPayload,
    ) -> Result<Option<(InstanceUid, Known)>, Error> {
        let name =
            NameKey { namespace: namespace.clone(), workflow: from.workflow.clone(), id: from.id.clone() };
        let Some(instance) = self.store().find(&name).await? else { return Ok(None) };
        Ok(self.known_to(instance, sent).await?.map(|known| (instance, known)))
    }

    /// What an instance knows by the id of a payload. It keeps nothing, whatever hooks it has by then.
    pub(crate) async fn known_to(
        &self,
        instance: InstanceUid,
        sent: &SentPayload,
    ) -> Result<Option<Known>, Error> {
        let sent = SentPayload { hook: OF_NOBODY, ..sent.clone() };
        let input = Input::On { instance, what: What::Payload(sent) };
        Ok(match self.ask(DOING, input).await?.answer {
            Answer::Done => Some(Known::Same),
            Answer::EventIdTaken => Some(Known::Other),
            _ => None,
        })
    }
}

pub(super) fn refused(reason: &dyn std::fmt::Display) -> Error {
    let kind = everstep_store::ErrorKind::Refused;
    Error::Store(everstep_store::Error::new(kind, "check a payload", reason.to_string()))
}

#[cfg(test)]
mod tests {
    //! Proves where a resume goes whose token moves while it is under way. Not: what the owner makes of it; see the engine's tests.
    use everstep_protocol::InstanceUid;

    use super::*;
    use crate::rehearsal::Rehearsal;

    fn request(id: &str) -> ResumeRequest {
        ResumeRequest {
            namespace: Namespace::default(),
            token: "t".parse().expect("a token"),
            id: id.to_owned(),
            payload: Payload::null(),
        }
    }

    /// Resumes, and gives each input its turn as it comes, after `before`, which says what comes between. Answers also whom was asked.
    async fn resumed(
        coordinator: &mut Rehearsal,
        id: &str,
        mut before: impl AsyncFnMut(&Rehearsal),
    ) -> (Resumed, Vec<InstanceUid>) {
        let handle = coordinator.handle();
        let request = request(id);
        let mut asking = tokio::spawn(async move { handle.resume_hook(request).await });
        let mut asked = Vec::new();
        loop {
            tokio::select! {
                resumed = &mut asking => return (resumed.expect("it ends").expect("it is decided"), asked),
                arrival = coordinator.ends.arrivals.recv() => {
                    let arrival = arrival.expect("the sender lives as long");
                    asked.extend(arrival.input.instance());
                    before(coordinator).await;
                    coordinator.turn(arrival).await;
                }
            }
        }
    }

    #[tokio::test]
    async fn h63_a_resume_that_looked_the_owner_up_before_a_takeover_goes_to_the_claimant_once() {
        let mut coordinator = Rehearsal::new();
        let (old, new) = (coordinator.start("old", Some("t")).await, coordinator.start("new", None).await);
        let mut moved = false;
        let (resumed_by, asked) = resumed(&mut coordinator, "r-1", async |coordinator| {
            if !std::mem::replace(&mut moved, true) {
                coordinator.take_over("t", (old, "old"), new).await;
            }
        })
        .await;
        assert!(
            matches!(&resumed_by, Resumed::Accepted { owner, .. } if owner.id.as_str() == "new"),
            "{resumed_by:?}"
        );
        // Looked up before; whether the one before knows it; and the claimant.
        assert_eq!(asked, [old, old, new]);
        assert_eq!((coordinator.head(old).await.events, coordinator.head(new).await.events), (0, 1));
        // What is sent again is the same.
        let (again, _) = resumed(&mut coordinator, "r-1", async |_| {}).await;
        assert!(matches!(again, Resumed::Accepted { .. }), "{again:?}");
        assert_eq!(coordinator.head(new).await.events, 1);
    }

    /// What the owner before has accepted it knows, and nobody gets it again.
    #[tokio::test]
    async fn h48_h63_a_resume_that_is_sent_again_after_a_takeover_is_known_to_the_owner_before() {
        let mut coordinator = Rehearsal::new();
        let (old, new) = (coordinator.start("old", Some("t")).await, coordinator.start("new", None).await);
        assert_eq!(resumed(&mut coordinator, "r-1", async |_| {}).await.1, [old]);
        coordinator.take_over("t", (old, "old"), new).await;
        let (again, asked) = resumed(&mut coordinator, "r-1", async |_| {}).await;
        assert!(matches!(again, Resumed::Accepted { owner, .. } if owner.id.as_str() == "old"));
        assert_eq!(asked, [old]);
        assert_eq!((coordinator.head(old).await.events, coordinator.head(new).await.events), (1, 0));
    }

    /// The hook is another by then, of the same instance and under the same token, and another payload would be refused by it.
    #[tokio::test]
    async fn h48_h57_what_was_kept_is_accepted_again_though_the_schema_has_changed() {
        let mut coordinator = Rehearsal::new();
        let owner = coordinator.start("old", Some("t")).await;
        let kept = |resumed| matches!(resumed, Resumed::Accepted { owner, .. } if owner.id.as_str() == "old");
        assert!(kept(resumed(&mut coordinator, "r-1", async |_| {}).await.0));
        let nothing = Payload::from_text("false").expect("a schema");
        let requests = Webhook { carries: Carried::Request, ..Webhook::default() };
        for (schema, webhook) in [(Some(nothing), None), (None, Some(requests))] {
            coordinator.alter("t", |row| (row.schema, row.webhook) = (schema, webhook)).await;
            assert!(kept(resumed(&mut coordinator, "r-1", async |_| {}).await.0));
            let (other, _) = resumed(&mut coordinator, "r-2", async |_| {}).await;
            assert!(matches!(other, Resumed::Unfit(_)), "{other:?}");
        }
        assert_eq!(coordinator.head(owner).await.events, 1);
    }

    #[tokio::test]
    async fn h57_h58_a_webhook_whose_code_gets_requests_takes_no_other_payload() {
        let mut coordinator = Rehearsal::new();
        let owner = coordinator.start("old", Some("t")).await;
        for carries in [Carried::Request, Carried::RawRequest] {
            coordinator.alter("t", |row| row.webhook = Some(Webhook { carries, ..Webhook::default() })).await;
            let (refused, _) = resumed(&mut coordinator, "r-1", async |_| {}).await;
            let Resumed::Unfit(misfit) = refused else { panic!("{refused:?}") };
            let text = misfit.to_string();
            assert!(text.contains("/hooks/default/t") && text.contains("refused again"), "{text}");
        }
        assert_eq!(coordinator.head(owner).await.events, 0);
        // One that gets the body alone gets it from anybody.
        coordinator.alter("t", |row| row.webhook = Some(Webhook::default())).await;
        assert!(matches!(resumed(&mut coordinator, "r-1", async |_| {}).await.0, Resumed::Accepted { .. }));
    }
}
