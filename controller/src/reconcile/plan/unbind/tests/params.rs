//! Parameters for the execution of a step.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::pod;
use crate::reconcile::model::rollout::{ObservedUnbinding, TargetObject, TemplateSidecar};
use crate::reconcile::plan::rollout::params::SlotChange;
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
        observed.binding = Some(
            ObservedUnbinding {
                objects: vec![object],
                ..ObservedUnbinding::default()
            }
            .into(),
        );
        let params = UnbindParams::new(&observed, &step, Timestamp::UNIX_EPOCH);
        let row = format!("{in_template} {template_sidecar:?} {step:?}");
        assert_eq!(params.template.is_some(), expected, "{row}");
    }
}

/// SAFE-11: evictions rely on what was read.
#[test]
fn availability_of_the_pods_goes_with_the_step() {
    let mut observed = observed(&actor(&json!({}), &json!({"transport": "mq"}), &json!({})));
    let read = just_read(2);
    observed.binding = Some(
        ObservedUnbinding {
            availability: Some(read.clone()),
            ..ObservedUnbinding::default()
        }
        .into(),
    );
    let step = UnbindStep::Evict(pod("a"));
    assert_eq!(
        UnbindParams::new(&observed, &step, Timestamp::UNIX_EPOCH).availability,
        read
    );
}

/// SAFE-15: the slot is held from the first write until no pod has the sidecar, also by a new process.
#[test]
fn unbinding_holds_a_slot_while_pods_are_replaced() {
    let second = |second| Timestamp::from_second(second).unwrap();
    let now = second(1_000_000);
    let acted = |seconds_ago: i64| {
        let since = second(1_000_000 - seconds_ago).to_string();
        rollout("unbound", &since)
    };
    let binding_rollout = rollout("hash", &now.to_string());
    let wait = UnbindStep::InProgress;
    let nothing = json!({});
    let blocked = UnbindStep::Blocked("text".to_owned());
    let stalled = UnbindStep::Stalled("text".to_owned());
    let until = |time| Some(SlotChange::Acquire(second(time)));
    for (step, pods, status, expected) in [
        (UnbindStep::GiveUp, 1, &nothing, until(1_000_600)),
        (UnbindStep::ChangeValue, 1, &nothing, until(1_000_600)),
        (UnbindStep::GiveUp, 0, &nothing, None),
        (UnbindStep::Evict(pod("a")), 1, &nothing, until(1_000_600)),
        (UnbindStep::EvictUnready(pod("a")), 1, &nothing, None),
        (wait.clone(), 1, &acted(100), until(1_000_500)),
        (wait.clone(), 1, &acted(600), None),
        // SAFE-43: a clock was ahead.
        (wait.clone(), 1, &acted(-300), until(1_000_600)),
        (wait.clone(), 1, &acted(-301), None),
        (wait.clone(), 1, &binding_rollout, None),
        (wait, 1, &nothing, None),
        (UnbindStep::AwaitSlot, 1, &nothing, Some(SlotChange::Wait)),
        (blocked, 1, &acted(100), Some(SlotChange::Release)),
        (stalled, 1, &acted(100), Some(SlotChange::Release)),
        (UnbindStep::Unknown, 1, &acted(100), None),
        (
            UnbindStep::Done,
            0,
            &acted(100),
            Some(SlotChange::ReleaseAndReset),
        ),
    ] {
        assert_eq!(
            slot(&step, pods, status, now),
            expected,
            "{step:?} {status}"
        );
    }
}

fn rollout(value: &str, since: &str) -> Value {
    json!({"rollout": {"value": value, "since": since, "tries": 1, "generation": 1, "target": ""}})
}

fn slot(step: &UnbindStep, pods: usize, status: &Value, now: Timestamp) -> Option<SlotChange> {
    let mut observed = observed(&actor(&json!({}), &json!({"transport": "mq"}), status));
    observed.binding = Some(
        ObservedUnbinding {
            pods: vec![pod("a"); pods],
            ..ObservedUnbinding::default()
        }
        .into(),
    );
    UnbindParams::new(&observed, step, now).slot
}
