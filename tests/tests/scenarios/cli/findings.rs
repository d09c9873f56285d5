//! Problems that `kubectl asya check` must find by id and with the right fix, each created on a real cluster. A healthy
//! installation has no findings.
//!
//! | problem | id |
//! |---|---|
//! | nothing is installed | `CRDMissing`, `OperatorMissing`, `KEDAMissing` |
//! | KEDA gone | `KEDAMissing`, and `KedaNotInstalled` of an actor that scales |
//! | another namespace than the operator's | `OperatorMissing` |
//! | the user may not install | `InstallPermissionMissing` of `--pre` |
//! | the user may not read | `NotChecked` |
//! | no pod of the controller can run | `ControllerDown` |
//! | a rollout of the controller that does not end | `ControllerDegraded` |
//! | no pod of the webhook can run | `WebhookDown`, `WebhookWithoutEndpoints` |
//! | a rollout of the webhook that does not end | `WebhookDegraded` |
//! | the webhook is not installed | `WebhookNotInstalled` |
//! | controller and webhook of two versions | `VersionSkew` |
//! | a CRD of an older release | `CRDOutdated` |
//! | no transport is enabled | `NoTransport` |
//! | a rule of the operator's `ClusterRole` is missing | `OperatorPermissionMissing` |
//! | the webhook's Service selects nothing | `WebhookWithoutEndpoints` |
//! | no leader | `LeaderMissing` |
//! | the validating configuration is gone | `WebhookConfigurationMissing` |
//! | a rule of it is missing | `WebhookRuleMissing` |
//! | it has no CA | `WebhookCAMissing` |
//! | it has a wrong CA | `WebhookCAMismatch` |
//! | the mutating configuration is gone | `InjectorEntryMissing` |
//! | the certificate has expired | `CertificateExpired` |
//! | the certificate is not renewed | `CertificateExpiring` |
//! | the Secret with the certificate is gone | `CertificateInvalid` |
//! | the API server cannot reach the webhook | `WebhookUnreachable` |
//! | the broker rejects the operator | `TransportFailing`, `BrokerAuthFailed` |
//! | the broker's Secret is missing | `TransportFailing`, `CredentialsMissing` |
//! | dead letters; messages that nobody receives beside a ready pod (in `queue.rs`) | `DeadLetters`, `NoConsumers` |
//! | two actors for one queue | `QueueConflict` |
//! | an unknown transport | `InvalidTransport` |
//! | the queue is missing | `QueueMissing` |
//! | no node has room; a quota has none | `PendingResources` |
//! | an image cannot be pulled | `ImagePullError` |
//! | the handler crashes; the sidecar crashes | `RuntimeError`, `SidecarError` |
//! | an invalid actor | `ValidationError` |
//! | a name that is taken | `NotOwned` |
//! | a second autoscaler | `RivalAutoscaler` |
//! | a target that does not exist; of an unknown kind | `TargetNotFound`, `KindNotInstalled` |
//! | a target of another actor | `AlreadyBound` |
//! | pods that started before the binding | `PodsNotInjected` |
//! | a rollout that a `PodDisruptionBudget` holds up | `RolloutWaiting` |
//! | a client that changes the actor's workload (contention) | `FieldConflict` |
//! | an actor that no operator has acted on | `NotReconciled` |
//! | a reason that a newer operator has written | `ActorFailing` |
//!
//! `KubernetesTooOld` has no scenario: an API server reports the version that it was compiled from, and only versions
//! that the operator supports are compiled for tests. A unit test in `cli/src/check/decide/tests.rs` covers it.

mod actors;
mod broken;
mod installation;
mod operators;

use asya_tests::Result;
use asya_tests::error::Error;
use asya_tests::eventually::{check, eventually};
use asya_tests::scenario::Scenario;
use serde_json::Value;

use super::{Ended, asya};

/// A finding: its subject, its id, and the beginning of its fix.
type Finding<'a> = (&'a str, &'a str, &'a str);

fn all(checks: &Value) -> &[Value] {
    checks.as_array().map_or(&[][..], Vec::as_slice)
}

/// Ids of all findings, without their prefix.
fn ids(checks: &Value) -> Vec<String> {
    let mut ids: Vec<_> = all(checks)
        .iter()
        .filter_map(|it| Some(it["id"].as_str()?.strip_prefix("ASYA-")?.to_owned()))
        .collect();
    ids.sort();
    ids.dedup();
    ids
}

fn is_found(checks: &Value, (subject, id, fix): Finding<'_>) -> bool {
    let id = format!("ASYA-{id}");
    all(checks).iter().any(|it| {
        it["subject"] == subject
            && it["id"] == id
            && it["fix"].as_str().is_some_and(|it| it.starts_with(fix))
    })
}

async fn checked(scenario: &Scenario, args: &[&str]) -> Result<(Ended, Value)> {
    let all = [&["check", "-o", "json"], args].concat();
    let ended = asya(scenario, &all).await?;
    let checks = ended.json().map_err(|_| Error::other(ended.err.clone()))?;
    Ok((ended, checks))
}

/// Waits until `check` has exactly these ids.
async fn only(scenario: &Scenario, what: &str, expected: &[&str]) -> Result<Value> {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    eventually(what, super::MINUTE, async || {
        let (_, checks) = checked(scenario, &[]).await?;
        check(ids(&checks) == expected, format_args!("{checks:#}"))?;
        Ok(checks)
    })
    .await
}
