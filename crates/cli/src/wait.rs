//! Waits for an instance's end, by the stream of what goes on in it; of a server that has no streams it asks again and again. An outage of
//! the server is sat out for a while.

use std::time::{Duration, Instant};

use everstep_client::{
    Error,
    api::{Answer, Api},
};
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
    let mut waiting = Waiting { bar, asked_a_person: false };
    let outcome = match waiting.listen(client, workflow, id).await {
        Ok(Some(ended)) => Ok(ended),
        // Whatever is wrong with streams there, the instance can be asked for.
        Ok(None) | Err(Error::Alien { .. } | Error::Problem(_)) => waiting.ask(client, workflow, id).await,
        Err(error) => Err(error.into()),
    };
    waiting.bar.finish_and_clear();
    outcome
}

/// What the end of an instance means for a command that waits for it.
pub fn outcome(instance: &Instance) -> Result<(), Failure> {
    match instance.status.as_deref() {
        Some("complete") => Ok(()),
        status => Err(Failure::NotComplete {
            instance: format!("{}/{}", instance.workflow, instance.id),
            status: status.unwrap_or("with a status that is not known").to_owned(),
            why: Some(show::why(instance)).filter(|why| !why.is_empty()),
        }),
    }
}

struct Waiting {
    bar: ProgressBar,
    asked_a_person: bool,
}

impl Waiting {
    /// The ended instance; none if the stream is over without it.
    async fn listen(
        &mut self,
        client: &Api,
        workflow: &WorkflowName,
        id: &InstanceId,
    ) -> Result<Option<Answer>, Error> {
        let mut watch = client.watch(workflow, id, Some("now")).patient_for(PATIENCE);
        while let Some(event) = watch.next().await? {
            match event.kind.as_str() {
                "end" => return Ok(Some(Answer { status: 200, text: event.data })),
                "instance" => {
                    if let Ok(instance) = answer::read::<Instance>(&event.data) {
                        self.show(&instance);
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn show(&mut self, instance: &Instance) {
        if instance.attention.is_some() && !self.asked_a_person {
            self.asked_a_person = true;
            self.bar.suspend(|| eprintln!("attention: {}", show::why(instance)));
        }
        let status = instance.status.as_deref().unwrap_or("not known");
        self.bar.set_message(format!("{} {}", show::plain(status), show::why(instance)));
    }

    async fn ask(
        &mut self,
        client: &Api,
        workflow: &WorkflowName,
        id: &InstanceId,
    ) -> Result<Answer, Failure> {
        let mut pause = ASK_FIRST;
        let mut heard = Instant::now();
        loop {
            match client.instance(workflow, id).await.map_err(Failure::from) {
                Ok(answer) => {
                    heard = Instant::now();
                    let instance: Instance = answer::read(&answer.text)?;
                    if instance.ended_at.is_some() {
                        return Ok(answer);
                    }
                    self.show(&instance);
                }
                Err(Failure::Unreachable { .. }) if heard.elapsed() < PATIENCE => {
                    self.bar.set_message("no answer");
                }
                Err(Failure::Problem(problem)) if problem.retry_safe && heard.elapsed() < PATIENCE => {
                    self.bar.set_message(show::plain(&problem.detail));
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(ASK_LAST);
        }
    }
}
