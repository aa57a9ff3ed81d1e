//! What all calls have in common: their life from being made to the outcome.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use everstep_protocol::{Call, CallKind, CallName, Failure, FailureKind, Position};
use serde::de::DeserializeOwned;

use crate::Error;
use crate::host::{Made, Misfit, Numbered, Output, Shared, Slot, Spec};
use crate::saga::Recipe;

/// One call of one body.
pub(crate) struct Pending {
    shared: Arc<Shared>,
    kind: CallKind,
    name: Box<str>,
    /// Its count among the calls of this name; 0 while it has none.
    count: u32,
    stage: Stage,
    /// What takes it back if the workflow fails.
    compensation: Option<Recipe>,
    /// No message may quote its output (rule P44).
    hidden: bool,
}

/// What is said of an output that may not be quoted.
pub(crate) const HIDDEN: &str = "it does not fit the type that the code asks for, and is sensitive";

/// An output, and the position of the entry that gave it.
pub(crate) type Fed = (Output, Position);

#[derive(Debug)]
enum Stage {
    /// It is not valid and never begins: awaiting it fails.
    Refused(Failure),
    /// It has its number and waits for its first poll.
    Made(Numbered),
    /// The host knows it.
    Begun(u64),
    /// Its outcome has been given out.
    Over,
}

impl Pending {
    pub(crate) fn make(shared: &Arc<Shared>, kind: CallKind, name: &str) -> Self {
        let stage = if shared.is_polling() {
            match CallName::new(name) {
                Ok(name) => Stage::Made(shared.lock().number(kind, name)),
                Err(error) => Stage::Refused(Failure::new(FailureKind::Invalid, error.to_string())),
            }
        } else {
            Stage::Refused(outside(&describe(kind, name)))
        };
        let count = if let Stage::Made(numbered) = &stage { numbered.call.count } else { 0 };
        Self {
            shared: shared.clone(),
            kind,
            name: name.into(),
            count,
            stage,
            compensation: None,
            hidden: false,
        }
    }

    /// A call whose identity is given.
    pub(crate) fn of(shared: &Arc<Shared>, call: Call) -> Self {
        let (kind, name, count) = (call.kind, call.name.as_str().into(), call.count);
        let stage = Stage::Made(shared.lock().number_of(call));
        Self { shared: shared.clone(), kind, name, count, stage, compensation: None, hidden: false }
    }

    /// Registers what takes the call back.
    pub(crate) fn compensate(&mut self, recipe: Recipe) {
        if let Some(error) = &recipe.refused {
            self.refuse(FailureKind::Invalid, format_args!("its compensation: {error}"));
        }
        self.compensation = Some(recipe);
    }

    /// Its output is shown to nobody.
    pub(crate) fn hide(&mut self) {
        self.hidden = true;
    }

    pub(crate) const fn is_compensated(&self) -> bool {
        self.compensation.is_some()
    }

    /// The call that will begin; none if it never does.
    pub(crate) const fn call(&self) -> Option<&Call> {
        match &self.stage {
            Stage::Made(numbered) => Some(&numbered.call),
            Stage::Refused(_) | Stage::Begun(_) | Stage::Over => None,
        }
    }

    /// What all calls of the body share.
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The name that the code gave it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// `event "approved" #2`.
    pub(crate) fn describe_counted(&self) -> String {
        format!("{} #{}", self.describe(), self.count)
    }

    /// `step "charge"`.
    pub(crate) fn describe(&self) -> String {
        describe(self.kind, &self.name)
    }

    /// The call is not valid and will not begin. The first reason stays.
    pub(crate) fn refuse(&mut self, kind: FailureKind, reason: impl fmt::Display) {
        if matches!(self.stage, Stage::Made(_)) {
            self.stage = Stage::Refused(Failure::new(kind, format!("{}: {reason}", self.describe())));
        }
    }

    /// Begins the call at the first poll, then waits for its outcome.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        spec: impl FnOnce() -> Spec,
    ) -> Poll<Result<Fed, Error>> {
        if !self.shared.is_polling() && !matches!(self.stage, Stage::Refused(_)) {
            self.stage = Stage::Refused(outside(&self.describe()));
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Refused(failure) => Poll::Ready(Err(Error::from_failure(failure))),
            Stage::Made(numbered) => {
                self.begin(numbered, spec(), context);
                Poll::Pending
            }
            Stage::Begun(number) => self.poll_outcome(number, context),
            Stage::Over => panic!("{} was polled after it had ended", self.describe()),
        }
    }

    /// The call begins now, without anybody waiting for it: its number, or why it never does.
    pub(crate) fn into_numbered(mut self) -> Result<Numbered, Error> {
        if !self.shared.is_polling() && !matches!(self.stage, Stage::Refused(_)) {
            self.stage = Stage::Refused(outside(&self.describe()));
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Made(numbered) => Ok(numbered),
            Stage::Refused(failure) => Err(Error::from_failure(failure)),
            Stage::Begun(_) | Stage::Over => Err(Error::from_failure(outside(&self.describe()))),
        }
    }

    /// The number of a call that waits for its outcome.
    pub(crate) const fn begun(&self) -> Option<u64> {
        match self.stage {
            Stage::Begun(number) => Some(number),
            Stage::Made(_) | Stage::Refused(_) | Stage::Over => None,
        }
    }

    /// Whether it has its number and waits for its first poll.
    pub(crate) const fn is_made(&self) -> bool {
        matches!(self.stage, Stage::Made(_))
    }

    fn begin(&mut self, numbered: Numbered, spec: Spec, context: &Context<'_>) {
        let Numbered { number, call, called_after } = numbered;
        let waker = context.waker().clone();
        let mut state = self.shared.lock();
        state.open.insert(number, Slot::Waiting(waker));
        if let (Some(recipe), Some(input)) = (self.compensation.take(), spec.input()) {
            let seen = state.seen;
            let hidden = self.hidden;
            state.saga.register(number, call.clone(), seen, input.clone(), recipe, hidden);
        }
        state.made.push(Made { number, call, called_after, spec });
        drop(state);
        self.stage = Stage::Begun(number);
    }

    fn poll_outcome(&mut self, number: u64, context: &Context<'_>) -> Poll<Result<Fed, Error>> {
        let waker = context.waker().clone();
        let mut state = self.shared.lock();
        let former = match state.open.remove(&number) {
            Some(Slot::Resolved(result, position)) => {
                drop(state);
                return Poll::Ready(result.map_err(Error::from_failure).map(|output| (output, position)));
            }
            waiting => waiting,
        };
        state.open.insert(number, Slot::Waiting(waker));
        drop(state);
        // A waker's drop is foreign code: not under the lock.
        drop(former);
        self.stage = Stage::Begun(number);
        Poll::Pending
    }

    /// The answer that an earlier call of this patch got: this one does not begin (rule P40).
    pub(crate) fn answered(&mut self) -> Option<bool> {
        if !matches!(self.stage, Stage::Made(_)) || !self.shared.is_polling() {
            return None;
        }
        let answer = self.shared.lock().patches.get(&self.name).copied()?;
        self.stage = Stage::Over;
        Some(answer)
    }

    /// Keeps the answer to a patch for the calls of it that follow.
    pub(crate) fn answer(&self, applies: bool) {
        self.shared.lock().patches.insert(self.name.clone(), applies);
    }

    /// The recorded value as the type that the code wants (rule W31). One that does not fit is a change of the code: the call
    /// stays pending, and the host has the instance parked (rule P41).
    pub(crate) fn decode<Out: DeserializeOwned>(
        &self,
        outcome: Result<Fed, Error>,
    ) -> Poll<Result<Out, Error>> {
        let (output, position) = match outcome {
            Ok(fed) => fed,
            Err(error) => return Poll::Ready(Err(error)),
        };
        match output.payload.decode() {
            Ok(output) => Poll::Ready(Ok(output)),
            Err(error) => {
                let error = if self.hidden { HIDDEN.to_owned() } else { error.to_string() };
                let reason =
                    format!("{} #{}: reading the recorded output: {error}", self.describe(), self.count);
                self.shared.lock().misfit.get_or_insert(Misfit { position, reason });
                Poll::Pending
            }
        }
    }
}

/// Dropping a begun call inside a poll of the body is the body's decision; anywhere else it means nothing (rule W29).
impl Drop for Pending {
    fn drop(&mut self) {
        let Stage::Begun(number) = self.stage else { return };
        if !self.shared.is_polling() {
            return;
        }
        let mut state = self.shared.lock();
        let slot = state.open.remove(&number);
        let mut compensation = None;
        match &slot {
            Some(Slot::Waiting(_)) => {
                state.dropped.push(number);
                let seen = state.seen;
                compensation = state.saga.dropped(number, seen);
            }
            Some(Slot::Resolved(Ok(Output { event: Some(event), .. }), position)) => {
                state.untaken.push((event.call.clone(), *position));
            }
            Some(Slot::Resolved(..)) | None => {}
        }
        drop(state);
        drop((slot, compensation));
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.describe(), self.stage)
    }
}

fn describe(kind: CallKind, name: &str) -> String {
    format!("{kind} {name:?}")
}

pub(super) fn outside(what: &str) -> Failure {
    let message = format!(
        "{what}: the workflow context answers only inside its own workflow function, not in a spawned task, another \
         thread or a step"
    );
    Failure::new(FailureKind::Invalid, message)
}
