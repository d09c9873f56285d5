//! Finds pods that an earlier actor left (FW-23) and that still receive from the queue of a later one of its name.

use asya_shared::config::Transport;
use asya_shared::names::{SIDECAR_CONTAINER, label};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::record::{ActorRecord, UNFINISHED};

/// The name of a pod of the actor whose sidecar uses `transport`; `None` if there is none. Pods are read from the API
/// server, because the cache does not have their containers.
pub(super) async fn find_receiver(
    context: &Context,
    actor: &ActorRecord,
    transport: &Transport,
) -> Result<Option<String>, StepError> {
    let key = &actor.metadata.key;
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = ListParams::default()
        .labels(&format!("{}={}", label::ASYA, key.name))
        .fields(UNFINISHED);
    let pods = api.list(&params).await.map_err(Error::Api)?;
    let receiver = pods.items.into_iter().find(|pod| uses(pod, transport));
    Ok(receiver.and_then(|pod| pod.metadata.name))
}

/// Whether a pod's sidecar has the transport's environment, and the pod is not terminating.
fn uses(pod: &Pod, transport: &Transport) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        sidecars.chain(&spec.containers)
    });
    let mut sidecars = containers.filter(|it| it.name == SIDECAR_CONTAINER);
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
