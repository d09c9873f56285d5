use std::sync::Arc;

use asya_shared::inject::bound::InjectionReason;
use serde_json::{Value, json};

use super::PodReviewer;
use crate::events::PodEventReason;
use crate::index::Index;
use crate::outcome::{ReviewOutcome, ReviewPath, ReviewReason, ReviewResult};
use crate::review::AdmissionRequest;
use crate::testing::{bound, index_actor, installation, pod, pod_review};

/// A reviewer with two bindings, of which `strict` requires the sidecar.
struct Fixture {
    reviewer: PodReviewer,
}

impl Fixture {
    fn new() -> Self {
        let index = Arc::new(Index::new(installation()));
        index.init();
        index_actor(&index, &bound("models", "mild", "mild"));
        let mut strict = bound("models", "strict", "strict");
        strict["spec"]["binding"] = json!({"required": true});
        index_actor(&index, &strict);
        index.init_done();
        Self {
            reviewer: PodReviewer {
                namespace: "asya-system".to_owned(),
                index,
            },
        }
    }

    fn review(&self, path: ReviewPath, review: &str) -> ReviewOutcome {
        self.reviewer
            .review(path, &AdmissionRequest::read(review.as_bytes()).unwrap())
    }

    fn create(&self, path: ReviewPath, pod: &Value) -> ReviewOutcome {
        self.review(path, &pod_review("models", pod, false))
    }
}

fn patch(outcome: &ReviewOutcome) -> Value {
    let patch = outcome.response.patch.as_ref().expect("a patch");
    serde_json::from_slice(patch).unwrap()
}

fn is_silent(outcome: &ReviewOutcome) -> bool {
    let response = &outcome.response;
    (&response.denied, &response.patch, &outcome.event) == (&None, &None, &None)
        && response.warnings.is_empty()
}

/// INJ-1, INJ-3, OBS-2: only the review has the pod's namespace.
#[test]
fn bound_pod_is_injected_with_an_event() {
    let fixture = Fixture::new();
    for (path, name) in [
        (ReviewPath::Optional, "mild"),
        (ReviewPath::Required, "strict"),
    ] {
        let outcome = fixture.create(path, &pod(name));
        assert_eq!(outcome.reason, ReviewReason::Pod(InjectionReason::Injected));
        assert_eq!(outcome.result(), ReviewResult::Patched);
        let text = patch(&outcome).to_string();
        assert!(
            text.contains("asya-sidecar") && text.contains("asya-runtime"),
            "{text}"
        );
        let event = outcome.event.expect("an Event");
        assert_eq!(event.event_reason, PodEventReason::Injected);
        assert_eq!((&*event.namespace, &*event.actor.name), ("models", name));
        let owner = event.owner.expect("the ReplicaSet");
        assert_eq!(
            (&*owner.kind, &*owner.uid),
            ("ReplicaSet", "uid-of-replica-set")
        );
    }
    let elsewhere = fixture.review(
        ReviewPath::Optional,
        &pod_review("other", &pod("mild"), false),
    );
    assert_eq!(
        elsewhere.reason,
        ReviewReason::Pod(InjectionReason::NoActor)
    );
}

/// INJ-11
#[test]
fn injection_ignores_user_and_service_account() {
    let fixture = Fixture::new();
    let patch_for = |user: &Value, account: &str| {
        let mut pod = pod("mild");
        pod["spec"]["serviceAccountName"] = json!(account);
        let mut review: Value = serde_json::from_str(&pod_review("models", &pod, false)).unwrap();
        review["request"]["userInfo"] = user.clone();
        fixture
            .review(ReviewPath::Optional, &review.to_string())
            .response
            .patch
    };
    let controller = json!({"username": "system:serviceaccount:kube-system:replicaset-controller"});
    let patched = patch_for(&controller, "default");
    assert!(patched.is_some());
    for user in [
        json!(null),
        json!({"username": "jane", "groups": ["system:masters"]}),
        json!({"username": "system:serviceaccount:kserve:kserve-controller-manager", "uid": "7"}),
    ] {
        assert_eq!(patch_for(&user, "model"), patched, "{user}");
    }
}

/// INJ-2: after a change of `binding.required`, a pod may still arrive on the path of the previous webhook entry.
#[test]
fn pod_gets_the_sidecar_once_whatever_paths_it_arrives_by() {
    let fixture = Fixture::new();
    let paths = [ReviewPath::Optional, ReviewPath::Required];
    for (first, second) in [(paths[0], paths[1]), (paths[1], paths[0])] {
        for name in ["mild", "strict"] {
            let mut pod = pod(name);
            let outcome = fixture.create(first, &pod);
            let injected = ReviewReason::Pod(InjectionReason::Injected);
            assert_eq!(outcome.reason, injected, "{first:?} {name}");
            let steps: json_patch::Patch = serde_json::from_value(patch(&outcome)).unwrap();
            json_patch::patch(&mut pod, &steps).unwrap();
            let again = fixture.create(second, &pod);
            let already = ReviewReason::Pod(InjectionReason::AlreadyInjected);
            assert_eq!(again.reason, already, "{second:?} {name}");
            assert!(is_silent(&again), "{again:?}");
        }
    }
}

/// INJ-2, SAFE-8: the actor, not the webhook entry that was called, decides whether a pod may start without the
/// sidecar.
#[test]
fn pod_that_cannot_be_injected_is_denied_on_either_path_only_if_the_sidecar_is_required() {
    let fixture = Fixture::new();
    for path in [ReviewPath::Optional, ReviewPath::Required] {
        for (name, result) in [
            ("mild", ReviewResult::Patched),
            ("strict", ReviewResult::Denied),
        ] {
            let mut pod = pod(name);
            pod["spec"]["hostNetwork"] = json!(true);
            let outcome = fixture.create(path, &pod);
            assert_eq!(outcome.result(), result, "{path:?} {name}");
        }
    }
}

/// ADM-4
#[test]
fn dry_run_gets_the_same_response_without_an_event() {
    let fixture = Fixture::new();
    let stored = fixture.create(ReviewPath::Optional, &pod("mild"));
    let dry_run = fixture.review(
        ReviewPath::Optional,
        &pod_review("models", &pod("mild"), true),
    );
    assert_eq!(dry_run.response.patch, stored.response.patch);
    assert_eq!((dry_run.reason, &dry_run.event), (stored.reason, &None));
    assert!(stored.event.is_some());
}

/// INJ-1, OBS-2
#[test]
fn pod_that_cannot_be_injected_is_annotated_or_denied() {
    let fixture = Fixture::new();
    let not_injectable = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["hostNetwork"] = json!(true);
        pod
    };
    let annotated = fixture.create(ReviewPath::Optional, &not_injectable("mild"));
    assert_eq!(
        annotated.reason,
        ReviewReason::Pod(InjectionReason::HostNetwork)
    );
    assert!(
        patch(&annotated)
            .to_string()
            .contains("asya.sh/not-injected")
    );
    assert_eq!(annotated.response.warnings.len(), 1);
    let event = annotated.event.expect("an Event");
    assert_eq!(
        (event.event_reason, event.cause),
        (PodEventReason::InjectionSkipped, "HostNetwork")
    );
    assert!(event.text.contains("hostNetwork"), "{}", event.text);

    let denied_outcome = fixture.create(ReviewPath::Required, &not_injectable("strict"));
    assert_eq!(
        denied_outcome.reason,
        ReviewReason::Pod(InjectionReason::HostNetwork)
    );
    let denied = denied_outcome.response.denied.as_ref().expect("denied");
    assert_eq!(denied.code, 403);
    assert_eq!(denied_outcome.result(), ReviewResult::Denied);
    let event = denied_outcome.event.expect("an Event");
    assert_eq!(
        (event.event_reason, event.text),
        (PodEventReason::InjectionDenied, denied.message.clone())
    );
}

/// INJ-7
#[test]
fn injected_pod_is_not_patched_again() {
    let fixture = Fixture::new();
    let mut pod = pod("mild");
    let steps = patch(&fixture.create(ReviewPath::Optional, &pod));
    let steps: json_patch::Patch = serde_json::from_value(steps).unwrap();
    json_patch::patch(&mut pod, &steps).unwrap();
    let again = fixture.create(ReviewPath::Optional, &pod);
    assert_eq!(
        again.reason,
        ReviewReason::Pod(InjectionReason::AlreadyInjected)
    );
    assert_eq!(again.result(), ReviewResult::Empty);
    assert!(is_silent(&again), "{again:?}");
}

/// INJ-1, CFG-5; BIND-2: the namespaces where an actor cannot bind are those where no pod is injected.
#[test]
fn excluded_namespaces_and_unbound_pods_are_allowed_silently() {
    let fixture = Fixture::new();
    for namespace in [
        "asya-system",
        "kube-system",
        "kube-public",
        "kube-node-lease",
        "kube-flannel",
    ] {
        index_actor(&fixture.reviewer.index, &bound(namespace, "in", "mild"));
        let outcome = fixture.review(
            ReviewPath::Optional,
            &pod_review(namespace, &pod("mild"), false),
        );
        assert_eq!(
            outcome.reason,
            ReviewReason::Pod(InjectionReason::NotServed),
            "{namespace}"
        );
        assert!(is_silent(&outcome));
    }
    for namespace in ["kubeflow", "kube", "my-kube-system"] {
        index_actor(&fixture.reviewer.index, &bound(namespace, "in", "mild"));
        let review = pod_review(namespace, &pod("mild"), false);
        let outcome = fixture.review(ReviewPath::Optional, &review);
        let reason = ReviewReason::Pod(InjectionReason::Injected);
        assert_eq!(outcome.reason, reason, "{namespace}");
    }
    let outcome = fixture.create(ReviewPath::Optional, &pod("unbound"));
    assert_eq!(outcome.reason, ReviewReason::Pod(InjectionReason::NoActor));
    assert!(is_silent(&outcome));
}

/// ADM-3
#[test]
fn undecodable_pod_is_handled_by_the_policy_of_the_path() {
    let fixture = Fixture::new();
    for undecodable in [
        json!({"spec": 7}),
        json!({"spec": {"containers": "x"}}),
        Value::Null,
    ] {
        let outcome = fixture.create(ReviewPath::Optional, &undecodable);
        assert_eq!(
            outcome.reason,
            ReviewReason::Pod(InjectionReason::Unreadable),
            "{undecodable}"
        );
        assert_eq!(
            (&outcome.response.denied, outcome.response.warnings.len()),
            (&None, 1)
        );
        let outcome = fixture.create(ReviewPath::Required, &undecodable);
        assert_eq!(
            outcome.response.denied.expect("denied").code,
            422,
            "{undecodable}"
        );
    }
}

/// ADM-3
#[test]
fn unserved_requests_are_allowed_with_a_warning() {
    let fixture = Fixture::new();
    for change in ["/operation", "/subResource", "/resource/resource"] {
        let mut review: Value =
            serde_json::from_str(&pod_review("models", &pod("mild"), false)).unwrap();
        let request = review["request"].as_object_mut().unwrap();
        request.insert("subResource".to_owned(), json!(""));
        *review["request"].pointer_mut(change).unwrap() = json!("odd");
        let outcome = fixture.review(ReviewPath::Required, &review.to_string());
        assert_eq!(outcome.reason, ReviewReason::NotServed, "{change}");
        assert_eq!(
            (&outcome.response.denied, outcome.response.warnings.len()),
            (&None, 1)
        );
    }
}

/// ADM-3
#[test]
fn policy_of_the_path_decides_before_the_cache_is_synced() {
    let fixture = Fixture {
        reviewer: PodReviewer {
            namespace: "asya-system".to_owned(),
            index: Arc::new(Index::new(installation())),
        },
    };
    let mild = fixture.create(ReviewPath::Optional, &pod("mild"));
    assert_eq!(
        (mild.reason, mild.result()),
        (ReviewReason::NotSynced, ReviewResult::Error)
    );
    assert_eq!(
        (mild.response.denied, mild.response.warnings.len()),
        (None, 1)
    );
    let strict = fixture.create(ReviewPath::Required, &pod("strict"));
    assert_eq!(strict.response.denied.expect("denied").code, 500);
}

/// BIND-3, BIND-43
#[test]
fn pods_of_an_unbound_or_deleting_actor_are_not_injected() {
    let fixture = Fixture::new();
    let mut unbound = bound("models", "mild", "mild");
    unbound["status"] = json!({});
    index_actor(&fixture.reviewer.index, &unbound);
    let outcome = fixture.create(ReviewPath::Optional, &pod("mild"));
    assert_eq!(
        outcome.reason,
        ReviewReason::Pod(InjectionReason::NotBoundYet)
    );
    assert!(is_silent(&outcome));

    let mut deleting = bound("models", "mild", "mild");
    deleting["metadata"]["deletionTimestamp"] = json!("2026-05-04T11:00:00Z");
    index_actor(&fixture.reviewer.index, &deleting);
    let outcome = fixture.create(ReviewPath::Optional, &pod("mild"));
    assert_eq!(
        outcome.reason,
        ReviewReason::Pod(InjectionReason::ActorDeleting)
    );
    assert!(is_silent(&outcome));
}

/// ROLL-8 (b)
#[test]
fn changed_scripts_change_the_patch() {
    let fixture = Fixture::new();
    let hash = |scripts: &str| {
        fixture.reviewer.index.set_scripts_hash(scripts);
        patch(&fixture.create(ReviewPath::Optional, &pod("mild"))).to_string()
    };
    let (one, two) = (hash("1111"), hash("2222"));
    assert_ne!(one, two);
    assert_eq!(hash("1111"), one);
}

/// SAFE-2
#[test]
fn only_a_dry_run_counts_as_a_probe() {
    let fixture = Fixture::new();
    let mut unverified = bound("models", "new", "new");
    unverified["status"]["injection"] = json!({});
    index_actor(&fixture.reviewer.index, &unverified);
    let mut probe = pod("new");
    probe["metadata"]["annotations"] = json!({"asya.sh/probe": "uid-of-new"});
    let reason = |dry_run| {
        let review = pod_review("models", &probe, dry_run);
        fixture.review(ReviewPath::Optional, &review).reason
    };
    assert_eq!(reason(true), ReviewReason::Pod(InjectionReason::Injected));
    assert_eq!(
        reason(false),
        ReviewReason::Pod(InjectionReason::NotProved),
        "the pod would be stored"
    );
}
