#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::api::{AsyncActorSpec, WorkloadKind};
use crate::config::TransportsConfig;
use crate::validate::{Recorded, Subject, Write, check};

const TRANSPORTS: &str = r#"{"transports": {
    "rabbit": {"type": "rabbitmq", "enabled": true, "config": {"host": "rabbitmq.test"}},
    "cloud": {"type": "sqs", "enabled": true, "config": {"region": "eu-central-1"}}
}}"#;

fn spec(transport: &str, kind: Option<&str>) -> AsyncActorSpec {
    let env = json!([{"name": "ASYA_HANDLER", "value": "a.b"}]);
    let container = json!({"name": "asya-runtime", "image": "a", "env": env});
    let mut workload = json!({"template": {"spec": {"containers": [container]}}});
    if let Some(kind) = kind {
        workload["kind"] = json!(kind);
    }
    serde_json::from_value(json!({"transport": transport, "workload": workload})).unwrap()
}

fn bound(transport: &str) -> AsyncActorSpec {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "phi"});
    serde_json::from_value(json!({"transport": transport, "workloadRef": target})).unwrap()
}

fn updated(name: &str, old: &AsyncActorSpec, new: &AsyncActorSpec) -> Vec<String> {
    written(name, new, Write::Update { old })
}

fn written(name: &str, spec: &AsyncActorSpec, write: Write<'_>) -> Vec<String> {
    let violations = check(&Subject {
        name,
        namespace: "ns",
        spec,
        role_arn: None,
        write,
        transports: &TransportsConfig::parse(TRANSPORTS).unwrap(),
        privileged_sidecars: false,
    });
    violations.iter().map(ToString::to_string).collect()
}

fn changed(spec: &AsyncActorSpec, change: &Value) -> AsyncActorSpec {
    let mut all = json!(spec);
    let fields = change.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(all).unwrap()
}

/// VAL-11: the Deployment would be deleted, and the StatefulSet could create no pod.
#[test]
fn change_to_a_kind_that_the_name_is_too_long_for_is_refused() {
    let long = "a".repeat(53);
    for kind in [None, Some("Deployment")] {
        let old = spec("rabbit", kind);
        let new = spec("rabbit", Some("StatefulSet"));
        assert_eq!(
            updated(&long, &old, &new),
            [
                "spec.workload.kind: the actor's name is too long or has illegal characters for a StatefulSet, which allows \
                 at most 52 of a-z, 0-9 and -, with a letter or digit at both ends; keep the kind, or create an AsyncActor \
                 with another name"
            ]
        );
        assert_eq!(updated(&"a".repeat(52), &old, &new), [""; 0]);
    }
    let (old, new) = (
        spec("rabbit", Some("StatefulSet")),
        spec("rabbit", Some("Deployment")),
    );
    assert_eq!(updated(&long, &old, &new), [""; 0], "back to what works");
}

/// VAL-11: the actor would lose its queue, and could not get another one.
#[test]
fn change_to_a_transport_that_the_name_is_illegal_for_is_refused() {
    for (old, new) in [
        (spec("rabbit", None), spec("cloud", None)),
        (bound("rabbit"), bound("cloud")),
    ] {
        assert_eq!(
            updated("my.actor", &old, &new),
            [
                "spec.transport: too long or illegal characters for SQS queue asya-my.actor; keep the transport, or \
                 create an AsyncActor with another name"
            ]
        );
        assert_eq!(updated("my.actor", &new, &old), [""; 0]);
        assert_eq!(updated("my-actor", &old, &new), [""; 0]);
    }
}

/// VAL-11: the controller finds what was changed while the webhook was down.
#[test]
fn stored_change_is_refused_like_an_update() {
    use WorkloadKind::{Deployment, StatefulSet};
    let long = "a".repeat(53);
    for (workloads, kind, refused) in [
        (&[Deployment][..], "StatefulSet", true),
        (&[Deployment, StatefulSet], "StatefulSet", false),
        (&[StatefulSet], "StatefulSet", false),
        (&[StatefulSet], "Deployment", false),
        (&[], "StatefulSet", false),
    ] {
        let spec = spec("rabbit", Some(kind));
        let recorded = Recorded {
            workloads,
            transport: Some("rabbit"),
        };
        let found = written(&long, &spec, Write::Stored(recorded));
        assert_eq!(found.len(), usize::from(refused), "{workloads:?} {kind}");
        assert!(
            found
                .iter()
                .all(|it| it.starts_with("spec.workload.kind: "))
        );
        assert_eq!(written("short", &spec, Write::Stored(recorded)), [""; 0]);
    }
    for (transport, refused) in [
        (Some("rabbit"), true),
        (Some("cloud"), false),
        (None, false),
    ] {
        let recorded = Recorded {
            workloads: &[Deployment],
            transport,
        };
        let found = written("my.actor", &spec("cloud", None), Write::Stored(recorded));
        assert_eq!(found.len(), usize::from(refused), "{transport:?}");
        assert!(found.iter().all(|it| it.starts_with("spec.transport: ")));
    }
    let deployment = Recorded {
        workloads: &[Deployment],
        transport: Some("cloud"),
    };
    assert_eq!(
        written("my.actor", &bound("cloud"), Write::Stored(deployment)),
        [""; 0]
    );
}

/// VAL-11: actors from before the rule stay editable.
#[test]
fn other_changes_of_an_actor_with_an_illegal_name_are_allowed() {
    let change = json!({"timeout": {"processing": 60}});
    for old in [
        spec("rabbit", None),
        spec("cloud", None),
        spec("cloud", Some("Deployment")),
        spec("cloud", Some("StatefulSet")),
        bound("cloud"),
    ] {
        let new = changed(&old, &change);
        for name in ["my.actor", "A", &*"a".repeat(64)] {
            assert_eq!(updated(name, &old, &new), [""; 0], "{name}");
        }
    }
    // the default kind, written out
    let (old, new) = (spec("cloud", None), spec("cloud", Some("Deployment")));
    assert_eq!(updated("my.actor", &old, &new), [""; 0]);
    // of two rules only the one whose field changes
    let (old, new) = (spec("cloud", None), spec("cloud", Some("StatefulSet")));
    let refused = updated("my.actor", &old, &new);
    assert!(
        refused[0].starts_with("spec.workload.kind: "),
        "{refused:?}"
    );
    assert_eq!(refused.len(), 1);
}
