//! Where the settings of a process come from, and what the settings of all processes have in common: a file, then the environment, then
//! flags; URLs that may bear a password; logs.
//!
//! This is the one crate that reads the environment ([`Sources::of_process`]). Whatever is not known is refused by name, in the file and
//! in the environment: a misspelt setting never silently does nothing. What is said of a value that does not
//! fit names its setting, and never a value that may be secret.

mod given;
mod log;
mod otlp;
mod problem;
mod secret_url;
mod source;

pub use log::{Log, LogFormat};
pub use otlp::Otlp;
pub use secret_url::SecretUrl;
pub use source::{PREFIX, Reading, Sources};
