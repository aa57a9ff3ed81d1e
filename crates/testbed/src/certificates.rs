//! Certificates of one's own, for servers that are spoken to with TLS.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority, and what it signs. Its files last as long as this.
pub struct Authority {
    place: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("file", &self.file()).finish_non_exhaustive()
    }
}

/// A certificate and its key, as text and in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its key, as PEM.
    pub key: String,
    /// Where the certificate is.
    pub certificate_file: PathBuf,
    /// Where its key is.
    pub key_file: PathBuf,
}

impl Authority {
    /// One that nobody else knows.
    pub fn new() -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "everstep tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { place: tempfile::tempdir()?, issuer };
        std::fs::write(authority.file(), authority.issuer.pem())?;
        Ok(authority)
    }

    /// Where its own certificate is, for whoever trusts it.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.place.path().join("authority.pem")
    }

    /// A certificate for these names or addresses.
    pub fn sign(&self, names: &[&str]) -> Result<Signed> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let directory = self.place.path().join(uuid::Uuid::now_v7().to_string());
        std::fs::create_dir(&directory).with_context(|| format!("make {}", directory.display()))?;
        let pair = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.signed_by(&pair, &self.issuer)?.pem();
        let signed = Signed {
            certificate,
            key: pair.serialize_pem(),
            certificate_file: directory.join("certificate.pem"),
            key_file: directory.join("key.pem"),
        };
        signed.write(&signed.certificate_file, &signed.key_file)?;
        Ok(signed)
    }
}

impl Signed {
    /// Writes both to these files.
    pub fn write(&self, certificate: &Path, key: &Path) -> Result<()> {
        std::fs::write(certificate, &self.certificate)?;
        std::fs::write(key, &self.key)?;
        Ok(())
    }
}
