//! What the execution of a step is given.

use serde_json::json;

use super::pod;
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::rollout::{ObservedUnbinding, TargetObject, TemplateSidecar};
use crate::reconcile::plan::unbind::{UnbindParams, UnbindStep};
use crate::reconcile::tests::fixtures::{actor, just_read, observed};

/// BIND-43: fields that were written after the target was last read are given up as well.
#[test]
fn template_is_given_up_if_it_has_fields_of_the_actor_and_of_no_other() {
    let mut observed = observed(&actor(&json!({}), &json!({"transport": "mq"}), &json!({})));
    let uid = observed.actor.metadata.uid.clone();
    let sidecar = |actor: &str, is_ours| {
        Some(TemplateSidecar {
            actor: actor.into(),
            is_ours,
        })
    };
    for (in_template, template_sidecar, step, expected) in [
        (true, None, UnbindStep::GiveUp, true),
        (false, sidecar(&uid, true), UnbindStep::GiveUp, true),
        (false, sidecar(&uid, false), UnbindStep::GiveUp, false),
        (false, sidecar("another", true), UnbindStep::GiveUp, false),
        (true, None, UnbindStep::Done, false),
    ] {
        let object = TargetObject {
            in_template,
            template_sidecar: template_sidecar.clone(),
            ..TargetObject::default()
        };
        observed.binding = Some(ObservedBinding {
            unbinding: Some(ObservedUnbinding {
                objects: vec![object],
                ..ObservedUnbinding::default()
            }),
            ..ObservedBinding::default()
        });
        let params = UnbindParams::new(&observed, &step);
        let row = format!("{in_template} {template_sidecar:?} {step:?}");
        assert_eq!(params.template.is_some(), expected, "{row}");
    }
}

/// SAFE-11: evictions rely on what was read.
#[test]
fn availability_of_the_pods_goes_with_the_step() {
    let mut observed = observed(&actor(&json!({}), &json!({"transport": "mq"}), &json!({})));
    let read = just_read(2);
    observed.binding = Some(ObservedBinding {
        unbinding: Some(ObservedUnbinding {
            availability: Some(read.clone()),
            ..ObservedUnbinding::default()
        }),
        ..ObservedBinding::default()
    });
    let step = UnbindStep::Evict(pod("a"));
    assert_eq!(UnbindParams::new(&observed, &step).availability, read);
}
