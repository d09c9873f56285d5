use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asya_shared::probe::PROBE_NAME_PREFIX;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    DryRunOutcome, ExpectedSidecar, ProbeFailure, run, verify_injected, with_probe_annotation,
    without_requests,
};

const EXPECTED: ExpectedSidecar<'_> = ExpectedSidecar {
    actor_uid: "uid-of-a",
    actor_hash: Some("actorhash"),
};

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn pod(annotations: &Value, spec: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap()
}

fn marks(by: &str, hash: &str) -> Value {
    json!({"asya.sh/injected-by": by, "asya.sh/injected-hash": hash})
}

/// CFG-8, ROLL-2 (g), SIM-9
#[test]
fn pod_counts_as_injected_only_with_annotation_hash_and_containers() {
    let model = containers(&["model"]);
    let complete = json!({"containers": containers(&["model", "asya-runtime", "asya-sidecar"])});
    let native = json!({
        "containers": containers(&["model", "asya-runtime"]),
        "initContainers": containers(&["asya-sidecar"]),
    });
    let without = |name: &str| {
        let all = ["model", "asya-runtime", "asya-sidecar"];
        let names: Vec<_> = all
            .into_iter()
            .filter(|container| *container != name)
            .collect();
        json!({"containers": containers(&names)})
    };
    let annotations_of_a = marks("uid-of-a", "actorhash.any");
    for (annotations, spec, problem) in [
        (&annotations_of_a, &complete, None),
        (&annotations_of_a, &native, None),
        (
            &marks("uid-of-a", "other.any"),
            &complete,
            Some("another spec"),
        ),
        (
            &marks("another", "actorhash.any"),
            &complete,
            Some("was not called"),
        ),
        (
            &json!({"asya.sh/injected-by": "uid-of-a"}),
            &complete,
            Some("another spec"),
        ),
        (
            &json!({}),
            &json!({"containers": model}),
            Some("was not called"),
        ),
        (
            &json!({"asya.sh/not-injected": "HostNetwork"}),
            &complete,
            Some("HostNetwork"),
        ),
        (
            &annotations_of_a,
            &without("asya-sidecar"),
            Some("another webhook removes it"),
        ),
        (
            &annotations_of_a,
            &without("asya-runtime"),
            Some("another webhook removes it"),
        ),
    ] {
        let result = verify_injected(&pod(annotations, spec), EXPECTED);
        let error = result.as_ref().err();
        assert_eq!(error.is_some(), problem.is_some(), "{annotations} {spec}");
        if let Some((error, problem)) = error.zip(problem) {
            assert!(error.contains(problem), "{error}");
        }
    }
}

fn injected() -> (u16, Value) {
    let names = ["model", "asya-runtime", "asya-sidecar"];
    let annotations = marks("uid-of-a", "actorhash.any");
    let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers(&names)}});
    (200, pod)
}

fn status(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "x", "message": message, "code": code});
    (code, status)
}

/// Calls `run` against an API server that returns `full` for the pod as it is and `zeroed` for one without requests.
/// Returns the outcome and the number of dry runs.
async fn run_against(
    full: (u16, Value),
    zeroed: (u16, Value),
    complete: bool,
) -> (DryRunOutcome, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert!(
            request
                .uri()
                .query()
                .unwrap_or_default()
                .contains("dryRun=All")
        );
        counter.fetch_add(1, Ordering::SeqCst);
        let full = full.clone();
        let zeroed = zeroed.clone();
        async move {
            let body = request.into_body().collect_bytes().await?;
            let pod: Value = serde_json::from_slice(&body)?;
            let requested = &pod["spec"]["containers"][0]["resources"]["requests"]["memory"];
            let (code, response) = if *requested == "0" { zeroed } else { full };
            let body = kube::client::Body::from(response.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": PROBE_NAME_PREFIX},
        "spec": {"containers": [{"name": "model", "resources": {"requests": {"memory": "64Gi"}}}]},
    }))
    .unwrap();
    let outcome = run(&client, "ns", &pod, EXPECTED, complete).await;
    (outcome.unwrap(), count.load(Ordering::SeqCst))
}

/// SAFE-7
#[tokio::test]
async fn exhausted_quota_is_probed_again_without_the_targets_requests() {
    let exceeded = || {
        status(
            403,
            "pods \"p\" is forbidden: exceeded quota: q, requested: memory=64Gi",
        )
    };
    let missing = || {
        status(
            403,
            "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: asya-sidecar",
        )
    };
    let range = || {
        status(
            403,
            "pods \"p\" is forbidden: minimum memory usage per Container is 64Mi",
        )
    };
    let rejected = |response: (u16, Value)| {
        DryRunOutcome::Failed(ProbeFailure::Rejected(
            response.1["message"].as_str().unwrap().to_owned(),
        ))
    };
    for (full, zeroed, outcome, times) in [
        (injected(), injected(), DryRunOutcome::Admitted, 1),
        (range(), injected(), rejected(range()), 1),
        (exceeded(), injected(), DryRunOutcome::Admitted, 2),
        (exceeded(), exceeded(), rejected(exceeded()), 2),
        // Quotas are evaluated last.
        (exceeded(), range(), DryRunOutcome::Admitted, 2),
        (missing(), missing(), rejected(missing()), 2),
        (missing(), range(), rejected(missing()), 2),
    ] {
        let case = format!("{full:?} {zeroed:?}");
        let actual = run_against(full, zeroed, true).await;
        assert_eq!(actual, (outcome, times), "{case}");
    }
    // A pod is missing, so the quota must have room for the whole pod.
    let incomplete = run_against(exceeded(), injected(), false).await;
    assert_eq!(incomplete, (rejected(exceeded()), 1));
}

/// SAFE-5
#[tokio::test]
async fn uncalled_webhook_is_distinguished_from_one_that_skips_the_pod() {
    let uninjected = |annotations: Value| {
        (
            200,
            json!({"metadata": {"name": "p", "annotations": annotations}}),
        )
    };
    let (outcome, _) = run_against(uninjected(json!({})), injected(), true).await;
    assert!(
        matches!(outcome, DryRunOutcome::Failed(ProbeFailure::NotCalled(_))),
        "{outcome:?}"
    );
    let failing = status(
        500,
        "Internal error occurred: failed calling webhook \"r-1.required.inject.asya.sh\": timeout",
    );
    let (outcome, _) = run_against(failing, injected(), true).await;
    assert!(
        matches!(outcome, DryRunOutcome::Failed(ProbeFailure::NotCalled(_))),
        "{outcome:?}"
    );
    let marked = uninjected(json!({"asya.sh/not-injected": "HostNetwork"}));
    let (outcome, _) = run_against(marked, injected(), true).await;
    assert_eq!(
        outcome,
        DryRunOutcome::Failed(ProbeFailure::NotInjected("HostNetwork".to_owned()))
    );
}

/// SAFE-2
#[test]
fn probe_is_annotated_with_the_actor_uid() {
    let pod = with_probe_annotation(&Pod::default(), "uid-of-a");
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["asya.sh/probe"], "uid-of-a");
}

/// SAFE-7, SAFE-39
#[test]
fn injected_containers_keep_their_limits_when_others_are_zeroed() {
    let container = |name: &str| json!({"name": name, "resources": {"limits": {"memory": "64Mi"}}});
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "containers": [container("model"), container("asya-runtime"), container("asya-sidecar")],
        "initContainers": [container("load")],
    }}))
    .unwrap();
    let zeroed = serde_json::to_value(without_requests(&pod)).unwrap();
    let limit = |list: &str, index: usize| {
        zeroed["spec"][list][index]["resources"]["limits"]["memory"].clone()
    };
    let limits = [0, 1, 2].map(|index| limit("containers", index));
    assert_eq!(limits, ["0", "64Mi", "64Mi"]);
    assert_eq!(limit("initContainers", 0), "0");
}
