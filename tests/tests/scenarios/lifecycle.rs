//! A cluster ends with the process that runs it, however that exits, and a component that dies is named.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use asya_tests::cluster::{Options, RunningCluster, State};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::process::{Signal, signal};

use asya_tests::scheduling::no_measurement;

use crate::own_cluster;

/// An `asya-cluster run` that keeps running.
struct Run {
    child: Child,
    state: State,
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

/// `without` are additional flags.
async fn run(without: &[&str]) -> Run {
    let _turn = no_measurement().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_asya-cluster"))
        .args(["run", "--no-operator"])
        .args(without)
        .args(["--", "sh", "-c"])
        .arg("echo $ASYA_TEST_CLUSTER; exec sleep 600")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let Ok(state) = State::read(Path::new(line.trim())) else {
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        panic!("the cluster did not start: {errors}");
    };
    Run { child, state }
}

/// The processes that refer to this folder in an argument or variable, as all processes of a cluster do.
fn processes_of(folder: &Path) -> Vec<String> {
    let needle = folder.display().to_string();
    let knows = |process: &Path| {
        ["cmdline", "environ"].iter().any(|file| {
            let content = std::fs::read(process.join(file)).unwrap_or_default();
            String::from_utf8_lossy(&content).contains(&format!("{needle}/"))
        })
    };
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    processes
        .filter(|process| *process != own && knows(process))
        .map(|process| {
            std::fs::read_to_string(process.join("comm"))
                .unwrap_or_default()
                .trim()
                .to_owned()
        })
        .collect()
}

async fn nothing_is_left_of(state: &State) {
    eventually("all processes are gone", SOON, async || {
        let left = processes_of(&state.folder);
        check(left.is_empty(), format_args!("{left:?}"))
    })
    .await
    .unwrap();
}

fn assert_all_parts_run(state: &State) {
    let running = processes_of(&state.folder);
    for part in [
        "etcd",
        "kube-apiserver",
        "kube-controller",
        "kube-scheduler",
        "kwok",
        "epmd",
        "beam.smp",
    ] {
        assert!(
            running.iter().any(|name| name == part),
            "{part} is not among {running:?}"
        );
    }
}

#[tokio::test]
async fn ctrl_c_leaves_nothing() {
    let _turn = own_cluster().await;
    let mut run = run(&[]).await;
    assert_all_parts_run(&run.state);
    signal(run.child.id(), Signal::INT);
    assert_eq!(run.child.wait().unwrap().code(), Some(130));
    nothing_is_left_of(&run.state).await;
    assert!(!run.state.folder.exists());
}

#[tokio::test]
async fn killed_harness_leaves_no_process() {
    let _turn = own_cluster().await;
    let mut run = run(&[]).await;
    assert_all_parts_run(&run.state);
    signal(run.child.id(), Signal::KILL);
    run.child.wait().unwrap();
    nothing_is_left_of(&run.state).await;
}

#[tokio::test]
async fn dead_component_is_named_and_ends_the_run() {
    let _turn = own_cluster().await;
    let mut run = run(&["--no-rabbitmq"]).await;
    let scheduler = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .find(|entry| {
            let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let folder = run.state.folder.display().to_string();
            line.contains("/kube-scheduler\0") && line.contains(&format!("{folder}/"))
        })
        .unwrap();
    signal(
        scheduler.file_name().to_str().unwrap().parse().unwrap(),
        Signal::KILL,
    );
    let status = run.child.wait().unwrap();
    let mut errors = String::new();
    run.child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("kube-scheduler ended (signal: 9"),
        "{errors}"
    );
    assert!(errors.contains("kube-scheduler.log"), "{errors}");
    nothing_is_left_of(&run.state).await;
    std::fs::remove_dir_all(&run.state.folder).unwrap();
}

#[tokio::test]
async fn killed_api_server_restarts_with_its_data() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options {
        rabbitmq: false,
        ..Options::default()
    })
    .await
    .unwrap();
    cluster
        .kubectl(&["create", "namespace", "kept"])
        .await
        .unwrap();
    cluster.process("kube-apiserver").unwrap().kill().await;
    assert!(cluster.kubectl(&["get", "namespaces"]).await.is_err());
    cluster.restart("kube-apiserver").await.unwrap();
    let namespaces = eventually("the API server answers", SOON, async || {
        cluster
            .kubectl(&["get", "namespaces"])
            .await
            .map_err(NotYet::new)
    })
    .await
    .unwrap();
    assert!(namespaces.contains("kept"), "{namespaces}");
    let state = cluster.state().clone();
    drop(cluster);
    nothing_is_left_of(&state).await;
    assert!(!state.folder.exists());
}
