//! What follows a body that has failed, or was thrown away for a rollback: its compensations, last call first, each a durable
//! step. They are calls of the same body, so that every replay makes them at the same place (rule P38).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use everstep_protocol::journal::{Marks, Undone, UndoneEnd};
use everstep_protocol::{Call, CallKind, CallName, Failure, FailureKind};

use super::{Shared, Spec, StepSpec};
use crate::Error;
use crate::call::Pending;
use crate::saga::{Planned, plan, undone};

/// The name of the call that begins a rollback.
const NAME: &str = "rollback";

/// Runs the future of the user's function until it ends, or until it is thrown away for a rollback: then none.
pub(super) async fn until_interrupted<F: Future>(shared: &Arc<Shared>, future: F) -> Option<F::Output> {
    let mut slot = pin!(Some(future));
    poll_fn(|context| {
        if shared.lock().saga.interrupted {
            slot.set(None);
            shared.lock().saga.thrown_away = true;
            return Poll::Ready(None);
        }
        match slot.as_mut().as_pin_mut() {
            Some(future) => future.poll(context).map(Some),
            None => Poll::Ready(None),
        }
    })
    .await
}

/// Takes back what the body did, unless it ends with a cancel that wants no rollback. Its error is what it ends with in any case.
pub(super) async fn after(shared: &Arc<Shared>, failed: Option<Failure>) -> Failure {
    let (registered, asked) = {
        let mut state = shared.lock();
        let by_cancel = failed.as_ref().is_some_and(|failure| failure.kind == FailureKind::Cancelled);
        if by_cancel && state.cancelled && !state.saga.on_cancel {
            (Vec::new(), false)
        } else {
            (state.saga.take(), failed.is_none())
        }
    };
    let plan = plan(registered);
    if !plan.is_empty() {
        begin(shared, failed.as_ref().filter(|_| !asked), plan.len() as u64).await;
        let over = compensate(shared, plan).await;
        shared.lock().saga.over = Some(over);
    }
    failed.unwrap_or_else(|| Failure::new(FailureKind::Cancelled, "it was ended with a rollback"))
}

/// The journal says that the body is over and why, before anything is taken back.
async fn begin(shared: &Arc<Shared>, failure: Option<&Failure>, steps: u64) {
    let Ok(name) = CallName::new(NAME) else { return };
    let call = Call { kind: CallKind::Rollback, name, count: 1 };
    let mut pending = Pending::of(shared, call);
    let spec = || Spec::Rollback { failure: failure.cloned(), steps };
    // It has no other outcome than that it is recorded.
    drop(poll_fn(|context| pending.poll(context, spec)).await);
}

async fn compensate(shared: &Arc<Shared>, plan: Vec<Planned>) -> Vec<Undone> {
    let mut over = Vec::with_capacity(plan.len());
    let mut stopped = false;
    for planned in plan {
        if stopped {
            over.push(Undone { call: planned.call, end: UndoneEnd::Skipped });
            continue;
        }
        let (call, stop) = (planned.call.clone(), planned.stop);
        let result = run(shared, planned).await;
        stopped = stop && result.is_err();
        over.push(undone(call, result));
    }
    over
}

async fn run(shared: &Arc<Shared>, planned: Planned) -> Result<(), Error> {
    let Planned { call, input, policy, delay, run, stop: _, hidden } = planned;
    let mut pending = Pending::of(shared, call);
    let spec = StepSpec {
        input,
        action: None,
        policy,
        delay,
        run,
        marks: Marks { sensitive: hidden, ..Marks::default() },
    };
    let mut spec = Some(spec);
    poll_fn(|context| pending.poll(context, || Spec::Step(spec.take().expect("a call begins once"))))
        .await
        .map(|_| ())
}
