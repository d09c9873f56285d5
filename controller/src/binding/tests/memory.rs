//! Memory per pod that bindings keep (BIND-62; architecture, section 8).

use std::sync::Arc;

use serde_json::json;

use super::{EARLY, bind, deployment, key, project};
use crate::binding::Bindings;
use crate::binding::objects::ObjectWatch;
use crate::cluster::store::Store;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Key, PodRecord, UninjectedPodRecord};

const TARGETS: usize = 100;
const BOUND: usize = 10_000;
const UNBOUND: usize = 40_000;
const MIB: u64 = 1 << 20;

/// Anonymous memory of this process, in bytes: without the pages of its program, which differ from build to build.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    kilobytes.unwrap().parse::<u64>().unwrap() * 1024
}

/// A pod of a Deployment as the API server returns it; `injected` pods have the injected containers.
fn pod(target: &str, number: usize, injected: bool) -> serde_json::Value {
    let name = format!("{target}-7d9f8b6c54-{number:05}");
    let mut containers = vec!["model"];
    let mut metadata = json!({
        "name": name, "namespace": "ns", "uid": format!("0f5c3a52-7b1e-4b52-9d2a-{number:012}"), "resourceVersion": "123456789",
        "creationTimestamp": "2026-01-01T00:00:00Z", "generateName": format!("{target}-7d9f8b6c54-"),
        "labels": {"app.kubernetes.io/name": target, "app.kubernetes.io/part-of": "models", "pod-template-hash": "7d9f8b6c54"},
        "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{target}-7d9f8b6c54"),
            "uid": "5f1c0c5e-2222-4b52-9d2a-3f2f7d1d0a11", "controller": true,
        }],
    });
    if injected {
        containers.extend(["asya-runtime", "asya-sidecar"]);
        metadata["labels"]["asya.sh/asya"] = json!(target);
        metadata["labels"]["asya.sh/actor"] = json!(target);
        metadata["annotations"] = json!({
            "asya.sh/injected-by": "7b1e4b52-0f5c-3a52-9d2a-3f2f7d1d0a11",
            "asya.sh/injected-hash": "0123456789abcdef.fedcba9876543210",
        });
    }
    let statuses = containers.iter().map(|name| {
        json!({"name": name, "image": "image:1", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}})
    });
    let status = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": statuses.collect::<Vec<_>>(),
    });
    let containers = containers
        .iter()
        .map(|name| json!({"name": name, "image": "image:1"}));
    json!({"metadata": metadata, "spec": {"containers": containers.collect::<Vec<_>>()}, "status": status})
}

/// Run it alone: `cargo test -p asya-controller -- --ignored memory_of_fifty` (BIND-62).
#[test]
#[ignore = "measures the memory of the whole process, and so must run alone in it"]
fn memory_of_fifty_thousand_pods_of_which_ten_thousand_are_bound() {
    let previous = resident();
    let bindings = Arc::new(Bindings::default());
    let injected = Store::<PodRecord>::default();
    let scope = WatchScope::Namespace("ns".into());
    for number in 0..TARGETS {
        let name = format!("model-{number}");
        bind(&bindings, &Key::new("ns", &name), &name, EARLY);
    }
    for number in 0..BOUND {
        let target = format!("model-{}", number % TARGETS);
        injected.apply(&scope, &project::<PodRecord>(&pod(&target, number, true)));
    }
    let bound = resident();
    for number in 0..UNBOUND {
        let target = format!("other-{}", number % TARGETS);
        let affected = bindings.apply(
            &scope,
            &project::<UninjectedPodRecord>(&pod(&target, number, false)),
        );
        assert!(affected.is_empty(), "no actor binds it");
    }
    let after = resident();
    let per = |bytes: u64, pods: usize| bytes / u64::try_from(pods).unwrap();
    eprintln!(
        "{BOUND} bound pods: {} MiB, {} bytes each; {UNBOUND} unbound pods: {} MiB, {} bytes each; the process: {} MiB",
        (bound - previous) / MIB,
        per(bound - previous, BOUND),
        (after - bound) / MIB,
        per(after - bound, UNBOUND),
        after / MIB,
    );
    assert_eq!(injected.len(), BOUND);
    // Of the 100 MiB limit, an operator with few actors uses 30 itself.
    assert!(
        after - previous <= 70 * MIB,
        "{} MiB",
        (after - previous) / MIB
    );
}

/// BIND-60
#[test]
fn updates_of_a_thousand_unbound_workloads_enqueue_no_actor_and_leave_no_trace() {
    let bindings = Arc::new(Bindings::default());
    bind(&bindings, &key("a"), "web", EARLY);
    let target = bindings.target_of(&key("a")).unwrap();
    let watch = ObjectWatch::new(&bindings, &target.kind);
    let scope = WatchScope::Namespace("ns".into());
    let sizes = bindings.sizes();
    for version in 1..=20 {
        for number in 0..1000 {
            let unbound = deployment(&format!("unbound-{number}"), version);
            assert_eq!(watch.apply(&scope, &unbound), []);
        }
    }
    assert_eq!(bindings.sizes(), sizes);
}
