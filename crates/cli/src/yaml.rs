//! An answer as YAML: laid out in lines and indents, with the scalars of the JSON as they were sent, which are YAML too. So no digit of
//! a number is lost, and no text is taken for something else.

use std::fmt::Write as _;

use serde::{
    Deserialize,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::failure::Failure;

/// The YAML of a JSON text, with a line break at its end.
pub(crate) fn of_json(text: &str) -> Result<String, Failure> {
    let mut yaml = String::new();
    write(text, 0, &mut yaml)
        .map_err(|error| Failure::Other(anyhow::anyhow!("the server's answer is not understood: {error}")))?;
    // A scalar or an empty collection begins behind the blank that a key would have.
    Ok(yaml.strip_prefix(' ').or(yaml.strip_prefix('\n')).map_or_else(|| yaml.clone(), str::to_owned))
}

/// Writes a value behind its key or dash: a scalar on the same line, a collection on lines of its own.
fn write(text: &str, depth: usize, yaml: &mut String) -> serde_json::Result<()> {
    match text.trim_start().as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(text)?;
            if fields.is_empty() {
                yaml.push_str(" {}\n");
                return Ok(());
            }
            yaml.push('\n');
            for (key, value) in fields {
                indent(depth, yaml);
                yaml.push_str(&key_of(&key));
                yaml.push(':');
                write(value.get(), depth + 1, yaml)?;
            }
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            if items.is_empty() {
                yaml.push_str(" []\n");
                return Ok(());
            }
            yaml.push('\n');
            for item in items {
                indent(depth, yaml);
                yaml.push('-');
                write(item.get(), depth + 1, yaml)?;
            }
        }
        _ => {
            let scalar: &RawValue = serde_json::from_str(text)?;
            writeln!(yaml, " {}", scalar.get()).expect("a string takes any text");
        }
    }
    Ok(())
}

fn indent(depth: usize, yaml: &mut String) {
    yaml.extend(std::iter::repeat_n("  ", depth));
}

/// A plain word stands for itself, unless YAML means something else by it.
fn key_of(key: &str) -> String {
    let is_word = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && key.bytes().next().is_some_and(|first| first.is_ascii_alphabetic());
    let is_taken = matches!(
        key.to_ascii_lowercase().as_str(),
        "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
    );
    if is_word && !is_taken { key.to_owned() } else { serde_json::Value::from(key).to_string() }
}

/// The fields of an object in their order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Fields<'de>, A::Error> {
                Err(de::Error::custom("a list is no object"))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::of_json;

    #[test]
    fn values_stay_as_they_were_sent() {
        let json = r#"{"id":"o-1","n":123456789012345678901234567890,"on":[],"none":null,"at":{"a b":[1,{"x":"1"},[2]]},"e":{}}"#;
        let yaml = "id: \"o-1\"\n\"n\": 123456789012345678901234567890\n\"on\": []\nnone: null\nat:\n  \"a b\":\n    - 1\n    -\n      \
                    x: \"1\"\n    -\n      - 2\ne: {}\n";
        assert_eq!(of_json(json).unwrap(), yaml);
        assert_eq!(of_json("7").unwrap(), "7\n");
        assert_eq!(of_json("[]").unwrap(), "[]\n");
        assert!(of_json("{").is_err());
    }
}
