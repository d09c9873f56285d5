//! Removes shared `ConfigMap`s that outlived the last actor of a namespace because pods still needed them (SAFE-33).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::context::Context;
use crate::reconcile::shared;

/// Not urgent: nothing depends on the cleanup, and pods may keep a `ConfigMap` for minutes while their node reboots.
const SWEEP_INTERVAL: Duration = Duration::from_mins(2);

/// Periodically removes shared `ConfigMap`s that no pod needs any more, for as long as this process leads.
pub async fn sweep(context: Arc<Context>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL.mul_f64(0.9 + 0.2 * fastrand::f64())).await;
        for namespace in candidates(&context) {
            if let Err(error) = shared::sweep(&context, &namespace).await {
                warn!(namespace = &*namespace, %error, "cannot remove shared ConfigMaps yet");
            }
        }
    }
}

/// Namespaces with shared `ConfigMap`s but neither actors nor pods that may mount them, according to the caches.
fn candidates(context: &Context) -> BTreeSet<Arc<str>> {
    let stores = &context.stores;
    let mut namespaces: BTreeSet<Arc<str>> = BTreeSet::new();
    context.config_maps.objects.store.each(|map| {
        namespaces.insert(Arc::clone(&map.metadata.key.namespace));
    });
    stores.actors.each(|actor| {
        namespaces.remove(&actor.metadata.key.namespace);
    });
    stores.pods.each(|pod| {
        if !pod.finished && !pod.metadata.deleting {
            namespaces.remove(&pod.metadata.key.namespace);
        }
    });
    namespaces.retain(|namespace| {
        stores.actors.is_synced(namespace) && shared::has_shared(context, namespace)
    });
    namespaces
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{candidates, shared};
    use crate::cluster::watch_scope::WatchScope;
    use crate::reconcile::tests::fixtures::{context, context_with};
    use crate::record::{ActorRecord, ConfigMapRecord, PodRecord, Projected};

    fn metadata(namespace: &str, name: &str) -> serde_json::Value {
        json!({
            "namespace": namespace, "name": name, "uid": format!("{namespace}/{name}"), "resourceVersion": "1",
            "labels": {"app.kubernetes.io/part-of": "asya", "asya.sh/asya": "gone", "asya.sh/actor": "gone"},
        })
    }

    /// SAFE-33
    #[tokio::test]
    async fn config_maps_are_kept_while_actors_or_pods_may_mount_them() {
        let context = context();
        let stores = &context.stores;
        stores.actors.list_completed(&WatchScope::Cluster);
        for namespace in ["empty", "actor", "pod", "ended", "plain"] {
            let name = if namespace == "plain" {
                "mine"
            } else {
                "asya-runtime"
            };
            let map = json!({"metadata": metadata(namespace, name)}).to_string();
            let map: Projected<ConfigMapRecord> = serde_json::from_str(&map).unwrap();
            context
                .config_maps
                .objects
                .store
                .apply(&WatchScope::Cluster, &map);
        }
        let actor = json!({"metadata": metadata("actor", "a"), "spec": {}}).to_string();
        let actor: Projected<ActorRecord> = serde_json::from_str(&actor).unwrap();
        stores.actors.apply(&WatchScope::Cluster, &actor);
        for (namespace, phase) in [("pod", "Running"), ("ended", "Failed")] {
            let pod = json!({"metadata": metadata(namespace, "p"), "status": {"phase": phase}});
            let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
            stores.pods.apply(&WatchScope::Cluster, &pod);
        }
        let namespaces: Vec<_> = candidates(&context).into_iter().collect();
        assert_eq!(namespaces, ["empty".into(), "ended".into()]);
    }

    /// SAFE-33
    #[tokio::test]
    async fn config_map_of_an_uncached_pod_is_kept() {
        fn pods(request: &str) -> Option<(u16, serde_json::Value)> {
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "namespace": "full", "labels": {"asya.sh/asya": "gone"}},
            });
            match request {
                "GET /api/v1/namespaces/full/pods" => {
                    Some((200, json!({"metadata": {}, "items": [pod]})))
                }
                "GET /api/v1/namespaces/empty/pods" => {
                    Some((200, json!({"metadata": {}, "items": []})))
                }
                _ => None,
            }
        }
        let context = context_with(pods);
        assert!(!shared::sweep(&context, "full").await.unwrap());
        assert!(shared::sweep(&context, "empty").await.unwrap());
    }
}
