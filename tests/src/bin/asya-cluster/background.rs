//! `up`, `down`, and the background process.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use asya_tests::build::cache_folder;
use asya_tests::cluster::{Cluster, State};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::process::{self, Signal};
use asya_tests::{Error, Result};
use serde_json::json;

use crate::{With, print_addresses};

struct Files {
    state: PathBuf,
    log: PathBuf,
    lock: PathBuf,
}

/// There is one cluster per user, so that `down` needs no argument.
fn files() -> Result<Files> {
    let cache = cache_folder()?;
    std::fs::create_dir_all(&cache).map_err(|error| context("make", &cache, error))?;
    Ok(Files {
        state: cache.join("up.json"),
        log: cache.join("up.log"),
        lock: cache.join("up.lock"),
    })
}

fn context(what: &str, path: &Path, source: std::io::Error) -> Error {
    Error::Io {
        what: format!("{what} {}", path.display()),
        source,
    }
}

/// The background cluster, if it is running.
fn running(files: &Files) -> Option<State> {
    let state = State::read(&files.state).ok()?;
    process::is_running(state.owner, "asya-cluster").then_some(state)
}

pub(crate) async fn up(with: With) -> Result<ExitCode> {
    let files = files()?;
    let lock = File::create(&files.lock).map_err(|error| context("write", &files.lock, error))?;
    if lock.try_lock().is_err() {
        return Err(Error::other("another `up` or `down` is at work"));
    }
    if let Some(state) = running(&files) {
        println!("# a cluster runs already; `make down` ends it");
        print_addresses(&Cluster::connect(state)?, &["default"]);
        return Ok(ExitCode::SUCCESS);
    }
    with.build(|_| ()).await?;
    let _ = std::fs::remove_file(&files.state);
    eprintln!("starting a cluster");
    let log = File::create(&files.log).map_err(|error| context("write", &files.log, error))?;
    let program = std::env::current_exe().map_err(Error::other)?;
    let flags = [
        ("--sqs", with.sqs),
        ("--keda", with.keda),
        ("--no-rabbitmq", with.no_rabbitmq),
        ("--no-operator", with.no_operator),
    ];
    let mut server = std::process::Command::new(&program)
        .arg("serve")
        .args(flags.iter().filter(|flag| flag.1).map(|flag| flag.0))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(|error| context("start", &program, error))?;
    let state = eventually("the cluster is up", Duration::from_mins(5), async || {
        if let Ok(Some(status)) = server.try_wait() {
            return Ok(Err(status));
        }
        Ok(Ok(State::read(&files.state).map_err(NotYet::new)?))
    })
    .await?;
    if let Ok(state) = state {
        print_addresses(&Cluster::connect(state)?, &["default"]);
        return Ok(ExitCode::SUCCESS);
    }
    let log = std::fs::read(&files.log).unwrap_or_default();
    let _ = std::io::stderr().write_all(&log);
    Ok(ExitCode::FAILURE)
}

pub(crate) async fn serve(with: With) -> Result<ExitCode> {
    let files = files()?;
    let mut cluster = with.start(with.options(), json!({})).await?;
    process::remove_at_end(&files.state);
    cluster.state().write(&files.state)?;
    let error = cluster.death().await;
    cluster.keep_logs();
    let _ = std::fs::remove_file(&files.state);
    Err(error)
}

pub(crate) async fn down() -> Result<ExitCode> {
    let files = files()?;
    let Some(state) = running(&files) else {
        println!("no cluster runs");
        return Ok(ExitCode::SUCCESS);
    };
    process::signal(state.owner, Signal::TERM);
    eventually(
        "the cluster has ended",
        Duration::from_secs(30),
        async || {
            if process::is_running(state.owner, "asya-cluster") {
                return Err(NotYet::new(format!("process {} runs", state.owner)));
            }
            Ok(())
        },
    )
    .await?;
    println!("the cluster has ended");
    Ok(ExitCode::SUCCESS)
}
