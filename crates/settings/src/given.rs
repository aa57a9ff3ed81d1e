//! Values given by name: by variables of the environment, and by flags.

use figment::{
    Error, Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

/// Values by the path of their setting, each as text: `8`, `true`, `["a", "b"]` are what they look like.
pub(crate) struct Given {
    pub(crate) name: &'static str,
    pub(crate) values: Vec<(Vec<String>, String)>,
}

impl Provider for Given {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let mut dict = Dict::new();
        for (path, text) in &self.values {
            put(&mut dict, path, text.parse().expect("any text is a value"));
        }
        Ok(Profile::Default.collect(dict))
    }
}

/// Puts a value at a path. The values stay untagged: figment then knows that they are this provider's.
fn put(dict: &mut Dict, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        dict.insert(name.clone(), value);
        return;
    }
    let inner = dict.entry(name.clone()).or_insert_with(|| Value::from(Dict::new()));
    if !matches!(inner, Value::Dict(..)) {
        *inner = Value::from(Dict::new());
    }
    if let Value::Dict(_, inner) = inner {
        put(inner, rest, value);
    }
}
