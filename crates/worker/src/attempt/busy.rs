//! Adds up how long a future's polls keep a thread busy.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    time::{Duration, Instant},
};

use prometheus::Counter;

/// What is measured is kept here until it is worth telling: the counter is shared by threads.
const TELL: Duration = Duration::from_millis(1);

struct Busy {
    counter: Counter,
    untold: Duration,
}

/// Counts the time of this future's polls, by the system's clock: user code really blocks, also where tokio's clock stands still.
pub(super) async fn measured(inner: impl Future<Output = ()>, counter: Counter) {
    let mut inner = pin!(inner);
    let mut busy = Busy { counter, untold: Duration::ZERO };
    poll_fn(|cx| {
        let began = Instant::now();
        let polled = inner.as_mut().poll(cx);
        busy.untold += began.elapsed();
        if busy.untold >= TELL {
            busy.tell();
        }
        polled
    })
    .await;
}

impl Busy {
    fn tell(&mut self) {
        self.counter.inc_by(std::mem::take(&mut self.untold).as_secs_f64());
    }
}

/// However the future went.
impl Drop for Busy {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    //! Proves that polls count and waiting does not.
    use super::*;

    fn spin(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn polls_are_busy_and_what_is_between_them_is_not() {
        let counter = Counter::new("busy", "Help.").expect("a valid name");
        let work = async {
            spin(Duration::from_millis(20));
            futures::pending!();
        };
        let mut future = pin!(measured(work, counter.clone()));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        let told = counter.get();
        assert!(told >= 0.02, "told while it runs: {told}");
        spin(Duration::from_millis(50));
        assert!(future.as_mut().poll(&mut cx).is_ready());
        assert!(counter.get() - told < 0.04, "{} after {told}", counter.get());
    }
}
