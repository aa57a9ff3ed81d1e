//! The JSON Schemas of hooks: whether one can be used, and whether a payload fits it (rule H57). Compiled ones are kept by their hash,
//! a bounded number of them. Nothing outside of a schema is ever fetched: the library is built without what could.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use everstep_protocol::{Namespace, Payload, Token, hook::check_schema};
use jsonschema::{PatternOptions, Validator, paths::Location};
use serde_json::Value;

/// How many compiled schemas are kept.
const KEPT: usize = 64;
/// Bytes that one pattern may take when it is compiled.
const PATTERN_BYTES: usize = 1 << 20;

/// Where and how a payload does not fit its hook. Nothing of the payload is in it but the path: neither values nor names of properties that
/// the schema does not name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the payload does not fit the hook: at {path:?} {reason} (rule {rule:?}); nothing was kept, and the same payload will be refused \
     again"
)]
pub struct Misfit {
    /// Where in the payload: a JSON pointer, empty for the whole.
    pub path: String,
    /// Which rule of the schema: a JSON pointer into it.
    pub rule: String,
    /// What the rule says.
    pub reason: String,
}

/// The rule by which a webhook whose code gets requests takes nothing else.
const OF_WEBHOOKS: &str = "webhook";
/// The longest value of a rule that is repeated.
const RULE_CHARS: usize = 200;

impl Misfit {
    /// The hook's code gets requests, and this is none.
    pub(crate) fn no_request(namespace: &Namespace, token: &Token) -> Self {
        let reason = format!("it is no request: send one to /hooks/{namespace}/{token}");
        Self { path: String::new(), rule: OF_WEBHOOKS.to_owned(), reason }
    }

    /// Told by the schema alone, since what the library says repeats names of the payload.
    fn of(schema: &Payload, path: String, rule: String) -> Self {
        let keyword = rule.rsplit('/').next().unwrap_or_default();
        let schema: Option<Value> = schema.decode().ok();
        // Behind a reference the rule is not where its path leads.
        let said = schema.as_ref().and_then(|schema| schema.pointer(&rule)).map(ToString::to_string);
        let reason = match said.filter(|said| said.len() <= RULE_CHARS && !rule.is_empty()) {
            Some(said) => format!("it must fit {keyword}: {said}"),
            None => format!("it must fit {}", if keyword.is_empty() { "the schema" } else { keyword }),
        };
        Self { path, rule, reason }
    }
}

/// Why a schema cannot be used; none if it can.
pub(crate) fn compiles(schema: &Payload) -> Result<(), String> {
    check_schema(schema).map_err(|error| error.to_string())?;
    compile(schema).map(|_| ())
}

fn compile(schema: &Payload) -> Result<Validator, String> {
    #[cfg(test)]
    tests::COMPILED.with(|compiled| compiled.set(compiled.get() + 1));
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
        validator
            .validate(&value)
            .map_err(|error| Misfit::of(schema, pointer(error.instance_path()), pointer(error.schema_path())))
    }

    /// Why the schema of a start cannot be used, which is asked before the start; none if it can. It is kept: its payloads come next.
    pub(crate) fn usable(&self, schema: &Payload) -> Result<(), String> {
        self.compiled(schema).map(drop)
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
    use crate::rehearsal::Rehearsal;

    std::thread_local! {
        /// How often this thread has compiled.
        pub(super) static COMPILED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
    }

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
    fn h57_what_is_said_of_a_payload_has_no_names_of_it() {
        let schemas = Schemas::default();
        for (schema, payload) in [
            (r#"{"additionalProperties":false}"#, r#"{"diagnosis":1}"#),
            (r#"{"unevaluatedProperties":false}"#, r#"{"diagnosis":1}"#),
            (r#"{"propertyNames":{"maxLength":3}}"#, r#"{"diagnosis":1}"#),
            (r#"{"propertyNames":{"pattern":"^[0-9]+$"}}"#, r#"{"diagnosis":1}"#),
            (r#"{"maxProperties":0}"#, r#"{"diagnosis":1}"#),
            (r#"{"enum":["a"]}"#, r#""diagnosis""#),
            (r#"{"const":{"a":1}}"#, r#"{"diagnosis":1}"#),
            (r#"{"not":{"required":["a"]}}"#, r#"{"a":"diagnosis"}"#),
            (r##"{"$defs":{"b":{"additionalProperties":false}},"$ref":"#/$defs/b"}"##, r#"{"diagnosis":1}"#),
        ] {
            let misfit = schemas.fit(&json(schema), &json(payload)).unwrap_err();
            assert!(!misfit.to_string().contains("diagnosis"), "{schema}: {misfit}");
            assert!(!misfit.rule.is_empty(), "{schema}: {misfit:?}");
        }
    }

    #[tokio::test]
    async fn h57_the_schema_of_a_start_is_compiled_once_and_the_first_payload_compiles_nothing_else() {
        let coordinator = Rehearsal::new();
        let schema = Some(json(r#"{"type":"integer"}"#));
        let hook = everstep_protocol::hook::StartHook {
            schema,
            ..everstep_protocol::hook::StartHook::new("t".parse().unwrap())
        };
        let before = COMPILED.get();
        crate::handle::check_hook(&coordinator.shared, Some(&hook)).unwrap();
        crate::handle::check_hook(&coordinator.shared, Some(&hook)).unwrap();
        assert_eq!(COMPILED.get() - before, 1);
        coordinator.shared.schemas.fit(hook.schema.as_ref().unwrap(), &json("1")).unwrap();
        assert_eq!(COMPILED.get() - before, 1);
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
        for good in [
            r#"{"const":{"$ref":"https://example.com/a.json"}}"#,
            r#"{"pattern":"^[a-z]+$"}"#,
            r##"{"$defs":{"a":{"type":"null"}},"$ref":"#/$defs/a"}"##,
        ] {
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
