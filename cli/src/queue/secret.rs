//! Credentials of brokers, from flags or from a Secret that the user may read.

use std::fs;
use std::path::Path;

use asya_shared::config::SecretKeyRef;
use k8s_openapi::api::core::v1::Secret;

use crate::answer::Failure;
use crate::args::queue::BrokerArgs;
use crate::cluster::{Cluster, resource};

/// Variable with the password, which as a flag would be visible to other users.
const PASSWORD: &str = "ASYA_BROKER_PASSWORD";

/// Secrets in the namespaces of the operator and the actor.
pub struct Secrets<'a> {
    pub cluster: &'a Cluster,
    /// The actor's namespace.
    pub namespace: &'a str,
}

impl Secrets<'_> {
    /// Reads a key of a Secret in the operator's namespace, or else in the actor's (SEC-1).
    ///
    /// # Errors
    /// If neither has it, or neither may be read.
    pub async fn read(&self, reference: &SecretKeyRef) -> Result<String, Failure> {
        let SecretKeyRef { name, key, .. } = reference;
        let namespaces = [&*self.cluster.operator_namespace, self.namespace];
        let mut refused = None;
        for namespace in namespaces {
            let kind = resource::<Secret>();
            match self.cluster.get(&kind, Some(namespace), name).await {
                Ok(Some(secret)) => {
                    let secret: Secret = serde_json::from_value(secret).unwrap_or_default();
                    let value = secret.data.unwrap_or_default().remove(key);
                    if let Some(value) = value.filter(|value| !value.0.is_empty()) {
                        return Ok(String::from_utf8_lossy(&value.0).into_owned());
                    }
                }
                Ok(None) => {}
                Err(why) => refused = refused.or(Some(why.text)),
            }
        }
        let [one, other] = namespaces;
        let why = refused.unwrap_or_else(|| {
            format!("Secret {name} with key {key} is neither in namespace {one} nor in {other}")
        });
        Err(Failure::new(format!(
            "no credentials for the broker: {why}; or pass --user and --password-file"
        )))
    }
}

/// The password or secret access key that the user has given.
///
/// # Errors
/// If the file cannot be read.
pub fn password(args: &BrokerArgs) -> Result<Option<String>, Failure> {
    match &args.password_file {
        Some(path) => {
            let text = file(path)?;
            Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        None => Ok(std::env::var(PASSWORD).ok()),
    }
}

/// The text of a file.
///
/// # Errors
/// If it cannot be read.
pub fn file(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path);
    text.map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
