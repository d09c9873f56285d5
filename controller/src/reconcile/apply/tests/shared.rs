//! When the `ConfigMap`s that the actors of a namespace share are deleted.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::watch_scope::WatchScope;
use crate::reconcile::apply::shared;
use crate::reconcile::plan::deletion;
use crate::reconcile::tests::fixtures::{actor, context_of, observed, pod, spec};
use crate::record::{ConfigMapRecord, PodRecord, Projected};

const CONFIG_MAP: &str = "/api/v1/namespaces/ns/configmaps/asya-runtime";
const PODS: &str = "/api/v1/namespaces/ns/pods";

/// Deletes the last actor of a namespace with these pods. Returns whether that deletes the runtime script.
async fn deletes_script(spec: &Value, pods: &'static [&str]) -> bool {
    deletes_script_beside(spec, pods, &[]).await
}

/// Like [`deletes_script`], with these pods that an earlier actor of its name has left.
async fn deletes_script_beside(
    spec: &Value,
    pods: &'static [&str],
    predecessors: &[Arc<PodRecord>],
) -> bool {
    let (deleted, mut deletions) = tokio::sync::mpsc::unbounded_channel();
    let server = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let uri = request.uri();
        let query = uri.query().unwrap_or_default().replace("%2C", ",");
        let query = query
            .replace("%21", "!")
            .replace("%2F", "/")
            .replace("%3D", "=");
        let answer = match (request.method().as_str(), uri.path()) {
            ("GET", PODS) => {
                // Pods of the actor's own workload are deleted with it.
                let others = query.contains("asya.sh/asya!=a");
                let pods = pods.iter().filter(|actor| !others || **actor != "a");
                let items: Vec<_> = pods
                    .map(|actor| json!({
                        "apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": "p", "namespace": "ns", "labels": {"asya.sh/asya": actor}},
                    }))
                    .collect();
                Ok(json!({"metadata": {}, "items": items}))
            }
            ("DELETE", CONFIG_MAP) => {
                let _ = deleted.send(());
                Ok(json!({"kind": "Status", "status": "Success"}))
            }
            _ => Err(tower::BoxError::from("no API server")),
        };
        let response = answer.map(|body| {
            http::Response::new(kube::client::Body::from(body.to_string().into_bytes()))
        });
        std::future::ready(response)
    });
    let context = context_of(kube::Client::new(server, "default"));
    let labels = json!({"app.kubernetes.io/part-of": "asya"});
    let metadata = json!({
        "name": "asya-runtime", "namespace": "ns", "uid": "script", "resourceVersion": "1", "labels": labels,
    });
    let map = json!({"metadata": metadata}).to_string();
    let map: Projected<ConfigMapRecord> = serde_json::from_str(&map).unwrap();
    context
        .config_maps
        .objects
        .store
        .apply(&WatchScope::Cluster, &map);
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    let mut observed = observed(&actor(&deleting, spec, &json!({})));
    observed.predecessor_pods = predecessors.to_vec();
    let plan = deletion::plan_deletion(&observed, Timestamp::now());
    shared::clean_up(&context, &observed.actor, &plan)
        .await
        .unwrap();
    deletions.try_recv().is_ok()
}

/// SAFE-33: pods that kept the sidecar mount the script again when their node reboots.
#[tokio::test]
async fn script_outlives_its_last_actor_while_pods_mount_it() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let standalone = spec(&json!({}));
    assert!(deletes_script(&bound, &[]).await);
    assert!(
        !deletes_script(&bound, &["a"]).await,
        "they kept the sidecar"
    );
    assert!(
        deletes_script(&standalone, &["a"]).await,
        "they go with their workload"
    );
    assert!(!deletes_script(&standalone, &["a", "gone"]).await);
    let left = [pod("web-1", "h")];
    assert!(
        !deletes_script_beside(&standalone, &["a"], &left).await,
        "an earlier binding of its name left them"
    );
}
