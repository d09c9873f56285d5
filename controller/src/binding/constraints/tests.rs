use std::sync::Arc;

use serde_json::{Value, json};

use super::{Constraint, Constraints};
use crate::binding::Bindings;
use crate::cluster::store::Scope;
use crate::cluster::watch::WatchSink;
use crate::record::{
    ActorRecord, CreationFailureRecord, Enqueue, Key, LimitRangeRecord, NamespaceRecord, Projected,
    QuotaRecord, Record,
};

fn seen<R: Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn constraint<R: Record>(name: &str, spec: &Value) -> Projected<R> {
    seen(&json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": spec,
        "status": {"used": {"pods": "1"}},
    }))
}

#[expect(clippy::unnecessary_wraps, reason = "a scope may be the whole cluster")]
fn here() -> Scope {
    Some("ns".into())
}

/// Runs a complete list with these objects.
fn list<R: Constraint>(bindings: &Bindings, objects: &[Projected<R>]) -> Vec<Enqueue> {
    WatchSink::<R>::relisting(bindings, &here());
    for object in objects {
        assert_eq!(
            bindings.show(&here(), object),
            [],
            "the first list is no change"
        );
    }
    WatchSink::<R>::relisted(bindings, &here())
}

fn bindings() -> Bindings {
    let bindings = Bindings::default();
    let actor: Projected<ActorRecord> = seen(&json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    }));
    bindings.refresh(&key(), Some(&actor.record));
    bindings
}

fn key() -> Key {
    Key::new("ns", "a")
}

fn a() -> Vec<Enqueue> {
    vec![Enqueue::Actor(key())]
}

fn limits(constraints: &Constraints) -> Option<Vec<String>> {
    let limits = constraints.limits("ns")?;
    Some(limits.into_iter().map(String::from).collect())
}

/// SAFE-6
#[test]
fn limits_are_required_by_a_quota_unless_a_limit_range_defaults_them() {
    let bindings = bindings();
    let constraints = &bindings.constraints;
    assert_eq!(limits(constraints), None, "nobody has listed them");
    let quota = json!({"hard": {"limits.cpu": "4", "limits.memory": "4Gi"}});
    assert_eq!(
        list(&bindings, &[constraint::<QuotaRecord>("q", &quota)]),
        a()
    );
    assert_eq!(limits(constraints), None);
    assert_eq!(list::<LimitRangeRecord>(&bindings, &[]), a());
    let names = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert_eq!(limits(constraints), names(&["cpu", "memory"]));

    let default = json!({"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]});
    let range = constraint::<LimitRangeRecord>("r", &default);
    assert_eq!(bindings.show(&here(), &range), a());
    assert_eq!(limits(constraints), names(&["cpu"]));
    assert_eq!(bindings.removed(&here(), &range), a());
    assert_eq!(limits(constraints), names(&["cpu", "memory"]));
    constraints.forget(&here());
    assert_eq!(limits(constraints), None);

    WatchSink::<QuotaRecord>::failing(&bindings, &here());
    WatchSink::<LimitRangeRecord>::failing(&bindings, &here());
    assert_eq!(limits(constraints), names(&[]), "nobody may list them");
}

/// SAFE-4
#[test]
fn only_a_changed_constraint_requests_a_dry_run() {
    let bindings = bindings();
    let requested = || {
        let turn = bindings.probes.turn(&key());
        bindings.probes.admitted(&key());
        turn.requested
    };
    let quota = |pods: &str| constraint::<QuotaRecord>("q", &json!({"hard": {"pods": pods}}));
    list(&bindings, &[quota("1")]);
    assert_eq!(bindings.show(&here(), &quota("1")), []);
    assert!(!requested());
    assert_eq!(bindings.show(&here(), &quota("2")), a());
    assert!(requested());

    let namespace = |level: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        seen::<NamespaceRecord>(
            &json!({"metadata": {"name": "ns", "uid": "n", "resourceVersion": "1", "labels": labels}}),
        )
    };
    list(&bindings, &[namespace("baseline")]);
    assert_eq!(bindings.show(&here(), &namespace("baseline")), []);
    assert_eq!(bindings.show(&here(), &namespace("restricted")), a());
    assert!(requested());
    WatchSink::<NamespaceRecord>::relisting(&bindings, &here());
    assert_eq!(
        WatchSink::<NamespaceRecord>::relisted(&bindings, &here()),
        a()
    );
    assert!(requested());
}

/// SAFE-4
#[test]
fn failed_pod_creation_requests_a_dry_run_of_its_binding() {
    let bindings = Arc::new(bindings());
    let now = k8s_openapi::jiff::Timestamp::now();
    let hour = k8s_openapi::jiff::SignedDuration::from_hours(1);
    let earlier = now.checked_sub(hour).unwrap();
    for (reason, kind, name, last, concerns) in [
        ("FailedCreate", "ReplicaSet", "web-5d8f7c", now, true),
        (
            "FailedToCreateWorkerPod",
            "ReplicaSet",
            "web-5d8f7c",
            now,
            true,
        ),
        ("FailedCreate", "ReplicaSet", "web-5d8f7c", earlier, false),
        ("FailedCreate", "ReplicaSet", "other-5d8f7c", now, false),
        ("FailedCreate", "StatefulSet", "web", now, false),
        ("FailedScheduling", "ReplicaSet", "web-5d8f7c", now, false),
    ] {
        let event: Projected<CreationFailureRecord> = seen(&json!({
            "metadata": {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "1"},
            "involvedObject": {"apiVersion": "apps/v1", "kind": kind, "namespace": "ns", "name": name, "uid": "u"},
            "reason": reason, "message": "exceeded quota", "lastTimestamp": last.to_string(),
        }));
        let wanted = if concerns { a() } else { Vec::new() };
        let what = format!("{reason} {kind}/{name} {last}");
        assert_eq!(bindings.show(&here(), &event), wanted, "{what}");
        assert_eq!(bindings.probes.turn(&key()).requested, concerns, "{what}");
        bindings.probes.forget(&key());
    }
}
