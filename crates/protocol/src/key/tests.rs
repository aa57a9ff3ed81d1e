//! Proves that keys equal the vectors in `golden/keys.json`, which an independent program computed, and that the
//! canonical form ignores what it should and nothing else. Not: that callees honour keys.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn payload(text: &str) -> Payload {
    Payload::from_text(text).unwrap()
}

#[derive(Deserialize)]
struct Vector {
    what: String,
    instance: Uuid,
    generation: u32,
    kind: String,
    name: String,
    count: u32,
    input: String,
    canonical: String,
    key: StepKey,
    fingerprint: String,
}

#[test]
fn l01_golden_vectors_never_change() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../../golden/keys.json")).unwrap();
    assert!(vectors.len() >= 12);
    for vector in vectors {
        let Vector { what, instance, generation, kind, name, count, .. } = &vector;
        let input = payload(&vector.input);
        assert_eq!(canonical(&input).unwrap(), vector.canonical, "{what}");
        let (key, fingerprint) = keys_of(*instance, *generation, kind, name, *count, &input).unwrap();
        assert_eq!(key, vector.key, "{what}");
        assert_eq!(fingerprint.to_string(), vector.fingerprint, "{what}");
        assert_eq!(StepKey::derive(*instance, *generation, kind, name, *count, &input), Ok(key));
        assert_eq!(Fingerprint::of(&input), Ok(fingerprint));
    }
}

#[test]
fn l01_every_part_of_the_call_counts() {
    let derive = |id: u128, generation, kind, name, count, input| {
        StepKey::derive(Uuid::from_u128(id), generation, kind, name, count, &payload(input)).unwrap()
    };
    let keys = [
        derive(1, 1, "step", "a", 1, "1"),
        derive(2, 1, "step", "a", 1, "1"),
        derive(1, 2, "step", "a", 1, "1"),
        derive(1, 1, "sleep", "a", 1, "1"),
        derive(1, 1, "step", "b", 1, "1"),
        derive(1, 1, "step", "a", 2, "1"),
        derive(1, 1, "step", "a", 1, "2"),
        derive(1, 1, "step", "a\",1,[\"", 1, "1"),
    ];
    assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
}

#[test]
fn l01_a_key_is_64_lowercase_digits() {
    let key = StepKey::derive(Uuid::nil(), 1, "step", "a", 1, &Payload::null()).unwrap();
    let text = key.to_string();
    assert_eq!(text.len(), 64);
    assert_eq!(text.parse(), Ok(key));
    let wire = serde_json::to_string(&key).unwrap();
    assert_eq!(wire, format!("\"{text}\""));
    assert_eq!(serde_json::from_str::<StepKey>(&wire).unwrap(), key);
    let wire = rmp_serde::to_vec(&key).unwrap();
    assert_eq!(rmp_serde::from_slice::<StepKey>(&wire).unwrap(), key);
    for wrong in ["", &text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace(&text[..1], "g")] {
        assert_eq!(wrong.parse::<StepKey>(), Err(StepKeyError), "{wrong}");
    }
}

#[test]
fn l02_a_fingerprint_is_32_bytes_on_the_wire() {
    let fingerprint = Fingerprint::of(&Payload::null()).unwrap();
    let wire = rmp_serde::to_vec(&fingerprint).unwrap();
    assert_eq!(wire.len(), 34);
    assert_eq!(rmp_serde::from_slice::<Fingerprint>(&wire).unwrap(), fingerprint);
    assert_eq!(Fingerprint::from_bytes(*fingerprint.as_bytes()), fingerprint);
    assert!(rmp_serde::from_slice::<Fingerprint>(&rmp_serde::to_vec(&[0u8; 31]).unwrap()).is_err());
}

#[test]
fn l02_canonical_form() {
    let cases = [
        ("-0.0", "0"),
        ("-0", "0"),
        ("1.0", "1"),
        ("1e2", "100"),
        ("1e21", "1e+21"),
        ("1E-7", "1e-7"),
        ("123456789012345678901234567890", "1.2345678901234568e+29"),
        ("100000000000000000000", "100000000000000000000"),
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "18446744073709552000"),
        ("-9223372036854775808", "-9223372036854775808"),
        (r#""\u0041\/\u00e9\u2028\ud83d\ude00""#, "\"A/é\u{2028}😀\""),
        (
            r#""\u0000\u0008\u0009\u000a\u000b\u000c\u000d\u001F\u007f\"\\""#,
            "\"\\u0000\\b\\t\\n\\u000b\\f\\r\\u001f\u{7f}\\\"\\\\\"",
        ),
        ("[ ]", "[]"),
        ("{ }", "{}"),
        (
            r#"{"b":[{"d":1,"c":2},{}],"a":{"z":[],"y":null},"":true}"#,
            r#"{"":true,"a":{"y":null,"z":[]},"b":[{"c":2,"d":1},{}]}"#,
        ),
        (r#"{"\"":1,"!":2,"a\\":3,"a]":4,"a[":5}"#, r#"{"!":2,"\"":1,"a[":5,"a\\":3,"a]":4}"#),
        // The example of RFC 8785, section 3.2.3: units, not code points.
        (
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(canonical(&payload(text)).unwrap(), expected, "{text}");
    }
}

/// Needs the feature `float_roundtrip` of `serde_json`.
#[test]
fn l02_floats_are_read_to_the_last_bit() {
    for text in ["31.245270191439438", "121.4847917416103", "2.225073858507201e-308", "5e-324"] {
        assert_eq!(canonical(&payload(text)).unwrap(), text);
    }
}

#[test]
fn l02_two_members_of_one_name_have_no_canonical_form() {
    for text in [r#"{"a":1,"a":1}"#, r#"[{"b":0,"a":1,"\u0061":2}]"#] {
        assert_eq!(canonical(&payload(text)), Err(PayloadError::MemberTwice { name: "a".to_owned() }));
    }
}

#[test]
fn l02_text_that_is_no_json_is_an_error() {
    let hostile = "[".repeat(1_000_000);
    for text in ["", "1 2", "{", "{\"a\"}", "\"\\ud800\"", &hostile] {
        let payload = Payload::from_trusted(text.to_owned());
        assert!(matches!(Fingerprint::of(&payload), Err(PayloadError::NotJson { .. })));
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same value as text with all members in the opposite order.
fn reversed(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join(" ,")),
        Value::Object(members) => {
            let members = members.iter().rev();
            let members =
                members.map(|(name, value)| format!("{} : {}", Value::from(&**name), reversed(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn l02_order_of_members_does_not_matter(value in any_json()) {
        let text = canonical(&Payload::encode(&value).unwrap()).unwrap();
        prop_assert_eq!(&canonical(&payload(&reversed(&value))).unwrap(), &text);
        prop_assert_eq!(&canonical(&Payload::from_trusted(text.clone())).unwrap(), &text);
    }

    #[test]
    fn l02_another_value_gives_another_text(left in any_json(), right in any_json()) {
        let [a, b] = [&left, &right].map(|value| canonical(&Payload::encode(value).unwrap()).unwrap());
        prop_assert_eq!(left == right, a == b);
    }
}
