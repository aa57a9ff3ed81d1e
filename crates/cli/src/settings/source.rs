//! Where settings come from, and how the sources are laid on each other.

use std::path::PathBuf;

use figment::{
    Figment, Metadata, Profile, Provider,
    providers::{Format, Serialized, Toml},
    value::{Dict, Map, Value},
};

use super::Settings;

const PREFIX: &str = "EVERSTEP_";
/// Variables under the prefix that are no settings: options of the command line, and what scripts and tests use.
const NO_SETTINGS: [&str; 5] =
    ["EVERSTEP_URL", "EVERSTEP_NAMESPACE", "EVERSTEP_OUTPUT", "EVERSTEP_CONFIG", "EVERSTEP_RABBITMQCTL"];
const NO_SETTINGS_PREFIX: &str = "EVERSTEP_TEST_";

/// Where the settings of one process come from; later ones win.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `EVERSTEP_` are ignored.
    pub environment: Vec<(String, String)>,
    /// Dotted names and values from the command line.
    pub flags: Vec<(&'static str, String)>,
}

impl Sources {
    /// The environment of this process, a file and flags. Variables that are not Unicode are ignored.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(&'static str, String)>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { file, environment, flags }
    }
}

pub(super) fn load(sources: &Sources) -> Result<Settings, Vec<String>> {
    let defaults = Figment::from(Serialized::defaults(Settings::default()));
    let mut figment = defaults.clone();
    if let Some(file) = &sources.file {
        figment = figment.merge(Toml::file_exact(file));
    }
    let variables = sources.environment.iter().filter_map(|(name, value)| variable(name, value));
    figment = figment.merge(Given { name: "environment", values: variables.collect() });
    let flags = sources.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    figment = figment.merge(Given { name: "flags", values: flags.collect() });

    let known: Dict = defaults.extract().map_err(told)?;
    let given: Dict = figment.extract().map_err(told)?;
    let mut problems = Vec::new();
    unknown(&figment, &known, &given, "", &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    figment.extract().map_err(told)
}

/// The dotted name of a variable, if it is a setting. An empty one counts as not set.
fn variable(name: &str, value: &str) -> Option<(String, String)> {
    let rest = name.strip_prefix(PREFIX)?;
    if NO_SETTINGS.contains(&name) || name.starts_with(NO_SETTINGS_PREFIX) || value.is_empty() {
        return None;
    }
    Some((rest.to_lowercase().replace("__", "."), value.to_owned()))
}

/// Names all that is given and not known.
fn unknown(figment: &Figment, known: &Dict, given: &Dict, path: &str, problems: &mut Vec<String>) {
    for (name, value) in given {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (known.get(name), value) {
            (Some(Value::Dict(_, known)), Value::Dict(_, given)) => {
                unknown(figment, known, given, &path, problems);
            }
            (Some(_), _) => {}
            (None, Value::Dict(_, given)) if !given.is_empty() => {
                unknown(figment, &Dict::new(), given, &path, problems);
            }
            (None, _) => problems.push(not_known(figment, &path)),
        }
    }
}

fn not_known(figment: &Figment, path: &str) -> String {
    match figment.find_metadata(path).map(|metadata| &*metadata.name) {
        Some("environment") => {
            let name = path.to_uppercase().replace('.', "__");
            format!(
                "the environment variable {PREFIX}{name} is no setting; `everstep settings --reference` lists them"
            )
        }
        _ => format!("{path} is no setting; `everstep settings --reference` lists them"),
    }
}

fn told(errors: figment::Error) -> Vec<String> {
    errors.into_iter().map(|error| error.to_string().replace('\n', "")).collect()
}

/// Values by dotted name, each as text: `8`, `true`, `["a", "b"]` are what they look like.
struct Given {
    name: &'static str,
    values: Vec<(String, String)>,
}

impl Provider for Given {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        let mut dict = Dict::new();
        for (name, text) in &self.values {
            put(&mut dict, name, text.parse().expect("any text is a value"));
        }
        Ok(Profile::Default.collect(dict))
    }
}

/// Puts a value at a dotted name. The values stay untagged: figment then knows that they are this provider's.
fn put(dict: &mut Dict, name: &str, value: Value) {
    let Some((first, rest)) = name.split_once('.') else {
        dict.insert(name.to_owned(), value);
        return;
    };
    let inner = dict.entry(first.to_owned()).or_insert_with(|| Value::from(Dict::new()));
    if let Value::Dict(_, inner) = inner {
        put(inner, rest, value);
    } else {
        *inner = Value::from(Dict::new());
        put(dict, name, value);
    }
}
