//! Makes HTTP calls for the remote steps of a pool: a deployment of its own beside the workers of a fleet.

use std::process::ExitCode;

fn main() -> ExitCode {
    everstep_http::worker::process::main(std::env::args_os())
}
