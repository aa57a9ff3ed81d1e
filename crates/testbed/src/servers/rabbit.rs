//! A RabbitMQ of one's own, with the node name, cookie, ports and epmd of its own that keep it apart from any other on this machine.

use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{Down, PATIENCE, User, found, free_port, place, speaks_amqp, takes_connections, until};
use crate::{Process, certificates::Signed};

/// User, password and vhost alike.
const NAME: &str = "everstep";

/// One node.
#[derive(Debug)]
pub struct OwnRabbit {
    place: tempfile::TempDir,
    programs: PathBuf,
    user: User,
    ports: Ports,
    scheme: &'static str,
    process: Option<Process>,
    /// What the nodes of one cluster know each other by.
    cookie: String,
    /// Ends last: it is asked where the node is. Of a cluster's nodes the first one has it.
    _epmd: Option<Process>,
}

#[derive(Clone, Copy, Debug)]
struct Ports {
    amqp: u16,
    dist: u16,
    epmd: u16,
}

impl OwnRabbit {
    /// Makes one and starts it.
    pub fn start() -> Result<Self> {
        Self::first(None)
    }

    /// Makes one that shows this certificate, and takes no connection without TLS; and starts it.
    pub fn start_encrypted(shown: &Signed) -> Result<Self> {
        Self::first(Some(shown))
    }

    /// A cluster of so many nodes, each with everything of its own. The first one ends last.
    pub fn cluster(count: usize) -> Result<Vec<Self>> {
        let mut nodes = vec![Self::start()?];
        while nodes.len() < count {
            let node = Self::node(nodes[0].ports.epmd, nodes[0].cookie.clone(), None, None)?;
            let first = nodes[0].name();
            for arguments in [&["stop_app"][..], &["join_cluster", &first], &["start_app"]] {
                node.ctl(arguments)?;
            }
            nodes.push(node);
        }
        nodes.reverse();
        Ok(nodes)
    }

    fn first(shown: Option<&Signed>) -> Result<Self> {
        let user = User::of("rabbitmq")?;
        let port = free_port()?;
        let mut epmd = user.command(&found("epmd", &[])?);
        epmd.args(["-port", &port.to_string(), "-address", "127.0.0.1"]);
        let epmd = Process::spawn("epmd", &mut epmd)?;
        Self::node(port, uuid::Uuid::now_v7().simple().to_string(), Some(epmd), shown)
    }

    fn node(epmd: u16, cookie: String, process: Option<Process>, shown: Option<&Signed>) -> Result<Self> {
        let server = found("rabbitmq-server", &[PathBuf::from("/usr/lib/rabbitmq/bin")])?;
        let programs = server.parent().unwrap_or(Path::new("/")).to_owned();
        let user = User::of("rabbitmq")?;
        let place = place()?;
        let ports = Ports { amqp: free_port()?, dist: free_port()?, epmd };
        let scheme = if shown.is_some() { "amqps" } else { "amqp" };
        let mut own = Self { place, programs, user, ports, scheme, process: None, cookie, _epmd: process };
        own.configure(shown)?;
        own.up()?;
        Ok(own)
    }

    /// What the node is called.
    #[must_use]
    pub fn name(&self) -> String {
        format!("everstep-own-{}@localhost", self.ports.amqp)
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(NAME)
    }

    /// The same for another user, whose password is its name.
    #[must_use]
    pub fn url_of(&self, user: &str) -> String {
        format!("{}://{user}:{user}@127.0.0.1:{}/{NAME}", self.scheme, self.ports.amqp)
    }

    /// Its vhost.
    #[must_use]
    pub fn vhost(&self) -> &str {
        NAME
    }

    /// Makes its vhost anew, where a queue that names no kind is of this one.
    pub fn renew_vhost(&self, default_queue_type: &str) -> Result<()> {
        self.ctl(&["delete_vhost", NAME])?;
        self.ctl(&["add_vhost", NAME, "--default-queue-type", default_queue_type])?;
        self.ctl(&["set_permissions", "-p", NAME, NAME, ".*", ".*", ".*"])?;
        Ok(())
    }

    /// Runs the broker's own command and returns what it prints.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.command("rabbitmqctl");
        let output =
            command.arg("-q").args(arguments).output().with_context(|| format!("run {command:?}"))?;
        if !output.status.success() {
            bail!("rabbitmqctl failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Ends it.
    pub fn down(&mut self, how: Down) -> Result<()> {
        let mut process = self.process.take().context("it is down")?;
        match how {
            Down::Orderly => {
                let pid = std::fs::read_to_string(self.pid_file())?;
                signal("TERM", pid.trim())?;
            }
            Down::Crash => signal("KILL", &group(&process))?,
        }
        process.wait(PATIENCE)?;
        Ok(())
    }

    /// Starts it again, and waits until it answers.
    pub fn up(&mut self) -> Result<()> {
        // Of the last node, which has ended.
        drop(std::fs::remove_file(self.pid_file()));
        let mut command = self.command("rabbitmq-server");
        // Script and node are one group, so that both can be killed at once.
        command.process_group(0).stderr(std::process::Stdio::null());
        self.process = Some(Process::spawn("RabbitMQ", &mut command)?);
        let port = self.ports.amqp;
        until("RabbitMQ answers", || {
            let process = self.process.as_mut().context("it was started")?;
            if let Ok(status) = process.wait(std::time::Duration::ZERO) {
                bail!("RabbitMQ has ended: {status}; its log is under {}", self.place.path().display());
            }
            // What speaks TLS answers nobody who does not.
            Ok(if self.scheme == "amqp" { speaks_amqp(port) } else { takes_connections(port) })
        })
    }

    /// Forgets everything that it held while it is down: queues, messages, exchanges. User and vhost are made again.
    pub fn wipe(&self) -> Result<()> {
        if self.process.is_some() {
            bail!("a node that runs is not wiped");
        }
        let data = self.data().join("mnesia");
        std::fs::remove_dir_all(&data)?;
        self.user.directory(&data)
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("rabbitmq")
    }

    fn pid_file(&self) -> PathBuf {
        self.data().join("pid")
    }

    fn configure(&self, shown: Option<&Signed>) -> Result<()> {
        let data = self.data();
        self.user.directory(&data)?;
        for part in ["mnesia", "log"] {
            self.user.directory(&data.join(part))?;
        }
        let port = self.ports.amqp;
        let listener = match shown {
            None => format!("listeners.tcp.1 = 127.0.0.1:{port}"),
            Some(shown) => {
                let (certificate, key) = (data.join("server.crt"), data.join("server.key"));
                self.user.write(&certificate, &shown.certificate)?;
                self.user.write(&key, &shown.key)?;
                format!(
                    "listeners.tcp = none\nlisteners.ssl.1 = 127.0.0.1:{port}\nssl_options.certfile = {}\n\
                     ssl_options.keyfile = {}\nssl_options.verify = verify_none",
                    certificate.display(),
                    key.display()
                )
            }
        };
        let settings = format!(
            "{listener}\ndefault_user = {NAME}\ndefault_pass = {NAME}\ndefault_vhost = {NAME}\n\
             default_user_tags.administrator = true\ndisk_free_limit.absolute = 50MB\ncollect_statistics_interval = 60000\n\
             log.console = false\nlog.file.level = warning\n",
        );
        self.user.write(&data.join("rabbitmq.conf"), &settings)?;
        self.user.write(&data.join("enabled_plugins"), "[].")?;
        self.user.write(&data.join("rabbitmq-env.conf"), "")?;
        self.user.write(&data.join("advanced.config"), "[].")?;
        let cookie = data.join(".erlang.cookie");
        self.user.write(&cookie, &self.cookie)?;
        Ok(())
    }

    /// A program of the node, with everything in its environment that says which node it is.
    fn command(&self, program: &str) -> Command {
        let mut command = self.user.command(&self.programs.join(program));
        let data = self.data();
        let path = |name: &str| data.join(name).into_os_string();
        command
            .env("HOME", data.as_os_str())
            .env("PATH", format!("/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{}", self.programs.display()))
            .env("RABBITMQ_NODENAME", self.name())
            .env("RABBITMQ_DIST_PORT", self.ports.dist.to_string())
            .env("RABBITMQ_MNESIA_BASE", path("mnesia"))
            .env("RABBITMQ_LOG_BASE", path("log"))
            .env("RABBITMQ_PID_FILE", path("pid"))
            .env("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", path("advanced.config"))
            .env("RABBITMQ_CONF_ENV_FILE", path("rabbitmq-env.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", path("enabled_plugins"))
            .env("ERL_EPMD_PORT", self.ports.epmd.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            // No busy waiting: an idle broker leaves the processor to others. As many ports as are used, not as the limit allows.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "+sbwt none +sbwtdcpu none +sbwtdio none +Q 65536 -kernel inet_dist_use_interface {127,0,0,1}",
            );
        command
    }
}

impl Drop for OwnRabbit {
    fn drop(&mut self) {
        if self.process.is_some() {
            drop(self.down(Down::Crash));
        }
    }
}

/// The group of a process that leads one, as `kill` takes it.
fn group(process: &Process) -> String {
    format!("-{}", process.pid())
}

fn signal(signal: &str, pid: &str) -> Result<()> {
    let status = Command::new("kill").arg(format!("-{signal}")).args(["--", pid]).status()?;
    if !status.success() {
        bail!("{pid} did not take {signal}");
    }
    Ok(())
}
