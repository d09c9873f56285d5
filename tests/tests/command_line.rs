//! `asya-cluster` is there and knows what the Makefile asks of it. This is also how `make demo` builds it: an
//! integration test brings the features that all tests are built with, so that nothing is compiled twice, and this one
//! compiles in a moment.

use std::process::Command;

#[test]
fn asya_cluster_knows_what_the_makefile_asks_of_it() {
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
