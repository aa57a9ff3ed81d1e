//! What is trusted: the system's certificates, and those of a file.

use std::path::Path;

use everstep_tls::{Roots, trusting};
use rustls::ClientConfig;

use super::Error;

/// The settings of all connections with TLS.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let roots = ca_file.map_or(Roots::System, Roots::SystemAnd);
    trusting(roots).map_err(|error| match error {
        everstep_tls::Error::File { file, reason } => Error::CaFile { file, reason },
        error @ everstep_tls::Error::Unusable(_) => Error::Tls(error.to_string()),
    })
}
