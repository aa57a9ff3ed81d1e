//! A journal is enough: fed to the code again, it comes to the end that is recorded, and asks for nothing else on the way.

use std::sync::Arc;

use everstep_check::{Replayer, saved::Saved};
use everstep_protocol::{Generation, Run, journal::Fact, limits::Limits};
use everstep_worker::watch::Watch;

use super::{Checker, Rest, Seen};
use crate::workload::build;

#[derive(Debug, Default)]
pub(super) struct Replay;

impl Checker for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn sees(&mut self, _seen: &Seen<'_>) -> Result<(), String> {
        Ok(())
    }

    fn at_rest(&mut self, rest: &Rest<'_>) -> Result<(), String> {
        let replayer = Replayer {
            registry: rest.registry,
            build: build(0),
            limits: Limits::default(),
            watch: Arc::<Watch>::default(),
        };
        for view in rest.instances {
            let runs = (view.uid, Run(0))..=(view.uid, Run(u32::MAX));
            for ((_, run), entries) in rest.journals.range(runs) {
                let generation = match entries.first().map(|entry| &entry.fact) {
                    Some(Fact::Started(started)) => started.generation,
                    Some(_) | None => Generation(1),
                };
                let saved = Saved {
                    namespace: view.namespace.clone(),
                    workflow: view.workflow.clone(),
                    id: view.id.clone(),
                    run: *run,
                    generation,
                    pin: view.pin.clone(),
                    entries: entries.clone(),
                    seeded: true,
                };
                let came = replayer
                    .replay(&saved)
                    .map_err(|breach| format!("{}/{} run {run}: {breach}", view.workflow, view.id))?;
                if came.drifted > 0 {
                    return Err(format!(
                        "{}/{} run {run}: the code gives steps other inputs",
                        view.workflow, view.id
                    ));
                }
            }
        }
        Ok(())
    }
}
