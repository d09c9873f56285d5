use asya_shared::resolve::{ObjectRef, Related, Resolution, Roll, resolver};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{availability, observe, ray_clusters, ray_workers};
use crate::reconcile::model::rollout::TargetObject;
use crate::reconcile::tests::fixtures::context;
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
    let observed = availability(&all, &expected);
    let names: Vec<_> = observed.unready.iter().map(|it| &*it.name).collect();
    assert_eq!(
        (observed.active, observed.has_terminating, names),
        (3, false, vec!["new", "unready"])
    );
    let observed = availability(&[pod("a", "rc", &terminating)], &expected);
    assert_eq!((observed.active, observed.has_terminating), (0, true));
}

/// SAFE-11
#[test]
fn ray_service_takes_its_worker_count_from_its_clusters() {
    let cluster = json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {
            "name": "llm-abcde", "uid": "c", "labels": {"ray.io/originated-from-cr-name": "llm"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "controller": true}],
        },
        "status": {"desiredWorkerReplicas": 3},
    });
    assert_eq!(ray_workers(&cluster), Some(3));
    let service = json!({
        "apiVersion": "ray.io/v1", "kind": "RayService", "metadata": {"name": "llm", "uid": "s"},
        "spec": {"rayClusterConfig": {"workerGroupSpecs": [{"groupName": "w"}]}},
    });
    let mut related = Related::default();
    let kind = asya_shared::resolve::GroupKind {
        group: "ray.io",
        kind: "RayCluster",
    };
    related.objects.insert(kind, vec![cluster]);
    let target = match resolver("ray.io", "RayService").resolve(&service, &related) {
        Resolution::Found(target) => target,
        other => panic!("{other:?}"),
    };
    assert_eq!(target.roll, Roll::Evict);
    let names: Vec<_> = ray_clusters(&target, &[])
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(names, ["llm-abcde"]);
    let known = ray_clusters(&target, &[])
        .cloned()
        .map(|object: ObjectRef| TargetObject {
            object,
            ..TargetObject::default()
        });
    let known: Vec<_> = known.collect();
    assert_eq!(ray_clusters(&target, &known).count(), 0);
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
    let availability = observe(&context, &Key::new("ns", "a"), &target, &[]).await;
    let (availability, active) = availability.unwrap();
    assert_eq!((availability.active, availability.unready.len()), (1, 0));
    assert_eq!(active.len(), 1);
}
