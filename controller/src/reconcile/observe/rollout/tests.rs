use std::time::Duration;

use asya_process::clock;
use asya_shared::resolve::{AutoscalerHandoff, ObjectRef, Related, Resolution, Scale, resolver};
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::{RolloutQuery, TargetObject, observe};
use crate::context::Context;
use crate::reconcile::model::binding::Resolved;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::{ObservedRollout, TEMPLATE_ANNOTATIONS, TemplateSidecar};
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::model::target_pods::{PodToReplace, TargetPodCounts};
use crate::reconcile::tests::fixtures::{actor, context_with, observed, verified_status};
use crate::record::Key;

fn deployment(spec: &Value, status: &Value) -> Value {
    let mut body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid", "generation": 3},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "8"}}},
            ]}},
        },
        "status": {"observedGeneration": 3, "replicas": 4, "updatedReplicas": 4},
    });
    for (key, extra) in [("spec", spec), ("status", status)] {
        body[key]
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
    }
    body
}

fn target_object(body: &Value) -> TargetObject {
    TargetObject::from_body(
        &ObjectRef::of(body).unwrap(),
        body,
        Some(&TEMPLATE_ANNOTATIONS),
    )
}

/// ROLL-2 (c), ROLL-4 (a), ROLL-6
#[test]
fn rollout_state_is_read_from_the_workload() {
    let none = json!({});
    let stable = target_object(&deployment(&none, &none));
    assert!(!stable.rolling && !stable.paused && stable.requests_gpus && stable.reduces_ready);
    assert_eq!(stable.roll_value, None);
    for (status, rolling) in [
        (json!({"observedGeneration": 2}), true),
        (json!({"updatedReplicas": 3}), true),
        (json!({"replicas": 5}), true),
        (json!({"unavailableReplicas": 2}), false),
    ] {
        assert_eq!(
            target_object(&deployment(&none, &status)).rolling,
            rolling,
            "{status}"
        );
    }
    assert!(target_object(&deployment(&json!({"paused": true}), &none)).paused);
    let surge =
        json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}});
    assert!(!target_object(&deployment(&surge, &none)).reduces_ready);
    let recreate = json!({"strategy": {"type": "Recreate"}});
    let recreate = target_object(&deployment(&recreate, &none));
    assert!(recreate.reduces_ready && recreate.needs_eviction && !stable.needs_eviction);
    assert!(recreate.recreates && recreate.would_stop_all_pods() && !stable.recreates);
    let single = json!({"replicas": 1, "strategy": {"type": "Recreate"}});
    assert!(!target_object(&deployment(&single, &none)).would_stop_all_pods());
    assert_eq!(
        (
            stable.desired_replicas,
            stable.ready,
            stable.deletes_pod_first
        ),
        (Some(4), 0, false)
    );

    let mut set = deployment(&json!({"updateStrategy": {"type": "OnDelete"}}), &none);
    set["kind"] = json!("StatefulSet");
    assert!(target_object(&set).needs_eviction && target_object(&set).deletes_pod_first);
    assert!(!target_object(&set).recreates);
    assert_eq!(target_object(&set).desired_replicas, Some(4));
    set["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    assert!(target_object(&set).needs_eviction);
    set["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    assert!(!target_object(&set).needs_eviction && !target_object(&set).rolling);
    set["status"] = json!({"observedGeneration": 3, "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 1});
    assert!(target_object(&set).rolling);
}

/// BIND-44
#[test]
fn sidecar_in_the_pod_template_is_read_with_its_actor_and_whether_it_is_ours() {
    let exported = |manager: &str| {
        let annotations = json!({"asya.sh/injected-by": "actor-uid"});
        let template =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
        let mut body = deployment(&json!({"template": template}), &json!({}));
        body["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply"}]);
        target_object(&body).template_sidecar.unwrap()
    };
    for (manager, is_ours) in [
        ("asya-operator/roll", false),
        ("asya-operator/template", true),
    ] {
        let actor = "actor-uid".into();
        assert_eq!(exported(manager), TemplateSidecar { actor, is_ours });
    }
    assert_eq!(
        target_object(&deployment(&json!({}), &json!({}))).template_sidecar,
        None
    );
}

/// ROLL-4: `spec` names the workers of each group, which an autoscaler may ignore.
#[test]
fn ray_cluster_has_the_workers_that_its_status_wants() {
    let cluster = |status: Value| {
        target_object(&json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"},
            "spec": {"replicas": 7}, "status": status,
        }))
    };
    let wanted = cluster(json!({"desiredWorkerReplicas": 3}));
    assert_eq!(wanted.desired_replicas, Some(3));
    assert_eq!(cluster(json!({})).desired_replicas, None);
}

/// The API server: serves Deployment `web`, whose template contains another actor's sidecar, and its one remaining pod.
fn served(request: &str) -> Option<(u16, Value)> {
    let none = json!({});
    let list = |items| json!({"metadata": {}, "items": items});
    let answer = match request {
        "GET /apis/apps/v1/namespaces/ns/deployments/web" => {
            let mut web = deployment(&none, &none);
            let template = &mut web["spec"]["template"];
            template["metadata"]["annotations"] = json!({"asya.sh/injected-by": "another"});
            let containers = template["spec"]["containers"].as_array_mut().unwrap();
            containers.push(json!({"name": "asya-sidecar", "image": "sidecar"}));
            web
        }
        "GET /api/v1/namespaces/ns/pods" => list(json!([{
            "metadata": {"name": "stays", "uid": "stays", "labels": {"app": "web"}},
            "status": {"phase": "Running"},
        }])),
        "GET /apis/policy/v1/namespaces/ns/poddisruptionbudgets" => list(json!([])),
        _ => return None,
    };
    Some((200, answer))
}

/// The observed rollout of Deployment `web`, whose watch still shows pods `stays` and `gone`.
async fn observed_rollout() -> ObservedRollout {
    observed_rollout_in(&context_with(served)).await
}

async fn observed_rollout_in(context: &Context) -> ObservedRollout {
    let resolved = served_target(context);
    let bound = bound_actor(false);
    let outdated = ["stays", "gone"].map(|uid| PodToReplace {
        uid: uid.into(),
        ..PodToReplace::default()
    });
    let counted = TargetPodCounts {
        outdated: outdated.to_vec(),
        all_outdated: outdated.to_vec(),
        ..TargetPodCounts::default()
    };
    let pods = TargetPods::default();
    let query = query(&bound, &resolved, &pods);
    observe(context, &bound.actor, query, counted)
        .await
        .unwrap()
}

/// What is to be observed of a target whose dry run passed.
fn query<'a>(
    bound: &'a Observed,
    resolved: &'a Resolved,
    pods: &'a TargetPods,
) -> RolloutQuery<'a> {
    RolloutQuery {
        bound: bound.desired_binding().unwrap(),
        injection_verified: true,
        probe_due: false,
        resolved,
        pods,
    }
}

/// Deployment `web`, of a kind that the API server serves.
fn served_target(context: &Context) -> Resolved {
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    context.bindings.kinds.serve("apps", "Deployment", resource);
    let web = deployment(&json!({}), &json!({}));
    let row = resolver("apps", "Deployment");
    let Resolution::Found(target) = row.resolve(&web, &Related::default()) else {
        panic!()
    };
    Resolved {
        target: *target,
        replicas: Some(4),
        spec_hash: "spec".into(),
        our_template_fields: None,
    }
}

/// Actor `ns/a`, which binds `web` and is scaled by its queue or not.
fn bound_actor(scales: bool) -> Observed {
    let binds_to = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaling = json!({"enabled": scales});
    let spec = json!({"transport": "mq", "workloadRef": binds_to, "scaling": scaling});
    observed(&actor(&json!({}), &spec, &verified_status()))
}

/// SO-5, SAFE-15: the pods that the owner replaces for the handoff are observed, and only for that.
#[tokio::test]
async fn target_without_a_due_rollout_is_read_only_while_its_handoff_changes() {
    let pods = TargetPods::default();
    for (is_set, scales, holds_slot, is_read) in [
        (Some(false), true, false, true),
        (Some(true), false, false, true),
        (Some(true), true, false, false),
        (Some(false), false, false, false),
        (Some(true), true, true, true),
        (None, true, true, false),
    ] {
        let context = context_with(served);
        let mut resolved = served_target(&context);
        if let Some(is_set) = is_set {
            let workload = resolved.target.workload.clone();
            let handoff = AutoscalerHandoff {
                owner: workload.clone(),
                is_set,
                is_propagated: true,
            };
            resolved.target.scale = Scale::HandedOff(workload, handoff);
        }
        let bound = bound_actor(scales);
        if holds_slot {
            let until = clock::now() + Duration::from_mins(5);
            context.rollout_slots.acquire(bound.key(), until);
        }
        let query = query(&bound, &resolved, &pods);
        let counted = TargetPodCounts::default();
        let rollout = observe(&context, &bound.actor, query, counted);
        let rollout = rollout.await.unwrap();
        let row = format!("{is_set:?} {scales} {holds_slot}");
        assert_eq!(!rollout.objects.is_empty(), is_read, "{row}");
    }
}

/// ROLL-4 (c)
#[tokio::test]
async fn refused_eviction_is_observed_until_it_may_be_requested_again() {
    let context = context_with(served);
    assert_eq!(observed_rollout_in(&context).await.refused_eviction, None);
    let actor = Key::new("ns", "a");
    let slots = &context.rollout_slots;
    slots.eviction_refused(&actor, "budget", clock::now());
    let refused = observed_rollout_in(&context)
        .await
        .refused_eviction
        .unwrap();
    assert_eq!(refused.message, "budget");
}

/// ROLL-2, SAFE-15
#[tokio::test]
async fn rollout_has_a_slot_while_it_holds_one_or_one_is_free() {
    for (holder, has_slot) in [
        (None, true),
        (Some(Key::new("ns", "a")), true),
        (Some(Key::new("elsewhere", "other")), false),
    ] {
        let context = context_with(served);
        if let Some(holder) = &holder {
            let until = clock::now() + Duration::from_mins(5);
            context.rollout_slots.acquire(holder, until);
        }
        let rollout = observed_rollout_in(&context).await;
        assert_eq!(rollout.has_slot, has_slot, "{holder:?}");
    }
}

/// SAFE-10
#[tokio::test]
async fn pods_missing_from_the_api_server_are_not_replaced() {
    let counted = observed_rollout().await.pod_counts;
    for pods in [&counted.outdated, &counted.all_outdated] {
        let uids: Vec<_> = pods.iter().map(|pod| &*pod.uid).collect();
        assert_eq!(uids, ["stays"]);
    }
}

/// BIND-45
#[tokio::test]
async fn dry_run_pod_has_no_sidecar_of_another_actor() {
    let pod = observed_rollout().await.probe_pod.unwrap();
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers
        .iter()
        .map(|container| &container["name"])
        .collect();
    assert_eq!(names, ["c"], "{pod}");
    let annotations = &pod["metadata"]["annotations"];
    assert!(annotations["asya.sh/injected-by"].is_null(), "{pod}");
}
