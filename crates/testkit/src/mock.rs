//! What steps do instead of their own work. A mock stands where the worker runs an attempt, so journal, retries, policies and
//! timeouts are real.

use everstep_protocol::{Call, CallKind, Failure, InstanceId, Payload, WorkflowName};
use everstep_sdk::{
    Error,
    host::{InstanceInfo, StepInfo},
};
use serde::Serialize;

use crate::KitError;

/// What the attempts of a step come to, in order; then, unless it says what always, the step itself runs.
///
/// ```
/// # use everstep::Error;
/// # use everstep_testkit::Mock;
/// // Two attempts fail, one hangs until its timeout, the fourth succeeds.
/// let mock = Mock::step("charge").fails(2, Error::failed("503")).times_out(1).returns(&"payment-1");
/// ```
#[derive(Clone, Debug)]
#[must_use = "a mock does nothing until the kit is given it"]
pub struct Mock {
    kind: CallKind,
    step: String,
    count: Option<u32>,
    workflow: Option<String>,
    instance: Option<String>,
    turns: Vec<(u32, Turn)>,
    always: Option<Turn>,
    problem: Option<String>,
}

/// What one attempt comes to.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    Returns(Payload),
    Fails(Failure),
    Hangs,
}

impl Mock {
    /// Mocks every step of this name, remote ones too.
    pub fn step(name: impl Into<String>) -> Self {
        Self::of(CallKind::Step, name.into())
    }

    /// Mocks the compensation of every step of this name (rule P38).
    pub fn compensation(name: impl Into<String>) -> Self {
        Self::of(CallKind::Compensation, name.into())
    }

    /// Mocks the waits for events of this type, which can only time out: at once and without moving time, unless an event of that
    /// type is there already. A wait for several types is named after them, such as `approved | rejected`.
    ///
    /// ```
    /// # use everstep_testkit::Mock;
    /// // The first wait for an approval times out, the second waits.
    /// let mock = Mock::event("approval").times_out(1);
    /// ```
    pub fn event(kind: impl Into<String>) -> Self {
        Self::of(CallKind::Event, kind.into())
    }

    const fn of(kind: CallKind, step: String) -> Self {
        Self {
            kind,
            step,
            count: None,
            workflow: None,
            instance: None,
            turns: Vec::new(),
            always: None,
            problem: None,
        }
    }

    /// Only the step with this count among those of its name, from 1.
    pub const fn nth(mut self, count: u32) -> Self {
        self.count = Some(count);
        self
    }

    /// Only in instances of this workflow.
    pub fn in_workflow(mut self, workflow: impl Into<String>) -> Self {
        self.workflow = Some(workflow.into());
        self
    }

    /// Only in the instance of this id.
    pub fn in_instance(mut self, id: impl Into<String>) -> Self {
        self.instance = Some(id.into());
        self
    }

    /// So many attempts fail with this error. Whether another follows is decided by the step's policy, as ever.
    pub fn fails(mut self, attempts: u32, error: impl Into<Error>) -> Self {
        let failure = Failure::from(error.into());
        self.turns.push((attempts, Turn::Fails(failure)));
        self
    }

    /// So many attempts hang until their timeout ends them.
    pub fn times_out(mut self, attempts: u32) -> Self {
        self.turns.push((attempts, Turn::Hangs));
        self
    }

    /// Every further attempt succeeds with this value: `false`, `0` and `null` too.
    pub fn returns<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        match Payload::encode(value) {
            Ok(value) => self.last(Turn::Returns(value)),
            Err(error) => self.problem = Some(format!("the value that it returns: {error}")),
        }
        self
    }

    /// Every further attempt fails with this error.
    pub fn always_fails(mut self, error: impl Into<Error>) -> Self {
        self.last(Turn::Fails(Failure::from(error.into())));
        self
    }

    /// Every further attempt hangs until its timeout ends it.
    pub fn always_times_out(mut self) -> Self {
        self.last(Turn::Hangs);
        self
    }

    fn last(&mut self, turn: Turn) {
        if self.always.replace(turn).is_some() {
            self.problem = Some("it says twice what every further attempt comes to".to_owned());
        }
    }

    fn scope(&self) -> (CallKind, &str, Option<u32>, Option<&str>, Option<&str>) {
        (self.kind, &self.step, self.count, self.workflow.as_deref(), self.instance.as_deref())
    }

    fn check(&self) -> Result<(), KitError> {
        let problem = |problem: &str| {
            KitError::Invalid(format!("the mock of {} {:?}: {problem}", self.kind, self.step))
        };
        if let Some(found) = &self.problem {
            return Err(problem(found));
        }
        if self.turns.is_empty() && self.always.is_none() {
            return Err(problem("it says nothing"));
        }
        let mut turns = self.turns.iter().map(|(_, turn)| turn).chain(&self.always);
        if self.kind == CallKind::Event && turns.any(|turn| !matches!(turn, Turn::Hangs)) {
            return Err(problem("a wait can only time out; events are sent"));
        }
        everstep_protocol::CallName::new(&self.step).map_err(|error| problem(&error.to_string()))?;
        Ok(())
    }

    /// How well it fits a call: the more it says of where it holds, the better. None if it does not fit.
    fn fits(&self, call: &Place<'_>) -> Option<u8> {
        fn part<T: PartialEq + ?Sized>(wanted: Option<&T>, got: &T, weight: u8) -> Option<u8> {
            wanted.map_or(Some(0), |wanted| (wanted == got).then_some(weight))
        }
        if self.kind != call.kind || self.step != call.name {
            return None;
        }
        let instance = part(self.instance.as_deref(), call.instance, 4)?;
        let workflow = part(self.workflow.as_deref(), call.workflow, 2)?;
        let count = part(self.count.as_ref(), &call.count, 1)?;
        Some(instance + workflow + count)
    }

    /// What this attempt comes to; the numbers of attempts are those of the journal, so that a crash does not begin anew.
    fn turn(&self, attempt: u32) -> Option<&Turn> {
        let mut before = 0u32;
        for (attempts, turn) in &self.turns {
            before = before.saturating_add(*attempts);
            if attempt <= before {
                return Some(turn);
            }
        }
        self.always.as_ref()
    }
}

/// A call, as mocks tell it from others.
struct Place<'a> {
    kind: CallKind,
    name: &'a str,
    count: u32,
    workflow: &'a str,
    instance: &'a str,
}

/// All mocks of a test.
#[derive(Debug, Default)]
pub(crate) struct Mocks(Vec<Mock>);

impl Mocks {
    pub(crate) fn add(&mut self, mock: Mock) -> Result<(), KitError> {
        mock.check()?;
        if self.0.iter().any(|other| other.scope() == mock.scope()) {
            return Err(KitError::Invalid(format!(
                "step {:?} is mocked twice for the same place",
                mock.step
            )));
        }
        self.0.push(mock);
        Ok(())
    }

    /// Narrows a mock down to one instance and adds it.
    pub(crate) fn add_for(
        &mut self,
        mock: Mock,
        workflow: &WorkflowName,
        id: &InstanceId,
    ) -> Result<(), KitError> {
        self.add(mock.in_workflow(workflow.as_str()).in_instance(id.as_str()))
    }

    pub(crate) fn turn(&self, attempt: &StepInfo) -> Option<Turn> {
        let place = Place {
            kind: attempt.kind,
            name: attempt.name.as_str(),
            count: attempt.count,
            workflow: attempt.workflow.as_str(),
            instance: attempt.instance.as_str(),
        };
        self.best(&place)?.turn(attempt.attempt.0).cloned()
    }

    /// Whether this wait for an event is to time out at once. A wait is made once, so that its count says which turn it is.
    pub(crate) fn times_out(&self, instance: &InstanceInfo, call: &Call) -> bool {
        let place = Place {
            kind: call.kind,
            name: call.name.as_str(),
            count: call.count,
            workflow: instance.workflow.as_str(),
            instance: instance.id.as_str(),
        };
        let best = self.best(&place);
        best.is_some_and(|mock| mock.turn(if mock.count.is_some() { 1 } else { call.count }).is_some())
    }

    fn best(&self, place: &Place<'_>) -> Option<&Mock> {
        let fitting = self.0.iter().filter_map(|mock| Some((mock.fits(place)?, mock)));
        fitting.max_by_key(|(fit, _)| *fit).map(|(_, mock)| mock)
    }
}
