use std::sync::Arc;

use serde_json::{Value, json};

use super::{Constraint, Constraints};
use crate::binding::Bindings;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{
    ActorRecord, CreationFailureRecord, Enqueue, Key, LimitRangeRecord, NamespaceRecord, Projected,
    QuotaRecord, Record,
};

fn project<R: Record>(object: &Value) -> Projected<R> {
    serde_json::from_str(&object.to_string()).unwrap()
}

fn constraint<R: Record>(name: &str, spec: &Value) -> Projected<R> {
    project(&json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}, "spec": spec,
        "status": {"used": {"pods": "1"}},
    }))
}

fn scope() -> WatchScope {
    WatchScope::Namespace("ns".into())
}

/// Runs a complete list with these objects.
fn list<R: Constraint>(bindings: &Bindings, objects: &[Projected<R>]) -> Vec<Enqueue> {
    WatchSink::<R>::init(bindings, &scope());
    for object in objects {
        assert_eq!(
            bindings.apply(&scope(), object),
            [],
            "the first list is not a change"
        );
    }
    WatchSink::<R>::init_done(bindings, &scope())
}

fn bindings() -> Bindings {
    let bindings = Bindings::default();
    let actor: Projected<ActorRecord> = project(&json!({
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
    assert_eq!(limits(constraints), None, "nothing has been listed");
    let quota = json!({"hard": {"limits.cpu": "4", "limits.memory": "4Gi"}});
    assert_eq!(
        list(&bindings, &[constraint::<QuotaRecord>("q", &quota)]),
        a()
    );
    assert_eq!(limits(constraints), None);
    assert_eq!(list::<LimitRangeRecord>(&bindings, &[]), a());
    let names = |names: &[&str]| {
        Some(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(limits(constraints), names(&["cpu", "memory"]));

    let default = json!({"limits": [{"type": "Container", "default": {"memory": "1Gi"}}]});
    let range = constraint::<LimitRangeRecord>("r", &default);
    assert_eq!(bindings.apply(&scope(), &range), a());
    assert_eq!(limits(constraints), names(&["cpu"]));
    assert_eq!(bindings.delete(&scope(), &range), a());
    assert_eq!(limits(constraints), names(&["cpu", "memory"]));
    constraints.forget(&scope());
    assert_eq!(limits(constraints), None);

    WatchSink::<QuotaRecord>::list_failed(&bindings, &scope());
    WatchSink::<LimitRangeRecord>::list_failed(&bindings, &scope());
    assert_eq!(limits(constraints), names(&[]), "listing them is forbidden");
}

/// SAFE-4
#[test]
fn only_a_changed_constraint_requests_a_dry_run() {
    let bindings = bindings();
    let requested = || {
        let next = bindings.probe_schedule.next_probe(&key());
        bindings.probe_schedule.record_admitted(&key());
        next.requested
    };
    let quota = |pods: &str| constraint::<QuotaRecord>("q", &json!({"hard": {"pods": pods}}));
    list(&bindings, &[quota("1")]);
    assert_eq!(bindings.apply(&scope(), &quota("1")), []);
    assert!(!requested());
    assert_eq!(bindings.apply(&scope(), &quota("2")), a());
    assert!(requested());

    let namespace = |level: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        project::<NamespaceRecord>(
            &json!({"metadata": {"name": "ns", "uid": "n", "resourceVersion": "1", "labels": labels}}),
        )
    };
    list(&bindings, &[namespace("baseline")]);
    assert_eq!(bindings.apply(&scope(), &namespace("baseline")), []);
    assert_eq!(bindings.apply(&scope(), &namespace("restricted")), a());
    assert!(requested());
    WatchSink::<NamespaceRecord>::init(&bindings, &scope());
    assert_eq!(
        WatchSink::<NamespaceRecord>::init_done(&bindings, &scope()),
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
    for (reason, kind, name, last, is_bound) in [
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
        let event: Projected<CreationFailureRecord> = project(&json!({
            "metadata": {"name": "e", "namespace": "ns", "uid": "e", "resourceVersion": "1"},
            "involvedObject": {"apiVersion": "apps/v1", "kind": kind, "namespace": "ns", "name": name, "uid": "u"},
            "reason": reason, "message": "exceeded quota", "lastTimestamp": last.to_string(),
        }));
        let expected = if is_bound { a() } else { Vec::new() };
        let case = format!("{reason} {kind}/{name} {last}");
        assert_eq!(bindings.apply(&scope(), &event), expected, "{case}");
        assert_eq!(
            bindings.probe_schedule.next_probe(&key()).requested,
            is_bound,
            "{case}"
        );
        bindings.probe_schedule.forget(&key());
    }
}
