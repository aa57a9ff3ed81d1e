//! The demo: 1,000 orders fulfilled by one process, which may be killed at any moment and goes on where it was.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io::{BufRead as _, BufReader, IsTerminal as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Parser, Subcommand};
use everstep::embedded::Embedded;
use everstep_examples::{
    audit::charged_twice,
    fulfil::{Fault, LABEL_POOL, configure, registry},
    orders::{Case, Tally, read},
    payment,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Fulfils 1,000 orders in this process, against a payment service that fails now and then.
///
/// Kill it with -9 in the middle and start it again: it goes on where it was. A run that has ended is begun afresh.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the state is kept.
    #[arg(long, default_value = ".everstep/demo")]
    data: PathBuf,
    /// The orders, one JSON object a line. Default: the 1,000 of the repository.
    #[arg(long)]
    orders: Option<PathBuf>,
    /// Forgets what a former run left.
    #[arg(long)]
    fresh: bool,
    /// Plants a fault: the attempt becomes part of the idempotency key. Orders are then charged twice, and the demo fails.
    #[arg(long, hide = true)]
    planted_attempt_in_key: bool,
    #[command(subcommand)]
    command: Option<Internal>,
}

#[derive(Debug, Subcommand)]
enum Internal {
    /// The payment service, as a process of its own that ends with the demo.
    #[command(hide = true)]
    Payment { ledger: PathBuf },
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "error".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match &arguments.command {
        Some(Internal::Payment { ledger }) => runtime.block_on(serve_payments(ledger)),
        None => runtime.block_on(demo(arguments)),
    }
}

async fn demo(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let cases = read(arguments.orders.as_deref())?;
    let _lock = lock(&arguments.data)?;
    let done = arguments.data.join("done");
    if arguments.fresh || done.exists() {
        forget(&arguments.data)?;
    }
    let ledger = arguments.data.join("charges.jsonl");
    let payments = Payments::spawn(&ledger)?;
    configure(payments.url.clone(), arguments.planted_attempt_in_key.then_some(Fault::AttemptInKey));

    let pool = LABEL_POOL.parse().context("the pool's name")?;
    let everstep = Embedded::open(arguments.data.join("everstep.db"))
        .registry(registry())
        .worker(|settings| settings.pools.push(pool))
        .start()
        .await?;
    let began = Instant::now();
    let ended = run(&everstep, &cases).await?;
    everstep.stop().await?;
    drop(payments);

    let (charged, twice) = charged_twice(&ledger)?;
    let as_expected = cases.iter().filter(|case| ended.get(&case.id) == Some(&case.expect)).count();
    let tally = Tally { accepted: cases.len(), ended: as_expected, charged, charged_twice: twice };
    std::fs::write(&done, "")?;
    println!("{}", table(&ended, tally, began.elapsed()));
    println!("{}", tally.line("demo", cases.len()));
    Ok(if tally.is_good(cases.len()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts every order and waits until each has ended; what a former run has ended or begun counts as it is.
async fn run(everstep: &Embedded, cases: &[Case]) -> anyhow::Result<HashMap<String, String>> {
    let mut endings = everstep.ended().await?;
    let mut ended = HashMap::new();
    let bar = bar(cases.len());
    for case in cases {
        let reply = everstep.start_instance("fulfil", Some(&case.id), &case.input).await?;
        let Some(id) = reply.id else {
            bail!("order {} was not accepted: {:?}", case.id, reply);
        };
        if let Some(status) = reply.status.filter(|status| status != "open") {
            ended.insert(id, status);
        }
        bar.set_position(ended.len() as u64);
    }
    while ended.len() < cases.len() {
        let end = tokio::time::timeout(Duration::from_mins(2), endings.next())
            .await
            .context("no instance has ended for two minutes")?;
        ended.insert(end.id, end.status);
        bar.set_position(ended.len() as u64);
    }
    bar.finish_and_clear();
    Ok(ended)
}

fn bar(orders: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} orders ended  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    ProgressBar::with_draw_target(Some(orders as u64), target).with_style(style)
}

fn table(ended: &HashMap<String, String>, tally: Tally, took: Duration) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.set_header(["what", "orders"]);
    for status in ["complete", "errored", "terminated"] {
        let count = ended.values().filter(|word| *word == status).count();
        table.add_row([status.to_owned(), count.to_string()]);
    }
    table.add_row(["charged".to_owned(), tally.charged.to_string()]);
    table.add_row(["seconds".to_owned(), format!("{:.1}", took.as_secs_f64())]);
    table
}

/// Makes the data directory, and locks it for as long as the file is open, that is, however this process ends.
fn lock(data: &Path) -> anyhow::Result<File> {
    std::fs::create_dir_all(data).with_context(|| format!("make {}", data.display()))?;
    let directory = File::open(data).with_context(|| format!("open {}", data.display()))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => bail!(
            "another demo runs on {}: wait for its end, or name another directory with --data",
            data.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", data.display())),
    }
}

/// Removes what a former run left, and nothing else: the directory may be anybody's. The mark of its end goes last.
fn forget(data: &Path) -> anyhow::Result<()> {
    for name in ["everstep.db", "everstep.db-wal", "everstep.db-shm", "charges.jsonl", "done"] {
        let file = data.join(name);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", file.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The payment service: this program again, in a process of its own.
struct Payments {
    url: String,
    child: Child,
}

impl Payments {
    fn spawn(ledger: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("payment")
            .arg(ledger)
            // The service ends when this pipe does: with this process, however it ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the payment service")?;
        let stdout = child.stdout.take().context("the payment service has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        match line.trim().strip_prefix("listening on ") {
            Some(url) => Ok(Self { url: url.to_owned(), child }),
            None => bail!("the payment service did not start"),
        }
    }
}

impl Drop for Payments {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the payment service was not awaited: {error}");
        }
    }
}

async fn serve_payments(ledger: &Path) -> anyhow::Result<ExitCode> {
    let settings = payment::Settings {
        listen: ([127, 0, 0, 1], 0).into(),
        ledger: ledger.to_owned(),
        seed: 1,
        unavailable_percent: 4,
        drop_percent: 2,
    };
    // A killed demo's service may need a moment to see that it is alone and to let go of the file.
    let mut server = payment::serve(settings.clone()).await;
    for _ in 0..50 {
        if server.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        server = payment::serve(settings.clone()).await;
    }
    let server = server?;
    println!("listening on http://{}", server.address());
    let closed = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    closed.await??;
    server.stop().await?;
    Ok(ExitCode::SUCCESS)
}
