//! What a batch says of instances and steps, for the metrics: gathered while it is decided, counted once it is committed. One lock and
//! a few vectors a batch, nothing a step.

use std::{collections::HashMap, sync::PoisonError};

use everstep_engine::{
    Answer, Effect, Input, Status, What, Writes,
    batch::{Loaded, Verdict},
    rows::Subject,
};
use everstep_protocol::{
    Attempt, InstanceUid, Timestamp, WorkflowName,
    journal::{Fact, Outcome},
};
use prometheus::{Histogram, IntCounter};

use crate::metrics::{Lives, Metrics};

/// What is to be counted: handles, not names.
#[derive(Debug, Default)]
pub(super) struct Counts {
    ones: Vec<IntCounter>,
    seconds: Vec<(Histogram, f64)>,
    direct: usize,
}

/// Since when what this batch may lease was ready. Empty where nothing is claimed.
pub(super) type Ready = HashMap<(InstanceUid, Subject), Timestamp>;

impl Counts {
    /// Of a batch that was decided, from what it will write and send.
    pub(super) fn of(metrics: &Metrics, (writes, now): (&Writes, Timestamp), effects: &[Effect]) -> Self {
        let mut counts = Self::default();
        let direct = effects.iter().filter(|effect| matches!(effect, Effect::Grant { direct: true, .. }));
        counts.direct = direct.count();
        let mut lives = metrics.lives.lock().unwrap_or_else(PoisonError::into_inner);
        counts.steps(metrics, &mut lives, (writes, now));
        for head in &writes.created {
            counts.ones.push(lives.workflows.get(head.workflow.as_str(), "").started.clone());
        }
        for lifecycle in &writes.outbox {
            let meter = lives.workflows.get(lifecycle.head.workflow.as_str(), "");
            let ended = match lifecycle.head.status {
                Status::Complete => &meter.complete,
                Status::Errored => &meter.errored,
                Status::Terminated => &meter.terminated,
                Status::Cancelled => &meter.cancelled,
                Status::Open => continue,
            };
            counts.ones.push(ended.clone());
            counts.seconds.push((meter.seconds.clone(), since(lifecycle.at, lifecycle.head.created_at)));
        }
        counts
    }

    /// The outcomes among the entries. Those of an instance stand together, so its head is looked for once.
    fn steps(&mut self, metrics: &Metrics, lives: &mut Lives, (writes, now): (&Writes, Timestamp)) {
        let mut of: Option<(InstanceUid, &WorkflowName)> = None;
        for row in &writes.journal {
            // What a restart keeps is copied as it was, and was counted then.
            if row.entry.at != now {
                continue;
            }
            let attempted = match &row.entry.fact {
                Fact::Attempted(attempted) => attempted,
                Fact::Resolved(resolved) => {
                    self.ones.extend(metrics.decided.of_word(resolved.choice.word()));
                    continue;
                }
                Fact::Retried => {
                    self.ones.extend(metrics.decided.of_word("retry"));
                    continue;
                }
                _ => continue,
            };
            if of.is_none_or(|(uid, _)| uid != row.uid) {
                let mut heads = writes.heads.iter().chain(&writes.created);
                of = heads.find(|head| head.uid == row.uid).map(|head| (head.uid, &head.workflow));
            }
            let Some((_, workflow)) = of else { continue };
            let meter = lives.steps.get(workflow.as_str(), attempted.call.name.as_str());
            self.ones.push(match &attempted.outcome {
                Outcome::Succeeded(_) => meter.succeeded.clone(),
                Outcome::Failed { retry_at: None, .. } => meter.failed.clone(),
                Outcome::Failed { retry_at: Some(_), .. } => meter.retries.clone(),
                Outcome::Unknown { .. } => meter.unknown.clone(),
            });
            let is_over = !matches!(&attempted.outcome, Outcome::Failed { retry_at: Some(_), .. });
            if is_over && attempted.attempt > Attempt::FIRST {
                self.ones.push(meter.retried.clone());
            }
            let hit = match (attempted.marks.found, attempted.marks.reused) {
                (true, _) => "found",
                (false, true) => "reused",
                (false, false) => continue,
            };
            self.ones.extend(metrics.ledger_hits.of_word(hit));
        }
    }

    /// How long what was claimed had been ready.
    pub(super) fn waited(
        &mut self,
        metrics: &Metrics,
        (inputs, verdicts): (&[Input], &[Verdict]),
        (ready, now): (&Ready, Timestamp),
    ) {
        if ready.is_empty() {
            return;
        }
        for (input, verdict) in inputs.iter().zip(verdicts) {
            let (Input::On { instance, what }, Verdict::Decided(Answer::Granted)) = (input, verdict) else {
                continue;
            };
            let (subject, way) = match what {
                What::Claim { .. } => (Subject::INSTANCE, &metrics.to_start.run),
                What::StepClaim { call, .. } => (Subject::step(*call), &metrics.to_start.step),
                _ => continue,
            };
            if let Some(ready_at) = ready.get(&(*instance, subject)) {
                self.seconds.push((way.clone(), since(now, *ready_at)));
            }
        }
    }

    /// Counts it, now that it is committed.
    pub(super) fn count(self, metrics: &Metrics) {
        let direct = metrics.to_start.direct.local();
        (0..self.direct).for_each(|_| direct.observe(0.0));
        direct.flush();
        for one in self.ones {
            one.inc();
        }
        for (histogram, seconds) in self.seconds {
            histogram.observe(seconds);
        }
    }
}

/// Since when the rows were ready that a batch has loaded, if it claims any.
pub(super) fn ready(inputs: &[Input], loaded: &Loaded) -> Ready {
    let claims =
        |input: &Input| matches!(input, Input::On { what: What::Claim { .. } | What::StepClaim { .. }, .. });
    if inputs.iter().any(claims) { loaded.rows.ready.clone() } else { Ready::new() }
}

fn since(now: Timestamp, then: Timestamp) -> f64 {
    now.since(then).as_u64() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    //! Proves that what commits is counted by workflow, and how long a claim had waited. Not: what is not committed, which never gets
    //! here.
    use everstep_protocol::SessionId;

    use crate::{arrival::Arrival, rehearsal, rehearsal::Rehearsal, turn::turn};

    use super::*;

    fn value(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> f64 {
        let families = metrics.registry.gather();
        let family = families.iter().find(|family| family.name() == name).expect("it is a metric");
        let fits = |metric: &&prometheus::proto::Metric| {
            labels.iter().all(|(name, value)| {
                metric.get_label().iter().any(|pair| pair.name() == *name && pair.value() == *value)
            })
        };
        let metric = family.get_metric().iter().find(fits).expect("it has the labels");
        metric.get_counter().get_value()
    }

    #[tokio::test]
    async fn starts_are_counted_by_workflow_once() {
        let coordinator = Rehearsal::new();
        let start = rehearsal::start("one", None);
        let workflow = start.name.workflow.clone();
        let again = rehearsal::start("one", None);
        for start in [start, again] {
            turn(coordinator.shared.clone(), vec![Arrival::new(Input::Start(Box::new(start)))]).await;
        }
        let metrics = &coordinator.shared.metrics;
        let workflow = [("workflow", workflow.as_str())];
        assert!((value(metrics, "everstep_instances_started_total", &workflow) - 1.0).abs() < 0.1);
    }

    #[tokio::test]
    async fn a_claim_says_how_long_it_has_waited() {
        let coordinator = Rehearsal::new();
        let start = rehearsal::start("one", None);
        let uid = start.uid;
        turn(coordinator.shared.clone(), vec![Arrival::new(Input::Start(Box::new(start)))]).await;
        let claim = What::Claim { session: SessionId::generate(), have: None };
        turn(coordinator.shared.clone(), vec![Arrival::new(Input::On { instance: uid, what: claim })]).await;
        let metrics = &coordinator.shared.metrics;
        assert_eq!(metrics.to_start.run.get_sample_count(), 1);
        assert!(metrics.to_start.run.get_sample_sum() < 60.0);
        assert_eq!(metrics.to_start.step.get_sample_count(), 0);
    }
}
