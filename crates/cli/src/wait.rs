//! Waits for an instance's end, by the stream of what goes on in it; of a server that has no streams it asks again and again. Also waits for
//! the end of an operation on many. An outage of the server is sat out for a while.

use std::time::{Duration, Instant};

use everstep_client::{
    Error,
    api::{Answer, Api},
};
use everstep_protocol::{InstanceId, WorkflowName};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    answer::{self, Bulk, Instance},
    failure::Failure,
    show,
};

const ASK_FIRST: Duration = Duration::from_millis(50);
const ASK_LAST: Duration = Duration::from_secs(1);
/// How long the server may be away before the waiting is given up; the instance goes on without us.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until the instance has ended, with a spinner on standard error if that is a terminal.
pub async fn until_ended(client: &Api, workflow: &WorkflowName, id: &InstanceId) -> Result<Answer, Failure> {
    let mut waiting = Waiting { bar: bar(None), asked_a_person: false };
    let outcome = match waiting.listen(client, workflow, id).await {
        Ok(Some(ended)) => Ok(ended),
        // Whatever is wrong with streams there, the instance can be asked for.
        Ok(None) | Err(Error::Alien { .. } | Error::Problem(_)) => waiting.ask(client, workflow, id).await,
        Err(error) => Err(error.into()),
    };
    waiting.bar.finish_and_clear();
    outcome
}

/// Waits until an operation on many instances has ended, with a bar on standard error if that is a terminal: of how many it is known to
/// be about, if that is known.
pub async fn until_operated(client: &Api, id: &InstanceId, of: Option<u64>) -> Result<Answer, Failure> {
    let bar = bar(of);
    let ended = ask_until(
        &bar,
        async || client.bulk(id).await,
        |text| {
            let bulk: Bulk = answer::read(text)?;
            let Bulk { state, matched, looked_at, done, refused, .. } = bulk;
            bar.set_position(matched);
            bar.set_message(format!("{looked_at} looked at, {done} done, {refused} refused"));
            Ok(state != "running")
        },
    )
    .await;
    bar.finish_and_clear();
    ended
}

/// Draws nothing unless standard error is a terminal.
fn bar(of: Option<u64>) -> ProgressBar {
    let (bar, template) = match of {
        Some(of) => (ProgressBar::new(of), "{bar:40} {pos}/{len} {msg} {elapsed}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}"),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is constant"));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// Asks again and again, until an answer says that it is over.
async fn ask_until(
    bar: &ProgressBar,
    ask: impl AsyncFn() -> Result<Answer, Error>,
    mut is_over: impl FnMut(&str) -> Result<bool, Failure>,
) -> Result<Answer, Failure> {
    let mut pause = ASK_FIRST;
    let mut heard = Instant::now();
    loop {
        match ask().await.map_err(Failure::from) {
            Ok(answer) => {
                heard = Instant::now();
                if is_over(&answer.text)? {
                    return Ok(answer);
                }
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

/// What the end of an instance means for a command that waits for it.
pub fn outcome(instance: &Instance) -> Result<(), Failure> {
    match instance.status.as_deref() {
        Some("complete") => Ok(()),
        status => Err(Failure::NotComplete {
            what: format!("instance {}/{}", instance.workflow, instance.id),
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
        let bar = self.bar.clone();
        ask_until(
            &bar,
            async || client.instance(workflow, id).await,
            |text| {
                let instance: Instance = answer::read(text)?;
                self.show(&instance);
                Ok(instance.ended_at.is_some())
            },
        )
        .await
    }
}
