use serde_json::json;

use super::Value;
use crate::inject::testing::Fixture;

/// POD-5
#[test]
fn runtime_starts_the_script_followed_by_the_args_of_the_user() {
    let runtime = Fixture::with_runtime(&json!({"args": ["--x"]})).container("asya-runtime");
    assert_eq!(
        runtime["command"],
        json!(["python3", "/opt/asya/asya_runtime.py"])
    );
    assert_eq!(runtime["args"], json!(["--x"]));
    let template = json!({"spec": {"containers": [{"name": "asya-runtime", "image": "i"}]}});
    let fixture = Fixture::new(
        &json!({"workload": {"pythonExecutable": "/venv/bin/python", "template": template}}),
    );
    assert_eq!(
        fixture.container("asya-runtime")["command"],
        json!(["/venv/bin/python", "/opt/asya/asya_runtime.py"])
    );
}

/// POD-5, POD-7
#[test]
fn runtime_environment_is_that_of_the_user_except_for_reserved_names() {
    let fixture = Fixture::with_runtime(&json!({"env": [
        {"name": "ASYA_SOCKET_NAME", "value": "other.sock"},
        {"name": "ASYA_SOCKET_DIR", "value": "/other"},
        {"name": "ASYA_HANDLER", "value": "a.b"},
        {"name": "TWICE", "value": "1"},
        {"name": "TWICE", "value": "2"},
    ]}));
    assert_eq!(
        fixture.env("asya-runtime"),
        [
            "ASYA_SOCKET_DIR=/var/run/asya",
            "ASYA_HANDLER=a.b",
            "TWICE=2"
        ]
    );
    assert_eq!(
        Fixture::new(&json!({})).env("asya-runtime"),
        ["ASYA_SOCKET_DIR=/var/run/asya"]
    );
}

/// POD-5
#[test]
fn end_actors_do_not_check_messages() {
    let mut fixture = Fixture::with_runtime(
        &json!({"env": [{"name": "ASYA_ENABLE_VALIDATION", "value": "true"}]}),
    );
    assert!(
        fixture
            .env("asya-runtime")
            .contains(&"ASYA_ENABLE_VALIDATION=true".to_owned())
    );
    for actor in ["happy-end", "error-end"] {
        fixture.actor = actor;
        let env = fixture.env("asya-runtime");
        assert_eq!(
            env,
            [
                "ASYA_ENABLE_VALIDATION=false",
                "ASYA_SOCKET_DIR=/var/run/asya"
            ]
        );
    }
}

/// POD-6
#[test]
fn runtime_mounts_socket_tmp_and_script() {
    let runtime = Fixture::new(&json!({})).container("asya-runtime");
    assert_eq!(
        runtime["volumeMounts"],
        json!([
            {"name": "socket-dir", "mountPath": "/var/run/asya"},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "asya-runtime", "mountPath": "/opt/asya/asya_runtime.py", "subPath": "asya_runtime.py", "readOnly": true},
        ])
    );
}

/// POD-6
#[test]
fn tmp_mount_of_the_user_is_kept() {
    for path in ["/tmp", "/tmp/"] {
        let mine = json!({"name": "scratch", "mountPath": path});
        let fixture = Fixture::with_runtime(&json!({"volumeMounts": [mine]}));
        let mounts = fixture.container("asya-runtime")["volumeMounts"]
            .as_array()
            .unwrap()
            .clone();
        assert_eq!((mounts.len(), &mounts[0]), (3, &mine), "{path}");
        // the sidecar is a separate container with its own mount
        assert_eq!(
            fixture.container("asya-sidecar")["volumeMounts"][1]["name"],
            "tmp"
        );
    }
    let below = Fixture::with_runtime(
        &json!({"volumeMounts": [{"name": "scratch", "mountPath": "/tmp/cache"}]}),
    );
    assert_eq!(
        below.container("asya-runtime")["volumeMounts"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

/// POD-8
#[test]
fn runtime_is_probed_by_python() {
    let runtime = Fixture::new(&json!({})).container("asya-runtime");
    for (field, delay, period, timeout, failures) in [
        ("startupProbe", json!(3), 2, 3, 150),
        ("livenessProbe", Value::Null, 30, 5, 3),
        ("readinessProbe", Value::Null, 10, 3, 3),
    ] {
        let probe = &runtime[field];
        assert_eq!(probe["initialDelaySeconds"], delay, "{field}");
        assert_eq!(probe["periodSeconds"], period, "{field}");
        assert_eq!(probe["timeoutSeconds"], timeout, "{field}");
        assert_eq!(probe["failureThreshold"], failures, "{field}");
        let command = probe["exec"]["command"].as_array().unwrap();
        assert_eq!(command[..4], ["python3", "-E", "-S", "-c"]);
        let script = command[4].as_str().unwrap();
        for file in [
            "'/var/run/asya/asya-runtime.sock'",
            "'/var/run/asya/runtime-ready'",
        ] {
            assert!(script.contains(file), "{script}");
        }
    }
}

/// POD-8
#[test]
fn probes_of_the_user_are_kept() {
    let mine = json!({"tcpSocket": {"port": 1}});
    let runtime = Fixture::with_runtime(&json!({"livenessProbe": mine, "startupProbe": null}))
        .container("asya-runtime");
    assert_eq!(runtime["livenessProbe"], mine);
    assert!(runtime["startupProbe"]["exec"].is_object());
    assert!(runtime["readinessProbe"]["exec"].is_object());
}

#[test]
fn other_containers_are_unchanged() {
    let helper = json!({"name": "helper", "image": "busybox:1"});
    let template = json!({"spec": {"initContainers": [helper], "containers": [helper, {"name": "asya-runtime"}]}});
    let rendered = Fixture::with_template(&template).template();
    assert_eq!(rendered["spec"]["initContainers"][0], helper);
    assert_eq!(rendered["spec"]["containers"][0], helper);
}
