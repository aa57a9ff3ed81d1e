//! Producers in three languages against a real broker, and the document of their messages: that each of them starts every order once
//! however many publish it, that garbage harms nobody, and that docs/reference/asyncapi.yaml says what is read and sent.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use everstep_protocol::{
    event::SentMessage,
    start::{Encoding, StartError, StartMessage},
};
use serde_json::{Value, json};

use crate::{
    GARBAGE,
    fleet::{Fleet, until},
};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a script of the repository prints: where something is.
fn place(script: &str) -> String {
    let made = Command::new(repository().join(script)).output().expect("the script runs");
    assert!(made.status.success(), "{script}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).expect("a path").trim().to_owned()
}

fn python() -> Command {
    let mut command = Command::new(place("scripts/python-env.sh"));
    command.current_dir(repository());
    command
}

fn node() -> Command {
    let mut command = Command::new("node");
    command.current_dir(repository()).env("NODE_PATH", place("scripts/node-env.sh"));
    command
}

fn rust() -> Command {
    let command = Path::new(env!("CARGO_BIN_EXE_everstep")).with_file_name("everstep-producer");
    assert!(command.exists(), "{} is missing: cargo build -p everstep-producer", command.display());
    Command::new(command)
}

fn producers() -> [(&'static str, Command); 3] {
    let (mut python, mut node) = (python(), node());
    python.arg("examples/producers/publish_orders.py");
    node.arg("examples/producers/node/publish_orders.mjs");
    [("python", python), ("node", node), ("rust", rust())]
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn producers_in_three_languages_start_every_order_once() {
    const ORDERS: usize = 60;
    let fleet = Fleet::start(2, 2);
    // A number that only exact readers keep.
    let order =
        |number| format!(r#"{{"id":"p{number}","input":{{"text":"p{number}","n":9007199254740993}}}}"#);
    let file = fleet.path("orders.jsonl");
    std::fs::write(&file, (0..ORDERS).map(order).collect::<Vec<_>>().join("\n")).expect("they are written");
    let publish = |mut command: Command, namespace: &str| {
        command.args(["--url", &fleet.installation.amqp, "--namespace", namespace, "--workflow", "echo3"]);
        command.arg("--orders").arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the producer starts")
    };
    // All at once, with garbage between.
    let running = producers().map(|(name, command)| (name, publish(command, "default")));
    let mut bad = python();
    let bad = bad.args(["-c", GARBAGE, &fleet.installation.amqp]).output().expect("it runs");
    assert!(bad.status.success(), "{}", said(&bad));
    let garbage: usize = said(&bad).trim().parse().expect("a count");
    for (name, child) in running {
        let output = child.wait_with_output().expect("it ends");
        assert!(
            said(&output).starts_with(&format!("published {ORDERS} orders")),
            "{name}: {}",
            said(&output)
        );
    }
    until("every order completes", || (fleet.count("status = 1") == ORDERS).then_some(()));
    until("all garbage is recorded", || {
        (fleet.json(&["rejected", "list"])["rejected"].as_array()?.len() == garbage).then_some(())
    });
    assert_eq!(fleet.count("true"), ORDERS, "an order was started twice, or garbage made an instance");
    let journal =
        fleet.run(&["instances", "get", "echo3", "p7", "--journal", "--output", "json"]).succeeded();
    assert!(journal.contains("9007199254740993"), "{journal}");
    // What no queue takes is an error, and says which.
    for (name, command) in producers() {
        let output = publish(command, "elsewhere").wait_with_output().expect("it ends");
        let text = said(&output);
        assert!(!output.status.success(), "{name}: {text}");
        assert!(text.contains("no queue takes starts of the namespace elsewhere"), "{name}: {text}");
    }
}

/// Starts an instance by a message that wants a reply, and waits for the message of its end.
const LISTEN: &str = r#"
import json, sys, time, pika
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.confirm_delivery()
queue = channel.queue_declare("", exclusive=True).method.queue
channel.queue_bind(queue, "everstep.lifecycle", "default.echo3.*")
told = {}
def on_reply(_channel, _method, properties, body):
    told["reply"] = json.loads(body)
def on_end(_channel, _method, properties, body):
    told["ended"] = json.loads(body)
    told["message_id"] = properties.message_id
channel.basic_consume("amq.rabbitmq.reply-to", on_reply, auto_ack=True)
channel.basic_consume(queue, on_end, auto_ack=True)
channel.basic_publish("everstep.start", "default", json.dumps({"workflow": "echo3", "id": "told", "input": {"text": "t"}}),
    pika.BasicProperties(content_type="application/json", delivery_mode=2, reply_to="amq.rabbitmq.reply-to", correlation_id="c"),
    mandatory=True)
deadline = time.monotonic() + 50
while len(told) < 3 and time.monotonic() < deadline:
    connection.process_data_events(time_limit=1)
connection.close()
print(json.dumps(told))
"#;

/// The schema of a message of the document, with what it refers to.
fn schema(document: &Value, message: &str) -> jsonschema::Validator {
    let reference = document["components"]["messages"][message]["payload"]["$ref"].clone();
    let schema = json!({ "$ref": reference, "components": document["components"] });
    jsonschema::draft7::new(&schema).expect("the schema is one")
}

#[test]
fn the_asyncapi_document_says_what_is_read_and_sent() {
    let checked = node().arg("scripts/asyncapi.cjs").output().expect("node runs");
    assert!(checked.status.success(), "{}", said(&checked));
    let document: Value = serde_json::from_slice(&checked.stdout).expect("it prints JSON");
    let messages = &document["components"]["messages"];
    for (message, count) in [("start", 3), ("event", 2), ("resume", 2)] {
        let examples = messages[message]["examples"].as_array().expect("it has examples");
        assert_eq!(examples.len(), count, "{message}");
        for example in examples {
            let body = example["payload"].to_string();
            let read = match message {
                "start" => {
                    StartMessage::parse(Encoding::Json, body.as_bytes(), 1 << 20).err().map(|e| e.to_string())
                }
                _ => {
                    SentMessage::parse(Encoding::Json, body.as_bytes(), 1 << 20).err().map(|e| e.to_string())
                }
            };
            assert_eq!(read, None, "{body}");
        }
    }
    // The document knows the fields that the code knows.
    let StartError::Field(_) = refused(r#"{"workflow":"w","colour":1}"#) else { panic!("it is taken") };
    let text = refused(r#"{"workflow":"w","colour":1}"#).to_string();
    let known = text.rsplit_once("the fields are ").expect("it names them").1;
    let mut known: Vec<_> = known.split(", ").collect();
    known.sort_unstable();
    let properties =
        document["components"]["schemas"]["start"]["properties"].as_object().expect("it has some");
    let mut documented: Vec<_> = properties.keys().map(String::as_str).collect();
    documented.sort_unstable();
    assert_eq!(known, documented);
    // And what is sent is as it says.
    let fleet = Fleet::start(1, 1);
    let told = python().args(["-c", LISTEN, &fleet.installation.amqp]).output().expect("it runs");
    let told: Value =
        serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{error}: {}", said(&told)));
    assert_eq!(
        (&told["reply"]["outcome"], &told["ended"]["status"]),
        (&json!("created"), &json!("complete"))
    );
    assert!(told["message_id"].as_str().is_some_and(|id| id.ends_with("-1-ended")), "{told}");
    for (message, field) in [("reply", "reply"), ("ended", "ended")] {
        let schema = schema(&document, message);
        let faults: Vec<_> = schema.iter_errors(&told[field]).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{faults:?}: {told}");
        let known =
            document["components"]["schemas"][message]["properties"].as_object().expect("it has some");
        for field in told[field].as_object().expect("a map").keys() {
            assert!(
                known.contains_key(field),
                "{message} has the field {field}, which the document does not name"
            );
        }
    }
}

fn refused(body: &str) -> StartError {
    StartMessage::parse(Encoding::Json, body.as_bytes(), 1 << 20).expect_err("it is refused")
}
