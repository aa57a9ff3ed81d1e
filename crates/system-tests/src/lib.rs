//! Whole systems for tests written from the specification: coordinators and workers as they are, each on a runtime of its
//! own so that it can be killed, on SQLite with the in-process broker or on PostgreSQL with RabbitMQ.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`world`] | a system with everything that a test does to it |
//! | [`node`] | a coordinator or worker that can crash without a goodbye |
//! | [`proxy`] | the way to RabbitMQ, which can freeze or break; of the testbed |
//! | [`crash`] | what the crash matrix runs |
//! | [`ends`] | instances that ended, as lifecycle messages say |
//! | [`probe`] | what steps tell a test, and what holds them |
//! | [`stub`] | a worker process that says exactly what a test wants said |
//!
//! What it does not do: no mocks; nothing here sleeps to synchronise. Waits end with an event or with a failed test.

pub mod crash;
pub mod ends;
pub mod node;
pub mod probe;
pub mod stub;
pub mod world;

pub use ends::End;
pub use everstep_testbed::proxy;
pub use probe::{Gate, Log};
pub use proxy::Way;
pub use stub::Stub;
pub use world::{Kind, Setup, World, name};

use std::time::Duration;

/// How long a test waits for anything before it fails.
pub const DEADLINE: Duration = Duration::from_secs(45);

/// Awaits, or fails the test saying what was waited for.
pub async fn within<T>(what: &str, limit: Duration, future: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Makes each test a module with one test per back end.
#[macro_export]
macro_rules! on_both {
    ($($(#[$meta:meta])* async fn $name:ident($setup:ident) $body:block)*) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, reason = "one list of imports for all tests of a file")]
            use super::*;

            async fn test($setup: $crate::Setup) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn embedded() {
                test($crate::Setup::new($crate::Kind::Embedded)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn fleet() {
                test($crate::Setup::new($crate::Kind::Fleet)).await;
            }
        }
    )*};
}
