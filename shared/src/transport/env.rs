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

/// The Secrets that a container with these variables cannot start without.
#[must_use]
pub fn required_secrets(env: &[EnvVar]) -> Vec<SecretKeyRef> {
    let references = env.iter().filter_map(|variable| {
        let reference = variable.source.get("valueFrom")?.get("secretKeyRef")?;
        let text = |key: &str| Some(reference.get(key)?.as_str()?.to_owned());
        Some(SecretKeyRef {
            name: text("name")?,
            key: text("key")?,
            optional: reference.get("optional").and_then(Value::as_bool),
        })
    });
    references.filter(|it| it.optional != Some(true)).collect()
}

fn with(name: &str, key: &str, value: Value) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        source: Map::from_iter([(key.to_owned(), value)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SAFE-42
    #[test]
    fn only_secrets_without_which_a_container_cannot_start_are_required() {
        let secret = |key: &str, optional| SecretKeyRef {
            name: "broker".to_owned(),
            key: key.to_owned(),
            optional,
        };
        let env = [
            text("HOST", "broker"),
            from_secret("PASSWORD", &secret("password", None)),
            from_secret("URL", &secret("url", Some(true))),
            from_secret("KEY", &secret("key", Some(false))),
        ];
        let required = [secret("password", None), secret("key", Some(false))];
        assert_eq!(required_secrets(&env), required);
    }
}
