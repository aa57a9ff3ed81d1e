//! What an instance asks people, and their answers (rule L8).

use everstep_coordinator::Decision;
use everstep_engine::rows::Question;
use everstep_protocol::{
    Call, Failure, FailureKind, Payload,
    journal::{Choice, QuestionId},
};
use everstep_store::StatusWord;
use serde::Serialize;

use super::Run;
use crate::KitError;

/// A question about a step of which nobody knows whether it took effect.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Under what it is answered.
    pub id: QuestionId,
    /// The step.
    pub call: Call,
    /// What is known, with the late report of its worker if one came.
    pub question: Question,
}

impl Run {
    /// What it asks about its steps now.
    pub async fn questions(&self) -> Result<Vec<Asked>, KitError> {
        let view = self.view().await?;
        let asked = view.waiting.into_iter().filter_map(|wait| {
            let question = *wait.question?;
            let id = QuestionId { run: view.run, position: question.position };
            Some(Asked { id, call: wait.call, question })
        });
        Ok(asked.collect())
    }

    /// Waits until it asks about a step, and gives the first such question. Other branches may go on meanwhile.
    pub async fn asked(&self) -> Result<Asked, KitError> {
        let wanted = format!("a question of {self}");
        let check = async || {
            if let Some(asked) = self.questions().await?.into_iter().next() {
                let view = self.view().await?;
                if view.status == StatusWord::Attention {
                    self.kit.see(view.uid);
                }
                return Ok(Some(asked));
            }
            self.still_open(&self.view().await?, "a question")?;
            Ok(None)
        };
        self.kit.system.wait(self.kit.mover, &wanted, check).await
    }

    /// Answers a question: the step took effect, and this is its output.
    ///
    /// Errors: [`KitError::Invalid`] with what has become of the question if it is not open; nothing has changed. So do all answers.
    pub async fn resolve_done<T: Serialize + ?Sized>(
        &self,
        question: QuestionId,
        output: &T,
    ) -> Result<(), KitError> {
        let output = Payload::encode(output).map_err(KitError::invalid)?;
        self.decide(question, Choice::Done(output)).await
    }

    /// Answers a question: the step is to be run again.
    pub async fn resolve_again(&self, question: QuestionId) -> Result<(), KitError> {
        self.decide(question, Choice::Again).await
    }

    /// Answers a question: the step has failed.
    pub async fn resolve_failed(&self, question: QuestionId, message: &str) -> Result<(), KitError> {
        let failure = Failure { permanent: true, ..Failure::new(FailureKind::Error, message) };
        self.decide(question, Choice::Fail(failure)).await
    }

    async fn decide(&self, question: QuestionId, choice: Choice) -> Result<(), KitError> {
        let decision = Decision { choice, by: Some("the test".to_owned()), why: None };
        let handle = &self.kit.system.handle;
        let asked = handle.resolve(self.name.clone(), self.operation(), question, decision);
        self.done("resolve", asked.await.map_err(KitError::invalid)?)
    }
}
