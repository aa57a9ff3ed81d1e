//! Secrets: known to requests by name, to this worker by value, and to nobody else.
//!
//! A header's value names them as `{secret:NAME}`. They are looked up anew for each attempt, so a file that is replaced counts at
//! once. Whatever a callee sends back is searched for the values that were sent to it, and these are replaced by their
//! references before anything is recorded or said.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::{Path, PathBuf},
};

use http::HeaderValue;
use url::Url;

use super::{HostRule, redact::Redactor};

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

    /// What cannot be used, all of it, by name and without values: for the start. A binding to hosts that is of no secret is one that
    /// somebody relies on and that binds nothing.
    pub(super) fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut known: BTreeSet<String> = self.values.keys().cloned().collect();
        for (name, value) in &self.values {
            problems.extend(check(name, value).err());
        }
        match self.directory.as_deref().map(files) {
            Some(Ok(files)) => {
                for (name, value) in files {
                    match value {
                        Ok(value) => problems.extend(check(&name, &value).err()),
                        Err(reason) => problems.push(format!("the secret {name} cannot be read: {reason}")),
                    }
                    known.insert(name);
                }
            }
            Some(Err(error)) => {
                problems.push(format!("secrets.directory cannot be read: {}", error.kind()));
            }
            None => {}
        }
        let unbound = self.hosts.keys().filter(|name| !known.contains(*name));
        problems.extend(unbound.map(|name| {
            format!(
                "secrets.hosts binds {name}, which is no secret that this worker knows: names keep their case"
            )
        }));
        problems
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
        check(name, &value)?;
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

/// Whether this can be a secret. The error says nothing of the value.
fn check(name: &str, value: &str) -> Result<(), String> {
    if !is_name(name) {
        return Err(format!(
            "the secret {name:?} has a name that is not 1 to {NAME_MAX} letters, digits, '_', '-' or '.'"
        ));
    }
    if value.len() < BYTES_MIN || value.len() > BYTES_MAX {
        return Err(format!(
            "the secret {name} is shorter than {BYTES_MIN} bytes or longer than {BYTES_MAX}"
        ));
    }
    if value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']) {
        return Err(format!(
            "the secret {name} begins or ends with a blank, which a header loses on its way"
        ));
    }
    if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(format!(
            "the secret {name} has other than visible ASCII characters, which no header may have"
        ));
    }
    Ok(())
}

async fn read(file: PathBuf) -> io::Result<Option<String>> {
    let read = tokio::task::spawn_blocking(move || read_now(&file));
    match read.await.map_err(io::Error::other)? {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a file without one newline at its end.
fn read_now(file: &Path) -> io::Result<String> {
    let mut text = std::fs::read_to_string(file)?;
    if text.ends_with('\n') {
        text.pop();
    }
    if text.ends_with('\r') {
        text.pop();
    }
    Ok(text)
}

type Files = Vec<(String, Result<String, io::ErrorKind>)>;

/// The files of a directory that have names of secrets, in their order. What Kubernetes keeps beside them begins with a dot.
fn files(directory: &Path) -> io::Result<Files> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if is_name(&name) && entry.path().is_file() {
            files.push((name, read_now(&entry.path()).map_err(|error| error.kind())));
        }
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn filled(value: &str, secrets: &Secrets) -> Result<(String, Redactor), String> {
        let mut redactor = Redactor::default();
        let value = Template::read(value)?.fill(secrets, &mut redactor).await?;
        assert!(value.is_sensitive() || redactor.is_idle());
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

    #[test]
    fn l03_secrets_that_cannot_be_used_are_named_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        for (name, value) in [("FILE", "two\nlines-long"), ("GOOD", "good-value-1\n"), (".hidden", "\u{1}")] {
            std::fs::write(dir.path().join(name), value).unwrap();
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        let host = || ["a.example".parse().unwrap()];
        let secrets = Secrets::default()
            .with("SHORT", "hunter2")
            .with("BLANKS", " blanks-around")
            .with("TAB", "blanks-after\t")
            .with("UMLAUT", "gr\u{fc}ne-w\u{e4}lder")
            .with("INNER", "Basic inner-blank")
            .with("no name", "value-without-name")
            .directory(dir.path())
            .only_to("INNER", host())
            .only_to("GOOD", host())
            .only_to("GONE", host());
        let problems = secrets.validate();
        let named: Vec<bool> = ["BLANKS", "FILE", "GONE", "SHORT", "TAB", "UMLAUT", "no name"]
            .iter()
            .map(|name| problems.iter().any(|problem| problem.contains(name)))
            .collect();
        assert_eq!((named, problems.len()), (vec![true; 7], 7), "{problems:?}");
        let shown = problems.join(" ");
        for value in ["hunter2", "blanks-", "lder", "lines-long", "value-without"] {
            assert!(!shown.contains(value), "{shown}");
        }
        assert!(
            Secrets::default().directory(dir.path().join("gone")).validate()[0].contains("secrets.directory")
        );
    }
}
