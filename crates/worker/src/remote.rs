//! Remote steps that this worker runs for others (rule W39): claimed, granted, run, reported until acknowledged.

use std::{collections::HashMap, sync::Arc, time::Duration};

use everstep_protocol::{
    CallHash, Epoch, Failure, FailureKind, FunctionName, InstanceUid,
    message::{AttemptOutcome, HeldStep, StepGrant, WorkerItem},
};
use everstep_sdk::{
    Registry,
    host::{StepFn, StepInfo, look_first, look_of},
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::{
    clock::Resend,
    hosted::{Ended, Order, Progress, told, trace_remote},
};

/// Which step: an instance and its call.
pub(crate) type StepKey = (InstanceUid, CallHash);

/// The remote steps held.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    held: HashMap<StepKey, Step>,
}

#[derive(Debug)]
struct Step {
    epoch: Epoch,
    stage: Stage,
    progress: Progress,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Stage {
    Runs,
    Reported { item: Box<WorkerItem>, resend: Resend },
}

impl Remotes {
    /// The epoch under which a step is held.
    pub(crate) fn epoch(&self, key: StepKey) -> Option<Epoch> {
        self.held.get(&key).map(|step| step.epoch)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn held(&self) -> Vec<HeldStep> {
        let held =
            |(key, step): (&StepKey, &Step)| HeldStep { instance: key.0, call: key.1, epoch: step.epoch };
        self.held.iter().map(held).collect()
    }

    /// Takes up a lease; gives the attempt to run.
    pub(crate) fn granted(
        &mut self,
        grant: StepGrant,
        registry: &Registry,
        room: OwnedSemaphorePermit,
    ) -> Order {
        let progress = Progress::default();
        let step = Step { epoch: grant.epoch, stage: Stage::Runs, progress: progress.clone(), _room: room };
        self.held.insert((grant.instance, grant.hash), step);
        let run = match registry.remote_function(&grant.remote.function) {
            Some(function) => function.run(&grant.remote.input),
            None => unknown(&grant.remote.function),
        };
        let run = match &grant.remote.look {
            Some(look) => match registry.remote_function(look) {
                Some(function) => look_first(look_of(function.run(&grant.remote.input)), run),
                None => unknown(look),
            },
            None => run,
        };
        let call = grant.call.clone();
        let info = StepInfo {
            namespace: grant.namespace,
            workflow: grant.workflow,
            instance: grant.id,
            kind: grant.call.kind,
            name: grant.call.name,
            count: grant.call.count,
            attempt: grant.attempt,
            key: grant.remote.key,
            undoes: None,
            policy: grant.remote.policy,
        };
        let mut order = Order {
            number: 0,
            info,
            run,
            delay: None,
            last: grant.progress,
            progress,
            run_of: None,
            session: None,
            span: None,
        };
        if let Some(asked) = &grant.remote.trace {
            trace_remote(&mut order, grant.instance, &call, asked);
        }
        order
    }

    /// The attempt has ended: gives the report.
    pub(crate) fn ended(
        &mut self,
        key: StepKey,
        epoch: Epoch,
        ended: Ended,
        now: Instant,
    ) -> Option<WorkerItem> {
        let step = self.held.get_mut(&key).filter(|step| step.epoch == epoch)?;
        let outcome = match ended.result {
            Ok(output) => AttemptOutcome::Succeeded(output),
            Err(failure) => AttemptOutcome::Failed { failure, retry_in: None },
        };
        let progress = match &outcome {
            AttemptOutcome::Succeeded(_) => None,
            AttemptOutcome::Failed { .. } | AttemptOutcome::Unknown { .. } => told(&step.progress),
        };
        let (instance, call, ran_for, found) = (key.0, key.1, ended.ran_for, ended.found);
        let reference = ended.reference;
        let item =
            WorkerItem::StepReport { instance, call, epoch, ran_for, outcome, progress, found, reference };
        step.stage = Stage::Reported { item: Box::new(item.clone()), resend: Resend::begin(now) };
        Some(item)
    }

    /// The lease is over: acknowledged, fenced or given back. Whether its attempt still runs.
    pub(crate) fn over(&mut self, key: StepKey, epoch: Epoch) -> bool {
        match self.held.get(&key) {
            Some(step) if step.epoch <= epoch => {
                let runs = matches!(step.stage, Stage::Runs);
                self.held.remove(&key);
                runs
            }
            _ => false,
        }
    }

    /// Everything is dropped: the session has ended. Gives the steps whose attempts still run.
    pub(crate) fn clear(&mut self) -> Vec<(StepKey, Epoch)> {
        let running =
            |(key, step): (StepKey, Step)| matches!(step.stage, Stage::Runs).then_some((key, step.epoch));
        self.held.drain().filter_map(running).collect()
    }

    /// Steps whose attempts still run.
    pub(crate) fn running(&self) -> Vec<(StepKey, Epoch)> {
        let running =
            |(key, step): (&StepKey, &Step)| matches!(step.stage, Stage::Runs).then_some((*key, step.epoch));
        self.held.iter().filter_map(running).collect()
    }

    /// Reports that are due to be sent again.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<(WorkerItem, Duration)> {
        let mut due = Vec::new();
        for step in self.held.values_mut() {
            if let Stage::Reported { item, resend } = &mut step.stage
                && resend.is_due(now)
            {
                due.push((WorkerItem::clone(item), resend.interval()));
            }
        }
        due
    }

    pub(crate) fn hurry(&mut self, now: Instant) {
        for step in self.held.values_mut() {
            if let Stage::Reported { resend, .. } = &mut step.stage {
                resend.hurry(now);
            }
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let at = |step: &Step| match &step.stage {
            Stage::Runs => None,
            Stage::Reported { resend, .. } => Some(resend.at()),
        };
        self.held.values().filter_map(at).min()
    }
}

/// Another worker of the pool may know the function: the failure is retried. Nothing has run.
fn unknown(function: &FunctionName) -> StepFn {
    let message = format!("no worker function is registered as {function} here");
    Arc::new(move |_step| {
        let failure = Failure::new(FailureKind::UnknownFunction, message.clone()).not_sent();
        Box::pin(async move { Err(failure) })
    })
}
