//! What whole systems log, at the most talkative level that the settings can ask for.
//!
//! What is proved: no line has anything of what producers, callers and steps hand over; a line of users' code says whose it is, and is
//! written once although the body is replayed. What is not: that each line is of the right level.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::{HeaderValue, Properties};
use everstep_settings::Log;
use everstep_store::StatusWord;
use everstep_system_tests::{Kind, Setup, World};
use everstep_telemetry::lines::{Lines, filter_of};
use serde_json::Value;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

/// Whatever is handed over has it in it.
const SECRET: &str = "correct-horse-battery";

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// The lines of users' code with this message.
    fn lines(&self, message: &str) -> Vec<Value> {
        let text = self.text();
        let read = |line: &str| serde_json::from_str::<Value>(line).expect("each line is an object");
        let all = text.lines().map(read);
        all.filter(|line| line["target"] == "logs" && line["fields"]["message"] == message).collect()
    }
}

/// Everything that a process of the settings `log.format = "json"`, `log.level = "trace"` would write.
fn written() -> &'static Written {
    static WRITTEN: OnceLock<Written> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let written = Written::default();
        let to = written.clone();
        let log = Log { level: "trace".to_owned(), ..Log::default() };
        let filter = EnvFilter::builder().parse(filter_of(&log.level)).expect("it is readable");
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .event_format(Lines::json())
            .with_writer(move || to.clone());
        tracing_subscriber::registry().with(layer).with(filter).init();
        written
    })
}

async fn flaky(step: Step, input: String) -> Result<String, Error> {
    tracing::info!("in the step");
    step.heartbeat(format!("half of {SECRET}"))?;
    if step.attempt() < 2 { Err(Error::failed(format!("not yet, {SECRET}"))) } else { Ok(input) }
}

fn code() -> Registry {
    Registry::new()
        .workflow_fn("order", |cx: Workflow, input: String| async move {
            tracing::info!("in the body");
            cx.publish(&format!("state, {SECRET}"))?;
            let output = cx.step("charge", &input, flaky).retry(Retry::constant("300ms").limit(2)).await?;
            cx.sleep("cool off", "300ms").await?;
            let told: String = cx.event("told").timeout("1 min").await?;
            tracing::info!("after the event");
            let far: String = cx.remote("far", &told).on("numbers").await?;
            let child: String = cx.child("pack", "pack", &far).await?;
            if child.is_empty() { Err(Error::failed(SECRET)) } else { Ok(output) }
        })
        .workflow_fn("pack", |_: Workflow, input: String| async move { Ok::<_, Error>(input) })
        .workflow_fn("fails", |cx: Workflow, input: String| async move {
            let step = |_: Step, input: String| async move { Err::<(), _>(Error::permanent(input)) };
            cx.step("refused", &input, step).await
        })
        .function("far", |_: Step, input: String| async move { Ok::<_, Error>(input) })
}

async fn fleet() -> World {
    let mut world = Setup::new(Kind::Fleet).start().await;
    let pool = "numbers".parse().expect("a pool");
    world
        .add_worker_with(code(), |settings| {
            settings.pools = vec![pool];
            // Each lease replays.
            settings.cache_bytes = 0;
        })
        .await;
    world
}

fn properties() -> Properties {
    let headers = [("x-secret".to_owned(), HeaderValue::from(SECRET))];
    Properties { message_id: Some("m-1".to_owned()), headers: headers.into(), ..Properties::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_line_has_a_payload_and_a_users_line_is_written_once() {
    let written = written();
    let world = fleet().await;
    let start =
        format!(r#"{{"workflow":"order","id":"o-1","input":"{SECRET}","attributes":{{"who":"{SECRET}"}}}}"#);
    world.publish(start, properties()).await;
    // What is refused is told to whoever sent it, and stands in its record.
    for body in [
        format!(r#"{{"workflow":"order","retention":"{SECRET}"}}"#),
        format!(r#"{{"workflow":"{SECRET} ?","id":"x"}}"#),
        format!(r#"{{"workflow":"order","id":"y","input":"{SECRET}",}}"#),
        SECRET.to_owned(),
    ] {
        world.publish(body, Properties { message_id: None, ..properties() }).await;
    }
    world.begin("fails", "f-1", &SECRET).await;
    world.end("fails", "f-1").await;
    world
        .until("order", "o-1", "waiting for the event", |view| {
            view.status == StatusWord::Waiting
                && view.waiting.iter().any(|wait| wait.call.name.as_str() == "told")
        })
        .await;
    world.send("order", "o-1", ("e-1", "told"), &SECRET).await;
    let end = world.end("order", "o-1").await;
    assert_eq!(end.output::<String>(), SECRET, "the run itself had it");
    world
        .eventually("the refused messages are on record", async || {
            let rejected = world.store().rejected(&everstep_protocol::Namespace::default(), 10).await;
            rejected.expect("the store answers").len() >= 4
        })
        .await;

    let text = written.text();
    assert!(text.lines().count() >= 20, "it said something: {}", text.lines().count());
    let said: Vec<_> = text.lines().filter(|line| line.contains(SECRET)).collect();
    assert_eq!(said, [""; 0], "a payload is in no line");

    let body = written.lines("in the body");
    assert_eq!(body.len(), 1, "what the body repeats in replay is not logged again: {body:#?}");
    assert_eq!(written.lines("after the event").len(), 1);
    for (name, value) in [("workflow", "order"), ("instance", "o-1"), ("run", "1"), ("namespace", "default")]
    {
        assert_eq!(body[0][name], value, "{name}: {body:#?}");
    }
    assert!(body[0]["session"].is_string() && body[0].get("step").is_none(), "{body:#?}");
    let steps = written.lines("in the step");
    let attempts: Vec<_> = steps.iter().map(|line| line["attempt"].as_str().unwrap_or_default()).collect();
    assert_eq!(attempts, ["1", "2"], "{steps:#?}");
    for line in &steps {
        assert_eq!(
            (&line["step"], &line["instance"]),
            (&Value::from("charge"), &Value::from("o-1")),
            "{line:#?}"
        );
    }
}
