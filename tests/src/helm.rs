//! helm 3 and helm 4, for a cluster.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::build::{self, Component};
use crate::cluster::Cluster;
use crate::error::{Context, Result};
use crate::operator::{NAMESPACE, RELEASE, default_values, merge};
use crate::process::{self, Spec};

/// One version of helm.
#[derive(Clone)]
pub struct Helm {
    program: PathBuf,
    cluster: Cluster,
}

impl Helm {
    /// helm 3, built if needed.
    ///
    /// # Errors
    /// When it cannot be built.
    pub async fn three(cluster: &Cluster) -> Result<Self> {
        Ok(Self {
            program: build::ensure(Component::Helm3).await?.join("helm3"),
            cluster: cluster.clone(),
        })
    }

    /// helm 4.
    #[must_use]
    pub fn four(cluster: &Cluster) -> Self {
        Self {
            program: cluster.state().tools.join("helm"),
            cluster: cluster.clone(),
        }
    }

    /// Runs `command RELEASE CHART` (`install`, `upgrade --install`, `template`, …) with these values merged over
    /// [`default_values`], in the chart's namespace, and returns the output.
    ///
    /// # Errors
    /// When helm fails; the error contains its output.
    pub async fn with_chart(&self, command: &[&str], values: Value) -> Result<String> {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator");
        self.with_chart_at(&chart, command, values).await
    }

    /// Like [`Self::with_chart`], with the chart in another folder.
    ///
    /// # Errors
    /// When helm fails; the error contains its output.
    pub async fn with_chart_at(
        &self,
        chart: &Path,
        command: &[&str],
        values: Value,
    ) -> Result<String> {
        let mut merged = default_values(&self.cluster);
        merge(&mut merged, values);
        let file = self.cluster.folder().join("values.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&merged)?)
            .context(format_args!("write {}", file.display()))?;
        let (chart, file) = (chart.display().to_string(), file.display().to_string());
        self.run(&[command, &[RELEASE, &chart, "--values", &file]].concat())
            .await
    }

    /// Runs helm in the chart's namespace and returns the output.
    ///
    /// # Errors
    /// When helm fails; the error contains its output.
    pub async fn run(&self, args: &[&str]) -> Result<String> {
        let helm = Spec::new("helm", &self.program)
            .args(args)
            .args(["--namespace", NAMESPACE])
            .env("KUBECONFIG", self.cluster.state().kubeconfig.display())
            // Skip garbage collection in such a short-lived process.
            .env("GOGC", "off")
            .env("HOME", self.cluster.folder().display());
        process::output(helm).await
    }
}
