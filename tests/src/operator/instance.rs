//! One running process of the operator's programs.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::command::Listening;
use crate::cluster::InstanceState;
use crate::error::{Error, Result};
use crate::eventually::{NotYet, eventually};
use crate::process::{Process, Signal, Spec};

/// How an instance differs from what the chart says.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Another address of the API server: that of a proxy.
    pub server: Option<String>,
    /// Arguments after the chart's.
    pub args: Vec<String>,
    /// Variables over the chart's.
    pub env: Vec<(String, String)>,
    /// The folder that is its whole file system, besides what its pod mounts.
    pub root: Option<PathBuf>,
}

impl Launch {
    /// The program to start, with what its pod mounts in `folder`.
    pub(super) fn program(&self, name: &str, program: &Path, folder: &Path) -> Spec {
        let Some(root) = &self.root else {
            return Spec::new(name, program);
        };
        // a user namespace, so that nobody needs to be root; the mounts vanish with the process
        let enter = r#"mkdir -p "$1$2" && mount --rbind "$2" "$1$2" && root=$1 && shift 2 && exec chroot "$root" "$@""#;
        let inside = Path::new("/").join(program.file_name().unwrap_or_default());
        Spec::new(name, "unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", enter, "sh"])
            .arg(root.display())
            .arg(folder.display())
            .arg(inside.display())
    }
}

/// A process that stands for a pod of the chart; killed when dropped.
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
        // The webhook has both on one port.
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

    /// Its `POD_NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The id of its token: by this the audit log tells instances apart.
    #[must_use]
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// What kills it, to be called from anywhere: a proxy's hook.
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

    /// Where the port of its pod is on this host: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address_of(&self, port: u16) -> Option<&str> {
        let listener = self.listening.values().find(|it| it.port == port)?;
        Some(&listener.address)
    }

    /// Waits until `/readyz` answers 200.
    ///
    /// # Errors
    /// When it ends, or is not ready after a minute.
    pub async fn wait_ready(&self) -> Result<()> {
        let url = format!("{}/readyz", self.health);
        let client = crate::http_client()?;
        let what = format!("{} is ready", self.process.name());
        let ready = eventually(what, Duration::from_mins(1), async || {
            let answer = client.get(&url).send().await?;
            let (status, body) = (answer.status(), answer.text().await?);
            if status == 200 {
                Ok(())
            } else {
                Err(NotYet::new(format!("{status} {body}")))
            }
        });
        self.process.alive_while(ready).await
    }

    /// The sum of a metric's samples.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        self.metric_of(name, &[]).await
    }

    /// The sum of those samples of a metric whose labels contain each of `labels`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric_of(&self, name: &str, labels: &[&str]) -> Result<f64> {
        let url = format!("{}/metrics", self.metrics);
        let text = crate::http_client()?.get(url).send().await?.text().await?;
        let samples = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                && labels.iter().all(|label| line.contains(label))
        });
        Ok(samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// Kills it (SIGKILL).
    pub async fn kill(&self) {
        self.process.kill().await;
    }

    /// Stops it (SIGTERM) and waits for its end.
    ///
    /// # Errors
    /// When it has not ended after 30 seconds.
    pub async fn stop(&self) -> Result<ExitStatus> {
        self.process.stop(Duration::from_secs(30)).await
    }

    /// Freezes it (SIGSTOP).
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Thaws it (SIGCONT).
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Starts it again, on the same ports and with the same log.
    ///
    /// # Errors
    /// When it still runs, or cannot be started.
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

    /// Everything that it has logged.
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
