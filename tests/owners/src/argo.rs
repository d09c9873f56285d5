//! Argo CD, which reverts drift from a manifest (SIM-7).

use std::time::Duration;

use serde_json::{Value, json};

use super::merge::three_way;
use super::recording_client::name;
use super::workload::annotation;
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Syncs one Deployment with a manifest every 2 s (SIM-7).
pub struct Argo {
    manifest: Value,
    how: Sync,
}

/// Sync mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// A three-way merge patch: fields that the manifest never set are kept.
    Apply,
    /// A PUT each time: fields set by others are removed.
    Replace,
}

impl Argo {
    /// If the manifest sets `spec.replicas`, it reverts the replicas as well.
    #[must_use]
    pub fn new(manifest: Value, how: Sync) -> Self {
        Self { manifest, how }
    }
}

impl Reconciler for Argo {
    fn manager(&self) -> &'static str {
        "argocd-controller"
    }

    fn watches(&self) -> Vec<Kind> {
        Vec::new()
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        let mut wanted = self.manifest.clone();
        let live = client.get(Kind::DEPLOYMENT, name(&wanted)).await?;
        let Some(live) = live else {
            remember(&mut wanted, &self.manifest);
            return client.create(Kind::DEPLOYMENT, &wanted).await.map(drop);
        };
        if self.how == Sync::Replace {
            // The resource version is set only so that the log shows whether the write changed anything.
            wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            return client.put(Kind::DEPLOYMENT, &wanted).await.map(drop);
        }
        let last = annotation(&live, LAST_APPLIED).map(serde_json::from_str);
        let last: Value = last.transpose()?.unwrap_or_default();
        if let Some(mut patch) = three_way(&last, &self.manifest, &live) {
            remember(&mut patch, &self.manifest);
            client.strategic(Kind::DEPLOYMENT, &live, &patch).await?;
        }
        Ok(())
    }
}

fn remember(object: &mut Value, manifest: &Value) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][LAST_APPLIED] = json!(manifest.to_string());
}
