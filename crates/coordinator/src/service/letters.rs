//! Carries letters between instances (rule W22). A letter is committed with the decision that wrote it and is found again for as
//! long as nobody has taken it, so that it survives whoever was to carry it. Whoever commits one looks at once; the holder of
//! the duty looks every second for what others have left. Two that carry the same letter do no harm: it is taken once.

use std::{sync::Arc, time::Duration};

use everstep_engine::{
    Input, What,
    letter::{Letter, Said, gone, not_found},
    start::{NameKey, Start},
};
use everstep_store::Posted;

use super::duties::TIMERS;
use crate::{arrival::Arrival, shared::Shared};

/// Letters carried at once.
const PAGE: u32 = 256;
const EVERY: Duration = Duration::from_secs(1);

/// Runs until the coordinator stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let told = tokio::select! {
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
            let Some(input) = input(shared, posted) else {
                left += 1;
                continue;
            };
            let (arrival, answer) = Arrival::answered(input);
            shared.submit(arrival);
            answers.push(answer);
        }
        for answer in answers {
            // One that was given up is found again; nothing waits for what could not be done.
            carried += usize::from(matches!(answer.await, Ok(Ok(_))));
        }
        match mail.next {
            Some(next) => after = next,
            None => return if left > 0 && carried > 0 { Round::Again } else { Round::Done },
        }
    }
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
        retention: everstep_engine::retention::Own::default(),
        pin: None,
        strict: false,
        attributes: Vec::new(),
        message: None,
        name,
        hook: None,
        letter: Some(letter),
    };
    Input::Start(Box::new(start))
}
