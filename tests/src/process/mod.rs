//! Processes that end with the harness, even if it is killed.
//!
//! Each process runs in its own process group and is started through `setpriv --pdeathsig KILL`, so that the kernel
//! kills it even when the harness is killed. The kernel sends that signal when the *thread* that forked exits. So a
//! single thread that lives as long as the harness starts all processes (see [`supervisor`]).

pub(crate) mod folder;
pub(crate) mod supervisor;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::Pid;
pub use rustix::process::Signal;
use tokio::sync::watch;

pub use self::folder::Folder;
use crate::error::{Context, Error, Result};

/// How to start a process.
#[derive(Debug, Clone)]
pub struct Spec {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) inherit_env: bool,
    pub(crate) log: Option<PathBuf>,
}

impl Spec {
    /// A program with no arguments and an empty environment, which inherits our output.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            inherit_env: false,
            log: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Display) -> Self {
        self.args.push(arg.to_string());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Display>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.to_string()));
        self
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Display) -> Self {
        self.env.push((name.into(), value.to_string()));
        self
    }

    /// Also inherits our environment.
    #[must_use]
    pub fn inherit_env(mut self) -> Self {
        self.inherit_env = true;
        self
    }

    /// Appends the output to a file.
    #[must_use]
    pub fn log(mut self, log: impl Into<PathBuf>) -> Self {
        self.log = Some(log.into());
        self
    }
}

/// A running process; its whole group is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    pid: Pid,
    exit: watch::Receiver<Option<ExitStatus>>,
}

impl Process {
    /// Starts a process.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub async fn start(spec: Spec) -> Result<Self> {
        let (pid, exit) = supervisor::start(spec.clone()).await?;
        Ok(Self { spec, pid, exit })
    }

    /// The spec that the process was started with.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The name used in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The process id, which is also the group id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// The file that receives the output.
    #[must_use]
    pub fn log(&self) -> Option<&Path> {
        self.spec.log.as_deref()
    }

    /// The exit status, if the process has exited.
    #[must_use]
    pub fn exited(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Sends a signal to the whole group, unless the process has exited.
    pub fn signal(&self, signal: Signal) {
        if self.exited().is_none() {
            // The only possible failure is "no such process", which the exit status will report.
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }

    /// A closure that kills the process (SIGKILL).
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        let (pid, exit) = (self.pid, self.exit.clone());
        move || {
            if exit.borrow().is_none() {
                let _ = rustix::process::kill_process_group(pid, Signal::KILL);
            }
        }
    }

    /// Waits for the process to exit.
    pub async fn wait(&self) -> ExitStatus {
        let mut exit = self.exit.clone();
        loop {
            if let Some(status) = *exit.borrow_and_update() {
                return status;
            }
            if exit.changed().await.is_err() {
                // The supervisor ends only when the whole harness is ending.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the process to exit by itself.
    ///
    /// # Errors
    /// When it has not exited in time.
    pub async fn ends(&self, timeout: Duration) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(timeout, self.wait()).await;
        ended.map_err(|_| Error::Timeout {
            what: format!("{} ended", self.spec.name),
            timeout,
            last: self.last_lines(20),
        })
    }

    /// Kills the process (SIGKILL) and waits for it to exit.
    pub async fn kill(&self) {
        self.signal(Signal::KILL);
        self.wait().await;
    }

    /// Sends SIGTERM and waits for the process to exit.
    ///
    /// # Errors
    /// When the process has not exited in time; it is killed in that case.
    pub async fn stop(&self, timeout: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let ended = self.ends(timeout).await;
        if ended.is_err() {
            self.kill().await;
        }
        ended
    }

    /// The last lines of the log.
    #[must_use]
    pub fn last_lines(&self, count: usize) -> String {
        self.spec
            .log
            .as_deref()
            .map_or_else(String::new, |log| last_lines(log, count))
    }

    /// The error for a process that exited on its own, with the end of its log.
    #[must_use]
    pub fn death(&self, status: ExitStatus) -> Error {
        Error::ProcessDied {
            name: self.spec.name.clone(),
            status,
            log: self.spec.log.clone().unwrap_or_default(),
            lines: self.last_lines(20),
        }
    }

    /// Runs `work`, but fails as soon as the process exits.
    ///
    /// # Errors
    /// The failure of `work`, or the exit of the process.
    pub async fn alive_while<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            status = self.wait() => Err(self.death(status)),
            done = work => done,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Whether a process of this program runs. False if it has exited, or if its id has been reused by another program.
#[must_use]
pub fn is_running(pid: u32, program: &str) -> bool {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let zombie = read("stat").is_none_or(|stat| stat.contains(") Z "));
    !zombie
        && read("cmdline").is_some_and(|line| {
            line.split('\0')
                .next()
                .is_some_and(|name| name.ends_with(program))
        })
}

/// Sends a signal to a process that is not our child.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Registers a file for removal when a signal ends this process.
pub fn remove_at_end(file: &Path) {
    supervisor::remove_at_end(file.to_owned());
}

/// The last lines of a file; empty when it cannot be read.
pub(crate) fn last_lines(file: &Path, count: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Runs a program to completion and returns its output.
///
/// # Errors
/// When the program cannot be started or fails; the error contains its stderr.
pub async fn output(spec: Spec) -> Result<String> {
    let mut command = tokio::process::Command::new(&spec.program);
    command
        .args(&spec.args)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    if !spec.inherit_env {
        command.env_clear();
    }
    command.envs(spec.env.iter().cloned());
    let done = command
        .output()
        .await
        .context(format_args!("start {}", spec.program.display()))?;
    let stdout = String::from_utf8_lossy(&done.stdout).into_owned();
    if done.status.success() {
        return Ok(stdout);
    }
    Err(Error::Other(format!(
        "{} failed ({}):\n{}{}",
        spec.name,
        done.status,
        stdout,
        String::from_utf8_lossy(&done.stderr)
    )))
}
