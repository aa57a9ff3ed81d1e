//! Questions about attempts of which nobody knows whether they took effect: answered by a person (rule L8).

use everstep_engine::{
    Answer, What,
    decide::{Rekeying, Resolution},
    start::NameKey,
};
use everstep_protocol::{
    Call, InstanceUid, Position, Run,
    journal::{Choice, Entry, Fact, Outcome, QuestionId, Resolved},
    limits::PART_BYTES,
};
use everstep_store::{InstanceView, Range};

use super::Handle;
use crate::error::Error;

/// How many parts of a journal are read for what has become of a question.
const PARTS_MAX: usize = 64;

/// What a person decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What is to be taken for the outcome.
    pub choice: Choice,
    /// Who decides, as given.
    pub by: Option<String>,
    /// Why.
    pub why: Option<String>,
}

impl Handle {
    /// Answers a question. The same operation again gets its first answer.
    ///
    /// Errors: [`Error::NotAsked`] with what has become of the question if it is not open; nothing has changed.
    pub async fn resolve(
        &self,
        name: NameKey,
        operation: String,
        question: QuestionId,
        decision: Decision,
    ) -> Result<Answer, Error> {
        if let Choice::Done(output) = &decision.choice
            && output.len() as u64 > self.limits().output_bytes
        {
            let (bytes, limit) = (output.len(), self.limits().output_bytes);
            return Err(refused(format!("the output is {bytes} bytes of JSON, the limit is {limit}")));
        }
        let Some(view) = self.shared.store.instance(&name).await? else { return Ok(Answer::NotFound) };
        let call = self.asked(view.uid, question).await?;
        let Decision { choice, by, why } = decision;
        let resolution = Resolution { question, call: call.as_ref().map(Call::hash), choice, by, why };
        let what = What::Resolve { operation, resolution: Box::new(resolution) };
        let answer = self.of("answer a question", view.uid, what).await?;
        if answer == Answer::NotAsked {
            return Err(Error::NotAsked(self.became(&view, question, call.as_ref()).await?));
        }
        Ok(answer)
    }

    /// Ends an instance that is parked: the other answer to its question, beside [`retry`](Self::retry). One that goes on meanwhile is
    /// left alone.
    pub async fn abandon(
        &self,
        name: &NameKey,
        operation: String,
        reason: Option<String>,
    ) -> Result<Answer, Error> {
        self.on("end a parked instance", name, What::Abandon { operation, reason }).await
    }

    /// Lets an instance that is parked for a step's other input go on, under the key that somebody chose (rule P8).
    pub async fn rekey(
        &self,
        name: &NameKey,
        operation: String,
        rekeying: Rekeying,
    ) -> Result<Answer, Error> {
        let rekeying = Box::new(rekeying);
        self.on("choose a step's key", name, What::Rekey { operation, rekeying }).await
    }

    /// The call that an entry asks about; none if it asks nothing.
    async fn asked(&self, uid: InstanceUid, question: QuestionId) -> Result<Option<Call>, Error> {
        let before = Position(question.position.0.saturating_sub(1));
        let entry = self.part(uid, question.run, before).await?.into_iter().next();
        let entry = entry.filter(|entry| entry.position == question.position);
        Ok(entry.and_then(|entry| match entry.fact {
            Fact::Attempted(attempted)
                if matches!(attempted.outcome, Outcome::Unknown { asks: true, .. }) =>
            {
                Some(attempted.call)
            }
            _ => None,
        }))
    }

    /// What has become of a question that is not open.
    async fn became(
        &self,
        view: &InstanceView,
        question: QuestionId,
        call: Option<&Call>,
    ) -> Result<String, Error> {
        let Some(call) = call else {
            return Ok(format!("nothing was ever asked under {question}"));
        };
        let mut after = question.position;
        for _ in 0..PARTS_MAX {
            let part = self.part(view.uid, question.run, after).await?;
            let Some(last) = part.last() else { break };
            after = last.position;
            if let Some(became) = part.iter().find_map(|entry| ended(entry, call)) {
                return Ok(became);
            }
        }
        Ok(if question.run < view.run {
            "the instance was run again since".to_owned()
        } else {
            "the call waits for no answer any more".to_owned()
        })
    }

    async fn part(&self, uid: InstanceUid, run: Run, after: Position) -> Result<Vec<Entry>, Error> {
        let range = Range { uid, run, after };
        Ok(self.shared.store.journal(vec![range], PART_BYTES).await?.pop().unwrap_or_default())
    }
}

/// What ended the wait for a person, in words.
fn ended(entry: &Entry, call: &Call) -> Option<String> {
    let what = match &entry.fact {
        Fact::Resolved(Resolved { call: of, choice, by, .. }) if of == call => {
            let by = by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            format!("it was answered{by}: {}", choice.word())
        }
        Fact::Closed(closed) if closed.call == *call => "the workflow has dropped the call".to_owned(),
        Fact::Cancelled(_) => "the instance was cancelled".to_owned(),
        Fact::Rollback(_) => "the instance was ended with a rollback".to_owned(),
        Fact::Continued(_) => "the instance went on as its next generation".to_owned(),
        Fact::Ended(_) => "the instance has ended".to_owned(),
        _ => return None,
    };
    Some(format!("{what}, at {}", entry.at))
}

fn refused(reason: String) -> Error {
    Error::Store(everstep_store::Error::new(everstep_store::ErrorKind::Refused, "check an answer", reason))
}
