//! What whoever connects trusts.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use crate::{Error, provider};

/// Whose certificates are trusted.
#[derive(Clone, Copy, Debug)]
pub enum Roots<'a> {
    /// Those that the system trusts.
    System,
    /// Those that the system trusts, and those of a file.
    SystemAnd(&'a Path),
    /// Those of a file alone.
    Only(&'a Path),
}

impl<'a> Roots<'a> {
    /// Those of a file alone, if there is one; else the system's.
    #[must_use]
    pub fn of(file: Option<&'a Path>) -> Self {
        file.map_or(Self::System, Self::Only)
    }
}

/// Connections to whoever shows a certificate that these have signed, for the name by which it was called.
pub fn trusting(roots: Roots<'_>) -> Result<ClientConfig, Error> {
    let mut store = RootCertStore::empty();
    if !matches!(roots, Roots::Only(_)) {
        let system = rustls_native_certs::load_native_certs();
        for error in &system.errors {
            tracing::warn!(%error, "a certificate of the system cannot be read");
        }
        store.add_parsable_certificates(system.certs);
    }
    if let Roots::SystemAnd(file) | Roots::Only(file) = roots {
        for certificate in certificates(file)? {
            store.add(certificate).map_err(|error| Error::of_file(file, error))?;
        }
    }
    if store.is_empty() {
        tracing::warn!("the system trusts no certificate, so that no connection with TLS can succeed");
    }
    let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(store).with_no_client_auth())
}

/// Connections that nobody listens in on, to whoever answers: nothing says that it is the one who was meant.
pub fn encrypting() -> Result<ClientConfig, Error> {
    let provider = provider();
    let any = Arc::new(Anybody(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(any).with_no_client_auth())
}

/// The certificates of a file: one at least.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unreadable = |error: rustls::pki_types::pem::Error| Error::of_file(file, error);
    let found = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unreadable)?;
    if found.is_empty() {
        return Err(Error::of_file(file, "there is no certificate in it"));
    }
    Ok(found)
}

/// Takes any certificate. Whoever shows it must have its key all the same.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
