//! `everstep new`: what it writes and what it refuses. That the code works, `tests/new_project.rs` of the crate `everstep` proves, which
//! builds and runs the template itself.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::{path::Path, process::Command};

fn everstep(dir: &Path, arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_everstep")).args(arguments).current_dir(dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_project_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = everstep(dir.path(), &["new", "my-app"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("cd my-app"), "{said}");
    let read = |file: &str| std::fs::read_to_string(dir.path().join("my-app").join(file)).unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("my-app"));
    let everstep_crate = &manifest["dependencies"]["everstep"];
    assert_eq!(everstep_crate["version"].as_str(), Some(env!("CARGO_PKG_VERSION")));
    // The features that it asks for are there.
    let facade: toml::Table =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../everstep/Cargo.toml")).parse().unwrap();
    for feature in everstep_crate["features"].as_array().unwrap() {
        assert!(facade["features"].get(feature.as_str().unwrap()).is_some(), "{feature}");
    }
    assert!(read("src/main.rs").contains("Embedded::open(\"my-app.db\")"));
    for file in ["Cargo.toml", "src/main.rs", "README.md"] {
        assert!(!read(file).contains("hello-everstep"), "{file}");
    }
    let (code, said) = everstep(dir.path(), &["new", "my-app"]);
    assert_eq!(code, 2);
    assert!(said.contains("not empty"), "{said}");
    let (code, said) =
        everstep(dir.path(), &["new", "other", "--dir", "elsewhere", "--path", "/src/everstep"]);
    assert_eq!(code, 0, "{said}");
    let manifest = std::fs::read_to_string(dir.path().join("elsewhere/Cargo.toml")).unwrap();
    assert!(manifest.contains("everstep = { path = \"/src/everstep\", features"), "{manifest}");
}

#[test]
fn a_name_that_cargo_would_refuse_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["", "My", "1a", "a b", "../a", "everstep", "test", &"x".repeat(65)] {
        let (code, said) = everstep(dir.path(), &["new", name]);
        assert_eq!(code, 2, "{name:?}: {said}");
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
}
