//! Reviews of pods that already have some of our fields: INJ-7 to INJ-10.

use serde_json::{Value, json};

use crate::inject::bound::testing::{
    Binding, container, env, injected, names, patched, pod, review, reviewed,
};
use crate::inject::bound::{Action, BoundActor, InjectionReason, Operation};

fn actor() -> BoundActor {
    Binding::new(&json!({"sidecar": {"resources": {"requests": {"cpu": 0.5}}, "env": [{"name": "EMPTY", "value": ""}]}})).actor()
}

fn at<'a>(pod: &'a mut Value, name: &str) -> &'a mut Value {
    ["containers", "initContainers"]
        .into_iter()
        .find_map(|list| {
            let found = pod["spec"][list].as_array()?;
            let index = found.iter().position(|it| it["name"] == name)?;
            Some((list, index))
        })
        .map(|(list, index)| &mut pod["spec"][list][index])
        .unwrap()
}

/// The operations of a review's patch, as `op path`.
fn steps(actor: &BoundActor, pod: &Value) -> Vec<String> {
    match review(actor, pod).action {
        Action::Allow => Vec::new(),
        Action::Inject(patch) => patch
            .operations()
            .iter()
            .map(|it| {
                let it = serde_json::to_value(it).unwrap();
                format!(
                    "{} {}",
                    it["op"].as_str().unwrap(),
                    it["path"].as_str().unwrap()
                )
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// INJ-1, row 5; INJ-7
#[test]
fn injected_pod_is_left_unchanged() {
    for spec in [json!({}), json!({"sidecar": {"native": true}})] {
        let actor = Binding::new(&spec).actor();
        let after = injected(&actor, &pod(&json!({})));
        let decision = review(&actor, &after);
        assert_eq!(decision.reason, InjectionReason::AlreadyInjected);
        assert_eq!(decision.action, Action::Allow);
    }
}

/// The API server and its plugins change our containers between two calls (INJ-8).
#[test]
fn changes_by_others_to_injected_containers_are_kept() {
    let actor = actor();
    let mut after = injected(&actor, &pod(&json!({})));
    for name in ["asya-runtime", "asya-sidecar"] {
        let ours = at(&mut after, name);
        ours["env"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "THEIRS", "value": "x"}));
        ours["volumeMounts"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "v", "mountPath": "/vault"}));
        ours["imagePullPolicy"] = json!("Always");
        ours["terminationMessagePath"] = json!("/dev/termination-log");
        ours["resources"]["requests"] = json!({"cpu": "200m", "memory": "256Mi"});
        ours["resources"]["limits"] = json!({"cpu": "1"});
        ours["securityContext"]["runAsUser"] = json!(1_000_700);
    }
    let env = at(&mut after, "asya-sidecar")["env"]
        .as_array_mut()
        .unwrap();
    for entry in env.iter_mut().filter(|it| it["value"] == "") {
        entry.as_object_mut().unwrap().remove("value");
    }
    let config_map = after["spec"]["volumes"].as_array_mut().unwrap();
    config_map
        .iter_mut()
        .find(|it| it["name"] == "asya-runtime")
        .unwrap()["configMap"]["optional"] = json!(false);
    assert_eq!(
        review(&actor, &after).reason,
        InjectionReason::AlreadyInjected
    );
}

/// Replaces or removes the value at a path.
fn damage(pod: &mut Value, path: &str, to: Option<Value>) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    let parent = pod.pointer_mut(parent).unwrap();
    let key = key.replace("~1", "/");
    match (parent, to) {
        (Value::Array(items), None) => drop(items.remove(key.parse().unwrap())),
        (Value::Array(items), Some(item)) if key == "-" => items.push(item),
        (Value::Array(items), Some(item)) => items[key.parse::<usize>().unwrap()] = item,
        (parent, None) => drop(parent.as_object_mut().unwrap().remove(&key)),
        (parent, Some(value)) => parent[key] = value,
    }
}

/// INJ-8
#[test]
fn only_the_damaged_field_is_restored() {
    let actor = actor();
    let good = injected(&actor, &pod(&json!({})));
    let sidecar = "/spec/containers/2";
    let runtime = "/spec/containers/1";
    let volumes = "/spec/volumes";
    let label = "/metadata/labels/asya.sh~1asya";
    let elsewhere = json!({"name": "asya-socket-dir", "hostPath": {"path": "/"}});
    let twice = json!({"name": "ASYA_ACTOR_NAME", "value": "other"});
    for (at, to, step) in [
        (
            format!("{sidecar}/image"),
            Some(json!("evil")),
            format!("replace {sidecar}/image"),
        ),
        (
            format!("{runtime}/command"),
            Some(json!(["sh"])),
            format!("replace {runtime}/command"),
        ),
        (
            format!("{runtime}/command"),
            None,
            format!("add {runtime}/command"),
        ),
        (
            format!("{sidecar}/env/2/value"),
            Some(json!("other")),
            format!("replace {sidecar}/env"),
        ),
        (format!("{sidecar}/env"), None, format!("add {sidecar}/env")),
        (
            format!("{sidecar}/env/-"),
            Some(twice),
            format!("replace {sidecar}/env"),
        ),
        (
            format!("{runtime}/volumeMounts/0"),
            None,
            format!("replace {runtime}/volumeMounts"),
        ),
        (
            format!("{sidecar}/resources/requests/cpu"),
            None,
            format!("replace {sidecar}/resources"),
        ),
        (format!("{volumes}/1"), None, format!("add {volumes}/-")),
        (
            format!("{volumes}/1"),
            Some(elsewhere),
            format!("replace {volumes}/1"),
        ),
        (label.to_owned(), None, format!("add {label}")),
        (
            sidecar.to_owned(),
            None,
            "add /spec/containers/-".to_owned(),
        ),
    ] {
        let mut pod = good.clone();
        damage(&mut pod, &at, to);
        assert_eq!(
            review(&actor, &pod).reason,
            InjectionReason::Restored,
            "{step}"
        );
        assert_eq!(steps(&actor, &pod), [step.as_str()]);
        let restored = reviewed(&actor, &pod);
        assert_eq!(
            review(&actor, &restored).reason,
            InjectionReason::AlreadyInjected,
            "{step}"
        );
        for name in ["asya-runtime", "asya-sidecar"] {
            let (restored, good) = (container(&restored, name), container(&good, name));
            for field in ["image", "command", "resources"] {
                assert_eq!(restored[field], good[field]);
            }
        }
    }
}

/// INJ-8
#[test]
fn restored_variables_are_merged_with_those_of_others() {
    let actor = actor();
    let good = injected(&actor, &pod(&json!({})));
    let mut pod = good.clone();
    let env_list = at(&mut pod, "asya-sidecar")["env"].as_array_mut().unwrap();
    env_list.retain(|it| it["name"] != "ASYA_ACTOR_NAME");
    env_list
        .push(json!({"name": "THEIRS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}));
    let restored = reviewed(&actor, &pod);
    assert_eq!(
        env(&restored, "asya-sidecar", "ASYA_ACTOR_NAME"),
        Some("embed")
    );
    let theirs = container(&restored, "asya-sidecar")["env"]
        .as_array()
        .unwrap();
    assert!(
        theirs
            .iter()
            .any(|it| it["name"] == "THEIRS" && it.get("valueFrom").is_some())
    );
    // a valueFrom in place of an empty value
    let mut pod = good;
    let entries = at(&mut pod, "asya-sidecar")["env"].as_array_mut().unwrap();
    let empty = entries.iter_mut().find(|it| it["name"] == "EMPTY").unwrap();
    *empty = json!({"name": "EMPTY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let restored = reviewed(&actor, &pod);
    assert_eq!(env(&restored, "asya-sidecar", "EMPTY"), Some(""));
}

/// Happens after restoring a backup, or if the actor changes in between (INJ-1, row 6; INJ-9).
#[test]
fn containers_of_another_actor_or_spec_are_replaced_in_place() {
    let old = Binding {
        uid: "uid-0",
        role_arn: Some("arn:aws:iam::1:role/r"),
        ..Binding::new(&json!({"transport": "cloud", "runtime": {"image": "old"}}))
    };
    let mut before = injected(&old.actor(), &pod(&json!({})));
    before["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "last", "image": "l"}));
    let actor = Binding::new(&json!({})).actor();
    let decision = review(&actor, &before);
    assert_eq!(decision.reason, InjectionReason::Replaced);
    let after = reviewed(&actor, &before);
    assert_eq!(
        names(&after, "containers"),
        ["model", "asya-runtime", "asya-sidecar", "last"]
    );
    assert!(!names(&after, "volumes").contains(&"asya-role-token"));
    let fresh = injected(&actor, &pod(&json!({})));
    for name in ["asya-runtime", "asya-sidecar"] {
        assert_eq!(container(&after, name), container(&fresh, name));
    }
    assert_eq!(after["metadata"], fresh["metadata"]);
    assert_eq!(
        review(&actor, &after).reason,
        InjectionReason::AlreadyInjected
    );
}

/// Changing `native` moves the sidecar to the other list (INJ-7).
#[test]
fn sidecar_in_the_other_list_is_moved_and_not_duplicated() {
    for (old, new) in [(true, false), (false, true)] {
        let of = |native| Binding::new(&json!({"sidecar": {"native": native}})).actor();
        let init = json!({"initContainers": [{"name": "one", "image": "i"}]});
        let mut before = injected(&of(old), &pod(&init));
        let list = if old { "initContainers" } else { "containers" };
        before["spec"][list]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "last", "image": "l"}));
        let after = reviewed(&of(new), &before);
        let expected = if new {
            ["one", "asya-sidecar"].as_slice()
        } else {
            &["one", "last"]
        };
        assert_eq!(names(&after, "initContainers"), expected);
        container(&after, "asya-sidecar");
        container(&after, "last");
        assert_eq!(
            review(&of(new), &after).reason,
            InjectionReason::AlreadyInjected
        );
    }
}

/// Removals start at the end of the list (INJ-4).
#[test]
fn several_containers_in_the_wrong_list_all_move() {
    let actor = actor();
    let mut before = injected(&actor, &pod(&json!({})));
    let ours = before["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .split_off(1);
    let theirs = json!({"name": "theirs", "image": "t"});
    before["spec"]["initContainers"] = json!([ours[0], theirs, ours[1]]);
    let after = reviewed(&actor, &before);
    assert_eq!(names(&after, "initContainers"), ["theirs"]);
    assert_eq!(
        names(&after, "containers"),
        ["model", "asya-runtime", "asya-sidecar"]
    );
    assert_eq!(
        review(&actor, &after).reason,
        InjectionReason::AlreadyInjected
    );
}

/// INJ-9
#[test]
fn annotations_without_containers_are_ignored() {
    let actor = actor();
    let mut before = injected(&actor, &pod(&json!({})));
    before["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .truncate(1);
    let decision = review(&actor, &before);
    assert_eq!(decision.reason, InjectionReason::Injected);
    let after = reviewed(&actor, &before);
    assert_eq!(
        names(&after, "containers"),
        ["model", "asya-runtime", "asya-sidecar"]
    );
    assert_eq!(names(&after, "volumes").len(), 5);
}

/// Others may put containers before the model's, or declare ports, after the first call (BIND-23, BIND-24).
#[test]
fn choices_of_the_first_injection_are_kept_where_possible() {
    let actor = Binding::new(&json!({})).actor();
    let mut after = injected(&actor, &pod(&json!({})));
    let agent = json!({"name": "agent", "image": "a", "ports": [{"containerPort": 15000}]});
    after["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .insert(0, agent);
    assert_eq!(
        review(&actor, &after).reason,
        InjectionReason::AlreadyInjected
    );

    after["spec"]["containers"][0]["ports"][0]["containerPort"] = json!(18080);
    assert_eq!(review(&actor, &after).reason, InjectionReason::Restored);
    let moved = reviewed(&actor, &after);
    assert_eq!(
        env(&moved, "asya-sidecar", "ASYA_METRICS_ADDR"),
        Some(":18081")
    );
    assert_eq!(
        env(&moved, "asya-runtime", "ASYA_TARGET_URL"),
        Some("http://127.0.0.1:8090")
    );
    assert_eq!(
        review(&actor, &moved).reason,
        InjectionReason::AlreadyInjected
    );
}

/// INJ-4
#[test]
fn patch_replaces_and_removes_only_injected_fields() {
    let old = Binding {
        uid: "uid-0",
        ..Binding::new(&json!({"sidecar": {"native": true}}))
    };
    let before = injected(&old.actor(), &pod(&json!({})));
    let Action::Inject(patch) = review(&actor(), &before).action else {
        panic!();
    };
    for operation in patch.operations() {
        let (Operation::Replace { path, .. } | Operation::Remove { path }) = operation else {
            continue;
        };
        let at = serde_json::to_value(path).unwrap();
        let target = before.pointer(at.as_str().unwrap()).unwrap();
        assert!(
            target["name"].as_str().unwrap().starts_with("asya-"),
            "{at}"
        );
    }
    assert!(patch.operations().len() > 3);
    patched(&before, &patch);
}
