//! Where settings come from, and how the sources are laid on each other.

use std::{fmt, path::PathBuf};

use figment::{
    Figment, Metadata, Profile, Provider,
    providers::{Format, Serialized, Toml},
    value::{Dict, Map, Value},
};

use serde::{Serialize, de::DeserializeOwned};

/// What the variables of all settings begin with.
pub const PREFIX: &str = "EVERSTEP_";
/// What scripts and tests use, and no process.
const OF_TESTS: &str = "EVERSTEP_TEST_";

/// How one process reads its settings.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Variables under the prefix that are no settings, such as options of the command line; one that ends with `_` stands for all
    /// that begin with it.
    pub no_settings: &'static [&'static str],
    /// What lists the settings: whoever misspelt one is told.
    pub listed_by: &'static str,
}

const ENVIRONMENT: &str = "environment";

/// Where the settings of one process come from; later ones win.
#[derive(Clone, Default)]
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

/// Without values, of which any may be a secret.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Reading {
    /// Reads the settings. The error lists all unknown names, or else what does not fit its type.
    pub fn load<T>(self, sources: &Sources) -> Result<T, Vec<String>>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        let defaults = Figment::from(Serialized::defaults(T::default()));
        let mut figment = defaults.clone();
        if let Some(file) = &sources.file {
            figment = figment.merge(Toml::file_exact(file));
        }
        let variables = sources.environment.iter().filter_map(|(name, value)| self.variable(name, value));
        figment = figment.merge(Given { name: ENVIRONMENT, values: variables.collect() });
        let flags = sources.flags.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        figment = figment.merge(Given { name: "flags", values: flags.collect() });

        let known: Dict = defaults.extract().map_err(told)?;
        let given: Dict = figment.extract().map_err(told)?;
        let mut problems = Vec::new();
        self.unknown(&figment, (&known, &given), "", &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        figment.extract().map_err(told)
    }

    /// The dotted name of a variable, if it is a setting. An empty one counts as not set.
    fn variable(self, name: &str, value: &str) -> Option<(String, String)> {
        let rest = name.strip_prefix(PREFIX)?;
        let is_meant = |other: &&&str| name == **other || (other.ends_with('_') && name.starts_with(**other));
        if name.starts_with(OF_TESTS) || value.is_empty() || self.no_settings.iter().find(is_meant).is_some()
        {
            return None;
        }
        Some((rest.to_lowercase().replace("__", "."), value.to_owned()))
    }

    /// Names all that is given and not known. A table that is empty by default is one whose names are free.
    fn unknown(
        self,
        figment: &Figment,
        (known, given): (&Dict, &Dict),
        path: &str,
        problems: &mut Vec<String>,
    ) {
        for (name, value) in given {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            match (known.get(name), value) {
                (Some(Value::Dict(_, known)), Value::Dict(_, given)) if !known.is_empty() => {
                    self.unknown(figment, (known, given), &path, problems);
                }
                (Some(_), _) => {}
                (None, Value::Dict(_, given)) if !given.is_empty() => {
                    self.unknown(figment, (&Dict::new(), given), &path, problems);
                }
                (None, _) => problems.push(self.not_known(figment, &path)),
            }
        }
    }

    fn not_known(self, figment: &Figment, path: &str) -> String {
        let listed_by = self.listed_by;
        match figment.find_metadata(path).map(|metadata| &*metadata.name) {
            Some(ENVIRONMENT) => {
                let name = path.to_uppercase().replace('.', "__");
                format!("the environment variable {PREFIX}{name} is no setting; {listed_by} lists them")
            }
            _ => format!("{path} is no setting; {listed_by} lists them"),
        }
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
