//! Checks of a target by its kind.

use asya_shared::admission::facts::{Facts, UnreadableKind};
use serde_json::{Value, json};

use super::{World, refusal};
use crate::actor::Mode;
use crate::outcome::Reason;
use crate::testing::{actor, binding};

fn told(facts: Facts) -> World {
    let world = World::new(Mode::Enforce);
    world.judge.facts.tell(facts);
    world
}

fn unreadable(missing_rule: Option<&str>) -> Facts {
    let kind = UnreadableKind {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        missing_rule: missing_rule.map(str::to_owned),
    };
    Facts {
        unreadable: vec![kind],
        ..Facts::default()
    }
}

fn quiet(kind: &str) -> Value {
    let mut spec = binding(kind, "phi");
    spec["binding"] = json!({"rollout": "OnRestart"});
    spec
}

/// VAC-4
#[test]
fn a_kind_that_the_controller_may_not_read_is_refused_with_the_missing_rule() {
    let rule = "- apiGroups: [apps]\n  resources: [deployments]\n  verbs: [get, list, watch]\n";
    let world = told(unreadable(Some(rule)));
    let verdict = world.create(&actor("models", "a", &quiet("Deployment")));
    assert_eq!(
        refusal(&verdict),
        format!(
            "AsyncActor models/a has 1 error:\n  spec.workloadRef: asya-controller may not read Deployment.apps; \
             add this rule to its ClusterRole:\n{}",
            rule.trim_end()
        )
    );
    let verdict = world.create(&actor("models", "a", &quiet("StatefulSet")));
    assert_eq!(verdict.reason, Reason::Valid);
}

/// VAC-4
#[test]
fn a_kind_that_is_not_installed_is_a_warning() {
    let verdict = told(unreadable(None)).create(&actor("models", "a", &quiet("Deployment")));
    assert_eq!(verdict.reason, Reason::Valid);
    assert_eq!(
        verdict.answer.warnings,
        ["spec.workloadRef.kind: Deployment.apps is not installed; the actor binds once it is"]
    );
}

/// RES-24
#[test]
fn unknown_kind_is_admitted() {
    let verdict = told(Facts::default()).create(&actor("models", "a", &quiet("DaemonSet")));
    assert_eq!(verdict.reason, Reason::Valid);
}

/// VAC-6
#[test]
fn what_a_new_binding_does_to_pods_is_a_warning() {
    let world = told(Facts {
        replicas: Some(1),
        ..Facts::default()
    });
    let warnings = |spec: &Value| world.create(&actor("models", "a", spec)).answer.warnings;
    let mut always = binding("Deployment", "phi");
    let restarts =
        "spec.binding.rollout: pods of Deployment/phi will be restarted; OnRestart avoids it";
    assert_eq!(warnings(&always), [restarts]);
    assert_eq!(warnings(&quiet("Deployment")), [""; 0]);
    always["binding"] = json!({"strategy": "Template"});
    assert_eq!(warnings(&always), [""; 0]);

    let mut required = quiet("Deployment");
    required["binding"]["required"] = json!(true);
    assert_eq!(
        warnings(&required),
        [
            "spec.binding.required: the operator's webhook has one replica: while it is down, no pod of \
             Deployment/phi starts; run two"
        ]
    );
    for replicas in [None, Some(2)] {
        world.judge.facts.tell(Facts {
            replicas,
            ..Facts::default()
        });
        assert_eq!(warnings(&required), [""; 0]);
    }
}

/// VAC-6
#[test]
fn scaling_of_an_unscalable_kind_is_a_warning_with_the_remedy() {
    let mut ray = quiet("RayCluster");
    ray["workloadRef"]["apiVersion"] = json!("ray.io/v1");
    let scaling = |spec: &Value| {
        let warnings = told(Facts::default()).create(&actor("models", "a", spec));
        let warnings = warnings.answer.warnings.into_iter();
        warnings
            .filter(|it| it.starts_with("spec.scaling: "))
            .collect::<Vec<_>>()
    };
    assert_eq!(scaling(&ray), [""; 0]);
    ray["scaling"] = json!({"enabled": false});
    assert_eq!(scaling(&ray), [""; 0]);
    ray["scaling"] = json!({"enabled": true});
    assert_eq!(
        scaling(&ray),
        [
            "spec.scaling: RayCluster/phi: it has no /scale, and its worker groups are an atomic list that only one \
             manager can own; set replicas of its workers, or turn spec.scaling off"
        ]
    );
    let mut plain = quiet("Deployment");
    plain["scaling"] = json!({"enabled": true});
    assert_eq!(scaling(&plain), [""; 0]);
}

/// SAFE-23
#[test]
fn new_scaling_warns_when_the_first_pods_can_be_removed() {
    let world = told(Facts::default());
    let mut spec = quiet("Deployment");
    let old = actor("models", "a", &spec);
    let mut warnings = |scaling: Value| {
        spec["scaling"] = scaling;
        let new = actor("models", "a", &spec);
        let created = world.create(&new).answer.warnings;
        assert_eq!(
            world.update(&old, &new).answer.warnings,
            created,
            "it is switched on"
        );
        let mut later = new.clone();
        later["spec"]["timeout"] = json!({"processing": 5});
        assert_eq!(
            world.update(&new, &later).answer.warnings,
            [""; 0],
            "it is known"
        );
        created
    };
    for (scaling, told) in [
        (
            json!({"enabled": true}),
            "an empty queue scales Deployment/phi down to 0 pods. Scaling starts once a Ready pod has the sidecar: to \
             0 at the earliest 60 s later, in other steps at the earliest 300 s later (scaling.behavior); a higher \
             minReplicas keeps more pods",
        ),
        (
            json!({
                "enabled": true, "cooldownPeriod": 600, "initialCooldownPeriod": 30,
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            }),
            "an empty queue scales Deployment/phi down to 0 pods. Scaling starts once a Ready pod has the sidecar: to \
             0 at the earliest 30 s later, in other steps at the earliest 0 s later (scaling.behavior); a higher \
             minReplicas keeps more pods",
        ),
        (
            json!({"enabled": true, "minReplicas": 2}),
            "an empty queue scales Deployment/phi down to 2 pods. Scaling starts once a Ready pod has the sidecar: in \
             other steps at the earliest 300 s later (scaling.behavior); a higher minReplicas keeps more pods",
        ),
    ] {
        let told = format!("spec.scaling.minReplicas: {told}");
        assert_eq!(warnings(scaling), [told]);
    }
}

/// ADM-6
#[test]
fn kinds_are_judged_when_the_target_is_new() {
    let world = told(unreadable(Some("r")));
    let old = actor("models", "a", &quiet("Deployment"));
    let mut new = old.clone();
    new["spec"]["timeout"] = json!({"processing": 5});
    let verdict = world.update(&old, &new);
    assert_eq!(
        (verdict.reason, verdict.answer.warnings),
        (Reason::Valid, Vec::new())
    );
}
