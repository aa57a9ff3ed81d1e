//! Drives one body by hand: no clock, no threads, no journal. Positions and time go up by one per outcome fed.

use std::sync::{Arc, Mutex};

use everstep::host::{
    Body, BodyState, CancelHandle, Host, InstanceInfo, Made, Payload, Polled, Spec, StepInfo, StepSpec, begin,
};
use everstep::{Error, Step, Timestamp, Workflow};
use everstep_protocol::{
    Attempt, Call, CallKind, Failure, FailureKind, Generation, InstanceUid, Position, Run, StepKey,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub const SEED: [u8; 32] = [7; 32];

pub struct Driver {
    pub host: Host,
    pub body: Body,
    pub seen: u64,
}

pub fn info() -> InstanceInfo {
    InstanceInfo {
        namespace: "default".parse().unwrap(),
        workflow: "fulfil".parse().unwrap(),
        id: "order-1".parse().unwrap(),
        uid: InstanceUid::generate(),
        run: Run(1),
        generation: Generation(1),
    }
}

impl Driver {
    pub fn new<Out, F, Fut>(function: F) -> Self
    where
        Out: Serialize,
        F: FnOnce(Workflow) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Out, Error>> + Send + 'static,
    {
        Self::seeded(SEED, function)
    }

    pub fn seeded<Out, F, Fut>(seed: [u8; 32], function: F) -> Self
    where
        Out: Serialize,
        F: FnOnce(Workflow) -> Fut + Send + 'static,
        Fut: Future<Output = Result<Out, Error>> + Send + 'static,
    {
        let host = Host::new(info(), seed);
        let body = begin("fulfil", host.workflow(), &Payload::null(), |cx, (): ()| function(cx));
        Self { host, body, seen: 1 }
    }

    pub fn poll(&mut self) -> Polled {
        self.host.poll(&mut self.body, Position(self.seen), Timestamp(i64::try_from(self.seen).unwrap()))
    }

    /// Feeds one output and polls.
    pub fn feed(&mut self, number: u64, output: impl Serialize) -> Polled {
        self.settle(number, Ok(Payload::encode(&output).unwrap()))
    }

    pub fn fail(&mut self, number: u64, failure: Failure) -> Polled {
        self.settle(number, Err(failure))
    }

    fn settle(&mut self, number: u64, result: Result<Payload, Failure>) -> Polled {
        self.seen += 1;
        assert!(self.host.resolve(number, result), "call {number} does not wait");
        self.poll()
    }

    /// Runs everything in the order of its number until the body ends. Returns what it made and how it ended.
    pub fn run(mut self) -> (Vec<Made>, Result<Payload, Failure>) {
        let mut polled = self.poll();
        let mut all: Vec<Made> = Vec::new();
        let mut at = 0;
        loop {
            all.append(&mut polled.made);
            match polled.state {
                BodyState::Done(result) => return (all, result),
                BodyState::Pending => {}
                other => panic!("{other:?}"),
            }
            let made = all.get(at).expect("the body waits and nothing is left to run").clone();
            at += 1;
            let result = match &made.spec {
                Spec::Step(spec) => attempt(spec, &made.call, 1, None).0,
                Spec::Remote(remote) => Ok(remote.input.clone()),
                Spec::Child(child) => Ok(child.input.clone()),
                Spec::Sleep(_)
                | Spec::SleepUntil(_)
                | Spec::Event(_)
                | Spec::Instance(_)
                | Spec::Send(_)
                | Spec::Resume(_)
                | Spec::Hook(_)
                | Spec::Payload(_)
                | Spec::Reply(_)
                | Spec::Rollback { .. } => Ok(Payload::null()),
                Spec::Patch => Ok(Payload::encode(&true).unwrap()),
            };
            polled = self.settle(made.number, result);
        }
    }

    pub fn output<T: DeserializeOwned>(self) -> T {
        self.run().1.unwrap().decode().unwrap()
    }

    pub fn failure(self) -> Failure {
        self.run().1.unwrap_err()
    }
}

pub fn key() -> StepKey {
    "0123456789abcdef".repeat(4).parse().unwrap()
}

/// A step context for this call; its progress is collected.
pub fn step(
    call: &Call,
    spec: &StepSpec,
    attempt: u32,
    last: Option<Payload>,
) -> (Step, CancelHandle, Arc<Mutex<Vec<Payload>>>) {
    let progress = Arc::new(Mutex::new(Vec::new()));
    let sink = progress.clone();
    let info = StepInfo {
        namespace: "default".parse().unwrap(),
        workflow: "fulfil".parse().unwrap(),
        instance: "order-1".parse().unwrap(),
        kind: call.kind,
        name: call.name.clone(),
        count: call.count,
        attempt: Attempt(attempt),
        key: key(),
        undoes: None,
        policy: spec.policy,
    };
    let (step, cancel) = Step::new(info, Arc::new(move |payload| sink.lock().unwrap().push(payload)), last);
    (step, cancel, progress)
}

/// Runs one attempt to its end. Returns the outcome and the progress.
pub fn attempt(
    spec: &StepSpec,
    call: &Call,
    number: u32,
    last: Option<Payload>,
) -> (Result<Payload, Failure>, Vec<Payload>) {
    let (step, _cancel, progress) = step(call, spec, number, last);
    let result = futures::executor::block_on((spec.run)(step));
    let progress = progress.lock().unwrap().clone();
    (result, progress)
}

/// The calls as `kind name count`.
pub fn calls(made: &[Made]) -> Vec<(CallKind, &str, u32)> {
    made.iter().map(|made| (made.call.kind, made.call.name.as_str(), made.call.count)).collect()
}

pub fn numbers(made: &[Made]) -> Vec<u64> {
    made.iter().map(|made| made.number).collect()
}

pub fn step_spec(made: &Made) -> &StepSpec {
    match &made.spec {
        Spec::Step(spec) => spec,
        other => panic!("{other:?}"),
    }
}

pub fn done<T: DeserializeOwned>(polled: Polled) -> T {
    match polled.state {
        BodyState::Done(result) => result.unwrap().decode().unwrap(),
        other => panic!("{other:?}"),
    }
}

pub fn is_pending(polled: &Polled) -> bool {
    matches!(polled.state, BodyState::Pending)
}

/// A step function for where it does not matter.
pub async fn echo(_step: Step, value: u64) -> Result<u64, Error> {
    Ok(value)
}

/// The failure of a call that is refused before it begins.
pub fn refused(failure: &Failure, text: &str) {
    assert_eq!(failure.kind, FailureKind::Invalid, "{failure}");
    assert!(failure.permanent);
    assert!(failure.message.contains(text), "{failure}");
}
