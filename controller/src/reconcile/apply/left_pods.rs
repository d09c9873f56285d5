//! Finds pods that an earlier actor (FW-23) or a workload deleted without them (FW-22) has left, and that still consume
//! from the queue.

use std::sync::Arc;

use asya_shared::config::Transport;
use asya_shared::names::{SIDECAR_CONTAINER, label};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::record::{ActorRecord, PodRecord, UNFINISHED};

/// The name of one of the `left` pods whose sidecar uses `transport`, if there is one. Reads the pods from the API
/// server, because the cache does not hold their containers.
pub(super) async fn find_consumer(
    context: &Context,
    actor: &ActorRecord,
    left: &[Arc<PodRecord>],
    transport: &Transport,
) -> Result<Option<String>, StepError> {
    if left.is_empty() {
        return Ok(None);
    }
    let key = &actor.metadata.key;
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = ListParams::default()
        .labels(&format!("{}={}", label::ASYA, key.name))
        .fields(UNFINISHED);
    let pods = api.list(&params).await.map_err(Error::Api)?;
    let was_left = |pod: &Pod| {
        let uid = pod.metadata.uid.as_deref();
        left.iter().any(|it| Some(&*it.metadata.uid) == uid)
    };
    let mut pods = pods.items.into_iter();
    let consumer = pods.find(|pod| was_left(pod) && uses(pod, transport));
    Ok(consumer.and_then(|pod| pod.metadata.name))
}

/// Whether a pod's sidecar has the transport's environment, and the pod is not terminating.
fn uses(pod: &Pod, transport: &Transport) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        sidecars.chain(&spec.containers)
    });
    let mut sidecars = containers.filter(|container| container.name == SIDECAR_CONTAINER);
    pod.metadata.deletion_timestamp.is_none()
        && sidecars.any(|sidecar| {
            let env: Vec<_> = sidecar.env.iter().flatten().map(as_json).collect();
            let expected = transport.broker().sidecar_env();
            expected
                .iter()
                .all(|variable| env.contains(&as_json(variable)))
        })
}

fn as_json(variable: &impl Serialize) -> Value {
    serde_json::to_value(variable).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use asya_shared::names::SIDECAR_CONTAINER;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::uses;
    use crate::reconcile::tests::fixtures::context;

    /// FW-23 (e)
    #[tokio::test]
    async fn pod_uses_the_transport_whose_environment_its_sidecar_has() {
        let context = context();
        let transports = &context.installation.transports;
        let mq = transports.usable("mq").unwrap();
        let other = transports.usable("other").unwrap();
        let pod = |container: &str, env: &Value, metadata: &Value| -> Pod {
            let container = json!({"name": container, "env": env});
            let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
            serde_json::from_value(pod).unwrap()
        };
        let mut env = json!(mq.broker().sidecar_env());
        env.as_array_mut()
            .unwrap()
            .push(json!({"name": "ASYA_ACTOR_NAME", "value": "a"}));
        let running = pod(SIDECAR_CONTAINER, &env, &json!({}));
        assert!(uses(&running, mq));
        assert!(!uses(&running, other));
        assert!(!uses(&pod("asya-runtime", &env, &json!({})), mq));
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!uses(&pod(SIDECAR_CONTAINER, &env, &terminating), mq));
    }
}
