//! Coexistence with other injectors (INJ-12), each represented by the shape of its result: every order, and
//! reinvocation.

use asya_fuzz::injectors::{ALL, Injector, dapr, has, istio, kserve, linkerd, otel, vault};
use serde_json::{Value, json};

use crate::inject::bound::testing::{Binding, container, injected, names, pod, review, reviewed};
use crate::inject::bound::{BoundActor, InjectionReason};

fn actors() -> [BoundActor; 2] {
    [json!({}), json!({"sidecar": {"native": true}})].map(|spec| Binding::new(&spec).actor())
}

/// Every container must be there once: the pod's own unchanged, and ours as without other injectors, apart from
/// additions.
fn check(actor: &BoundActor, before: &Value, after: &Value, expected: &[&str], what: &str) {
    let mut all: Vec<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| names(after, list))
        .collect();
    all.sort_unstable();
    let mut expected = [expected, &["model", "asya-runtime", "asya-sidecar"]].concat();
    expected.sort_unstable();
    assert_eq!(all, expected, "{what}");
    let mut volumes = names(after, "volumes");
    let count = volumes.len();
    volumes.sort_unstable();
    volumes.dedup();
    assert_eq!(volumes.len(), count, "{what}");

    let alone = injected(actor, before);
    for name in ["asya-runtime", "asya-sidecar"] {
        let (mut found, alone) = (container(after, name).clone(), container(&alone, name));
        // added by Vault
        let mounts = found["volumeMounts"].as_array_mut().unwrap();
        mounts.retain(|it| it["name"] != "vault-secrets");
        // the port is taken by Dapr
        for entry in found["env"].as_array_mut().unwrap() {
            if entry["name"] == "ASYA_METRICS_ADDR" && entry["value"] == ":18081" {
                assert!(has(after, "daprd"), "{what}");
                entry["value"] = json!(":18080");
            }
        }
        assert_eq!(&found, alone, "{what}: {name}");
    }
    let decision = review(actor, after);
    assert_eq!(decision.reason, InjectionReason::AlreadyInjected, "{what}");
}

fn added_by(injector: Injector) -> Vec<String> {
    let mut with = pod(&json!({}));
    injector(&mut with);
    let all = ["containers", "initContainers"].map(|list| names(&with, list));
    let all = all.into_iter().flatten().filter(|it| *it != "model");
    all.map(str::to_owned).collect()
}

/// INJ-12
#[test]
fn each_injector_coexists_with_the_webhook_in_either_order() {
    for actor in actors() {
        let before = pod(&json!({}));
        for (name, injector) in ALL {
            let added = added_by(injector);
            let added: Vec<&str> = added.iter().map(String::as_str).collect();
            // ours first
            let mut pod = injected(&actor, &before);
            injector(&mut pod);
            let first = names(&pod, "containers")[0].to_owned();
            for _ in 0..2 {
                pod = reviewed(&actor, &pod);
                injector(&mut pod);
            }
            pod = reviewed(&actor, &pod);
            assert_eq!(names(&pod, "containers")[0], first, "{name} after ours");
            check(&actor, &before, &pod, &added, &format!("{name} after ours"));

            // theirs first
            let mut pod = before.clone();
            injector(&mut pod);
            let first = names(&pod, "containers")[0].to_owned();
            pod = injected(&actor, &pod);
            for _ in 0..2 {
                injector(&mut pod);
                pod = reviewed(&actor, &pod);
            }
            assert_eq!(names(&pod, "containers")[0], first, "{name} before ours");
            check(
                &actor,
                &before,
                &pod,
                &added,
                &format!("{name} before ours"),
            );
        }
    }
}

/// INJ-12
#[test]
fn all_injectors_coexist_with_the_webhook_at_any_position() {
    let all = [istio, linkerd, vault, otel, dapr, kserve] as [Injector; 6];
    for actor in actors() {
        let before = pod(&json!({}));
        let added: Vec<String> = all.iter().flat_map(|it| added_by(*it)).collect();
        let added: Vec<&str> = added.iter().map(String::as_str).collect();
        // every rotation, with ours at every position
        for start in 0..all.len() {
            for place in 0..=all.len() {
                let mut pod = before.clone();
                for at in 0..=all.len() {
                    if at == place {
                        pod = injected(&actor, &pod);
                    }
                    if at < all.len() {
                        all[(start + at) % all.len()](&mut pod);
                    }
                }
                // reinvoke all of them
                let first = names(&pod, "containers")[0].to_owned();
                for injector in all {
                    injector(&mut pod);
                }
                pod = reviewed(&actor, &pod);
                assert_eq!(names(&pod, "containers")[0], first);
                check(
                    &actor,
                    &before,
                    &pod,
                    &added,
                    &format!("start {start}, ours at {place}"),
                );
            }
        }
    }
}
