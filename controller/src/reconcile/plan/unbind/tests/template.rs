//! The sidecar is part of the target's pod template.

use std::time::Duration;

use asya_shared::resolve::{ObjectRef, RolloutMethod};

use super::{ACTOR, base, objects, pod};
use crate::reconcile::model::rollout::TemplateSidecar;
use crate::reconcile::model::target_pods::PodToReplace;
use crate::reconcile::plan::unbind::{UnbindInputs, UnbindStep, decide};

/// BIND-44: a template that was exported to Git with the sidecar. New pods would get it again, without end.
#[test]
fn no_pod_is_evicted_while_the_pod_template_contains_the_sidecar() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let decide = |sidecar: TemplateSidecar, pods: &[PodToReplace], since_last_action| {
        let mut exported = objects(None);
        exported[0].template_sidecar = Some(sidecar);
        decide(&UnbindInputs {
            pods,
            method: Some(&template),
            objects: &exported,
            since_last_action,
            ..base()
        })
    };
    let exported = |actor: &str, is_ours| TemplateSidecar {
        actor: actor.into(),
        is_ours,
    };
    let pods = [pod("a")];
    let later = Some(Duration::from_mins(1));
    for since_last_action in [None, later] {
        let step = decide(exported(ACTOR, false), &pods, since_last_action);
        let UnbindStep::Blocked(text) = step else {
            panic!("{step:?}");
        };
        assert!(
            text.contains("another field manager keeps the sidecar"),
            "{text}"
        );
    }
    for since_last_action in [None, later] {
        let ours = exported(ACTOR, true);
        let step = decide(ours, &pods, since_last_action);
        assert_eq!(
            step,
            UnbindStep::GiveUp,
            "the target was read before our write"
        );
    }
    let without_pods = decide(exported(ACTOR, false), &[], later);
    assert_eq!(without_pods, UnbindStep::Done);
    for is_ours in [false, true] {
        let of_another = decide(exported("another", is_ours), &pods, later);
        assert_eq!(of_another, UnbindStep::Evict(pod("a")));
    }
}

/// BIND-43, BIND-50
#[test]
fn template_fields_are_released_once_and_the_controller_replaces_the_pods() {
    let template = RolloutMethod::AnnotateTemplate(vec![ObjectRef::default()]);
    let pods = [pod("a")];
    let mut in_place = objects(None);
    in_place[0].in_template = true;
    let base = UnbindInputs {
        pods: &pods,
        method: Some(&template),
        objects: &in_place,
        ..base()
    };
    assert_eq!(decide(&base), UnbindStep::GiveUp);
    let without_pods = UnbindInputs {
        pods: &[],
        ..base.clone()
    };
    assert_eq!(
        decide(&without_pods),
        UnbindStep::GiveUp,
        "at zero replicas"
    );
    let mut rolling = objects(None);
    rolling[0].rolling = true;
    let given_up = UnbindInputs {
        objects: &rolling,
        since_last_action: Some(Duration::from_secs(1)),
        ..base
    };
    assert_eq!(decide(&given_up), UnbindStep::InProgress);
}
