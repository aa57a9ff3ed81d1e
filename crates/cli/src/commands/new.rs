//! `everstep new`: a project of one's own, small and complete. Its code is compiled and run by this repository's tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::print;
use crate::{args::NewArgs, failure::Failure};

/// What the files of the template call the project.
const NAME: &str = "hello-everstep";
const VERSION: &str = "version = \"0.1.0\", features";
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("../../template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("../../template/main.rs")),
    ("README.md", include_str!("../../template/README.md")),
    (".gitignore", "/target\n/*.db*\n"),
];
const NAME_CHARS_MAX: usize = 64;

pub(super) fn run(args: &NewArgs) -> Result<(), Failure> {
    let name = checked(&args.name)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(name));
    if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) || dir.is_file() {
        return Err(Failure::Usage(format!(
            "{} is there and is not empty; nothing was written",
            dir.display()
        )));
    }
    let from = match &args.path {
        Some(path) => format!("path = {:?}, features", path.display().to_string()),
        None => VERSION.replace("0.1.0", env!("CARGO_PKG_VERSION")),
    };
    for (file, text) in FILES {
        write(&dir.join(file), &text.replace(VERSION, &from).replace(NAME, name))?;
    }
    print(&format!("made {name} in {}\n\n  cd {}\n  cargo run -- Ada\n", dir.display(), dir.display()))
}

/// The rule of cargo's names, or the project could not be built.
fn checked(name: &str) -> Result<&str, Failure> {
    let holds = (1..=NAME_CHARS_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
        && name.as_bytes()[0].is_ascii_lowercase();
    // A package must not be called like what it depends on, nor like the libraries of the language.
    let is_taken = matches!(name, "everstep" | "tokio" | "test" | "core" | "std" | "alloc" | "proc_macro");
    if holds && !is_taken {
        return Ok(name);
    }
    Err(Failure::Usage(format!(
        "the name {name:?} is refused, it must be 1 to {NAME_CHARS_MAX} of the characters a-z, 0-9, _ and -, begin with a letter, \
         and not be the name of a library that the project uses"
    )))
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    Ok(fs::write(file, text)?)
}
