//! The thread that starts and reaps all processes, and ends them all when the harness receives a termination signal.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use super::Spec;
use crate::error::{Context, Error, Result};

type Exit = watch::Receiver<Option<ExitStatus>>;

struct StartRequest {
    spec: Spec,
    reply: oneshot::Sender<Result<(Pid, Exit)>>,
}

/// What must be cleaned up before the harness exits.
#[derive(Default)]
struct Supervised {
    groups: BTreeMap<i32, String>,
    paths: Vec<PathBuf>,
    ending: bool,
}

static SUPERVISED: Mutex<Supervised> = Mutex::new(Supervised {
    groups: BTreeMap::new(),
    paths: Vec::new(),
    ending: false,
});

static REQUESTS: LazyLock<Option<mpsc::UnboundedSender<StartRequest>>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::Builder::new()
        .name("supervisor".to_owned())
        .spawn(move || run(receiver))
        .ok()
        .map(|_| sender)
});

fn supervised() -> MutexGuard<'static, Supervised> {
    SUPERVISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes SIGINT, SIGTERM and SIGHUP end everything that was started.
pub(crate) fn watch_signals() {
    LazyLock::force(&REQUESTS);
}

/// Starts a process from the supervisor's thread.
pub(crate) async fn start(spec: Spec) -> Result<(Pid, Exit)> {
    let gone = || Error::other("the thread that starts processes is gone");
    let (reply, answer) = oneshot::channel();
    REQUESTS
        .as_ref()
        .ok_or_else(gone)?
        .send(StartRequest { spec, reply })
        .map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

/// Registers a file or folder for removal when a signal ends the harness.
pub(crate) fn remove_at_end(path: PathBuf) {
    watch_signals();
    supervised().paths.push(path);
}

/// Unregisters a file or folder.
pub(crate) fn forget(path: &Path) {
    supervised().paths.retain(|known| known != path);
}

/// Never returns while a signal is ending this process: errors are then a consequence of the signal.
pub(crate) async fn wait_if_ending() {
    if supervised().ending {
        std::future::pending::<()>().await;
    }
}

fn run(mut requests: mpsc::UnboundedReceiver<StartRequest>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return;
    };
    runtime.block_on(async move {
        let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
            signal(SignalKind::hangup()),
        ) else {
            return;
        };
        loop {
            let code = tokio::select! {
                request = requests.recv() => {
                    let Some(request) = request else { return };
                    // If the receiver was dropped, no handle exists that would end the process, so kill it here.
                    if let Err(Ok((pid, _))) = request.reply.send(spawn(&request.spec)) {
                        let _ = kill_process_group(pid, Signal::KILL);
                    }
                    continue;
                }
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
                _ = hangup.recv() => 129,
            };
            end_everything().await;
            std::process::exit(code);
        }
    });
}

fn spawn(spec: &Spec) -> Result<(Pid, Exit)> {
    // Report a missing program as such, not as a failure of setpriv.
    if spec.program.is_absolute() && !spec.program.exists() {
        return Err(Error::Missing(format!(
            "{} is missing: {} is not there",
            spec.name,
            spec.program.display()
        )));
    }
    let mut command = std::process::Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&spec.program)
        .args(&spec.args)
        .stdin(Stdio::null())
        .process_group(0);
    if !spec.inherit_env {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    if let Some(log) = &spec.log {
        let what = format!("write {}", log.display());
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .context(&what)?;
        command
            .stdout(file.try_clone().context(&what)?)
            .stderr(file);
    }
    let mut child =
        tokio::process::Command::from(command)
            .spawn()
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::Missing("setpriv is missing: install the package util-linux".to_owned())
                }
                _ => Error::Io {
                    what: format!("start {}", spec.name),
                    source,
                },
            })?;
    let raw = child.id().and_then(|id| i32::try_from(id).ok());
    let Some(pid) = raw.and_then(Pid::from_raw) else {
        return Err(Error::Other(format!("{} has no process id", spec.name)));
    };
    supervised()
        .groups
        .insert(pid.as_raw_nonzero().get(), spec.name.clone());
    let (sender, exit) = watch::channel(None);
    tokio::spawn(async move {
        let status = child.wait().await.unwrap_or_default();
        // Kill whatever the process has left behind in its group.
        let _ = kill_process_group(pid, Signal::KILL);
        let mut supervised = supervised();
        supervised.groups.remove(&pid.as_raw_nonzero().get());
        // During shutdown, an exit must not be reported as a failure of the process.
        if !supervised.ending {
            sender.send_replace(Some(status));
        }
    });
    Ok((pid, exit))
}

async fn end_everything() {
    let groups: Vec<i32> = {
        let mut supervised = supervised();
        supervised.ending = true;
        supervised.groups.keys().copied().collect()
    };
    for pid in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    for _ in 0..500 {
        if supervised().groups.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for path in std::mem::take(&mut supervised().paths) {
        let _ = if path.is_dir() {
            std::fs::remove_dir_all(path)
        } else {
            std::fs::remove_file(path)
        };
    }
}
