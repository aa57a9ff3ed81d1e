//! Resuming hooks: whoever has the token is looked up, and decides itself whether it still has it (rules H45 to H50).

use everstep_engine::{
    Answer, Input, What,
    hook::{HookRow, SentPayload},
    start::NameKey,
};
use everstep_protocol::{
    Fingerprint, InstanceUid, Namespace, Payload, Token, event::check_payload, hook::Webhook, journal::Other,
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
    /// It does not fit the schema of the hook: nothing was kept, and the same will be refused again (rule H57).
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
    /// What must fit the schema of the hook.
    pub(super) checked: Payload,
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
        let sent = || Sent { payload: payload.clone(), fingerprint, checked: payload.clone() };
        match self.deliver(&sender, |_| Ok::<_, Resumed>(sent())).await? {
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
                && let Some(known) = self.known_before(sender.namespace, from, &sent).await?
            {
                return Ok(known);
            }
            if let Some(schema) = &hook.schema
                && let Err(misfit) = self.shared.schemas.fit(schema, &checked)
            {
                return Ok(Delivered::Refused(Resumed::Unfit(misfit)));
            }
            let HookRow { owner: instance, name: owner, webhook, .. } = hook;
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

    /// What the instance before the owner says, if it knows the payload.
    pub(crate) async fn known_before<E>(
        &self,
        namespace: &Namespace,
        from: &Other,
        sent: &SentPayload,
    ) -> Result<Option<Delivered<E>>, Error> {
        let name =
            NameKey { namespace: namespace.clone(), workflow: from.workflow.clone(), id: from.id.clone() };
        let Some(instance) = self.store().find(&name).await? else { return Ok(None) };
        let input = Input::On { instance, what: What::Payload(sent.clone()) };
        Ok(match self.ask(DOING, input).await?.answer {
            Answer::Done => Some(Delivered::Accepted { owner: from.clone(), instance, webhook: None }),
            Answer::EventIdTaken => Some(Delivered::Refused(Resumed::IdTaken)),
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
}
