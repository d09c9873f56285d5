//! The container that moves messages between queue and Unix socket (POD-1, POD-2).

use asya_wire::env as variable;
pub(super) use asya_wire::env::GATEWAY_URL;
use serde_json::{Map, Value, json};

use super::keyed::{BY_NAME, put};
use super::volumes::Volumes;
use crate::api::{AsyncActorSpec, EnvVar};
use crate::config::{Settings, Transport};
use crate::names::{ERROR_END, HAPPY_END, SIDECAR_CONTAINER, SOCKET_DIR};
use crate::transport::text;

/// Variables that `spec.sidecar.env` cannot override: another value would cut the sidecar off from its queue or from
/// the runtime.
const RESERVED: [&str; 2] = [variable::ACTOR_NAME, variable::SOCKET_DIR];

const METRICS_PORT: u16 = 8080;

/// Inputs for rendering a sidecar container.
pub(super) struct SidecarInputs<'a> {
    pub(super) namespace: &'a str,
    pub(super) actor: &'a str,
    pub(super) spec: &'a AsyncActorSpec,
    pub(super) transport: &'a Transport,
    pub(super) settings: &'a Settings,
    /// The gateway variable of the runtime's environment, used if the operator configures none.
    pub(super) gateway: Option<EnvVar>,
    pub(super) volumes: &'a Volumes,
    /// Additional variables that this kind of pod needs; users may override them.
    pub(super) further: &'a [EnvVar],
}

/// Whether the route of a message ends at this actor.
pub(super) fn is_end_actor(actor: &str) -> bool {
    actor == HAPPY_END || actor == ERROR_END
}

/// The sidecar in a pod of our own workload; a native one belongs to the init containers.
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

/// The parts that are the same in every pod.
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

/// The sidecar's environment, in order; the user's variables come last.
fn env(inputs: &SidecarInputs<'_>) -> Vec<Value> {
    let names = inputs.transport.names_of(inputs.namespace, inputs.actor);
    let gateway = match (&inputs.settings.gateway_url, &inputs.gateway) {
        (Some(url), _) => text(GATEWAY_URL, url),
        (None, Some(from_runtime)) => from_runtime.clone(),
        (None, None) => text(GATEWAY_URL, ""),
    };
    let mut env = vec![
        text(variable::LOG_LEVEL, "info"),
        gateway,
        text(variable::ACTOR_NAME, &names.actor),
        text(variable::ACTOR_HAPPY_END, &names.happy_end),
        text(variable::ACTOR_ERROR_END, &names.error_end),
    ];
    if is_end_actor(inputs.actor) {
        env.push(text(variable::IS_END_ACTOR, "true"));
    }
    if let Some(seconds) = inputs.spec.timeout_in_force().processing {
        env.push(text(variable::RUNTIME_TIMEOUT, &format!("{seconds}s")));
    }
    env.extend(inputs.transport.broker().sidecar_env());
    env.push(text(variable::SOCKET_DIR, SOCKET_DIR));
    env.extend_from_slice(inputs.further);

    let mut env: Vec<Value> = env.iter().map(|entry| json!(entry)).collect();
    for entry in inputs.spec.sidecar_in_force().env {
        if !RESERVED.contains(&entry.name.as_str()) {
            put(&mut env, json!(entry), BY_NAME);
        }
    }
    env
}

/// The gateway variable of the runtime's environment, as written: a value or a `valueFrom`.
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

/// The most restrictive settings that any image can be expected to run with.
pub(super) fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}
