//! The payment server of the examples: see [`everstep_examples::payment`].

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use everstep_examples::payment;
use tokio::signal::unix::{SignalKind, signal};

/// A payment server that now and then fails, and charges once per idempotency key.
#[derive(Debug, Parser)]
struct Arguments {
    /// Address to listen at; port 0 lets the system choose one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The file that charges are appended to, one JSON object a line.
    #[arg(long)]
    ledger: PathBuf,
    /// Decides which requests fail.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Share of requests answered 503 before charging.
    #[arg(long, default_value_t = 4)]
    unavailable_percent: u8,
    /// Share of requests whose connection ends without an answer after charging.
    #[arg(long, default_value_t = 2)]
    drop_percent: u8,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let server = payment::serve(payment::Settings {
        listen: arguments.listen,
        ledger: arguments.ledger,
        seed: arguments.seed,
        unavailable_percent: arguments.unavailable_percent,
        drop_percent: arguments.drop_percent,
    })
    .await?;
    println!("listening on http://{}", server.address());
    let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupted = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    server.stop().await
}
