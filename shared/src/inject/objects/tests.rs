#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::config::Settings;
use crate::config::testing::transport;
use crate::hash;
use crate::inject::testing::Fixture;

fn built(fixture: &Fixture, replicas: Replicas) -> WorkloadObject {
    workload(&fixture.inputs(), "uid-1", replicas)
}

/// The complete object that is applied for a typical actor (WRK-1, POD-1 to POD-10).
#[test]
fn deployment_matches_the_golden_file() {
    let mut fixture = Fixture::new(&json!({
        "sidecar": {"image": "me/asya-sidecar:0.3", "env": [{"name": "ASYA_LOG_LEVEL", "value": "debug"}]},
        "timeout": {"processing": 120, "gracefulShutdown": 45},
        "workload": {"replicas": 2, "template": {
            "metadata": {"labels": {"team": "nlp"}},
            "spec": {
                "containers": [{
                    "name": "asya-runtime",
                    "image": "me/text:1.4",
                    "env": [{"name": "ASYA_HANDLER", "value": "processor.TextProcessor.process"}],
                    "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}},
                    "volumeMounts": [{"name": "models", "mountPath": "/models"}],
                }],
                "volumes": [{"name": "models", "emptyDir": {}}],
            },
        }},
    }));
    let image = "asya-sidecar:latest".to_owned();
    fixture.settings =
        Settings::parse(Some("http://asya-gateway".to_owned()), Some(image), None).unwrap();
    fixture.transport = transport(
        "rabbitmq",
        &json!({"host": "rabbitmq", "passwordSecretRef": {"name": "rabbitmq-secret", "key": "password"}}),
    );
    let WorkloadObject {
        applied: HashedManifest { object, hash },
        template_hash,
        grace_seconds,
        ..
    } = built(&fixture, Replicas::Enforced(2));
    let golden: Value = serde_json::from_str(include_str!("golden_deployment.json")).unwrap();
    assert_eq!(
        object,
        golden,
        "{}",
        serde_json::to_string_pretty(&object).unwrap()
    );
    assert_eq!(
        golden["metadata"]["annotations"]["asya.sh/applied-hash"],
        hash
    );
    assert_eq!(
        golden["spec"]["template"]["metadata"]["annotations"]["asya.sh/template-hash"],
        template_hash
    );
    assert_eq!(grace_seconds, 45);
}

/// WRK-1
#[test]
fn hash_covers_the_object_without_the_hash_itself() {
    let HashedManifest { mut object, hash } =
        built(&Fixture::new(&json!({})), Replicas::Enforced(1)).applied;
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("annotations");
    assert_eq!(hash, hash::of_value(&object));
}

/// WRK-3
#[test]
fn replicas_are_in_object_and_hash_only_while_the_operator_owns_them() {
    let fixture = Fixture::new(&json!({}));
    let one = built(&fixture, Replicas::Enforced(1));
    let two = built(&fixture, Replicas::Enforced(2));
    let scaled = built(&fixture, Replicas::Initial(3));
    let replicas = |object: &Value| object["spec"]["replicas"].clone();
    assert_eq!(
        (replicas(&one.applied.object), replicas(&two.to_create())),
        (json!(1), json!(2))
    );
    assert_ne!(one.applied.hash, two.applied.hash);
    assert_eq!(replicas(&scaled.to_create()), 3);
    assert_eq!(scaled.applied.object["spec"].get("replicas"), None);
    assert_eq!(
        scaled.to_create()["metadata"],
        scaled.applied.object["metadata"],
        "one hash, so that the first is not applied again"
    );
    assert_ne!(scaled.applied.hash, one.applied.hash);
    assert_eq!(one.template_hash, scaled.template_hash);
}

/// SA-1
#[test]
fn service_account_carries_the_role_of_its_actor() {
    let HashedManifest { object, hash } =
        service_account("team-a", "foo", "uid-1", "arn:aws:iam::1:role/r");
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {
                "name": "asya-foo",
                "namespace": "team-a",
                "labels": {"app.kubernetes.io/managed-by": "asya-operator", "asya.sh/asya": "foo", "asya.sh/actor": "foo"},
                "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r", "asya.sh/applied-hash": hash},
                "ownerReferences": [{"apiVersion": "asya.sh/v1alpha1", "kind": "AsyncActor", "name": "foo", "uid": "uid-1", "controller": true, "blockOwnerDeletion": true}],
            },
        })
    );
    let other = service_account("team-a", "foo", "uid-1", "arn:aws:iam::1:role/s");
    assert_ne!(other.hash, hash);
}

/// Labels in the selector must be on the pods, and the selector is immutable (POD-9).
#[test]
fn selector_finds_the_pods_of_its_own_template() {
    let object = built(&Fixture::new(&json!({})), Replicas::Initial(0))
        .applied
        .object;
    let selected = &object["spec"]["selector"]["matchLabels"];
    assert_eq!(
        selected,
        &json!({"app": "foo", "asya.sh/asya": "foo", "asya.sh/workload": "deployment"})
    );
    for (key, value) in selected.as_object().unwrap() {
        assert_eq!(
            &object["spec"]["template"]["metadata"]["labels"][key],
            value
        );
    }
}

/// POD-10
#[test]
fn grace_seconds_are_those_of_the_pod_template() {
    let template = json!({"spec": {"containers": [], "terminationGracePeriodSeconds": 7}});
    assert_eq!(
        built(&Fixture::with_template(&template), Replicas::Initial(0)).grace_seconds,
        7
    );
    assert_eq!(
        built(&Fixture::new(&json!({})), Replicas::Initial(0)).grace_seconds,
        30
    );
    assert_eq!(
        built(&Fixture::with_template(&json!("odd")), Replicas::Initial(0)).grace_seconds,
        30
    );
}

/// WRK-2
#[test]
fn stateful_set_starts_pods_in_parallel_and_keeps_its_claims() {
    let claims = json!([{"metadata": {"name": "data"}}]);
    let template = json!({"spec": {"containers": []}});
    let workload =
        json!({"kind": "StatefulSet", "volumeClaimTemplates": claims, "template": template});
    let object = built(
        &Fixture::new(&json!({"workload": workload})),
        Replicas::Enforced(2),
    )
    .applied
    .object;
    assert_eq!(
        (&object["apiVersion"], &object["kind"]),
        (&json!("apps/v1"), &json!("StatefulSet"))
    );
    let spec = &object["spec"];
    assert_eq!(
        (&spec["serviceName"], &spec["podManagementPolicy"]),
        (&json!("foo"), &json!("Parallel"))
    );
    assert_eq!(spec["volumeClaimTemplates"], claims);
    assert_eq!(
        spec["selector"]["matchLabels"]["asya.sh/workload"],
        "statefulset"
    );

    let deployment = built(&Fixture::new(&json!({})), Replicas::Initial(0))
        .applied
        .object;
    for field in [
        "serviceName",
        "podManagementPolicy",
        "volumeClaimTemplates",
        "strategy",
    ] {
        assert_eq!(deployment["spec"].get(field), None, "{field}");
    }
}

/// RUN-1, RUN-2
#[test]
fn runtime_config_map_is_shared_by_the_namespace() {
    let HashedManifest { object, hash } = runtime_config_map("team-a", "print()", "import os");
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": "asya-runtime",
                "namespace": "team-a",
                "labels": {
                    "app.kubernetes.io/name": "asya-runtime",
                    "app.kubernetes.io/component": "asya-runtime",
                    "app.kubernetes.io/part-of": "asya",
                },
                "annotations": {"asya.sh/applied-hash": hash},
            },
            "data": {"asya_runtime.py": "print()", "asya_adapters.py": "import os"},
        })
    );
    assert_ne!(runtime_config_map("team-a", "pass", "import os").hash, hash);
    assert_ne!(runtime_config_map("team-a", "print()", "pass").hash, hash);
}
