//! The person who decides where nobody knows what came of a call. This one can ask the service's own counts.

use std::{collections::HashSet, time::Duration};

use anyhow::{Context as _, Result};
use everstep_client::{
    Error,
    api::{Api, Questions},
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    effects::{Class, Effects},
    prove::effect,
};

const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Questions at once.
const PAGE: u32 = 200;

#[derive(Debug, Deserialize)]
struct Page {
    questions: Vec<Question>,
}

#[derive(Debug, Deserialize)]
struct Question {
    workflow: String,
    id: String,
    /// Under which it is answered.
    #[serde(rename = "question")]
    number: String,
    kind: String,
    since: String,
    call: Option<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    name: String,
    count: u32,
}

/// Answers questions, for as long as it is asked to.
pub(crate) struct Person {
    /// The coordinators.
    pub(crate) desks: Vec<Api>,
    pub(crate) effects: Effects,
    /// What it has decided.
    pub(crate) decided: HashSet<(String, String)>,
}

impl Person {
    /// Looks at what is asked and answers it, at whichever coordinator is alive.
    pub(crate) async fn works(&mut self) -> Result<()> {
        tokio::time::sleep(LOOKS_EVERY).await;
        let list = Questions { limit: Some(PAGE), ..Questions::default() };
        for desk in self.desks.clone() {
            let Ok(answer) = desk.attention(&list).await else { continue };
            let page: Page = serde_json::from_str(&answer.text).context("the list of questions")?;
            for question in page.questions {
                self.decides(&desk, &question).await?;
            }
            break;
        }
        Ok(())
    }

    async fn decides(&mut self, desk: &Api, question: &Question) -> Result<()> {
        let body = match &question.call {
            Some(call) => {
                let effect = effect(&question.id, number_of(call));
                if self.effects.count(&effect) > 0 {
                    json!({ "choice": "done", "output": effect, "by": "the proof", "why": "the service has it" })
                } else {
                    json!({ "choice": "again", "by": "the proof", "why": "the service knows nothing of it" })
                }
            }
            None => json!({ "choice": "retry" }),
        };
        let (workflow, id) = (question.workflow.parse()?, question.id.parse()?);
        // The same answer under the same name is given once; what is asked again, at another time, is another question.
        let name = format!("{}-{}-{}", question.id, question.number, question.since);
        match desk.resolve(&workflow, &id, &question.number, &name, &body).await {
            Ok(_) => {
                if question.kind == "unknown_outcome" {
                    self.decided.insert((question.id.clone(), question.number.clone()));
                }
                Ok(())
            }
            // Its coordinator is gone, or an earlier answer was taken: the next look tells.
            Err(Error::Unreachable { .. } | Error::Problem(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Which step of its instance a call is: names come by turns.
fn number_of(call: &Call) -> u32 {
    let first = Class::ALL.iter().position(|class| class.word() == call.name).unwrap_or(0);
    (first + (call.count as usize - 1) * Class::ALL.len()) as u32
}
