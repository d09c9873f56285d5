//! Submits the pods of dry runs, and checks whether the sidecar was injected.
//!
//! Such a dry run (`dryRun=All`) of a pod is called a *probe*, as in the specs (docs/spec/safety.md, section 1) and in
//! the public names `asya.sh/probe`, `ProbeFailed` and `ProbeRejected`. Nothing here checks health.

use asya_shared::inject::bound::InjectedHash;
use asya_shared::names::annotation;
use asya_shared::probe::{INJECTED_CONTAINERS, QuotaConclusion, Rejection, Replaced};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client};

/// Marks the pod as the probe of the actor with this uid, which the webhook injects regardless of status (SAFE-2).
pub fn with_probe_annotation(pod: &Pod, uid: &str) -> Pod {
    let mut pod = pod.clone();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::PROBE.to_owned(), uid.to_owned());
    pod
}

#[derive(Clone, Debug, PartialEq)]
pub enum DryRunOutcome {
    /// The API server admits the pod with this actor's sidecar.
    Admitted,
    Failed(ProbeFailure),
}

/// Why a dry-run pod came back without the sidecar, or was rejected.
#[derive(Clone, Debug, PartialEq)]
pub enum ProbeFailure {
    /// The webhook was not called, or could not be called. While it is down, this applies to all actors.
    NotCalled(String),
    /// The API server admits the pod without the sidecar for this reason.
    NotInjected(String),
    /// It rejects the pod with this message.
    Rejected(String),
}

/// The sidecar that a dry-run pod should get.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedSidecar<'a> {
    pub actor_uid: &'a str,
    /// The actor hash of [`InjectedHash`], which identifies the actor's current spec.
    pub actor_hash: Option<&'a str>,
}

/// Dry-runs `pod`, which may replace a pod of the target. If a quota rejects it, variants of the pod are dry-run, too,
/// to see whether the sidecar is the reason.
///
/// # Errors
/// If the API server fails.
pub async fn run(
    client: &Client,
    namespace: &str,
    pod: &Pod,
    expected: ExpectedSidecar<'_>,
    replaced: Replaced,
) -> kube::Result<DryRunOutcome> {
    let reason = match outcome_of(create_dry_run(client, namespace, pod).await, expected)? {
        DryRunOutcome::Failed(ProbeFailure::Rejected(reason)) => reason,
        other => return Ok(other),
    };
    let mut rejection = Rejection::new(reason, replaced);
    loop {
        let variant = match rejection.conclusion() {
            QuotaConclusion::DryRun(variant) => variant,
            QuotaConclusion::Admitted => return Ok(DryRunOutcome::Admitted),
            QuotaConclusion::Rejected(reason) => {
                let failure = ProbeFailure::Rejected(reason.to_owned());
                return Ok(DryRunOutcome::Failed(failure));
            }
        };
        let response = create_dry_run(client, namespace, &variant.apply(pod)).await;
        let rejected = match outcome_of(response, expected)? {
            DryRunOutcome::Failed(ProbeFailure::Rejected(reason)) => Some(reason),
            other @ DryRunOutcome::Failed(_) if variant.has_sidecar() => return Ok(other),
            _ => None,
        };
        rejection.record(variant, rejected);
    }
}

fn outcome_of(
    result: kube::Result<Pod>,
    expected: ExpectedSidecar<'_>,
) -> kube::Result<DryRunOutcome> {
    let failure = match result {
        Ok(pod) => match verify_injected(&pod, expected) {
            Ok(()) => return Ok(DryRunOutcome::Admitted),
            Err(reason) if was_not_called(&pod, expected.actor_uid) => {
                ProbeFailure::NotCalled(reason)
            }
            Err(reason) => ProbeFailure::NotInjected(reason),
        },
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => {
            ProbeFailure::NotCalled(status.message)
        }
        Err(kube::Error::Api(status))
            if (400..500).contains(&status.code) && status.code != 429 =>
        {
            ProbeFailure::Rejected(status.message)
        }
        Err(error) => return Err(error),
    };
    Ok(DryRunOutcome::Failed(failure))
}

/// Whether the webhook left no trace on the pod.
fn was_not_called(pod: &Pod, uid: &str) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    let annotation_value = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    annotation_value(annotation::INJECTED_BY) != Some(uid)
        && annotation_value(annotation::NOT_INJECTED).is_none()
}

/// Creates the pod as a dry run; nothing is stored.
///
/// # Errors
/// If the API server rejects the pod or fails.
async fn create_dry_run(client: &Client, namespace: &str, pod: &Pod) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    pods.create(&params, pod).await
}

/// Checks that a dry-run pod got the expected sidecar.
///
/// # Errors
/// The reason why the pod does not count as injected.
fn verify_injected(pod: &Pod, expected: ExpectedSidecar<'_>) -> Result<(), String> {
    let annotations = pod.metadata.annotations.as_ref();
    let annotation_value = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    if annotation_value(annotation::INJECTED_BY) != Some(expected.actor_uid) {
        let reason = annotation_value(annotation::NOT_INJECTED);
        let not_called = "the webhook was not called, or did not inject it; check whether the webhook's pods are running";
        return Err(reason.unwrap_or(not_called).to_owned());
    }
    if !INJECTED_CONTAINERS.into_iter().all(|name| has(pod, name)) {
        return Err(
            "another webhook removes it; check the MutatingWebhookConfigurations for pods"
                .to_owned(),
        );
    }
    let injected = annotation_value(annotation::INJECTED_HASH).and_then(InjectedHash::parse);
    if injected.as_ref().map(|hash| &*hash.actor) != expected.actor_hash {
        return Err(
            "it would get the sidecar of another spec, or of another version of the operator"
                .to_owned(),
        );
    }
    Ok(())
}

fn has(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else {
        return false;
    };
    let init = spec.init_containers.iter().flatten();
    spec.containers
        .iter()
        .chain(init)
        .any(|container| container.name == name)
}

#[cfg(test)]
mod tests;
