use serde_json::json;

use super::*;

const MEMORY: &str = "pods \"p\" is forbidden: exceeded quota: q, requested: memory=64Mi, used: memory=1Gi, limited: memory=1Gi";
const OVERDRAWN: &str = "pods \"p\" is forbidden: exceeded quota: q, requested: memory=64Mi, used: memory=2Gi, limited: memory=1Gi";
const PODS: &str = "pods \"p\" is forbidden: exceeded quota: q, requested: count/pods=1,pods=1, used: count/pods=3,pods=3, limited: count/pods=3,pods=3";
const TOO_MANY_PODS: &str =
    "pods \"p\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=3";
const BOTH: &str = "pods \"p\" is forbidden: exceeded quota: q, requested: memory=64Mi,pods=1, used: memory=1Gi,pods=3, limited: memory=1Gi,pods=3";
const MISSING: &str =
    "pods \"p\" is forbidden: failed quota: q: must specify limits.memory for: asya-sidecar";
const RANGE: &str = "pods \"p\" is forbidden: minimum memory usage per Container is 64Mi";

/// SAFE-7
#[test]
fn sidecar_is_to_blame_only_for_what_the_quota_has_room_for_without_it() {
    use Replaced::{NoPod, Nothing, Pod, SamePod};
    // What the API server answers to the pod, without requests, and without the sidecar; what is not asked is `None`.
    type Said = Option<Option<&'static str>>;
    let cases: [(Replaced, &str, Said, Said, Option<&str>); 23] = [
        (Pod, RANGE, None, None, Some(RANGE)),
        (Nothing, RANGE, None, None, Some(RANGE)),
        // It replaces a pod, which frees its share.
        (Pod, MEMORY, Some(None), None, None),
        (Pod, MEMORY, Some(Some(MEMORY)), None, Some(MEMORY)),
        // Quotas are evaluated last.
        (Pod, MEMORY, Some(Some(RANGE)), None, None),
        (Pod, MISSING, Some(Some(MISSING)), None, Some(MISSING)),
        (Pod, MISSING, Some(Some(RANGE)), None, Some(MISSING)),
        // The target's own containers lack what the quota demands.
        (Pod, MISSING, Some(None), None, Some(MISSING)),
        // No pod could be lost, and the pod of the dry run may be a minimal one.
        (NoPod, MISSING, Some(None), None, None),
        (NoPod, MISSING, Some(Some(MISSING)), None, Some(MISSING)),
        (
            Nothing,
            MISSING,
            Some(None),
            Some(Some(MISSING)),
            Some(MISSING),
        ),
        // There is no room for one more pod, whatever is in it.
        (Pod, PODS, Some(Some(PODS)), Some(Some(PODS)), None),
        (Pod, PODS, Some(Some(PODS)), Some(Some(MEMORY)), None),
        (Pod, PODS, Some(Some(PODS)), Some(None), Some(PODS)),
        (Pod, PODS, Some(Some(PODS)), Some(Some(RANGE)), Some(PODS)),
        (Pod, BOTH, Some(Some(BOTH)), None, Some(BOTH)),
        (
            Pod,
            TOO_MANY_PODS,
            Some(Some(TOO_MANY_PODS)),
            None,
            Some(TOO_MANY_PODS),
        ),
        // A pod is missing, so the quota must have room for the whole pod, unless it has none without the sidecar.
        (Nothing, MEMORY, None, Some(None), Some(MEMORY)),
        (Nothing, MEMORY, Some(None), Some(Some(MEMORY)), None),
        (
            Nothing,
            MEMORY,
            Some(Some(MEMORY)),
            Some(Some(MEMORY)),
            Some(MEMORY),
        ),
        (Nothing, PODS, Some(Some(PODS)), Some(Some(PODS)), None),
        // It replaces a pod that takes as much.
        (SamePod, BOTH, None, None, None),
        (
            SamePod,
            OVERDRAWN,
            Some(Some(OVERDRAWN)),
            None,
            Some(OVERDRAWN),
        ),
    ];
    for (replaced, first, without_requests, without_sidecar, expected) in cases {
        let case = format!("{replaced:?} {first} {without_requests:?} {without_sidecar:?}");
        let mut rejection = Rejection::new(first.to_owned(), replaced);
        let mut asked = Vec::new();
        while let QuotaConclusion::DryRun(variant) = rejection.conclusion() {
            let answer = match variant {
                Variant::WithoutRequests => without_requests,
                Variant::WithoutSidecar => without_sidecar,
            };
            let answer = answer.unwrap_or_else(|| panic!("{variant:?} asked: {case}"));
            rejection.record(variant, answer.map(str::to_owned));
            asked.push(variant);
        }
        let count =
            usize::from(without_requests.is_some()) + usize::from(without_sidecar.is_some());
        assert_eq!(asked.len(), count, "{case}");
        let expected = expected.map_or(QuotaConclusion::Admitted, QuotaConclusion::Rejected);
        assert_eq!(rejection.conclusion(), expected, "{case}");
    }
}

/// SAFE-7
#[test]
fn unreadable_answer_of_a_quota_counts_as_overdrawn() {
    for text in [
        "exceeded quota: q",
        "exceeded quota: q, requested: pods=1, used: pods=x, limited: pods=3",
        "exceeded quota: q, requested: pods=1, used: pods=3, limited: ",
        "exceeded quota: q, requested: , used: , limited: ",
        "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3,count/pods=3",
    ] {
        let usage = Usage::of(text);
        assert!(!usage.is_some_and(|it| it.is_full_of_pods()), "{text}");
    }
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
    let zeroed = json!(Variant::WithoutRequests.apply(&pod));
    let limit = |list: &str, index: usize| {
        zeroed["spec"][list][index]["resources"]["limits"]["memory"].clone()
    };
    let limits = [0, 1, 2].map(|index| limit("containers", index));
    assert_eq!(limits, ["0", "64Mi", "64Mi"]);
    assert_eq!(limit("initContainers", 0), "0");
}

/// SAFE-7
#[test]
fn pod_without_the_sidecar_keeps_its_requests_and_belongs_to_no_target() {
    let model = json!({"name": "model", "resources": {"requests": {"memory": "64Gi"}}});
    let pod = json!({
        "metadata": {
            "labels": {"app": "model", "asya.sh/asya": "a"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "m", "uid": "u"}],
        },
        "spec": {
            "containers": [model, {"name": "asya-runtime"}],
            "initContainers": [{"name": "asya-sidecar"}],
        },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let pod = json!(Variant::WithoutSidecar.apply(&pod));
    assert_eq!(pod["spec"]["containers"], json!([model]));
    assert_eq!(pod["spec"].get("initContainers"), None);
    assert_eq!(pod["metadata"]["labels"], json!({"app": "model"}));
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("AsyncActor"), &json!(true))
    );
}
