mod deletion;
mod unmanaged_pods;

use asya_shared::api::QueueDeletionPolicy;
use asya_shared::validate::MAX_SPEC_BYTES;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ObjectList, WatchEvent};
use serde_json::{Value, json};

use super::{
    ActorRecord, ChildRecord, ConfigMapRecord, Enqueue, HpaRecord, Key, PodRecord, ProblemClass,
    Projected, QuotaRecord, Record, ScaledObjectRecord, TypedWorkload, UninjectedPodRecord,
};

fn decode<R: Record>(object: &Value) -> R {
    let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
    std::sync::Arc::into_inner(projected.record).unwrap()
}

fn metadata(extra: &Value) -> Value {
    let mut metadata =
        json!({"name": "a", "namespace": "ns", "uid": "u-1", "resourceVersion": "7"});
    metadata
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    metadata
}

fn actor(extra: &Value, spec: &Value) -> ActorRecord {
    decode(&json!({"metadata": metadata(extra), "spec": spec, "status": {"status": "Running"}}))
}

/// API-6
#[test]
fn actor_with_an_undecodable_spec_does_not_fail_the_list() {
    let list = json!({"kind": "AsyncActorList", "apiVersion": "asya.sh/v1alpha1", "metadata": {"resourceVersion": "9"}, "items": [
        {"metadata": metadata(&json!({})), "spec": {"workload": {"replicas": "many", "template": {"spec": {"containers": {}}}}}},
        {"metadata": metadata(&json!({"name": "b"}))},
    ]});
    let list: ObjectList<Projected<ActorRecord>> = serde_json::from_str(&list.to_string()).unwrap();
    assert_eq!(list.items.len(), 2);
    assert!(
        list.items[0]
            .record
            .spec
            .as_ref()
            .unwrap()
            .get()
            .contains("many")
    );
    assert!(list.items[1].record.spec.is_none());
}

/// VAL-22: without the spec, the record has what queue and deletion need.
#[test]
fn actor_with_a_large_spec_keeps_only_what_is_needed_besides_it() {
    let spec = |bytes: usize| {
        json!({
            "transport": "mq", "deletionPolicy": "Orphan", "queue": {"deletionPolicy": "Retain"},
            "workload": {"template": {
                "metadata": {"annotations": {"large": "x".repeat(bytes)}},
                "spec": {"terminationGracePeriodSeconds": 300},
            }},
        })
    };
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let small = spec(1 << 10);
    let large = spec(MAX_SPEC_BYTES);
    for (spec, is_kept) in [(&small, true), (&large, false)] {
        let record = actor(&deleting, spec);
        assert_eq!(record.spec.is_some(), is_kept);
        assert_eq!(record.spec_bytes, spec.to_string().len());
        assert_eq!(record.transport.as_deref(), Some("mq"));
        assert_eq!(record.queue_policy, QueueDeletionPolicy::Retain);
        assert!(record.deletion.orphans);
        assert_eq!(record.deletion.grace_seconds, Some(300));
    }
    let mut bound = json!({
        "transport": "x".repeat(MAX_SPEC_BYTES),
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "model"},
    });
    let record = actor(&json!({}), &bound);
    assert_eq!((record.spec.is_some(), record.transport), (false, None));
    assert_eq!(record.binds_to.unwrap().name, "model");
    bound["transport"] = json!("mq");
    assert!(actor(&json!({}), &bound).spec.is_some());
}

#[test]
fn records_decode_from_watch_events() {
    let object = json!({"kind": "AsyncActor", "metadata": metadata(&json!({})), "spec": {"transport": "mq"}});
    // The server sends `type` first; anything before it would be buffered as a tree.
    let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    let event: WatchEvent<Projected<ActorRecord>> = serde_json::from_str(&line).unwrap();
    assert!(
        matches!(event, WatchEvent::Added(projected) if projected.record.metadata.key == Key::new("ns", "a"))
    );
}

/// FW-21, FIN-4
#[test]
fn unknown_annotation_values_are_reported_and_protect_the_queue() {
    for (name, value, is_unknown, keeps_queue) in [
        ("asya.sh/reconcile", "Always", false, false),
        ("asya.sh/reconcile", "paused", true, false),
        ("asya.sh/paused", "True", true, false),
        ("asya.sh/skip-queue-deletion", "true", false, true),
        ("asya.sh/skip-queue-deletion", "yes", true, true),
        ("asya.sh/skip-queue-deletion", "false", false, false),
        ("asya.sh/skip-queue-deletion", "", false, false),
    ] {
        let record = actor(&json!({"annotations": {name: value}}), &json!({}));
        let annotations = &record.annotations;
        let actual = (
            annotations.unknown.is_some(),
            annotations.skip_queue_deletion,
        );
        assert_eq!(actual, (is_unknown, keeps_queue), "{name}: {value}");
    }
}

/// QUE-41, QUE-42, QUE-47
#[test]
fn deleted_actor_receives_messages_until_its_queue_is_released() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let released = json!({"queueReleasedSince": "2026-01-01T00:00:09Z"});
    for (extra, policy, status, receives) in [
        (json!({}), "Delete", json!({}), true),
        (json!({}), "Drain", released.clone(), true),
        (deleted.clone(), "Delete", json!({}), false),
        (deleted.clone(), "Retain", json!({}), false),
        (deleted.clone(), "Unknown", json!({}), false),
        (deleted.clone(), "Drain", json!({}), true),
        (deleted.clone(), "DeleteIfEmpty", json!({}), true),
        (deleted, "Drain", released, false),
    ] {
        let spec = json!({"transport": "mq", "queue": {"deletionPolicy": policy}});
        let object = json!({"metadata": metadata(&extra), "spec": spec, "status": status});
        let record: ActorRecord = decode(&object);
        assert_eq!(record.receives_messages(), receives, "{object}");
    }
}

/// FW-3
#[test]
fn status_and_unrelated_metadata_do_not_affect_equality() {
    let previous = actor(&json!({"generation": 3}), &json!({"transport": "mq"}));
    let newer = json!({"generation": 3, "resourceVersion": "8", "labels": {"x": "y"}, "annotations": {"note": "z"}});
    assert_eq!(actor(&newer, &json!({"transport": "mq"})), previous);
    for change in [
        json!({"generation": 4}),
        json!({"generation": 3, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        json!({"generation": 3, "finalizers": ["x"]}),
        json!({"generation": 3, "annotations": {"asya.sh/paused": "true"}}),
        json!({"generation": 3, "annotations": {"asya.sh/skip-queue-deletion": "true"}}),
        json!({"generation": 3, "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}}),
        json!({"generation": 3, "uid": "u-2"}),
    ] {
        assert_ne!(
            actor(&change, &json!({"transport": "mq"})),
            previous,
            "{change}"
        );
    }
}

#[test]
fn actor_annotations_match_exact_values() {
    let annotations_of =
        |annotations: Value| actor(&json!({"annotations": annotations}), &json!({})).annotations;
    assert!(annotations_of(json!({"asya.sh/paused": "true"})).paused);
    assert!(annotations_of(json!({"asya.sh/reconcile": "Paused"})).paused);
    assert!(annotations_of(json!({"asya.sh/reconcile": "Once"})).once);
    assert!(
        !annotations_of(json!({"asya.sh/paused": "false", "asya.sh/reconcile": "Always"})).paused
    );
}

fn deployment(managed_fields: &Value) -> TypedWorkload<Deployment> {
    decode(&json!({
        "metadata": metadata(&json!({
            "managedFields": managed_fields,
            "annotations": {"asya.sh/applied-hash": "h"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-c"},
                {"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "a", "uid": "u-a", "controller": true},
            ],
        })),
        "spec": {"replicas": 3, "template": {"spec": {}}},
        "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": 1, "updatedReplicas": 2, "conditions": [
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "no"},
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"x\" is forbidden: exceeded quota: q"},
        ]},
    }))
}

fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

#[test]
fn workload_record_holds_counts_and_controller() {
    let of_kind = deployment(&json!([]));
    let record = &of_kind.record;
    assert_eq!(
        (record.desired, record.total, record.ready, record.rolling),
        (3, 3, 1, true)
    );
    assert_eq!(&*record.metadata.controller.as_ref().unwrap().uid, "u-a");
    assert_eq!(of_kind.to_enqueue(), Enqueue::Actor(Key::new("ns", "a")));
    assert!(record.replica_failure.as_ref().unwrap().is_quota());
    assert_eq!(record.last_applied.fingerprint, None);
}

/// WRK-3, WRK-5
#[test]
fn fingerprint_covers_our_applied_fields_in_any_order() {
    let applied = json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"asya-runtime\"}": {".": {}, "f:image": {}, "f:name": {}}}}}}});
    let same_in_other_order = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"asya-runtime\"}": {"f:name": {}, ".": {}, "f:image": {}}}}}, "f:replicas": {}}});
    let fingerprint = |fields: &Value| {
        deployment(&json!([
        entry("kubectl", "Apply", &json!({"f:metadata": {"f:labels": {"f:x": {}}}})),
        entry("asya-operator/workload", "Update", &json!({"f:status": {}})),
        {"manager": "asya-operator/workload", "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": {}}},
        entry("asya-operator/workload", "Apply", fields),
    ])).record.last_applied.fingerprint
    };
    assert_eq!(fingerprint(&applied), fingerprint(&same_in_other_order));
    assert!(fingerprint(&applied).is_some());
    for (removed, changes) in [
        ("/f:spec/f:replicas", false),
        (
            "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"asya-runtime\"}/f:image",
            true,
        ),
    ] {
        let mut fewer = applied.clone();
        let (parent, key) = removed.rsplit_once('/').unwrap();
        fewer
            .pointer_mut(parent)
            .unwrap()
            .as_object_mut()
            .unwrap()
            .remove(key)
            .unwrap();
        assert_eq!(
            fingerprint(&applied) != fingerprint(&fewer),
            changes,
            "{removed}"
        );
    }
}

#[test]
fn fingerprint_does_not_change_between_releases() {
    let of_kind = deployment(&json!([entry(
        "asya-operator/workload",
        "Apply",
        &json!({"f:spec": {"f:replicas": {}, "f:selector": {}}})
    )]));
    let record = of_kind.record;
    assert!(record.owns_replicas);
    assert_eq!(
        record.last_applied.fingerprint.unwrap().to_string(),
        "7cc65c366e009de1"
    );
}

/// RUN-2, KEDA-7
#[test]
fn only_shared_config_maps_enqueue_every_actor_of_the_namespace() {
    for (name, is_shared) in [
        ("asya-runtime", true),
        ("asya-transport-rabbitmq", true),
        ("asya-transports", false),
        ("unrelated", false),
    ] {
        let metadata = metadata(&json!({"name": name}));
        let record: ConfigMapRecord = decode(&json!({"metadata": metadata, "data": {"k": "v"}}));
        let expected = if is_shared {
            Enqueue::Namespace("ns".into())
        } else {
            Enqueue::Nothing
        };
        assert_eq!(record.to_enqueue(), expected, "{name}");
    }
}

fn pod(status: &Value) -> PodRecord {
    decode(
        &json!({"metadata": metadata(&json!({"labels": {"asya.sh/asya": "a"}})), "status": status}),
    )
}

fn waiting(container: &str, reason: &str) -> Value {
    json!({"containerStatuses": [{"name": container, "state": {"waiting": {"reason": reason}}}]})
}

/// STA-2
#[test]
fn problem_class_is_derived_from_the_pods_fields() {
    use ProblemClass::{
        ConfigError, ImagePullError, PendingResources, RuntimeError, SidecarError, VolumeError,
        WorkloadError,
    };
    let unscheduled = |reason: &str, message: &str| json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]});
    for (status, expected) in [
        (
            waiting("x", "CreateContainerConfigError"),
            Some(ConfigError),
        ),
        (waiting("x", "ErrImagePull"), Some(ImagePullError)),
        (waiting("x", "ImagePullBackOff"), Some(ImagePullError)),
        (waiting("x", "InvalidImageName"), Some(ImagePullError)),
        (waiting("x", "ErrImageNeverPull"), Some(ImagePullError)),
        (
            waiting("asya-runtime", "CrashLoopBackOff"),
            Some(RuntimeError),
        ),
        (
            waiting("asya-sidecar", "RunContainerError"),
            Some(SidecarError),
        ),
        (
            waiting("helper", "CreateContainerError"),
            Some(WorkloadError),
        ),
        (waiting("asya-runtime", "ContainerCreating"), None),
        (waiting("asya-runtime", "PodInitializing"), None),
        (
            json!({"initContainerStatuses": waiting("init", "ImagePullBackOff")["containerStatuses"]}),
            Some(ImagePullError),
        ),
        (
            unscheduled(
                "Unschedulable",
                "0/3 nodes are available: 3 Insufficient cpu.",
            ),
            Some(PendingResources),
        ),
        (
            unscheduled(
                "Unschedulable",
                "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            ),
            Some(VolumeError),
        ),
        (
            unscheduled(
                "Unschedulable",
                "0/3 nodes are available: persistentvolumeclaim \"model\" not found.",
            ),
            Some(VolumeError),
        ),
        (
            unscheduled(
                "Unschedulable",
                "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind.",
            ),
            Some(VolumeError),
        ),
        (
            unscheduled(
                "SchedulingGated",
                "Scheduling is blocked due to non-empty scheduling gates",
            ),
            None,
        ),
        (
            json!({"conditions": [{"type": "PodReadyToStartContainers", "status": "False"}]}),
            None,
        ),
        (json!({}), None),
    ] {
        assert_eq!(
            pod(&status).problem.map(|problem| problem.class),
            expected,
            "{status}"
        );
    }
}

/// STA-3
#[test]
fn highest_class_of_several_problems_is_reported() {
    let status = json!({"containerStatuses": [
        {"name": "asya-sidecar", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        {"name": "asya-runtime", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
    ]});
    let problem = pod(&status).problem.unwrap();
    assert_eq!(
        (problem.class, problem.container.as_deref()),
        (ProblemClass::ImagePullError, Some("asya-runtime"))
    );
}

/// STA-2
#[test]
fn only_error_exits_are_kept() {
    let exited = |code: i32| {
        json!({"containerStatuses": [{"name": "asya-runtime",
        "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}},
        "lastState": {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}}}]})
    };
    assert!(pod(&exited(0)).failed_exits.is_empty());
    let [(problem, at)] = &*pod(&exited(137)).failed_exits else {
        panic!()
    };
    assert_eq!(
        (problem.class, at.0.as_second()),
        (ProblemClass::RuntimeError, 1_767_225_600)
    );
}

/// STA-2, STA-3
#[test]
fn latest_error_exit_of_each_class_is_kept() {
    let exited = |name: &str, second: u8| {
        json!({"name": name, "state": {"terminated":
            {"exitCode": 1, "reason": "Error", "finishedAt": format!("2026-01-01T00:00:0{second}Z")}}})
    };
    let record = pod(&json!({
        "initContainerStatuses": [exited("setup", 1)],
        "containerStatuses": [exited("asya-runtime", 2), exited("helper", 4), exited("asya-sidecar", 3), exited("other", 0)],
    }));
    let container = |class| {
        let mut exits = record.failed_exits.iter();
        let (problem, _) = exits.find(|(problem, _)| problem.class == class).unwrap();
        problem.container.as_deref().unwrap()
    };
    assert_eq!(record.failed_exits.len(), 3);
    assert_eq!(container(ProblemClass::RuntimeError), "asya-runtime");
    assert_eq!(container(ProblemClass::SidecarError), "asya-sidecar");
    assert_eq!(container(ProblemClass::WorkloadError), "helper");
}

#[test]
fn pod_readiness_follows_its_condition() {
    let with = |phase: &str, ready: &str| {
        pod(
            &json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        )
    };
    assert!(with("Running", "True").ready && with("Running", "True").unready_since.is_none());
    assert!(!with("Running", "False").ready && with("Running", "False").unready_since.is_some());
    assert!(
        with("Pending", "False").unready_since.is_none(),
        "a pod that has not started is not unready"
    );
    assert!(with("Failed", "False").finished && with("Succeeded", "False").finished);
}

/// OPS-8 (a): of the API server's list of fields, which may be longer than the object, at most a hash is kept.
#[test]
fn records_keep_no_managed_fields() {
    fn kept<R: Record>() -> String {
        let entry = json!({
            "manager": "manager-of-fields", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:field-of-manager": {}}},
        });
        let object = json!({"metadata": metadata(&json!({"managedFields": [entry]})), "spec": {}});
        let projected: Projected<R> = serde_json::from_str(&object.to_string()).unwrap();
        format!("{projected:?}")
    }
    for kept in [
        kept::<ActorRecord>(),
        kept::<ChildRecord<ServiceAccount>>(),
        kept::<ConfigMapRecord>(),
        kept::<HpaRecord>(),
        kept::<PodRecord>(),
        kept::<QuotaRecord>(),
        kept::<ScaledObjectRecord>(),
        kept::<TypedWorkload<Deployment>>(),
        kept::<UninjectedPodRecord>(),
    ] {
        assert!(
            !kept.contains("of-fields") && !kept.contains("of-manager"),
            "{kept}"
        );
    }
}
