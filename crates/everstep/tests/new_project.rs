//! The template of `everstep new`, built and run: it greets, and goes on where it was when it is run again. Not: what the command writes
//! (crates/cli/tests/new.rs).

#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

use std::{env, process::Command};

#[test]
fn the_template_greets_once() {
    // Beside the tests, where cargo puts examples.
    let mut program = env::current_exe().unwrap();
    program.pop();
    program.pop();
    let program = program.join("examples/new_project");
    assert!(program.exists(), "{} is missing: cargo build -p everstep --examples", program.display());
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let output =
            Command::new(&program).arg("Ada").current_dir(&dir).env_remove("AMQP_URL").output().unwrap();
        let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let first = run();
    assert!(first.contains("to Ada: Good morning, Ada") && first.contains("attempt 1"), "{first}");
    let again = run();
    assert!(again.contains("was greeted before") && !again.contains("to Ada"), "{again}");
}
