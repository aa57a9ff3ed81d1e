//! `everstep settings`.

use super::print;
use crate::{
    args::{Format, Global, SettingsArgs},
    failure::Failure,
    settings::{Role, Settings, Sources, reference},
    yaml,
};

pub(super) fn run(global: &Global, args: &SettingsArgs) -> Result<(), Failure> {
    if args.reference {
        return print(&reference::page());
    }
    if args.transitions {
        return print(&everstep_engine::transition::page());
    }
    let settings =
        Settings::load(&Sources::of_process(global.config.clone(), Vec::new())).map_err(Failure::Settings)?;
    let shown = settings.masked();
    let text = match global.output {
        Format::Table => toml::to_string(&shown).map_err(anyhow::Error::from)?,
        Format::Json => serde_json::to_string(&shown).map_err(anyhow::Error::from)? + "\n",
        Format::Yaml => yaml::of_json(&serde_json::to_string(&shown).map_err(anyhow::Error::from)?)?,
    };
    print(&text)?;
    // Printed first: whoever looks for the mistake wants to see what is in effect.
    let problems = settings.validate_for(Role::Any);
    if problems.is_empty() { Ok(()) } else { Err(Failure::Settings(problems)) }
}
