use asya_shared::inject::bound::{PodView, ReviewPath, decide};
use asya_shared::key::Key;
use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::super::{Index, Seen};
use crate::testing::platform;

fn actor(status: &Value) -> Seen {
    let target = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm"});
    let actor = json!({
        "metadata": {"namespace": "a", "name": "llm", "uid": "u", "resourceVersion": "1"},
        "spec": {"transport": "other", "workloadRef": target},
        "status": status,
    });
    serde_json::from_str(&actor.to_string()).unwrap()
}

fn owner(kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "ray.io/v1".to_owned(),
        kind: kind.to_owned(),
        name: "llm".to_owned(),
        uid: Some(uid.to_owned()),
    }
}

/// Whether a worker pod of this cluster belongs to a binding.
fn binds(index: &Index, cluster: &str) -> bool {
    let pod = json!({
        "metadata": {
            "labels": {"ray.io/cluster": cluster, "ray.io/node-type": "worker"},
            "ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": cluster, "uid": "c", "controller": true}],
        },
        "spec": {"containers": [{"name": "ray-worker"}]},
    })
    .to_string();
    let bindings = index.bindings_in("a");
    let pod = PodView::decode(&pod).unwrap();
    let decision = decide(
        bindings.iter().map(AsRef::as_ref),
        ReviewPath::Optional,
        &pod,
    );
    decision.actor.is_some()
}

/// SAFE-30, SAFE-31: the index follows the watch, and bindings are rendered again when clusters change.
#[test]
fn workers_are_bound_by_the_owner_of_their_cluster() {
    let index = Index::new(platform());
    let show = |cluster: &str, owner| index.show_cluster(&Key::new("a", cluster), owner);
    show("llm-early", Some(owner("RayService", "s")));
    index.show(&actor(&json!({})).actor);
    assert!(binds(&index, "llm-early"), "seen before the binding was");

    show("llm-x7k2p", Some(owner("RayService", "s")));
    show("llm-train", None);
    show("llm-job00", Some(owner("RayJob", "j")));
    let bound = |names: &[&str]| names.iter().map(|it| binds(&index, it)).collect::<Vec<_>>();
    let all = ["llm-x7k2p", "llm-train", "llm-job00", "llm-never"];
    assert_eq!(bound(&all), [true, false, false, false]);

    index.removed_cluster(&Key::new("a", "llm-x7k2p"));
    assert!(!binds(&index, "llm-x7k2p"));
    index.relisting_clusters();
    assert!(
        binds(&index, "llm-early"),
        "nothing is lost while a list runs"
    );
    show("llm-x7k2p", Some(owner("RayService", "s")));
    index.relisted_clusters();
    assert_eq!(bound(&["llm-early", "llm-x7k2p"]), [false, true]);

    // Without a watch, the controller's resolution counts.
    index.forget_clusters();
    assert!(!binds(&index, "llm-x7k2p"));
    let resolved = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "chain": ["RayService/llm", "RayCluster/llm-x7k2p"]});
    index.show(&actor(&json!({"resolvedTarget": resolved})).actor);
    assert_eq!(bound(&["llm-x7k2p", "llm-early"]), [true, false]);
    // The current service is not the one that owns the cluster.
    show("llm-x7k2p", Some(owner("RayService", "former")));
    assert!(!binds(&index, "llm-x7k2p"));
}

/// SAFE-31
#[test]
fn clusters_are_wanted_while_a_service_is_bound() {
    let index = Index::new(platform());
    let wanted = index.wants_clusters();
    assert!(!*wanted.borrow());
    index.show(&actor(&json!({})).actor);
    assert!(*wanted.borrow());
    index.removed(&Key::new("a", "llm"));
    assert!(!*wanted.borrow());
    index.show(&actor(&json!({})).actor);
    index.relisting();
    index.relisted();
    assert!(!*wanted.borrow(), "the list did not show it");
}
