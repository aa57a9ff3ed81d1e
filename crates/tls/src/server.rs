//! What a server shows: a certificate and its key, read again when they are renewed.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{Error, client::certificates, provider};

/// A certificate, with those that lead to its root, and its key: as they are in two files.
#[derive(Debug)]
pub struct Identity {
    certificate: PathBuf,
    key: PathBuf,
    shown: RwLock<Arc<CertifiedKey>>,
}

impl Identity {
    /// Reads both files. Errors: one cannot be read, or the key is that of another certificate.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let shown = RwLock::new(Arc::new(read(certificate, key)?));
        Ok(Self { certificate: certificate.to_owned(), key: key.to_owned(), shown })
    }

    /// Reads the files again, and shows what is in them from now on. True if that is another certificate than before; on an error what
    /// was shown is shown still.
    pub fn reload(&self) -> Result<bool, Error> {
        let new = read(&self.certificate, &self.key)?;
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = shown.cert != new.cert;
        *shown = Arc::new(new);
        Ok(is_other)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Connections that are taken by whoever shows this, and speak one of these protocols.
pub fn serving(identity: Arc<Identity>, protocols: &[&str]) -> Result<ServerConfig, Error> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_cert_resolver(identity);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Ok(config)
}

fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, Error> {
    let chain = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| Error::of_file(key, error))?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| Error::of_file(key, error))
}

#[cfg(test)]
mod tests {
    //! Proves what of files is taken. That connections are made and refused by it the tests of whoever connects say.
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};

    use super::*;
    use crate::{Roots, trusting};

    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        }
    }

    fn made() -> (String, String) {
        let Made { cert, signing_key } = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (cert.pem(), signing_key.serialize_pem())
    }

    #[test]
    fn a09_a_certificate_is_shown_with_its_own_key_alone() {
        let files = Files::new();
        let ((certificate, key), (_, other)) = (made(), made());
        let certificate = files.write("certificate", &certificate);
        let key = files.write("key", &key);
        Identity::load(&certificate, &key).unwrap();
        for (wrong, why) in [
            (files.write("other", &other), "other cannot be used"),
            (files.write("empty", ""), "empty cannot be used"),
            (files.0.path().join("none"), "none cannot be used"),
        ] {
            let refused = Identity::load(&certificate, &wrong).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains("PRIVATE KEY"), "{refused}");
        }
        let refused = Identity::load(&key, &key).unwrap_err().to_string();
        assert!(refused.contains("there is no certificate in it"), "{refused}");
    }

    #[test]
    fn a09_a_renewed_certificate_is_shown_and_a_broken_one_is_not() {
        let files = Files::new();
        let (first, second) = (made(), made());
        let certificate = files.write("certificate", &first.0);
        let key = files.write("key", &first.1);
        let identity = Identity::load(&certificate, &key).unwrap();
        assert!(!identity.reload().unwrap(), "it is the same");
        files.write("certificate", &second.0);
        identity.reload().unwrap_err();
        let shown = identity.shown.read().unwrap().cert.clone();
        files.write("key", &second.1);
        assert!(identity.reload().unwrap());
        assert_ne!(identity.shown.read().unwrap().cert, shown);
    }

    #[test]
    fn a09_a_file_of_roots_has_certificates() {
        let files = Files::new();
        let (certificate, key) = made();
        trusting(Roots::Only(&files.write("good", &certificate))).unwrap();
        for wrong in [files.write("key", &key), files.write("text", "no PEM"), files.0.path().join("none")] {
            let refused = trusting(Roots::Only(&wrong)).unwrap_err().to_string();
            assert!(refused.contains("cannot be used"), "{refused}");
        }
    }
}
