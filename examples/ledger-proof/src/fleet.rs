//! The processes: coordinators and workers that are killed and started again until everything has ended.

use std::{
    collections::{BTreeMap, HashSet},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use everstep_client::api::{Api, BatchItem, Options};
use everstep_testbed::{Installation, Process, program};
use serde_json::value::RawValue;

use crate::{
    Arguments,
    effects::Effects,
    person::Person,
    prove::{STEPS, effect},
    tally::{Place, Tally},
};

const COORDINATORS: usize = 2;
const WORKERS: usize = 3;
/// A coordinator lives so long.
const COORDINATOR_LIVES: Duration = Duration::from_secs(4);
/// Without an ended instance for this long the run has failed.
const PATIENCE: Duration = Duration::from_mins(2);
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// Starts of one request.
const BATCH: usize = 500;

struct Fleet<'a> {
    installation: &'a Installation,
    arguments: &'a Arguments,
    effects: String,
    deaths: PathBuf,
    coordinators: Vec<(SocketAddr, Process)>,
    workers: Vec<Process>,
    coordinators_killed: u32,
}

/// Runs all steps on a fresh installation, and counts.
pub(crate) async fn run(arguments: &Arguments) -> Result<Tally> {
    let installation = Installation::fresh("ledger")?;
    let directory = tempfile::tempdir()?;
    let effects = Effects::default();
    let url = effects.serve().await?;
    let mut fleet = Fleet::start(&installation, arguments, url, directory.path())?;
    let instances = arguments.steps.div_ceil(STEPS) as usize;
    let desks: Vec<Api> = fleet.desks()?;
    let mut person = Person { desks: desks.clone(), effects: effects.clone(), decided: HashSet::new() };
    let starts = tokio::spawn(start_all(desks, instances));
    let mut ended = (0, Instant::now());
    let mut coordinator_dies = Instant::now() + COORDINATOR_LIVES;
    while ended.0 < instances {
        person.works().await?;
        tokio::time::sleep(LOOKS_EVERY).await;
        fleet.replace_the_dead()?;
        if Instant::now() > coordinator_dies {
            fleet.kill_coordinator()?;
            coordinator_dies = Instant::now() + COORDINATOR_LIVES;
        }
        let now = count(&installation, "status <> 0")?;
        if now > ended.0 {
            ended = (now, Instant::now());
        }
        if ended.1.elapsed() > PATIENCE {
            bail!("only {} of {instances} instances have ended, and none for {PATIENCE:?}", ended.0);
        }
    }
    starts.await??;
    let incomplete = installation.sql("SELECT name FROM instance WHERE status <> 1")?;
    let incomplete: HashSet<&str> = incomplete.lines().collect();
    let mut tally = Tally {
        steps: instances as u32 * STEPS,
        kills: fleet.kills()?,
        duplicates: Vec::new(),
        attention: person.decided.len(),
        unexplained: Vec::new(),
    };
    for instance in (0..instances).map(name) {
        for effect in (0..STEPS).map(|number| effect(&instance, number)) {
            match effects.count(&effect) {
                1 if !incomplete.contains(instance.as_str()) => {}
                0 | 1 => tally.unexplained.push(effect),
                _ => tally.duplicates.push(effect),
            }
        }
    }
    Ok(tally)
}

fn name(number: usize) -> String {
    format!("p-{number}")
}

/// Starts everything, at whichever coordinator is alive: the same start again makes no second instance.
async fn start_all(desks: Vec<Api>, instances: usize) -> Result<()> {
    let workflow = "prove".parse()?;
    let began = Instant::now();
    for first in (0..instances).step_by(BATCH) {
        let items: Vec<BatchItem> = (first..instances.min(first + BATCH))
            .map(|number| {
                let input = RawValue::from_string(number.to_string())?;
                Ok(BatchItem { id: name(number).parse()?, input, with: Options::default() })
            })
            .collect::<Result<_>>()?;
        let mut desk = 0;
        while let Err(error) = desks[desk % desks.len()].start_batch(&workflow, &items).await {
            if !error.is_retry_safe() || began.elapsed() > PATIENCE {
                return Err(error).context("start the instances");
            }
            desk += 1;
            tokio::time::sleep(LOOKS_EVERY).await;
        }
    }
    Ok(())
}

fn count(installation: &Installation, condition: &str) -> Result<usize> {
    Ok(installation.sql(&format!("SELECT count(*) FROM instance WHERE {condition}"))?.parse()?)
}

impl<'a> Fleet<'a> {
    fn start(
        installation: &'a Installation,
        arguments: &'a Arguments,
        effects: String,
        directory: &Path,
    ) -> Result<Self> {
        let mut fleet = Self {
            installation,
            arguments,
            effects,
            deaths: directory.join("deaths"),
            coordinators: Vec::new(),
            workers: Vec::new(),
            coordinators_killed: 0,
        };
        let output = fleet.everstep()?.arg("migrate").output()?;
        if !output.status.success() {
            bail!("the migrations failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        for _ in 0..COORDINATORS {
            let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
            let process = fleet.coordinator(address)?;
            fleet.coordinators.push((address, process));
        }
        for _ in 0..WORKERS {
            let process = fleet.worker()?;
            fleet.workers.push(process);
        }
        Ok(fleet)
    }

    fn desks(&self) -> Result<Vec<Api>> {
        let api = |(address, _): &(SocketAddr, Process)| {
            Ok(Api::new(&format!("http://{address}"), "default".parse()?)?)
        };
        self.coordinators.iter().map(api).collect()
    }

    fn everstep(&self) -> Result<Command> {
        let mut command = Command::new(program("everstep", "ledger-proof")?);
        command
            .env("EVERSTEP_POSTGRES__URL", &self.installation.postgres)
            .env("EVERSTEP_AMQP__URL", &self.installation.amqp);
        Ok(command)
    }

    fn coordinator(&self, address: SocketAddr) -> Result<Process> {
        let mut command = self.everstep()?;
        command
            .arg("coordinator")
            .env("EVERSTEP_HTTP__LISTEN", address.to_string())
            .env("EVERSTEP_LOG__LEVEL", "error");
        Process::spawn("coordinator", &mut command)
    }

    fn worker(&self) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", "--amqp", &self.installation.amqp, "--effects", &self.effects]);
        command.args(["--life", &self.arguments.life.to_string(), "--deaths"]).arg(&self.deaths);
        if self.arguments.planted {
            command.arg("--planted");
        }
        Process::spawn("worker", &mut command)
    }

    /// Workers kill themselves.
    fn replace_the_dead(&mut self) -> Result<()> {
        for at in 0..self.workers.len() {
            if self.workers[at].wait(Duration::ZERO).is_ok() {
                self.workers[at] = self.worker()?;
            }
        }
        Ok(())
    }

    /// The oldest dies; another one listens where it did.
    fn kill_coordinator(&mut self) -> Result<()> {
        let (address, mut process) = self.coordinators.remove(0);
        process.kill()?;
        self.coordinators_killed += 1;
        let process = self.coordinator(address)?;
        self.coordinators.push((address, process));
        Ok(())
    }

    /// How many died where.
    fn kills(&self) -> Result<BTreeMap<Place, u32>> {
        let mut kills = BTreeMap::new();
        let deaths =
            if self.deaths.exists() { std::fs::read_to_string(&self.deaths)? } else { String::new() };
        for death in deaths.lines() {
            let place = Place::ALL.into_iter().find(|place| place.word() == death);
            *kills.entry(place.with_context(|| format!("a death at {death:?}"))?).or_default() += 1;
        }
        if self.coordinators_killed > 0 {
            kills.insert(Place::Coordinator, self.coordinators_killed);
        }
        Ok(kills)
    }
}
