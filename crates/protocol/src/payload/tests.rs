//! Proves what survives the way through a payload and what is refused at its door. Not: sizes (P4), canonical form (L2).

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    let payload = Payload::encode(value).unwrap();
    assert_eq!(payload.as_str(), text);
    assert_eq!(payload.len(), text.len());
    assert_eq!(Payload::from_text(text).unwrap(), payload);
    assert_eq!(payload.decode::<T>().unwrap(), *value);
    assert_eq!(payload.check(), Ok(()));
}

#[test]
fn p03_values_come_back_the_same() {
    round_trip(&(), "null");
    round_trip(&None::<u8>, "null");
    round_trip(&u64::MAX, "18446744073709551615");
    round_trip(&i64::MIN, "-9223372036854775808");
    round_trip(&9_007_199_254_740_993_u64, "9007199254740993");
    round_trip(&u128::from(u64::MAX), "18446744073709551615");
    round_trip(&i128::from(i64::MIN), "-9223372036854775808");
    round_trip(&"a\0b".to_owned(), r#""a\u0000b""#);
    round_trip(&"\u{2028}😀\"\\\u{7f}".to_owned(), "\"\u{2028}😀\\\"\\\\\u{7f}\"");
    round_trip(&vec![0.1, -1.5, 1e300, 5e-324], "[0.1,-1.5,1e+300,5e-324]");
    round_trip(&BTreeMap::from([(1, 'a'), (2, 'b')]), r#"{"1":"a","2":"b"}"#);
    round_trip(&(1, "x".to_owned(), [true, false]), r#"[1,"x",[true,false]]"#);
    assert_eq!(Payload::null(), Payload::encode(&()).unwrap());
    assert_eq!(Payload::default(), Payload::null());
}

/// Some of these are read one bit wrong without the feature `float_roundtrip` of `serde_json`.
#[test]
fn p03_floats_come_back_to_the_last_bit() {
    for value in
        [5.0e-324, f64::MAX, 2.225_073_858_507_201e-308, 31.245_270_191_439_438, 121.484_791_741_610_3]
    {
        let payload = Payload::encode(&value).unwrap();
        assert_eq!(payload.decode::<f64>().unwrap().to_bits(), value.to_bits(), "{value}");
    }
}

#[derive(Serialize)]
struct Unit;

#[derive(Serialize)]
struct Wrapper(f64);

#[derive(Serialize)]
struct Pair(u8, f64);

#[derive(Serialize)]
struct Prices {
    name: &'static str,
    prices: Vec<f64>,
}

#[derive(Serialize)]
enum Shape {
    Round(f64),
    Flat(u8, f64),
    Named { height: f64 },
}

#[test]
fn p03_a_number_that_is_not_finite_is_refused_wherever_it_is() {
    fn check(value: impl Serialize, expected: &str) {
        assert_eq!(Payload::encode(&value), Err(PayloadError::NotFinite { path: expected.to_owned() }));
    }
    check(f64::NAN, "$");
    check(f64::INFINITY, "$");
    check(f32::NAN, "$");
    check(f32::NEG_INFINITY, "$");
    check(Some(Some(f64::NAN)), "$");
    check(Wrapper(f64::NAN), "$");
    check(vec![0.0, 1.0, f64::NAN], "$[2]");
    check([f32::NAN], "$[0]");
    check((1, "a", f64::NEG_INFINITY), "$[2]");
    check(Pair(1, f64::NAN), "$[1]");
    check(BTreeMap::from([("a", 1.0), ("b", f64::NAN)]), r#"$["b"]"#);
    check(BTreeMap::from([(7, Some(f64::NAN))]), "$[7]");
    check(Prices { name: "x", prices: vec![1.0, f64::NAN] }, "$.prices[1]");
    check(vec![Prices { name: "x", prices: vec![f64::NAN] }], "$[0].prices[0]");
    check(Shape::Round(f64::NAN), "$.Round");
    check(Shape::Flat(1, f64::NAN), "$[1]");
    check(Shape::Named { height: f64::NAN }, "$.height");
    let text = Payload::encode(&[f64::NAN]).unwrap_err().to_string();
    assert_eq!(text, "the number at $[0] is NaN or infinite, which JSON cannot hold");
}

#[test]
fn p03_units_and_structs_have_their_usual_form() {
    let cases = [
        (Payload::encode(&Unit), "null"),
        (Payload::encode(&Wrapper(1.0)), "1.0"),
        (Payload::encode(&Pair(1, 2.5)), "[1,2.5]"),
        (Payload::encode(&Prices { name: "x", prices: vec![] }), r#"{"name":"x","prices":[]}"#),
        (Payload::encode(&[Shape::Round(1.5)]), r#"[{"Round":1.5}]"#),
        (Payload::encode(&Shape::Flat(1, 0.5)), r#"{"Flat":[1,0.5]}"#),
        (Payload::encode(&Shape::Named { height: 0.5 }), r#"{"Named":{"height":0.5}}"#),
        (Payload::encode("borrowed"), r#""borrowed""#),
    ];
    for (payload, text) in cases {
        assert_eq!(payload.unwrap().as_str(), text);
    }
}

#[test]
fn p03_what_json_cannot_hold_is_refused() {
    let cases = [
        (Payload::encode(&(u128::from(u64::MAX) + 1)), "18446744073709551616"),
        (Payload::encode(&[i128::MIN]), "at $[0]"),
        (Payload::encode(&BTreeMap::from([((1, 2), 3)])), "key must be a string"),
    ];
    for (result, part) in cases {
        match result {
            Err(PayloadError::Unserialisable { message }) => assert!(message.contains(part), "{message}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn p03_text_keeps_digits_and_order_and_loses_blanks() {
    let cases = [
        (" null\n", "null"),
        ("{ \"b\" : 1,\r\n\t\"a\" : [ ] }", r#"{"b":1,"a":[]}"#),
        (r#"" a \" b \\""#, r#"" a \" b \\""#),
        (r#"["\\", " " , "\"" ]"#, r#"["\\"," ","\""]"#),
        ("[ 18446744073709551615 , -9223372036854775808 ]", "[18446744073709551615,-9223372036854775808]"),
        ("[1.0, 1e2, -0, 100000000000000000000]", "[1.0,1e2,-0,100000000000000000000]"),
        ("\"é 😀\" ", "\"é 😀\""),
    ];
    for (text, kept) in cases {
        assert_eq!(Payload::from_text(text).unwrap().as_str(), kept);
    }
}

#[test]
fn p03_text_that_is_not_one_json_value_is_refused() {
    let cases = [
        ("", 0),
        (" ", 1),
        ("nul", 3),
        ("1 2", 3),
        ("{}}", 3),
        ("[1,]", 4),
        ("{\"a\":1,\n \"b\":}", 14),
        ("NaN", 1),
        ("1e999", 5),
        ("01", 2),
        ("'a'", 1),
        ("\"\\ud800\"", 8),
        ("\"a\nb\"", 3),
        ("{1:2}", 2),
        ("\u{feff}1", 1),
    ];
    for (text, expected) in cases {
        match Payload::from_text(text) {
            Err(PayloadError::NotJson { at, .. }) => assert_eq!(at, expected, "{text:?}"),
            other => panic!("{text:?} {other:?}"),
        }
        assert!(Payload::from_trusted(text.to_owned()).check().is_err());
        assert!(Payload::from_trusted(text.to_owned()).decode::<Value>().is_err());
    }
}

struct Nested(u32);

impl Serialize for Nested {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => serializer.serialize_unit(),
            depth => serializer.collect_seq([Nested(depth - 1)]),
        }
    }
}

#[test]
fn p03_depth_is_bounded_at_every_door() {
    let text = |depth: u32| format!("{}null{}", "[".repeat(depth as usize), "]".repeat(depth as usize));
    let deepest = Payload::encode(&Nested(DEPTH_MAX)).unwrap();
    assert_eq!(Payload::from_text(&text(DEPTH_MAX)), Ok(deepest.clone()));
    deepest.decode::<Value>().unwrap();
    assert!(matches!(Payload::encode(&Nested(DEPTH_MAX + 1)), Err(PayloadError::Unserialisable { .. })));
    for depth in [DEPTH_MAX + 1, 1_000_000] {
        let hostile = text(depth);
        assert!(matches!(Payload::from_text(&hostile), Err(PayloadError::NotJson { .. })));
        let hostile = Payload::from_trusted(hostile);
        assert!(matches!(hostile.decode::<Value>(), Err(PayloadError::DoesNotFit { .. })));
    }
    assert!(Payload::encode(&Nested(1_000_000)).is_err());
    assert!(Payload::from_text(&"{\"a\":".repeat(1_000_000)).is_err());
}

#[test]
fn p03_raw_text_inside_a_value_is_checked_and_compacted() {
    let raw: Box<RawValue> = serde_json::from_str("{ \"a\" : 1 }").unwrap();
    assert_eq!(Payload::encode(&[raw]).unwrap().as_str(), r#"[{"a":1}]"#);
    let hostile: Box<RawValue> =
        serde_json::from_str(&format!("{}{}", "[".repeat(200), "]".repeat(200))).unwrap();
    assert!(matches!(Payload::encode(&hostile), Err(PayloadError::NotJson { .. })));
}

#[test]
fn p03_a_payload_is_a_string_on_the_wire() {
    let payload = Payload::from_text(r#"{"a":"b"}"#).unwrap();
    assert_eq!(serde_json::to_string(&payload).unwrap(), r#""{\"a\":\"b\"}""#);
    let wire = rmp_serde::to_vec_named(&payload).unwrap();
    assert_eq!(rmp_serde::from_slice::<Payload>(&wire).unwrap(), payload);
}

#[test]
fn p03_a_value_of_another_type_does_not_fit() {
    let error = Payload::from_text("[1,\"a\"]").unwrap().decode::<Vec<u8>>().unwrap_err();
    assert!(matches!(&error, PayloadError::DoesNotFit { message } if message.contains("invalid type")));
}

proptest! {
    #[test]
    fn p03_no_text_panics(text in prop_oneof![".*", "[\\[\\]{}:,\"0-9eE.\\- \\\\untrfalse]{0,40}"]) {
        if let Ok(payload) = Payload::from_text(&text) {
            prop_assert_eq!(
                payload.decode::<Value>().unwrap(),
                serde_json::from_str::<Value>(&text).unwrap()
            );
            prop_assert_eq!(Payload::from_text(payload.as_str()), Ok(payload));
        }
    }

    #[test]
    fn p03_encode_writes_what_serde_json_writes(
        value: (Vec<(String, i64)>, Option<u64>, BTreeMap<String, (char, bool)>, Result<(), String>)
    ) {
        let payload = Payload::encode(&value).unwrap();
        prop_assert_eq!(payload.as_str(), serde_json::to_string(&value).unwrap());
    }
}
