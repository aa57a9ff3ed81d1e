//! What is trusted: the system's certificates, and those of a file.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

use super::Error;

/// The settings of all connections with TLS. The provider is named here, so that this works whatever else the process has
/// made its default.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "a certificate of the system cannot be read");
    }
    roots.add_parsable_certificates(system.certs);
    if let Some(file) = ca_file {
        let unreadable = |reason: String| Error::CaFile { file: file.to_owned(), reason };
        let certificates =
            CertificateDer::pem_file_iter(file).map_err(|error| unreadable(error.to_string()))?;
        let mut any = false;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            any = true;
        }
        if !any {
            return Err(unreadable("there is no certificate in it".to_owned()));
        }
    }
    if roots.is_empty() {
        tracing::warn!("no certificate is trusted, so no HTTPS call can succeed; set calls.ca_file");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
