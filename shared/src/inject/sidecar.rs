//! The container that moves messages between queue and Unix socket (POD-1, POD-2).

use asya_wire::env as variable;
pub(super) use asya_wire::env::GATEWAY_URL;
use asya_wire::env::MAX_SQS_VISIBILITY_TIMEOUT;
use asya_wire::queue::Template;
use serde_json::{Map, Value, json};

use super::keyed::{BY_NAME, upsert};
use super::volumes::Volumes;
use crate::api::{AsyncActorSpec, EnvVar};
use crate::config::{RouteNames, Settings, Transport, TransportKind};
use crate::names::{BROKER_CA_VOLUME, ERROR_END, HAPPY_END, SIDECAR_CONTAINER, SOCKET_DIR};
use crate::transport::text;

/// Variables that `spec.sidecar.env` cannot override: another value would cut the sidecar off from its queue or from
/// the runtime.
const RESERVED: [&str; 2] = [variable::ACTOR_NAME, variable::SOCKET_DIR];
/// Also reserved where sidecars compose the names of queues.
const RESERVED_FOR_BARE_NAMES: [&str; 2] = [variable::NAMESPACE, variable::QUEUE_TEMPLATE];

/// The sidecar's own default for metrics and probes.
pub(super) const METRICS_PORT: u16 = 8080;
/// The first port to try where others may use its default (POD-1, BIND-24).
pub(super) const OTHER_METRICS_PORT: u16 = 18_080;

/// The default of Kubernetes and of the sidecar.
pub(super) const DEFAULT_GRACE_SECONDS: i64 = 30;

const CA_DIR: &str = "/etc/asya/broker-ca";
const CA_FILE: &str = "ca.crt";

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

/// How many messages a pod processes at a time; runtime and sidecar both need it.
pub(super) fn concurrency(number: i32) -> EnvVar {
    text(variable::CONCURRENCY, &number.to_string())
}

/// Whether the route of a message ends at this actor.
pub(super) fn is_end_actor(actor: &str) -> bool {
    actor == HAPPY_END || actor == ERROR_END
}

/// The first port from [`OTHER_METRICS_PORT`] that the pod does not declare.
pub(super) fn free_metrics_port(declares: impl Fn(u16) -> bool) -> u16 {
    (OTHER_METRICS_PORT..=u16::MAX)
        .find(|port| !declares(*port))
        .unwrap_or(OTHER_METRICS_PORT)
}

/// The variable that moves the sidecar's listener to a port.
pub(super) fn listens_on(port: u16) -> EnvVar {
    text(variable::METRICS_ADDR, &format!(":{port}"))
}

/// The port of metrics and probes in a pod of our own workload, given the ports that its containers declare.
pub(super) fn metrics_port(spec: &AsyncActorSpec, declares: impl Fn(u16) -> bool) -> u16 {
    if moves_listener(spec) || !declares(METRICS_PORT) {
        METRICS_PORT
    } else {
        free_metrics_port(declares)
    }
}

/// The sidecar in a pod of our own workload; a native one belongs to the init containers.
pub(super) fn container(inputs: &SidecarInputs<'_>, metrics_port: u16) -> Value {
    let sidecar = inputs.spec.effective_sidecar();
    let resources = sidecar
        .resources
        .filter(|resources| !resources.0.is_empty());
    let security_context = sidecar.security_context.cloned().unwrap_or_else(restricted);
    let mut container = base(inputs);
    container["ports"] =
        json!([{"name": "asya-metrics", "containerPort": metrics_port, "protocol": "TCP"}]);
    container["resources"] = json!(resources.unwrap_or(&inputs.settings.sidecar_resources));
    container["securityContext"] = security_context;
    if has_own_probes(inputs) {
        container["livenessProbe"] = json!({
            "httpGet": {"path": "/healthz", "port": "asya-metrics"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        });
    }
    container
}

/// Whether the sidecar is known to answer probes: other images might not, and users may move or switch off the listener
/// (POD-1).
fn has_own_probes(inputs: &SidecarInputs<'_>) -> bool {
    is_own(inputs.spec, inputs.settings) && !moves_listener(inputs.spec)
}

/// Whether the user moves or switches off the sidecar's listener.
fn moves_listener(spec: &AsyncActorSpec) -> bool {
    let listener = [variable::METRICS_ADDR, variable::METRICS_ENABLED];
    let env = spec.effective_sidecar().env;
    env.iter().any(|it| listener.contains(&it.name.as_str()))
}

/// Whether the sidecar is `asya-sidecar` of this version. Other images get no setting that their version may not know
/// (SC-111).
pub(super) fn is_own(spec: &AsyncActorSpec, settings: &Settings) -> bool {
    let image = spec.effective_sidecar().image;
    image.unwrap_or(&settings.sidecar_image) == settings.own_sidecar_image
}

/// How long the pod takes to end, unless it is the sidecar's default. A pod may have 0, which the sidecar refuses.
pub(super) fn grace_period(seconds: i64) -> Option<EnvVar> {
    let seconds = seconds.max(1);
    (seconds != DEFAULT_GRACE_SECONDS).then(|| text(variable::GRACE_PERIOD, &format!("{seconds}s")))
}

/// The most seconds that the sidecar accepts for one message.
pub(super) fn longest_processing(transport: &Transport) -> u32 {
    match transport.kind {
        TransportKind::Sqs(_) => MAX_SQS_VISIBILITY_TIMEOUT,
        TransportKind::Rabbitmq(_) => u32::MAX,
    }
}

/// The CA of the broker: a volume and its mount. It is optional, so that a missing Secret keeps no pod from starting.
pub(super) fn broker_ca(transport: &Transport) -> Option<(Value, Value)> {
    let secret = transport.ca_secret()?;
    let items = json!([{"key": secret.key, "path": CA_FILE}]);
    let volume = json!({"name": BROKER_CA_VOLUME, "secret": {
        "secretName": secret.name, "items": items, "optional": true, "defaultMode": 0o644,
    }});
    let mount = json!({"name": BROKER_CA_VOLUME, "mountPath": CA_DIR, "readOnly": true});
    Some((volume, mount))
}

/// The fields that are the same in every pod.
pub(super) fn base(inputs: &SidecarInputs<'_>) -> Value {
    let sidecar = inputs.spec.effective_sidecar();
    let mut container = json!({
        "name": SIDECAR_CONTAINER,
        "image": sidecar.image.unwrap_or(&inputs.settings.sidecar_image),
        "imagePullPolicy": sidecar.image_pull_policy,
        "env": env(inputs),
        "volumeMounts": inputs.volumes.sidecar_mounts(),
    });
    if let Some((_, mount)) = broker_ca(inputs.transport)
        && let Some(mounts) = container["volumeMounts"].as_array_mut()
    {
        mounts.push(mount);
    }
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
    let queues = inputs.transport.queues();
    let composes_names = queues.names == RouteNames::Bare;
    if composes_names {
        env.push(text(variable::NAMESPACE, inputs.namespace));
        if queues.name_template != Template::with_namespace(true) {
            let template = queues.name_template.to_string();
            env.push(text(variable::QUEUE_TEMPLATE, &template));
        }
    }
    if is_end_actor(inputs.actor) {
        env.push(text(variable::IS_END_ACTOR, "true"));
    }
    if let Some(seconds) = inputs.spec.effective_timeout().processing {
        let seconds = seconds.min(longest_processing(inputs.transport));
        env.push(text(variable::RUNTIME_TIMEOUT, &format!("{seconds}s")));
    }
    env.extend(inputs.spec.effective_concurrency().map(concurrency));
    env.extend(inputs.transport.broker().sidecar_env());
    if is_own(inputs.spec, inputs.settings) {
        env.extend(inputs.transport.broker().own_sidecar_env());
    }
    if inputs.transport.ca_secret().is_some() {
        env.push(text(
            variable::RABBITMQ_CA_FILE,
            &format!("{CA_DIR}/{CA_FILE}"),
        ));
    }
    env.push(text(variable::SOCKET_DIR, SOCKET_DIR));
    env.extend_from_slice(inputs.further);

    let mut env: Vec<Value> = env.iter().map(|entry| json!(entry)).collect();
    for entry in inputs.spec.effective_sidecar().env {
        let name = entry.name.as_str();
        let names_queue = composes_names && RESERVED_FOR_BARE_NAMES.contains(&name);
        if !RESERVED.contains(&name) && !names_queue {
            upsert(&mut env, json!(entry), BY_NAME);
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
