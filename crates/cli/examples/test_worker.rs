//! The worker of tests/processes.rs. It writes every attempt into a ledger when it begins and when it is done, and its second
//! step waits for a file, so that a test decides how long it runs.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use clap::Parser;
use everstep::{Error, Hook, Retry, Step, Workflow};
use serde::{Deserialize, Serialize};

/// Serves the workflows `echo3`, `keeper` and `taker` and the pool `echo`.
#[derive(Debug, Parser)]
struct Arguments {
    /// AMQP URL of the broker.
    #[arg(long)]
    amqp: String,
    /// Where attempts are written down, a line each.
    #[arg(long)]
    ledger: PathBuf,
    /// How long running steps may go on after SIGTERM, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    grace: u64,
    /// Steps at once.
    #[arg(long, default_value_t = 100)]
    slots: u32,
    /// Calls the first step by another name: journals of the other code do not fit.
    #[arg(long)]
    renamed: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Input {
    text: String,
    /// The second step is done when this file is there.
    #[serde(default)]
    gate: Option<PathBuf>,
    /// The first step fails for good.
    #[serde(default)]
    fail: bool,
}

/// What a keeper came to.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    got: Vec<u64>,
    taken_by: String,
}

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();

fn arguments() -> &'static Arguments {
    ARGUMENTS.get().expect("the arguments were parsed first")
}

#[everstep::workflow]
async fn echo3(cx: Workflow, input: Input) -> Result<String, Error> {
    let name = if arguments().renamed { "primary" } else { "first" };
    let retry = || Retry::constant("50 ms").limit(5);
    let one: String = cx.step(name, (&input.text, input.fail), first).retry(retry()).await?;
    cx.sleep("pause", "50 ms").await?;
    let two: String = cx.step("second", (one, input.gate), second).retry(retry()).await?;
    cx.remote("third", &two).on("echo").retry(retry()).await
}

/// Reads payloads until another instance takes its token.
#[everstep::workflow]
async fn keeper(cx: Workflow, token: String) -> Result<Kept, Error> {
    let hook: Hook<u64> = cx.hook("keeper").token(token).create()?;
    let mut got = Vec::new();
    loop {
        match hook.next().await {
            Ok(number) => got.push(number),
            Err(error) => {
                let by = error.hook_taken().ok_or(error)?;
                return Ok(Kept { got, taken_by: by.claimant.id });
            }
        }
    }
}

/// Takes a token from whoever has it, reads one payload and lets it go.
#[everstep::workflow]
async fn taker(cx: Workflow, token: String) -> Result<u64, Error> {
    let hook: Hook<u64> = cx.hook("taker").token(token).force().create()?;
    let number = hook.next().await?;
    hook.dispose().await;
    cx.event::<()>("go").await?;
    Ok(number)
}

async fn first(step: Step, (text, fail): (String, bool)) -> Result<String, Error> {
    write_down(&step, "begun");
    if fail {
        return Err(Error::permanent("as the input wishes").named("Wished"));
    }
    write_down(&step, "done");
    Ok(format!("{text} 1"))
}

async fn second(step: Step, (text, gate): (String, Option<PathBuf>)) -> Result<String, Error> {
    write_down(&step, "begun");
    if let Some(gate) = gate {
        opened(&gate).await;
    }
    write_down(&step, "done");
    Ok(format!("{text} 2"))
}

async fn third(step: Step, text: String) -> Result<String, Error> {
    write_down(&step, "begun");
    write_down(&step, "done");
    Ok(format!("{text} 3"))
}

async fn opened(gate: &Path) {
    while !gate.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One write to the end of the file, which processes may do at the same time.
fn write_down(step: &Step, what: &str) {
    let (pid, instance, name, attempt) =
        (std::process::id(), step.instance_id(), step.name(), step.attempt());
    let line = format!("{pid} {instance} {name} {attempt} {what}\n");
    let file = OpenOptions::new().append(true).create(true).open(&arguments().ledger);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the ledger is written");
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = ARGUMENTS.get_or_init(Arguments::parse);
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::ERROR)
        .with_writer(std::io::stderr)
        .init();
    everstep::fleet(arguments.amqp.clone())
        .workflow(echo3)
        .workflow(keeper)
        .workflow(taker)
        .function("third", third)
        .pool("echo")
        .settings(|settings| {
            settings.shutdown_grace = Duration::from_millis(arguments.grace);
            settings.slots = arguments.slots;
        })
        .run()
        .await?;
    Ok(())
}
