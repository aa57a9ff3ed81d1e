//! A PostgreSQL of one's own.

use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{Down, PATIENCE, User, found, free_port, place, until};
use crate::{Process, certificates::Signed};

/// User, password and database alike.
const NAME: &str = "everstep";

/// A cluster with one database, which is durable: a crash loses nothing that was committed.
#[derive(Debug)]
pub struct OwnPostgres {
    place: tempfile::TempDir,
    programs: PathBuf,
    user: User,
    port: u16,
    process: Option<Process>,
}

impl OwnPostgres {
    /// Makes one and starts it.
    pub fn start() -> Result<Self> {
        Self::start_with(None)
    }

    /// Makes one that shows this certificate, and takes no connection without TLS; and starts it.
    pub fn start_encrypted(shown: &Signed) -> Result<Self> {
        Self::start_with(Some(shown))
    }

    fn start_with(shown: Option<&Signed>) -> Result<Self> {
        let programs = programs()?;
        let user = User::of("postgres")?;
        let mut own = Self { place: place()?, programs, user, port: free_port()?, process: None };
        own.init()?;
        if let Some(shown) = shown {
            own.encrypt(shown)?;
        }
        own.up()?;
        own.psql("postgres", &format!("CREATE DATABASE {NAME}"))?;
        Ok(own)
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// Runs one SQL statement and returns what it prints, without headers.
    pub fn sql(&self, statement: &str) -> Result<String> {
        self.psql(NAME, statement)
    }

    /// Ends it.
    pub fn down(&mut self, how: Down) -> Result<()> {
        let mut process = self.process.take().context("it is down")?;
        process.signal(match how {
            Down::Orderly => "INT",
            Down::Crash => "QUIT",
        })?;
        process.wait(PATIENCE)?;
        Ok(())
    }

    /// Starts it again, and waits until it answers.
    pub fn up(&mut self) -> Result<()> {
        let mut command = self.user.command(&self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).stderr(self.log()?);
        self.process = Some(Process::spawn("PostgreSQL", &mut command)?);
        until("PostgreSQL answers", || {
            let process = self.process.as_mut().context("it was started")?;
            if let Ok(status) = process.wait(std::time::Duration::ZERO) {
                let log = std::fs::read_to_string(self.place.path().join("postgres.log")).unwrap_or_default();
                bail!("PostgreSQL has ended: {status}\n{log}");
            }
            Ok(self.psql("postgres", "SELECT 1").is_ok())
        })
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("postgres")
    }

    fn log(&self) -> Result<File> {
        Ok(OpenOptions::new().append(true).create(true).open(self.place.path().join("postgres.log"))?)
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://{NAME}:{NAME}@127.0.0.1:{}/{database}", self.port)
    }

    fn psql(&self, database: &str, statement: &str) -> Result<String> {
        crate::installation::psql(&self.url_of(database), statement)
    }

    fn encrypt(&self, shown: &Signed) -> Result<()> {
        let data = self.data();
        self.user.write(&data.join("server.crt"), &shown.certificate)?;
        self.user.write(&data.join("server.key"), &shown.key)?;
        let own = data.join("own.conf");
        let settings = std::fs::read_to_string(&own)?;
        self.user.write(&own, &format!("{settings}ssl = on\n"))?;
        self.user.write(&data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n")
    }

    fn init(&self) -> Result<()> {
        let data = self.data();
        self.user.directory(&data)?;
        let password = self.place.path().join("password");
        self.user.write(&password, NAME)?;
        let mut command = self.user.command(&self.programs.join("initdb"));
        command.arg("-D").arg(&data).args([
            "-U",
            NAME,
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ]);
        let output =
            command.arg(format!("--pwfile={}", password.display())).output().context("run initdb")?;
        if !output.status.success() {
            bail!("initdb failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = ''\nmax_connections = 100\n\
             shared_buffers = 128MB\ntimezone = 'UTC'\nlog_timezone = 'UTC'\n",
            self.port
        );
        self.user.write(&data.join("own.conf"), &settings)?;
        let main = data.join("postgresql.conf");
        let text = std::fs::read_to_string(&main)?;
        self.user.write(&main, &format!("{text}\ninclude 'own.conf'\n"))
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        // An immediate shutdown takes every backend along, which a killed postmaster leaves to find out for themselves.
        if self.process.is_some() {
            drop(self.down(Down::Crash));
        }
    }
}

/// Where the newest version's programs are.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    let places: Vec<PathBuf> = versions.into_iter().rev().map(|(_, path)| path).collect();
    let initdb = found("initdb", &places)?;
    Ok(initdb.parent().unwrap_or(Path::new("/")).to_owned())
}
