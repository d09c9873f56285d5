//! Conflicts between actors.

use serde_json::{Value, json};

use super::{Fixture, denial, standalone};
use crate::actor::ValidationMode;
use crate::outcome::ReviewReason;
use crate::testing::{actor, binding};

fn on(spec: &Value, transport: &str) -> Value {
    let mut spec = spec.clone();
    spec["transport"] = json!(transport);
    spec
}

/// VAC-1, VAC-4: the example in the specification, with another kind.
#[test]
fn conflicts_name_the_other_actor() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let spec = on(&binding("Deployment", "phi-3"), "mq");
    fixture.add_actor(&actor("other", "phi3", &standalone("mq")));
    fixture.add_actor(&actor("models", "phi3-old", &spec));
    let outcome = fixture.create(&actor("models", "phi3", &spec));
    assert_eq!(
        denial(&outcome),
        "AsyncActor models/phi3 has 2 errors:\n  \
         spec.transport: queue asya-phi3 already belongs to other/phi3; rename this actor or set the transport's nameTemplate\n  \
         spec.workloadRef: Deployment/phi-3 is already bound by models/phi3-old; choose another target, or set that actor's queue.deletionPolicy to Retain, which keeps its queue and messages, and delete it"
    );
}

/// VAC-4, VAL-16
#[test]
fn queue_and_dead_letter_queue_names_conflict_only_on_the_same_broker() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let mut retired = actor("a", "old", &standalone("other"));
    retired["status"] = json!({
        "queue": {"transport": "mq", "name": "asya-verified"},
        "retiredQueues": [{"transport": "mq", "name": "asya-left"}],
    });
    fixture.add_actor(&retired);
    fixture.add_actor(&actor("a", "taken", &standalone("mq")));
    for (name, transport, owner) in [
        ("taken", "mq", Some("a/taken")),
        ("taken", "other", None),
        ("taken", "twin", Some("a/taken")),
        // The dead letter queue of `taken` has the name of this actor's queue.
        ("taken-dlq", "mq", Some("a/taken")),
        ("verified", "mq", Some("a/old")),
        ("left", "mq", Some("a/old")),
        ("free", "mq", None),
    ] {
        let outcome = fixture.create(&actor("b", name, &standalone(transport)));
        match owner {
            None => assert_eq!(outcome.reason, ReviewReason::Valid, "{name} on {transport}"),
            Some(owner) => {
                let text = format!("already belongs to {owner}; ");
                assert!(denial(&outcome).contains(&text), "{name}: {outcome:?}");
            }
        }
    }
}

/// VAC-4: the owner of the name is reported.
#[test]
fn oldest_claimant_owns_a_contested_name() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    for (namespace, created) in [("b", "2026-05-04T09:00:00Z"), ("a", "2026-05-04T10:00:00Z")] {
        let mut actor = actor(namespace, "x", &standalone("mq"));
        actor["metadata"]["creationTimestamp"] = json!(created);
        fixture.add_actor(&actor);
    }
    let outcome = fixture.create(&actor("c", "x", &standalone("mq")));
    assert!(denial(&outcome).contains("belongs to b/x"), "{outcome:?}");
}

/// VAC-4, QUE-35: the existing actor's claim does not count, so a new actor may get the name.
#[test]
fn actor_whose_queue_is_marked_for_another_does_not_take_its_name() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let mut refused = actor("b", "x", &standalone("mq"));
    refused["status"] = json!({"queueMarkedForOther": true});
    fixture.add_actor(&refused);
    let outcome = fixture.create(&actor("a", "x", &standalone("mq")));
    assert_eq!(outcome.reason, ReviewReason::Valid, "{outcome:?}");
    fixture.add_actor(&actor("c", "x", &standalone("mq")));
    let outcome = fixture.create(&actor("a", "x", &standalone("mq")));
    assert!(denial(&outcome).contains("belongs to c/x"), "{outcome:?}");
}

/// ADM-6
#[test]
fn conflicts_are_checked_only_for_changed_fields() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    fixture.add_actor(&actor("other", "phi3", &standalone("mq")));
    let old = actor("models", "phi3", &standalone("mq"));
    let mut new = old.clone();
    new["spec"]["timeout"] = json!({"processing": 5});
    assert_eq!(fixture.update(&old, &new).reason, ReviewReason::Valid);
    let moved = actor("models", "phi3", &standalone("other"));
    assert_eq!(fixture.update(&old, &moved).reason, ReviewReason::Valid);
    let outcome = fixture.update(&moved, &old);
    assert!(denial(&outcome).contains("belongs to other/phi3"));
}

/// VAC-4: nor with an earlier actor with the same name.
#[test]
fn actor_does_not_conflict_with_itself() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    fixture.add_actor(&actor("models", "phi3", &binding("Deployment", "m")));
    let mut recreated = actor("models", "phi3", &binding("Deployment", "m"));
    recreated["metadata"]["uid"] = json!("another");
    assert_eq!(fixture.create(&recreated).reason, ReviewReason::Valid);
}

/// VAC-4, BIND-45
#[test]
fn target_and_everything_it_resolves_to_are_bound_once() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let mut first = actor("models", "first", &binding("Deployment", "phi-3"));
    let chain = ["Deployment/phi-3", "StatefulSet/phi-3-set"];
    first["status"] = json!({"resolvedTarget": {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "phi-3-set", "chain": chain,
    }});
    fixture.add_actor(&first);
    for (namespace, kind, name, conflicts) in [
        ("models", "Deployment", "phi-3", true),
        ("models", "StatefulSet", "phi-3-set", true),
        ("models", "StatefulSet", "phi-3", false),
        ("other", "Deployment", "phi-3", false),
    ] {
        let outcome = fixture.create(&actor(namespace, "second", &binding(kind, name)));
        if conflicts {
            let text = format!("{kind}/{name} is already bound by models/first");
            assert!(denial(&outcome).contains(&text), "{outcome:?}");
        } else {
            assert_eq!(
                outcome.reason,
                ReviewReason::Valid,
                "{namespace} {kind}/{name}"
            );
        }
    }
    // The version of a target is ignored, but not its group.
    let mut other = binding("Deployment", "phi-3");
    other["workloadRef"]["apiVersion"] = json!("apps/v1beta1");
    assert_eq!(
        fixture.create(&actor("models", "second", &other)).reason,
        ReviewReason::Invalid
    );
}

/// VAC-4, BIND-2
#[test]
fn targets_in_other_or_excluded_namespaces_are_denied() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    let mut across = binding("Deployment", "m");
    across["workloadRef"]["namespace"] = json!("elsewhere");
    let outcome = fixture.create(&actor("models", "phi3", &across));
    assert!(denial(&outcome).contains("spec.workloadRef.namespace: "));
    for namespace in ["asya-system", "kube-system"] {
        let outcome = fixture.create(&actor(namespace, "phi3", &binding("Deployment", "m")));
        assert!(
            denial(&outcome).contains(&format!("targets in {namespace} cannot be bound")),
            "{namespace}"
        );
    }
}

/// VAC-4, VAL-17
#[test]
fn unusable_transport_is_a_warning_that_lists_the_enabled_ones() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    for (transport, problem) in [("kafka", "not configured"), ("off", "disabled")] {
        let outcome = fixture.create(&actor("models", "phi3", &standalone(transport)));
        assert_eq!(outcome.reason, ReviewReason::Valid);
        let text = format!(
            "spec.transport: transport \"{transport}\" is {problem}; enabled: mq, other, twin"
        );
        assert_eq!(outcome.response.warnings, [text]);
    }
}

/// VAC-5
#[tokio::test(start_paused = true)]
async fn conflicts_become_warnings_when_the_index_is_stale() {
    let fixture = Fixture::new(ValidationMode::Enforce);
    fixture.add_actor(&actor("other", "phi3", &standalone("mq")));
    let conflicting = actor("models", "phi3", &standalone("mq"));
    let invalid = actor("models", "phi3", &on(&standalone("mq"), ""));
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert_eq!(fixture.create(&conflicting).reason, ReviewReason::Invalid);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let outcome = fixture.create(&conflicting);
    assert_eq!(outcome.reason, ReviewReason::Valid);
    assert_eq!(
        outcome.response.warnings,
        [
            "spec.transport: queue asya-phi3 already belongs to other/phi3; rename this actor or set the transport's \
             nameTemplate (not denied: the webhook has lost contact with the API server, so this may be out of date)"
        ]
    );
    // Violations of the actor itself are still denied.
    assert_eq!(fixture.create(&invalid).reason, ReviewReason::Invalid);
    fixture.reviewer.last_response.record_response();
    assert_eq!(fixture.create(&conflicting).reason, ReviewReason::Invalid);
}
