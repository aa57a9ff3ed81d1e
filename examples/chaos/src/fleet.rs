//! The processes, their servers, and the ways between them.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_client::api::Api;
use everstep_examples::payment;
use everstep_testbed::{OwnPostgres, OwnRabbit, Process, Proxy, program, proxy};

use crate::work;

const COORDINATORS: usize = 2;
const WORKERS: usize = 3;
/// A process that is told to stop, or started, has so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A coordinator, with its own ways to both servers.
pub(crate) struct Coordinator {
    pub(crate) address: SocketAddr,
    pub(crate) database: Proxy,
    pub(crate) broker: Proxy,
    pub(crate) process: Process,
}

/// A worker, with its own way to the broker. The last one runs remote steps alone, the others serve workflows.
pub(crate) struct Worker {
    pub(crate) broker: Proxy,
    pub(crate) process: Process,
}

/// Everything that runs. The processes go before their servers do.
pub(crate) struct Fleet {
    pub(crate) coordinators: Vec<Coordinator>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) postgres: OwnPostgres,
    pub(crate) rabbit: OwnRabbit,
    service: payment::Server,
    host: String,
    pub(crate) directory: tempfile::TempDir,
}

impl Fleet {
    /// Starts everything. Of a hundred calls of the service so many fail before their effect, and as many after it.
    pub(crate) async fn start(failing_percent: u8) -> Result<Self> {
        let (postgres, rabbit) = tokio::task::block_in_place(|| {
            Ok::<_, anyhow::Error>((OwnPostgres::start()?, OwnRabbit::start()?))
        })?;
        let directory = tempfile::tempdir()?;
        let service = payment::serve(payment::Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            ledger: directory.path().join("charges.jsonl"),
            seed: 1,
            unavailable_percent: failing_percent,
            drop_percent: failing_percent,
        });
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let (coordinators, workers, service) = (Vec::new(), Vec::new(), service.await?);
        let mut fleet = Self { coordinators, workers, postgres, rabbit, service, host, directory };
        fleet.migrate()?;
        for _ in 0..COORDINATORS {
            fleet.add_coordinator().await?;
        }
        for number in 0..=WORKERS {
            let broker = Proxy::start(proxy::target(&fleet.rabbit.url())).await;
            let process = fleet.worker(number, &broker)?;
            fleet.workers.push(Worker { broker, process });
        }
        Ok(fleet)
    }

    /// The coordinators' APIs.
    pub(crate) fn desks(&self) -> Result<Vec<Api>> {
        let api = |coordinator: &Coordinator| {
            Ok(Api::new(&format!("http://{}", coordinator.address), "default".parse()?)?)
        };
        self.coordinators.iter().map(api).collect()
    }

    /// Where the coordinators listen: at the same place after they were started again.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.coordinators.iter().map(|coordinator| coordinator.address).collect()
    }

    /// By what a worker's session names it.
    pub(crate) fn host(&self, worker: usize) -> String {
        format!("{}:{}", self.host, self.workers[worker].process.pid())
    }

    /// Starts a coordinator that has ended again, and waits until it is ready.
    pub(crate) async fn revive_coordinator(&mut self, number: usize) -> Result<()> {
        let old = &self.coordinators[number];
        let process = self.coordinator(old.address, (&old.database, &old.broker))?;
        self.coordinators[number].process = process;
        ready(self.coordinators[number].address).await
    }

    /// Starts a worker that has ended again.
    pub(crate) fn revive_worker(&mut self, number: usize) -> Result<()> {
        self.workers[number].process = self.worker(number, &self.workers[number].broker)?;
        Ok(())
    }

    async fn add_coordinator(&mut self) -> Result<()> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let database = Proxy::start(proxy::target(&self.postgres.url())).await;
        let broker = Proxy::start(proxy::target(&self.rabbit.url())).await;
        let process = self.coordinator(address, (&database, &broker))?;
        self.coordinators.push(Coordinator { address, database, broker, process });
        ready(address).await
    }

    fn coordinator(&self, address: SocketAddr, (database, broker): (&Proxy, &Proxy)) -> Result<Process> {
        let mut command = Command::new(program("everstep", "chaos")?);
        command
            .arg("coordinator")
            .env("EVERSTEP_POSTGRES__URL", database.url(&self.postgres.url()))
            .env("EVERSTEP_AMQP__URL", broker.url(&self.rabbit.url()))
            .env("EVERSTEP_HTTP__LISTEN", address.to_string())
            // Little ahead, so that queues hold something that a purge can take.
            .env("EVERSTEP_COORDINATOR__REPORT_PREFETCH", "3")
            .env("EVERSTEP_COORDINATOR__SESSION_PREFETCH", "1")
            .env("EVERSTEP_LOG__LEVEL", level());
        Process::spawn(format!("coordinator at {address}"), &mut command)
    }

    /// Who consumes the queues of step tasks.
    pub(crate) fn pool(&self) -> &Worker {
        &self.workers[WORKERS]
    }

    fn worker(&self, number: usize, broker: &Proxy) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--amqp", &broker.url(&self.rabbit.url()), "--service"]);
        command.arg(work::service_url(self.service.address()));
        if number == WORKERS {
            command.arg("--pool");
        }
        Process::spawn("worker", &mut command)
    }

    fn migrate(&self) -> Result<()> {
        let mut command = Command::new(program("everstep", "chaos")?);
        command.arg("migrate").env("EVERSTEP_POSTGRES__URL", self.postgres.url());
        let output = command.env("EVERSTEP_AMQP__URL", self.rabbit.url()).output()?;
        if !output.status.success() {
            bail!("the migrations failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

fn level() -> String {
    // What it says of faults is wanted only by whoever looks for one.
    std::env::var("RUST_LOG").unwrap_or_else(|_| "error,lapin=off".to_owned())
}

/// Waits until a coordinator is ready.
async fn ready(address: SocketAddr) -> Result<()> {
    let began = Instant::now();
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
    loop {
        match client.get(format!("http://{address}/readyz")).send().await {
            Ok(response) if response.status().is_success() => return Ok(()),
            _ if began.elapsed() > PATIENCE => {
                return Err(anyhow::anyhow!("it was asked for {PATIENCE:?}"))
                    .with_context(|| format!("the coordinator at {address} is not ready"));
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// Tells a process to stop, and awaits its end, which must be a good one.
pub(crate) fn stop(process: &mut Process) -> Result<()> {
    process.signal("TERM")?;
    let status = process.wait(PATIENCE)?;
    if !status.success() {
        bail!("a process that was told to stop ended with {status}");
    }
    Ok(())
}
