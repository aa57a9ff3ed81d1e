//! Carries letters between instances (rule W22). A letter is committed with the decision that wrote it and is found again for as
//! long as nobody has taken it, so that it survives whoever was to carry it. Whoever commits one looks at once; the holder of
//! the duty looks every second for what others have left. Two that carry the same letter do no harm: it is taken once.

use std::{sync::Arc, time::Duration};

use everstep_engine::{
    Answer, Input, What,
    hook::SentPayload,
    letter::{Letter, PAYLOAD_MISFIT, Said, gone, nobody, not_found, refusal},
    retention::Own,
    start::{NameKey, Start},
};
use everstep_protocol::duration::SLEEP_MAX;
use everstep_protocol::{Failure, HookId, InstanceUid, Namespace};
use everstep_store::{HookView, Posted};

use super::duties::TIMERS;
use crate::{
    Error,
    arrival::{Arrival, Told},
    handle::{Handle, check_plain},
    shared::Shared,
};

/// Letters carried at once.
const PAGE: u32 = 256;
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let told = tokio::select! {
            biased;
            () = shared.mail.notified() => true,
            () = tokio::time::sleep(EVERY) => false,
        };
        if told || shared.has_duty(TIMERS) {
            while sweep(&shared).await == Round::Again {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Done,
    /// Something waits for what this round has carried.
    Again,
}

/// Carries all letters that there are, a page at a time.
async fn sweep(shared: &Arc<Shared>) -> Round {
    let (mut after, mut carried, mut left) = (0, 0, 0);
    loop {
        let mail = match shared.store.letters(after, PAGE).await {
            Ok(mail) => mail,
            Err(error) => {
                tracing::warn!(%error, "letters between instances were not read; tried again in a second");
                return Round::Done;
            }
        };
        let mut answers = Vec::with_capacity(mail.letters.len());
        for posted in mail.letters {
            let Some(input) = addressed(shared, posted).await else {
                left += 1;
                continue;
            };
            let (arrival, answer) = Arrival::answered(input);
            shared.submit(arrival);
            answers.push(answer);
        }
        for answer in answers {
            match answer.await {
                // Its token has moved since it was looked up: it goes to whoever has it now (rule H63).
                Ok(Ok(Told { answer: Answer::Moved, .. })) => (carried, left) = (carried + 1, left + 1),
                Ok(Ok(_)) => carried += 1,
                // One that was given up is found again; nothing waits for what could not be done.
                Ok(Err(_)) | Err(_) => {}
            }
        }
        match mail.next {
            Some(next) => after = next,
            None => return if left > 0 && carried > 0 { Round::Again } else { Round::Done },
        }
    }
}

/// What a letter is to whoever takes it; none where it cannot be delivered yet.
async fn addressed(shared: &Arc<Shared>, posted: Posted) -> Option<Input> {
    let Posted { letter: Letter { number, caller, said }, .. } = posted;
    let Said::Resume { namespace, sent } = said else {
        return input(shared, Posted { letter: Letter { number, caller, said }, ..posted });
    };
    let letter = |sent| Letter { number, caller, said: Said::Resume { namespace: namespace.clone(), sent } };
    match owner(shared, &namespace, &sent).await {
        Ok(Ok((instance, hook))) => {
            let letter = letter(SentPayload { hook, ..sent });
            Some(Input::On { instance, what: What::Letter(letter) })
        }
        Ok(Err(failure)) => Some(Input::Undelivered(Box::new(letter(sent)), failure)),
        Err(error) => {
            tracing::warn!(%error, "the owner of a token was not looked up; its letter is carried later");
            None
        }
    }
}

/// Who is to take a payload, and which of its hooks has the token; or why nobody is. A call that is made again by another run of its
/// instance sends what may be known to the owner before: that one says so (rule H48). What does not fit the hook goes back (rule H57),
/// unless the owner has it already.
async fn owner(
    shared: &Arc<Shared>,
    namespace: &Namespace,
    sent: &SentPayload,
) -> Result<Result<(InstanceUid, HookId), Failure>, Error> {
    let found = shared.store.hook(namespace, &sent.token).await?;
    let Some(HookView { hook, .. }) = found.filter(|view| !view.hook.ended) else { return Ok(Err(nobody())) };
    let handle = Handle::new(Arc::clone(shared));
    if let Some(from) = &hook.from
        && let Some((before, _)) = handle.known_before(namespace, from, sent).await?
    {
        return Ok(Ok((before, hook.id)));
    }
    let checked = check_plain(&hook, namespace, &sent.token).map(|()| sent.payload.clone());
    if let Some(misfit) = handle.misfit(&hook, checked)
        && handle.known_to(hook.owner, sent).await?.is_none()
    {
        return Ok(Err(refusal(PAYLOAD_MISFIT, misfit.to_string())));
    }
    Ok(Ok((hook.owner, hook.id)))
}

/// What a letter is to whoever takes it; none while its addressee is about to be started by another letter.
fn input(shared: &Shared, posted: Posted) -> Option<Input> {
    let Posted { letter, to, name, starting } = posted;
    Some(match (&letter.said, to, name) {
        (Said::Start { .. }, _, Some(name)) => start(shared, letter, name),
        (_, Some(instance), _) => Input::On { instance, what: What::Letter(letter) },
        (_, None, Some(_)) if starting => return None,
        (_, None, Some(name)) => {
            let failure = not_found(&name.workflow, &name.id);
            Input::Undelivered(Box::new(letter), failure)
        }
        (_, None, None) => Input::Undelivered(Box::new(letter), gone()),
    })
}

/// A child to start: what only the shell has is added here.
fn start(shared: &Shared, letter: Letter, name: NameKey) -> Input {
    let Said::Start { child, .. } = &letter.said else { return Input::Undelivered(Box::new(letter), gone()) };
    let start = Start {
        uid: shared.chance.instance(),
        input: child.input.clone(),
        fingerprint: child.fingerprint,
        seed: shared.chance.seed(),
        retention: child.keep_for.map(|span| Own::of_both(span.min(SLEEP_MAX))).unwrap_or_default(),
        pin: None,
        strict: false,
        attributes: Vec::new(),
        message: None,
        name,
        hook: child.hook.clone(),
        trace: child.trace.clone(),
        letter: Some(letter),
    };
    Input::Start(Box::new(start))
}

#[cfg(test)]
mod tests {
    //! Proves to whom a payload of another instance is carried. Not: what becomes of it there; see the engine's tests.
    use everstep_engine::{
        Writes,
        hook::HookRow,
        letter::{Address, Caller, NewLetter},
    };
    use everstep_protocol::{
        CallHash, Fingerprint, Payload, Run,
        hook::{Carried, Webhook},
    };

    use super::*;
    use crate::rehearsal::Rehearsal;

    /// A letter of this instance to whoever has the token.
    fn letter(sender: InstanceUid) -> NewLetter {
        let sent = SentPayload {
            token: "t".parse().expect("a token"),
            hook: HookId::START,
            app_id: "everstep".to_owned(),
            id: "call-1".to_owned(),
            payload: Payload::null(),
            fingerprint: Fingerprint::of(&Payload::null()).expect("null has a canonical form"),
        };
        let said = Said::Resume { namespace: Namespace::default(), sent };
        let caller = Caller { uid: sender, run: Run(1), call: CallHash([7; 16]) };
        NewLetter { to: Address::Token, caller, said }
    }

    /// Carries what there is; each input gets its turn, after `before`, which says what comes between. Answers whom was asked.
    async fn carry(
        coordinator: &mut Rehearsal,
        mut before: impl AsyncFnMut(&Rehearsal),
    ) -> Vec<Option<InstanceUid>> {
        let shared = Arc::clone(&coordinator.shared);
        let mut carrying = tokio::spawn(async move { while sweep(&shared).await == Round::Again {} });
        let mut asked = Vec::new();
        loop {
            tokio::select! {
                ended = &mut carrying => {
                    ended.expect("it ends");
                    return asked;
                }
                arrival = coordinator.ends.arrivals.recv() => {
                    let arrival = arrival.expect("the sender lives as long");
                    asked.push(arrival.input.instance());
                    before(coordinator).await;
                    coordinator.turn(arrival).await;
                }
            }
        }
    }

    async fn write(coordinator: &Rehearsal, sender: InstanceUid) {
        coordinator.write(Writes { letters: vec![letter(sender)], ..Writes::default() }).await;
    }

    #[tokio::test]
    async fn h63_a_letter_to_an_owner_that_was_just_taken_from_goes_to_the_claimant_once() {
        let mut coordinator = Rehearsal::new();
        let (old, new) = (coordinator.start("old", Some("t")).await, coordinator.start("new", None).await);
        let sender = coordinator.start("sender", None).await;
        write(&coordinator, sender).await;
        let mut moved = false;
        let asked = carry(&mut coordinator, async |coordinator| {
            if !std::mem::replace(&mut moved, true) {
                coordinator.take_over("t", (old, "old"), new).await;
            }
        });
        // Looked up before; whether the one before knows it; and the claimant. The answer is for the next round.
        let asked = asked.await;
        assert_eq!(asked[..3], [Some(old), Some(old), Some(new)]);
        assert_eq!(asked.iter().filter(|asked| **asked == Some(new)).count(), 1);
        assert_eq!((coordinator.head(old).await.events, coordinator.head(new).await.events), (0, 1));
    }

    /// A call that another run of the sender makes again is known to the owner before, which says so.
    #[tokio::test]
    async fn h48_h63_a_letter_that_the_owner_before_knows_is_its_own() {
        let mut coordinator = Rehearsal::new();
        let (old, new) = (coordinator.start("old", Some("t")).await, coordinator.start("new", None).await);
        let sender = coordinator.start("sender", None).await;
        write(&coordinator, sender).await;
        carry(&mut coordinator, async |_| {}).await;
        coordinator.take_over("t", (old, "old"), new).await;
        write(&coordinator, sender).await;
        carry(&mut coordinator, async |_| {}).await;
        assert_eq!((coordinator.head(old).await.events, coordinator.head(new).await.events), (1, 0));
    }

    #[tokio::test]
    async fn h46_h50_a_letter_for_a_token_that_nobody_has_goes_back() {
        let mut coordinator = Rehearsal::new();
        let sender = coordinator.start("sender", None).await;
        write(&coordinator, sender).await;
        let shared = Arc::clone(&coordinator.shared);
        let carrying = tokio::spawn(async move { sweep(&shared).await });
        let arrival = coordinator.next().await;
        assert_eq!(arrival.input.instance(), None, "it is for nobody");
        coordinator.turn(arrival).await;
        carrying.await.expect("it ends");
        let back = coordinator.store().letters(0, 10).await.expect("they are read").letters;
        assert_eq!((back.len(), back[0].to), (1, Some(sender)));
        assert!(format!("{:?}", back[0].letter.said).contains("HookNotFound"), "{back:?}");
    }

    /// What the sender of a letter is told.
    async fn told(coordinator: &Rehearsal, sender: InstanceUid) -> String {
        let back = coordinator.store().letters(0, 10).await.expect("they are read").letters;
        assert_eq!((back.len(), back[0].to), (1, Some(sender)), "{back:?}");
        format!("{:?}", back[0].letter.said)
    }

    #[tokio::test]
    async fn h57_a_letter_that_does_not_fit_the_hook_goes_back_and_nothing_is_kept() {
        let nothing = || Payload::from_text("false").expect("a schema");
        let requests = || Webhook { carries: Carried::Request, ..Webhook::default() };
        for (schema, webhook, says) in
            [(Some(nothing()), None, "schema"), (None, Some(requests()), "/hooks/default/t")]
        {
            let mut coordinator = Rehearsal::new();
            let owner = coordinator.start("old", Some("t")).await;
            let sender = coordinator.start("sender", None).await;
            coordinator.alter("t", |row| (row.schema, row.webhook) = (schema, webhook)).await;
            write(&coordinator, sender).await;
            let shared = Arc::clone(&coordinator.shared);
            let carrying = tokio::spawn(async move { sweep(&shared).await });
            // Whether the owner has it already; then it is for nobody.
            for asked in [Some(owner), None] {
                let arrival = coordinator.next().await;
                assert_eq!(arrival.input.instance(), asked);
                coordinator.turn(arrival).await;
            }
            carrying.await.expect("it ends");
            let told = told(&coordinator, sender).await;
            assert!(told.contains(PAYLOAD_MISFIT) && told.contains(says), "{told}");
            assert_eq!(coordinator.head(owner).await.events, 0);
        }
    }

    #[tokio::test]
    async fn h48_h57_a_letter_that_is_known_is_taken_though_the_schema_has_changed() {
        let mut coordinator = Rehearsal::new();
        let owner = coordinator.start("old", Some("t")).await;
        let sender = coordinator.start("sender", None).await;
        write(&coordinator, sender).await;
        carry(&mut coordinator, async |_| {}).await;
        coordinator.alter("t", |row| row.schema = Some(Payload::from_text("false").expect("a schema"))).await;
        write(&coordinator, sender).await;
        let asked = carry(&mut coordinator, async |_| {}).await;
        assert_eq!(asked.iter().filter(|asked| **asked == Some(owner)).count(), 2, "{asked:?}");
        assert_eq!(coordinator.head(owner).await.events, 1);
    }

    /// While the one before is asked it has the token again, as the hook of its start, which takes nothing: it says what it knows of the
    /// letter, and keeps nothing that nobody has compared with its schema.
    #[tokio::test]
    async fn h57_h63_the_owner_before_that_is_asked_keeps_nothing() {
        let mut coordinator = Rehearsal::new();
        let (old, new) = (coordinator.start("old", Some("t")).await, coordinator.start("new", None).await);
        let sender = coordinator.start("sender", None).await;
        coordinator.take_over("t", (old, "old"), new).await;
        write(&coordinator, sender).await;
        let mut moved = false;
        carry(&mut coordinator, async |coordinator| {
            if !std::mem::replace(&mut moved, true) {
                let back = |row: &mut HookRow| {
                    (row.owner, row.id, row.from) = (old, HookId::START, None);
                    row.schema = Some(Payload::from_text("false").expect("a schema"));
                };
                coordinator.alter("t", back).await;
            }
        })
        .await;
        assert!(moved);
        assert_eq!((coordinator.head(old).await.events, coordinator.head(new).await.events), (0, 0));
    }
}
