//! Secrets: known to requests by name, to this worker by value, and to nobody else.
//!
//! A header's value names them as `{secret:NAME}`. They are looked up anew for each attempt, so a file that is replaced counts at
//! once. Whatever a callee sends back is searched for the values that were sent to it, and these are replaced by their
//! references before anything is recorded or said.

use std::{borrow::Cow, collections::BTreeMap, fmt, io, path::PathBuf};

use http::HeaderValue;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::HostRule;

/// Shorter values cannot be told from the rest of an answer.
const BYTES_MIN: usize = 8;
const BYTES_MAX: usize = 16 << 10;
const NAME_MAX: usize = 64;

/// Where the values are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets {
    values: BTreeMap<String, String>,
    directory: Option<PathBuf>,
    hosts: BTreeMap<String, Vec<HostRule>>,
}

impl Secrets {
    /// With this value under this name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.values.insert(name.into(), value.into());
        self
    }

    /// With a directory that has a file for each secret, as Kubernetes mounts them. It goes before the values given by
    /// [`with`](Self::with). One newline at the end of a file does not count.
    #[must_use]
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// The secret of this name goes to these hosts alone.
    #[must_use]
    pub fn only_to(mut self, name: impl Into<String>, hosts: impl IntoIterator<Item = HostRule>) -> Self {
        self.hosts.entry(name.into()).or_default().extend(hosts);
        self
    }

    pub(super) fn may_go(&self, name: &str, url: &Url) -> bool {
        self.hosts.get(name).is_none_or(|hosts| hosts.iter().any(|host| host.allows(url)))
    }

    /// The value of a secret; the error says what to do and nothing of the value.
    async fn get(&self, name: &str) -> Result<String, String> {
        let value = match &self.directory {
            Some(directory) => read(directory.join(name))
                .await
                .map_err(|error| format!("the secret {name} cannot be read: {}", error.kind()))?,
            None => None,
        };
        let value = value.or_else(|| self.values.get(name).cloned());
        let value = value.ok_or_else(|| format!("the secret {name} is not known to this worker"))?;
        if value.len() < BYTES_MIN || value.len() > BYTES_MAX {
            return Err(format!(
                "the secret {name} is shorter than {BYTES_MIN} bytes or longer than {BYTES_MAX}"
            ));
        }
        Ok(value)
    }
}

/// Names alone.
impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("values", &self.values.keys())
            .field("directory", &self.directory)
            .field("hosts", &self.hosts)
            .finish()
    }
}

async fn read(file: PathBuf) -> io::Result<Option<String>> {
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(file));
    match read.await.map_err(io::Error::other)? {
        Ok(mut text) => {
            if text.ends_with('\n') {
                text.pop();
            }
            if text.ends_with('\r') {
                text.pop();
            }
            Ok(Some(text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The value of a header as a request has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Secret(String),
}

const OPENS: &str = "{secret:";

impl Template {
    /// Reads a value. The error says what is wrong with it.
    pub(super) fn read(value: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once(OPENS) {
            let Some((name, after)) = after.split_once('}') else {
                return Err("has a {secret: without a }".to_owned());
            };
            if !is_name(name) {
                return Err(format!(
                    "names a secret by other than 1 to {NAME_MAX} letters, digits, '_', '-' or '.'"
                ));
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Secret(name.to_owned()));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            Part::Secret(_) => None,
        });
        for text in texts {
            HeaderValue::from_str(text).map_err(|_| "has a character that no header may have".to_owned())?;
        }
        Ok(Self(parts))
    }

    /// The names of the secrets in it.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(&**name),
            Part::Text(_) => None,
        })
    }

    /// The value as it is sent. A secret is noted in `redactor`.
    pub(super) async fn fill(
        &self,
        secrets: &Secrets,
        redactor: &mut Redactor,
    ) -> Result<HeaderValue, String> {
        let mut value = String::new();
        let mut is_secret = false;
        for part in &self.0 {
            match part {
                Part::Text(text) => value.push_str(text),
                Part::Secret(name) => {
                    let secret = secrets.get(name).await?;
                    redactor.note(name, &secret);
                    value.push_str(&secret);
                    is_secret = true;
                }
            }
        }
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| "a secret has a character that no header may have".to_owned())?;
        value.set_sensitive(is_secret);
        Ok(value)
    }
}

fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(known)
}

/// Replaces the values of secrets by their references.
#[derive(Default)]
pub(super) struct Redactor {
    /// What is looked for, and what is put there.
    needles: Vec<(Vec<u8>, String)>,
}

impl Redactor {
    /// Looks for this value from now on: as it is, as JSON writes it, and as URLs do.
    fn note(&mut self, name: &str, value: &str) {
        let json = serde_json::Value::from(value).to_string();
        let quoted = json.trim_start_matches('"').trim_end_matches('"');
        let in_url = utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
        let in_path = utf8_percent_encode(value, super::template::ESCAPED).to_string();
        for needle in [value, quoted, &in_url, &in_url.to_lowercase(), &in_path] {
            let needle = needle.as_bytes().to_vec();
            if !self.needles.iter().any(|(known, _)| *known == needle) {
                self.needles.push((needle, format!("{OPENS}{name}}}")));
            }
        }
        // The longest first: a secret may be a part of another.
        self.needles.sort_by_key(|(needle, _)| std::cmp::Reverse(needle.len()));
    }

    pub(super) fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut bytes = Cow::Borrowed(bytes);
        for (needle, reference) in &self.needles {
            if find(&bytes, needle).is_some() {
                bytes = Cow::Owned(replace(&bytes, needle, reference.as_bytes()));
            }
        }
        bytes
    }

    pub(super) fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

fn replace(bytes: &[u8], needle: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = find(rest, needle) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(by);
        rest = &rest[at + needle.len()..];
    }
    out.extend_from_slice(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn filled(value: &str, secrets: &Secrets) -> Result<(String, Redactor), String> {
        let mut redactor = Redactor::default();
        let value = Template::read(value)?.fill(secrets, &mut redactor).await?;
        assert!(value.is_sensitive() || redactor.needles.is_empty());
        Ok((value.to_str().unwrap_or("not ascii").to_owned(), redactor))
    }

    #[tokio::test]
    async fn l03_secrets_are_put_in_by_name_from_files_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("B"), "from-file-1\n").unwrap();
        let secrets =
            Secrets::default().with("A", "from-env-1").with("B", "from-env-2").directory(dir.path());
        assert_eq!(
            filled("x {secret:A}, {secret:B} y", &secrets).await.unwrap().0,
            "x from-env-1, from-file-1 y"
        );
        assert_eq!(filled("{key} {", &secrets).await.unwrap().0, "{key} {");
        std::fs::write(dir.path().join("B"), "from-file-2").unwrap();
        assert_eq!(
            filled("{secret:B}", &secrets).await.unwrap().0,
            "from-file-2",
            "a file that is replaced counts"
        );
        assert!(!format!("{secrets:?}").contains("from-env"));
    }

    #[tokio::test]
    async fn l03_what_is_wrong_with_a_secret_is_said_without_it() {
        let secrets = Secrets::default().with("SHORT", "hunter2").with("LINES", "two\nlines-long");
        for (value, says) in [
            ("{secret:A", "without a }"),
            ("{secret:}", "names a secret"),
            ("{secret:../passwd}", "names a secret"),
            ("{secret:.x}", "names a secret"),
            ("{secret:GONE}", "not known to this worker"),
            ("{secret:SHORT}", "shorter than 8"),
            ("{secret:LINES}", "no header may have"),
            ("a\nb", "no header may have"),
        ] {
            let Err(error) = filled(value, &secrets).await else { panic!("{value:?} was taken") };
            assert!(error.contains(says), "{value:?}: {error}");
            assert!(!error.contains("hunter2") && !error.contains("lines-long"), "{error}");
        }
    }

    #[tokio::test]
    async fn l03_secrets_are_replaced_by_their_references_in_every_form() {
        let secrets = Secrets::default().with("A", "s3cr\"t/va+lue").with("AB", "s3cr\"t/va+lue-longer");
        let (_, redactor) = filled("{secret:A} {secret:AB}", &secrets).await.unwrap();
        let cases = [
            ("no secrets", "no secrets"),
            ("x s3cr\"t/va+lue y", "x {secret:A} y"),
            ("s3cr\"t/va+lue-longer", "{secret:AB}"),
            (r#"{"echo":"s3cr\"t/va+lue"}"#, r#"{"echo":"{secret:A}"}"#),
            ("?q=s3cr%22t%2Fva%2Blue&", "?q={secret:A}&"),
            ("?q=s3cr%22t%2fva%2blue&", "?q={secret:A}&"),
            ("s3cr\"t/va+lues3cr\"t/va+lue", "{secret:A}{secret:A}"),
        ];
        for (text, redacted) in cases {
            assert_eq!(redactor.text(text), redacted);
        }
    }
}
