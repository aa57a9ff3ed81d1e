//! O-10 and O-11: texts that a database refuses, and sizes at their limit. Whatever one instance brings, its neighbours end.

use everstep::{Error, Registry, Retry, Step, Workflow};
use everstep_broker::Properties;
use everstep_conformance::echo;
use everstep_protocol::Namespace;
use everstep_store::StatusWord;
use everstep_system_tests::{DEADLINE, Log, World, on_both, within};

/// Gives its input back, through a step.
fn echoes() -> Registry {
    Registry::new().workflow_fn("echo", |cx: Workflow, input: serde_json::Value| async move {
        cx.step("echo", input, echo::<serde_json::Value>).await
    })
}

fn json(message: &str) -> Properties {
    Properties {
        message_id: Some(message.to_owned()),
        content_type: Some("application/json".to_owned()),
        ..Properties::default()
    }
}

/// Publishes a start whose input is these bytes, among five good ones.
async fn among_good_ones(world: &World, id: &str, input: &[u8]) {
    for number in 0..5 {
        let good = format!(r#"{{"workflow":"echo","id":"{id}-good-{number}","input":{number}}}"#);
        world.publish(good, json(&format!("{id}-good-{number}"))).await;
        if number == 2 {
            let body =
                [format!(r#"{{"workflow":"echo","id":"{id}","input":"#).as_bytes(), input, b"}"].concat();
            world.publish(body, json(id)).await;
        }
    }
}

/// The code with which a message was rejected; none if it was not.
async fn rejection(world: &World, message: &str) -> Option<String> {
    let rejected = world.store().rejected(&Namespace::default(), 100).await.expect("the store answers");
    let its = rejected.into_iter().find(|record| record.message_id.as_deref() == Some(message));
    its.map(|record| record.code)
}

on_both! {
    async fn o10_texts_that_a_database_refuses_are_kept_or_refused_and_harm_no_neighbour(setup) {
        let world = setup.serve(echoes()).await;
        let kept: [(&str, &[u8]); 4] = [
            ("nul", br#"{"s":"a\u0000b"}"#),
            ("text", br#"{"s":"a\\u0000b"}"#),
            ("key", br#"{"\u0000":1}"#),
            ("odd", br#"{"s":"\ufffe\uffff\u202e"}"#),
        ];
        // Half a pair is JSON to whoever does not look inside, so it is the input that is refused, and not the whole body.
        let refused: [(&str, &[u8], &str); 5] = [
            ("half", br#"{"s":"\ud800"}"#, "input"),
            ("swapped", br#"{"s":"\ude00\ud83d"}"#, "input"),
            ("bytes", b"\"\xff\xfe\"", "body"),
            ("cut", b"\"\xc3(\"", "body"),
            ("raw", b"{\"s\":\"a\0b\"}", "body"),
        ];
        for (id, input) in kept.into_iter().chain(refused.map(|(id, input, _)| (id, input))) {
            among_good_ones(&world, id, input).await;
        }
        within("the good ones and those that can be kept", DEADLINE, world.ends().count(9 * 5 + kept.len())).await;
        assert!(world.ends().all().iter().all(|end| end.status == "complete"));
        for (id, input) in kept {
            let expected: serde_json::Value = serde_json::from_slice(input).unwrap();
            assert_eq!(world.end("echo", id).await.output::<serde_json::Value>(), expected, "{id}");
        }
        for (id, _, code) in refused {
            world.eventually("it is recorded", async || rejection(&world, id).await.is_some()).await;
            assert_eq!(rejection(&world, id).await.as_deref(), Some(code), "{id}");
            assert!(world.view("echo", id).await.is_none(), "{id}");
        }
        let start = everstep_protocol::topology::start_queue(&Namespace::default());
        world.eventually("nothing comes again", async || {
            matches!(world.broker().depth(&start).await, Ok(Some(0)))
        }).await;
    }

    /// In what a step gives and says: outputs, errors, panics, names of errors, reasons of a termination.
    async fn o10_what_a_step_says_with_them_is_recorded_and_the_rest_of_it_survives(setup) {
        let registry = echoes()
            .workflow_fn("says", |cx: Workflow, how: String| async move {
                cx.step("says", how, |_: Step, how: String| async move {
                    let text = "before\0\u{fffe}\u{202e}after".to_owned();
                    match how.as_str() {
                        "output" => Ok(text),
                        "error" => Err(Error::permanent(text)),
                        _ => panic!("{text}"),
                    }
                }).retry(Retry::none()).await
            });
        let world = setup.serve(registry).await;
        for how in ["output", "error", "panic"] {
            world.begin("says", how, how).await;
            for number in 0..5 {
                world.begin("echo", &format!("{how}-{number}"), &number).await;
            }
        }
        assert_eq!(world.end("says", "output").await.output::<String>(), "before\0\u{fffe}\u{202e}after");
        for how in ["error", "panic"] {
            let end = world.end("says", how).await;
            let message = &end.error().message;
            assert!(message.contains("before") && message.contains("after"), "{message:?}");
            let attempts = world.attempts("says", how).await;
            assert_eq!(attempts.len(), 1, "{how}: it is recorded once");
        }
        within("the neighbours", DEADLINE, world.ends().count(18)).await;
        let handle = world.handle();
        world.begin("echo", "ended", &1).await;
        world.end("echo", "ended").await;
        let answer = handle
            .terminate(everstep_system_tests::world::name("says", "output"), "t".to_owned(), Some("a\0b".to_owned()))
            .await;
        assert!(answer.is_ok(), "{answer:?}");
    }

    /// Bytes of the compact JSON text count, whatever is in it: the limit itself is taken, one more is not, and nothing loops.
    async fn o11_sizes_count_in_bytes_of_json_for_every_form(setup) {
        const LIMIT: usize = 1_000;
        let log = Log::new();
        let told = log.clone();
        let registry = Registry::new().workflow_fn("makes", move |cx: Workflow, (form, bytes): (String, usize)| {
            let log = told.clone();
            async move {
                let made = cx.step("makes", (form, bytes), move |step: Step, (form, bytes): (String, usize)| {
                    let log = log.clone();
                    async move {
                        log.push(format!("{} {}", step.instance_id(), step.attempt()));
                        Ok::<_, Error>(value(&form, bytes))
                    }
                });
                match made.await {
                    Ok(value) => Ok::<_, Error>(serde_json::to_string(&value).unwrap().len().to_string()),
                    Err(error) => Ok(error.to_string()),
                }
            }
        });
        let setup = setup.coordinator(|settings| {
            settings.limits.output_bytes = LIMIT as u64;
            settings.limits.input_bytes = LIMIT as u64;
        });
        let world = setup.serve(registry).await;
        for form in ["plain", "letters", "quotes", "numbers"] {
            // Of two-byte letters and escaped quotes every second length exists.
            for bytes in [LIMIT - 2, LIMIT, LIMIT + 2] {
                let id = format!("{form}-{bytes}");
                world.begin("makes", &id, &(form, bytes)).await;
                let told = world.end("makes", &id).await.output::<String>();
                if bytes <= LIMIT {
                    assert_eq!(told, bytes.to_string(), "{id}");
                } else {
                    assert!(told.contains(&bytes.to_string()) && told.contains(&LIMIT.to_string()), "{id}: {told}");
                }
                assert_eq!(log.count(&format!("{id} 1")), 1);
                assert_eq!(log.count(&format!("{id} 2")), 0, "{id}: it is tried once");
            }
        }
        // The same edge for what a start brings.
        for (bytes, is_taken) in [(LIMIT, true), (LIMIT + 1, false)] {
            let id = format!("input-{bytes}");
            let input = serde_json::to_string(&("plain", 2)).unwrap();
            let padded = format!("{input}{}", " ".repeat(bytes));
            assert!(padded.len() > LIMIT, "blanks do not count");
            let start = format!(r#"{{"workflow":"makes","id":"{id}","input":{padded}}}"#);
            world.publish(start, json(&id)).await;
            world.end("makes", &id).await;
            let body = serde_json::to_string(&value("plain", bytes)).unwrap();
            let message = format!("large-{bytes}");
            world.publish(format!(r#"{{"workflow":"makes","id":"{message}","input":{body}}}"#), json(&message)).await;
            if is_taken {
                world.until("makes", &message, "it exists", |view| view.status != StatusWord::Complete).await;
                world.terminate("makes", &message, "t").await;
            } else {
                world.eventually("it is recorded", async || rejection(&world, &message).await.is_some()).await;
                assert_eq!(rejection(&world, &message).await.as_deref(), Some("too_large"));
            }
        }
    }
}

/// A value whose JSON has so many bytes.
fn value(form: &str, bytes: usize) -> serde_json::Value {
    match form {
        "plain" => "a".repeat(bytes - 2).into(),
        "letters" => "\u{e9}".repeat((bytes - 2) / 2).into(),
        "quotes" => "\"".repeat((bytes - 2) / 2).into(),
        // Two brackets, a comma between each two numbers, and one number of two digits to make it even.
        _ => {
            let mut numbers = vec![1_u64; (bytes - 2) / 2];
            numbers[0] = 11;
            numbers.into()
        }
    }
}
