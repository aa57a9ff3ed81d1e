//! A child process that never outlives its owner, and where its program is.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// The program of this name beside the running one: they are built together, by `make` with this target.
pub fn program(name: &str, target: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.exists() {
        bail!("{} is missing: build the workspace first (`make {target}` does)", path.display());
    }
    Ok(path)
}

/// A child process. Dropped, it is killed with -9 and awaited.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a command; its standard output is read through [`Process::line`], its standard error is this process's.
    pub fn spawn(name: impl Into<String>, command: &mut Command) -> Result<Self> {
        let name = name.into();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}: {command:?}"))?;
        let stdout = child.stdout.take().map(BufReader::new);
        Ok(Self { name, child, stdout })
    }

    /// Its id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints; an error if it has ended.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let stdout = self.stdout.as_mut().context("its output is not read here")?;
        if stdout.read_line(&mut line)? == 0 {
            bail!("{} has ended: {:?}", self.name, self.child.wait());
        }
        Ok(line.trim_end().to_owned())
    }

    /// Kills it with -9, as a crash would, and awaits its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("kill {}", self.name))?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends a signal by name, such as `STOP`, `CONT` or `TERM`.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status()?;
        if !status.success() {
            bail!("{} did not take {signal}", self.name);
        }
        Ok(())
    }

    /// Waits for its end, at most so long.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() > within {
                bail!("{} has not ended within {within:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
