//! The container that moves messages between queue and socket (POD-1, POD-2).

use serde_json::{Map, Value, json};

use super::keyed::{BY_NAME, put};
use super::volumes::Volumes;
use crate::api::{AsyncActorSpec, EnvVar};
use crate::config::{Settings, Transport};
use crate::names::{ERROR_END, HAPPY_END, SIDECAR_CONTAINER, SOCKET_DIR};
use crate::transport::text;

const ACTOR_NAME: &str = "ASYA_ACTOR_NAME";
pub(super) const GATEWAY_URL: &str = "ASYA_GATEWAY_URL";
const SOCKET_DIR_VARIABLE: &str = "ASYA_SOCKET_DIR";

/// What `spec.sidecar.env` cannot change: another value would cut the sidecar off from its queue or from
/// the runtime.
const RESERVED: [&str; 2] = [ACTOR_NAME, SOCKET_DIR_VARIABLE];

const METRICS_PORT: u16 = 8080;

/// What a sidecar is made from.
pub(super) struct SidecarInputs<'a> {
    pub(super) namespace: &'a str,
    pub(super) actor: &'a str,
    pub(super) spec: &'a AsyncActorSpec,
    pub(super) transport: &'a Transport,
    pub(super) settings: &'a Settings,
    /// What the runtime says of the gateway, where the operator says nothing.
    pub(super) gateway: Option<EnvVar>,
    pub(super) volumes: &'a Volumes,
    /// What a pod of this kind needs beside; users may say otherwise.
    pub(super) further: &'a [EnvVar],
}

/// Whether messages end at this actor.
pub(super) fn is_end_actor(actor: &str) -> bool {
    actor == HAPPY_END || actor == ERROR_END
}

/// The container in a pod of our own workload; with `native` it belongs to the init containers.
pub(super) fn container(inputs: &SidecarInputs<'_>) -> Value {
    let sidecar = inputs.spec.sidecar_in_force();
    let resources = sidecar
        .resources
        .filter(|resources| !resources.0.is_empty());
    let security_context = sidecar.security_context.cloned().unwrap_or_else(restricted);
    let mut container = base(inputs);
    container["ports"] =
        json!([{"name": "asya-metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}]);
    container["resources"] = json!(resources.unwrap_or(&inputs.settings.sidecar_resources));
    container["securityContext"] = security_context;
    container
}

/// What it is in every pod.
pub(super) fn base(inputs: &SidecarInputs<'_>) -> Value {
    let sidecar = inputs.spec.sidecar_in_force();
    let mut container = json!({
        "name": SIDECAR_CONTAINER,
        "image": sidecar.image.unwrap_or(&inputs.settings.sidecar_image),
        "imagePullPolicy": sidecar.image_pull_policy,
        "env": env(inputs),
        "volumeMounts": inputs.volumes.of_sidecar(),
    });
    if sidecar.native {
        container["restartPolicy"] = Value::from("Always");
    }
    container
}

/// The sidecar's environment, in order; the user's part last.
fn env(inputs: &SidecarInputs<'_>) -> Vec<Value> {
    let names = inputs.transport.names_of(inputs.namespace, inputs.actor);
    let gateway = match (&inputs.settings.gateway_url, &inputs.gateway) {
        (Some(url), _) => text(GATEWAY_URL, url),
        (None, Some(from_runtime)) => from_runtime.clone(),
        (None, None) => text(GATEWAY_URL, ""),
    };
    let mut env = vec![
        text("ASYA_LOG_LEVEL", "info"),
        gateway,
        text(ACTOR_NAME, &names.actor),
        text("ASYA_ACTOR_HAPPY_END", &names.happy_end),
        text("ASYA_ACTOR_ERROR_END", &names.error_end),
    ];
    if is_end_actor(inputs.actor) {
        env.push(text("ASYA_IS_END_ACTOR", "true"));
    }
    if let Some(seconds) = inputs.spec.timeout_in_force().processing {
        env.push(text("ASYA_RUNTIME_TIMEOUT", &format!("{seconds}s")));
    }
    env.extend(inputs.transport.broker().sidecar_env());
    env.push(text(SOCKET_DIR_VARIABLE, SOCKET_DIR));
    env.extend_from_slice(inputs.further);

    let mut env: Vec<Value> = env.iter().map(|entry| json!(entry)).collect();
    for entry in inputs.spec.sidecar_in_force().env {
        if !RESERVED.contains(&entry.name.as_str()) {
            put(&mut env, json!(entry), BY_NAME);
        }
    }
    env
}

/// What the runtime's environment says of the gateway: a text or a source, as written.
pub(super) fn gateway_of(runtime: &Map<String, Value>) -> Option<EnvVar> {
    let env = runtime.get("env")?.as_array()?;
    let mut entry = env
        .iter()
        .rfind(|entry| entry.get("name").and_then(Value::as_str) == Some(GATEWAY_URL))?
        .as_object()?
        .clone();
    entry.remove("name");
    Some(EnvVar {
        name: GATEWAY_URL.to_owned(),
        source: entry,
    })
}

/// The least that a container can be allowed, short of what an image may need.
pub(super) fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}
