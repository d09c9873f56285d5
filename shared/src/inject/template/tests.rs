#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::inject::testing::Fixture;

mod duplicates;
mod runtime_container;
mod sidecar_container;

/// API-5
#[test]
fn unknown_fields_of_the_user_are_kept() {
    let template = json!({
        "metadata": {"name": "x", "labels": {"team": "nlp"}, "annotations": {"prometheus.io/scrape": "true"}},
        "spec": {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "fieldOfNextYear": {"a": [1, 1.5, null, true]},
            "initContainers": [{"name": "warm", "image": "busybox:1", "newField": {}}],
            "containers": [
                {"name": "asya-runtime", "image": "i", "args": ["--x"], "resources": {"limits": {"memory": "1073741824"}}, "newField": 1},
                {"name": "helper", "image": "busybox:1", "command": ["sleep", "86400"], "newField": 2},
            ],
            "volumes": [{"name": "models", "emptyDir": {}}],
        },
        "newField": {},
    });
    let rendered = Fixture::with_template(&template).template();
    assert_eq!(rendered["newField"], json!({}));
    assert_eq!(rendered["metadata"]["name"], "x");
    assert_eq!(rendered["metadata"]["labels"]["team"], "nlp");
    assert_eq!(
        rendered["metadata"]["annotations"]["prometheus.io/scrape"],
        "true"
    );
    let spec = &rendered["spec"];
    for field in ["nodeSelector", "fieldOfNextYear", "initContainers"] {
        assert_eq!(spec[field], template["spec"][field], "{field}");
    }
    assert_eq!(spec["containers"][1], template["spec"]["containers"][1]);
    for field in ["image", "args", "resources", "newField"] {
        assert_eq!(
            spec["containers"][0][field], template["spec"]["containers"][0][field],
            "{field}"
        );
    }
    assert_eq!(spec["volumes"][0], template["spec"]["volumes"][0]);
}

/// API-5, API-6
#[test]
fn unexpected_shapes_are_left_to_the_api_server() {
    for template in [json!("text"), json!(null), json!([]), json!(1)] {
        assert_eq!(Fixture::with_template(&template).template(), template);
    }
    let cases = [
        ("/metadata", json!("x")),
        ("/metadata/labels", json!([])),
        ("/metadata/annotations", json!(1)),
        ("/spec", json!([])),
        ("/spec/containers", json!({})),
        ("/spec/volumes", json!("v")),
        ("/spec/containers/0", json!("c")),
        ("/spec/containers/0/env", json!({})),
        ("/spec/containers/0/volumeMounts", json!(true)),
    ];
    for (pointer, odd) in cases {
        let mut template = json!({"metadata": {"labels": {}, "annotations": {}}, "spec": {"volumes": [], "containers": [
            {"name": "asya-runtime", "env": [], "volumeMounts": []}
        ]}});
        *template.pointer_mut(pointer).unwrap() = odd.clone();
        assert_eq!(
            Fixture::with_template(&template)
                .template()
                .pointer(pointer),
            Some(&odd),
            "{pointer}"
        );
    }
}

/// POD-9
#[test]
fn pods_carry_the_labels_of_their_actor_and_those_of_the_user() {
    let labels = |kind: &str| {
        let template = json!({"metadata": {"labels": {"team": "nlp", "app": "other"}}, "spec": {"containers": []}});
        Fixture::new(&json!({"workload": {"kind": kind, "template": template}})).template()["metadata"]["labels"].clone()
    };
    for (kind, label) in [("Deployment", "deployment"), ("StatefulSet", "statefulset")] {
        assert_eq!(
            labels(kind),
            json!({"team": "nlp", "app": "foo", "asya.sh/asya": "foo", "asya.sh/workload": label, "asya.sh/actor": "foo"})
        );
    }
}

/// RUN-4
#[test]
fn pods_carry_the_hash_of_the_script() {
    let fixture = Fixture::with_template(
        &json!({"metadata": {"annotations": null}, "spec": {"containers": []}}),
    );
    assert_eq!(
        fixture.template()["metadata"]["annotations"]["asya.sh/runtime-hash"],
        "0123456789abcdef"
    );
}

/// POD-9
#[test]
fn hash_of_the_template_covers_everything_but_itself() {
    let hash = |fixture: &Fixture| {
        fixture.template()["metadata"]["annotations"]["asya.sh/template-hash"].clone()
    };
    let plain = Fixture::new(&json!({}));
    let mut rendered = plain.template();
    rendered["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove("asya.sh/template-hash");
    assert_eq!(hash(&plain), hash::of_value(&rendered));

    let mut others = vec![
        Fixture::new(&json!({"sidecar": {"image": "other"}})),
        Fixture::new(&json!({"timeout": {"processing": 5}})),
        Fixture::with_runtime(&json!({"image": "other"})),
        Fixture::new(&json!({})),
    ];
    others[3].settings.gateway_url = Some("http://gateway".to_owned());
    for other in &others {
        assert_ne!(hash(&plain), hash(other));
    }
    let container = json!({"name": "asya-runtime", "image": "me/handler:1"});
    let annotated = json!({"metadata": {"annotations": {"asya.sh/template-hash": "mine"}}, "spec": {"containers": [container]}});
    assert_eq!(hash(&plain), hash(&Fixture::with_template(&annotated)));
}

/// POD-10
#[test]
fn grace_period_is_that_of_the_user_or_the_timeout_or_thirty_seconds() {
    let grace = |user: Value, timeout: Value| {
        let template = json!({"spec": {"terminationGracePeriodSeconds": user, "containers": []}});
        let spec =
            json!({"timeout": {"gracefulShutdown": timeout}, "workload": {"template": template}});
        Fixture::new(&spec).template()["spec"]["terminationGracePeriodSeconds"].clone()
    };
    assert_eq!(grace(json!(7), json!(45)), 7);
    assert_eq!(grace(json!(0), json!(45)), 0);
    assert_eq!(grace(Value::Null, json!(45)), 45);
    assert_eq!(grace(Value::Null, json!(0)), 30);
    assert_eq!(grace(Value::Null, Value::Null), 30);
}

/// POD-6
#[test]
fn operator_volumes_follow_those_of_the_user() {
    let template =
        json!({"spec": {"containers": [], "volumes": [{"name": "models", "emptyDir": {}}]}});
    assert_eq!(
        Fixture::with_template(&template).template()["spec"]["volumes"],
        json!([
            {"name": "models", "emptyDir": {}},
            {"name": "socket-dir", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "asya-runtime", "configMap": {"name": "asya-runtime", "defaultMode": 0o755}},
        ])
    );
}

/// SA-1, SA-2
#[test]
fn service_account_is_that_of_the_role_or_else_the_users_in_both_fields() {
    let accounts = |fixture: &Fixture| {
        let template = fixture.template();
        ["serviceAccountName", "serviceAccount"].map(|name| template["spec"][name].clone())
    };
    for name in ["serviceAccountName", "serviceAccount"] {
        let template = json!({"spec": {"containers": [], name: "mine"}});
        let mut fixture = Fixture::with_template(&template);
        assert_eq!(accounts(&fixture), ["mine", "mine"]);
        fixture.service_account = Some("asya-foo");
        assert_eq!(accounts(&fixture), ["asya-foo", "asya-foo"]);
    }
    assert_eq!(
        accounts(&Fixture::new(&json!({}))),
        [json!(null), json!(null)]
    );
}
