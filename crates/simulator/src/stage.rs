//! Sees every attempt of a step in one worker: the checkers learn of it, and the worker may die just before it.

use std::sync::Arc;

use everstep_protocol::{Call, message::Grant};
use everstep_sdk::{
    Step,
    host::{StepFn, StepInfo},
};
use everstep_worker::Interceptor;

use crate::{
    check::{Attempting, Seen, Watchers},
    life::Life,
};

#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) life: Arc<Life>,
    pub(crate) watchers: Watchers,
}

impl Interceptor for Stage {
    fn granted(&self, _grant: &Grant) {}

    fn attempt(&self, attempt: &StepInfo, run: StepFn) -> StepFn {
        let call = Call { kind: attempt.kind, name: attempt.name.clone(), count: attempt.count };
        let attempting = Attempting {
            workflow: attempt.workflow.clone(),
            id: attempt.instance.clone(),
            call,
            key: attempt.key,
            session: self.life.session(),
        };
        let (life, watchers) = (self.life.clone(), self.watchers.clone());
        Arc::new(move |step: Step| {
            let (life, watchers, attempting, run) =
                (life.clone(), watchers.clone(), attempting.clone(), run.clone());
            Box::pin(async move {
                life.passes("before an attempt").await;
                life.note(format_args!("attempts {} of {}", attempting.call, attempting.id));
                watchers.see(&Seen::Attempting(&attempting));
                let result = run(step).await;
                life.passes("after an attempt").await;
                result
            })
        })
    }
}
