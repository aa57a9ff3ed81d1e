//! What the suite runs on: parties on one broker, whose connections can be cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use everstep_broker::{
    AmqpBroker, AmqpSettings, Broker, Consume, Consumer, Delivery, Incoming, MemoryBroker, Outgoing,
    QueueDeclaration, QueueKind,
};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// Only a failure waits this long.
const DEADLINE: Duration = Duration::from_secs(15);

/// The RabbitMQ to test against.
pub(crate) fn url() -> String {
    std::env::var("EVERSTEP_TEST_AMQP_URL").expect(
        "EVERSTEP_TEST_AMQP_URL names no RabbitMQ: run `make services-up`, then eval \"$(scripts/services.sh env)\"",
    )
}

/// One broker under test, and a prefix for the names on it.
pub(crate) struct Rig {
    kind: Kind,
    prefix: String,
    queues: std::sync::Mutex<Vec<String>>,
}

enum Kind {
    Memory(MemoryBroker),
    Amqp { url: String },
}

/// One "process": a broker handle whose connections can be cut.
pub(crate) struct Party {
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) memory: Option<MemoryBroker>,
    proxy: Option<Proxy>,
}

impl Rig {
    pub(crate) fn memory() -> Self {
        Self::new(Kind::Memory(MemoryBroker::new()))
    }

    pub(crate) fn amqp() -> Self {
        Self::new(Kind::Amqp { url: url() })
    }

    fn new(kind: Kind) -> Self {
        Self {
            kind,
            prefix: format!("test.{}", uuid::Uuid::now_v7().simple()),
            queues: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn is_amqp(&self) -> bool {
        matches!(self.kind, Kind::Amqp { .. })
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub(crate) fn queue(&self, name: &str, kind: QueueKind) -> QueueDeclaration {
        let queue = QueueDeclaration::new(self.name(name), kind);
        self.queues.lock().expect("not poisoned").push(queue.name.clone());
        queue
    }

    /// Another process, connected.
    pub(crate) async fn party(&self) -> Party {
        let party = match &self.kind {
            Kind::Memory(memory) => {
                let memory = memory.connection();
                Party { broker: Arc::new(memory.clone()), memory: Some(memory), proxy: None }
            }
            Kind::Amqp { url } => {
                let proxy = Proxy::start(url).await;
                let broker = AmqpBroker::connect(AmqpSettings::new(proxy.url.clone(), "conformance"));
                Party { broker: Arc::new(broker), memory: None, proxy: Some(proxy) }
            }
        };
        is_up(&party).await;
        party
    }
}

impl Drop for Rig {
    /// Leaves nothing behind on a shared broker, not even after a failure.
    fn drop(&mut self) {
        let Kind::Amqp { url } = &self.kind else { return };
        let (url, queues) = (url.clone(), std::mem::take(&mut *self.queues.lock().expect("not poisoned")));
        let clean = move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let broker = AmqpBroker::connect(AmqpSettings::new(url, "conformance clean-up"));
                for name in queues {
                    let _ = broker.declare(vec![everstep_broker::Declaration::delete_queue(name)]).await;
                }
                broker.close().await;
            });
        };
        let _ = std::thread::spawn(clean).join();
    }
}

impl Party {
    pub(crate) fn cut(&self) {
        match (&self.memory, &self.proxy) {
            (Some(memory), _) => memory.cut(),
            (None, Some(proxy)) => proxy.set(false),
            (None, None) => unreachable!("a party is one or the other"),
        }
    }

    pub(crate) fn restore(&self) {
        match (&self.memory, &self.proxy) {
            (Some(memory), _) => memory.restore(),
            (None, Some(proxy)) => proxy.set(true),
            (None, None) => unreachable!("a party is one or the other"),
        }
    }

    pub(crate) async fn close(self) {
        self.broker.close().await;
    }

    pub(crate) async fn consume(&self, queue: QueueDeclaration, prefetch: u16) -> Consumer {
        self.broker.consume(Consume::new(queue, prefetch)).await.expect("consuming")
    }

    pub(crate) async fn declare(&self, queue: &QueueDeclaration) {
        self.broker.declare(vec![queue.clone().into()]).await.expect("declared");
    }

    pub(crate) async fn send(&self, messages: Vec<Outgoing>) {
        self.broker.send(messages).await.expect("sent");
    }

    pub(crate) async fn send_texts(&self, queue: &str, texts: &[&str]) {
        self.send(texts.iter().map(|text| Outgoing::to_queue(queue, text.to_string())).collect()).await;
    }
}

/// Both connections are up.
pub(crate) async fn is_up(party: &Party) {
    let mut health = party.broker.health();
    let up = timeout(DEADLINE, health.wait_for(everstep_broker::Health::is_up)).await;
    assert!(up.is_ok(), "not connected in time: {:?}", party.broker.health().borrow());
}

async fn next(consumer: &mut Consumer, what: &str) -> Incoming {
    timeout(DEADLINE, consumer.next()).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

pub(crate) async fn connected(consumer: &mut Consumer) -> String {
    match next(consumer, "Connected").await {
        Incoming::Connected { queue } => queue,
        other => panic!("{other:?} instead of Connected"),
    }
}

pub(crate) async fn disconnected(consumer: &mut Consumer) {
    let incoming = next(consumer, "Disconnected").await;
    assert!(matches!(incoming, Incoming::Disconnected), "{incoming:?} instead of Disconnected");
}

pub(crate) async fn delivered(consumer: &mut Consumer) -> Delivery {
    match next(consumer, "a delivery").await {
        Incoming::Delivery(delivery) => delivery,
        other => panic!("{other:?} instead of a delivery"),
    }
}

pub(crate) async fn receive(consumer: &mut Consumer, count: usize) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        deliveries.push(delivered(consumer).await);
    }
    deliveries
}

pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.body.to_vec()).expect("text")
}

pub(crate) fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

/// The queue comes to hold this many ready messages (RabbitMQ counts a moment late).
pub(crate) async fn depth_is(party: &Party, queue: &str, expected: Option<u32>) {
    let mut last = None;
    let reached = timeout(DEADLINE, async {
        loop {
            last = Some(party.broker.depth(queue).await.expect("an answer"));
            if last == Some(expected) {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    assert!(reached.await.is_ok(), "{queue} holds {last:?} ready messages instead of {expected:?}");
}

/// The same, after the party has gone and thereby given back what it did not settle.
pub(crate) async fn settled_depth(rig: &Rig, party: Party, queue: &str, expected: u32) {
    party.close().await;
    depth_is(&rig.party().await, queue, Some(expected)).await;
}

/// A wire between a broker and its client that can be cut.
struct Proxy {
    url: String,
    open: watch::Sender<bool>,
    /// Ends the accepting task with the proxy.
    _stop: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(url: &str) -> Self {
        let (head, rest) = url.rsplit_once('@').expect("a URL with user and password");
        let (target, vhost) = rest.split_once('/').expect("a URL with a vhost");
        let target = target.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (open, state) = watch::channel(true);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::downgrade(&stop);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if stopped.upgrade().is_none_or(|stop| stop.load(Ordering::Relaxed)) {
                    return;
                }
                let mut state = state.clone();
                if *state.borrow() {
                    let target = target.clone();
                    tokio::spawn(async move {
                        tokio::select! {
                            () = carry(client, target) => {}
                            _ = state.wait_for(|open| !open) => {}
                        }
                    });
                }
            }
        });
        Self { url: format!("{head}@{address}/{vhost}"), open, _stop: stop }
    }

    fn set(&self, open: bool) {
        self.open.send_replace(open);
    }
}

async fn carry(mut client: TcpStream, target: String) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
