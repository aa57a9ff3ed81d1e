//! `everstep access-token`, and how one is given to the command.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr};

use clap::{Args, Subcommand};
use everstep_protocol::{AccessName, AccessTokenId, Role};

/// A text that is shown to nobody, not even where it cannot be used.
#[derive(Clone)]
pub struct Secret(pub String);

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Commands about access tokens.
#[derive(Debug, Subcommand)]
pub enum AccessCommand {
    /// Make one and print its secret, once. Over HTTP this needs an admin's; the first one is made with --direct
    Create(AccessArgs),
    /// List those of the namespace, newest first; their secrets are kept nowhere
    List {
        /// All, whatever their namespace
        #[arg(long)]
        all_namespaces: bool,
        /// Only those before this one
        #[arg(long, value_name = "ID")]
        after: Option<AccessTokenId>,
        /// How many, 1 to 200; default 50
        #[arg(long)]
        limit: Option<u32>,
    },
    /// Revoke one: within seconds it opens nothing any more
    Revoke {
        /// Its id
        id: AccessTokenId,
        /// Whatever its namespace
        #[arg(long)]
        all_namespaces: bool,
    },
}

/// Options of `access-token create`.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// What whoever has it may do: viewer, producer, operator or admin; each may do what those before it may
    #[arg(long)]
    pub role: Role,
    /// In all namespaces, and for what belongs to none
    #[arg(long)]
    pub all_namespaces: bool,
    /// How long it opens anything, such as 90d, or never; default 90d
    #[arg(long, value_name = "DURATION|never")]
    pub expires: Option<String>,
    /// What people call it, such as the program that has it
    #[arg(long)]
    pub name: Option<AccessName>,
    /// Write it to the database itself, by the settings of the coordinator (postgres.url)
    #[arg(long)]
    pub direct: bool,
    /// Write it to the database of `everstep dev` in this directory, while that is not running
    #[arg(long, value_name = "DIR", conflicts_with = "direct")]
    pub data: Option<PathBuf>,
}
