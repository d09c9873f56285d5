use serde_json::{Value, json};

use super::PodEventRecord;
use crate::record::{Key, ProblemClass, Projected};

fn event(fields: &Value) -> PodEventRecord {
    let mut object = json!({
        "metadata": {"name": "p.17a", "namespace": "ns", "uid": "e", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:01Z"},
        "involvedObject": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "apiVersion": "v1"},
        "type": "Warning",
    });
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let projected: Projected<PodEventRecord> = serde_json::from_str(&object.to_string()).unwrap();
    (*projected.record).clone()
}

/// STA-2
#[test]
fn failed_mount_is_a_config_error_only_if_a_config_map_or_secret_is_missing() {
    use ProblemClass::{ConfigError, VolumeError};
    for (reason, message, expected) in [
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "settings" : configmap "missing" not found"#,
            Some((
                ConfigError,
                "FailedMount for volume settings: ConfigMap missing not found",
            )),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "secret" : secret "keys" not found"#,
            Some((
                ConfigError,
                "FailedMount for volume secret: Secret keys not found",
            )),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "all" : [secrets "keys" not found, configmap "x" not found]"#,
            Some((
                ConfigError,
                "FailedMount for volume all: ConfigMap x not found",
            )),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "settings" : configmap references non-existent config key: model.yaml"#,
            Some((
                ConfigError,
                "FailedMount for volume settings: ConfigMap has no key model.yaml",
            )),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "all" : [references non-existent secret key: tls.key, secret "x" is big]"#,
            Some((
                ConfigError,
                "FailedMount for volume all: Secret has no key tls.key",
            )),
        ),
        (
            "FailedMount",
            "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition",
            Some((VolumeError, "FailedMount")),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "data" : mount failed: exit status 32"#,
            Some((VolumeError, "FailedMount for volume data")),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "data" : persistentvolumeclaim "gone" not found"#,
            Some((VolumeError, "FailedMount for volume data")),
        ),
        (
            "FailedAttachVolume",
            r#"Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node and can't be attached to another"#,
            Some((VolumeError, "FailedAttachVolume for volume pvc-1")),
        ),
        (
            "FailedAttachVolume",
            r#"AttachVolume.Attach failed for volume "pvc-1" : secret "csi" not found"#,
            Some((VolumeError, "FailedAttachVolume for volume pvc-1")),
        ),
        (
            "FailedMapVolume",
            r#"MapVolume.SetUpDevice failed for volume "block" : rpc error"#,
            Some((VolumeError, "FailedMapVolume for volume block")),
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "kube-api-access-x" : failed to sync configmap cache: timed out waiting for the condition"#,
            None,
        ),
        (
            "FailedMount",
            r#"MountVolume.SetUp failed for volume "settings" : object "ns"/"settings" not registered"#,
            None,
        ),
        ("FailedCreatePodSandBox", r#"secret "keys" not found"#, None),
    ] {
        let record = event(&json!({"reason": reason, "message": message}));
        let problem = record
            .problem
            .as_ref()
            .map(|problem| (problem.class, &*problem.reason));
        assert_eq!(problem, expected, "{message}");
        assert_eq!(
            (record.pod, &*record.pod_uid),
            (Key::new("ns", "p"), "u"),
            "{message}"
        );
    }
}

#[test]
fn event_was_last_observed_at_its_latest_timestamp() {
    for (fields, expected) in [
        (json!({}), "2026-01-01T00:00:01Z"),
        (
            json!({"lastTimestamp": "2026-01-01T00:05:00Z", "eventTime": null, "series": null}),
            "2026-01-01T00:05:00Z",
        ),
        (
            json!({"lastTimestamp": null, "eventTime": "2026-01-01T00:00:01.500000Z"}),
            "2026-01-01T00:00:01.5Z",
        ),
        (
            json!({"eventTime": "2026-01-01T00:00:01.500000Z", "series": {"count": 3, "lastObservedTime": "2026-01-01T00:09:00.000000Z"}}),
            "2026-01-01T00:09:00Z",
        ),
    ] {
        assert_eq!(event(&fields).last.to_string(), expected, "{fields}");
    }
}

#[test]
fn event_without_optional_fields_decodes() {
    let minimal =
        json!({"metadata": {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "7"}});
    let projected: Projected<PodEventRecord> = serde_json::from_str(&minimal.to_string()).unwrap();
    assert_eq!(projected.record.problem, None);
}
