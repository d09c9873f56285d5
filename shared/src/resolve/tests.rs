use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

mod bento;
mod generic;
mod kaito;
mod knative;
mod kserve;
mod llm;
mod lookup;
mod objects;
mod odd;
mod owners;
mod ray;
mod seldon;

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "phi", "uid": "u-1"},
        "spec": {
            "selector": {"matchLabels": {"app": "phi"}},
            "template": {"spec": {"containers": [{"name": "model", "image": "me/model:1", "ports": [{"containerPort": 8090}]}]}},
        },
    })
}

fn resolve(target: &Value) -> Resolution {
    let kind = target["kind"].as_str().unwrap();
    resolver("apps", kind).resolve(target, &Related::default())
}

fn found(target: &Value) -> Target {
    match resolve(target) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

fn reference(api_version: &str, kind: &str) -> WorkloadRef {
    WorkloadRef {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: "phi".to_owned(),
        namespace: None,
    }
}

/// A pod's labels, and its controller owner.
struct Pod(
    BTreeMap<&'static str, &'static str>,
    Option<Controller<'static>>,
);

impl Pod {
    fn new(
        labels: &[(&'static str, &'static str)],
        kind: &'static str,
        name: &'static str,
    ) -> Self {
        let owner = Controller {
            api_version: "apps/v1",
            kind,
            name,
        };
        Self(labels.iter().copied().collect(), Some(owner))
    }

    fn is_of(&self, pods: &PodMatch) -> bool {
        pods.matches(|key| self.0.get(key).copied(), self.1.as_ref())
    }
}

/// RES-10
#[test]
fn deployment_is_its_own_workload() {
    let target = found(&deployment());
    assert_eq!(target.workload.to_string(), "Deployment/phi");
    assert_eq!(target.chain, vec![target.workload.clone()]);
    assert_eq!(target.scale, Scale::Object(target.workload.clone()));
    assert_eq!(
        target.roll,
        RolloutMethod::AnnotateTemplate(vec![target.workload.clone()])
    );
    assert_eq!(target.server.url.as_deref(), Some("http://127.0.0.1:8090"));
    assert_eq!(target.server.adapter, "rest");
    assert!(target.warnings.is_empty() && target.owner.is_none());
    let status = target.to_status("team-a");
    assert_eq!(status.pod_selector.as_deref(), Some("app=phi"));
    assert_eq!(status.chain, ["Deployment/phi"]);
    assert_eq!(status.uid.as_deref(), Some("u-1"));
}

/// RES-10
#[test]
fn url_is_unknown_without_a_declared_port() {
    let mut target = deployment();
    target["spec"]["template"]["spec"]["containers"][0]["ports"] = json!([]);
    assert_eq!(found(&target).server.url, None);
}

/// RES-11, RES-12
#[test]
fn known_images_need_no_declared_port() {
    for (image, adapter) in [
        ("vllm/vllm-openai:v0.11.0", "openai_chat"),
        ("registry:5000/mirror/vllm-cpu@sha256:0123", "openai_chat"),
        ("nvidia/tritonserver:25.01-py3", "kserve_v2"),
    ] {
        let mut target = deployment();
        let container = &mut target["spec"]["template"]["spec"]["containers"][0];
        container["image"] = json!(image);
        container["ports"] = json!(null);
        let server = found(&target).server;
        assert_eq!(
            server.url.as_deref(),
            Some("http://127.0.0.1:8000"),
            "{image}"
        );
        assert_eq!(server.adapter, adapter, "{image}");
    }
    let mut target = deployment();
    target["spec"]["template"]["spec"]["containers"][0]["image"] = json!("vllm/router:1");
    assert_eq!(found(&target).server.adapter, "rest");
}

#[test]
fn model_is_found_after_containers_that_an_injector_puts_first() {
    let proxy = ContainerShape {
        name: "istio-proxy",
        image: "istio/proxyv2",
        port: Some(15090),
        https: false,
    };
    let custom = ContainerShape {
        name: "agent",
        ..proxy
    };
    let model = ContainerShape {
        name: "model",
        image: "me/model",
        port: Some(9000),
        https: false,
    };
    let resolver = resolver("apps", "Deployment");
    let url = |containers: &[ContainerShape<'_>], main| resolver.server(containers, main).url;
    let expected = Some("http://127.0.0.1:9000".to_owned());
    assert_eq!(url(&[proxy, model], None), expected);
    assert_eq!(url(&[custom, model], Some("model")), expected);
    assert_eq!(url(&[model, custom], Some("gone")), expected);
    assert_eq!(url(&[proxy, model], Some("istio-proxy")), expected);
}

/// RES-1
#[test]
fn field_of_unexpected_type_makes_the_target_wait() {
    for broken in [
        "/spec/selector",
        "/spec/selector/matchLabels",
        "/metadata/name",
    ] {
        let mut target = deployment();
        *target.pointer_mut(broken).unwrap() = json!(7);
        let resolution = resolve(&target);
        let Resolution::Waiting(finding) = &resolution else {
            panic!("{broken}: {resolution:?}");
        };
        assert_eq!(finding.reason, FindingReason::TargetNotReady);
    }
}

/// RES-4
#[test]
fn finding_of_an_owned_workload_advises_to_bind_the_owner() {
    let owned = |api_version, kind| {
        let mut target = deployment();
        target["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "v1", "kind": "Namespace", "name": "x"},
            {"apiVersion": api_version, "kind": kind, "name": "own", "uid": "u-9", "controller": true},
        ]);
        found(&target)
    };
    let target = owned("serving.kserve.io/v1beta1", "InferenceService");
    let [warning] = &target.warnings[..] else {
        panic!("{target:?}");
    };
    assert_eq!(
        warning.message,
        "Deployment/phi belongs to InferenceService/own: set spec.workloadRef to InferenceService/own instead, in a new AsyncActor"
    );
    assert_eq!(target.owner.unwrap().uid.as_deref(), Some("u-9"));
    let target = owned("example.org/v1", "Thing");
    assert_eq!(
        target.warnings[0].message,
        "Deployment/phi belongs to Thing/own: its owner may revert changes"
    );
}

/// RES-5
#[test]
fn pods_of_a_deployment_belong_to_a_replica_set_named_after_it() {
    let hash = (POD_TEMPLATE_HASH, "5d8f7c");
    let unresolved = pods_of(&reference("apps/v1", "Deployment"), None);
    let resolved = found(&deployment()).to_status("team-a");
    let after = pods_of(&reference("apps/v1", "Deployment"), Some(&resolved));
    assert_eq!(after, found(&deployment()).pods);

    let own = Pod::new(&[("app", "phi"), hash], "ReplicaSet", "phi-5d8f7c");
    assert!(own.is_of(&unresolved) && own.is_of(&after));
    let before_its_labels = Pod::new(&[hash], "ReplicaSet", "phi-5d8f7c");
    assert!(before_its_labels.is_of(&unresolved) && !before_its_labels.is_of(&after));
    for (unrelated, why) in [
        (
            Pod::new(&[("app", "phi"), hash], "ReplicaSet", "phi-2-5d8f7c"),
            "another Deployment's",
        ),
        (
            Pod::new(
                &[("app", "phi"), ("pod-template-hash", "2-5d8f7c")],
                "ReplicaSet",
                "ph-i-2-5d8f7c",
            ),
            "a shorter name",
        ),
        (
            Pod::new(&[("app", "phi")], "ReplicaSet", "phi-5d8f7c"),
            "a ReplicaSet by hand",
        ),
        (
            Pod::new(
                &[("app", "phi"), ("pod-template-hash", "")],
                "ReplicaSet",
                "phi-",
            ),
            "an empty hash",
        ),
        (
            Pod::new(&[("app", "phi"), hash], "StatefulSet", "phi-5d8f7c"),
            "another kind",
        ),
        (Pod(own.0.clone(), None), "an unmanaged pod"),
    ] {
        assert!(
            !unrelated.is_of(&unresolved) && !unrelated.is_of(&after),
            "{why}"
        );
    }
}

/// RES-5
#[test]
fn truncated_replica_set_name_still_matches() {
    let name: String = "d".repeat(250);
    let replica_set: &'static str = format!("{}-5d8f7c", "d".repeat(246)).leak();
    let pods = resolver("apps", "Deployment").unresolved_pods(&name);
    let hash = [(POD_TEMPLATE_HASH, "5d8f7c")];
    assert!(Pod::new(&hash, "ReplicaSet", replica_set).is_of(&pods));
    assert!(!Pod::new(&hash, "ReplicaSet", &replica_set[1..]).is_of(&pods));
}

/// RES-5
#[test]
fn pods_of_a_stateful_set_belong_to_it_by_name() {
    let pods = pods_of(&reference("apps/v1beta2", "StatefulSet"), None);
    assert!(Pod::new(&[], "StatefulSet", "phi").is_of(&pods));
    assert!(!Pod::new(&[], "StatefulSet", "phi-2").is_of(&pods));
    assert!(!Pod::new(&[(POD_TEMPLATE_HASH, "a")], "ReplicaSet", "phi-a").is_of(&pods));
}

/// RES-5
#[test]
fn owner_rule_matches_by_kind_or_by_any_of_several_rules() {
    let kind = GroupKind {
        group: "apps",
        kind: "StatefulSet",
    };
    let rule = OwnerRule::AnyOf(vec![
        OwnerRule::ReplicaSetOf {
            deployment: "phi".to_owned(),
        },
        OwnerRule::Named {
            kind,
            name: "phi-x7k2p".to_owned(),
        },
    ]);
    let pods = |owner| PodMatch {
        labels: Selector::default(),
        owner,
    };
    let of = |name| Pod::new(&[(POD_TEMPLATE_HASH, "a")], "StatefulSet", name);
    assert!(of("phi-x7k2p").is_of(&pods(rule.clone())));
    assert!(!of("phi-x7k2").is_of(&pods(rule.clone())));
    assert!(Pod::new(&[(POD_TEMPLATE_HASH, "a")], "ReplicaSet", "phi-a").is_of(&pods(rule)));
    assert!(of("any").is_of(&pods(OwnerRule::Kind(kind))));
    assert!(!Pod::new(&[], "Job", "any").is_of(&pods(OwnerRule::Kind(kind))));
}

#[test]
fn pods_of_an_unknown_kind_match_once_its_workload_is_resolved() {
    let target = reference("example.org/v1", "Thing");
    assert_eq!(pods_of(&target, None), PodMatch::nothing());
}

/// BIND-4
#[test]
fn chain_in_status_is_bounded() {
    let mut target = found(&deployment());
    target.chain = vec![target.workload.clone(); 12];
    assert_eq!(target.to_status("team-a").chain.len(), MAX_CHAIN);
}

#[test]
fn selectors_round_trip_through_status() {
    let selector = Selector::from_json(&json!({
        "matchLabels": {"app": "phi"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "canary", "operator": "NotIn", "values": ["yes"]},
            {"key": "serving.knative.dev/revision", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }))
    .unwrap();
    let text = selector.to_string();
    assert_eq!(
        text,
        "app=phi,canary notin (yes),!old,serving.knative.dev/revision,tier in (a,b)"
    );
    assert_eq!(Selector::parse(&text).unwrap(), selector);
    assert_eq!(Selector::from_json(&selector.to_json()).unwrap(), selector);
    assert_eq!(
        Selector::parse("a==b , c!=d").unwrap().to_string(),
        "a=b,c notin (d)"
    );
    assert_eq!(selector.value_of("app"), Some("phi"));
    assert_eq!(selector.value_of("tier"), None);

    let matches = |pod: &[(&str, &'static str)]| {
        let labels: BTreeMap<_, _> = pod.iter().copied().collect();
        selector.matches(&|key: &str| labels.get(key).copied())
    };
    let revision = ("serving.knative.dev/revision", "r");
    assert!(matches(&[("app", "phi"), ("tier", "b"), revision]));
    assert!(!matches(&[("app", "phi"), ("tier", "c"), revision]));
    assert!(!matches(&[("app", "phi"), ("tier", "b")]));
    assert!(!matches(&[
        ("app", "phi"),
        ("tier", "b"),
        revision,
        ("canary", "yes")
    ]));
    assert!(!matches(&[
        ("app", "phi"),
        ("tier", "b"),
        revision,
        ("old", "")
    ]));
}

#[test]
fn invalid_selector_is_rejected() {
    for text in ["=a", "a in (b", "a in b", "a b", "a near (b)", "a=b c"] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
    assert_eq!(Selector::parse(" ").unwrap(), Selector::default());
    for value in [
        json!({"matchLabels": {"a": 1}}),
        json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
        json!([]),
    ] {
        assert!(Selector::from_json(&value).is_err(), "{value}");
    }
}

#[test]
fn each_integration_has_a_webhook_entry() {
    let of = |group, kind| Integration::of(GroupKind { group, kind });
    assert_eq!(of("kaito.sh", "Workspace").entry(), "kaito");
    assert_eq!(of("apps", "Deployment"), Integration::Generic);
    assert_eq!(
        of("serving.knative.dev", "Service").label(),
        Some("serving.knative.dev/service")
    );
    assert_eq!(of("", "Service"), Integration::Generic);
    assert_eq!(Integration::Generic.label(), None);
}
