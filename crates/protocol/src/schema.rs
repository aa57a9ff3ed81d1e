//! The JSON Schema of a hook, as far as it is checked without compiling it (rule H57): its size, its shape, and that it says all by
//! itself. Whoever keeps hooks compiles it too.

use serde_json::Value;

use crate::{Payload, hook::HookError};

/// The most bytes of a hook's schema, as JSON.
pub const SCHEMA_BYTES: usize = 64 << 10;

/// The most patterns of a schema, and the most bytes of all of them: each is compiled, and kept in memory.
pub const PATTERNS_MAX: usize = 32;
/// See [`PATTERNS_MAX`].
pub const PATTERN_BYTES: usize = 4 << 10;

/// Keywords that point at other schemas.
const POINTERS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose values are what payloads are compared with, or examples: no schemas, whatever they look like.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose names are free and whose values are schemas.
const NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Whether a schema may be kept: at most [`SCHEMA_BYTES`], an object or a `bool`, with few patterns, and without a reference to anything
/// outside.
pub fn check_schema(schema: &Payload) -> Result<(), HookError> {
    let bytes = schema.len();
    if bytes > SCHEMA_BYTES {
        return Err(HookError::Schema(format!("it is {bytes} bytes of JSON, the limit is {SCHEMA_BYTES}")));
    }
    let value: Value = schema.decode().map_err(|error| HookError::Schema(error.to_string()))?;
    match &value {
        Value::Bool(_) => Ok(()),
        Value::Object(_) => {
            let mut found = Found::default();
            found.look_at(&value);
            found.check().map_err(HookError::Schema)
        }
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(HookError::Schema("it is no object and no boolean".to_owned()))
        }
    }
}

/// What stands in a schema.
#[derive(Default)]
struct Found<'a> {
    /// The first reference that leads out of it.
    outside: Option<&'a str>,
    patterns: usize,
    pattern_bytes: usize,
}

impl<'a> Found<'a> {
    /// The depth of JSON is bounded by whoever has read it.
    fn look_at(&mut self, value: &'a Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.keyword(name, value);
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.look_at(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn keyword(&mut self, name: &str, value: &'a Value) {
        match value {
            Value::String(pointer) if POINTERS.contains(&name) => {
                if !pointer.starts_with('#') {
                    self.outside.get_or_insert(pointer);
                }
            }
            Value::String(pattern) if name == "pattern" => self.pattern(pattern),
            Value::Object(named) if NAMED.contains(&name) => {
                for (key, value) in named {
                    if name == "patternProperties" {
                        self.pattern(key);
                    }
                    self.look_at(value);
                }
            }
            _ if VALUES.contains(&name) => {}
            value => self.look_at(value),
        }
    }

    fn pattern(&mut self, pattern: &str) {
        self.patterns += 1;
        self.pattern_bytes += pattern.len();
    }

    fn check(&self) -> Result<(), String> {
        let Self { patterns, pattern_bytes, .. } = self;
        if let Some(pointer) = self.outside {
            return Err(format!(
                "it refers to {pointer:?}, and only references within it, which begin with \"#\", are followed"
            ));
        }
        if *patterns > PATTERNS_MAX {
            return Err(format!(
                "it has {patterns} patterns (pattern, patternProperties), the limit is {PATTERNS_MAX}"
            ));
        }
        if *pattern_bytes > PATTERN_BYTES {
            return Err(format!(
                "its patterns (pattern, patternProperties) are {pattern_bytes} bytes together, the limit is {PATTERN_BYTES}"
            ));
        }
        Ok(())
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
            r#"{"const":{"$ref":"https://example.com/a"},"default":{"a":[{"$ref":"b"}]},"enum":[{"$ref":"b"}]}"#,
            r#"{"items":{"examples":[{"$dynamicRef":"b"}]}}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, named) in [
            ("1", "no object"),
            (r#"["string"]"#, "no object"),
            (r#"{"$ref":"https://example.com/a.json"}"#, "https://example.com"),
            (r#"{"allOf":[{"items":{"$dynamicRef":"other.json#a"}}]}"#, "other.json"),
            (r#"{"$ref":"file:///etc/passwd"}"#, "file:"),
            // Here it is a property of that name, and what it has is a schema.
            (r#"{"properties":{"const":{"$ref":"https://example.com/a"}}}"#, "https://example.com"),
            (r#"{"$defs":{"enum":{"items":[{"$ref":"b"}]}}}"#, "\"b\""),
        ] {
            let refused = check(bad).unwrap_err().to_string();
            assert!(refused.contains(named) && refused.contains("again"), "{bad}: {refused}");
        }
        let text = |length: usize| format!(r#"{{"title":"{}"}}"#, "x".repeat(length));
        assert_eq!(check(&text(SCHEMA_BYTES - 12)), Ok(()));
        assert!(check(&text(SCHEMA_BYTES - 11)).unwrap_err().to_string().contains("65537"));
    }

    #[test]
    fn h57_the_patterns_of_a_schema_are_bounded_in_number_and_bytes() {
        let schema = |patterns: &[String]| {
            let (half, rest) = patterns.split_at(patterns.len() / 2);
            let items: Vec<_> =
                half.iter().map(|pattern| serde_json::json!({ "pattern": pattern })).collect();
            let named: serde_json::Map<_, _> = rest.iter().map(|name| (name.clone(), true.into())).collect();
            check_schema(
                &Payload::encode(&serde_json::json!({ "allOf": items, "patternProperties": named })).unwrap(),
            )
        };
        let some = |count: usize, bytes: usize| -> Vec<String> {
            (0..count).map(|number| format!("{number:0>bytes$}")).collect()
        };
        assert_eq!(schema(&some(PATTERNS_MAX, PATTERN_BYTES / PATTERNS_MAX)), Ok(()));
        let many = schema(&some(PATTERNS_MAX + 1, 2)).unwrap_err().to_string();
        assert!(many.contains("33 patterns") && many.contains("32"), "{many}");
        let long = schema(&some(2, PATTERN_BYTES / 2 + 1)).unwrap_err().to_string();
        assert!(long.contains("4098 bytes") && long.contains("4096"), "{long}");
        let no_pattern = r#"{"properties":{"pattern":{"type":"string"}},"const":{"pattern":"x"}}"#;
        assert_eq!(check_schema(&Payload::from_text(no_pattern).unwrap()), Ok(()));
    }
}
