//! Argo CD's engine, which keeps what is declared on a cluster: automated sync with prune and self-heal.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::build::{self, Part};
use crate::cluster::Cluster;
use crate::error::{Error, Result, Trying};
use crate::eventually::{NotYet, check, eventually};
use crate::operator::NAMESPACE;
use crate::process::{Process, Spec};

const SYNCED: Duration = Duration::from_mins(1);

/// It runs; killed when dropped.
pub struct ArgoCd {
    process: Process,
    manifests: PathBuf,
    log: PathBuf,
}

/// A comparison of what is declared with what there is, and the sync that follows if they differ.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Round {
    /// Kind and name of what differs.
    pub out_of_sync: Vec<String>,
    /// What the sync met.
    pub failed: Vec<String>,
}

impl ArgoCd {
    /// Starts it with these manifests, whose objects go into the operator's namespace where they name none.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub async fn start(cluster: &Cluster, manifests: &str, server_side: bool) -> Result<Self> {
        let program = build::ensure(Part::ArgoCd).await?.join("argocd");
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

    /// From now on this is declared.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn declares(&self, manifests: &str) -> Result<()> {
        declare(&self.manifests, manifests)
    }

    /// All rounds so far.
    ///
    /// # Errors
    /// When it has ended, or its output cannot be read.
    pub fn rounds(&self) -> Result<Vec<Round>> {
        if let Some(status) = self.process.exited() {
            return Err(self.process.death(status));
        }
        let text = std::fs::read_to_string(&self.log)
            .trying(format_args!("read {}", self.log.display()))?;
        // The last line may be half written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let rounds = whole.lines().filter(|line| line.starts_with('{'));
        rounds
            .map(|line| serde_json::from_str(line).map_err(Error::other))
            .collect()
    }

    /// Waits until so many rounds in a row, all begun from now on, found nothing out of sync.
    ///
    /// # Errors
    /// When that does not come, with the last round.
    pub async fn stays_in_sync(&self, what: &str, rounds: usize) -> Result<()> {
        // One may be under way.
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

/// A round never reads half of a file.
fn declare(file: &std::path::Path, manifests: &str) -> Result<()> {
    let draft = file.with_extension("draft");
    std::fs::write(&draft, manifests).trying(format_args!("write {}", draft.display()))?;
    std::fs::rename(&draft, file).trying(format_args!("write {}", file.display()))
}
