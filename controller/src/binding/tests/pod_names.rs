//! The cost of finding a target's pods, and a pod's targets, among many.

use serde_json::json;

use super::super::Bindings;
use super::super::pod_names::tests::visits;
use super::{EARLY, bind, key, pod};
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::record::{Enqueue, UninjectedPodRecord};

/// OPS-32: comparing all would visit 1,000,000 pairs each time.
#[test]
fn targets_and_pods_of_a_namespace_are_not_all_compared() {
    const COUNT: usize = 1000;
    let bindings = Bindings::default();
    let name = |number: usize| format!("web{number}");
    for number in 0..COUNT {
        bind(&bindings, &key(&name(number)), &name(number), EARLY);
    }
    let scope = WatchScope::Namespace("ns".into());
    WatchSink::<UninjectedPodRecord>::init(&bindings, &scope);
    let before = visits();
    for number in 0..COUNT {
        let applied = pod("ns", &format!("p{number}"), &name(number), &json!({}));
        let affected = bindings.apply(&scope, &applied);
        assert_eq!(affected, [Enqueue::Actor(key(&name(number)))]);
    }
    assert_eq!(visits() - before, COUNT, "targets");
    WatchSink::<UninjectedPodRecord>::init_done(&bindings, &scope);
    let before = visits();
    for number in 0..COUNT {
        let resolver = asya_shared::resolve::resolver("apps", "Deployment");
        let expected = resolver.unresolved_pods(&name(number));
        let pods = bindings.uninjected_pods.matching(&"ns".into(), &expected);
        let pods = pods.unwrap();
        assert_eq!(pods.len(), 1);
        assert_eq!(*pods[0].metadata.key.name, format!("p{number}"));
    }
    assert_eq!(visits() - before, COUNT, "pods");

    // Pods that are deleted, and targets that are bound or not bound any more.
    let gone = pod("ns", "p7", &name(7), &json!({}));
    let seven = Enqueue::Actor(key(&name(7)));
    assert_eq!(bindings.delete(&scope, &gone), [seven]);
    bindings.refresh(&key(&name(7)), None);
    assert_eq!(bindings.apply(&scope, &gone), []);
    bind(&bindings, &key("again"), &name(7), EARLY);
    let moved = pod("ns", "p7", &name(8), &json!({}));
    let mut affected = bindings.apply(&scope, &moved);
    affected.sort_by_key(|it| format!("{it:?}"));
    let both = ["again", &*name(8)].map(|it| Enqueue::Actor(key(it)));
    assert_eq!(affected, both, "the target that it leaves, and its new one");
}
