//! Where settings come from, and how the sources are laid on each other.

use std::{fmt, path::PathBuf};

use figment::{
    Figment,
    providers::{Format, Serialized, Toml},
    value::{Dict, Value},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{given::Given, problem};

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
    /// The environment of this process, a file and flags. What is not Unicode in a value is taken as U+FFFD, which no setting that has
    /// a form is: so it is refused, and not as if it were not there.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>, flags: Vec<(&'static str, String)>) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
            })
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
    /// Reads the settings. The error lists all unknown names, or else what does not fit its type; it never shows a value that may be
    /// secret.
    pub fn load<T>(self, sources: &Sources) -> Result<T, Vec<String>>
    where
        T: Default + Serialize + DeserializeOwned,
    {
        let defaults = Figment::from(Serialized::defaults(T::default()));
        let known: Dict =
            defaults.extract().map_err(|error| problem::told(error, &Dict::new(), &Dict::new()))?;
        let mut figment = defaults;
        if let Some(file) = &sources.file {
            figment = figment.merge(Toml::file_exact(file));
        }
        let variables = sources.environment.iter().filter_map(|(name, value)| {
            let name = self.variable(name, value)?;
            Some((path_of(&known, name), value.clone()))
        });
        figment = figment.merge(Given { name: ENVIRONMENT, values: variables.collect() });
        let flags = sources
            .flags
            .iter()
            .map(|(name, value)| (name.split('.').map(str::to_owned).collect(), value.clone()));
        figment = figment.merge(Given { name: "flags", values: flags.collect() });

        let given: Dict = figment.extract().map_err(|error| problem::told(error, &known, &Dict::new()))?;
        let mut problems = Vec::new();
        self.unknown(&figment, (&known, &given), "", &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        figment.extract().map_err(|error| problem::told(error, &known, &given))
    }

    /// What a variable is called after the prefix, if it is a setting. An empty one counts as not set.
    fn variable<'a>(self, name: &'a str, value: &str) -> Option<&'a str> {
        let rest = name.strip_prefix(PREFIX)?;
        let is_meant = |other: &&&str| name == **other || (other.ends_with('_') && name.starts_with(**other));
        let is_none = name.starts_with(OF_TESTS) || value.is_empty();
        (!is_none && self.no_settings.iter().find(is_meant).is_none()).then_some(rest)
    }

    /// Names all that is given and not known.
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

/// Where a variable's value belongs. Names of settings are lower case; one in a table whose names are free, which is a table that is
/// empty by default, is taken as it is written.
fn path_of(known: &Dict, name: &str) -> Vec<String> {
    let mut table = Some(known);
    let mut path = Vec::new();
    for name in name.split("__") {
        let is_free = !path.is_empty() && table.is_some_and(Dict::is_empty);
        let name = if is_free { name.to_owned() } else { name.to_lowercase() };
        table = match table.and_then(|table| table.get(&name)) {
            Some(Value::Dict(_, inner)) => Some(inner),
            Some(_) | None => None,
        };
        path.push(name);
    }
    path
}
