//! Secrets that the sidecars of a binding need (SAFE-42).

use asya_shared::transport::required_secrets;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use super::decide::Preview;
use super::online::Online;
use super::standalone::PreviewedActor;
use crate::cluster::{ApiFailure, resource};

impl Online<'_> {
    /// Adds the Secrets missing from the target's namespace, for which the binding waits. One that may not be read
    /// counts as present, as it does for the operator.
    pub(super) async fn add_missing_secrets(
        &self,
        preview: &mut Preview,
        subject: &PreviewedActor<'_>,
    ) {
        for reference in required_secrets(&subject.transport.broker().sidecar_env()) {
            let (kind, within) = (resource::<Secret>(), Some(self.namespace));
            let found = self.cluster.get(&kind, within, &reference.name).await;
            if is_missing(&found, &reference.key) {
                let text = format!(
                    "no Secret {} with key {} in namespace {}, without which no pod could start with the sidecar; the \
                     binding waits for it, and changes no pod until then",
                    reference.name, reference.key, self.namespace
                );
                preview.wait_for_secret(&format!("Secret/{}", reference.name), &text);
            }
            if let Err(failure) = found {
                preview.notes.push(failure.text);
            }
        }
    }
}

impl Preview {
    /// Adds a Secret for which the binding, and so the restart of its pods, waits.
    fn wait_for_secret(&mut self, secret: &str, text: &str) {
        self.problem("CredentialsMissing", secret, text);
        if let Some(restart) = &mut self.restart {
            restart.waits.push(format!("{secret} is missing"));
        }
    }
}

/// Whether a Secret is known not to have this key.
fn is_missing(found: &Result<Option<Value>, ApiFailure>, key: &str) -> bool {
    let has_key = |secret: &Value| secret["data"].get(key).is_some();
    matches!(found, Ok(secret) if !secret.as_ref().is_some_and(has_key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::restart::Restart;
    use super::*;
    use crate::answer::Answer;
    use crate::lint::Linted;

    /// SAFE-42
    #[test]
    fn secret_counts_as_missing_only_if_it_could_be_read() {
        let secret = |data: Value| Ok(Some(json!({"data": data})));
        let forbidden = ApiFailure {
            text: "you may not get secrets".to_owned(),
            rejection: None,
            is_conflict: false,
            is_forbidden: true,
        };
        for (found, missing) in [
            (Ok(None), true),
            (secret(Value::Null), true),
            (secret(json!({"user": ""})), true),
            (secret(json!({"password": "eA=="})), false),
            (Err(forbidden), false),
        ] {
            assert_eq!(is_missing(&found, "password"), missing, "{found:?}");
        }
    }

    /// SAFE-42
    #[test]
    fn binding_that_waits_for_a_secret_has_a_problem_and_restarts_wait_with_it() {
        let mut preview = Preview::new(&json!({"metadata": {"name": "embed"}}), &Linted::default());
        preview.restart = Some(Restart::default());
        preview.wait_for_secret("Secret/mq", "no Secret mq");
        assert_eq!(preview.answer(), Answer::Findings);
        assert_eq!(preview.problems[0].id, "ASYA-CredentialsMissing");
        assert_eq!(
            preview.restart.unwrap().waits,
            ["Secret/mq is missing".to_owned()]
        );
    }
}
