use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{PROBE_NAME, Shown, ask, judge, marked, without_requests};

fn containers(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn answer(annotations: &Value, spec: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"annotations": annotations}, "spec": spec})).unwrap()
}

fn marks(by: &str, hash: &str) -> Value {
    json!({"asya.sh/injected-by": by, "asya.sh/injected-hash": hash})
}

/// CFG-8, ROLL-2, SIM-9
#[test]
fn pod_counts_as_injected_only_with_mark_hash_part_and_containers() {
    let model = containers(&["model"]);
    let whole = json!({"containers": containers(&["model", "asya-runtime", "asya-sidecar"])});
    let native = json!({
        "containers": containers(&["model", "asya-runtime"]),
        "initContainers": containers(&["asya-sidecar"]),
    });
    let without = |name: &str| {
        let all = ["model", "asya-runtime", "asya-sidecar"];
        let left: Vec<_> = all.into_iter().filter(|it| *it != name).collect();
        json!({"containers": containers(&left)})
    };
    let ours = marks("uid-of-a", "actorpart.any");
    for (annotations, spec, lacks) in [
        (&ours, &whole, None),
        (&ours, &native, None),
        (
            &marks("uid-of-a", "other.any"),
            &whole,
            Some("another spec"),
        ),
        (
            &marks("another", "actorpart.any"),
            &whole,
            Some("was not called"),
        ),
        (
            &json!({"asya.sh/injected-by": "uid-of-a"}),
            &whole,
            Some("another spec"),
        ),
        (
            &json!({}),
            &json!({"containers": model}),
            Some("was not called"),
        ),
        (
            &json!({"asya.sh/not-injected": "HostNetwork"}),
            &whole,
            Some("HostNetwork"),
        ),
        (
            &ours,
            &without("asya-sidecar"),
            Some("another webhook removes it"),
        ),
        (
            &ours,
            &without("asya-runtime"),
            Some("another webhook removes it"),
        ),
    ] {
        let judged = judge(&answer(annotations, spec), "uid-of-a", Some("actorpart"));
        let told = judged.as_ref().err();
        assert_eq!(told.is_some(), lacks.is_some(), "{annotations} {spec}");
        if let Some((told, lacks)) = told.zip(lacks) {
            assert!(told.contains(lacks), "{told}");
        }
    }
}

fn injected() -> (u16, Value) {
    let names = ["model", "asya-runtime", "asya-sidecar"];
    let annotations = marks("uid-of-a", "actorpart.any");
    let pod = json!({"metadata": {"name": "p", "annotations": annotations}, "spec": {"containers": containers(&names)}});
    (200, pod)
}

fn status(code: u16, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "x", "message": message, "code": code});
    (code, status)
}

/// Calls `ask` against an API server that returns `real` for the pod as it is and `frugal` for one without requests.
/// Returns the outcome and the number of dry runs.
async fn asked(real: (u16, Value), frugal: (u16, Value), complete: bool) -> (Shown, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        assert!(
            request
                .uri()
                .query()
                .unwrap_or_default()
                .contains("dryRun=All")
        );
        seen.fetch_add(1, Ordering::SeqCst);
        let (real, frugal) = (real.clone(), frugal.clone());
        async move {
            let body = request.into_body().collect_bytes().await?;
            let pod: Value = serde_json::from_slice(&body)?;
            let asks = &pod["spec"]["containers"][0]["resources"]["requests"]["memory"];
            let (code, answer) = if *asks == "0" { frugal } else { real };
            let answer = kube::client::Body::from(answer.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(answer)?;
            Ok::<_, tower::BoxError>(response)
        }
    });
    let client = kube::Client::new(service, "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"generateName": PROBE_NAME},
        "spec": {"containers": [{"name": "model", "resources": {"requests": {"memory": "64Gi"}}}]},
    }))
    .unwrap();
    let shown = ask(
        &client,
        "ns",
        &pod,
        ("uid-of-a", Some("actorpart")),
        complete,
    )
    .await;
    (shown.unwrap(), count.load(Ordering::SeqCst))
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
    let refused =
        |answer: (u16, Value)| Shown::Refused(answer.1["message"].as_str().unwrap().to_owned());
    for (real, frugal, complete, shown, times) in [
        (injected(), injected(), true, Shown::Admitted, 1),
        (range(), injected(), true, refused(range()), 1),
        (exceeded(), injected(), true, Shown::Admitted, 2),
        (exceeded(), exceeded(), true, refused(exceeded()), 2),
        // Quotas are evaluated last.
        (exceeded(), range(), true, Shown::Admitted, 2),
        (missing(), missing(), true, refused(missing()), 2),
        (missing(), range(), true, refused(missing()), 2),
        // A pod is missing, so the quota must have room for the whole pod.
        (exceeded(), injected(), false, refused(exceeded()), 1),
    ] {
        let what = format!("{real:?} {frugal:?} {complete}");
        assert_eq!(
            asked(real, frugal, complete).await,
            (shown, times),
            "{what}"
        );
    }
}

/// SAFE-5
#[tokio::test]
async fn uncalled_webhook_is_distinguished_from_one_that_skips_the_pod() {
    let bare = |annotations: Value| {
        (
            200,
            json!({"metadata": {"name": "p", "annotations": annotations}}),
        )
    };
    let (unasked, _) = asked(bare(json!({})), injected(), true).await;
    assert!(matches!(unasked, Shown::Unasked(_)), "{unasked:?}");
    let failing = status(
        500,
        "Internal error occurred: failed calling webhook \"r-1.required.inject.asya.sh\": timeout",
    );
    let (unasked, _) = asked(failing, injected(), true).await;
    assert!(matches!(unasked, Shown::Unasked(_)), "{unasked:?}");
    let marked = bare(json!({"asya.sh/not-injected": "HostNetwork"}));
    let (left, _) = asked(marked, injected(), true).await;
    assert_eq!(left, Shown::LeftAlone("HostNetwork".to_owned()));
}

/// SAFE-2
#[test]
fn probe_is_annotated_with_the_actor_uid() {
    let pod = marked(&Pod::default(), "uid-of-a");
    let annotations = pod.metadata.annotations.unwrap();
    assert_eq!(annotations["asya.sh/probe"], "uid-of-a");
}

/// SAFE-7, SAFE-39
#[test]
fn our_containers_keep_their_limits_when_others_are_zeroed() {
    let asks = |name: &str| json!({"name": name, "resources": {"limits": {"memory": "64Mi"}}});
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "containers": [asks("model"), asks("asya-runtime"), asks("asya-sidecar")],
        "initContainers": [asks("load")],
    }}))
    .unwrap();
    let frugal = serde_json::to_value(without_requests(&pod)).unwrap();
    let limit =
        |list: &str, at: usize| frugal["spec"][list][at]["resources"]["limits"]["memory"].clone();
    let limits = [0, 1, 2].map(|at| limit("containers", at));
    assert_eq!(limits, ["0", "64Mi", "64Mi"]);
    assert_eq!(limit("initContainers", 0), "0");
}
