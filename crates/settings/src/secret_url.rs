//! URLs that may bear a password.

use std::fmt;

use serde::{Deserialize, Serialize};
use url::Url;

const MASK: &str = "***";

/// A URL that may bear a password. Only [`reveal`](SecretUrl::reveal) and serialisation give it away.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Not set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same without password and without the values of the query; masked as a whole where it is no URL with a host,
    /// since nobody knows then what in it is secret.
    #[must_use]
    pub fn masked(&self) -> Self {
        if self.0.is_empty() {
            return Self::default();
        }
        let Ok(mut url) = Url::parse(&self.0) else { return Self(MASK.to_owned()) };
        if url.cannot_be_a_base() || (url.password().is_some() && url.set_password(Some(MASK)).is_err()) {
            return Self(MASK.to_owned());
        }
        if url.query().is_some() {
            let names: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
            url.query_pairs_mut().clear().extend_pairs(names.iter().map(|name| (name, MASK)));
        }
        Self(url.to_string())
    }
}

impl From<&str> for SecretUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.masked().0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked() {
        let cases = [
            ("postgres://everstep:s3cret@db:5432/everstep", "postgres://everstep:***@db:5432/everstep"),
            (
                "postgres://db/everstep?password=s3cret&sslmode=require",
                "postgres://db/everstep?password=***&sslmode=***",
            ),
            ("amqp://guest:s3cret@localhost:5672/%2f", "amqp://guest:***@localhost:5672/%2f"),
            ("host=db password=s3cret", "***"),
            ("postgres:s3cret", "***"),
            ("amqp://localhost", "amqp://localhost"),
            ("", ""),
        ];
        for (url, masked) in cases {
            let url = SecretUrl::from(url);
            assert_eq!(url.masked().reveal(), masked);
            assert!(!format!("{url:?}").contains("s3cret"));
        }
    }
}
