mod drain;
mod ending;
mod left_pods;
mod maybe_created;
mod outages;
mod released;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, BindingRollout, RollAnnotation, WorkloadKind};
use asya_shared::queue_claims::ClaimKind;
use asya_shared::resolve::resolver;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use tokio::time::advance;

use super::actor_pods::split_pods;
use super::children::{Children, ScalingQuery};
use super::queue::{QueueResult, failed_check};
use super::unbinding::{self, LeftBehind};
use super::{Intent, binding, desired_kind, scaled_kinds};
use crate::binding::{KindAvailability, LabelledPods};
use crate::broker::BrokerError;
use crate::broker::rechecks::QueueRechecks;
use crate::cluster::keda::CRDS;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::context::Context;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::cache_sync::keda_is_synced;
use crate::reconcile::model::observed::QueueNameTaken;
use crate::reconcile::model::observed::{Observed, ObservedQueue};
use crate::reconcile::model::rollout::{ObservedUnbinding, Unresolved};
use crate::reconcile::remember_observed;
use crate::reconcile::tests::fixtures::{actor, context, context_with, observed, record, spec};
use crate::record::{
    HpaRecord, Key, PodRecord, Projected, ScaledObjectRecord, TypedWorkload, UninjectedPodRecord,
};

/// QUE-10
#[test]
fn verified_queue_tolerates_broker_failures_until_the_third_in_a_row() {
    let rechecks = QueueRechecks::default();
    let key = Key::new("ns", "a");
    let silent = || BrokerError::Unreachable("no answer".to_owned());
    let observe = |verified, error| {
        let QueueResult { queue, failure } = failed_check(rechecks.failures(&key), verified, error);
        if let Some(error) = failure {
            rechecks.record_failure(&key, &error);
        }
        queue
    };
    let is_tolerated =
        |queue: ObservedQueue| matches!(queue, ObservedQueue::Deferred(Requeue::Backoff));
    for _ in 0..2 {
        assert!(is_tolerated(observe(true, silent())));
    }
    for _ in 0..2 {
        assert!(
            !is_tolerated(observe(true, silent())),
            "third and later failures"
        );
    }
    rechecks.clear(&key, rechecks.last_sequence());
    assert!(
        is_tolerated(observe(true, silent())),
        "an answer resets the count"
    );
    assert!(!is_tolerated(observe(false, silent())), "not verified yet");
    for error in [
        BrokerError::AuthFailed("no".to_owned()),
        BrokerError::Mismatch("other".to_owned()),
    ] {
        assert!(!is_tolerated(observe(true, error)), "not transient");
    }
}

/// STA-1, FW-23
#[test]
fn pods_of_an_orphaned_workload_are_not_the_actors() {
    let pod = |kind: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": "a", "uid": "w", "controller": true});
        let metadata = json!({
            "name": kind, "namespace": "ns", "uid": kind, "resourceVersion": "1",
            "labels": {"asya.sh/asya": "a"}, "ownerReferences": [owner],
        });
        record::<PodRecord>(&json!({"metadata": metadata}))
    };
    let pods = || vec![pod("ReplicaSet"), pod("StatefulSet")];
    let names = |pods: &[Arc<PodRecord>]| {
        let names = pods.iter().map(|pod| pod.metadata.key.name.to_string());
        names.collect::<Vec<_>>()
    };
    for (orphaned, own, others) in [
        (
            &[][..],
            vec!["ReplicaSet", "StatefulSet"],
            Vec::<&str>::new(),
        ),
        (
            &[WorkloadKind::StatefulSet],
            vec!["ReplicaSet"],
            vec!["StatefulSet"],
        ),
        (
            &[WorkloadKind::Deployment],
            vec!["StatefulSet"],
            vec!["ReplicaSet"],
        ),
        (
            &[WorkloadKind::StatefulSet, WorkloadKind::Deployment],
            vec![],
            vec!["ReplicaSet", "StatefulSet"],
        ),
    ] {
        let (actors, left) = split_pods(pods(), orphaned);
        assert_eq!(names(&actors), own, "{orphaned:?}");
        assert_eq!(names(&left), others, "{orphaned:?}");
    }
}

/// OPS-22
#[test]
fn reconcile_continues_when_a_slow_broker_is_not_queried() {
    let wait = Duration::from_secs(7);
    for verified in [true, false] {
        for _ in 0..5 {
            let full = BrokerError::TooManyWaiting("slow".to_owned(), wait);
            let QueueResult { queue, failure } = failed_check(0, verified, full);
            assert_eq!(failure, None, "nothing is wrong with the queue");
            assert!(
                matches!(queue, ObservedQueue::Deferred(Requeue::After(after)) if after == wait),
                "{queue:?}"
            );
        }
        let busy = BrokerError::TooManyCalls("slow".to_owned());
        let QueueResult { queue, failure } = failed_check(0, verified, busy);
        assert_eq!(failure, None, "nothing is wrong with the queue");
        assert!(matches!(queue, ObservedQueue::Deferred(Requeue::After(_))));
    }
}

/// SAFE-19: until the workload is found, its pods consume another actor's messages.
#[tokio::test]
async fn workload_of_a_conflicting_actor_is_looked_up_by_the_kind_in_its_spec() {
    let actor = observed(&actor(&json!({}), &spec(&json!({})), &json!({}))).actor;
    let fault = Fault::until_change(Reason::QueueConflict, "taken");
    let name_taken = |kind| QueueNameTaken {
        contested: ClaimKind::Queue,
        workload_hash: None,
        kind,
    };
    for (kind, expected) in [
        (Some(WorkloadKind::StatefulSet), WorkloadKind::StatefulSet),
        (Some(WorkloadKind::Deployment), WorkloadKind::Deployment),
        (None, WorkloadKind::Deployment),
    ] {
        let actual = desired_kind(&context(), &actor, Err(&fault), Some(&name_taken(kind)));
        assert_eq!(actual, expected);
    }
}

fn with_queue(queue: &Value) -> Observed {
    observed(&actor(
        &json!({}),
        &spec(&json!({})),
        &json!({"queue": queue}),
    ))
}

/// QUE-8 (a, c), OPS-3
#[test]
fn queue_verification_covers_name_generation_and_configuration() {
    let hash = with_queue(&json!(null)).desired.unwrap().queue_hash.clone();
    let current =
        json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": hash});
    let verified = |queue: &Value| {
        let observed = with_queue(queue);
        observed.is_verified(observed.desired.as_deref().unwrap())
    };
    assert!(verified(&current));
    for (key, value) in [
        ("transport", json!("other")),
        ("name", json!("asya-b")),
        ("verifiedGeneration", json!(1)),
        ("verifiedGeneration", json!(null)),
        ("verifiedHash", json!("hash of another configuration")),
    ] {
        let mut changed = current.clone();
        changed[key] = value;
        assert!(!verified(&changed), "{changed}");
    }
    let mut old = current;
    old["verifiedHash"] = json!(null);
    assert!(verified(&old), "written by a version that recorded no hash");
}

/// SAFE-25
#[tokio::test]
async fn only_workloads_targeted_by_a_user_autoscaler_count_as_scaled() {
    let context = context();
    let now = Timestamp::UNIX_EPOCH;
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let scaled = || scaled_kinds(&context, &observed.actor, now);
    let add_hpa = |name: &str, kind: &str, target: &str| {
        let object = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}},
        });
        let hpa: Projected<HpaRecord> = serde_json::from_str(&object.to_string()).unwrap();
        context.stores.hpas.apply(&WatchScope::Cluster, &hpa);
    };
    assert_eq!(scaled(), []);
    add_hpa("unrelated", "Deployment", "b");
    assert_eq!(scaled(), []);
    add_hpa("stateful", "StatefulSet", "a");
    assert_eq!(scaled(), [WorkloadKind::StatefulSet]);
    add_hpa("stateless", "Deployment", "a");
    assert_eq!(
        scaled(),
        [WorkloadKind::Deployment, WorkloadKind::StatefulSet]
    );
}

/// WRK-3, FIN-2: KEDA does not remove its finalizer while its operator is down, and `workload.replicas` applies all the
/// same.
#[tokio::test]
async fn scaled_object_that_keda_does_not_let_go_of_scales_nothing_after_its_time() {
    let context = context();
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let terminating = json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "ours", "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["finalizer.keda.sh"],
            "ownerReferences": [{
                "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "actor-uid", "controller": true,
            }],
        },
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
    });
    let terminating: Projected<ScaledObjectRecord> =
        serde_json::from_str(&terminating.to_string()).unwrap();
    context
        .scaled_objects
        .store
        .apply(&WatchScope::Cluster, &terminating);
    let scaled = |at: &str| scaled_kinds(&context, &observed.actor, at.parse().unwrap());
    let both = [WorkloadKind::Deployment, WorkloadKind::StatefulSet];
    assert_eq!(scaled("2026-01-01T00:00:29Z"), both);
    assert_eq!(scaled("2026-01-01T00:00:30Z"), []);
}

/// FW-23 (g): the finalizer of the garbage collector was gone before this process saw it.
#[tokio::test]
async fn actor_whose_objects_were_released_is_deleted_as_an_orphaning_one() {
    let inventory = json!({"inventory": [
        {"group": "apps", "kind": "Deployment", "name": "a", "uid": "created", "phase": "Applied"},
    ]});
    let deleting = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["asya.sh/finalizer"],
    });
    let living = json!({});
    let none = json!([]);
    let owned = json!([{
        "apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o", "controller": true,
    }]);
    for (metadata, uid, owners, is_released) in [
        (&deleting, "created", &none, true),
        (&deleting, "created", &owned, false),
        (&deleting, "another", &none, false),
        (&living, "created", &none, false),
    ] {
        let context = context();
        let observed = observed(&actor(metadata, &spec(&json!({})), &inventory));
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "namespace": "ns", "uid": uid, "resourceVersion": "7",
                "labels": {"asya.sh/workload": "deployment"}, "ownerReferences": owners,
            },
            "spec": {"template": {}},
        });
        let object: Projected<TypedWorkload<Deployment>> =
            serde_json::from_str(&object.to_string()).unwrap();
        context
            .workloads
            .deployments
            .store
            .apply(&WatchScope::Cluster, &object);
        let intent = Intent::observe(&context, observed.actor, Timestamp::UNIX_EPOCH);
        let orphans = intent.await.unwrap().deletion.orphans;
        assert_eq!(orphans, is_released, "{metadata} {uid} {owners}");
    }
}

fn bound_to_web() -> Observed {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    observed(&actor(&json!({}), &spec, &json!({})))
}

/// SO-6: the time starts when a reconcile first misses the `ScaledObject` that status names, and only without KEDA.
#[tokio::test(start_paused = true)]
async fn scaled_object_that_went_away_with_keda_is_timed_until_status_no_longer_names_it() {
    let context = context();
    let mut observed = bound_to_web();
    let reference = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let scaled: AsyncActorStatus = serde_json::from_value(reference).unwrap();
    let never = AsyncActorStatus::default();
    let seconds = Duration::from_secs;
    let mut lost_for = async |previous: &AsyncActorStatus| {
        let children = Children {
            context: &context,
            ownership: &observed.ownership,
            bypasses_cache: false,
        };
        let found = children.scaling(ScalingQuery {
            objects: None,
            target: "web",
            was_scaled: previous.scaled_object_ref.is_some(),
        });
        observed.scaling = found.await.unwrap();
        remember_observed(&context, &observed);
        advance(seconds(1)).await;
        observed.scaling.lost_for
    };
    assert!(!context.keda.is_installed());
    for (previous, expected) in [
        (&never, None),
        (&scaled, Some(seconds(0))),
        (&scaled, Some(seconds(1))),
        (&scaled, Some(seconds(2))),
        (&never, None),
        (&scaled, Some(seconds(0))),
    ] {
        assert_eq!(lost_for(previous).await, expected);
    }
    context.forget(&Key::new("ns", "a"));
    assert_eq!(lost_for(&scaled).await, Some(seconds(0)), "another actor");
    install_keda(&context);
    assert_eq!(lost_for(&scaled).await, None, "a user deleted it");
}

fn install_keda(context: &Context) {
    for ((name, _), crd) in CRDS.into_iter().zip(&context.keda.crds) {
        let served = json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
            "status": {"conditions": [{"type": "Established", "status": "True"}]},
        });
        crd.apply(
            &WatchScope::Cluster,
            &serde_json::from_str(&served.to_string()).unwrap(),
        );
    }
    context.keda.refresh();
    context
        .scaled_objects
        .store
        .list_completed(&WatchScope::Cluster);
    context
        .trigger_authentications
        .store
        .list_completed(&WatchScope::Cluster);
    assert!(keda_is_synced(context, "ns"));
}

/// SAFE-10, SAFE-18
#[tokio::test]
async fn finished_pod_with_a_sidecar_is_ignored() {
    let context = context();
    let observed = bound_to_web();
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    WatchSink::<UninjectedPodRecord>::init_done(&*context.bindings, &WatchScope::Cluster);
    for (name, phase) in [
        ("runs", "Running"),
        ("evicted", "Failed"),
        ("ended", "Succeeded"),
    ] {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "labels": {"pod-template-hash": "abc", "asya.sh/asya": "a"},
                "annotations": {"asya.sh/injected-by": "actor-uid"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs", "controller": true}],
            },
            "status": {"phase": phase},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&WatchScope::Cluster, &pod);
    }
    labelled_pods.init_done(&WatchScope::Cluster);
    let expected = resolver("apps", "Deployment").unresolved_pods("web");
    let pods = binding::target_pods(&context, &observed.actor, &expected).unwrap();
    let names: Vec<_> = pods
        .labelled
        .iter()
        .map(|it| &*it.metadata.key.name)
        .collect();
    assert_eq!(names, ["runs"]);
}

/// BIND-44: what we wrote to a target whose kind may not be read is still there.
#[tokio::test]
async fn actor_whose_targets_kind_may_not_be_read_is_not_deleted_as_if_it_were_gone() {
    fn namespace(request: &str) -> Option<(u16, Value)> {
        request
            .starts_with("GET /api/v1/namespaces/ns")
            .then(|| (200, json!({"metadata": {"name": "ns"}})))
    }
    let context = context_with(namespace);
    let target =
        json!({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "m"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let actor = observed(&actor(&json!({}), &spec, &json!({}))).actor;
    context.bindings.refresh(&actor.metadata.key, Some(&actor));
    let left_behind = LeftBehind::default();
    let observe = async || {
        let rollout = BindingRollout::Always;
        unbinding::observe(&context, &actor, left_behind, rollout, &[])
            .await
            .unwrap()
            .unwrap()
    };
    let kinds = &context.bindings.kinds;
    let rule = KindAvailability::Forbidden("- apiGroups: [serving.kserve.io]".into());
    kinds.set("serving.kserve.io", "InferenceService", rule);
    let Some(Unresolved::Forbidden(text)) = observe().await.unresolved else {
        panic!("it may not be read");
    };
    assert!(text.contains("- apiGroups: [serving.kserve.io]"), "{text}");
    let not_installed = KindAvailability::NotInstalled;
    kinds.set("serving.kserve.io", "InferenceService", not_installed);
    assert_eq!(observe().await.unresolved, None, "it is gone");
}

/// SAFE-19
#[tokio::test]
async fn annotation_recorded_in_status_is_found_on_an_object_outside_the_target() {
    fn web(request: &str) -> Option<(u16, Value)> {
        let web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "uid": "uid"},
            "spec": {"template": {"metadata": {"annotations": {"asya.sh/roll": "v"}}}},
        });
        let not_found =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        match request.strip_prefix("GET /apis/apps/v1/namespaces/ns/deployments/")? {
            "web" => Some((200, web)),
            _ => Some((404, not_found)),
        }
    }
    let context = context_with(web);
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    context.bindings.kinds.serve("apps", "Deployment", resource);
    let roll = "spec.template.metadata.annotations";
    for (name, uid, path, expected) in [
        ("web", "uid", roll, Some("v")),
        ("web", "another-uid", roll, None),
        ("web", "uid", "metadata.annotations", None),
        ("gone", "uid", roll, None),
    ] {
        let annotation = RollAnnotation {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
            uid: Some(uid.to_owned()),
            path: path.to_owned(),
        };
        let mut unbinding = ObservedUnbinding::default();
        let result = unbinding
            .find_stale_annotations(&context, "ns", &[annotation])
            .await;
        result.unwrap();
        let values: Vec<_> = unbinding
            .objects
            .iter()
            .map(|it| it.roll_value.as_deref())
            .collect();
        let expected: Vec<_> = expected.iter().map(|kind| Some(*kind)).collect();
        assert_eq!(values, expected, "{name} {uid} {path}");
        assert_eq!(unbinding.stale_objects.len(), expected.len());
    }
}
