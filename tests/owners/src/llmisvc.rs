//! KServe's `LLMInferenceService` controller (SIM-2).
//!
//! It compares the live Deployment with the result of a dry-run PUT. Pod specs must be equal; elsewhere, additional
//! fields are tolerated. If they differ, it PUTs the whole Deployment.

use std::time::Duration;

use serde_json::{Value, json};

use super::kserve::is_stopped;
use super::recording_client::{includes, name};
use super::workload::{controlled_by, delete_of, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const LLM_INFERENCE_SERVICE: Kind = Kind::new(
    "serving.kserve.io",
    "v1alpha2",
    "LLMInferenceService",
    "llminferenceservices",
);

/// KServe's `LLMInferenceService` controller (SIM-2).
pub struct LlmIsvc;

/// An `LLMInferenceService` without `spec.replicas`.
#[must_use]
pub fn llm_inference_service(name: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "model": {"uri": "hf://model"},
            "template": {"containers": [
                {"name": "main", "image": "vllm:1", "ports": [{"containerPort": 8000}]},
            ]},
        },
    })
}

/// The name of a service's Deployment.
#[must_use]
pub fn deployment_of(service: &str) -> String {
    format!("{service}-kserve")
}

impl Reconciler for LlmIsvc {
    fn manager(&self) -> &'static str {
        "llmisvc-controller-manager"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![LLM_INFERENCE_SERVICE, Kind::DEPLOYMENT]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for service in client.list(LLM_INFERENCE_SERVICE).await? {
            if is_stopped(&service) {
                delete_of(
                    client,
                    Kind::DEPLOYMENT,
                    &deployment_of(name(&service)),
                    &service,
                )
                .await?;
                continue;
            }
            deployment(client, &service).await?;
            let primary = json!({
                "apiGroup": "apps", "kind": "Deployment", "name": deployment_of(name(&service)),
            });
            let status = json!({"workloads": {"primary": primary}});
            client
                .status(LLM_INFERENCE_SERVICE, &service, &status)
                .await?;
        }
        Ok(())
    }
}

async fn deployment(client: &RecordingClient, service: &Value) -> Result<()> {
    let mut wanted = wanted(service);
    let Some(live) = client.get(Kind::DEPLOYMENT, name(&wanted)).await? else {
        client.create(Kind::DEPLOYMENT, &wanted).await?;
        return Ok(());
    };
    wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    if service["spec"].get("replicas").is_none() {
        wanted["spec"]["replicas"] = live["spec"]["replicas"].clone();
    }
    let tried = client.try_put(Kind::DEPLOYMENT, &wanted).await?;
    if !is_as_wanted(&live, &tried) {
        client.put(Kind::DEPLOYMENT, &wanted).await?;
    }
    Ok(())
}

fn is_as_wanted(live: &Value, tried: &Value) -> bool {
    let pod = |it: &Value| it.pointer("/spec/template/spec").cloned();
    let mut metadata = ["labels", "annotations"].into_iter();
    pod(live) == pod(tried)
        && includes(&live["spec"], &tried["spec"])
        && metadata.all(|key| {
            let wanted = tried["metadata"].get(key);
            wanted.is_none_or(|wanted| includes(&live["metadata"][key], wanted))
        })
}

fn wanted(service: &Value) -> Value {
    let (its_name, spec) = (name(service), &service["spec"]);
    let own = json!({
        "app.kubernetes.io/name": its_name,
        "app.kubernetes.io/part-of": "llminferenceservice",
        "kserve.io/component": "workload",
        "llm-d.ai/role": "both",
    });
    let mut labels = spec["labels"].clone();
    put_all(&mut labels, &without(&own, |_| false));
    let template = json!({
        "metadata": {"labels": labels, "annotations": spec["annotations"]},
        "spec": spec["template"],
    });
    let mut deployment = json!({
        "metadata": {
            "name": deployment_of(its_name), "labels": labels,
            "ownerReferences": controlled_by(LLM_INFERENCE_SERVICE, service),
        },
        "spec": {"selector": {"matchLabels": own}, "template": template},
    });
    if let Some(replicas) = spec.get("replicas") {
        deployment["spec"]["replicas"] = replicas.clone();
    }
    deployment
}
