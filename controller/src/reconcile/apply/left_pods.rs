//! Finds pods that an earlier actor (FW-23) or a workload deleted without them (FW-22) has left, and that still consume
//! from the queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use asya_shared::config::{Transport, TransportsConfig};
use asya_shared::names::{SIDECAR_CONTAINER, label};
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::record::{ActorRecord, PodRecord, UNFINISHED};

/// The variable that names the type of a sidecar's transport.
const TYPE: &str = "ASYA_TRANSPORT";

/// The name of one of the `left` pods whose sidecar may use `transport`, if there is one. Reads the pods from the API
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
    let transports = &context.installation.transports;
    let mut pods = pods.items.into_iter();
    let consumer = pods.find(|pod| was_left(pod) && may_use(pod, transport, transports));
    Ok(consumer.and_then(|pod| pod.metadata.name))
}

/// Whether a pod is not terminating and has a sidecar that may use the transport. One uses another transport if that is
/// of another type, or has its address. Everything else may have been different when the sidecar started: its actor's
/// `spec.sidecar.env`, or the configuration.
fn may_use(pod: &Pod, transport: &Transport, all: &TransportsConfig) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| {
        let sidecars = spec.init_containers.iter().flatten();
        sidecars.chain(&spec.containers)
    });
    let mut sidecars = containers.filter(|container| container.name == SIDECAR_CONTAINER);
    pod.metadata.deletion_timestamp.is_none()
        && sidecars.any(|sidecar| {
            let env = sidecar.env.as_deref().unwrap_or_default();
            has_address(env, transport)
                || (may_be_of_type(env, transport) && !all.iter().any(|it| has_address(env, it)))
        })
}

/// Whether a sidecar with this environment uses the broker at the transport's address.
fn has_address(env: &[EnvVar], transport: &Transport) -> bool {
    let names = transport.broker().address_variables();
    address_in(env, names) == address_in(&transport.broker().sidecar_env(), names)
}

fn address_in<V: Serialize>(env: &[V], names: &[&str]) -> BTreeMap<String, Value> {
    let variables = env.iter().filter_map(|variable| {
        let variable = serde_json::to_value(variable).ok()?;
        let name = variable["name"].as_str()?.to_owned();
        names.contains(&&*name).then_some((name, variable))
    });
    variables.collect()
}

/// Whether a sidecar with this environment does not say that it uses a transport of another type.
fn may_be_of_type(env: &[EnvVar], transport: &Transport) -> bool {
    let type_name = transport.broker().type_name();
    let mut types = env.iter().filter(|it| it.name == TYPE);
    types.all(|it| it.value.as_deref() == Some(type_name))
}

#[cfg(test)]
mod tests {
    use asya_shared::config::Transport;
    use asya_shared::names::SIDECAR_CONTAINER;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::may_use;
    use crate::reconcile::tests::fixtures::context;

    /// FW-23 (e)
    #[tokio::test]
    async fn pod_uses_the_transport_whose_address_its_sidecar_has() {
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
        let uses = |pod: &Pod, transport: &Transport| may_use(pod, transport, transports);
        let running = pod(SIDECAR_CONTAINER, &env, &json!({}));
        assert!(uses(&running, mq));
        assert!(!uses(&running, other));
        assert!(!uses(&pod("asya-runtime", &env, &json!({})), mq));
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert!(!uses(&pod(SIDECAR_CONTAINER, &env, &terminating), mq));
    }

    /// FW-23 (e), BIND-43: its actor overrode them in `spec.sidecar.env`, or the configuration has changed since.
    #[tokio::test]
    async fn pod_whose_variables_no_transport_has_any_more_may_use_each_of_its_type() {
        let context = context();
        let transports = &context.installation.transports;
        let named = |name: &str| transports.usable(name).unwrap();
        let uses = |env: &Value, transport: &str| {
            let container = json!({"name": SIDECAR_CONTAINER, "env": env});
            let pod = json!({"metadata": {}, "spec": {"containers": [container]}});
            may_use(
                &serde_json::from_value(pod).unwrap(),
                named(transport),
                transports,
            )
        };
        let with = |name: &str, value: &str| {
            let mut env = json!(named("mq").broker().sidecar_env());
            let variables = env.as_array_mut().unwrap();
            variables.retain(|it| it["name"] != *name);
            variables.push(json!({"name": name, "value": value}));
            env
        };
        for (name, value, uses_other) in [
            ("ASYA_RABBITMQ_EXCHANGE", "earlier", false),
            ("ASYA_RABBITMQ_USERNAME", "earlier", false),
            ("ASYA_RABBITMQ_HOST", "earlier", true),
        ] {
            let env = with(name, value);
            assert!(uses(&env, "mq") && uses(&env, "twin"), "{name}");
            assert_eq!(uses(&env, "other"), uses_other, "{name}");
            assert!(!uses(&env, "aws"), "{name}: it is of another type");
        }
        let moved = with("ASYA_RABBITMQ_HOST", "elsewhere");
        assert!(!uses(&moved, "mq") && uses(&moved, "other"));
        assert!(uses(&json!([]), "mq"), "nothing says otherwise");
    }
}
