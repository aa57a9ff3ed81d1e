//! TLS as all processes have it: which certificates are trusted, and what a server shows. The provider is named here, so that this
//! works whatever else a process has made its default. Files are PEM.
//!
//! *Boundary:* opens no connection.

mod client;
mod server;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::crypto::{CryptoProvider, ring};

pub use client::{Roots, encrypting, trusting};
pub use server::{Identity, serving};

/// Why there can be no TLS. Trying again helps once the file is another.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read, or is not what it should be.
    #[error("{} cannot be used: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// The settings fit nothing that can be spoken.
    #[error("TLS cannot be set up: {0}")]
    Unusable(#[from] rustls::Error),
}

impl Error {
    fn of_file(file: &Path, reason: impl std::fmt::Display) -> Self {
        Self::File { file: file.to_owned(), reason: reason.to_string() }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
