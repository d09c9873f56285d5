use serde_json::{Value, json};

use super::objects::*;
use crate::resolve::*;

const WORKERS: &str = r#"[{"groupName": "gpu", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "rayStartParams": {},
    "template": {"spec": {"containers": [{"name": "ray-worker", "image": "rayproject/ray:2.46.0"}]}}}]"#;

fn config() -> Value {
    let groups: Value = serde_json::from_str(WORKERS).unwrap();
    json!({"rayVersion": "2.46.0", "headGroupSpec": {"template": {}}, "workerGroupSpecs": groups})
}

pub(super) fn cluster() -> Value {
    let rest = json!({"spec": config(), "status": {"state": "ready", "desiredWorkerReplicas": 2}});
    object("ray.io/v1", "RayCluster", "rc", &rest)
}

const WORKER: [(&str, &str); 2] = [("ray.io/cluster", "rc"), ("ray.io/node-type", "worker")];

const PROXY: &str = "RayCluster/rc: a worker responds on port 8000 only if Ray Serve runs a proxy on it; keep \
                     proxy_location: EveryNode in the Serve config, or set spec.runtime.targetURL";

/// RES-18, BIND-4
#[test]
fn ray_cluster_binds_its_workers_and_not_its_head() {
    let target = cluster();
    let it = found(&target, &[]);
    assert_eq!(it.workload.to_string(), "RayCluster/rc");
    assert_eq!(it.roll, RolloutMethod::Evict);
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:8000", "rest")
    );
    let owner = ("ray.io/v1", "RayCluster", "rc");
    let head = [("ray.io/cluster", "rc"), ("ray.io/node-type", "head")];
    for pods in [it.pods, unresolved_pods(&target)] {
        assert!(has(&pods, &WORKER, owner));
        assert!(!has(&pods, &head, owner));
        assert!(!has(&pods, &WORKER, ("ray.io/v1", "RayCluster", "other")));
    }
    assert_eq!(
        not_scaled(&target, &[]),
        "RayCluster/rc: it has no /scale, and its worker groups are an atomic list that only one manager can own; set \
         replicas of its workers, or set spec.scaling.enabled to false"
    );
    let proxy = (CaveatReason::BindingCaveat, PROXY.to_owned());
    assert_eq!(warnings(&target, &[]), [proxy]);
}

/// RES-18
#[test]
fn ray_cluster_without_workers_is_refused() {
    for groups in [json!([]), json!(null)] {
        let mut target = cluster();
        target["spec"]["workerGroupSpecs"] = groups;
        let message = "RayCluster/rc: spec.workerGroupSpecs is empty, and head pods are never bound; add a worker \
                       group";
        let finding = Finding::new(FindingReason::UnsupportedTarget, message);
        assert_eq!(refuses(&target, &[]), finding);
    }
}

/// RES-18
#[test]
fn ray_autoscaler_has_a_warning() {
    let target = with(
        cluster(),
        &json!({"spec": {"enableInTreeAutoscaling": true}}),
    );
    let [autoscaler, _proxy] = &warnings(&target, &[])[..] else {
        panic!("one warning and the one of every cluster");
    };
    assert_eq!(
        autoscaler.1,
        "RayCluster/rc: spec.enableInTreeAutoscaling is true, and Ray's autoscaler does not see messages: it may \
         remove a worker that is processing one; disable it, or set minReplicas of the workers"
    );
}

pub(super) fn service() -> Value {
    object(
        "ray.io/v1",
        "RayService",
        "rs",
        &json!({
            "spec": {"serveConfigV2": "applications:\n- name: app\n", "rayClusterConfig": config()},
            "status": {"serviceStatus": "Running", "activeServiceStatus": {"rayClusterName": "rs-x7k2p"}, "pendingServiceStatus": {"rayClusterName": "rs-9qwzt"}},
        }),
    )
}

pub(super) fn cluster_of(service: &Value, name: &str) -> Value {
    let labels = json!({"metadata": {"labels": {"ray.io/originated-from-cr-name": "rs", "ray.io/originated-from-crd": "RayService"}}});
    let made = object(
        "ray.io/v1",
        "RayCluster",
        name,
        &with(json!({"spec": config()}), &labels),
    );
    by(service, made)
}

/// RES-2, RES-19
#[test]
fn ray_service_covers_the_workers_of_all_its_clusters() {
    let target = service();
    let clusters = [
        cluster_of(&target, "rs-9qwzt"),
        cluster_of(&target, "rs-x7k2p"),
        cluster(),
    ];
    let it = found(&target, &clusters.iter().collect::<Vec<_>>());
    assert_eq!(
        chain(&it),
        [
            "RayService/rs",
            "RayCluster/rs-x7k2p",
            "RayCluster/rs-9qwzt"
        ]
    );
    assert_eq!(it.workload.to_string(), "RayService/rs");
    assert_eq!(it.roll, RolloutMethod::Evict);
    assert_eq!(it.warnings, []);
    assert!(matches!(it.scale, Scale::Refused(_)));
    assert_eq!(
        waits(&target, &[&cluster()]),
        "RayService/rs has no RayCluster yet; waiting for KubeRay to create it"
    );
}

/// RES-19
#[test]
fn ray_service_is_checked_by_its_cluster_spec() {
    let mut target = service();
    target["spec"]["rayClusterConfig"]["workerGroupSpecs"] = json!([]);
    assert_eq!(
        refuses(&target, &[]).message,
        "RayService/rs: spec.rayClusterConfig.workerGroupSpecs is empty, and head pods are never bound; add a worker \
         group"
    );
    let autoscaled = json!({"spec": {"rayClusterConfig": {"enableInTreeAutoscaling": true}}});
    let own = cluster_of(&service(), "rs-x7k2p");
    let [(_, message)] = &warnings(&with(service(), &autoscaled), &[&own])[..] else {
        panic!("one warning");
    };
    assert_eq!(
        message,
        "RayService/rs: spec.rayClusterConfig.enableInTreeAutoscaling is true, and Ray's autoscaler does not see \
         messages: it may remove a worker that is processing one; disable it, or set minReplicas of the workers"
    );
}

/// RES-19
#[test]
fn proxy_on_the_head_only_has_a_warning() {
    let own = cluster_of(&service(), "rs-x7k2p");
    let warnings_with = |config: &str| {
        let target = with(service(), &json!({"spec": {"serveConfigV2": config}}));
        warnings(&target, &[&own])
    };
    for config in [
        "proxy_location: HeadOnly\napplications: []",
        "{\"proxy_location\": \"HeadOnly\"}",
    ] {
        assert_eq!(
            warnings_with(config),
            [(
                CaveatReason::BindingCaveat,
                "RayService/rs: spec.serveConfigV2 sets proxy_location: HeadOnly, so workers do not respond on port \
                 8000; set it to EveryNode, or set spec.runtime.targetURL".to_owned()
            )]
        );
    }
    for config in [
        "proxy_location: EveryNode",
        "proxy_location",
        "applications: []",
    ] {
        assert_eq!(warnings_with(config), [], "{config}");
    }
}

/// RES-4
#[test]
fn ray_cluster_of_a_service_advises_to_bind_the_service() {
    let target = cluster_of(&service(), "rs-x7k2p");
    assert_eq!(
        warnings(&target, &[])[0],
        (
            CaveatReason::HasOwner,
            "RayCluster/rs-x7k2p belongs to RayService/rs: set spec.workloadRef to RayService/rs instead, in a new AsyncActor".to_owned()
        )
    );
}

/// Whether the workers of a cluster match, and its head does not.
fn has_workers(pods: &PodMatch, cluster: &'static str) -> bool {
    let owner = ("ray.io/v1", "RayCluster", cluster);
    let [name, worker] = [("ray.io/cluster", cluster), ("ray.io/node-type", "worker")];
    assert!(!has(pods, &[name, ("ray.io/node-type", "head")], owner));
    has(pods, &[name, worker], owner)
}

/// A user's `rs-train` and the cluster of a `RayJob` with the service's name look like clusters of the service
/// (SAFE-30).
#[test]
fn ray_service_does_not_match_workers_of_clusters_that_it_does_not_own() {
    let target = service();
    let clusters = [
        cluster_of(&target, "rs-9qwzt"),
        cluster_of(&target, "rs-x7k2p"),
        by(
            &object("ray.io/v1", "RayJob", "rs", &json!({})),
            cluster_of(&target, "rs-job00"),
        ),
        object(
            "ray.io/v1",
            "RayCluster",
            "rs-train",
            &json!({"spec": config()}),
        ),
    ];
    let it = found(&target, &clusters.iter().collect::<Vec<_>>());
    let binding = serde_json::from_value(
        json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "rs"}),
    )
    .unwrap();
    let resolved = it.to_status("team-a");
    for pods in [&it.pods, &pods_of(&binding, Some(&resolved))] {
        for own in ["rs-x7k2p", "rs-9qwzt"] {
            assert!(has_workers(pods, own), "{own}");
        }
        for other in [
            "rs-job00",
            "rs-train",
            "rs-00000",
            "rs-raycluster-x7k2p",
            "rc",
        ] {
            assert!(!has_workers(pods, other), "{other}");
        }
    }
    for pods in [unresolved_pods(&target), pods_of(&binding, None)] {
        assert!(!has_workers(&pods, "rs-x7k2p"), "its owner is unknown");
    }
}

/// SAFE-30, SAFE-31
#[test]
fn ray_service_clusters_are_matched_by_owner_once_seen() {
    let owner = |kind: &str, name: &str, uid: &str| {
        Some(ObjectRef {
            api_version: "ray.io/v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: Some(uid.to_owned()),
        })
    };
    let resolved = |chain: &[&str]| crate::api::ResolvedTarget {
        uid: Some("new".to_owned()),
        chain: chain.iter().map(ToString::to_string).collect(),
        ..crate::api::ResolvedTarget::default()
    };
    let known = resolved(&["RayService/rs", "RayCluster/rs-x7k2p"]);
    let target = serde_json::from_value(
        json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "rs"}),
    )
    .unwrap();
    let service = |uid| owner("RayService", "rs", uid);
    // the cluster, its owner if the watch has seen one, the resolved status, and whether its workers are bound
    for (cluster, seen, status, bound) in [
        ("rs-00000", Some(service("new")), None, true),
        ("rs-00000", Some(service("new")), Some(&known), true),
        ("any-name", Some(service("new")), Some(&known), true),
        ("rs-00000", None, None, false),
        ("rs-00000", None, Some(&known), false),
        ("rs-00000", Some(None), None, false),
        ("rs-00000", Some(None), Some(&known), false),
        ("rs-00000", Some(service("old")), Some(&known), false),
        ("rs-00000", Some(owner("RayJob", "rs", "new")), None, false),
        (
            "rs-00000",
            Some(owner("RayService", "rs-2", "new")),
            None,
            false,
        ),
        ("rs-x7k2p", None, Some(&known), true),
        ("rs-x7k2p", Some(None), Some(&known), false),
        ("rs-x7k2p", Some(service("old")), Some(&known), false),
    ] {
        let seen: IntermediateOwners = seen.into_iter().map(|it| (cluster.into(), it)).collect();
        let pods = pods_with_intermediates(&target, status, &seen);
        assert_eq!(
            has_workers(&pods, cluster),
            bound,
            "{cluster} {seen:?} {status:?}"
        );
    }
}
