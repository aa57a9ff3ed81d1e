//! The workflow, its steps, and the places at which its worker dies.

use std::{
    fs::OpenOptions,
    io::Write as _,
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use everstep::{Error, Retry, Step, StepCall, Workflow};
use reqwest::{RequestBuilder, Response, StatusCode};

use crate::{Worker, effects::Class, tally::Place};

/// Steps of one instance.
pub(crate) const STEPS: u32 = 10;
/// From this one on they are planned.
const PLANNED: u32 = 7;

static WORKER: OnceLock<Worker> = OnceLock::new();
static HTTP: OnceLock<reqwest::Client> = OnceLock::new();
static FATE: OnceLock<Fate> = OnceLock::new();

/// When and where this worker dies: at the first passing of the place after that moment.
struct Fate {
    at: Instant,
    place: Place,
}

impl Fate {
    fn new(life: u64) -> Self {
        let lives = Duration::from_millis(rand::random_range(life / 2..=life * 3 / 2));
        Self {
            at: Instant::now() + lives,
            place: Place::OF_WORKERS[rand::random_range(0..Place::OF_WORKERS.len())],
        }
    }
}

fn worker() -> &'static Worker {
    WORKER.get().expect("it was told first")
}

/// Serves the workflow until it dies.
pub(crate) async fn serve(worker: Worker) -> anyhow::Result<()> {
    let amqp = worker.amqp.clone();
    HTTP.get_or_init(|| reqwest::Client::builder().no_proxy().build().expect("a client"));
    FATE.get_or_init(|| Fate::new(worker.life));
    WORKER.set(worker).ok().context("it is told once")?;
    Ok(everstep::fleet(amqp).workflow(prove).run().await?)
}

/// Steps of all classes by turns, each of which is to have one effect; the last of them are the actions of a plan.
#[everstep::workflow]
async fn prove(cx: Workflow, _number: u32) -> Result<u32, Error> {
    for number in 0..PLANNED {
        dies(Place::BeforeTheIntent);
        let step = cx.step(Class::of(number).word(), effect(cx.instance_id(), number), call);
        classified(step, number).await?;
        dies(Place::AfterTheRecord);
    }
    let think = async |_: Step, ()| Ok::<_, Error>((PLANNED..STEPS).collect::<Vec<u32>>());
    for action in &cx.plan("think", (), think).await? {
        let step = action.step(Class::of(**action).word(), effect(cx.instance_id(), **action), call);
        classified(step, **action).await?;
        dies(Place::BetweenActions);
    }
    Ok(STEPS)
}

/// The step with its class, unless a fault is planted.
fn classified(step: StepCall<String>, number: u32) -> StepCall<String> {
    let step = step.retry(Retry::constant("200 ms").unlimited());
    match Class::of(number) {
        Class::Lookup if !worker().planted => step.look_first(look),
        Class::Once if !worker().planted => step.at_most_once(),
        Class::Keyed | Class::Lookup | Class::Once => step,
    }
}

/// What one step is to do, as the service counts it.
pub(crate) fn effect(instance: &str, number: u32) -> String {
    format!("{instance}.{number}")
}

async fn call(step: Step, effect: String) -> Result<String, Error> {
    dies(Place::AfterTheIntent);
    let url = format!("{}/{}/{effect}", worker().effects, step.name());
    let answer = sent(http().post(url).header("idempotency-key", step.idempotency_key())).await?;
    dies(Place::AfterTheCall);
    if !answer.status().is_success() {
        return Err(Error::failed(format_args!("the service answered {}", answer.status())));
    }
    text(answer).await
}

async fn look(step: Step, effect: String) -> Result<Option<String>, Error> {
    let url = format!("{}/{}/{effect}", worker().effects, step.name());
    let answer = sent(http().get(url)).await?;
    match answer.status() {
        StatusCode::NOT_FOUND => Ok(None),
        StatusCode::OK => text(answer).await.map(Some),
        other => Err(Error::failed(format_args!("the service answered {other}"))),
    }
}

fn http() -> &'static reqwest::Client {
    HTTP.get().expect("it was made first")
}

async fn sent(request: RequestBuilder) -> Result<Response, Error> {
    request
        .send()
        .await
        .map_err(|error| if error.is_connect() { Error::not_sent(error) } else { Error::failed(error) })
}

async fn text(answer: Response) -> Result<String, Error> {
    answer.text().await.map_err(Error::failed)
}

/// Here this process may be killed, as by an operating system that is out of memory.
fn dies(place: Place) {
    let fate = FATE.get().expect("it is set before anything runs");
    if place != fate.place || Instant::now() < fate.at {
        return;
    }
    let deaths = OpenOptions::new().append(true).create(true).open(&worker().deaths);
    deaths
        .and_then(|mut deaths| deaths.write_all(format!("{}\n", place.word()).as_bytes()))
        .expect("it is written");
    let killed = Command::new("kill").arg("-9").arg(std::process::id().to_string()).status();
    assert!(killed.is_ok_and(|status| status.success()), "it cannot be killed");
    loop {
        std::thread::park();
    }
}
