use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asya_shared::probe::{PROBE_NAME_PREFIX, Replaced};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    DryRunOutcome, ExpectedSidecar, ProbeFailure, run, verify_injected, with_probe_annotation,
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

/// Calls `run` against an API server that returns the first of `responses` for the pod as it is, the second for one
/// without requests, and the third for one without the sidecar. Returns the outcome and the number of dry runs.
async fn run_against(responses: [(u16, Value); 3], replaced: Replaced) -> (DryRunOutcome, usize) {
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
        let [full, zeroed, bare] = responses.clone();
        async move {
            let body = request.into_body().collect_bytes().await?;
            let pod: Value = serde_json::from_slice(&body)?;
            let requested = &pod["spec"]["containers"][0]["resources"]["requests"]["memory"];
            let owner = &pod["metadata"]["ownerReferences"][0]["kind"];
            let (code, response) = match (requested.as_str(), owner.as_str()) {
                (Some("0"), Some("ReplicaSet")) => zeroed,
                (Some("64Gi"), Some("ReplicaSet")) => full,
                (Some("64Gi"), Some("AsyncActor")) => bare,
                other => panic!("{other:?}"),
            };
            let body = kube::client::Body::from(response.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "m", "uid": "u"});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": PROBE_NAME_PREFIX, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "model", "resources": {"requests": {"memory": "64Gi"}}}]},
    }))
    .unwrap();
    let outcome = run(&client, "ns", &pod, EXPECTED, replaced).await;
    (outcome.unwrap(), count.load(Ordering::SeqCst))
}

fn uninjected(annotations: &Value) -> (u16, Value) {
    let pod = json!({"metadata": {"name": "p", "annotations": annotations}});
    (200, pod)
}

/// SAFE-7
#[tokio::test]
async fn exhausted_quota_is_probed_again_to_see_whether_the_sidecar_is_the_reason() {
    use Replaced::{Nothing, Pod};
    let exceeded = |what: &str| {
        let text = format!(
            "pods \"p\" is forbidden: exceeded quota: q, requested: {what}=1, used: {what}=5, limited: {what}=5"
        );
        status(403, &text)
    };
    let (memory, pods) = (|| exceeded("memory"), || exceeded("pods"));
    let range = || {
        let text = "pods \"p\" is forbidden: minimum memory usage per Container is 64Mi";
        status(403, text)
    };
    let missing = || {
        let text = "pods \"p\" is forbidden: failed quota: q: must specify requests.cpu for: model";
        status(403, text)
    };
    let bare = || uninjected(&json!({}));
    let admitted = || DryRunOutcome::Admitted;
    let rejected = |(_, response): (u16, Value)| {
        let text = response["message"].as_str().unwrap().to_owned();
        DryRunOutcome::Failed(ProbeFailure::Rejected(text))
    };
    for (responses, replaced, expected) in [
        ([injected(), injected(), bare()], Pod, (admitted(), 1)),
        ([injected(), injected(), bare()], Nothing, (admitted(), 1)),
        ([range(), injected(), bare()], Pod, (rejected(range()), 1)),
        ([memory(), injected(), bare()], Pod, (admitted(), 2)),
        ([memory(), memory(), bare()], Pod, (rejected(memory()), 2)),
        ([pods(), pods(), pods()], Pod, (admitted(), 3)),
        ([pods(), pods(), bare()], Pod, (rejected(pods()), 3)),
        (
            [memory(), injected(), bare()],
            Nothing,
            (rejected(memory()), 2),
        ),
        ([memory(), injected(), memory()], Nothing, (admitted(), 3)),
        ([pods(), pods(), pods()], Nothing, (admitted(), 3)),
        // The replacement of a running pod would be rejected, with the sidecar or without.
        (
            [missing(), injected(), bare()],
            Pod,
            (rejected(missing()), 2),
        ),
    ] {
        let case = format!("{responses:?} {replaced:?}");
        assert_eq!(run_against(responses, replaced).await, expected, "{case}");
    }
}

/// SAFE-7: the variant without requests must get the sidecar as well.
#[tokio::test]
async fn webhook_that_fails_meanwhile_is_not_taken_for_room_in_the_quota() {
    let text =
        "forbidden: exceeded quota: q, requested: memory=1, used: memory=5, limited: memory=5";
    let bare = || uninjected(&json!({}));
    let responses = [status(403, text), bare(), bare()];
    let (outcome, _) = run_against(responses, Replaced::Pod).await;
    assert!(
        matches!(outcome, DryRunOutcome::Failed(ProbeFailure::NotCalled(_))),
        "{outcome:?}"
    );
}

/// SAFE-5
#[tokio::test]
async fn uncalled_webhook_is_distinguished_from_one_that_skips_the_pod() {
    let answer = async |first| {
        let responses = [first, injected(), injected()];
        run_against(responses, Replaced::Pod).await.0
    };
    let outcome = answer(uninjected(&json!({}))).await;
    assert!(
        matches!(outcome, DryRunOutcome::Failed(ProbeFailure::NotCalled(_))),
        "{outcome:?}"
    );
    let failing = status(
        500,
        "Internal error occurred: failed calling webhook \"r-1.required.inject.asya.sh\": timeout",
    );
    let outcome = answer(failing).await;
    assert!(
        matches!(outcome, DryRunOutcome::Failed(ProbeFailure::NotCalled(_))),
        "{outcome:?}"
    );
    let marked = uninjected(&json!({"asya.sh/not-injected": "HostNetwork"}));
    let outcome = answer(marked).await;
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
