use std::time::Duration;

use asya_shared::api::{RollAnnotation, WorkloadKind};
use asya_shared::resolve::resolver;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::queue::not_seen;
use super::{binding, scaled_kinds, wanted_kind};
use crate::binding::MarkedPods;
use crate::broker::BrokerError;
use crate::broker::health::QueueRechecks;
use crate::cluster::watch::WatchSink;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::model::observed::Contested;
use crate::reconcile::model::observed::{Observed, QueueSeen};
use crate::reconcile::model::rollout::UnbindingSeen;
use crate::reconcile::tests::fixtures::{actor, context, context_with, observed, spec};
use crate::record::{HpaRecord, Key, PodRecord, Projected, UninjectedPodRecord};

/// QUE-10
#[test]
fn verified_queue_tolerates_broker_failures_until_the_third_in_a_row() {
    let (rechecks, key) = (QueueRechecks::default(), Key::new("ns", "a"));
    let silent = || BrokerError::Unreachable("no answer".to_owned());
    let seen = |verified, error| {
        let (seen, failed) = not_seen(rechecks.failures(&key), verified, error);
        if let Some(error) = failed {
            rechecks.unanswered(&key, &error);
        }
        seen
    };
    let tolerated = |seen: QueueSeen| matches!(seen, QueueSeen::Unanswered(Requeue::Backoff));
    for _ in 0..2 {
        assert!(tolerated(seen(true, silent())));
    }
    for _ in 0..2 {
        assert!(!tolerated(seen(true, silent())), "the third, and so on");
    }
    rechecks.settle(&key, rechecks.now());
    assert!(tolerated(seen(true, silent())), "an answer begins anew");
    assert!(!tolerated(seen(false, silent())), "not verified yet");
    for error in [
        BrokerError::AuthFailed("no".to_owned()),
        BrokerError::Mismatch("other".to_owned()),
    ] {
        assert!(!tolerated(seen(true, error)), "it will not pass by itself");
    }
}

/// OPS-22
#[test]
fn reconcile_continues_when_a_slow_broker_is_not_asked() {
    let wait = Duration::from_secs(7);
    for verified in [true, false] {
        for _ in 0..5 {
            let crowded = BrokerError::Crowded("slow".to_owned(), wait);
            let (seen, failed) = not_seen(0, verified, crowded);
            assert_eq!(failed, None, "nothing is wrong with the queue");
            assert!(
                matches!(seen, QueueSeen::Unanswered(Requeue::After(after)) if after == wait),
                "{seen:?}"
            );
        }
        let busy = BrokerError::Busy("slow".to_owned());
        let (seen, failed) = not_seen(0, verified, busy);
        assert_eq!(failed, None, "nothing is wrong with the queue");
        assert!(matches!(seen, QueueSeen::Unanswered(Requeue::After(_))));
    }
}

/// SAFE-19: until the workload is found, its pods consume another actor's messages.
#[tokio::test]
async fn contested_actors_workload_is_looked_up_by_the_kind_in_its_spec() {
    let actor = observed(&actor(&json!({}), &spec(&json!({})), &json!({}))).actor;
    let fault = Fault::until_change(Reason::QueueConflict, "taken");
    let contested = |kind| Contested {
        queue: true,
        workload: None,
        kind,
    };
    for (kind, wanted) in [
        (Some(WorkloadKind::StatefulSet), WorkloadKind::StatefulSet),
        (Some(WorkloadKind::Deployment), WorkloadKind::Deployment),
        (None, WorkloadKind::Deployment),
    ] {
        let found = wanted_kind(&context(), &actor, Err(&fault), Some(&contested(kind)));
        assert_eq!(found, wanted);
    }
}

fn with_queue(queue: &Value) -> Observed {
    observed(&actor(
        &json!({}),
        &spec(&json!({})),
        &json!({"queue": queue}),
    ))
}

/// QUE-8, OPS-3
#[test]
fn queue_verification_covers_name_generation_and_configuration() {
    let hash = with_queue(&json!(null)).desired.unwrap().queue_hash.clone();
    let good =
        json!({"transport": "mq", "name": "asya-a", "verifiedGeneration": 2, "verifiedHash": hash});
    let verified = |queue: &Value| {
        let observed = with_queue(queue);
        observed.is_verified(observed.desired.as_deref().unwrap())
    };
    assert!(verified(&good));
    for (key, value) in [
        ("transport", json!("other")),
        ("name", json!("asya-b")),
        ("verifiedGeneration", json!(1)),
        ("verifiedGeneration", json!(null)),
        ("verifiedHash", json!("of another configuration")),
    ] {
        let mut changed = good.clone();
        changed[key] = value;
        assert!(!verified(&changed), "{changed}");
    }
    let mut old = good;
    old["verifiedHash"] = json!(null);
    assert!(verified(&old), "of a release that kept no hash");
}

/// SAFE-25
#[tokio::test]
async fn only_workloads_targeted_by_a_user_autoscaler_count_as_scaled() {
    let (context, now) = (context(), Timestamp::UNIX_EPOCH);
    let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let scaled = || scaled_kinds(&context, &seen.actor, now);
    let shown = |name: &str, kind: &str, target: &str| {
        let object = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target}},
        });
        let hpa: Projected<HpaRecord> = serde_json::from_str(&object.to_string()).unwrap();
        context.stores.hpas.show(&None, &hpa);
    };
    assert_eq!(scaled(), []);
    shown("another", "Deployment", "b");
    assert_eq!(scaled(), []);
    shown("theirs", "StatefulSet", "a");
    assert_eq!(scaled(), [WorkloadKind::StatefulSet]);
    shown("too", "Deployment", "a");
    assert_eq!(
        scaled(),
        [WorkloadKind::Deployment, WorkloadKind::StatefulSet]
    );
}

/// SAFE-10, SAFE-18
#[tokio::test]
async fn finished_pod_with_a_sidecar_is_ignored() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let (context, seen) = (context(), observed(&actor(&json!({}), &bound, &json!({}))));
    let marked = MarkedPods::new(&context.stores.pods, &context.bindings);
    WatchSink::<UninjectedPodRecord>::relisted(&*context.bindings, &None);
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
        marked.show(&None, &pod);
    }
    marked.relisted(&None);
    let expected = resolver("apps", "Deployment").convention("web");
    let pods = binding::pods(&context, &seen.actor, &expected).unwrap();
    let names: Vec<_> = pods
        .marked
        .iter()
        .map(|it| &*it.metadata.key.name)
        .collect();
    assert_eq!(names, ["runs"]);
}

/// SAFE-19
#[tokio::test]
async fn annotation_recorded_in_status_is_found_on_an_object_outside_the_target() {
    fn web(asked: &str) -> Option<(u16, Value)> {
        let found = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "uid": "uid"},
            "spec": {"template": {"metadata": {"annotations": {"asya.sh/roll": "v"}}}},
        });
        let gone =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        match asked.strip_prefix("GET /apis/apps/v1/namespaces/ns/deployments/")? {
            "web" => Some((200, found)),
            _ => Some((404, gone)),
        }
    }
    let context = context_with(web);
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    context.bindings.kinds.serve("apps", "Deployment", resource);
    let roll = "spec.template.metadata.annotations";
    for (name, uid, path, wanted) in [
        ("web", "uid", roll, Some("v")),
        ("web", "another of that name", roll, None),
        ("web", "uid", "metadata.annotations", None),
        ("gone", "uid", roll, None),
    ] {
        let mark = RollAnnotation {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            name: name.to_owned(),
            uid: Some(uid.to_owned()),
            path: path.to_owned(),
        };
        let mut seen = UnbindingSeen::default();
        let looked = seen.look_for_annotations(&context, "ns", &[mark]).await;
        looked.unwrap();
        let found: Vec<_> = seen.live.iter().map(|it| it.value.as_deref()).collect();
        let wanted: Vec<_> = wanted.iter().map(|it| Some(*it)).collect();
        assert_eq!(found, wanted, "{name} {uid} {path}");
        assert_eq!(seen.left.len(), wanted.len());
    }
}
