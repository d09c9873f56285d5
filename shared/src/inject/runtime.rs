//! The fields that we add to the container that runs the handler (POD-5, POD-6, POD-8).

use asya_wire::env as variable;
use asya_wire::socket::{READY_FILE, SOCKET as SOCKET_NAME};
use serde_json::{Map, Value, json};

use super::keyed::{BY_MOUNT_PATH, BY_NAME, upsert};
use super::volumes::Volumes;
use super::{is_unset, list_at};
use crate::names::{RUNTIME_SCRIPT_PATH, SOCKET_DIR};
use crate::transport::text;

/// A probe of the runtime: field name, then initial delay, period, timeout and failure threshold.
const PROBES: [(&str, [u32; 4]); 3] = [
    ("startupProbe", [3, 2, 3, 150]),
    ("livenessProbe", [0, 30, 5, 3]),
    ("readinessProbe", [0, 10, 3, 3]),
];

/// Turns a container of our own workload into the runtime: sets command, socket, script mount and probes.
pub(super) fn complete(
    container: &mut Map<String, Value>,
    python: &str,
    is_end_actor: bool,
    concurrency: Option<i32>,
    volumes: &Volumes,
) {
    connect(container, python, volumes);
    if let (Some(number), Some(env)) = (concurrency, list_at(container, "env")) {
        upsert(env, json!(super::sidecar::concurrency(number)), BY_NAME);
    }
    // a message that ends here has completed its route
    if is_end_actor && let Some(env) = list_at(container, "env") {
        upsert(env, without_validation(), BY_NAME);
    }
    for (field, [delay, period, timeout, failures]) in PROBES {
        if is_unset(container, field) {
            let mut probe = json!({
                "exec": {"command": [python, "-E", "-S", "-c", probe_script()]},
                "periodSeconds": period,
                "timeoutSeconds": timeout,
                "failureThreshold": failures,
            });
            if delay > 0 {
                probe["initialDelaySeconds"] = Value::from(delay);
            }
            container.insert(field.to_owned(), probe);
        }
    }
}

/// Connects a container to the sidecar: sets command, socket and script mount.
pub(super) fn connect(container: &mut Map<String, Value>, python: &str, volumes: &Volumes) {
    container.insert("command".to_owned(), json!([python, RUNTIME_SCRIPT_PATH]));
    if let Some(env) = list_at(container, "env") {
        // its default is the socket name that the sidecar expects
        env.retain(|entry| {
            entry.get("name").and_then(Value::as_str) != Some(variable::SOCKET_NAME)
        });
        upsert(env, json!(text(variable::SOCKET_DIR, SOCKET_DIR)), BY_NAME);
    }
    if let Some(mounts) = list_at(container, "volumeMounts") {
        for mount in volumes.runtime_mounts(mounts) {
            upsert(mounts, mount, BY_MOUNT_PATH);
        }
    }
}

/// Stops the runtime from comparing the routes of its input and output.
pub(super) fn without_validation() -> Value {
    json!(text("ASYA_ENABLE_VALIDATION", "false"))
}

/// Uses Python, because the image has an interpreter but possibly no shell.
fn probe_script() -> String {
    let files = format!("('{SOCKET_DIR}/{SOCKET_NAME}', '{SOCKET_DIR}/{READY_FILE}')");
    format!("import os, sys; sys.exit(0 if all(map(os.path.exists, {files})) else 1)")
}
