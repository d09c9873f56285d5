//! The annotation that lets the cluster autoscaler evict the pod in spite of our volumes (BIND-33).

use serde_json::{Value, json};

use crate::inject::bound::testing::{Binding, injected, pod, review, reviewed};
use crate::inject::bound::{BoundActor, InjectionReason, strip_injected};
use crate::probe::from_running_pod;

const OURS: &str = "asya-socket-dir,asya-tmp,asya-no-token";
const VOLUMES: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes";
const POD: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

fn actor() -> BoundActor {
    Binding::new(&json!({})).actor()
}

fn annotated(annotations: &Value) -> Value {
    let mut pod = pod(&json!({}));
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// BIND-33: the target's own local volumes are still its user's to declare.
#[test]
fn injected_volumes_do_not_keep_the_node_from_being_removed() {
    for (before, expected) in [
        (json!({}), OURS.to_owned()),
        (json!({VOLUMES: ""}), OURS.to_owned()),
        (json!({VOLUMES: "data"}), format!("data,{OURS}")),
        (
            json!({VOLUMES: "asya-tmp,data"}),
            "asya-tmp,data,asya-socket-dir,asya-no-token".to_owned(),
        ),
        // The cluster autoscaler does not trim the names.
        (
            json!({VOLUMES: "data, asya-tmp"}),
            format!("data, asya-tmp,{OURS}"),
        ),
        (json!({VOLUMES: OURS}), OURS.to_owned()),
    ] {
        let actor = actor();
        let after = injected(&actor, &annotated(&before));
        assert_eq!(after["metadata"]["annotations"][VOLUMES], expected);
        let second = review(&actor, &after);
        assert_eq!(second.reason, InjectionReason::AlreadyInjected, "{before}");
    }
    let mut bare = pod(&json!({}));
    bare["metadata"]["annotations"] = Value::Null;
    let after = injected(&actor(), &bare);
    assert_eq!(after["metadata"]["annotations"][VOLUMES], OURS);
}

/// BIND-33
#[test]
fn pod_that_says_itself_whether_it_may_be_evicted_is_not_annotated() {
    for value in ["true", "false", ""] {
        for given in [json!({POD: value}), json!({POD: value, VOLUMES: "data"})] {
            let after = injected(&actor(), &annotated(&given));
            assert_eq!(
                after["metadata"]["annotations"].get(VOLUMES),
                given.get(VOLUMES)
            );
        }
    }
}

/// BIND-33, INJ-10: what another webhook did to the annotation after the first call.
#[test]
fn second_call_adds_the_names_again() {
    let actor = actor();
    let mut after = injected(&actor, &pod(&json!({})));
    after["metadata"]["annotations"][VOLUMES] = json!("theirs");
    assert_eq!(review(&actor, &after).reason, InjectionReason::Restored);
    let restored = reviewed(&actor, &after);
    assert_eq!(
        restored["metadata"]["annotations"][VOLUMES],
        format!("theirs,{OURS}")
    );
}

/// BIND-33: a pod without the sidecar has none of our volumes.
#[test]
fn pod_that_is_left_alone_is_not_annotated() {
    let after = reviewed(&actor(), &pod(&json!({"hostNetwork": true})));
    assert_eq!(
        after["metadata"]["annotations"],
        json!({"asya.sh/not-injected": "HostNetwork"})
    );
}

/// BIND-33, SAFE-35, ROLL-8: it is in no hash, and in no pod template, so that no release rolls pods for it.
#[test]
fn annotation_is_neither_in_the_hash_nor_in_a_template() {
    let actor = actor();
    let plan = actor.plan().unwrap();
    let ours = plan.render_for_template(&pod(&json!({}))).unwrap();
    let annotations = ours["metadata"]["annotations"].as_object().unwrap();
    let keys: Vec<_> = annotations.keys().collect();
    assert_eq!(keys, ["asya.sh/injected-by", "asya.sh/injected-hash"]);
    // a pod of an earlier release, as exported
    let mut before = injected(&actor, &pod(&json!({})));
    let hash = &before["metadata"]["annotations"]["asya.sh/injected-hash"];
    assert_eq!(hash, &json!(plan.hash().to_string()));
    let annotations = before["metadata"]["annotations"].as_object_mut();
    annotations.unwrap().remove(VOLUMES);
    let mut template = before;
    strip_injected(&mut template);
    assert_eq!(template["spec"], pod(&json!({}))["spec"]);
}

/// BIND-33, ROLL-2 (f)
#[test]
fn dry_run_of_a_copied_pod_is_injected_once_more() {
    let running = injected(&actor(), &pod(&json!({})));
    let copy = from_running_pod(&running);
    let after = injected(&actor(), &copy);
    assert_eq!(after["metadata"]["annotations"][VOLUMES], OURS);
}
