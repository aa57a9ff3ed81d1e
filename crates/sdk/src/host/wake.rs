//! The body's waker: tells the body's own wakes and the host's feeding from foreign ones (rule W30).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

use super::turn::{self, Act, Token};

type Listener = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct HostWaker {
    token: Token,
    woke_itself: AtomicBool,
    foreign: AtomicBool,
    over: AtomicBool,
    listener: Mutex<Option<Listener>>,
}

impl HostWaker {
    pub(crate) fn new(token: Token) -> Self {
        Self {
            token,
            woke_itself: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            over: AtomicBool::new(false),
            listener: Mutex::new(None),
        }
    }

    /// Whether the body woke itself since this was last asked.
    pub(crate) fn take_own_wake(&self) -> bool {
        self.woke_itself.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }

    /// The body has ended or is thrown away: from here on no wake means anything.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn listen(&self, listener: Box<dyn Fn() + Send + Sync>) {
        let listener = Listener::from(listener);
        *self.listener.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener.clone());
        if self.foreign() {
            listener();
        }
    }

    fn woken_by_a_stranger(&self) {
        if self.over.load(Ordering::Acquire) || self.foreign.swap(true, Ordering::AcqRel) {
            return;
        }
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener();
        }
    }
}

impl Wake for HostWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match turn::act(self.token) {
            Some(Act::Poll) => self.woke_itself.store(true, Ordering::Release),
            Some(Act::Tend) => {}
            None => self.woken_by_a_stranger(),
        }
    }
}
