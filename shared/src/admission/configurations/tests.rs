mod limits;

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;
use serde_json::{Value, json};

use super::super::testing::{labelled, plain, required, settings};
use super::super::{Endpoint, EntryBinding, EntrySettings, required_entry_name};
use super::{MutatingConfigurations, mutating, validating};
use crate::resolve::{GroupKind, Integration, OwnerRule};

fn rules(bindings: &[EntryBinding]) -> MutatingConfigurations {
    mutating(&settings(), bindings, Vec::new())
}

fn entries(bindings: &[EntryBinding]) -> Vec<MutatingWebhook> {
    let objects = rules(bindings).objects;
    objects
        .into_iter()
        .filter_map(|it| it.webhooks)
        .flatten()
        .collect()
}

fn entry(bindings: &[EntryBinding], name: &str) -> Value {
    let found = entries(bindings).into_iter().find(|it| it.name == name);
    json!(found.unwrap_or_else(|| panic!("no entry {name}")))
}

fn names(bindings: &[EntryBinding]) -> Vec<String> {
    entries(bindings).into_iter().map(|it| it.name).collect()
}

fn condition<'a>(entry: &'a Value, name: &str) -> &'a str {
    let all = entry["matchConditions"].as_array().unwrap();
    let found = all.iter().find(|it| it["name"] == name);
    found.map_or("", |it| it["expression"].as_str().unwrap())
}

/// CFG-2
#[test]
fn without_bindings_there_is_one_object_without_entries() {
    let objects = rules(&[]).objects;
    assert_eq!(objects.len(), 1);
    assert_eq!(objects[0].metadata.name.as_deref(), Some("asya-injector"));
    assert_eq!(objects[0].webhooks, Some(Vec::new()));
}

/// CFG-3
#[test]
fn bindings_of_an_integration_share_an_entry_limited_to_their_namespaces_and_names() {
    let workspace = |namespace: &str, name: &str| {
        labelled(
            namespace,
            Integration::Kaito,
            &[("kaito.sh/workspace", name)],
        )
    };
    let bindings = [
        workspace("b", "phi"),
        workspace("a", "llama"),
        workspace("a", "phi"),
        plain("c", "web"),
    ];
    assert_eq!(
        names(&bindings),
        ["kaito.inject.asya.sh", "generic.inject.asya.sh"]
    );
    let kaito = entry(&bindings, "kaito.inject.asya.sh");
    assert_eq!(
        kaito["namespaceSelector"],
        json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}]})
    );
    assert_eq!(
        kaito["objectSelector"],
        json!({"matchExpressions": [
            {"key": "kaito.sh/workspace", "operator": "In", "values": ["llama", "phi"]},
            {"key": "asya.sh/inject", "operator": "NotIn", "values": ["false"]},
        ]})
    );
    assert_eq!(kaito["failurePolicy"], "Ignore");
    assert_eq!(kaito["clientConfig"]["service"]["path"], "/mutate/pods");
    assert_eq!(condition(&kaito, "owned"), "");
    let generic = entry(&bindings, "generic.inject.asya.sh");
    assert_eq!(
        generic["objectSelector"],
        json!({"matchExpressions": [{"key": "asya.sh/inject", "operator": "NotIn", "values": ["false"]}]})
    );
    assert_eq!(
        condition(&generic, "owned"),
        "has(object.metadata) && has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, \
         has(o.controller) && o.controller && has(o.apiVersion) && has(o.kind) && has(o.name) && \
         ((o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/') && \
         ((o.name.contains('-') && o.name.substring(0, o.name.lastIndexOf('-')) in ['web'])))))"
    );
}

/// CFG-3
#[test]
fn label_without_usable_values_is_required_by_key_only() {
    let exists = json!({"key": "ray.io/cluster", "operator": "Exists"});
    let of = |bindings: &[EntryBinding]| {
        let entry = entry(bindings, "ray.inject.asya.sh");
        entry["objectSelector"]["matchExpressions"][0].clone()
    };
    let cluster = |name: &str| labelled("a", Integration::Ray, &[("ray.io/cluster", name)]);
    let many = |count: usize| -> Vec<EntryBinding> {
        (0..count).map(|n| cluster(&format!("c{n}"))).collect()
    };
    assert_eq!(of(&many(50))["values"].as_array().unwrap().len(), 50);
    assert_eq!(of(&many(51)), exists);
    assert_eq!(
        of(&[cluster("one"), labelled("a", Integration::Ray, &[])]),
        exists
    );
}

/// CFG-3
#[test]
fn too_many_owner_names_are_reduced_to_their_kinds() {
    let named = |count: usize, length: usize| -> Vec<EntryBinding> {
        let name = |n: usize| format!("{n:0>length$}");
        (0..count).map(|n| plain("a", &name(n))).collect()
    };
    let owned = |bindings: &[EntryBinding]| {
        condition(&entry(bindings, "generic.inject.asya.sh"), "owned").to_owned()
    };
    assert!(owned(&named(200, 10)).contains("'0000000199'"));
    for (bindings, why) in [(named(201, 10), "names"), (named(150, 200), "length")] {
        let owned = owned(&bindings);
        assert!(!owned.contains("'0"), "{why}: {owned}");
        assert!(owned.ends_with("((o.kind == 'ReplicaSet' && o.apiVersion.startsWith('apps/'))))"));
    }
    let shortened = owned(&named(1, 250));
    assert!(shortened.contains(&format!("['{:0>242}'].exists(p, o.name.startsWith(p))", "")));
}

/// CFG-3, CFG-8
#[test]
fn required_binding_has_its_own_entry_that_fails_closed_once_verified() {
    let binding = labelled(
        "models",
        Integration::Kserve,
        &[
            ("serving.kserve.io/inferenceservice", "phi3"),
            ("component", "predictor"),
        ],
    );
    let name = required_entry_name("models", "labelled");
    for (verified, policy) in [(false, "Ignore"), (true, "Fail")] {
        let bindings = [required(binding.clone(), verified)];
        assert_eq!(names(&bindings), [name.as_str()]);
        let entry = entry(&bindings, &name);
        assert_eq!(entry["failurePolicy"], policy);
        assert_eq!(
            entry["clientConfig"]["service"]["path"],
            "/mutate/pods/required"
        );
        assert_eq!(
            entry["namespaceSelector"]["matchExpressions"][0]["values"],
            json!(["models"])
        );
        assert_eq!(
            entry["objectSelector"],
            json!({"matchExpressions": [
                {"key": "component", "operator": "In", "values": ["predictor"]},
                {"key": "serving.kserve.io/inferenceservice", "operator": "In", "values": ["phi3"]},
            ]}),
            "a pod that opts out is refused, too"
        );
        assert_eq!(condition(&entry, "owned"), "", "its labels tell it");
    }
    let deployment = [required(plain("models", "web"), true)];
    let entry = entry(&deployment, &required_entry_name("models", "web"));
    assert!(condition(&entry, "owned").contains("in ['web']"), "{entry}");
    assert_ne!(name, required_entry_name("model", "slabelled"));
}

/// CFG-4
#[test]
fn all_entries_match_pod_creation_and_time_out_after_five_seconds() {
    let all = entries(&[plain("a", "web"), required(plain("a", "must"), true)]);
    assert_eq!(all.len(), 2);
    for entry in all.iter().map(|entry| json!(entry)) {
        assert_eq!(
            entry["rules"],
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}])
        );
        let fields = [
            "timeoutSeconds",
            "sideEffects",
            "reinvocationPolicy",
            "matchPolicy",
        ];
        assert_eq!(
            fields.map(|field| entry[field].clone()),
            [
                json!(5),
                json!("None"),
                json!("IfNeeded"),
                json!("Equivalent")
            ]
        );
        assert_eq!(entry["admissionReviewVersions"], json!(["v1"]));
        let service = &entry["clientConfig"]["service"];
        assert_eq!(
            (&service["namespace"], &service["name"], &service["port"]),
            (&json!("asya-system"), &json!("asya-webhook"), &json!(443))
        );
        assert_eq!(entry["clientConfig"]["caBundle"], "UEVN");
    }
    let by_url = EntrySettings {
        endpoint: Endpoint::Url("https://127.0.0.1:9443/".to_owned()),
        ..settings()
    };
    let objects = mutating(&by_url, &[plain("a", "web")], Vec::new()).objects;
    let config = json!(objects[0].webhooks.as_ref().unwrap()[0].client_config);
    assert_eq!(config["url"], "https://127.0.0.1:9443/mutate/pods");
    assert_eq!(config.get("service"), None);
}

/// CFG-5
#[test]
fn system_namespaces_and_the_operator_namespace_are_excluded_twice() {
    let excluded = [
        "asya-system",
        "kube-system",
        "kube-public",
        "kube-node-lease",
    ];
    let bindings: Vec<_> = excluded
        .into_iter()
        .flat_map(|namespace| {
            [
                plain(namespace, "web"),
                required(plain(namespace, "must"), true),
            ]
        })
        .collect();
    assert_eq!(names(&bindings), [""; 0]);
    for entry in entries(&[plain("a", "web"), required(plain("a", "must"), true)]) {
        let entry = json!(entry);
        let condition = condition(&entry, "not-excluded");
        for namespace in excluded {
            assert!(condition.contains(&format!("'{namespace}'")), "{condition}");
        }
    }
}

/// A name that no object can have could break out of the CEL string, or make the API server reject all entries.
#[test]
fn invalid_name_is_left_out() {
    let evil = "x'] || true || ['";
    let bindings = [plain("a", evil), required(plain("a", evil), true)];
    assert_eq!(names(&bindings), [""; 0]);
    let mixed = entry(
        &[plain("a", evil), plain("a", "web")],
        "generic.inject.asya.sh",
    );
    assert!(condition(&mixed, "owned").contains("in ['web']"), "{mixed}");
    for bad in ["no value", "-edge", &*"x".repeat(64), "ümlaut"] {
        let label = |value| labelled("a", Integration::Kaito, &[("kaito.sh/workspace", value)]);
        assert_eq!(names(&[label(bad)]), [""; 0], "{bad}");
        assert_eq!(names(&[required(label(bad), true)]), [""; 0], "{bad}");
        let mixed = entry(&[label(bad), label("good")], "kaito.inject.asya.sh");
        let values = &mixed["objectSelector"]["matchExpressions"][0]["values"];
        assert_eq!(*values, json!(["good"]));
    }
    for key in ["", "/x", "a/b/c", "UPPER/x", "x y"] {
        assert_eq!(
            names(&[required(
                labelled("a", Integration::Kaito, &[(key, "v")]),
                true
            )]),
            [""; 0],
            "{key}"
        );
    }
}

/// CFG-7 (d)
#[test]
fn a_thousand_bindings_in_two_hundred_namespaces_fit_into_half_a_mebibyte() {
    let name = |n: usize| format!("{:-<40}-{n:03}", "a-name-as-long-as-they-come");
    let workspace = |n: usize| [("kaito.sh/workspace".to_owned(), name(n))];
    let bindings: Vec<_> = (0..1000)
        .map(|n| {
            let namespace = format!("{:-<50}-{:03}", "namespace", n % 200);
            let labels = workspace(n);
            let labels: Vec<_> = labels
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .collect();
            let binding = if n % 2 == 0 {
                labelled(&namespace, Integration::Kaito, &labels)
            } else {
                plain(&namespace, &name(n))
            };
            let binding = EntryBinding {
                actor: name(n),
                ..binding
            };
            if n % 10 == 0 {
                required(binding, true)
            } else {
                binding
            }
        })
        .collect();
    let bundle = EntrySettings {
        ca_bundle: "x".repeat(2 * 800),
        ..settings()
    };
    let rules = mutating(&bundle, &bindings, Vec::new());
    let entries: usize = rules
        .objects
        .iter()
        .map(|it| it.webhooks.as_ref().unwrap().len())
        .sum();
    assert_eq!(entries, 102);
    for object in &rules.objects {
        let size = serde_json::to_vec(object).unwrap().len();
        assert!(size <= 512 * 1024, "{size} bytes");
    }
}

/// CFG-1, AVL-5
#[test]
fn configurations_are_owned_by_the_owner_role() {
    let owned = |metadata: Value| {
        assert_eq!(
            metadata["ownerReferences"],
            json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "asya-webhook-anchor", "uid": "anchor-uid"}])
        );
        assert_eq!(
            metadata["labels"]["app.kubernetes.io/managed-by"],
            "asya-operator"
        );
    };
    owned(json!(rules(&[]).objects[0].metadata));
    owned(json!(validating(&settings()).metadata));
}

/// VAC-8
#[test]
fn actors_are_validated_on_spec_changes_and_fail_open() {
    let object = json!(validating(&settings()));
    assert_eq!(object["metadata"]["name"], "asya-validator");
    let entries = object["webhooks"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    let entry = entries
        .iter()
        .find(|it| it["name"] == crate::admission::VALIDATION_ENTRY)
        .unwrap();
    assert_eq!(entry["failurePolicy"], "Ignore");
    assert_eq!(
        entry["rules"],
        json!([{"apiGroups": ["asya.sh"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"], "resources": ["asyncactors"], "scope": "Namespaced"}])
    );
    assert_eq!(
        entry["clientConfig"]["service"]["path"],
        "/validate/asyncactors"
    );
    assert!(condition(entry, "not-deleting").contains("deletionTimestamp"));
    let changes = condition(entry, "spec-changes");
    assert!(changes.contains("generation") && changes.contains("'asya.sh/reconcile'"));
}

/// The order of bindings does not affect the objects, and a rule with several owners covers all of them.
#[test]
fn expressions_do_not_depend_on_the_order_of_bindings() {
    let any_of = EntryBinding {
        pods: crate::resolve::PodMatch {
            owner: OwnerRule::AnyOf(vec![
                OwnerRule::Named {
                    kind: GroupKind {
                        group: "apps",
                        kind: "StatefulSet",
                    },
                    name: "db".to_owned(),
                },
                OwnerRule::Named {
                    kind: GroupKind {
                        group: "",
                        kind: "Thing",
                    },
                    name: "gen".to_owned(),
                },
                OwnerRule::ReplicaSetOf {
                    deployment: "d".repeat(250),
                },
            ]),
            ..plain("a", "db").pods
        },
        ..plain("a", "db")
    };
    let one = entries(&[any_of.clone(), plain("b", "web"), plain("a", "app")]);
    let other = entries(&[plain("a", "app"), any_of, plain("b", "web")]);
    assert_eq!(one, other);
    let text = json!(one[0]).to_string();
    for part in [
        "o.name in ['db']",
        "o.name in ['gen']",
        ".exists(p, o.name.startsWith(p))",
        "!o.apiVersion.contains('/')",
        "in ['app','web']",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let distinct: BTreeSet<_> = one.iter().map(|it| &it.name).collect();
    assert_eq!(distinct.len(), one.len());
}

/// SAFE-32
#[test]
fn only_pods_of_known_ray_clusters_may_fail_closed() {
    let target =
        serde_json::json!({"apiVersion": "ray.io/v1", "kind": "RayService", "name": "llm"});
    let target = serde_json::from_value(target).unwrap();
    let binding = |chain: &[&str]| {
        let resolved = crate::api::ResolvedTarget {
            chain: chain.iter().map(ToString::to_string).collect(),
            ..crate::api::ResolvedTarget::default()
        };
        let binding = EntryBinding {
            integration: Integration::Ray,
            pods: crate::resolve::pods_of(&target, Some(&resolved)),
            has_intermediate_owners: crate::resolve::has_intermediate_owners(&target),
            ..plain("a", "llm")
        };
        required(binding, true)
    };
    let policies = |binding: EntryBinding| -> Vec<_> {
        let all = entries(&[binding]);
        all.iter()
            .map(|it| it.failure_policy.clone().unwrap())
            .collect()
    };
    let known = binding(&["RayService/llm", "RayCluster/llm-x7k2p"]);
    assert_eq!(policies(known.clone()), ["Ignore", "Fail"]);
    assert_eq!(policies(binding(&["RayService/llm"])), ["Ignore"]);
    let closed = entries(&[known]).remove(1);
    let owned = condition(&json!(closed), "owned").to_owned();
    assert!(owned.contains("o.name in ['llm-x7k2p']"), "{owned}");
    assert!(!owned.contains("startsWith('llm"), "{owned}");
}
