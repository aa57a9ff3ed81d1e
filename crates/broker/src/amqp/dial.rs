//! One attempt to connect, and the pauses between attempts.

use std::time::Duration;

use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::AmqpSettings;
use super::convert::classify;
use crate::Error;

/// What an AMQP 0.9.1 client says first.
const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";

/// Dials; remembers whether the peer was mute last time.
#[derive(Default)]
pub(super) struct Dialler {
    mute: bool,
}

impl Dialler {
    /// Connects and shakes hands within the dial deadline.
    pub(super) async fn dial(&mut self, settings: &AmqpSettings, role: &str) -> Result<Connection, Error> {
        let mut uri: AMQPUri = settings.url.parse().map_err(Error::refused)?;
        uri.query.heartbeat.get_or_insert(settings.heartbeat_s);
        uri.query.connection_timeout.get_or_insert(settings.dial_deadline.as_millis() as u64);
        // A handshake that lapin has begun with a mute peer cannot be called off and keeps a thread, so after a
        // timeout a bare socket goes ahead.
        if self.mute {
            probe(&uri, settings.dial_deadline).await?;
        }
        let name = format!("{} {role}", settings.connection_name);
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let tls = OwnedTLSConfig { identity: None, cert_chain: settings.ca_pem.clone() };
        let runtime = lapin::runtime::default_runtime().map_err(Error::unavailable)?;
        let connecting = Connection::connect_uri_with_config(uri, properties, tls, runtime);
        let connected = timeout(settings.dial_deadline, connecting).await;
        self.mute = connected.is_err();
        match connected {
            Ok(connection) => connection.map_err(|error| classify(&error)),
            Err(_) => Err(Error::unavailable("no answer from the broker within the dial deadline")),
        }
    }
}

/// Whether somebody answers there. Not for TLS, where the answer would need a handshake of its own.
async fn probe(uri: &AMQPUri, deadline: Duration) -> Result<(), Error> {
    if uri.scheme == AMQPScheme::AMQPS {
        return Ok(());
    }
    let talk = async {
        let mut socket = TcpStream::connect((uri.authority.host.as_str(), uri.authority.port)).await?;
        socket.write_all(PROTOCOL_HEADER).await?;
        socket.read_u8().await
    };
    match timeout(deadline, talk).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::unavailable(error)),
        Err(_) => Err(Error::unavailable("the broker accepts connections but does not answer")),
    }
}

/// Doubling pauses with jitter.
#[derive(Debug)]
pub(super) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &AmqpSettings) -> Self {
        Self { min: settings.redial_min, max: settings.redial_max, next: settings.redial_min }
    }

    pub(super) fn reset(&mut self) {
        self.next = self.min;
    }

    /// Between the due pause and a quarter more; the next is twice as long.
    pub(super) fn pause(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.max);
        let noise = u32::from(uuid::Uuid::now_v7().as_bytes()[15]);
        due + due / 4 * noise / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_cap_and_start_again() {
        let mut backoff = Backoff::new(&AmqpSettings::new("amqp://localhost", "test"));
        let mut last = Duration::ZERO;
        for due_ms in [200, 400, 800, 1600, 2000, 2000] {
            let pause = backoff.pause();
            assert!(
                (due_ms..=due_ms * 5 / 4).contains(&(pause.as_millis() as u64)),
                "{pause:?} for {due_ms}"
            );
            last = pause;
        }
        assert!(last >= Duration::from_secs(2));
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(250));
    }

    /// A broker that accepts and says nothing must cost a thread once, not at every attempt.
    #[tokio::test]
    async fn a_mute_peer_is_probed_before_the_next_handshake() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut settings = AmqpSettings::new(format!("amqp://a:b@{address}/%2f"), "test");
        settings.dial_deadline = Duration::from_millis(100);
        let mut dialler = Dialler::default();
        let mut sockets = Vec::new();
        for expected in ["within the dial deadline", "does not answer", "does not answer"] {
            let (outcome, accepted) = tokio::join!(dialler.dial(&settings, "test"), listener.accept());
            sockets.push(accepted.expect("somebody dials"));
            let error = outcome.expect_err("nobody answers").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
