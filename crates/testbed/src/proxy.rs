//! The way to a server: a TCP proxy that can freeze (everything stays connected and nothing moves, as for a process that is
//! stopped or a cable that is pulled) or be cut (connections break and new ones are refused).

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::JoinHandle,
};

/// How the way is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Everything passes.
    Open,
    /// Nothing passes, nothing breaks.
    Frozen,
    /// What is asked passes, no answer does, nothing breaks.
    Unanswered,
    /// Everything breaks.
    Cut,
}

/// A proxy in front of a broker or a database.
#[derive(Debug)]
pub struct Proxy {
    /// How it is, and how often it was cut.
    way: Arc<watch::Sender<(Way, u32)>>,
    port: u16,
    listener: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a port of its own and passes on to `host:port`.
    pub async fn start(target: String) -> Self {
        Self::start_before(vec![target]).await
    }

    /// The same before several servers, as a load balancer stands: each connection goes to the next one that takes it.
    pub async fn start_before(targets: Vec<String>) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a local port is free");
        let port = socket.local_addr().expect("it is bound").port();
        let way = Arc::new(watch::Sender::new((Way::Open, 0)));
        let listener = tokio::spawn(listen(socket, targets, Arc::clone(&way)));
        Self { way, port, listener }
    }

    /// The URL through this proxy.
    pub fn url(&self, url: &str) -> String {
        let (head, tail) = url.split_at(url.find('@').map_or(0, |at| at + 1));
        let rest = tail.find('/').map_or("", |slash| &tail[slash..]);
        format!("{head}127.0.0.1:{}{rest}", self.port)
    }

    /// Changes how the way is.
    pub fn set(&self, way: Way) {
        self.way.send_modify(|(now, cuts)| {
            *now = way;
            *cuts += u32::from(way == Way::Cut);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.set(Way::Cut);
    }
}

/// `host:port` of a URL.
pub fn target(url: &str) -> String {
    let rest = url.find('@').map_or(url, |at| &url[at + 1..]);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

async fn listen(socket: TcpListener, mut targets: Vec<String>, way: Arc<watch::Sender<(Way, u32)>>) {
    while let Ok((near, _)) = socket.accept().await {
        if way.borrow().0 == Way::Cut {
            continue;
        }
        tokio::spawn(pass(near, targets.clone(), way.subscribe()));
        targets.rotate_left(1);
    }
}

async fn pass(near: TcpStream, targets: Vec<String>, way: watch::Receiver<(Way, u32)>) {
    let Some(far) = taken(targets).await else { return };
    drop((near.set_nodelay(true), far.set_nodelay(true)));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let (mut cut, cuts) = (way.clone(), way.borrow().1);
    tokio::select! {
        () = copy(near_in, far_out, way.clone(), &[Way::Frozen]) => {}
        () = copy(far_in, near_out, way, &[Way::Frozen, Way::Unanswered]) => {}
        _ = cut.wait_for(|(_, now)| *now != cuts) => {}
    }
}

/// The first that takes a connection.
async fn taken(targets: Vec<String>) -> Option<TcpStream> {
    for target in targets {
        if let Ok(far) = TcpStream::connect(target).await {
            return Some(far);
        }
    }
    None
}

async fn copy(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut way: watch::Receiver<(Way, u32)>,
    waits: &[Way],
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if way.wait_for(|(way, _)| !waits.contains(way)).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}
