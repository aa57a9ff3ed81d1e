//! One operation on many instances, named by their ids or found by a bulk operation (rule P33).

use everstep_engine::{
    Answer, Operated, What,
    bulk::{Act, Again},
    start::NameKey,
};
use everstep_protocol::{InstanceId, InstanceUid, Namespace, WorkflowName};
use futures::StreamExt;

use super::{
    Handle,
    control::{Preparation, RESTARTING},
};
use crate::error::{Error, ErrorKind};

/// The most ids of one list.
pub const IDS_MAX: usize = 1_000;
/// Instances that are operated at once.
const AT_ONCE: usize = 100;
/// The same where each takes its whole journal into memory.
const JOURNALS_AT_ONCE: usize = 4;

/// An instance that is operated.
#[derive(Clone, Debug)]
pub(crate) struct Whom {
    /// Its name.
    pub(crate) name: NameKey,
    /// The very instance that was found under it; none for whoever has the name.
    pub(crate) uid: Option<InstanceUid>,
}

impl Whom {
    /// Whoever has this name.
    pub(crate) const fn named(name: NameKey) -> Self {
        Self { name, uid: None }
    }
}

/// What became of one id of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Each {
    /// It was done, or there was nothing to do.
    Done,
    /// There is no such instance.
    NotFound,
    /// Its status forbids it.
    NotAllowed {
        /// The status.
        status: &'static str,
    },
    /// It is not parked, and the operation is for those that are.
    NotParked,
    /// It moved on while that was prepared. Trying again is safe.
    Moved,
    /// It was refused for another reason. Trying again gives the same answer.
    Refused {
        /// Why.
        reason: String,
    },
    /// Nobody knows yet. Trying again with the same operation id tells.
    Unknown,
}

impl Handle {
    /// Does one operation to each of these instances of a workflow, and says in order what became of each. An id that is there twice
    /// is operated once, and its outcome told twice. The same operation id again gets the first answers.
    ///
    /// Errors: [`Error::IdsSize`]; nothing was done.
    pub async fn operate_each(
        &self,
        namespace: &Namespace,
        workflow: &WorkflowName,
        ids: &[InstanceId],
        operation: &str,
        act: &Act,
    ) -> Result<Vec<Each>, Error> {
        if !(1..=IDS_MAX).contains(&ids.len()) {
            return Err(Error::IdsSize(ids.len()));
        }
        let mut places = std::collections::HashMap::new();
        let mut whom = Vec::new();
        for id in ids {
            places.entry(id).or_insert_with(|| {
                let (namespace, workflow) = (namespace.clone(), workflow.clone());
                whom.push(Whom::named(NameKey { namespace, workflow, id: id.clone() }));
                whom.len() - 1
            });
        }
        let answers = self.act_on(whom, &format!("ids:{operation}"), act).await;
        let each: Vec<Each> = answers.into_iter().map(each).collect();
        Ok(ids.iter().map(|id| each[places[id]].clone()).collect())
    }

    /// Does an operation to each of these, under an id by which it is done once, and answers in order.
    pub(crate) async fn act_on(
        &self,
        whom: Vec<Whom>,
        operation: &str,
        act: &Act,
    ) -> Vec<Result<Answer, Error>> {
        let at_once = if act.reads_journals() { JOURNALS_AT_ONCE } else { AT_ONCE };
        let answers = whom.into_iter().map(|whom| self.act(whom, operation.to_owned(), act.clone()));
        futures::stream::iter(answers).buffered(at_once).collect().await
    }

    /// Does an operation. Another instance that has got the name of the one that was found meanwhile is none of its business.
    pub(crate) async fn act(&self, whom: Whom, operation: String, act: Act) -> Result<Answer, Error> {
        let (doing, deletes) = (doing(&act), matches!(act, Act::Delete { .. }));
        let what = match act {
            Act::Pause => What::Pause { operation },
            Act::Resume => What::Resume { operation },
            Act::Cancel { reason, within, rollback } => {
                let within = within.unwrap_or(self.shared.settings.cancel_within);
                What::Cancel { operation, reason, within, rollback }
            }
            Act::Terminate { reason, rollback: true } => What::Rollback { operation, reason },
            Act::Terminate { reason, rollback: false } => What::Terminate { operation, reason },
            Act::Retry => What::Retry { operation },
            Act::Restart { how: Again::Whole } => What::Restart { operation, prepared: None },
            Act::Restart { how: Again::From(call) } => {
                return self.restart_prepared(&whom, operation, &Preparation::From(call)).await;
            }
            Act::Restart { how: Again::Reuse } => {
                return self.restart_prepared(&whom, operation, &Preparation::Reuse).await;
            }
            Act::Delete { terminate } => What::Delete { operation, terminate },
        };
        let answer = match whom.uid {
            Some(instance) => self.of(doing, instance, what).await?,
            None => self.on(doing, &whom.name, what).await?,
        };
        if deletes {
            self.shared.sweep.notify_one();
        }
        Ok(answer)
    }
}

const fn doing(act: &Act) -> &'static str {
    match act {
        Act::Pause => "pause an instance",
        Act::Resume => "resume an instance",
        Act::Cancel { .. } => "cancel an instance",
        Act::Terminate { rollback: true, .. } => "roll an instance back",
        Act::Terminate { rollback: false, .. } => "terminate an instance",
        Act::Retry => "retry an instance",
        Act::Restart { .. } => RESTARTING,
        Act::Delete { .. } => "delete an instance",
    }
}

fn each(answer: Result<Answer, Error>) -> Each {
    match answer {
        Ok(answer) => match answer.operated() {
            Some(Operated::Done) => Each::Done,
            Some(Operated::NotFound) => Each::NotFound,
            Some(Operated::NotAllowed(status)) => Each::NotAllowed { status },
            Some(Operated::NotParked) => Each::NotParked,
            Some(Operated::Moved) => Each::Moved,
            Some(Operated::NotAsked) => Each::Refused { reason: "the question is not open".to_owned() },
            None => Each::Unknown,
        },
        Err(error) if error.kind() == ErrorKind::Refused => Each::Refused { reason: error.to_string() },
        Err(error) => {
            tracing::warn!(%error, "whether one of many instances was operated is not known");
            Each::Unknown
        }
    }
}
