//! `everstep attention`.

use everstep_client::{
    Error,
    api::{Answer, Questions},
};
use serde_json::{Map, json, value::RawValue};
use uuid::Uuid;

use super::{Asking, print, start::read_json};
use crate::{
    answer::{self, Instance, Question, QuestionList},
    args::{
        AnswerArgs, AttentionCommand, AttentionListArgs, Format, QuestionFilter, ResolveAllArgs, ResolveArgs,
    },
    failure::Failure,
    show,
};

/// How many questions are read at once.
const PAGE: u32 = 200;
/// What it says if somebody else was faster: answered, over, or deleted.
const PASSED_OVER: [&str; 4] = ["not_asked", "not_parked", "question_not_found", "not_found"];

pub(super) async fn run(asking: &Asking, command: AttentionCommand) -> Result<(), Failure> {
    match command {
        AttentionCommand::List(AttentionListArgs { which, limit, after }) => {
            let questions = Questions { limit, after, ..meant(which) };
            let list = asking.client.attention(&questions).await?;
            asking.print(&list, |text| Ok(show::questions(&answer::read::<QuestionList>(text)?)))
        }
        AttentionCommand::Get { instance, question } => {
            let answer =
                asking.client.questions(&instance.workflow, &instance.id, question.as_deref()).await?;
            asking.print(&answer, |text| match question {
                None => Ok(show::questions(&answer::read::<QuestionList>(text)?)),
                Some(_) => Ok(show::question(&answer::read::<Question>(text)?)),
            })
        }
        AttentionCommand::Resolve(args) => resolve(asking, *args).await,
        AttentionCommand::ResolveAll(args) => resolve_all(asking, *args).await,
    }
}

fn meant(which: QuestionFilter) -> Questions {
    let QuestionFilter { workflow, kind, older_than } = which;
    Questions { workflow, kind, older_than, ..Questions::default() }
}

async fn resolve(asking: &Asking, args: ResolveArgs) -> Result<(), Failure> {
    let ResolveArgs { instance, question, answer } = args;
    let (body, key) = said(answer)?;
    let advice = format!("with --key {key} trying again is safe: it is answered once");
    let answered = asking.client.resolve(&instance.workflow, &instance.id, &question, &key, &body).await;
    let answered = answered.map_err(|error| Failure::advising(error, &advice))?;
    asking.print(&answered, |text| Ok(show::instance(&answer::read::<Instance>(text)?)))
}

/// The body of an answer, and its key: always chosen here, so that a lost answer can be repeated safely.
fn said(args: AnswerArgs) -> Result<(Box<RawValue>, String), Failure> {
    let AnswerArgs { choice, result, message, by, why, key } = args;
    let mut body = Map::new();
    let texts = [("choice", Some(choice)), ("message", message), ("by", by), ("why", why)];
    body.extend(texts.into_iter().filter_map(|(field, text)| Some((field.to_owned(), text?.into()))));
    let mut body = serde_json::to_string(&body).map_err(anyhow::Error::from)?;
    if result.is_some() {
        // As it is written: every digit is kept.
        let output = read_json("--result", result.as_deref())?;
        body.truncate(body.len() - 1);
        body = format!("{body},\"output\":{}}}", output.get());
    }
    let body = RawValue::from_string(body).map_err(anyhow::Error::from)?;
    Ok((body, key.unwrap_or_else(|| Uuid::now_v7().to_string())))
}

/// Answers one after another what can be answered like this. What somebody else has answered meanwhile is passed over; what fails ends
/// it.
async fn resolve_all(asking: &Asking, args: ResolveAllArgs) -> Result<(), Failure> {
    let ResolveAllArgs { answer, which, dry_run } = args;
    let choice = answer.choice.clone();
    let (body, key) = said(answer)?;
    let advice = format!("with --key {key} trying again is safe: each is answered once");
    let mut page = Questions { limit: Some(PAGE), ..meant(which) };
    let mut outcomes = Vec::new();
    let ended = loop {
        let list = match asking.client.attention(&page).await {
            Ok(list) => list,
            Err(error) => break Err(Failure::advising(error, &advice)),
        };
        let QuestionList { questions, next } = answer::read(&list.text)?;
        let mut failed = None;
        for question in questions.into_iter().filter(|question| question.choices.contains(&choice)) {
            // What is asked again later is another question.
            let key = format!("{key}.{}.{}", question.question, question.since);
            let outcome = if dry_run {
                Ok("would be answered")
            } else {
                one(asking, &question, &key, &body, &advice).await
            };
            match outcome {
                Ok(outcome) => outcomes.push((question, outcome)),
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            }
        }
        match (failed, next) {
            (Some(failure), _) => break Err(failure),
            (None, None) => break Ok(()),
            (None, Some(next)) => page.after = Some(next),
        }
    };
    // What was answered was, whatever has failed after it.
    match asking.format {
        Format::Json | Format::Yaml => {
            let lines = outcomes.iter().map(|(question, outcome)| {
                let Question { workflow, id, question, .. } = question;
                json!({"workflow": workflow, "id": id, "question": question, "outcome": outcome})
            });
            let text = json!({ "questions": lines.collect::<Vec<_>>() }).to_string();
            asking.print(&Answer { status: 200, text }, |_| Ok(String::new()))?;
        }
        Format::Table => print(&show::answered(&outcomes))?,
    }
    ended
}

/// Answers one of many.
async fn one(
    asking: &Asking,
    question: &Question,
    key: &str,
    body: &RawValue,
    advice: &str,
) -> Result<&'static str, Failure> {
    let workflow = question.workflow.parse().map_err(anyhow::Error::from)?;
    let id = question.id.parse().map_err(anyhow::Error::from)?;
    match asking.client.resolve(&workflow, &id, &question.question, key, &body).await {
        Ok(_) => Ok("answered"),
        Err(Error::Problem(problem)) if PASSED_OVER.contains(&problem.code.as_str()) => {
            Ok("not asked any more")
        }
        Err(error) => Err(Failure::advising(error, advice)),
    }
}
