//! A producer in Rust that names no crate of Everstep: starts one workflow per order by publishing a message.
//!
//! ```text
//! everstep-producer --url amqp://... --orders examples/orders.jsonl
//! ```
//!
//! Each order of the file (one JSON object a line, with "id" and "input") becomes one persistent JSON message to the exchange
//! `everstep.start`, with the namespace as routing key. The broker confirms each message; one that no queue took is an error. Sending
//! an order again is harmless: its id and its message id are the same.

use std::{path::PathBuf, time::Instant};

use anyhow::{Context, bail};
use clap::Parser;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use serde_json::{Value, value::RawValue};

const EXCHANGE: &str = "everstep.start";
/// Messages whose confirms are waited for at once: a confirm takes as long as the broker's disk, and many share one.
const WINDOW: usize = 64;

/// Starts one workflow per order by publishing a message.
#[derive(Parser)]
struct Options {
    /// The broker, amqp://user:password@host:port/vhost
    #[arg(long)]
    url: String,
    /// The namespace of the instances
    #[arg(long, default_value = "default")]
    namespace: String,
    /// The workflow to start
    #[arg(long, default_value = "fulfil")]
    workflow: String,
    /// The file of orders, one JSON object a line
    #[arg(long)]
    orders: PathBuf,
    /// Publish only the first so many orders
    #[arg(long)]
    limit: Option<usize>,
}

/// An order as its line has it: the input is passed on as it was written, every digit kept.
struct Order {
    id: String,
    body: Vec<u8>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let orders = read(&options)?;
    let began = Instant::now();
    let connection = Connection::connect(&options.url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    for window in orders.chunks(WINDOW) {
        publish(&channel, &options, window).await?;
    }
    connection.close(200, "done".into()).await?;
    println!("published {} orders in {:.2} s", orders.len(), began.elapsed().as_secs_f64());
    Ok(())
}

fn read(options: &Options) -> anyhow::Result<Vec<Order>> {
    let text = std::fs::read_to_string(&options.orders)
        .with_context(|| format!("{} cannot be read", options.orders.display()))?;
    let lines = text.lines().take(options.limit.unwrap_or(usize::MAX)).enumerate();
    lines
        .map(|(number, line)| order(&options.workflow, line).with_context(|| format!("line {}", number + 1)))
        .collect()
}

fn order(workflow: &str, line: &str) -> anyhow::Result<Order> {
    let fields: std::collections::HashMap<String, &RawValue> = serde_json::from_str(line)?;
    let field = |name: &str| fields.get(name).with_context(|| format!("the order has no {name}"));
    let id: String = serde_json::from_str(field("id")?.get())?;
    let (name, quoted) = (Value::from(workflow), Value::from(id.as_str()));
    let body = format!(r#"{{"workflow":{name},"id":{quoted},"input":{}}}"#, field("input")?.get());
    Ok(Order { id, body: body.into_bytes() })
}

/// Publishes a window of orders, and waits until the broker has each.
async fn publish(channel: &Channel, options: &Options, orders: &[Order]) -> anyhow::Result<()> {
    let mut confirms = Vec::with_capacity(orders.len());
    for order in orders {
        let message_id = format!("{}/{}/{}", options.namespace, options.workflow, order.id);
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_delivery_mode(2)
            .with_message_id(message_id.into());
        // Without `mandatory` the broker would drop a message that no queue takes, and confirm it all the same.
        let publishing = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let namespace = options.namespace.as_str().into();
        let confirm =
            channel.basic_publish(EXCHANGE.into(), namespace, publishing, &order.body, properties).await?;
        confirms.push((order, confirm));
    }
    for (order, confirm) in confirms {
        match confirm.await? {
            Confirmation::Ack(None) => {}
            Confirmation::Ack(Some(_)) => {
                bail!("{}: no queue takes starts of the namespace {}", order.id, options.namespace)
            }
            Confirmation::Nack(_) | Confirmation::NotRequested => {
                bail!("{}: the broker refused the message; publishing it again is safe", order.id)
            }
        }
    }
    Ok(())
}
