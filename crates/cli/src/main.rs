//! The only product binary.

use std::process::ExitCode;

/// Small messages are allocated on one thread and freed on another all day long, which this one is made for: measured, it
/// takes a third off the CPU of an instance.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    everstep_cli::run(std::env::args_os())
}
