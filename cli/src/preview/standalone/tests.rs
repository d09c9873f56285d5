use asya_shared::api::ModeSpec;
use asya_shared::validate;
use serde_json::json;

use super::*;
use crate::why::testing::installation;

/// Renders an actor with these fields in its spec.
fn rendered(spec: &Value, role_arn: Option<&str>, status: &Value) -> (OwnWorkload, Vec<Child>) {
    let containers = json!([{"name": "asya-runtime", "image": "me/handler:1"}]);
    let mut all = json!({
        "transport": "mq", "workload": {"replicas": 2, "template": {"spec": {"containers": containers}}},
    });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let spec = validate::decode(&all.to_string()).unwrap();
    let installation = installation();
    let transport = installation.transports.usable("mq").unwrap();
    let names = transport.names_of("models", "embed");
    let previous = serde_json::from_value(status.clone()).unwrap();
    let subject = PreviewedActor {
        namespace: "models",
        name: "embed",
        uid: "uid-1",
        role_arn,
        spec: &spec,
        previous: &previous,
        installation: &installation,
        transport,
        names: &names,
    };
    let Ok(ModeSpec::Standalone(workload)) = spec.mode() else {
        panic!("{spec:?}");
    };
    let own = own_workload(&subject, workload, false, "script");
    let scaling = scaling(&subject, ScaleTarget::workload(own.kind, "embed")).unwrap();
    (own, scaling)
}

/// WRK-1, WRK-3, KEDA-1
#[test]
fn objects_are_those_that_the_operator_applies() {
    let scaled = json!({"scaling": {"enabled": true, "minReplicas": 0, "maxReplicas": 5}});
    let set = json!({"workload": {"kind": "StatefulSet", "template": {"spec": {"containers": [{"name": "asya-runtime", "image": "i"}]}}}});
    for (spec, status, objects, replicas) in [
        (json!({}), json!({}), vec!["Deployment/embed"], 2),
        (
            scaled.clone(),
            json!({}),
            vec!["Deployment/embed", "ScaledObject/embed"],
            0,
        ),
        (
            scaled,
            json!({"desiredReplicas": 3}),
            vec!["Deployment/embed", "ScaledObject/embed"],
            3,
        ),
        (set, json!({}), vec!["StatefulSet/embed"], 1),
    ] {
        let (own, scaling) = rendered(&spec, None, &status);
        let mut found = vec![own.workload.object()];
        let shown = scaling.iter().map(Child::object);
        found.extend(shown.filter(|it| it.starts_with("ScaledObject")));
        assert_eq!(
            (found, own.replicas),
            (objects.into_iter().map(str::to_owned).collect(), replicas)
        );
        assert_eq!(own.workload.created["spec"]["replicas"], replicas);
    }
}

/// SAFE-7
#[test]
fn pod_of_a_dry_run_has_our_containers_and_no_actor_binds_it() {
    let (own, _) = rendered(&json!({}), None, &json!({}));
    let pod = pod(&own).unwrap();
    let containers = pod["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert_eq!(names, ["asya-runtime", "asya-sidecar"]);
    assert_eq!(pod["metadata"]["ownerReferences"], json!([unbound_owner()]));
    assert_eq!(pod["metadata"]["labels"]["asya.sh/actor"], "embed");
}
