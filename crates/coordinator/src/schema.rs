//! The JSON Schemas of hooks: whether one can be used, and whether a payload fits it (rule H57). Compiled ones are kept by their hash,
//! a bounded number of them. Nothing outside of a schema is ever fetched: the library is built without what could.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use everstep_protocol::{Payload, hook::check_schema};
use jsonschema::{PatternOptions, Validator, paths::Location};
use serde_json::Value;

/// How many compiled schemas are kept.
const KEPT: usize = 64;
/// Bytes that one pattern may take when it is compiled.
const PATTERN_BYTES: usize = 1 << 20;

/// Where and how a payload does not fit the schema of its hook. The payload itself is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the payload does not fit the schema of the hook: at {path:?} {reason} (rule {rule:?}); nothing was kept, and the same payload \
     will be refused again"
)]
pub struct Misfit {
    /// Where in the payload: a JSON pointer, empty for the whole.
    pub path: String,
    /// Which rule of the schema: a JSON pointer into it.
    pub rule: String,
    /// What does not fit.
    pub reason: String,
}

/// Why a schema cannot be used; none if it can.
pub(crate) fn compiles(schema: &Payload) -> Result<(), String> {
    check_schema(schema).map_err(|error| error.to_string())?;
    compile(schema).map(|_| ())
}

fn compile(schema: &Payload) -> Result<Validator, String> {
    let value: Value = schema.decode().map_err(|error| error.to_string())?;
    jsonschema::options()
        // No pattern of an author keeps a coordinator busy: this engine's time is linear.
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
        .build(&value)
        .map_err(|error| {
            format!(
                "it is no JSON Schema that can be used: at {:?} {}",
                pointer(error.instance_path()),
                error.masked()
            )
        })
}

fn pointer(location: &Location) -> String {
    location.as_str().to_owned()
}

/// Compiled schemas by their hash.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    compiled: HashMap<blake3::Hash, (Arc<Validator>, u64)>,
    /// How often they were asked for: who has not been longest goes first.
    asked: u64,
}

impl Schemas {
    /// Whether a payload fits. A schema that cannot be used, which only a newer version can have let through, fits nothing.
    pub(crate) fn fit(&self, schema: &Payload, payload: &Payload) -> Result<(), Misfit> {
        let whole = |reason: String| Misfit { path: String::new(), rule: String::new(), reason };
        let validator = self.compiled(schema).map_err(whole)?;
        let value: Value = payload.decode().map_err(|error| whole(error.to_string()))?;
        validator.validate(&value).map_err(|error| Misfit {
            path: pointer(error.instance_path()),
            rule: pointer(error.schema_path()),
            reason: error.masked().to_string(),
        })
    }

    fn compiled(&self, schema: &Payload) -> Result<Arc<Validator>, String> {
        let hash = blake3::hash(schema.as_str().as_bytes());
        if let Some(known) = self.known(&hash) {
            return Ok(known);
        }
        // Not under the lock: another may compile the same meanwhile, which does no harm.
        let made = Arc::new(compile(schema)?);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.compiled.len() >= KEPT
            && let Some(oldest) =
                kept.compiled.iter().min_by_key(|(_, (_, asked))| *asked).map(|(hash, _)| *hash)
        {
            kept.compiled.remove(&oldest);
        }
        let asked = kept.asked;
        kept.compiled.insert(hash, (Arc::clone(&made), asked));
        Ok(made)
    }

    fn known(&self, hash: &blake3::Hash) -> Option<Arc<Validator>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.asked += 1;
        let now = kept.asked;
        let (known, asked) = kept.compiled.get_mut(hash)?;
        *asked = now;
        Some(Arc::clone(known))
    }
}

#[cfg(test)]
mod tests {
    //! Proves what is said of payloads and of schemas. Not: that nothing is kept of what does not fit; see the tests over HTTP.
    use super::*;

    fn json(text: &str) -> Payload {
        Payload::from_text(text).unwrap()
    }

    #[test]
    fn h57_a_payload_that_does_not_fit_is_refused_by_path_and_rule_and_without_its_values() {
        let schema = json(
            r#"{"type":"object","properties":{"cents":{"type":"integer","minimum":1}},"required":["cents"]}"#,
        );
        let schemas = Schemas::default();
        assert_eq!(schemas.fit(&schema, &json(r#"{"cents":5,"more":"4711"}"#)), Ok(()));
        let misfit = |payload: &str| schemas.fit(&schema, &json(payload)).unwrap_err();
        let wrong = misfit(r#"{"cents":"4711"}"#);
        assert_eq!((wrong.path.as_str(), wrong.rule.as_str()), ("/cents", "/properties/cents/type"));
        let text = wrong.to_string();
        assert!(!text.contains("4711") && text.contains("integer") && text.contains("again"), "{text}");
        assert_eq!(misfit(r#"{"cents":0}"#).rule, "/properties/cents/minimum");
        assert_eq!((misfit("{}").path.as_str(), misfit("{}").rule.as_str()), ("", "/required"));
        assert_eq!(schemas.fit(&json("false"), &json("1")).unwrap_err().path, "");
    }

    #[test]
    fn h57_a_schema_that_cannot_be_used_is_refused() {
        for bad in [
            r#"{"type":"no such type"}"#,
            r##"{"$ref":"#/$defs/missing"}"##,
            r#"{"$ref":"https://example.com/a.json"}"#,
            r#"{"pattern":"("}"#,
            r#"{"pattern":"(a+)\\1"}"#,
        ] {
            assert!(compiles(&json(bad)).is_err(), "{bad}");
        }
        for good in [r#"{"pattern":"^[a-z]+$"}"#, r##"{"$defs":{"a":{"type":"null"}},"$ref":"#/$defs/a"}"##] {
            assert_eq!(compiles(&json(good)), Ok(()), "{good}");
        }
    }

    #[test]
    fn h57_no_more_compiled_schemas_are_kept_than_their_bound() {
        let schemas = Schemas::default();
        let first = json(r#"{"const":0}"#);
        for number in 0..3 * KEPT {
            schemas.fit(&json(&format!(r#"{{"const":{number}}}"#)), &json(&number.to_string())).unwrap();
            schemas.fit(&first, &json("0")).unwrap();
        }
        let kept = schemas.0.lock().unwrap();
        assert_eq!(kept.compiled.len(), KEPT);
        let hash = blake3::hash(first.as_str().as_bytes());
        assert!(kept.compiled.contains_key(&hash), "what is asked for again and again stays");
    }
}
