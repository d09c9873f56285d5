//! Pods with a sidecar that outlive an actor: its own, and those that an earlier one of its name left.

use std::sync::Arc;

use asya_process::clock;
use asya_shared::api::{BindingRollout, WorkloadKind};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::bound_to_web;
use crate::binding::LabelledPods;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::reconcile::observe::actor_pods::ActorPods;
use crate::reconcile::observe::unbinding::{self, LeftBehind};
use crate::reconcile::plan::deletion::{plan_deletion, plan_deletion_steps};
use crate::reconcile::plan::unbind::UnbindStep;
use crate::reconcile::tests::fixtures::{actor, context, context_with, observed, slot_end, spec};
use crate::record::{ActorRecord, Key, PodRecord, Projected, TypedWorkload};

/// BIND-43, FW-23 (e): a sidecar without a queue fails its pod.
#[tokio::test]
async fn pods_that_an_earlier_actor_left_may_receive_from_the_queue_in_whichever_mode_either_is() {
    let context = context();
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    for (name, uid, container, phase, owner) in [
        ("own", Some("actor-uid"), "asya-sidecar", "Running", "web-1"),
        (
            "bound",
            Some("earlier-uid"),
            "asya-sidecar",
            "Running",
            "web-1",
        ),
        (
            "ended",
            Some("earlier-uid"),
            "asya-sidecar",
            "Failed",
            "web-1",
        ),
        (
            "copied-annotation",
            Some("earlier-uid"),
            "model",
            "Running",
            "web-1",
        ),
        ("standalone", None, "asya-sidecar", "Running", "a-1"),
        (
            "copied-template",
            Some("earlier-uid"),
            "asya-sidecar",
            "Running",
            "a-1",
        ),
    ] {
        let annotations = uid.map(|uid| json!({"asya.sh/injected-by": uid}));
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true,
        });
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"}, "annotations": annotations.unwrap_or_else(|| json!({})),
                "ownerReferences": [owner],
            },
            "spec": {"containers": [{"name": "asya-runtime"}, {"name": container}]},
            "status": {"phase": phase},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&WatchScope::Cluster, &pod);
    }
    labelled_pods.init_done(&WatchScope::Cluster);
    let names = |mut pods: Vec<Arc<PodRecord>>| {
        pods.sort_by(|a, b| a.metadata.key.cmp(&b.metadata.key));
        let names = pods.iter().map(|it| it.metadata.key.name.to_string());
        names.collect::<Vec<_>>()
    };
    let standalone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    for (case, actor, orphaned, own, left) in [
        (
            "bound",
            bound_to_web().actor,
            &[][..],
            &[][..],
            &["bound", "copied-template", "standalone"][..],
        ),
        (
            "standalone",
            standalone.actor.clone(),
            &[],
            &["copied-template", "standalone"],
            &["bound"],
        ),
        (
            "beside an orphan",
            standalone.actor,
            &[WorkloadKind::Deployment],
            &[],
            &["bound", "copied-template", "standalone"],
        ),
    ] {
        let pods = ActorPods::list(&context, &actor, orphaned);
        assert_eq!(names(pods.own), own, "{case}");
        assert_eq!(names(pods.predecessors), left, "{case}");
    }
}

/// FW-23 (e): the later actor has the kind of the one that was orphaned, and may not adopt its Deployment.
#[tokio::test]
async fn queue_of_a_later_actor_is_kept_for_pods_of_a_workload_of_its_own_kind_that_is_not_its_own()
{
    for is_left in [false, true] {
        let context = context();
        let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
        let replica_set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a-1", "uid": "rs", "controller": true,
        });
        let pod = json!({
            "metadata": {
                "name": "a-1-p", "namespace": "ns", "uid": "p", "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"}, "ownerReferences": [replica_set],
            },
            "status": {"phase": "Running"},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&WatchScope::Cluster, &pod);
        labelled_pods.init_done(&WatchScope::Cluster);
        let owner = json!({
            "apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "actor-uid", "controller": true,
        });
        let owners = if is_left { json!([]) } else { json!([owner]) };
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "d", "resourceVersion": "7",
                "labels": {"asya.sh/workload": "deployment"}, "ownerReferences": owners,
            },
            "spec": {"template": {}},
        });
        let deployment: Projected<TypedWorkload<Deployment>> =
            serde_json::from_str(&deployment.to_string()).unwrap();
        let deployments = &context.workloads.deployments.store;
        deployments.apply(&WatchScope::Cluster, &deployment);
        let stored = json!({
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "actor-uid", "resourceVersion": "1", "generation": 1,
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["asya.sh/finalizer"],
            },
            "spec": spec(&json!({})),
        });
        let stored: Projected<ActorRecord> = serde_json::from_str(&stored.to_string()).unwrap();
        context.stores.actors.apply(&WatchScope::Cluster, &stored);
        let now = clock::now();
        let observed = super::super::observe(&context, &Key::new("ns", "a"), now).await;
        let plan = plan_deletion(&observed.unwrap().unwrap(), now);
        assert_eq!(!plan.left_pods().is_empty(), is_left);
    }
}

/// FW-22: their StatefulSet was deleted without them.
#[tokio::test]
async fn pods_that_nothing_controls_may_receive_from_the_queue_until_they_are_adopted() {
    let context = context();
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    for (name, phase, controller) in [
        ("a-0", "Running", true),
        ("a-1", "Running", false),
        ("a-2", "Failed", false),
    ] {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "a", "uid": "set", "controller": controller,
        });
        let labels = json!({"app": "a", "asya.sh/asya": "a", "asya.sh/workload": "statefulset"});
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "labels": labels,
                "ownerReferences": [owner],
            },
            "status": {"phase": phase},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&WatchScope::Cluster, &pod);
    }
    labelled_pods.init_done(&WatchScope::Cluster);
    let standalone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    for (actor, own) in [
        (standalone.actor, &["a-0"][..]),
        (bound_to_web().actor, &[]),
    ] {
        let pods = ActorPods::list(&context, &actor, &[]);
        let names = |pods: &[Arc<PodRecord>]| {
            let names = pods.iter().map(|it| it.metadata.key.name.to_string());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&pods.own), own);
        assert_eq!(names(&pods.unmanaged), ["a-1"]);
    }

    let stored = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": spec(&json!({})),
    });
    let stored: Projected<ActorRecord> = serde_json::from_str(&stored.to_string()).unwrap();
    context.stores.actors.apply(&WatchScope::Cluster, &stored);
    let key = Key::new("ns", "a");
    let observed = super::super::observe(&context, &key, clock::now()).await;
    let observed = observed.unwrap().unwrap();
    assert_eq!(observed.unmanaged_pods.len(), 1);
}

/// BIND-44: a user has taken one out of its workload.
#[tokio::test]
async fn pod_without_a_controller_blocks_unbinding_and_is_not_among_those_to_evict() {
    let context = context_with(|_| Some((200, json!({"metadata": {"name": "ns"}}))));
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": true,
    });
    for (name, owners) in [
        ("managed", json!([owner])),
        ("bare", json!([])),
        ("other", json!([])),
    ] {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"}, "ownerReferences": owners,
                "annotations": {"asya.sh/injected-by": "actor-uid"},
            },
            "spec": {"containers": [{"name": "asya-runtime"}, {"name": "asya-sidecar"}]},
        });
        let pod: Projected<PodRecord> = serde_json::from_str(&pod.to_string()).unwrap();
        labelled_pods.apply(&WatchScope::Cluster, &pod);
    }
    labelled_pods.init_done(&WatchScope::Cluster);
    let mut observed = bound_to_web();
    let rollout = BindingRollout::Always;
    let actor = &observed.actor;
    let unbinding = unbinding::observe(&context, actor, LeftBehind::default(), rollout, &[]).await;
    let mut unbinding = unbinding.unwrap().unwrap();
    let names: Vec<_> = unbinding.pods.iter().map(|pod| &*pod.name).collect();
    assert_eq!(names, ["managed"]);
    assert_eq!(unbinding.unmanaged_pod.as_deref(), Some("bare"));

    unbinding.pods.clear();
    observed.binding = Some(unbinding.into());
    let step = plan_deletion_steps(&observed, Timestamp::UNIX_EPOCH).unbind;
    let UnbindStep::Blocked(text) = step else {
        panic!("{step:?}");
    };
    assert!(text.contains("pod bare"), "{text}");
}

/// A Deployment that we annotated, its pod, and a budget that allows no disruption of it.
fn rolled_by_annotation(request: &str) -> Option<(u16, Value)> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-1-a", "namespace": "ns", "uid": "web-1-a",
            "labels": {"app": "web", "pod-template-hash": "1"}, "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": true,
            }],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let template =
        json!({"metadata": {"labels": {"app": "web"}, "annotations": {"asya.sh/roll": "hash"}}});
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = json!({
        "metadata": {"name": "models", "namespace": "ns"}, "spec": {"selector": selector},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    let list = |items: Value| json!({"metadata": {"resourceVersion": "1"}, "items": items});
    let object = match request.strip_prefix("GET ")? {
        "/api/v1/namespaces/ns" => json!({"metadata": {"name": "ns"}}),
        "/apis/apps/v1/namespaces/ns/deployments/web" => json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "ns", "uid": "web", "resourceVersion": "1"},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        }),
        "/api/v1/namespaces/ns/pods" => list(json!([pod])),
        "/apis/policy/v1/namespaces/ns/poddisruptionbudgets" => list(json!([budget])),
        _ => return None,
    };
    Some((200, object))
}

/// SAFE-15, ROLL-2 (d): the slot is that of all targets, and the budget that of the pods to be replaced.
#[tokio::test]
async fn unbinding_observes_the_slot_and_the_budget_that_limit_it() {
    let context = context_with(rolled_by_annotation);
    let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let kinds = &context.bindings.kinds;
    kinds.serve("apps", "Deployment", ApiResource::from_gvk(&deployment));
    let labelled_pods = LabelledPods::new(&context.stores.pods, &context.bindings);
    labelled_pods.init_done(&WatchScope::Cluster);
    let actor = bound_to_web().actor;
    context.bindings.refresh(&actor.metadata.key, Some(&actor));
    let observe = async || {
        let rollout = BindingRollout::Always;
        let unbinding =
            unbinding::observe(&context, &actor, LeftBehind::default(), rollout, &[]).await;
        unbinding.unwrap().unwrap()
    };
    // Pods of the annotated template restart as well, if they have no sidecar.
    let free = observe().await;
    assert!(free.pods.is_empty() && free.has_target_pods());
    assert!(free.limits.has_slot);
    assert_eq!(free.limits.blocking_pdb.as_deref(), Some("models"));
    assert_eq!(free.limits.refused_eviction, None);
    let slots = &context.rollout_slots;
    slots.eviction_refused(&actor.metadata.key, "budget", clock::now());
    slots.acquire(&Key::new("ns", "other"), slot_end());
    let limits = observe().await.limits;
    assert!(!limits.has_slot, "another target has the only one");
    let refused = limits.refused_eviction.unwrap();
    assert_eq!(refused.message, "budget");
}
