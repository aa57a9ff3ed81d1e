//! A durable workflow. What it has done stands in its journal, so that it goes on where it was whenever this program is killed.
//!
//! `cargo run -- Ada` runs everything in this process, on one file. With `AMQP_URL` in the environment it is a worker of a fleet.

use std::env;

use everstep::{Error, Retry, Step, Workflow, embedded::Embedded};

/// The workflow: its steps run once each, and its sleep may last months.
#[everstep::workflow]
async fn greet(cx: Workflow, name: String) -> Result<String, Error> {
    let text = cx.step("compose", &name, compose).await?;
    cx.sleep("let it sink in", "2 seconds").await?;
    cx.step("send", (&name, &text), send).retry(Retry::exponential("1s").limit(5)).await
}

/// A step: its output is kept, and it is not run again.
async fn compose(_step: Step, name: String) -> Result<String, Error> {
    if name.trim().is_empty() {
        return Err(Error::permanent("there is nobody to greet"));
    }
    Ok(format!("Good morning, {name}"))
}

/// A step with an effect outside: its key is the same in every attempt, for services that honour such keys.
async fn send(step: Step, (name, text): (String, String)) -> Result<String, Error> {
    println!("to {name}: {text} (key {}, attempt {})", step.idempotency_key(), step.attempt());
    Ok(text)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Ok(url) = env::var("AMQP_URL") {
        return Ok(everstep::fleet(url).workflow(greet).run().await?);
    }
    let name = env::args().nth(1).unwrap_or_else(|| "Ada".to_owned());
    let everstep = Embedded::open("hello-everstep.db").workflow(greet).start().await?;
    let mut ended = everstep.ended().await?;
    let reply = everstep.start_instance("greet", Some(name.as_str()), &name).await?;
    if reply.status.is_none_or(|status| status == "open") {
        println!("{:?}", ended.next().await.output());
    } else {
        println!("{name} was greeted before: the id is known, so nothing is done twice");
    }
    Ok(everstep.stop().await?)
}
