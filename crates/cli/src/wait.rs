//! Waits for an instance's end, by asking again and again. An outage of the server is sat out for a while.

use std::time::{Duration, Instant};

use everstep_client::api::{Answer, Api};
use everstep_protocol::{InstanceId, WorkflowName};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    answer::{self, Instance},
    failure::Failure,
    show,
};

const ASK_FIRST: Duration = Duration::from_millis(50);
const ASK_LAST: Duration = Duration::from_secs(1);
/// How long the server may be away before the waiting is given up; the instance goes on without us.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the instance has ended, with a spinner on standard error if that is a terminal.
pub async fn until_ended(client: &Api, workflow: &WorkflowName, id: &InstanceId) -> Result<Answer, Failure> {
    // Draws nothing unless standard error is a terminal.
    let bar = ProgressBar::new_spinner();
    bar.set_style(
        ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("the template is constant"),
    );
    bar.enable_steady_tick(Duration::from_millis(100));
    let outcome = ask(client, workflow, id, &bar).await;
    bar.finish_and_clear();
    outcome
}

async fn ask(
    client: &Api,
    workflow: &WorkflowName,
    id: &InstanceId,
    bar: &ProgressBar,
) -> Result<Answer, Failure> {
    let mut pause = ASK_FIRST;
    let mut heard = Instant::now();
    let mut asked_a_person = false;
    loop {
        match client.instance(workflow, id).await.map_err(Failure::from) {
            Ok(answer) => {
                heard = Instant::now();
                let instance: Instance = answer::read(&answer.text)?;
                if instance.ended_at.is_some() {
                    return Ok(answer);
                }
                if instance.attention.is_some() && !asked_a_person {
                    asked_a_person = true;
                    bar.suspend(|| eprintln!("attention: {}", show::why(&instance)));
                }
                let status = instance.status.as_deref().unwrap_or("not known");
                bar.set_message(format!("{} {}", show::plain(status), show::why(&instance)));
            }
            Err(Failure::Unreachable { .. }) if heard.elapsed() < PATIENCE => bar.set_message("no answer"),
            Err(Failure::Problem(problem)) if problem.retry_safe && heard.elapsed() < PATIENCE => {
                bar.set_message(show::plain(&problem.detail));
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(ASK_LAST);
    }
}
