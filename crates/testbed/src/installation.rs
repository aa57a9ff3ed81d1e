//! A database and a vhost of one's own, on the servers that `make services-up` brought up.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A fresh database and vhost; both are removed when this is dropped.
#[derive(Debug)]
pub struct Installation {
    name: String,
    server: String,
    /// None: the broker is somebody's own, vhost and all.
    rabbitmqctl: Option<String>,
    /// URL of the database.
    pub postgres: String,
    /// URL of the vhost.
    pub amqp: String,
}

impl Installation {
    /// Makes both, named after `prefix`. Without servers this fails and says what to do.
    pub fn fresh(prefix: &str) -> Result<Self> {
        let server = variable("EVERSTEP_TEST_POSTGRES_URL")?;
        let broker = variable("EVERSTEP_TEST_AMQP_URL")?;
        let rabbitmqctl = variable("EVERSTEP_RABBITMQCTL")?;
        let name = format!("{prefix}_{}", uuid::Uuid::now_v7().simple());
        psql(&server, &format!("CREATE DATABASE {name}"))?;
        let installation = Self {
            postgres: with_path(&server, &name),
            amqp: with_path(&broker, &name),
            name,
            server,
            rabbitmqctl: Some(rabbitmqctl),
        };
        let user = user_of(&broker).context("the broker's URL names no user")?;
        installation.define(user)?;
        Ok(installation)
    }

    /// A fresh database beside a broker of somebody's own.
    pub fn beside(prefix: &str, broker: String) -> Result<Self> {
        let server = variable("EVERSTEP_TEST_POSTGRES_URL")?;
        let name = format!("{prefix}_{}", uuid::Uuid::now_v7().simple());
        psql(&server, &format!("CREATE DATABASE {name}"))?;
        Ok(Self { postgres: with_path(&server, &name), amqp: broker, name, server, rabbitmqctl: None })
    }

    /// The vhost's and the database's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the broker's own command and returns what it prints.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        run(Command::new(self.rabbitmqctl()?).arg("-q").args(arguments))
    }

    fn rabbitmqctl(&self) -> Result<&str> {
        self.rabbitmqctl.as_deref().context("the broker is somebody's own, and is asked by its owner")
    }

    /// Makes the vhost and lets the user in. Each run of the broker's command takes half a second of CPU, so one does both.
    fn define(&self, user: &str) -> Result<()> {
        let (vhost, all) = (&self.name, ".*");
        let definitions = serde_json::json!({
            "vhosts": [{ "name": vhost }],
            "permissions": [{ "user": user, "vhost": vhost, "configure": all, "write": all, "read": all }],
        });
        let mut command = Command::new(self.rabbitmqctl()?);
        let mut child = command
            .args(["-q", "import_definitions"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("run {command:?}"))?;
        let mut stdin = child.stdin.take().context("it has a standard input")?;
        stdin.write_all(definitions.to_string().as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Runs one SQL statement in the database and returns what it prints, without headers.
    pub fn sql(&self, statement: &str) -> Result<String> {
        psql(&self.postgres, statement)
    }
}

/// A database that was made of a dump; it is removed when this is dropped.
#[derive(Debug)]
pub struct RestoredDatabase {
    name: String,
    server: String,
    /// Its URL.
    pub postgres: String,
}

impl Installation {
    /// The database as it is now, as `pg_dump` writes it.
    pub fn dump(&self) -> Result<Vec<u8>> {
        let mut command = Command::new("pg_dump");
        let output = command.arg(&self.postgres).output().context("run pg_dump")?;
        if !output.status.success() {
            bail!("pg_dump failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output.stdout)
    }

    /// Another database with what a dump holds.
    pub fn restore(&self, dump: &[u8]) -> Result<RestoredDatabase> {
        let name = format!("restored_{}", uuid::Uuid::now_v7().simple());
        psql(&self.server, &format!("CREATE DATABASE {name}"))?;
        let database =
            RestoredDatabase { postgres: with_path(&self.server, &name), server: self.server.clone(), name };
        let mut child = Command::new("psql")
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", &database.postgres])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("run psql")?;
        let mut stdin = child.stdin.take().context("it has a standard input")?;
        stdin.write_all(dump)?;
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("the dump was not restored: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(database)
    }
}

impl RestoredDatabase {
    /// Runs one SQL statement in it.
    pub fn sql(&self, statement: &str) -> Result<String> {
        psql(&self.postgres, statement)
    }
}

impl Drop for RestoredDatabase {
    fn drop(&mut self) {
        drop(psql(&self.server, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)));
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        // Best effort: the next run has names of its own.
        if self.rabbitmqctl.is_some() {
            drop(self.ctl(&["delete_vhost", &self.name]));
        }
        drop(psql(&self.server, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)));
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place that reads where the test servers are")]
fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| {
        format!("{name} is not set: run `make services-up` and `eval \"$(scripts/services.sh env)\"`")
    })
}

pub(crate) fn psql(url: &str, statement: &str) -> Result<String> {
    run(Command::new("psql").args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, url]))
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The same URL with another path: the last segment is the database or the vhost.
fn with_path(url: &str, path: &str) -> String {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let end = url[authority..].find(['/', '?']).map_or(url.len(), |at| authority + at);
    let query = url[end..].find('?').map_or("", |at| &url[end + at..]);
    format!("{}/{path}{query}", &url[..end])
}

fn user_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let (credentials, _) = rest.split_once('@')?;
    Some(credentials.split(':').next().unwrap_or(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_url_is_replaced() {
        assert_eq!(with_path("amqp://u:p@h:1/v", "x"), "amqp://u:p@h:1/x");
        assert_eq!(with_path("amqp://u:p@h:1", "x"), "amqp://u:p@h:1/x");
        assert_eq!(with_path("postgres://u@h/d?a=b", "x"), "postgres://u@h/x?a=b");
        assert_eq!(user_of("amqp://u:p@h:1/v"), Some("u"));
    }
}
