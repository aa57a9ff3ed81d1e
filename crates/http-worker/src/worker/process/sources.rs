//! Where the settings of the process come from: the one module that reads its environment.

use std::path::PathBuf;

use figment::{
    Figment, Metadata, Profile, Provider,
    providers::{Format, Serialized, Toml},
    value::{Dict, Map, Value},
};

use super::ProcessSettings;
use crate::worker::Secrets;

const PREFIX: &str = "EVERSTEP_";
const SECRET: &str = "EVERSTEP_SECRET_";
/// Variables under the prefix that are no settings.
const NO_SETTINGS: [&str; 1] = ["EVERSTEP_CONFIG"];
const NO_SETTINGS_PREFIX: &str = "EVERSTEP_TEST_";

/// Where settings come from; later ones win.
#[derive(Clone, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// Environment variables; those that do not begin with `EVERSTEP_` are ignored. Those that begin with `EVERSTEP_SECRET_`
    /// are secrets, named by the rest.
    pub environment: Vec<(String, String)>,
    /// Dotted names and values from the command line.
    pub flags: Vec<(&'static str, String)>,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
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

pub(super) fn load(sources: &Sources) -> Result<ProcessSettings, Vec<String>> {
    let mut figment = Figment::from(Serialized::defaults(ProcessSettings::default()));
    if let Some(file) = &sources.file {
        figment = figment.merge(Toml::file_exact(file));
    }
    let variables = sources.environment.iter().filter_map(|(name, value)| variable(name, value)).collect();
    figment = figment.merge(Given { name: "the environment", values: variables });
    let flags = sources.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    figment = figment.merge(Given { name: "the command line", values: flags });
    let mut settings: ProcessSettings = figment.extract().map_err(told)?;
    settings.given = secrets(&sources.environment);
    Ok(settings)
}

fn secrets(environment: &[(String, String)]) -> Secrets {
    let named = environment.iter().filter_map(|(name, value)| Some((name.strip_prefix(SECRET)?, value)));
    named.fold(Secrets::default(), |secrets, (name, value)| secrets.with(name, value))
}

/// The dotted name of a variable, if it is a setting. An empty one counts as not set.
fn variable(name: &str, value: &str) -> Option<(String, String)> {
    let rest = name.strip_prefix(PREFIX)?;
    let other =
        NO_SETTINGS.contains(&name) || name.starts_with(NO_SETTINGS_PREFIX) || name.starts_with(SECRET);
    (!other && !value.is_empty()).then(|| (rest.to_lowercase().replace("__", "."), value.to_owned()))
}

fn told(errors: figment::Error) -> Vec<String> {
    errors.into_iter().map(|error| error.to_string().replace('\n', " ")).collect()
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

/// Puts a value at a dotted name.
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
