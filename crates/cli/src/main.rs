//! The only product binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    everstep_cli::run(std::env::args_os())
}
