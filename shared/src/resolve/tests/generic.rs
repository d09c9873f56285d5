use serde_json::{Value, json};

use super::knative;
use super::objects::*;
use crate::resolve::*;

pub(super) fn thing() -> Value {
    object(
        "example.org/v1",
        "Thing",
        "big",
        &json!({"spec": {"model": "m"}}),
    )
}

pub(super) fn deployment(owner: &Value, name: &str) -> Value {
    let containers =
        json!([{"name": "main", "image": "me/model:1", "ports": [{"containerPort": 7000}]}]);
    let labels = json!({"app": name});
    by(owner, workload("Deployment", name, &labels, &containers))
}

/// RES-3, RES-24
#[test]
fn unknown_kind_resolves_to_the_only_workload_below_it() {
    let target = thing();
    let own = deployment(&target, "big-abc");
    let it = found(
        &target,
        &[&own, &deployment(&knative::service(), "unrelated")],
    );
    assert_eq!(chain(&it), ["Thing/big", "Deployment/big-abc"]);
    assert_eq!(
        it.roll,
        RolloutMethod::AnnotateTemplate(vec![it.workload.clone()])
    );
    assert_eq!(it.scale, Scale::Object(it.workload.clone()));
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:7000", "rest")
    );
    let labels = [("app", "big-abc"), (POD_TEMPLATE_HASH, "5d8f7c")];
    let owner = ("apps/v1", "ReplicaSet", "big-abc-5d8f7c");
    assert!(has(&it.pods, &labels, owner));
    assert!(!has(&unresolved_pods(&target), &labels, owner));
    assert_eq!(
        warnings(&target, &[&own]),
        [(
            CaveatReason::UnknownOwner,
            "Deployment/big-abc belongs to Thing/big, whose kind is unknown: it may revert changes"
                .to_owned()
        )]
    );
}

/// RES-3
#[test]
fn several_workloads_are_ambiguous_and_none_is_waited_for() {
    let target = thing();
    assert_eq!(
        refuses(
            &target,
            &[&deployment(&target, "b"), &deployment(&target, "a")]
        ),
        Finding::new(
            FindingReason::Ambiguous,
            "Thing/big has several workloads: Deployment/a, Deployment/b; set spec.workloadRef to one of them, in a new AsyncActor"
        )
    );
    assert_eq!(
        waits(&target, &[]),
        "Thing/big owns no workload within four levels; waiting for one, or set spec.workloadRef to the object that \
         owns the pods in a new AsyncActor"
    );
}

/// RES-3
#[test]
fn search_goes_at_most_four_levels_down() {
    let target = thing();
    let mut all = vec![by(&target, knative::service())];
    all.extend(knative::below(&all[0].clone(), "hello", "00001"));
    let it = found(&target, &all.iter().collect::<Vec<_>>());
    assert_eq!(
        chain(&it),
        [
            "Thing/big",
            "Service/hello",
            "Configuration/hello",
            "Revision/hello-00001",
            "Deployment/hello-00001-deployment"
        ]
    );
    let between = by(
        &target,
        object("serving.knative.dev/v1", "Service", "upper", &json!({})),
    );
    all[0] = by(&between, knative::service());
    all.push(between);
    waits(&target, &all.iter().collect::<Vec<_>>());
}

/// RES-3
#[test]
fn cycle_of_owners_terminates() {
    let target = thing();
    let a = object("serving.knative.dev/v1", "Revision", "a", &json!({}));
    let b = object("serving.knative.dev/v1", "Revision", "b", &json!({}));
    waits(
        &target,
        &[&by(&target, a.clone()), &by(&b, a.clone()), &by(&a, b)],
    );
}

fn leaders(owner: &Value) -> Value {
    let template =
        json!({"spec": {"containers": [{"name": "main", "image": "vllm/vllm-openai:v0.11.0"}]}});
    let spec = json!({"spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}});
    by(
        owner,
        object(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            "llm",
            &spec,
        ),
    )
}

/// RES-3
#[test]
fn leaders_of_a_leader_worker_set_are_bound() {
    let target = thing();
    let own = leaders(&target);
    let it = found(&target, &[&own]);
    assert_eq!(chain(&it), ["Thing/big", "LeaderWorkerSet/llm"]);
    assert_eq!(it.roll, RolloutMethod::Evict);
    assert_eq!(scaled(&target, &[&own]), "LeaderWorkerSet/llm");
    assert_eq!(
        (url(&it), it.server.adapter),
        ("http://127.0.0.1:8000", "openai_chat")
    );
    let leader = [
        ("leaderworkerset.sigs.k8s.io/name", "llm"),
        ("leaderworkerset.sigs.k8s.io/worker-index", "0"),
    ];
    assert!(has(&it.pods, &leader, ("apps/v1", "StatefulSet", "llm")));
    let worker = [leader[0], ("leaderworkerset.sigs.k8s.io/worker-index", "1")];
    assert!(!has(&it.pods, &worker, ("apps/v1", "StatefulSet", "llm-0")));
    // bound directly, it is its own workload
    assert_eq!(chain(&found(&own, &[])), ["LeaderWorkerSet/llm"]);
}

/// RES-24: a crash of a container of ours costs the whole group.
#[test]
fn leader_worker_set_that_recreates_groups_is_warned_about() {
    for (policy, is_warned) in [
        (Value::Null, true),
        (json!("RecreateGroupOnPodRestart"), true),
        (json!("RecreateGroupAfterStart"), true),
        (json!("None"), false),
        (json!("Default"), false),
    ] {
        let mut own = leaders(&thing());
        own["spec"]["leaderWorkerTemplate"]["restartPolicy"] = policy.clone();
        let expected = (
            CaveatReason::BindingCaveat,
            "LeaderWorkerSet/llm: a container that restarts, one of Asya's included, makes it recreate all pods of the \
             group; set its spec.leaderWorkerTemplate.restartPolicy to None"
                .to_owned(),
        );
        let found = warnings(&own, &[]).contains(&expected);
        assert_eq!(found, is_warned, "{policy}");
    }
}

/// RES-24
#[test]
fn workloads_with_replicas_managed_by_others_are_bound_but_not_scaled() {
    for kind in ["DaemonSet", "ReplicaSet"] {
        let target = thing();
        let mut own = deployment(&target, "big");
        own["kind"] = json!(kind);
        let it = found(&target, &[&own]);
        assert_eq!(it.roll, RolloutMethod::Evict);
        assert!(has(&it.pods, &[("app", "big")], ("apps/v1", kind, "big")));
        assert_eq!(
            not_scaled(&target, &[&own]),
            format!(
                "{kind}/big: the operator cannot set the number of its pods; set spec.scaling.enabled to false"
            )
        );
    }
}

/// RES-1
#[test]
fn workload_without_a_readable_selector_waits() {
    let target = thing();
    let mut own = deployment(&target, "big");
    own["spec"]["selector"] = json!(7);
    assert_eq!(
        waits(&target, &[&own]),
        "Deployment/big: cannot read spec.selector; waiting until it is valid"
    );
}

#[test]
fn every_kind_has_a_resolver() {
    assert_eq!(resolver("example.org", "Thing").group_kind(), ANY);
    for known in [
        "apps/Deployment",
        "kaito.sh/Workspace",
        "mlops.seldon.io/Model",
    ] {
        let (group, kind) = known.split_once('/').unwrap();
        assert_eq!(
            resolver(group, kind).group_kind(),
            GroupKind { group, kind }
        );
    }
    assert_eq!(resolver("", "Service").group_kind(), ANY);
}
