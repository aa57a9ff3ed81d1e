//! Points of crash: places at which a process can be made to die as if by `kill -9`, on either side of each commit, publish and ack
//! (`make crash-matrix`). In every other build there are none: what goes through here is handed on as it is.

/// A place, with a point before it and one after it. Gives the future itself, in a build without points.
#[doc(hidden)]
#[cfg(not(feature = "crash"))]
#[inline]
pub fn around<F: Future>(_place: &'static str, future: F) -> F {
    future
}

/// The same for what is no future.
#[doc(hidden)]
#[cfg(not(feature = "crash"))]
#[inline]
pub fn at<T>(_place: &'static str, act: impl FnOnce() -> T) -> T {
    act()
}

/// Whether every message is delivered twice to this process. Only a build with points of crash ever says so.
#[doc(hidden)]
#[cfg(not(feature = "crash"))]
#[must_use]
#[inline]
pub const fn delivers_twice() -> bool {
    false
}

#[cfg(feature = "crash")]
pub(crate) use armed::speaks_later;
#[cfg(feature = "crash")]
pub use armed::{PLACES, around, at, delivers_twice};

#[cfg(feature = "crash")]
pub(crate) mod later;

#[cfg(feature = "crash")]
mod armed {
    use std::{
        process::abort,
        sync::{
            OnceLock,
            atomic::{AtomicU32, Ordering},
        },
        time::Duration,
    };

    /// Every place there is, each of which has a point `<place>.before` and one `<place>.after`. A test compares it with the code.
    pub const PLACES: [&str; 43] = [
        "commit.turn",
        "commit.session_open",
        "commit.session_heard",
        "commit.session_beat",
        "commit.session_goodbye",
        "commit.session_end",
        "commit.progress",
        "commit.duties",
        "commit.duties_released",
        "commit.offer",
        "commit.outbox",
        "commit.rejected",
        "commit.sweep",
        "commit.clean",
        "commit.schedule",
        "commit.schedule_change",
        "commit.bulk_begin",
        "commit.bulk_advance",
        "commit.bulk_stop",
        "commit.breaches",
        "commit.present",
        "commit.access_token_made",
        "commit.access_token_revoked",
        "commit.access_token_used",
        "publish.turn",
        "publish.entries",
        "publish.reply",
        "publish.rejected",
        "publish.later",
        "publish.offer",
        "publish.lifecycle",
        "publish.beat",
        "publish.session_answer",
        "publish.ping",
        "publish.reports",
        "publish.session",
        "publish.goodbye",
        "publish.give_up",
        "ack.input",
        "ack.dropped",
        "ack.session",
        "ack.task",
        "ack.inbox",
    ];

    /// `<point>` or `<point>:<hit>`: at which point this process dies, and when it comes there for which time, from 1.
    const POINT: &str = "EVERSTEP_CRASH_POINT";
    /// Set to anything, every message is delivered twice.
    const TWICE: &str = "EVERSTEP_DELIVER_TWICE";
    /// Set to anything, this process writes what a later version may write.
    const LATER: &str = "EVERSTEP_SPEAKS_LATER";
    /// An ack is on its way once it is handed over; it has left after this long.
    const ACK_LEAVES: Duration = Duration::from_millis(30);

    struct Armed {
        place: &'static str,
        after: bool,
        /// Hits that are left.
        left: AtomicU32,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    static DOUBLED: OnceLock<bool> = OnceLock::new();
    static IS_LATER: OnceLock<bool> = OnceLock::new();

    fn armed() -> Option<&'static Armed> {
        ARMED.get_or_init(|| std::env::var(POINT).ok().map(|point| read(&point))).as_ref()
    }

    /// A point that is none would let a test pass that proves nothing.
    fn read(point: &str) -> Armed {
        let (name, hit) = point.split_once(':').unwrap_or((point, "1"));
        let (place, side) = name.rsplit_once('.').unwrap_or((name, ""));
        let place = PLACES.into_iter().find(|known| *known == place);
        let (Some(place), "before" | "after", Ok(hit @ 1..)) = (place, side, hit.parse::<u32>()) else {
            eprintln!("{POINT}={point}: no such point of crash");
            std::process::exit(64);
        };
        Armed { place, after: side == "after", left: AtomicU32::new(hit) }
    }

    /// Whether this process is to die here and now.
    fn dies(place: &'static str, after: bool) -> bool {
        armed().is_some_and(|armed| {
            armed.place == place && armed.after == after && armed.left.fetch_sub(1, Ordering::SeqCst) == 1
        })
    }

    /// A place, with a point before it and one after it.
    pub async fn around<F: Future>(place: &'static str, future: F) -> F::Output {
        if dies(place, false) {
            abort();
        }
        let output = future.await;
        if dies(place, true) {
            abort();
        }
        output
    }

    /// The same for what is no future: what it began gets the time to leave.
    pub fn at<T>(place: &'static str, act: impl FnOnce() -> T) -> T {
        if dies(place, false) {
            abort();
        }
        let output = act();
        if dies(place, true) {
            std::thread::spawn(|| {
                std::thread::sleep(ACK_LEAVES);
                abort();
            });
        }
        output
    }

    /// Whether every message is delivered twice to this process.
    #[must_use]
    pub fn delivers_twice() -> bool {
        *DOUBLED.get_or_init(|| std::env::var_os(TWICE).is_some())
    }

    /// Whether this process writes what a later version may write.
    pub(crate) fn speaks_later() -> bool {
        *IS_LATER.get_or_init(|| std::env::var_os(LATER).is_some())
    }
}
