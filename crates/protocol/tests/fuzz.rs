//! Bytes and texts from outside, whatever they are: they are read or refused with words, nothing panics, and no small message costs
//! more memory than its own length accounts for. Proves that of everything that this crate reads. Not: that what is read is acted on
//! rightly; nor HTTP, which the coordinator's own fuzz tests ask.
//!
//! `EVERSTEP_TEST_FUZZ` is how many cases there are of each; `make fuzz` asks for many.

#[path = "compatibility/examples.rs"]
#[allow(dead_code, reason = "only the bytes and the readers are used here")]
mod examples;

use std::alloc::System;

use cap::Cap;
use everstep_protocol::{
    Attribute, AttributeValue, BuildName, CallName, EventKey, EventType, FunctionName, HookId, InstanceId,
    Millis, Namespace, Payload, Pin, Pool, ScheduleId, StepKey, Timestamp, Token, WorkflowName,
    event::SentMessage,
    hook::HookRetention,
    journal::QuestionId,
    start::{Encoding, StartMessage},
};
use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::{Index, select},
    test_runner::{Config, TestRunner},
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// More than reading any message of the tests takes beside its own length; a claimed length of 4 GiB takes far more.
const SLACK: usize = 24 << 20;
const LIMIT: u64 = 4_096;

#[allow(clippy::disallowed_methods, reason = "the tests' own switch")]
fn cases(ordinary: u32) -> u32 {
    let wanted = std::env::var("EVERSTEP_TEST_FUZZ").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(ordinary)
}

fn runner(ordinary: u32) -> TestRunner {
    // A case that fails is printed with its seed; nothing is written beside the code.
    TestRunner::new(Config { cases: cases(ordinary), failure_persistence: None, ..Config::default() })
}

/// Runs with as much memory as is used now, the input several times over and some slack: more would abort the process.
fn bounded<T>(bytes: usize, act: impl FnOnce() -> T) -> T {
    let limit = ALLOCATOR.allocated() + 64 * bytes + SLACK;
    ALLOCATOR.set_limit(limit).expect("it is more than is used");
    let answer = act();
    ALLOCATOR.set_limit(usize::MAX).expect("it is more than is used");
    answer
}

/// Everything that reads bytes, over these.
fn read_all(bytes: &[u8]) {
    bounded(bytes.len(), || {
        for example in examples::all() {
            if let Err(error) = example.read(bytes) {
                assert!(!error.to_string().is_empty());
            }
        }
        read_producers(bytes);
    });
}

/// What producers send: a message that is refused says why, and what is accepted keeps to the limit.
fn read_producers(bytes: &[u8]) {
    for encoding in [Encoding::Json, Encoding::MessagePack] {
        match StartMessage::parse(encoding, bytes, LIMIT) {
            Ok(start) => assert!(start.input.len() as u64 <= LIMIT, "{start:?}"),
            Err(error) => assert!(!error.to_string().is_empty() && !error.code().is_empty()),
        }
        if let Err(error) = SentMessage::parse(encoding, bytes, LIMIT) {
            assert!(!error.to_string().is_empty() && !error.code().is_empty());
        }
    }
}

fn corpus() -> Vec<Vec<u8>> {
    let mut corpus: Vec<Vec<u8>> = examples::all().into_iter().map(|example| example.bytes).collect();
    corpus.extend(PRODUCERS.iter().map(|text| text.as_bytes().to_vec()));
    let packed = PRODUCERS.iter().filter_map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
    corpus.extend(packed.map(|value| rmp_serde::to_vec_named(&value).expect("it has a form")));
    corpus
}

/// Messages of producers with everything that they may say.
const PRODUCERS: [&str; 4] = [
    r#"{"workflow":"fulfil","id":"o-1","input":{"a":[1.10,null,"x"]},"retention":{"complete":"7 days"},"pin":"b1","strict":true,"attributes":{"shop":"a","n":1},"hook":{"token":"t","retention":"1 day","metadata":{"x":1}}}"#,
    r#"{"workflow":"fulfil","token":"t"}"#,
    r#"{"workflow":"fulfil","id":"o-1","type":"paid","key":"k","payload":{"sum":1}}"#,
    r#"{"token":"t","payload":[1,2,3]}"#,
];

/// How a valid message is damaged.
#[derive(Clone, Debug)]
enum Damage {
    Cut(Index),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, Index),
    Splice(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Flip(at, byte)),
        (any::<Index>(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Remove(from, to)),
        (any::<Index>(), any::<Index>()).prop_map(|(other, at)| Damage::Splice(other, at)),
    ]
}

fn damaged(mut bytes: Vec<u8>, corpus: &[Vec<u8>], damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        match damage {
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Flip(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            Damage::Insert(at, more) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Remove(one, other) => {
                let (one, other) = (one.index(bytes.len()), other.index(bytes.len()));
                bytes.drain(one.min(other)..one.max(other));
            }
            Damage::Splice(other, at) => {
                let at = at.index(bytes.len());
                let other = other.get(corpus);
                bytes.truncate(at);
                bytes.extend(other.iter().skip(at));
            }
        }
    }
    bytes
}

#[test]
fn fuzz_bytes_of_no_kind_are_refused() {
    runner(48)
        .run(&vec(any::<u8>(), 0..512), |bytes| {
            read_all(&bytes);
            Ok(())
        })
        .expect("nothing panics");
}

#[test]
fn fuzz_valid_messages_that_were_damaged_are_read_or_refused() {
    let corpus = corpus();
    let cases = (any::<Index>(), vec(damage(), 1..4));
    runner(96)
        .run(&cases, |(which, damages)| {
            read_all(&damaged(which.get(&corpus).clone(), &corpus, &damages));
            Ok(())
        })
        .expect("nothing panics");
}

/// Every message cut at each of its bytes: it never means something else.
#[test]
fn fuzz_a_message_that_was_cut_is_never_taken_for_a_whole_one() {
    for example in examples::all() {
        for length in 0..example.bytes.len() {
            assert!(example.read(&example.bytes[..length]).is_err(), "{} cut at {length}", example.name);
        }
    }
}

/// A length that is claimed and not there, of text, bytes, lists and maps, at each place of each message.
#[test]
fn fuzz_a_claimed_length_costs_nothing() {
    const CLAIMS: [&[u8]; 6] = [
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdd\x7f\xff\xff\xff\xdd\x7f\xff\xff\xff\xdd\x7f\xff\xff\xff",
    ];
    for example in examples::all() {
        for at in 0..=example.bytes.len() {
            for claim in CLAIMS {
                let bytes = [&example.bytes[..at], claim].concat();
                bounded(bytes.len(), || drop(example.read(&bytes)));
            }
        }
    }
    for claim in CLAIMS {
        let start =
            rmp_serde::to_vec_named(&serde_json::json!({"workflow": "w", "id": "x"})).expect("a form");
        for at in 0..=start.len() {
            let bytes = [&start[..at], claim].concat();
            bounded(bytes.len(), || read_producers(&bytes));
        }
    }
}

/// Lists in lists in lists: refused before the stack ends, of JSON and of MessagePack.
#[test]
fn fuzz_depth_has_an_end() {
    for depth in [64, 127, 128, 129, 1_000, 100_000] {
        let json = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        drop(Payload::from_text(&json));
        let start = format!(r#"{{"workflow":"w","id":"x","input":{json}}}"#);
        read_producers(start.as_bytes());
        let mut packed = b"\x82\xa8workflow\xa1w\xa5input".to_vec();
        packed.extend(std::iter::repeat_n(0x91, depth));
        packed.push(0xc0);
        read_all(&packed);
        read_all(&vec![0x91; depth]);
        read_all(&[0x81, 0xa1, b'a'].repeat(depth));
    }
    assert!(Payload::from_text(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))).is_err());
}

/// What is over the limit is refused by its length, whichever way it is written.
#[test]
fn fuzz_the_limit_of_an_input_holds() {
    for bytes in [LIMIT as usize - 2, LIMIT as usize - 1] {
        let input = "x".repeat(bytes);
        let body = serde_json::json!({"workflow": "w", "id": "x", "input": input});
        let is_taken = bytes + 2 <= LIMIT as usize;
        let packed = rmp_serde::to_vec_named(&body).expect("a form");
        for (encoding, body) in
            [(Encoding::Json, body.to_string().into_bytes()), (Encoding::MessagePack, packed)]
        {
            assert_eq!(StartMessage::parse(encoding, &body, LIMIT).is_ok(), is_taken, "{bytes} {encoding:?}");
        }
    }
}

/// Everything that reads a text, over this: what is accepted is given back as it was, or as one writes it.
fn read_text(text: &str) {
    macro_rules! kept {
        ($($name:ty),+) => {$(
            if let Ok(name) = <$name>::new(text) {
                assert_eq!(name.as_str(), text, stringify!($name));
            }
        )+};
    }
    kept!(
        Namespace,
        WorkflowName,
        Pool,
        BuildName,
        FunctionName,
        CallName,
        EventType,
        EventKey,
        InstanceId,
        Token,
        ScheduleId
    );
    macro_rules! told {
        ($($name:ty),+) => {$(
            if let Err(error) = text.parse::<$name>() {
                assert!(!error.to_string().is_empty(), stringify!($name));
            }
        )+};
    }
    told!(HookId, QuestionId, StepKey, Pin);
    if let Ok(length) = Millis::parse(text) {
        let written = length.to_string();
        assert_eq!(Millis::parse(&written).ok(), Some(length), "{text:?} as {written:?}");
    }
    let _ = (Timestamp::parse(text), HookRetention::parse(text));
    drop((Attribute::from_words(text), AttributeValue::from_json(text), AttributeValue::from_text(text)));
    if let Ok(payload) = Payload::from_text(text) {
        payload.check().expect("what was taken is good");
    }
    let _ = Encoding::of(Some(text));
}

/// Pieces of which texts of these kinds are made, so that some are nearly right.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        select(vec![
            "1",
            "0",
            "-1",
            "99999999999999999999",
            ".5",
            "e9",
            " ",
            "s",
            "ms",
            "min",
            "hours",
            "days",
            "week",
            "years",
            "inf",
            "NaN",
            "2026-01-02T03:04:05Z",
            "T",
            ":",
            "/",
            "..",
            "%2F",
            "\u{0}",
            "\u{202e}",
            "\u{feff}",
            "\r\n",
            "'",
            "\"",
            "{",
            "}",
            "[",
            "]",
            "null",
            "\\ud800",
            "019ac5f0-0000-7000-8000-000000000000",
            "*",
            "build",
            "=",
            ",",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
        Just("a".repeat(300)),
    ];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

#[test]
fn fuzz_texts_are_read_or_refused() {
    runner(2_000)
        .run(&pieces(), |text| {
            bounded(text.len(), || read_text(&text));
            Ok(())
        })
        .expect("nothing panics");
}
