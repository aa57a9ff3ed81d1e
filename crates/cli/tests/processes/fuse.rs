//! The cable between a coordinator and its database. At a chosen piece of what passes it burns through and takes the coordinator
//! along, which so dies between any two steps that it makes: before a statement arrives, or before it learns what came of it.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// A cable from a port of its own to a server on this machine.
pub(crate) struct Fuse {
    address: SocketAddr,
    server: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    armed: Mutex<Option<Armed>>,
    burnt: AtomicBool,
}

struct Armed {
    /// What is killed.
    pid: u32,
    /// So many pieces pass yet.
    left: u32,
}

impl Fuse {
    /// To the server that this URL names.
    pub(crate) fn to(url: &str) -> Self {
        let server = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(State::default());
        let (to, shared) = (server.clone(), Arc::clone(&state));
        thread::spawn(move || {
            for coordinator in listener.incoming() {
                let Ok(coordinator) = coordinator else { break };
                let server = TcpStream::connect(&to).expect("the server is there");
                shared.connect(&coordinator, &server);
            }
        });
        Self { address, server, state }
    }

    /// The same URL, through the cable.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replacen(&self.server, &self.address.to_string(), 1)
    }

    /// So many pieces more pass, in whichever direction; at the next one the process dies, and the piece never arrives.
    pub(crate) fn arm(&self, pid: u32, left: u32) {
        *self.state.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Armed { pid, left });
    }

    /// Whether it has burnt through, and nothing passes.
    pub(crate) fn has_burnt(&self) -> bool {
        self.state.burnt.load(Ordering::SeqCst)
    }

    /// Everything passes again.
    pub(crate) fn mend(&self) {
        self.state.burnt.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn connect(self: &Arc<Self>, coordinator: &TcpStream, server: &TcpStream) {
        for (from, to) in [(coordinator, server), (server, coordinator)] {
            let (mut from, mut to) = (again(from), again(to));
            let state = Arc::clone(self);
            thread::spawn(move || {
                let mut piece = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from.read(&mut piece) {
                    if state.burns() || to.write_all(&piece[..length]).is_err() {
                        break;
                    }
                }
                // One direction that has ended ends the other. The peer may be gone.
                drop(from.shutdown(Shutdown::Both));
                drop(to.shutdown(Shutdown::Both));
            });
        }
    }

    /// Counts a piece.
    fn burns(&self) -> bool {
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *armed {
            None => self.burnt.load(Ordering::SeqCst),
            Some(Armed { left, .. }) if *left > 0 => {
                *left -= 1;
                false
            }
            Some(Armed { pid, .. }) => {
                // First, so that whoever is left without an answer finds it burnt.
                self.burnt.store(true, Ordering::SeqCst);
                let killed = Command::new("kill").arg("-9").arg(pid.to_string()).status();
                assert!(killed.expect("kill runs").success());
                *armed = None;
                true
            }
        }
    }
}

fn again(stream: &TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("it is a socket");
    stream.try_clone().expect("a second handle")
}

/// Host and port of a URL.
fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['/', '?']).next().unwrap_or(rest);
    rest.rsplit_once('@').map_or(rest, |(_, authority)| authority)
}
