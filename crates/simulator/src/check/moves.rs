//! Every open instance has a reason to move: somebody holds it, it is about to be offered, something will wake it, or a person is
//! asked. At rest, none is open, and whoever asked for something has been answered.

use everstep_engine::status::StatusWord;
use everstep_store::InstanceView;

use super::{Checker, Rest, Seen};

#[derive(Debug, Default)]
pub(super) struct Moves;

/// Of a list's row, which does not say who holds it: its status does.
fn has_reason(view: &InstanceView) -> bool {
    match view.status {
        StatusWord::Running | StatusWord::Pausing | StatusWord::Paused => true,
        StatusWord::Queued => view.ready_at.is_some(),
        StatusWord::Attention => view.parked.is_some() || view.waits > 0,
        StatusWord::Waiting => view.waits > 0,
        StatusWord::Complete | StatusWord::Errored | StatusWord::Terminated | StatusWord::Cancelled => false,
    }
}

fn is_open(view: &InstanceView) -> bool {
    view.ended_at.is_none()
}

/// What is known of an instance, for people.
pub(super) fn said(view: &InstanceView) -> String {
    let waits: Vec<_> =
        view.waiting.iter().map(|wait| format!("{} until {:?}", wait.call, wait.due_at)).collect();
    let (name, status, at) = (format!("{}/{}", view.workflow, view.id), view.status.word(), view.position);
    let holder = view.holder.as_ref().map(|(session, ..)| *session);
    format!(
        "{name} ({}) run {} is {status} at {at}, held by {holder:?}, ready {:?}, parked {:?}, waits for [{}]",
        view.uid,
        view.run,
        view.ready_at,
        view.parked,
        waits.join(", ")
    )
}

impl Checker for Moves {
    fn name(&self) -> &'static str {
        "moves"
    }

    fn sees(&mut self, seen: &Seen<'_>) -> Result<(), String> {
        let Seen::Audited(open) = seen else { return Ok(()) };
        match open.iter().find(|view| is_open(view) && !has_reason(view)) {
            Some(view) => Err(format!("nothing will ever move {}", said(view))),
            None => Ok(()),
        }
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        if rest.unanswered > 0 {
            return Err(format!(
                "long after the last fault {} producers, bulk operations or schedules are not done",
                rest.unanswered
            ));
        }
        let open: Vec<_> = rest.instances.iter().filter(|view| is_open(view)).map(said).collect();
        if open.is_empty() {
            return Ok(());
        }
        Err(format!("long after the last fault {} are open: {}", open.len(), open.join("; ")))
    }
}
