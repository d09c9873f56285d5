//! The built program: exit codes, and bad input, to which the answer is one line that says what to do.
#![allow(clippy::unwrap_used)]

mod api_server;

use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;

/// Port 1 of the loopback address, where nothing listens.
const UNREACHABLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../process/tests/unreachable-api-server.yaml"
);

/// The result of a run.
struct Ended {
    code: i32,
    out: String,
    err: String,
}

fn run(args: &[&str], input: &str) -> Ended {
    let mut command = Command::cargo_bin("kubectl-asya").unwrap();
    let command = command
        .args(args)
        .env("HOME", "/nonexistent")
        .env_remove("KUBECONFIG");
    let output = command.write_stdin(input).output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A file for this test run.
fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

const ACTOR: &str = "apiVersion: asya.sh/v1alpha1
kind: AsyncActor
metadata: {name: embed, namespace: models}
spec:
  transport: rabbitmq
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: phi}
  binding: {rollout: OnRestart}
  scaling: {enabled: false}
";

const POD: &str = "---
apiVersion: v1
kind: Pod
metadata:
  name: phi-7d9f-x
  namespace: models
  labels: {pod-template-hash: 7d9f}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: phi-7d9f, uid: u, controller: true}]
spec:
  containers: [{name: model, image: vllm, ports: [{containerPort: 8000}]}]
";

const VALUES: &str =
    "transports: {rabbitmq: {type: rabbitmq, enabled: true, config: {host: rabbitmq}}}\n";

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let broken = file("broken-kubeconfig.yaml", "contexts: [\n");
    let empty = file("empty.yaml", "kind: ConfigMap\n");
    let without_context = file("without-context.yaml", "kind: Config\n");
    for (args, texts) in [
        (&["status"][..], &["kubeconfig", "--kubeconfig"][..]),
        (
            &["status", "--kubeconfig", "/nonexistent"],
            &["kubeconfig /nonexistent", "--kubeconfig"],
        ),
        (
            &["status", "--kubeconfig", &broken],
            &["broken-kubeconfig.yaml: line 1", "--kubeconfig"],
        ),
        (
            &["status", "--kubeconfig", UNREACHABLE, "--context", "none"],
            &["there is no context none", "get-contexts"],
        ),
        (
            &["status", "--kubeconfig", &without_context],
            &["no context is chosen", "--context"],
        ),
        (
            &["lint", "-f", &empty, "--values", &broken],
            &["broken-kubeconfig.yaml: line 1"],
        ),
        (&["preview", "-f", &empty], &["no AsyncActor in", "*.yml"]),
        (
            &["man", "/proc/none"],
            &["/proc/none", "folder that you may write to"],
        ),
        (
            &["status", "--kubeconfig", UNREACHABLE],
            &["cannot reach http://", "--context"],
        ),
        (
            &["status", "embed", "--kubeconfig", UNREACHABLE],
            &["cannot reach http://"],
        ),
        (
            &["why", "phi-0", "--kubeconfig", UNREACHABLE],
            &["cannot reach http://"],
        ),
        (
            &["lint", "-f", "/nonexistent"],
            &["/nonexistent: No such file"],
        ),
        (&["lint", "-f", &empty], &["no AsyncActor in"]),
        (&["why", "-f", &empty], &["no Pod in"]),
        (&["explain", "Quee"], &["no reason or finding Quee"]),
    ] {
        let ended = run(args, "");
        assert_eq!(ended.code, 2, "{args:?}: {}{}", ended.out, ended.err);
        assert_eq!(ended.err.lines().count(), 1, "{args:?}: {}", ended.err);
        assert!(ended.err.starts_with("error: "), "{args:?}: {}", ended.err);
        for text in texts {
            assert!(ended.err.contains(text), "{args:?}: {}", ended.err);
        }
        // What parsers quote of a text does not belong in a one-line message.
        assert!(!ended.err.contains("-->"), "{args:?}: {}", ended.err);
        assert!(
            !ended.err.contains("error: error"),
            "{args:?}: {}",
            ended.err
        );
        assert_eq!(ended.out, "", "{args:?}");
    }
}

#[test]
fn file_that_cannot_be_read_is_a_finding_that_needs_no_cluster() {
    for (args, told) in [
        (
            ["lint", "-f", "-"],
            "standard input:1: error ASYA-ManifestUnreadable\n",
        ),
        (
            ["preview", "-f", "-"],
            "standard input:1: line 1 column 7: ",
        ),
    ] {
        let ended = run(&args, "kind: [\n");
        let all = format!("{}{}", ended.out, ended.err);
        assert_eq!(ended.code, 1, "{all}");
        assert!(all.contains(told), "{all}");
        assert!(!all.contains("kubeconfig"), "{all}");
        assert!(!all.contains("error: "), "{all}");
    }
}

/// Otherwise, a file to which a script redirects the output would be truncated without the script noticing.
#[test]
fn output_that_cannot_be_written_is_a_failure_unless_its_reader_has_seen_enough() {
    let program = assert_cmd::cargo::cargo_bin("kubectl-asya");
    let mut command = std::process::Command::new(&program);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.arg("explain").stdout(full).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.starts_with("error: standard output: "), "{text}");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(&program);
    let output = command.arg("explain").stdout(writer).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*text), (Some(0), ""));
}

#[test]
fn preview_says_which_objects_it_ignores() {
    let manifests = format!("{ACTOR}{POD}");
    let ended = run(
        &["preview", "-f", "-", "--kubeconfig", UNREACHABLE],
        &manifests,
    );
    assert!(
        ended.err.contains("note: ignored: Pod/phi-7d9f-x;"),
        "{}",
        ended.err
    );
    assert!(!ended.out.contains("ignored"), "{}", ended.out);
}

#[test]
fn lint_exits_with_1_for_errors_and_for_warnings_only_if_strict() {
    let values = file("values.yaml", VALUES);
    let good = run(&["lint", "-f", "-"], ACTOR);
    assert_eq!((good.code, &*good.err), (0, ""), "{}", good.out);
    assert_eq!(good.out, "1 AsyncActor: 0 errors, 0 warnings\n");
    let bad = run(
        &["lint", "-f", "-"],
        &ACTOR.replace("scaling:", "scalling:"),
    );
    assert_eq!(bad.code, 1);
    assert!(
        bad.out
            .contains("standard input:8: error ASYA-SchemaViolation models/embed\n"),
        "{}",
        bad.out
    );
    assert!(
        !bad.out.contains('\x1b'),
        "no colours in a pipe: {}",
        bad.out
    );
    let other = ACTOR.replace("transport: rabbitmq", "transport: sqs");
    for (flags, code) in [(&[][..], 0), (&["--strict"], 1)] {
        let args = [&["lint", "-f", "-", "--values", &values], flags].concat();
        let ended = run(&args, &other);
        assert_eq!(ended.code, code, "{}", ended.out);
        assert!(ended.out.contains("warning ASYA-VAL-17"), "{}", ended.out);
    }
}

#[test]
fn lint_writes_every_format() {
    for (format, begin) in [
        ("sarif", "{\n  \"$schema\""),
        ("junit", "<?xml "),
        ("json", "{\n"),
        ("yaml", "actors:"),
    ] {
        let ended = run(&["lint", "-f", "-", "-o", format], ACTOR);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out.starts_with(begin), "{format}: {}", ended.out);
    }
}

#[test]
fn why_needs_no_cluster_if_the_file_has_the_actors() {
    let values = file("why-values.yaml", VALUES);
    let manifests = format!("{ACTOR}{POD}");
    let injected = run(&["why", "-f", "-", "--values", &values], &manifests);
    assert_eq!(injected.code, 0, "{}{}", injected.out, injected.err);
    assert!(
        injected
            .out
            .starts_with("Pod models/phi-7d9f-x gets the sidecar (Injected, rule 9)\n"),
        "{}",
        injected.out
    );
    let other = manifests.replace("name: phi-7d9f,", "name: other-7d9f,");
    let skipped = run(
        &["why", "-f", "-", "--values", &values, "-o", "json"],
        &other,
    );
    assert_eq!(skipped.code, 1, "{}", skipped.err);
    assert!(
        skipped.out.contains("\"reason\": \"NoActor\""),
        "{}",
        skipped.out
    );
    assert!(
        skipped.out.contains("\"actor\": \"models/embed\""),
        "{}",
        skipped.out
    );
    let unknown = run(&["why", "-f", "-"], &manifests);
    assert_eq!(unknown.code, 2, "{}", unknown.out);
    assert!(
        unknown
            .err
            .contains("note: the operator's settings are unknown"),
        "{}",
        unknown.err
    );
}

#[test]
fn help_completion_and_manual_are_there() {
    let help = run(&["--help"], "");
    assert_eq!(help.code, 0);
    assert!(help.out.contains("Usage: kubectl asya"), "{}", help.out);
    assert!(
        help.out.contains("kubectl asya explain REASON"),
        "{}",
        help.out
    );
    let status = run(&["status", "--help"], "");
    assert!(
        status
            .out
            .contains("possible values: table, wide, json, yaml"),
        "options take a line each: {}",
        status.out
    );
    let dlq = run(&["dlq", "--help"], "");
    let order = dlq.out.find("<NAME> <list|redrive|purge>");
    assert!(order.is_some(), "as in the documents: {}", dlq.out);
    let completion = run(&["completion", "bash"], "");
    assert!(completion.out.contains("complete -F"), "{}", completion.out);
    let help = run(&["completion", "--help"], "");
    let warning = "It completes `kubectl-asya`, not `kubectl asya`";
    let words: Vec<&str> = help.out.split_whitespace().collect();
    assert!(words.join(" ").contains(warning), "{}", help.out);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    let manual = run(&["man", &folder.display().to_string()], "");
    assert_eq!(manual.code, 0, "{}", manual.err);
    assert!(fs::read_dir(folder).unwrap().count() > 5);
    assert_eq!(run(&["nonsense"], "").code, 2);
}
