//! Callers of webhooks that wait in this process for what the code answers (rule H58). What is told here is only the quick way: an
//! answer is in the store first, where whoever waits elsewhere, or misses this, finds it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use everstep_engine::hook::ReplyKey;
use everstep_protocol::hook::WebhookResponse;
use tokio::sync::oneshot;

/// Who waits for which answer.
#[derive(Debug, Default)]
pub(crate) struct Replying(Mutex<HashMap<ReplyKey, Vec<oneshot::Sender<WebhookResponse>>>>);

/// A place among those who wait, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    replying: &'a Replying,
    to: ReplyKey,
    pub(crate) response: oneshot::Receiver<WebhookResponse>,
}

impl Replying {
    /// Waits for an answer from now on.
    pub(crate) fn wait(&self, to: ReplyKey) -> Place<'_> {
        let (told, response) = oneshot::channel();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(to.clone()).or_default().push(told);
        Place { replying: self, to, response }
    }

    /// An answer is in the store. Nobody need wait for it.
    pub(crate) fn tell(&self, to: &ReplyKey, response: &WebhookResponse) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(to);
        for place in waiting.into_iter().flatten() {
            drop(place.send(response.clone()));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.response.close();
        let mut waiting = self.replying.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = waiting.get_mut(&self.to) {
            places.retain(|place| !place.is_closed());
            if places.is_empty() {
                waiting.remove(&self.to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Proves that who waits is told and who has gone is forgotten. Not: that the answer is in the store.
    use everstep_protocol::InstanceUid;

    use super::*;

    #[tokio::test]
    async fn h58_everybody_who_waits_is_told_and_nobody_is_kept_in_mind_for_ever() {
        let replying = Replying::default();
        let to =
            ReplyKey { instance: InstanceUid::generate(), token: "t".parse().unwrap(), id: "1".to_owned() };
        let response = WebhookResponse { status: 201, headers: Vec::new(), body: None, base64: false };
        let (mut one, mut two) = (replying.wait(to.clone()), replying.wait(to.clone()));
        let gone = replying.wait(to.clone());
        drop(gone);
        replying.tell(&to, &response);
        assert_eq!(
            ((&mut one.response).await, (&mut two.response).await),
            (Ok(response.clone()), Ok(response))
        );
        drop((one, two));
        drop(replying.wait(to));
        assert!(replying.0.lock().unwrap().is_empty());
    }
}
