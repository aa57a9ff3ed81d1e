//! What tests, the fleet demo and the benchmark stand on: fresh databases and vhosts on the development servers, child
//! processes that never outlive their owner, CPU accounts of process trees. Dev only.

mod cpu;
mod installation;
mod process;

pub use cpu::{cpu_of, cpu_of_servers, rss_mb};
pub use installation::{Installation, RestoredDatabase};
pub use process::{Process, program};
