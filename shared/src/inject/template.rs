//! The pod template of a standalone actor: the user's template plus sidecar and runtime (POD-1 to POD-11).

use serde_json::{Map, Value};

use super::keyed::{BY_NAME, last_wins_in_container, last_wins_in_pod, upsert};
use super::labels::{pod_labels, to_json};
use super::sidecar::{self, SidecarInputs, gateway_of, is_end_actor};
use super::volumes::STANDALONE_VOLUMES;
use super::{is_unset, list_at, object_at, runtime};
use crate::api::{AsyncActorSpec, EnvVar, Workload};
use crate::config::{Settings, Transport};
use crate::hash;
use crate::names::{RUNTIME_CONTAINER, annotation};

/// Inputs for rendering a pod template.
#[derive(Clone, Copy, Debug)]
pub struct PodInputs<'a> {
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Name of the actor.
    pub actor: &'a str,
    /// Spec of the actor, including the workload.
    pub spec: &'a AsyncActorSpec,
    /// The workload section of the spec.
    pub workload: &'a Workload,
    /// The transport that the actor uses.
    pub transport: &'a Transport,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the runtime script: a new script rolls the pods (RUN-4).
    pub runtime_hash: &'a str,
    /// The `ServiceAccount` that we create for the actor, if any (SA-1).
    pub service_account: Option<&'a str>,
}

/// The user's template with everything that an actor's pod needs. Environment, ports, mounts and volumes have no
/// duplicate keys.
#[must_use]
pub fn pod_template(inputs: &PodInputs<'_>) -> Value {
    let mut template = inputs.workload.template.clone();
    let Value::Object(pod) = &mut template else {
        return template;
    };
    if let Some(metadata) = object_at(pod, "metadata") {
        label(metadata, inputs);
    }
    if let Some(spec) = object_at(pod, "spec") {
        complete(spec, inputs);
    }
    let hash = hash::of_value(&template);
    if let Some(annotations) = template
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert(annotation::TEMPLATE_HASH.to_owned(), Value::from(hash));
    }
    template
}

fn label(metadata: &mut Map<String, Value>, inputs: &PodInputs<'_>) {
    if let Some(labels) = object_at(metadata, "labels") {
        labels.extend(to_json(pod_labels(
            inputs.actor,
            inputs.workload.effective_kind(),
        )));
    }
    if let Some(annotations) = object_at(metadata, "annotations") {
        annotations.insert(
            annotation::RUNTIME_HASH.to_owned(),
            Value::from(inputs.runtime_hash),
        );
        annotations.remove(annotation::TEMPLATE_HASH);
    }
}

fn complete(spec: &mut Map<String, Value>, inputs: &PodInputs<'_>) {
    last_wins_in_pod(spec);
    for list in ["initContainers", "containers"] {
        for container in containers_mut(spec, list) {
            last_wins_in_container(container);
        }
    }
    if is_unset(spec, "terminationGracePeriodSeconds") {
        let seconds = inputs.spec.effective_timeout().graceful_shutdown;
        spec.insert(
            "terminationGracePeriodSeconds".to_owned(),
            Value::from(seconds),
        );
    }
    let gateway = complete_runtime(spec, inputs);
    add_sidecar(spec, inputs, gateway);
    if let Some(volumes) = list_at(spec, "volumes") {
        let ca = sidecar::broker_ca(inputs.transport);
        for volume in STANDALONE_VOLUMES
            .volumes()
            .into_iter()
            .chain(ca.map(|(volume, _)| volume))
        {
            upsert(volumes, volume, BY_NAME);
        }
    }
    name_account(spec, inputs.service_account);
}

/// Sets the field and its deprecated alias. The API server fills in the alias, so owning only one of the two would
/// leave behind an account that is no longer requested.
fn name_account(spec: &mut Map<String, Value>, ours: Option<&str>) {
    const NAMES: [&str; 2] = ["serviceAccountName", "serviceAccount"];
    let of_user = NAMES.into_iter().find(|name| !is_unset(spec, name));
    let of_user = of_user.and_then(|name| spec.get(name).cloned());
    if let Some(account) = ours.map(Value::from).or(of_user) {
        for name in NAMES {
            spec.insert(name.to_owned(), account.clone());
        }
    }
}

/// Returns the gateway variable of the runtime's environment.
fn complete_runtime(spec: &mut Map<String, Value>, inputs: &PodInputs<'_>) -> Option<EnvVar> {
    let is_runtime = |container: &&mut Map<String, Value>| {
        container.get("name").and_then(Value::as_str) == Some(RUNTIME_CONTAINER)
    };
    let container = containers_mut(spec, "containers").find(is_runtime)?;
    let gateway = gateway_of(container);
    let python = inputs.workload.effective_python_executable();
    let concurrency = inputs.spec.effective_concurrency();
    let is_end_actor = is_end_actor(inputs.actor);
    runtime::complete(
        container,
        python,
        is_end_actor,
        concurrency,
        &STANDALONE_VOLUMES,
    );
    gateway
}

fn add_sidecar(spec: &mut Map<String, Value>, inputs: &PodInputs<'_>, gateway: Option<EnvVar>) {
    let grace = spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    let grace = grace.filter(|_| sidecar::is_own(inputs.spec, inputs.settings));
    let mut further = Vec::from_iter(grace.and_then(sidecar::grace_period));
    let metrics_port = sidecar::metrics_port(inputs.spec, |port| declares(spec, port));
    if metrics_port != sidecar::METRICS_PORT {
        further.push(sidecar::listens_on(metrics_port));
    }
    let container = SidecarInputs {
        namespace: inputs.namespace,
        actor: inputs.actor,
        spec: inputs.spec,
        transport: inputs.transport,
        settings: inputs.settings,
        gateway,
        volumes: &STANDALONE_VOLUMES,
        further: &further,
    };
    let container = sidecar::container(&container, metrics_port);
    // a native sidecar stops after the runtime, so it can still handle the runtime's last reply
    let list = if inputs.spec.effective_sidecar().native {
        "initContainers"
    } else {
        "containers"
    };
    if let Some(containers) = list_at(spec, list) {
        containers.push(container);
    }
}

/// Whether a container of the pod declares this port.
fn declares(spec: &Map<String, Value>, port: u16) -> bool {
    let lists = ["initContainers", "containers"].map(|list| spec.get(list)?.as_array());
    let containers = lists.into_iter().flatten().flatten();
    let ports = containers.filter_map(|it| it.get("ports")?.as_array());
    ports.flatten().any(|it| it["containerPort"] == port)
}

fn containers_mut<'a>(
    spec: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let containers = spec.get_mut(list).and_then(Value::as_array_mut);
    containers
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests;
