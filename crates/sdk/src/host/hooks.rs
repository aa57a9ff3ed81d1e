//! The hooks of a body: what came of each, who waits for that, and whether it was let go.
//!
//! Whether a hook is the body's is known by what it has seen and done alone, so that every replay knows the same.

use std::collections::{BTreeSet, HashMap};
use std::task::Waker;

use everstep_protocol::hook::Registration;
use everstep_protocol::{Call, Failure, HookId, Token, journal::HookOutcome};

use super::{Made, Numbered, Shared, Slot, Spec};

/// All hooks of a body.
#[derive(Default)]
pub(crate) struct Hooks {
    /// The token of the hook that the instance was started with, until the body lets it go.
    pub(crate) start: Option<Token>,
    made: HashMap<u64, Hook>,
    /// Which of them has a token: at most one, until it is let go or is not to be had.
    by_token: HashMap<Token, u64>,
    /// Hooks that were let go since the last poll.
    pub(crate) let_go: Vec<(u64, Call, Token)>,
}

struct Hook {
    call: Call,
    token: Token,
    outcome: Option<Result<HookOutcome, Failure>>,
    let_go: Option<LetGo>,
    /// Who waits for the outcome, or until the token is on record as free.
    wakers: Vec<Waker>,
    /// The calls that wait for payloads.
    awaits: BTreeSet<u64>,
}

/// How far letting go is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetGo {
    /// The journal does not say so yet.
    Said,
    /// Whoever wants the token can have it.
    Recorded,
}

/// What a call on a hook finds.
pub(crate) enum Standing {
    /// Nobody knows yet whether the instance has it.
    Unknown,
    /// The instance has it, or had it: another one may have taken it since.
    Owned(HookId),
    /// It is not to be had.
    Not(Result<HookOutcome, Failure>),
    /// The body has let it go.
    LetGo,
}

/// What creating a hook came to at once.
pub(crate) enum Created {
    /// It is asked for, or is the one that the instance was started with.
    Yes,
    /// This hook of the body has the token.
    Twice(Call),
    /// It is the one that the instance was started with, which is as the start made it (rule H9).
    StartWith(&'static str),
}

impl Shared {
    /// The body creates a hook. The one that the instance was started with is given without anybody being asked (rule H8).
    pub(crate) fn create_hook(&self, numbered: Numbered, registration: Registration) -> Created {
        let Numbered { number, call, called_after } = numbered;
        let token = registration.token.clone();
        let mut state = self.lock();
        if let Some(other) = state.hooks.by_token.get(&token).and_then(|number| state.hooks.made.get(number))
        {
            return Created::Twice(other.call.clone());
        }
        let is_start = state.hooks.start.as_ref() == Some(&token);
        if is_start && let Some(field) = more_than_a_token(&registration) {
            return Created::StartWith(field);
        }
        let outcome = is_start.then_some(Ok(HookOutcome::Owned { hook: HookId::START, from: None }));
        let hook = Hook {
            call: call.clone(),
            token: token.clone(),
            outcome,
            let_go: None,
            wakers: Vec::new(),
            awaits: BTreeSet::new(),
        };
        state.hooks.made.insert(number, hook);
        state.hooks.by_token.insert(token, number);
        if !is_start {
            state.made.push(Made { number, call, called_after, spec: Spec::Hook(registration) });
        }
        Created::Yes
    }

    /// How it stands with a hook. Whoever is told that nobody knows is woken when somebody does.
    pub(crate) fn hook(&self, number: u64, waker: &Waker) -> Standing {
        let mut state = self.lock();
        let Some(hook) = state.hooks.made.get_mut(&number) else { return Standing::LetGo };
        match (&hook.let_go, &hook.outcome) {
            (Some(_), _) => Standing::LetGo,
            (None, Some(Ok(HookOutcome::Owned { hook, .. }))) => Standing::Owned(*hook),
            (None, Some(outcome)) => Standing::Not(outcome.clone()),
            (None, None) => {
                let is_known = hook.wakers.iter().any(|known| known.will_wake(waker));
                if !is_known {
                    hook.wakers.push(waker.clone());
                }
                Standing::Unknown
            }
        }
    }

    /// What came of a hook, whether it was let go since or not (rule H38).
    pub(crate) fn hook_outcome(&self, number: u64) -> Option<Result<HookOutcome, Failure>> {
        self.lock().hooks.made.get(&number).and_then(|hook| hook.outcome.clone())
    }

    /// A call waits for a payload of a hook.
    pub(crate) fn awaits_hook(&self, number: u64, call: u64) {
        if let Some(hook) = self.lock().hooks.made.get_mut(&number) {
            hook.awaits.insert(call);
        }
    }

    /// It does so no more.
    pub(crate) fn awaited_hook(&self, number: u64, call: u64) {
        if let Some(hook) = self.lock().hooks.made.get_mut(&number) {
            hook.awaits.remove(&call);
        }
    }

    /// The body lets a hook go: its awaits end, whose wakers are answered. Again it means nothing (rule H52).
    pub(crate) fn let_go(&self, number: u64) -> Vec<Waker> {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(hook) = state.hooks.made.get_mut(&number).filter(|hook| hook.let_go.is_none()) else {
            return Vec::new();
        };
        hook.let_go = Some(LetGo::Recorded);
        match &hook.outcome {
            None => state.dropped.push(number),
            Some(Ok(HookOutcome::Owned { hook: id, .. })) => {
                hook.let_go = Some(LetGo::Said);
                state.hooks.let_go.push((number, hook.call.clone(), hook.token.clone()));
                if *id == HookId::START {
                    state.hooks.start = None;
                }
            }
            Some(_) => {}
        }
        let mut woken = std::mem::take(&mut hook.wakers);
        for call in std::mem::take(&mut hook.awaits) {
            if let Some(Slot::Waiting(waker)) = state.open.get(&call) {
                woken.push(waker.clone());
            }
        }
        if state.hooks.by_token.get(&hook.token) == Some(&number) {
            state.hooks.by_token.remove(&hook.token);
        }
        woken
    }

    /// Whether whoever wants the token of a hook that was let go can have it. If not, whoever asks is woken when so.
    pub(crate) fn is_let_go(&self, number: u64, waker: &Waker) -> bool {
        let mut state = self.lock();
        let Some(hook) = state.hooks.made.get_mut(&number) else { return true };
        if hook.let_go != Some(LetGo::Said) {
            return true;
        }
        hook.wakers.push(waker.clone());
        false
    }

    /// What came of a hook is fed. False if the body has dropped it.
    pub(super) fn registered(
        &self,
        number: u64,
        outcome: Result<HookOutcome, Failure>,
    ) -> Option<Vec<Waker>> {
        let mut state = self.lock();
        let state = &mut *state;
        let hook = state.hooks.made.get_mut(&number)?;
        if hook.outcome.is_some() || hook.let_go.is_some() {
            return None;
        }
        // What is not to be had may be asked for again.
        if !matches!(outcome, Ok(HookOutcome::Owned { .. })) {
            state.hooks.by_token.remove(&hook.token);
        }
        hook.outcome = Some(outcome);
        Some(std::mem::take(&mut hook.wakers))
    }

    /// A hook that was let go is on record as free.
    pub(super) fn released(&self, number: u64) -> Option<Vec<Waker>> {
        let mut state = self.lock();
        let hook = state.hooks.made.get_mut(&number)?;
        hook.let_go = Some(LetGo::Recorded);
        Some(std::mem::take(&mut hook.wakers))
    }
}

/// What the start alone may say of its hook (rule H9).
const fn more_than_a_token(asked: &Registration) -> Option<&'static str> {
    match asked {
        Registration { metadata: Some(_), .. } => Some("metadata"),
        Registration { retention: Some(_), .. } => Some("retention"),
        Registration { webhook: Some(_), .. } => Some("webhook"),
        Registration { force: true, .. } => Some("force"),
        Registration { schema: Some(_), .. } => Some("schema"),
        Registration { .. } => None,
    }
}
