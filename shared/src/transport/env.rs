//! Environment variables of a container.

use serde_json::{Map, Value, json};

use crate::api::EnvVar;
use crate::config::SecretKeyRef;

/// A variable with a literal value: escapes `$`, which the kubelet would read as the start of a reference.
#[must_use]
pub fn text(name: &str, value: &str) -> EnvVar {
    referring(name, &value.replace('$', "$$"))
}

/// A variable whose value may refer to earlier variables as `$(NAME)`.
pub(super) fn referring(name: &str, value: &str) -> EnvVar {
    with(name, "value", Value::from(value))
}

/// A variable whose value comes from a Secret of the pod's namespace.
#[must_use]
pub fn from_secret(name: &str, secret: &SecretKeyRef) -> EnvVar {
    let mut reference = json!({"name": secret.name, "key": secret.key});
    if let Some(optional) = secret.optional {
        reference["optional"] = Value::from(optional);
    }
    with(name, "valueFrom", json!({"secretKeyRef": reference}))
}

fn with(name: &str, key: &str, value: Value) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        source: Map::from_iter([(key.to_owned(), value)]),
    }
}
