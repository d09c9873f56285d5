use std::time::Duration;

use asya_shared::resolve::{
    GroupKind, ObjectRef, Related, Resolution, RolloutMethod, Target, resolver,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{TargetPodList, observe, ray_clusters};
use crate::reconcile::model::availability::Availability;
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::model::rollout::desired_replicas;
use crate::reconcile::tests::fixtures::{context, context_with};
use crate::record::Key;

fn pod(name: &str, cluster: &str, extra: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "uid": name, "labels": {"ray.io/cluster": cluster, "ray.io/node-type": "worker"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster, "uid": "c", "controller": true}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (key, value) in extra.as_object().unwrap() {
        let section = pod[key].as_object_mut().unwrap();
        section.extend(value.as_object().unwrap().clone());
    }
    serde_json::from_value(pod).unwrap()
}

/// SAFE-11
#[test]
fn availability_counts_ready_and_unready_pods_but_not_terminating_ones() {
    let expected = resolver("ray.io", "RayCluster").unresolved_pods("rc");
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    let none = json!({});
    let all = [
        pod("ready", "rc", &none),
        pod("new", "rc", &json!({"status": {"conditions": null}})),
        pod("unready", "rc", &unready),
        pod("other-unready", "other", &unready),
        pod("other-terminating", "other", &terminating),
    ];
    let observed = Availability::of(&all, &expected);
    let names: Vec<_> = observed.unready.iter().map(|it| &*it.name).collect();
    assert_eq!(
        (observed.active, observed.has_terminating, names),
        (3, false, vec!["new", "unready"])
    );
    let observed = Availability::of(&[pod("a", "rc", &terminating)], &expected);
    assert_eq!((observed.active, observed.has_terminating), (0, true));
}

/// The `RayCluster` of `RayService` `llm`, which wants three workers.
fn cluster() -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {
            "name": "llm-abcde", "uid": "c", "labels": {"ray.io/originated-from-cr-name": "llm"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "controller": true}],
        },
        "status": {"desiredWorkerReplicas": 3},
    })
}

/// That `RayService`.
fn ray_service() -> Target {
    let service = json!({
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "llm", "uid": "s"},
        "spec": {"rayClusterConfig": {"workerGroupSpecs": [{"groupName": "w"}]}},
    });
    let mut related = Related::default();
    let kind = GroupKind {
        group: "ray.io",
        kind: "RayCluster",
    };
    related.objects.insert(kind, vec![cluster()]);
    match resolver("ray.io", "RayService").resolve(&service, &related) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

/// SAFE-11
#[test]
fn ray_service_takes_its_worker_count_from_its_clusters() {
    let target = ray_service();
    assert_eq!(target.roll, RolloutMethod::Evict);
    let names: Vec<_> = ray_clusters(&target, &[])
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(names, ["llm-abcde"]);
    let found = ray_clusters(&target, &[]).next().unwrap();
    assert_eq!(desired_replicas(found, &cluster()), Some(3));
    let known = ray_clusters(&target, &[])
        .cloned()
        .map(|object: ObjectRef| TargetObject {
            object,
            ..TargetObject::default()
        });
    let known: Vec<_> = known.collect();
    assert_eq!(ray_clusters(&target, &known).count(), 0);
}

/// SAFE-11: a worker that does not exist yet is missing.
#[tokio::test]
async fn ray_service_should_have_the_workers_that_its_clusters_want() {
    let context = context_with(|request| match request {
        "GET /api/v1/namespaces/ns/pods" => Some((200, json!({"metadata": {}, "items": []}))),
        "GET /apis/ray.io/v1/namespaces/ns/rayclusters/llm-abcde" => Some((200, cluster())),
        _ => None,
    });
    let kind = GroupVersionKind::gvk("ray.io", "v1", "RayCluster");
    let resource = ApiResource::from_gvk(&kind);
    context
        .bindings
        .kinds
        .serve("ray.io", "RayCluster", resource);
    let read_at = Instant::now() - Duration::from_secs(9);
    let key = Key::new("ns", "a");
    let observed = observe(&context, &key, &ray_service(), &[], read_at).await;
    let availability = observed.unwrap().availability;
    assert_eq!(availability.desired_replicas, Some(3));
    let source = availability.source.unwrap();
    assert_eq!(source.read_at, read_at, "that of the first request");
    assert_eq!(source.replicas[0].name, "llm-abcde");
}

/// SAFE-10: an evicted pod stays listed and is not ready.
#[tokio::test]
async fn rollout_does_not_wait_for_a_finished_pod() {
    // Filters by phase as the field selector says, like the API server.
    let server = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let unfinished = ["Succeeded", "Failed"].map(|phase| format!("status.phase%21%3D{phase}"));
        let mut pods = vec![pod("runs", "rc", &json!({}))];
        if !unfinished.iter().all(|selector| query.contains(selector)) {
            let evicted = json!({"status": {"phase": "Failed", "conditions": []}});
            pods.push(pod("evicted", "rc", &evicted));
        }
        let list = json!({"metadata": {}, "items": pods}).to_string();
        let answer = http::Response::new(kube::client::Body::from(list.into_bytes()));
        Ok::<_, tower::BoxError>(answer)
    });
    let mut context = context();
    context.client = kube::Client::new(server, "default");
    let object = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "rc", "namespace": "ns", "uid": "c"},
        "spec": {"workerGroupSpecs": [{"groupName": "w"}]},
    });
    let resolver = resolver("ray.io", "RayCluster");
    let Resolution::Found(target) = resolver.resolve(&object, &Related::default()) else {
        panic!()
    };
    let observed = observe(&context, &Key::new("ns", "a"), &target, &[], Instant::now()).await;
    let TargetPodList {
        availability,
        active,
        example,
    } = observed.unwrap();
    assert_eq!((availability.active, availability.unready.len()), (1, 0));
    assert_eq!(active.len(), 1);
    let example = example.and_then(|it| it.metadata.name);
    assert_eq!(example.as_deref(), Some("runs"));
}
