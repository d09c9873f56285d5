//! `asya-cluster` exists and takes the arguments that the Makefile passes. The Makefile's tests build it by this test:
//! integration tests enable the features that all tests are built with, so nothing is compiled twice.

use std::process::Command;

#[test]
fn asya_cluster_accepts_the_makefiles_arguments() {
    let program = env!("CARGO_BIN_EXE_asya-cluster");
    let answer = Command::new(program).arg("--help").output().unwrap();
    let text = String::from_utf8(answer.stdout).unwrap();
    for command in ["demo", "up", "down", "run", "real", "build"] {
        let listed = text
            .lines()
            .any(|line| line.split_whitespace().next() == Some(command));
        assert!(listed, "{command} is not in\n{text}");
    }
}
