//! Conflicts between actors.

use serde_json::{Value, json};

use super::{World, refusal, standalone};
use crate::actor::Mode;
use crate::outcome::Reason;
use crate::testing::{actor, binding};

fn on(spec: &Value, transport: &str) -> Value {
    let mut spec = spec.clone();
    spec["transport"] = json!(transport);
    spec
}

/// VAC-1, VAC-4: the example in the specification, except for the kind.
#[test]
fn conflicts_name_the_other_actor() {
    let world = World::new(Mode::Enforce);
    let spec = on(&binding("Deployment", "phi-3"), "mq");
    world.knows(&actor("other", "phi3", &standalone("mq")));
    world.knows(&actor("models", "phi3-old", &spec));
    let verdict = world.create(&actor("models", "phi3", &spec));
    assert_eq!(
        refusal(&verdict),
        "AsyncActor models/phi3 has 2 errors:\n  \
         spec.transport: queue asya-phi3 already belongs to other/phi3; rename this actor or set the transport's nameTemplate\n  \
         spec.workloadRef: Deployment/phi-3 is already bound by models/phi3-old; choose another target, or set that actor's queue.deletionPolicy to Retain, which keeps its queue and messages, and delete it"
    );
}

/// VAC-4, VAL-16
#[test]
fn a_queue_or_dead_letter_queue_is_taken_at_its_broker_only() {
    let world = World::new(Mode::Enforce);
    let mut retired = actor("a", "old", &standalone("other"));
    retired["status"] = json!({
        "queue": {"transport": "mq", "name": "asya-verified"},
        "retiredQueues": [{"transport": "mq", "name": "asya-left"}],
    });
    world.knows(&retired);
    world.knows(&actor("a", "held", &standalone("mq")));
    for (name, transport, owner) in [
        ("held", "mq", Some("a/held")),
        ("held", "other", None),
        ("held", "twin", Some("a/held")),
        // Its dead letter queue is asya-held's queue by name, or the other way round.
        ("held-dlq", "mq", Some("a/held")),
        ("verified", "mq", Some("a/old")),
        ("left", "mq", Some("a/old")),
        ("free", "mq", None),
    ] {
        let verdict = world.create(&actor("b", name, &standalone(transport)));
        match owner {
            None => assert_eq!(verdict.reason, Reason::Valid, "{name} on {transport}"),
            Some(owner) => {
                let text = format!("already belongs to {owner}; ");
                assert!(refusal(&verdict).contains(&text), "{name}: {verdict:?}");
            }
        }
    }
}

/// VAC-4: of several claimants of a name, its owner is reported.
#[test]
fn the_owner_of_a_contested_name_is_the_oldest() {
    let world = World::new(Mode::Enforce);
    for (namespace, created) in [("b", "2026-05-04T09:00:00Z"), ("a", "2026-05-04T10:00:00Z")] {
        let mut actor = actor(namespace, "x", &standalone("mq"));
        actor["metadata"]["creationTimestamp"] = json!(created);
        world.knows(&actor);
    }
    let verdict = world.create(&actor("c", "x", &standalone("mq")));
    assert!(refusal(&verdict).contains("belongs to b/x"), "{verdict:?}");
}

/// ADM-6
#[test]
fn conflicts_are_checked_only_for_changed_fields() {
    let world = World::new(Mode::Enforce);
    world.knows(&actor("other", "phi3", &standalone("mq")));
    let old = actor("models", "phi3", &standalone("mq"));
    let mut new = old.clone();
    new["spec"]["timeout"] = json!({"processing": 5});
    assert_eq!(world.update(&old, &new).reason, Reason::Valid);
    let moved = actor("models", "phi3", &standalone("other"));
    assert_eq!(world.update(&old, &moved).reason, Reason::Valid);
    let verdict = world.update(&moved, &old);
    assert!(refusal(&verdict).contains("belongs to other/phi3"));
}

/// VAC-4: an actor does not conflict with an earlier actor of its own name either.
#[test]
fn actor_does_not_conflict_with_itself() {
    let world = World::new(Mode::Enforce);
    world.knows(&actor("models", "phi3", &binding("Deployment", "m")));
    let mut again = actor("models", "phi3", &binding("Deployment", "m"));
    again["metadata"]["uid"] = json!("another");
    assert_eq!(world.create(&again).reason, Reason::Valid);
}

/// VAC-4, BIND-45
#[test]
fn target_is_bound_once_including_what_it_resolves_to() {
    let world = World::new(Mode::Enforce);
    let mut first = actor("models", "first", &binding("Deployment", "phi-3"));
    let chain = ["Deployment/phi-3", "StatefulSet/phi-3-set"];
    first["status"] = json!({"resolvedTarget": {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "phi-3-set", "chain": chain,
    }});
    world.knows(&first);
    for (namespace, kind, name, taken) in [
        ("models", "Deployment", "phi-3", true),
        ("models", "StatefulSet", "phi-3-set", true),
        ("models", "StatefulSet", "phi-3", false),
        ("other", "Deployment", "phi-3", false),
    ] {
        let verdict = world.create(&actor(namespace, "second", &binding(kind, name)));
        if taken {
            let text = format!("{kind}/{name} is already bound by models/first");
            assert!(refusal(&verdict).contains(&text), "{verdict:?}");
        } else {
            assert_eq!(verdict.reason, Reason::Valid, "{namespace} {kind}/{name}");
        }
    }
    // The API version of a target is ignored, its group is not.
    let mut other = binding("Deployment", "phi-3");
    other["workloadRef"]["apiVersion"] = json!("apps/v1beta1");
    assert_eq!(
        world.create(&actor("models", "second", &other)).reason,
        Reason::Invalid
    );
}

/// VAC-4, BIND-2
#[test]
fn other_and_excluded_namespaces_are_refused() {
    let world = World::new(Mode::Enforce);
    let mut across = binding("Deployment", "m");
    across["workloadRef"]["namespace"] = json!("elsewhere");
    let verdict = world.create(&actor("models", "phi3", &across));
    assert!(refusal(&verdict).contains("spec.workloadRef.namespace: "));
    for namespace in ["asya-system", "kube-system"] {
        let verdict = world.create(&actor(namespace, "phi3", &binding("Deployment", "m")));
        assert!(
            refusal(&verdict).contains(&format!("targets in {namespace} cannot be bound")),
            "{namespace}"
        );
    }
}

/// VAC-4, VAL-17
#[test]
fn a_transport_that_cannot_be_used_is_a_warning_that_lists_the_others() {
    let world = World::new(Mode::Enforce);
    for (transport, problem) in [("kafka", "not configured"), ("off", "disabled")] {
        let verdict = world.create(&actor("models", "phi3", &standalone(transport)));
        assert_eq!(verdict.reason, Reason::Valid);
        let text = format!(
            "spec.transport: transport \"{transport}\" is {problem}; enabled: mq, other, twin"
        );
        assert_eq!(verdict.answer.warnings, [text]);
    }
}

/// VAC-5
#[tokio::test(start_paused = true)]
async fn without_contact_conflicts_become_warnings() {
    let world = World::new(Mode::Enforce);
    world.knows(&actor("other", "phi3", &standalone("mq")));
    let rival = actor("models", "phi3", &standalone("mq"));
    let bad = actor("models", "phi3", &on(&standalone("mq"), ""));
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert_eq!(world.create(&rival).reason, Reason::Invalid);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let verdict = world.create(&rival);
    assert_eq!(verdict.reason, Reason::Valid);
    assert_eq!(
        verdict.answer.warnings,
        [
            "spec.transport: queue asya-phi3 already belongs to other/phi3; rename this actor or set the transport's \
             nameTemplate (not denied: the webhook has lost contact with the API server, so this may be out of date)"
        ]
    );
    // An actor that is invalid by itself is denied all the same.
    assert_eq!(world.create(&bad).reason, Reason::Invalid);
    world.judge.contact.heard();
    assert_eq!(world.create(&rival).reason, Reason::Invalid);
}
