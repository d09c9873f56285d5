//! Argo CD's engine, which syncs a cluster with declared manifests: automated sync with prune and self-heal.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::build::{self, Component};
use crate::cluster::Cluster;
use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, check, eventually};
use crate::operator::NAMESPACE;
use crate::process::{Process, Spec};

const SYNCED: Duration = Duration::from_mins(1);

/// A running engine; killed when dropped.
pub struct ArgoCd {
    process: Process,
    manifests: PathBuf,
    log: PathBuf,
}

/// One comparison of declared and live state, and the sync that follows if they differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// Kind and name of each object that differs.
    pub out_of_sync: Vec<String>,
    /// Errors of the sync.
    pub failed: Vec<String>,
}

impl ArgoCd {
    /// Starts the engine with these manifests. Objects without a namespace go into the operator's.
    ///
    /// # Errors
    /// When the engine cannot be built or started.
    pub async fn start(cluster: &Cluster, manifests: &str, server_side: bool) -> Result<Self> {
        let program = build::ensure(Component::ArgoCd).await?.join("argocd");
        let folder = cluster.folder();
        let (file, log) = (folder.join("declared.yaml"), folder.join("argocd.log"));
        declare(&file, manifests)?;
        let spec = Spec::new("argocd", program)
            .arg(format!(
                "--kubeconfig={}",
                cluster.state().kubeconfig.display()
            ))
            .arg(format!("--manifests={}", file.display()))
            .arg(format!("--namespace={NAMESPACE}"))
            .arg(format!("--server-side={server_side}"))
            .env("HOME", folder.display())
            .log(&log);
        Ok(Self {
            process: Process::start(spec).await?,
            manifests: file,
            log,
        })
    }

    /// Replaces the declared manifests.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn declares(&self, manifests: &str) -> Result<()> {
        declare(&self.manifests, manifests)
    }

    /// Returns all rounds so far.
    ///
    /// # Errors
    /// When the engine has ended, or its output cannot be read.
    pub fn rounds(&self) -> Result<Vec<Round>> {
        if let Some(status) = self.process.exited() {
            return Err(self.process.death(status));
        }
        let text = std::fs::read_to_string(&self.log)
            .context(format_args!("read {}", self.log.display()))?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let rounds = whole.lines().filter(|line| line.starts_with('{'));
        rounds
            .map(|line| serde_json::from_str(line).map_err(Error::other))
            .collect()
    }

    /// Waits for this many consecutive rounds, all started after this call, that find nothing out of sync.
    ///
    /// # Errors
    /// When that does not happen in time; the error contains the last round.
    pub async fn stays_in_sync(&self, what: &str, rounds: usize) -> Result<()> {
        // A round may be in progress.
        let before = self.rounds()?.len() + 1;
        eventually(format_args!("{what} is in sync"), SYNCED, async || {
            let all = self.rounds().map_err(NotYet::new)?;
            let later = all.get(before..).unwrap_or_default();
            let good = later
                .iter()
                .rev()
                .take_while(|it| it.out_of_sync.is_empty());
            check(good.count() >= rounds, format_args!("{:?}", all.last()))
        })
        .await
    }
}

/// Writes the manifests atomically, so that no round reads a partial file.
fn declare(file: &std::path::Path, manifests: &str) -> Result<()> {
    let draft = file.with_extension("draft");
    std::fs::write(&draft, manifests).context(format_args!("write {}", draft.display()))?;
    std::fs::rename(&draft, file).context(format_args!("write {}", file.display()))
}
