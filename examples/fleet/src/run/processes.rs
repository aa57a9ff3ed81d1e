//! The processes of the fleet.

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_testbed::{Installation, Process, program};
use serde::Deserialize;

const COORDINATORS: usize = 2;
const WORKERS: usize = 3;

/// A running fleet.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) coordinators: Vec<Process>,
    pub(crate) workers: Vec<Process>,
    pub(crate) labels: Process,
    http: Vec<SocketAddr>,
    _payment: Process,
}

impl Fleet {
    /// Starts everything and waits until it is ready.
    pub(crate) fn start(installation: &Installation, ledger: &Path) -> Result<Self> {
        let (payment, payment_url) = payment(ledger)?;
        migrate(installation)?;
        let http: Vec<_> = (0..COORDINATORS).map(|_| free_address()).collect::<Result<_>>()?;
        let coordinators: Vec<_> =
            http.iter().map(|address| coordinator(installation, *address)).collect::<Result<_>>()?;
        for address in &http {
            ready(*address)?;
        }
        let workers = (0..WORKERS)
            .map(|number| {
                // Small prefetches, so that the queues hold something that a purge can take.
                let mut command = Command::new(program("worker", "fleet")?);
                command.args(["--amqp", &installation.amqp, "--payment", &payment_url]);
                command.args(["--instances", "60", "--prefetch", "5", "--inbox-prefetch", "2"]);
                Process::spawn(format!("worker {number}"), &mut command)
            })
            .collect::<Result<_>>()?;
        let mut command = Command::new(program("everstep-label-worker", "fleet")?);
        let labels =
            Process::spawn("label pool", command.args(["--amqp", &installation.amqp, "--prefetch", "5"]))?;
        Ok(Self { coordinators, workers, labels, http, _payment: payment })
    }

    /// Kills a worker with -9, and does not replace it.
    pub(crate) fn kill_worker(&mut self) -> Result<()> {
        self.workers.pop().context("no worker is left")?.kill()
    }

    /// Kills a coordinator with -9, and does not replace it.
    pub(crate) fn kill_coordinator(&mut self) -> Result<()> {
        self.http.pop();
        self.coordinators.pop().context("no coordinator is left")?.kill()
    }

    /// The status of every instance, by id, as the API of a coordinator that is left tells it.
    pub(crate) fn endings(&self) -> Result<HashMap<String, String>> {
        let address = self.http.first().context("no coordinator is left")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(endings(*address))
    }
}

#[derive(Deserialize)]
struct Page {
    instances: Vec<Instance>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Instance {
    id: String,
    status: String,
}

async fn endings(address: SocketAddr) -> Result<HashMap<String, String>> {
    let mut all = HashMap::new();
    let mut cursor = String::new();
    loop {
        let url = format!("http://{address}/v1/default/workflows/fulfil/instances?limit=200{cursor}");
        let page: Page = reqwest::get(url).await?.error_for_status()?.json().await?;
        all.extend(page.instances.into_iter().map(|instance| (instance.id, instance.status)));
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

fn payment(ledger: &Path) -> Result<(Process, String)> {
    let mut command = Command::new(program("payment", "fleet")?);
    command.args(["--listen", "127.0.0.1:0", "--ledger"]).arg(ledger);
    let mut process = Process::spawn("payment service", &mut command)?;
    let line = process.line()?;
    let url =
        line.strip_prefix("listening on ").context("the payment service did not say where it listens")?;
    Ok((process, url.to_owned()))
}

fn everstep(installation: &Installation) -> Result<Command> {
    let mut command = Command::new(program("everstep", "fleet")?);
    command
        .env("EVERSTEP_POSTGRES__URL", &installation.postgres)
        .env("EVERSTEP_AMQP__URL", &installation.amqp);
    Ok(command)
}

fn migrate(installation: &Installation) -> Result<()> {
    let output = everstep(installation)?.arg("migrate").output()?;
    if !output.status.success() {
        bail!("the migrations failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn coordinator(installation: &Installation, address: SocketAddr) -> Result<Process> {
    let mut command = everstep(installation)?;
    command
        .arg("coordinator")
        .env("EVERSTEP_HTTP__LISTEN", address.to_string())
        .env("EVERSTEP_COORDINATOR__REPORT_PREFETCH", "3")
        .env("EVERSTEP_COORDINATOR__SESSION_PREFETCH", "1")
        .env("EVERSTEP_LOG__LEVEL", "error");
    Process::spawn(format!("coordinator at {address}"), &mut command)
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

fn ready(address: SocketAddr) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    runtime.block_on(async {
        loop {
            match reqwest::get(format!("http://{address}/readyz")).await {
                Ok(response) if response.status().is_success() => return Ok(()),
                _ if began.elapsed() > Duration::from_secs(20) => {
                    bail!("the coordinator at {address} is not ready after 20 s")
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    })
}
