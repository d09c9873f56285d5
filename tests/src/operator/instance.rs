//! A running process of the controller or the webhook.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::cluster::InstanceState;
use crate::command::Listening;
use crate::error::{Error, Result};
use crate::eventually::{NotYet, eventually};
use crate::metrics::Metrics;
use crate::process::{Process, Signal, Spec};

/// Overrides of what the chart configures.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Another address for the API server, such as a proxy's.
    pub server: Option<String>,
    /// Arguments appended to the chart's.
    pub args: Vec<String>,
    /// Environment variables that override the chart's.
    pub env: Vec<(String, String)>,
    /// The root folder of the process (chroot), to which the pod's mounts are added.
    pub root: Option<PathBuf>,
}

impl Launch {
    /// The program to start; `folder` holds the files that its pod mounts.
    pub(super) fn program(&self, name: &str, program: &Path, folder: &Path) -> Spec {
        let Some(root) = &self.root else {
            return Spec::new(name, program);
        };
        // A user namespace, so that root is not needed; the mounts vanish with the process.
        let enter = r#"mkdir -p "$1$2" && mount --rbind "$2" "$1$2" && root=$1 && shift 2 && exec chroot "$root" "$@""#;
        let inside = Path::new("/").join(program.file_name().unwrap_or_default());
        Spec::new(name, "unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", enter, "sh"])
            .arg(root.display())
            .arg(folder.display())
            .arg(inside.display())
    }
}

/// A process that stands in for a pod of the chart; killed when dropped.
#[derive(Debug)]
pub struct Instance {
    name: String,
    spec: Spec,
    process: Process,
    listening: Listening,
    health: String,
    metrics: String,
    log: PathBuf,
    credential: String,
}

impl Instance {
    pub(super) async fn start(
        name: &str,
        spec: Spec,
        listening: Listening,
        credential: String,
    ) -> Result<Self> {
        let url = |flag: &str| Some(format!("http://{}", listening.get(flag)?.address));
        let health = url("health-probe-bind-address").unwrap_or_default();
        // The webhook serves both on one port.
        let metrics = url("metrics-bind-address").unwrap_or_else(|| health.clone());
        let log = spec.log.clone().unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            process: Process::start(spec.clone()).await?,
            spec,
            listening,
            health,
            metrics,
            log,
            credential,
        })
    }

    /// The `POD_NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The id of its token, by which the audit log distinguishes instances.
    #[must_use]
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// A closure that kills the process, for use as a proxy's hook.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        self.process.killer()
    }

    /// `http://127.0.0.1:PORT` of `/healthz` and `/readyz`.
    #[must_use]
    pub fn health(&self) -> &str {
        &self.health
    }

    /// `http://127.0.0.1:PORT` of `/metrics`.
    #[must_use]
    pub fn metrics(&self) -> &str {
        &self.metrics
    }

    /// The address on this host for a port of the pod: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address_of(&self, port: u16) -> Option<&str> {
        let listener = self.listening.values().find(|it| it.port == port)?;
        Some(&listener.address)
    }

    /// Waits until `/readyz` returns 200.
    ///
    /// # Errors
    /// When the process exits, or is not ready after a minute.
    pub async fn wait_ready(&self) -> Result<()> {
        let what = format!("{} is ready", self.process.name());
        let ready = eventually(what, Duration::from_mins(1), async || {
            self.is_ready().await.map_err(NotYet::new)
        });
        self.process.alive_while(ready).await
    }

    /// Reads `/readyz` once.
    ///
    /// # Errors
    /// Unless it returns 200; the error contains what is pending.
    pub async fn is_ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.health);
        let answer = crate::http_client()?.get(&url).send().await?;
        let (status, body) = (answer.status(), answer.text().await?);
        if status == 200 {
            return Ok(());
        }
        let name = self.process.name();
        Err(Error::Other(format!("{name}: {status} {body}")))
    }

    /// All metrics.
    ///
    /// # Errors
    /// When the metrics endpoint does not respond with metrics.
    pub async fn read_metrics(&self) -> Result<Metrics> {
        let url = format!("{}/metrics", self.metrics);
        let answer = crate::http_client()?.get(url).send().await?;
        Metrics::parse(&answer.error_for_status()?.text().await?)
    }

    /// The sum of the samples of a metric that have all of `labels`.
    ///
    /// # Errors
    /// When there is none, or the metrics endpoint does not respond with metrics.
    pub async fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.read_metrics().await?.get(name, labels)
    }

    /// Kills the process (SIGKILL).
    pub async fn kill(&self) {
        self.process.kill().await;
    }

    /// Stops the process (SIGTERM) and waits for it to exit.
    ///
    /// # Errors
    /// When the process has not exited after 30 seconds.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.process.stop(Duration::from_secs(30)).await
    }

    /// Freezes the process (SIGSTOP).
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Thaws the process (SIGCONT).
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Starts the process again, with the same ports and log.
    ///
    /// # Errors
    /// When the process still runs, or cannot be started.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.exited().is_none() {
            return Err(Error::Other(format!(
                "{} still runs: stop or kill it first",
                self.process.name()
            )));
        }
        self.process = Process::start(self.spec.clone()).await?;
        Ok(())
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn state(&self) -> InstanceState {
        InstanceState {
            name: self.name.clone(),
            pid: self.process.pid(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            log: self.log.clone(),
        }
    }
}
