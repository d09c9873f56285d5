//! Validation of a target by its kind.

use asya_shared::admission::facts::{UnreadableKind, WebhookFacts};
use serde_json::{Value, json};

use super::{Fixture, denial};
use crate::actor::ValidationMode;
use crate::outcome::ReviewReason;
use crate::testing::{actor, binding};

fn world_with(facts: WebhookFacts) -> Fixture {
    let fixture = Fixture::new(ValidationMode::Enforce);
    fixture.reviewer.facts.set(facts);
    fixture
}

fn unreadable(missing_rule: Option<&str>) -> WebhookFacts {
    let kind = UnreadableKind {
        group: "apps".to_owned(),
        kind: "Deployment".to_owned(),
        missing_rule: missing_rule.map(str::to_owned),
    };
    WebhookFacts {
        unreadable: vec![kind],
        ..WebhookFacts::default()
    }
}

fn on_restart(kind: &str) -> Value {
    let mut spec = binding(kind, "phi");
    spec["binding"] = json!({"rollout": "OnRestart"});
    spec
}

/// VAC-4
#[test]
fn kind_that_the_controller_may_not_read_is_denied_with_the_missing_rule() {
    let rule = "- apiGroups: [apps]\n  resources: [deployments]\n  verbs: [get, list, watch]\n";
    let fixture = world_with(unreadable(Some(rule)));
    let outcome = fixture.create(&actor("models", "a", &on_restart("Deployment")));
    assert_eq!(
        denial(&outcome),
        format!(
            "AsyncActor models/a has 1 error:\n  spec.workloadRef: asya-controller may not read Deployment.apps; \
             add this rule to its ClusterRole:\n{}",
            rule.trim_end()
        )
    );
    let outcome = fixture.create(&actor("models", "a", &on_restart("StatefulSet")));
    assert_eq!(outcome.reason, ReviewReason::Valid);
}

/// VAC-4
#[test]
fn kind_that_is_not_installed_is_a_warning() {
    let outcome =
        world_with(unreadable(None)).create(&actor("models", "a", &on_restart("Deployment")));
    assert_eq!(outcome.reason, ReviewReason::Valid);
    assert_eq!(
        outcome.response.warnings,
        ["spec.workloadRef.kind: Deployment.apps is not installed; the actor binds once it is"]
    );
}

/// RES-24
#[test]
fn unknown_kind_is_admitted() {
    let outcome =
        world_with(WebhookFacts::default()).create(&actor("models", "a", &on_restart("DaemonSet")));
    assert_eq!(outcome.reason, ReviewReason::Valid);
}

/// VAC-6
#[test]
fn effects_of_a_new_binding_on_pods_are_warnings() {
    let fixture = world_with(WebhookFacts {
        replicas: Some(1),
        ..WebhookFacts::default()
    });
    let warnings = |spec: &Value| {
        fixture
            .create(&actor("models", "a", spec))
            .response
            .warnings
    };
    let mut always = binding("Deployment", "phi");
    let restarts =
        "spec.binding.rollout: pods of Deployment/phi will be restarted; OnRestart avoids it";
    assert_eq!(warnings(&always), [restarts]);
    assert_eq!(warnings(&on_restart("Deployment")), [""; 0]);
    always["binding"] = json!({"strategy": "Template"});
    assert_eq!(warnings(&always), [""; 0]);

    let mut required = on_restart("Deployment");
    required["binding"]["required"] = json!(true);
    assert_eq!(
        warnings(&required),
        [
            "spec.binding.required: the operator's webhook has one replica: while it is down, no pod of \
             Deployment/phi starts; run two"
        ]
    );
    for replicas in [None, Some(2)] {
        fixture.reviewer.facts.set(WebhookFacts {
            replicas,
            ..WebhookFacts::default()
        });
        assert_eq!(warnings(&required), [""; 0]);
    }
}

/// VAC-6
#[test]
fn scaling_of_an_unscalable_kind_is_a_warning_with_the_remedy() {
    let mut ray = on_restart("RayCluster");
    ray["workloadRef"]["apiVersion"] = json!("ray.io/v1");
    let scaling = |spec: &Value| {
        let warnings = world_with(WebhookFacts::default()).create(&actor("models", "a", spec));
        let warnings = warnings.response.warnings.into_iter();
        warnings
            .filter(|warning| warning.starts_with("spec.scaling: "))
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
             manager can own; set replicas of its workers, or set spec.scaling.enabled to false"
        ]
    );
    let mut plain = on_restart("Deployment");
    plain["scaling"] = json!({"enabled": true});
    assert_eq!(scaling(&plain), [""; 0]);
}

/// SAFE-23
#[test]
fn new_scaling_warns_when_the_first_pods_can_be_removed() {
    let fixture = world_with(WebhookFacts::default());
    let mut spec = on_restart("Deployment");
    let old = actor("models", "a", &spec);
    let mut warnings = |scaling: Value| {
        spec["scaling"] = scaling;
        let new = actor("models", "a", &spec);
        let created = fixture.create(&new).response.warnings;
        assert_eq!(
            fixture.update(&old, &new).response.warnings,
            created,
            "scaling is enabled"
        );
        let mut later = new.clone();
        later["spec"]["timeout"] = json!({"processing": 5});
        assert_eq!(
            fixture.update(&new, &later).response.warnings,
            [""; 0],
            "scaling is unchanged"
        );
        created
    };
    for (scaling, expected) in [
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
        let expected = format!("spec.scaling.minReplicas: {expected}");
        assert_eq!(warnings(scaling), [expected]);
    }
}

/// ADM-6
#[test]
fn kinds_are_checked_only_for_a_new_target() {
    let fixture = world_with(unreadable(Some("r")));
    let old = actor("models", "a", &on_restart("Deployment"));
    let mut new = old.clone();
    new["spec"]["timeout"] = json!({"processing": 5});
    let outcome = fixture.update(&old, &new);
    assert_eq!(
        (outcome.reason, outcome.response.warnings),
        (ReviewReason::Valid, Vec::new())
    );
}
