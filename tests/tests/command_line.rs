//! Checks that `asya-cluster` is built and takes the arguments that the Makefile passes. The Makefile builds it by
//! running this test: integration tests enable the features that all tests are built with, so nothing is compiled
//! twice.

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

/// Without the programs that a sandbox needs there are no real pods: they are skipped, unless they are required.
#[test]
fn missing_real_pods_are_an_error_if_they_are_required() {
    let real = |required: &str| {
        Command::new(env!("CARGO_BIN_EXE_asya-cluster"))
            .args(["real", "--", "true"])
            .env("PATH", "/nonexistent")
            .env("ASYA_REQUIRE_REAL", required)
            .output()
            .unwrap()
    };
    let skipped = real("");
    let text = String::from_utf8(skipped.stdout).unwrap();
    assert!(text.starts_with("skipped: "), "{text}");
    assert!(skipped.status.success());

    let refused = real("1");
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("ASYA_REQUIRE_REAL"), "{text}");
    assert!(!refused.status.success() && refused.stdout.is_empty());
}
