//! Pods that already have one of our labels with another value (BIND-46).

use serde_json::{Value, json};

use crate::api::ResolvedTarget;
use crate::inject::bound::testing::{Binding, injected, patched, pod, review, reviewed};
use crate::inject::bound::{Action, InjectionReason, strip_injected};

fn labelled(labels: &Value) -> Value {
    let mut pod = pod(&json!({}));
    let labels = labels.as_object().unwrap().clone();
    pod["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .extend(labels);
    pod
}

/// The sidecar of an actor with this name, as its pods or, with strategy Template, its pod template have it.
fn injected_by(name: &'static str) -> Value {
    let former = Binding {
        name,
        uid: "uid-0",
        ..Binding::new(&json!({}))
    };
    injected(&former.actor(), &pod(&json!({})))
}

/// BIND-46; INJ-1, row 7: a `ReplicaSet` whose selector has the label would release the pod and create another one,
/// again and again.
#[test]
fn label_of_another_value_is_never_overwritten() {
    for key in ["asya.sh/asya", "asya.sh/actor"] {
        let labelled = labelled(&json!({key: "former"}));
        let actor = Binding::new(&json!({})).actor();
        let decision = review(&actor, &labelled);
        assert_eq!(decision.reason, InjectionReason::SpecConflict, "{key}");
        let Action::Annotate(patch) = decision.action else {
            panic!("{key}: {:?}", decision.action);
        };
        let mut expected = labelled.clone();
        expected["metadata"]["annotations"] = json!({"asya.sh/not-injected": "SpecConflict"});
        let marked = patched(&labelled, &patch);
        assert_eq!(marked, expected);
        assert_eq!(review(&actor, &marked).action, Action::Allow, "second call");

        let required = Binding::required().actor();
        let Action::Deny(denial) = review(&required, &labelled).action else {
            panic!("{key}: it passes");
        };
        for text in [&decision.warnings[0], &denial] {
            for part in [
                format!("its label {key} is \"former\""),
                "remove the label from the pod template".to_owned(),
                "recreate the workload".to_owned(),
            ] {
                assert!(text.contains(&part), "{text}");
            }
        }
    }
}

/// BIND-22, BIND-46
#[test]
fn label_with_the_actors_own_name_is_no_conflict() {
    let actor = Binding::new(&json!({})).actor();
    for labels in [
        json!({"asya.sh/asya": "embed"}),
        json!({"asya.sh/asya": "embed", "asya.sh/actor": "embed"}),
    ] {
        let after = injected(&actor, &labelled(&labels));
        assert_eq!(after["metadata"]["labels"]["asya.sh/actor"], "embed");
    }
}

/// INJ-1, row 6; BIND-45: the labels are part of the other actor's sidecar, for example in a pod template that it
/// changed or that was exported with it.
#[test]
fn labels_of_another_actors_sidecar_are_replaced_with_it() {
    let actor = Binding::new(&json!({})).actor();
    let decision = review(&actor, &injected_by("former"));
    assert_eq!(decision.reason, InjectionReason::Replaced);
    let after = reviewed(&actor, &injected_by("former"));
    assert_eq!(after["metadata"]["labels"]["asya.sh/asya"], "embed");
    assert_eq!(
        review(&actor, &after).reason,
        InjectionReason::AlreadyInjected
    );
}

/// INJ-9, BIND-46: an annotation without containers counts as nothing.
#[test]
fn annotation_without_containers_does_not_excuse_the_label() {
    let mut before = injected_by("former");
    let containers = before["spec"]["containers"].as_array_mut().unwrap();
    containers.truncate(1);
    let actor = Binding::new(&json!({})).actor();
    assert_eq!(
        review(&actor, &before).reason,
        InjectionReason::SpecConflict
    );
}

/// BIND-46, RES-10: whoever wrote the labels, the pod must still match the workload's selector.
#[test]
fn pod_that_the_selector_would_no_longer_match_is_left_alone() {
    for (selector, before) in [
        ("asya.sh/asya=former", injected_by("former")),
        ("!asya.sh/actor", pod(&json!({}))),
        ("asya.sh/actor notin (embed)", pod(&json!({}))),
    ] {
        let mut binding = Binding::new(&json!({}));
        binding.resolved = Some(ResolvedTarget {
            pod_selector: Some(selector.to_owned()),
            chain: vec!["Deployment/phi".to_owned()],
            ..ResolvedTarget::default()
        });
        let actor = binding.actor();
        let decision = review(&actor, &before);
        assert_eq!(decision.reason, InjectionReason::SpecConflict, "{selector}");
        assert!(
            decision.warnings[0].contains("selector"),
            "{:?}",
            decision.warnings
        );
    }
}

/// BIND-46, BIND-50
#[test]
fn template_with_a_label_of_another_value_is_refused() {
    let actor = Binding::new(&json!({})).actor();
    let plan = actor.plan().unwrap();
    let labelled = labelled(&json!({"asya.sh/asya": "former"}));
    let obstacle = plan.render_for_template(&labelled).unwrap_err();
    assert_eq!(obstacle.reason, InjectionReason::SpecConflict);
    assert!(
        obstacle
            .text
            .contains("its label asya.sh/asya is \"former\""),
        "{obstacle:?}"
    );
    // BIND-45: the caller gives up another actor's fields first.
    let mut taken_over = injected_by("former");
    strip_injected(&mut taken_over);
    plan.render_for_template(&taken_over).unwrap();
}
