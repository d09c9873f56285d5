use asya_shared::inject::bound::{PodView, decide};
use asya_shared::key::Key;
use asya_shared::resolve::ObjectRef;
use serde_json::{Value, json};

use super::super::{Index, ProjectedActor};
use crate::testing::installation;

fn actor(status: &Value) -> ProjectedActor {
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
    let decision = decide(bindings.iter().map(AsRef::as_ref), &pod);
    decision.actor.is_some()
}

/// SAFE-30, SAFE-31
#[test]
fn workers_are_bound_by_the_owner_of_their_cluster() {
    let index = Index::new(installation());
    let apply = |cluster: &str, owner| index.apply_cluster(&Key::new("a", cluster), owner);
    apply("llm-early", Some(owner("RayService", "s")));
    index.apply(&actor(&json!({})).actor);
    assert!(
        binds(&index, "llm-early"),
        "the cluster was observed before the binding"
    );

    apply("llm-x7k2p", Some(owner("RayService", "s")));
    apply("llm-train", None);
    apply("llm-job00", Some(owner("RayJob", "j")));
    let bound = |names: &[&str]| {
        names
            .iter()
            .map(|name| binds(&index, name))
            .collect::<Vec<_>>()
    };
    let all = ["llm-x7k2p", "llm-train", "llm-job00", "llm-never"];
    assert_eq!(bound(&all), [true, false, false, false]);

    index.delete_cluster(&Key::new("a", "llm-x7k2p"));
    assert!(!binds(&index, "llm-x7k2p"));
    index.init_clusters();
    assert!(
        binds(&index, "llm-early"),
        "clusters are kept during a list"
    );
    apply("llm-x7k2p", Some(owner("RayService", "s")));
    index.init_clusters_done();
    assert_eq!(bound(&["llm-early", "llm-x7k2p"]), [false, true]);

    // Without a watch, the controller's resolution decides.
    index.clear_clusters();
    assert!(!binds(&index, "llm-x7k2p"));
    let resolved = json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm", "uid": "s", "chain": ["RayService/llm", "RayCluster/llm-x7k2p"]});
    index.apply(&actor(&json!({"resolvedTarget": resolved})).actor);
    assert_eq!(bound(&["llm-x7k2p", "llm-early"]), [true, false]);
    // Another service owns the cluster.
    apply("llm-x7k2p", Some(owner("RayService", "previous")));
    assert!(!binds(&index, "llm-x7k2p"));
}

/// SAFE-31
#[test]
fn clusters_are_needed_only_while_a_service_is_bound() {
    let index = Index::new(installation());
    let needed = index.clusters_needed();
    assert!(!*needed.borrow());
    index.apply(&actor(&json!({})).actor);
    assert!(*needed.borrow());
    index.delete(&Key::new("a", "llm"));
    assert!(!*needed.borrow());
    index.apply(&actor(&json!({})).actor);
    index.init();
    index.init_done();
    assert!(!*needed.borrow(), "the list did not return the actor");
}
