//! Puts the pages of docs/errors into the command, so that `everstep errors` needs nothing but itself.

use std::{env, fmt::Write as _, fs, path::Path};

fn main() {
    let docs = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../docs/errors");
    println!("cargo:rerun-if-changed={}", docs.display());
    let mut pages: Vec<_> = fs::read_dir(&docs)
        .expect("docs/errors is there")
        .map(|entry| entry.expect("it is read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    let mut table = "pub(super) const PAGES: &[(&str, &str)] = &[\n".to_owned();
    for page in pages {
        let name = page.file_stem().expect("a page has a name").to_string_lossy();
        let path = page.canonicalize().expect("the page is there");
        let path = path.to_str().expect("the path is text");
        writeln!(table, "    ({name:?}, include_str!({path:?})),").expect("a string takes any text");
    }
    table.push_str("];\n");
    let out = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("pages.rs");
    fs::write(out, table).expect("the table is written");
}
