//! What tests, the fleet demo, the chaos run and the benchmark stand on: fresh databases and vhosts on the development servers,
//! servers of one's own that may be broken, certificates for them, child processes that never outlive their owner, the way to a server, CPU accounts of
//! process trees. Dev only.

pub mod certificates;
mod cpu;
mod installation;
mod process;
pub mod proxy;
mod purge;
mod servers;
mod sound;

pub use cpu::{cpu_of, cpu_of_servers, rss_mb};
pub use installation::{Installation, RestoredDatabase};
pub use process::{Process, program};
pub use proxy::{Proxy, Way};
pub use purge::purge;
pub use servers::{Down, OwnPostgres, OwnRabbit};
pub use sound::UNSOUND;
