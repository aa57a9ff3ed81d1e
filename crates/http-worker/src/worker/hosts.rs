//! Which hosts may be called.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use url::Url;

/// One entry of the list of hosts: a host, or all names below one, by one scheme on one port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    secure: bool,
    /// Lower case, in the form in which URLs have it.
    host: String,
    /// All names below `host`, and not itself.
    below: bool,
    port: u16,
}

/// A text that is no entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no host: it is written api.example.com, *.example.com or http://localhost:8080, without a path"
)]
pub struct HostRuleError(String);

impl HostRule {
    /// Whether this entry allows the URL. The host of a parsed URL is in one form, whatever it was written like.
    #[must_use]
    pub fn allows(&self, url: &Url) -> bool {
        let Some(host) = url.host_str() else { return false };
        let host = host.strip_suffix('.').unwrap_or(host);
        let named = if self.below {
            host.strip_suffix(&self.host)
                .is_some_and(|front| front.len() > 1 && front.ends_with('.') && !front.starts_with('.'))
        } else {
            host == self.host
        };
        named && url.scheme() == self.scheme() && url.port_or_known_default() == Some(self.port)
    }

    const fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    fn read(text: &str) -> Option<Self> {
        let (secure, rest) = match text.split_once("://") {
            None => (true, text),
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return None,
        };
        let scheme = if secure { "https" } else { "http" };
        let (below, host) = match rest.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, rest),
        };
        if host.is_empty() || host.contains(['/', '?', '#', '@', '*', '\\', ' ']) {
            return None;
        }
        let url = Url::parse(&format!("{scheme}://{host}/")).ok()?;
        let port = url.port_or_known_default()?;
        let is_name = matches!(url.host()?, url::Host::Domain(_));
        let host = url.host_str()?.trim_end_matches('.').to_owned();
        (!host.is_empty() && (is_name || !below)).then_some(Self { secure, host, below, port })
    }
}

impl FromStr for HostRule {
    type Err = HostRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::read(text).ok_or_else(|| HostRuleError(text.to_owned()))
    }
}

impl TryFrom<String> for HostRule {
    type Error = HostRuleError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        write!(f, "{}://{below}{}:{}", self.scheme(), self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l03_a_host_is_allowed_by_name_scheme_and_port() {
        let cases = [
            ("api.example.com", "https://api.example.com/x", true),
            ("api.example.com", "https://API.example.com.:443/x", true),
            ("api.example.com", "http://api.example.com/", false),
            ("api.example.com", "https://api.example.com:8443/", false),
            ("api.example.com", "https://xapi.example.com/", false),
            ("api.example.com", "https://api.example.com.evil.test/", false),
            ("api.example.com", "https://api.example.com@evil.test/", false),
            ("api.example.com:8443", "https://api.example.com:8443/", true),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://evilexample.com/", false),
            ("*.example.com:1", "https://a.example.com:1/", true),
            ("http://127.0.0.1:80", "http://0x7f.1/", true),
            ("http://127.0.0.1:81", "http://127.0.0.1/", false),
            ("http://[::1]:7", "http://[0:0::1]:7/", true),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
        ];
        for (rule, url, allowed) in cases {
            let rule: HostRule = rule.parse().unwrap();
            assert_eq!(rule.allows(&Url::parse(url).unwrap()), allowed, "{rule} {url}");
            assert_eq!(rule.to_string().parse::<HostRule>().unwrap(), rule);
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "*",
            "*.",
            "a.example/path",
            "ftp://a.example",
            "user@a.example",
            "*.127.0.0.1",
            "a b",
            "a.*.b",
        ] {
            assert!(text.parse::<HostRule>().is_err(), "{text}");
        }
    }
}
