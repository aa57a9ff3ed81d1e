//! Whether the way to the database is encrypted, and whom it trusts (rule A9).

use std::{fmt, path::PathBuf};

use everstep_tls::{Roots, encrypting, trusting};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Config, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::fault::Fault;
use crate::{Error, ErrorKind};

const DOING: &str = "setting up TLS for PostgreSQL";

/// How far the way to the database is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostgresTls {
    /// It is not encrypted: whoever is between reads everything.
    #[default]
    Off,
    /// It is encrypted, to whoever answers.
    Require,
    /// It is encrypted, and whoever answers has a certificate for the host of the URL that is trusted.
    VerifyFull,
}

/// How connections are made.
#[derive(Clone)]
pub(super) enum Dialer {
    Plain,
    Encrypted(MakeRustlsConnect),
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Encrypted(_) => "Encrypted",
        })
    }
}

impl Dialer {
    /// Errors: the file cannot be used.
    pub(super) fn of(tls: PostgresTls, ca_file: Option<&PathBuf>) -> Result<Self, Error> {
        let config = match tls {
            PostgresTls::Off => return Ok(Self::Plain),
            PostgresTls::Require => encrypting(),
            PostgresTls::VerifyFull => trusting(Roots::of(ca_file.map(PathBuf::as_path))),
        };
        let config = config.map_err(|error| Error::new(ErrorKind::Refused, DOING, error))?;
        Ok(Self::Encrypted(MakeRustlsConnect::new(config)))
    }

    /// What the setting says counts, and not what the URL may: who is spoken to without TLS is not left to whoever answers.
    pub(super) fn apply(&self, config: &mut Config) -> Result<(), Error> {
        match self {
            Self::Encrypted(_) => config.ssl_mode(SslMode::Require),
            Self::Plain if config.get_ssl_mode() == SslMode::Require => {
                let reason =
                    "the URL says sslmode=require, and postgres.tls is off: set it to require or verify_full";
                return Err(Error::new(ErrorKind::Refused, DOING, reason));
            }
            Self::Plain => config.ssl_mode(SslMode::Disable),
        };
        Ok(())
    }

    /// One connection. It ends with the client.
    pub(super) async fn dial(&self, config: &Config) -> Result<Client, Fault> {
        macro_rules! kept {
            ($tls:expr) => {{
                let (client, connection) = config.connect($tls).await?;
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        tracing::debug!(%error, "a connection for the schema has ended");
                    }
                });
                client
            }};
        }
        Ok(match self {
            Self::Plain => kept!(NoTls),
            Self::Encrypted(tls) => kept!(tls.clone()),
        })
    }
}
