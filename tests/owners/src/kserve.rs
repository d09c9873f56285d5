//! KServe's `InferenceService` controller in deployment mode Standard (SIM-1).
//!
//! It compares the live Deployment with the result of a dry-run PUT. If `spec` differs, a strategic merge patch makes
//! the two equal, labels and annotations included. Replicas are compared only with autoscaler class `none`.

use std::time::Duration;

use serde_json::{Value, json};

use super::merge::two_way;
use super::recording_client::name;
use super::workload::{annotation, autoscaler, controlled_by, delete_of, is_of, put_all, without};
use super::{Kind, Reconciler, RecordingClient};
use crate::error::Result;

/// The kind that it reconciles.
pub const INFERENCE_SERVICE: Kind = Kind::new(
    "serving.kserve.io",
    "v1beta1",
    "InferenceService",
    "inferenceservices",
);
/// The annotation that selects the autoscaler.
pub const AUTOSCALER_CLASS: &str = "serving.kserve.io/autoscalerClass";
/// While this annotation is `true`, the workload of a service is deleted.
pub const STOP: &str = "serving.kserve.io/stop";
/// Annotations of a service that are not propagated to its Deployment and pods.
const DENIED: [&str; 3] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
];

/// KServe's `InferenceService` controller (SIM-1).
pub struct Kserve;

/// An `InferenceService` with one container and one volume.
#[must_use]
pub fn inference_service(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"predictor": {
            "minReplicas": 2, "maxReplicas": 4,
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "containers": [{"name": "kserve-container", "image": "model:1", "ports": [{"containerPort": 8080}]}],
        }},
    })
}

/// The name of a service's Deployment.
#[must_use]
pub fn deployment_of(service: &str) -> String {
    format!("{service}-predictor")
}

impl Reconciler for Kserve {
    fn manager(&self) -> &'static str {
        "kserve-controller-manager"
    }

    fn watches(&self) -> Vec<Kind> {
        vec![INFERENCE_SERVICE, Kind::DEPLOYMENT, Kind::HPA]
    }

    fn tick(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn reconcile(&self, client: &RecordingClient) -> Result<()> {
        for service in client.list(INFERENCE_SERVICE).await? {
            if is_stopped(&service) {
                for kind in [Kind::HPA, Kind::DEPLOYMENT] {
                    delete_of(client, kind, &deployment_of(name(&service)), &service).await?;
                }
                continue;
            }
            deployment(client, &service).await?;
            scaling(client, &service).await?;
            let status = json!({"deploymentMode": "Standard"});
            client.status(INFERENCE_SERVICE, &service, &status).await?;
        }
        Ok(())
    }
}

/// Whether the user has stopped a service, of either kind.
pub(super) fn is_stopped(service: &Value) -> bool {
    annotation(service, STOP) == Some("true")
}

async fn deployment(client: &RecordingClient, service: &Value) -> Result<()> {
    let mut wanted = wanted(service);
    let Some(live) = client.get(Kind::DEPLOYMENT, name(&wanted)).await? else {
        client.create(Kind::DEPLOYMENT, &wanted).await?;
        return Ok(());
    };
    wanted["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    let tried = client.try_put(Kind::DEPLOYMENT, &wanted).await?;
    let counts = class(service) == Some("none");
    let (before, after) = (compared(&live, counts), compared(&tried, counts));
    if before["spec"] == after["spec"] {
        return Ok(());
    }
    if let Some(patch) = two_way(&before, &after) {
        client.strategic(Kind::DEPLOYMENT, &live, &patch).await?;
    }
    Ok(())
}

/// The part of a Deployment that is compared and patched.
fn compared(deployment: &Value, with_replicas: bool) -> Value {
    let dropped = |key: &str| key == "replicas" && !with_replicas;
    let metadata = &deployment["metadata"];
    json!({
        "metadata": {"labels": metadata["labels"], "annotations": metadata["annotations"]},
        "spec": without(&deployment["spec"], dropped),
    })
}

fn class(service: &Value) -> Option<&str> {
    annotation(service, AUTOSCALER_CLASS)
}

fn wanted(service: &Value) -> Value {
    let (its_name, predictor) = (name(service), &service["spec"]["predictor"]);
    let deployment = deployment_of(its_name);
    let app = json!({"app": format!("isvc.{deployment}")});
    let mut labels = service["metadata"]["labels"].clone();
    let own = json!({
        "component": "predictor",
        "serving.kserve.io/inferenceservice": its_name,
    });
    for map in [&app, &own] {
        put_all(&mut labels, &without(map, |_| false));
    }
    let annotations = without(&service["metadata"]["annotations"], |key| {
        DENIED.contains(&key)
    });
    let not_of_pods = [
        "minReplicas",
        "maxReplicas",
        "annotations",
        "labels",
        "deploymentStrategy",
    ];
    let pod = without(predictor, |key| not_of_pods.contains(&key));
    let metadata = json!({"labels": labels, "annotations": annotations});
    let mut deployment = json!({
        "metadata": metadata,
        "spec": {
            "selector": {"matchLabels": app},
            "template": {"metadata": metadata, "spec": pod},
        },
    });
    deployment["metadata"]["name"] = json!(deployment_of(its_name));
    deployment["metadata"]["ownerReferences"] = controlled_by(INFERENCE_SERVICE, service);
    if let Some(strategy) = predictor.get("deploymentStrategy") {
        deployment["spec"]["strategy"] = strategy.clone();
    }
    if class(service) == Some("none") {
        deployment["spec"]["replicas"] = least(predictor);
    }
    deployment
}

fn least(predictor: &Value) -> Value {
    predictor.get("minReplicas").cloned().unwrap_or(json!(1))
}

/// Keeps an HPA within the user's limits, unless the class forbids it; follows `checkHPAExist` in KServe's
/// `hpa_reconciler.go`.
async fn scaling(client: &RecordingClient, service: &Value) -> Result<()> {
    let hpa = deployment_of(name(service));
    let live = client.get(Kind::HPA, &hpa).await?;
    match (class(service), live) {
        // Only the HPA that it created itself.
        (Some("external" | "none"), Some(live)) if is_of(&live, service) => {
            client.delete(Kind::HPA, &live).await
        }
        (None | Some("hpa"), None) => {
            let spec = &service["spec"]["predictor"];
            autoscaler(client, (INFERENCE_SERVICE, service), &hpa, spec).await
        }
        (None | Some("hpa"), Some(mut live)) => {
            let mut has_changed = false;
            for field in ["minReplicas", "maxReplicas"] {
                let wanted = service["spec"]["predictor"].get(field);
                let wanted = wanted.cloned().unwrap_or(json!(1));
                has_changed |= live["spec"][field] != wanted;
                live["spec"][field] = wanted;
            }
            if has_changed {
                client.put(Kind::HPA, &live).await?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
