//! What a batch says of instances and steps, for the metrics: gathered while it is decided, counted once it is committed. One lock and
//! a few vectors a batch, nothing a step.

use std::{collections::HashMap, sync::PoisonError};

use everstep_engine::{
    Answer, Effect, Input, Status, What, Writes,
    batch::{Loaded, Verdict},
    rows::Subject,
};
use everstep_protocol::{
    Attempt, CallName, InstanceUid, Timestamp, WorkflowName,
    journal::{Fact, Outcome},
};
use prometheus::{Histogram, IntCounter};

use crate::metrics::Metrics;

/// What is to be counted, once it is committed: names get their series only then, for there are only so many, and what is rolled
/// back shall take none.
#[derive(Debug, Default)]
pub(super) struct Counts {
    ones: Vec<IntCounter>,
    seconds: Vec<(Histogram, f64)>,
    direct: usize,
    started: Vec<WorkflowName>,
    ended: Vec<(WorkflowName, Status, f64)>,
    steps: Vec<Step>,
}

/// A step's outcome.
#[derive(Debug)]
struct Step {
    workflow: WorkflowName,
    name: CallName,
    end: End,
    /// It is over, and took more than one attempt.
    retried: bool,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Succeeded,
    Failed,
    Retries,
    Unknown,
}

/// Since when what this batch may lease was ready. Empty where nothing is claimed.
pub(super) type Ready = HashMap<(InstanceUid, Subject), Timestamp>;

impl Counts {
    /// Of a batch that was decided, from what it will write and send.
    pub(super) fn of(metrics: &Metrics, (writes, now): (&Writes, Timestamp), effects: &[Effect]) -> Self {
        let mut counts = Self::default();
        let direct = effects.iter().filter(|effect| matches!(effect, Effect::Grant { direct: true, .. }));
        counts.direct = direct.count();
        counts.steps(metrics, (writes, now));
        counts.started.extend(writes.created.iter().map(|head| head.workflow.clone()));
        for lifecycle in &writes.outbox {
            let head = &lifecycle.head;
            if head.status.is_ended() {
                counts.ended.push((head.workflow.clone(), head.status, since(lifecycle.at, head.created_at)));
            }
        }
        counts
    }

    /// The outcomes among the entries.
    fn steps(&mut self, metrics: &Metrics, (writes, now): (&Writes, Timestamp)) {
        let mut workflows: Option<HashMap<InstanceUid, &WorkflowName>> = None;
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
                Fact::Rekeyed(rekeyed) => {
                    self.ones.extend(metrics.decided.of_word(rekeyed.choice().word()));
                    continue;
                }
                Fact::Retried => {
                    self.ones.extend(metrics.decided.of_word("retry"));
                    continue;
                }
                _ => continue,
            };
            let workflows = workflows.get_or_insert_with(|| {
                writes.heads.iter().chain(&writes.created).map(|head| (head.uid, &head.workflow)).collect()
            });
            let Some(workflow) = workflows.get(&row.uid) else { continue };
            let end = match &attempted.outcome {
                Outcome::Succeeded(_) => End::Succeeded,
                Outcome::Failed { retry_at: None, .. } => End::Failed,
                Outcome::Failed { retry_at: Some(_), .. } => End::Retries,
                Outcome::Unknown { .. } => End::Unknown,
            };
            self.steps.push(Step {
                workflow: (*workflow).clone(),
                name: attempted.call.name.clone(),
                end,
                retried: !matches!(end, End::Retries) && attempted.attempt > Attempt::FIRST,
            });
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
            let Some(subject) = claimed(what) else { continue };
            let is_instance = subject == Subject::INSTANCE;
            let way = if is_instance { &metrics.to_start.run } else { &metrics.to_start.step };
            if let Some(ready_at) = ready.get(&(*instance, subject)) {
                self.seconds.push((way.clone(), since(now, *ready_at)));
            }
        }
    }

    /// Counts it, now that it is committed.
    pub(super) fn count(self, metrics: &Metrics) {
        self.named(metrics);
        for one in self.ones {
            one.inc();
        }
        for (histogram, seconds) in self.seconds {
            histogram.observe(seconds);
        }
        if self.direct == 0 {
            return;
        }
        let direct = metrics.to_start.direct.local();
        (0..self.direct).for_each(|_| direct.observe(0.0));
        direct.flush();
    }

    /// What is counted by names.
    fn named(&self, metrics: &Metrics) {
        if self.started.is_empty() && self.ended.is_empty() && self.steps.is_empty() {
            return;
        }
        let mut lives = metrics.lives.lock().unwrap_or_else(PoisonError::into_inner);
        for workflow in &self.started {
            lives.workflows.get(workflow.as_str(), "").started.inc();
        }
        for (workflow, status, seconds) in &self.ended {
            let meter = lives.workflows.get(workflow.as_str(), "");
            match status {
                Status::Complete => meter.complete.inc(),
                Status::Errored => meter.errored.inc(),
                Status::Terminated => meter.terminated.inc(),
                Status::Cancelled => meter.cancelled.inc(),
                Status::Open => continue,
            }
            meter.seconds.observe(*seconds);
        }
        for Step { workflow, name, end, retried } in &self.steps {
            let meter = lives.steps.get(workflow.as_str(), name.as_str());
            match end {
                End::Succeeded => meter.succeeded.inc(),
                End::Failed => meter.failed.inc(),
                End::Retries => meter.retries.inc(),
                End::Unknown => meter.unknown.inc(),
            }
            meter.retried.inc_by(u64::from(*retried));
        }
    }
}

/// Since when the rows were ready that a batch has loaded and claims.
pub(super) fn ready(inputs: &[Input], loaded: &Loaded) -> Ready {
    let rows = inputs.iter().filter_map(|input| {
        let Input::On { instance, what } = input else { return None };
        let key = (*instance, claimed(what)?);
        Some((key, *loaded.rows.ready.get(&key)?))
    });
    rows.collect()
}

/// What of an instance is claimed, if anything.
const fn claimed(what: &What) -> Option<Subject> {
    match what {
        What::Claim { .. } => Some(Subject::INSTANCE),
        What::StepClaim { call, .. } => Some(Subject::step(*call)),
        _ => None,
    }
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
    async fn what_is_not_committed_takes_no_series() {
        let coordinator = Rehearsal::new();
        let uid = coordinator.start("one", None).await;
        let mut head = coordinator.head(uid).await;
        head.workflow = WorkflowName::new("never").expect("a name");
        let metrics = &coordinator.shared.metrics;
        let writes = Writes { created: vec![head], ..Writes::default() };
        let counts = Counts::of(metrics, (&writes, Timestamp::default()), &[]);
        let series = || {
            let families = metrics.registry.gather();
            let of = families.iter().find(|family| family.name() == "everstep_instances_started_total");
            of.map_or(0, |family| family.get_metric().len())
        };
        // That of all others is there from the beginning, and that of the first start.
        assert_eq!(series(), 2);
        counts.count(metrics);
        assert_eq!(series(), 3);
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
