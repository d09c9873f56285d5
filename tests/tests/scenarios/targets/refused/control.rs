//! A target with a binding next to an identical Deployment without one.

use asya_tests::Result;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::model;

/// A target and its control: an identical Deployment without a binding, which shows what would happen to the target
/// without us.
pub(super) struct ControlPair<'a> {
    pub(super) scenario: &'a Scenario,
}

impl ControlPair<'_> {
    pub(super) async fn create_both(&self, resources: &Value) -> Result<()> {
        for name in ["web", "control"] {
            let mut deployment = serde_json::to_value(model(name, 2)?)?;
            let spec = &mut deployment["spec"]["template"]["spec"];
            spec["containers"][0]["resources"] = resources.clone();
            let deployment = serde_json::from_value(deployment)?;
            let deployments = self.scenario.api::<Deployment>();
            deployments
                .create(&PostParams::default(), &deployment)
                .await?;
        }
        self.become_alike("both are there").await
    }

    pub(super) async fn pods(&self, name: &str) -> Result<Vec<String>, kube::Error> {
        let list = ListParams::default().labels(&format!("app={name}"));
        let pods = self.scenario.api::<Pod>().list(&list).await?;
        let live = pods
            .into_iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(live.filter_map(|pod| pod.metadata.name).collect())
    }

    /// Waits until both have the same number of ready pods, and no rollout in progress.
    pub(super) async fn become_alike(&self, what: &str) -> Result<()> {
        let deployments = self.scenario.api::<Deployment>();
        eventually(
            format_args!("{what}: the target is like its control"),
            LATER,
            async || {
                let (web, control) = (
                    deployments.get("web").await?,
                    deployments.get("control").await?,
                );
                let ready = |it: &Deployment| {
                    let status = it.status.clone().unwrap_or_default();
                    let seen = status.observed_generation == it.metadata.generation;
                    let ready = status.ready_replicas.unwrap_or(0);
                    (
                        seen,
                        ready,
                        status.updated_replicas.unwrap_or(0),
                        status.replicas.unwrap_or(0),
                    )
                };
                let settled = {
                    let (seen, ready, updated, replicas) = ready(&control);
                    seen && ready == updated && ready == replicas
                };
                let counts = (
                    self.pods("web").await?.len(),
                    self.pods("control").await?.len(),
                );
                check(
                    ready(&web) == ready(&control) && settled && counts.0 == counts.1,
                    format_args!("{:?} {:?} {counts:?}", ready(&web), ready(&control)),
                )
            },
        )
        .await
    }

    /// Replaces, scales and rolls out the pods of both, alternately.
    pub(super) async fn exercise(&self, rounds: usize) -> Result<()> {
        let deployments = self.scenario.api::<Deployment>();
        for round in 0..rounds {
            for name in ["web", "control"] {
                match round % 3 {
                    0 => {
                        let pod = self.pods(name).await?.into_iter().next();
                        let pods = self.scenario.api::<Pod>();
                        pods.delete(&pod.unwrap_or_default(), &DeleteParams::default())
                            .await?;
                    }
                    1 => {
                        let replicas = if round % 2 == 0 { 2 } else { 3 };
                        let scale = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                        let params = PatchParams::default();
                        deployments.patch(name, &params, &scale).await?;
                    }
                    _ => {
                        // Like `kubectl rollout restart`, which rejects a second restart within the same second.
                        let annotations =
                            json!({"kubectl.kubernetes.io/restartedAt": format!("round {round}")});
                        let template = json!({"metadata": {"annotations": annotations}});
                        let restart = Patch::Merge(json!({"spec": {"template": template}}));
                        let params = PatchParams::default();
                        deployments.patch(name, &params, &restart).await?;
                    }
                }
            }
            self.become_alike(&format!("round {round}")).await?;
        }
        Ok(())
    }

    /// Changes both so that Pod Security `restricted` admits their pods.
    pub(super) async fn comply(&self) -> Result<()> {
        let deployments = self.scenario.api::<Deployment>();
        for name in ["web", "control"] {
            let mut found = serde_json::to_value(deployments.get(name).await?)?;
            let spec = &mut found["spec"]["template"]["spec"];
            spec["securityContext"] = json!({
                "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"},
            });
            spec["containers"][0]["securityContext"] = json!({
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            });
            let patch = json!({"spec": {"template": {"spec": *spec}}});
            let patch = Patch::Strategic(patch);
            let params = PatchParams::default();
            deployments.patch(name, &params, &patch).await?;
        }
        self.become_alike("they comply").await
    }
}
