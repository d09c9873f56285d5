//! A tool that reverts restarts (SIM-8): some tools remove unknown annotations from pod templates.

use serde_json::{Map, Value, json};

use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// Removes `kubectl.kubernetes.io/restartedAt` and all other unknown annotations from the pod templates of Deployments
/// (SIM-8).
pub struct Reverter {
    known: Vec<&'static str>,
}

impl Reverter {
    /// Creates a reverter that keeps these annotations.
    #[must_use]
    pub fn new(known: Vec<&'static str>) -> Self {
        Self { known }
    }
}

impl Reconciler for Reverter {
    fn manager(&self) -> &'static str {
        "restart-reverter"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![Kind::DEPLOYMENT]
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for live in client.list(Kind::DEPLOYMENT).await? {
            let annotations = live.pointer("/spec/template/metadata/annotations");
            let keys = annotations.and_then(Value::as_object).into_iter().flatten();
            let foreign = keys.filter(|(key, _)| !self.known.contains(&key.as_str()));
            let removed: Map<_, _> = foreign.map(|(key, _)| (key.clone(), Value::Null)).collect();
            if !removed.is_empty() {
                let patch = json!({"spec": {"template": {"metadata": {"annotations": removed}}}});
                client.merge(Kind::DEPLOYMENT, &live, &patch).await?;
            }
        }
        Ok(())
    }
}
