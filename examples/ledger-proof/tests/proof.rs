//! The proof in small, and that it would notice. Whether enough was killed only the long run says.

use std::process::{Command, Output};

fn proof(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ledger-proof"));
    command.args(["--steps", "2000", "--life", "6000"]).args(arguments).output().expect("it runs")
}

/// The numbers of its last line: steps, kills, duplicates, in attention, unexplained.
fn numbers(output: &Output) -> [u32; 5] {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let numbers =
        last.split(|character: char| !character.is_ascii_digit()).filter_map(|word| word.parse().ok());
    let numbers: Vec<u32> = numbers.collect();
    numbers.try_into().unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn l16_every_effect_comes_once_over_a_service_that_fails_and_processes_that_die() {
    let output = proof(&[]);
    let [steps, _, duplicates, attention, unexplained] = numbers(&output);
    assert_eq!(
        (steps, duplicates, unexplained),
        (2_000, 0, 0),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert!(attention > 0, "the service fails so often that somebody must have been asked");
}

#[test]
fn l16_without_looking_first_and_without_the_question_effects_are_doubled_and_the_proof_fails() {
    let output = proof(&["--planted"]);
    let [_, _, duplicates, attention, _] = numbers(&output);
    assert!(duplicates > 0 && attention == 0, "{duplicates} {attention}");
    assert_eq!(output.status.code(), Some(1));
}
