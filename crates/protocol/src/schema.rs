//! The JSON Schema of a hook, as far as it is checked without compiling it (rule H57): its size, its shape, and that it says all by
//! itself. Whoever keeps hooks compiles it too.

use serde_json::Value;

use crate::{Payload, hook::HookError};

/// The most bytes of a hook's schema, as JSON.
pub const SCHEMA_BYTES: usize = 64 << 10;

/// Keywords that point at other schemas.
const POINTERS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Whether a schema may be kept: at most [`SCHEMA_BYTES`], an object or a `bool`, and without a reference to anything outside.
pub fn check_schema(schema: &Payload) -> Result<(), HookError> {
    let bytes = schema.len();
    if bytes > SCHEMA_BYTES {
        return Err(HookError::Schema(format!("it is {bytes} bytes of JSON, the limit is {SCHEMA_BYTES}")));
    }
    let value: Value = schema.decode().map_err(|error| HookError::Schema(error.to_string()))?;
    match &value {
        Value::Bool(_) => Ok(()),
        Value::Object(_) => match outside(&value) {
            Some(pointer) => Err(HookError::Schema(format!(
                "it refers to {pointer:?}, and only references within it, which begin with \"#\", are followed"
            ))),
            None => Ok(()),
        },
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(HookError::Schema("it is no object and no boolean".to_owned()))
        }
    }
}

/// The first reference that leads out of the schema. The depth of JSON is bounded by whoever has read it.
fn outside(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match value {
            Value::String(pointer) if POINTERS.contains(&name.as_str()) => {
                (!pointer.starts_with('#')).then_some(pointer.as_str())
            }
            value => outside(value),
        }),
        Value::Array(values) => values.iter().find_map(outside),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    //! Proves what is refused of a schema before anybody compiles it. Not: what it says of payloads.
    use super::*;

    #[test]
    fn h57_a_schema_is_bounded_and_refers_to_nothing_outside() {
        let check = |text: &str| check_schema(&Payload::from_text(text).unwrap());
        for good in [
            "true",
            "{}",
            r##"{"$defs":{"a":{"type":"string"}},"items":{"$ref":"#/$defs/a"}}"##,
            r#"{"properties":{"$ref":{"type":"string"}}}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, named) in [
            ("1", "no object"),
            (r#"["string"]"#, "no object"),
            (r#"{"$ref":"https://example.com/a.json"}"#, "https://example.com"),
            (r#"{"allOf":[{"items":{"$dynamicRef":"other.json#a"}}]}"#, "other.json"),
            (r#"{"$ref":"file:///etc/passwd"}"#, "file:"),
        ] {
            let refused = check(bad).unwrap_err().to_string();
            assert!(refused.contains(named) && refused.contains("again"), "{bad}: {refused}");
        }
        let text = |length: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(length));
        assert_eq!(check(&text(SCHEMA_BYTES - 12)), Ok(()));
        assert!(check(&text(SCHEMA_BYTES - 11)).unwrap_err().to_string().contains("65537"));
    }
}
