use serde_json::{Value, json};

use super::*;

fn workload(kind: &str, spec: &Value) -> RestartedWorkload {
    let body = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "phi"}, "spec": spec,
        "status": {"replicas": 4, "updatedReplicas": 4},
    });
    let object = ObjectRef::of(&body).unwrap();
    RestartedWorkload {
        strategy: UpdateStrategy::of(&object, &body),
        object,
    }
}

fn pods(states: &[(&str, bool, bool)]) -> Vec<PodState> {
    let pod = |(name, ready, is_current): &(&str, bool, bool)| PodState {
        name: (*name).to_owned(),
        ready: *ready,
        is_current: *is_current,
    };
    states.iter().map(pod).collect()
}

fn template() -> RolloutMethod {
    RolloutMethod::AnnotateTemplate(Vec::new())
}

fn restart(roll: &RolloutMethod, workloads: &[RestartedWorkload], pods: &[PodState]) -> Restart {
    of_binding(&RestartInputs {
        roll,
        rollout: BindingRollout::Always,
        roll_now: false,
        workloads,
        pods,
        budget: None,
        blocked: None,
    })
}

const OLD: [(&str, bool, bool); 4] = [
    ("phi-0", true, false),
    ("phi-1", false, false),
    ("phi-10", true, false),
    ("phi-2", true, false),
];

/// A workload with four pods, and their expected replacement.
struct Case<'a> {
    roll: &'a RolloutMethod,
    kind: &'a str,
    spec: Value,
    by: ReplacedBy,
    order: &'a [&'a str],
    surge: i32,
    unavailable: i32,
}

/// ROLL-3, ROLL-4, ROLL-6, SAFE-11
#[test]
fn update_strategy_decides_who_replaces_pods_and_in_which_order() {
    let four = || json!({"replicas": 4});
    let owner = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata"]);
    let by_template = template();
    let by_deployment = || Case {
        roll: &by_template,
        kind: "Deployment",
        spec: four(),
        by: ReplacedBy::Workload,
        order: &[],
        surge: 1,
        unavailable: 1,
    };
    let by_eviction = || Case {
        by: ReplacedBy::Operator,
        order: &["phi-1", "phi-2", "phi-10", "phi-0"],
        surge: 0,
        ..by_deployment()
    };
    for case in [
        by_deployment(),
        Case {
            spec: json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}),
            surge: 2,
            unavailable: 0,
            ..by_deployment()
        },
        Case {
            spec: json!({"replicas": 4, "strategy": {"type": "Recreate"}}),
            ..by_eviction()
        },
        Case {
            kind: "StatefulSet",
            order: &["phi-10", "phi-2", "phi-1", "phi-0"],
            surge: 0,
            ..by_deployment()
        },
        Case {
            roll: &RolloutMethod::Evict,
            kind: "ReplicaSet",
            ..by_eviction()
        },
        Case {
            roll: &owner,
            by: ReplacedBy::Owner,
            ..by_deployment()
        },
    ] {
        let workloads = [workload(case.kind, &case.spec)];
        let found = restart(case.roll, &workloads, &pods(&OLD));
        let context = format!("{} {}: {}", case.kind, case.spec, found.text);
        assert_eq!(found.by, case.by, "{context}");
        assert_eq!(found.order, case.order, "{context}");
        assert_eq!(found.surge, case.surge, "{context}");
        assert_eq!(found.unavailable, case.unavailable, "{context}");
        assert_eq!(found.pods, 4, "{context}");
    }
}

/// SAFE-11
#[test]
fn models_of_an_inference_set_are_replaced_one_by_one() {
    let model = || workload("StatefulSet", &json!({"replicas": 1}));
    let found = restart(&template(), &[model(), model()], &pods(&OLD[..2]));
    assert_eq!((found.by, found.unavailable), (ReplacedBy::Operator, 1));
    assert!(
        found.text.contains("its workloads would each lose a pod"),
        "{}",
        found.text
    );
}

/// ROLL-3
#[test]
fn pods_that_are_replaced_are_named_and_what_decides_their_order_is_told() {
    let spec = json!({"replicas": 4});
    let owner = RolloutMethod::Annotate(ObjectRef::default(), vec!["metadata"]);
    for (roll, kind, rule) in [
        (
            &template(),
            "Deployment",
            Some("not fixed: old pods that are not ready first"),
        ),
        (&template(), "StatefulSet", None),
        (&owner, "Deployment", Some("as the controller of")),
        (&RolloutMethod::Evict, "ReplicaSet", None),
    ] {
        let found = restart(roll, &[workload(kind, &spec)], &pods(&OLD));
        assert_eq!(found.names.len(), 4, "{kind}: {found:?}");
        assert_eq!(found.order.is_empty(), rule.is_some(), "{kind}: {found:?}");
        let told = found.order_rule.unwrap_or_default();
        assert!(told.starts_with(rule.unwrap_or_default()), "{kind}: {told}");
    }
}

/// SAFE-17
#[test]
fn few_outdated_pods_are_evicted_instead_of_replacing_all() {
    let mixed = pods(&[("a", true, true), ("b", true, false), ("c", true, true)]);
    let found = restart(
        &template(),
        &[workload("Deployment", &json!({"replicas": 4}))],
        &mixed,
    );
    assert_eq!(
        (found.by, found.pods, found.total),
        (ReplacedBy::Operator, 1, 3),
        "{}",
        found.text
    );
    let surge = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}});
    let found = restart(&template(), &[workload("Deployment", &surge)], &mixed);
    assert_eq!(
        (found.by, found.pods),
        (ReplacedBy::Workload, 3),
        "{}",
        found.text
    );
}

/// ROLL-7
#[test]
fn pods_stay_where_nothing_has_to_or_may_be_replaced() {
    let workloads = [workload("Deployment", &json!({"replicas": 4}))];
    let paused = [workload("Deployment", &json!({"paused": true}))];
    let (old, current) = (pods(&OLD), pods(&[("a", true, true)]));
    let inputs = RestartInputs {
        roll: &template(),
        rollout: BindingRollout::Always,
        roll_now: false,
        workloads: &workloads,
        pods: &old,
        budget: None,
        blocked: None,
    };
    let on_restart = RestartInputs {
        rollout: BindingRollout::OnRestart,
        ..inputs
    };
    for (inputs, text) in [
        (
            RestartInputs {
                pods: &current,
                ..inputs
            },
            "no pod is replaced",
        ),
        (on_restart, "OnRestart: 4 of 4"),
        (
            RestartInputs {
                workloads: &paused,
                ..inputs
            },
            "spec.paused",
        ),
        (
            RestartInputs {
                blocked: Some("HostNetwork"),
                ..inputs
            },
            "HostNetwork",
        ),
    ] {
        let found = of_binding(&inputs);
        assert_eq!(
            (found.by, found.pods),
            (ReplacedBy::None, 0),
            "{}",
            found.text
        );
        assert!(found.text.contains(text), "{}", found.text);
    }
    let now = of_binding(&RestartInputs {
        roll_now: true,
        ..on_restart
    });
    assert_eq!(now.pods, 4, "{}", now.text);
}

/// SAFE-11, SAFE-13, ROLL-4
#[test]
fn restart_waits_for_budgets_other_rollouts_and_pods_that_are_not_ready() {
    let mixed = pods(&[("a", false, true), ("b", true, false)]);
    let restart_of = |roll, workloads, budget| {
        of_binding(&RestartInputs {
            roll,
            rollout: BindingRollout::Always,
            roll_now: false,
            workloads,
            pods: &mixed,
            budget,
            blocked: None,
        })
    };
    let safe = json!({"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}});
    let safe = [workload("Deployment", &safe)];
    let set = [workload("StatefulSet", &json!({"replicas": 4}))];
    let rolling = [workload(
        "Deployment",
        &json!({"replicas": 9, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
    )];
    let (evict, template) = (RolloutMethod::Evict, template());
    for (found, expected) in [
        (
            restart_of(&evict, &safe[..], Some("pdb")),
            &["PodDisruptionBudget pdb", "pod a"][..],
        ),
        (restart_of(&template, &safe, Some("pdb")), &[]),
        (restart_of(&template, &set, None), &["pod a"]),
        (
            restart_of(&template, &rolling, None),
            &["Deployment/phi is replacing"],
        ),
    ] {
        assert_eq!(found.waits.len(), expected.len(), "{found:?}");
        for (wait, expected) in found.waits.iter().zip(expected) {
            assert!(wait.contains(expected), "{wait}");
        }
    }
}

/// BIND-50
#[test]
fn changed_template_is_rolled_out_by_its_own_strategy() {
    for (spec, pods_replaced, unavailable) in [
        (json!({"replicas": 4}), 4, 1),
        (json!({"strategy": {"type": "Recreate"}}), 4, 4),
        (json!({"paused": true}), 0, 0),
    ] {
        let found = of_template(&workload("Deployment", &spec), &pods(&OLD));
        assert_eq!(
            (found.pods, found.unavailable),
            (pods_replaced, unavailable),
            "{}",
            found.text
        );
    }
}
