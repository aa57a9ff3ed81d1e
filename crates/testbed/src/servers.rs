//! Servers of one's own, for whoever breaks them: restarted, killed, emptied. Each has a directory, ports and a user of its own and is
//! a child of this process, which it does not outlive.

mod postgres;
mod rabbit;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

pub use postgres::OwnPostgres;
pub use rabbit::OwnRabbit;

/// How long a server may take to come up or to go down.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    /// As an operator stops it.
    Orderly,
    /// As if the machine had lost its power: PostgreSQL by an immediate shutdown, RabbitMQ by `kill -9`.
    Crash,
}

/// Whoever starts a server as root starts it as the server's own user, since neither runs as root.
#[derive(Clone, Debug)]
struct User {
    uid: u32,
    gid: u32,
    is_other: bool,
}

impl User {
    fn of(server: &str) -> Result<Self> {
        let own = std::fs::metadata("/proc/self")?;
        if own.uid() != 0 {
            return Ok(Self { uid: own.uid(), gid: own.gid(), is_other: false });
        }
        Ok(Self { uid: id("-u", server)?, gid: id("-g", server)?, is_other: true })
    }

    /// A command of this user with nothing of this process's environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = if self.is_other {
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--reuid={}", self.uid))
                .arg(format!("--regid={}", self.gid))
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        // A server may not be able to enter the caller's directory.
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .current_dir("/");
        command
    }

    /// Makes a directory that is this user's alone.
    fn directory(&self, path: &Path) -> Result<()> {
        std::fs::create_dir_all(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        self.owns(path)
    }

    fn owns(&self, path: &Path) -> Result<()> {
        if self.is_other {
            chown(path, Some(self.uid), Some(self.gid))
                .with_context(|| format!("chown {}", path.display()))?;
        }
        Ok(())
    }

    /// Writes a file that is this user's alone.
    fn write(&self, path: &Path, text: &str) -> Result<()> {
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        self.owns(path)
    }
}

fn id(flag: &str, user: &str) -> Result<u32> {
    let output = Command::new("id").args([flag, user]).output().context("run id")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("there is no user {user}: install its server first"))
}

/// A directory for servers: whoever they run as may pass through it.
fn place() -> Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755))?;
    Ok(place)
}

/// The directory of this program: the newest version's, or where the path has it.
fn found(program: &str, places: &[PathBuf]) -> Result<PathBuf> {
    let beside = places.iter().map(|place| place.join(program)).find(|path| path.exists());
    if let Some(path) = beside {
        return Ok(path);
    }
    let output = Command::new("which").arg(program).output().context("run which")?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if text.is_empty() {
        bail!("{program} is missing: `make services-up` installs it");
    }
    Ok(PathBuf::from(text))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until `holds`.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !holds()? {
        if began.elapsed() > PATIENCE {
            bail!("{what}: not within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a server listens at this port.
fn takes_connections(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1)).is_ok()
}

/// Whether a server speaks AMQP at this port: the answer to the protocol's header is a method frame, whose first byte is 1.
fn speaks_amqp(port: u16) -> bool {
    let asked = || -> std::io::Result<u8> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(b"AMQP\0\0\x09\x01")?;
        let mut first = [0];
        stream.read_exact(&mut first)?;
        Ok(first[0])
    };
    asked().is_ok_and(|first| first == 1)
}
