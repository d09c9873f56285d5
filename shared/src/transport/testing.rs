//! Fixtures shared by the tests of several modules.

#![allow(clippy::unwrap_used)]

use crate::api::EnvVar;

/// Formats variables as `NAME=text`, or as `NAME<secret/key` if they come from a Secret.
pub(crate) fn lines(env: &[EnvVar]) -> Vec<String> {
    let line = |entry: &EnvVar| {
        if let Some(value) = entry.source.get("value") {
            return format!("{}={}", entry.name, value.as_str().unwrap());
        }
        let secret = &entry.source["valueFrom"]["secretKeyRef"];
        let part = |key: &str| secret[key].as_str().unwrap();
        format!("{}<{}/{}", entry.name, part("name"), part("key"))
    };
    env.iter().map(line).collect()
}
