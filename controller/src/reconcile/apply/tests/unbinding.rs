//! Steps of unbinding: their slots, and what they record.

use super::*;
use crate::reconcile::apply::unbind::unbind;
use crate::reconcile::plan::rollout::params::SlotChange;
use crate::reconcile::plan::unbind::{UnbindParams, UnbindStep};
use crate::reconcile::tests::fixtures::recording_context;

/// SAFE-15
#[tokio::test]
async fn deletion_that_waits_for_a_slot_says_so_and_is_enqueued_once_one_is_free() {
    let context = context();
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let observed = observed(&actor(&deleted, &spec(&json!({})), &json!({})));
    let key = observed.key();
    let now = Timestamp::now();
    let step = async |step: UnbindStep, slot| {
        let params = UnbindParams {
            slot: Some(slot),
            ..UnbindParams::default()
        };
        unbind(&context, &observed.actor, &step, &params)
            .await
            .unwrap()
    };
    let outcome = step(UnbindStep::AwaitSlot, SlotChange::Wait).await;
    let Some(Outcome::Deleting {
        fault: Some(fault), ..
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(fault.reason, Reason::UnbindBlocked);
    assert!(
        fault.message.contains("maximum number of targets"),
        "{}",
        fault.message
    );
    let enqueued = context.rollout_slots.dequeue_waiting(now);
    assert_eq!(enqueued, std::slice::from_ref(key));

    let until = now + Duration::from_mins(1);
    let wait = UnbindStep::InProgress;
    step(wait, SlotChange::Acquire(until)).await;
    let other = Key::new("ns", "other");
    assert!(!context.rollout_slots.can_acquire(&other, now));
    let done = step(UnbindStep::Done, SlotChange::ReleaseAndReset).await;
    assert!(done.is_none());
    assert!(context.rollout_slots.can_acquire(&other, now));
}

/// SAFE-13: what the first recorded step begins is the removal of our fields, which follows.
#[tokio::test]
async fn eviction_before_fields_are_given_up_is_not_recorded_as_the_beginning() {
    let success = json!({"kind": "Status", "status": "Success", "code": 201});
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let observed = observed(&actor(&deleted, &spec(&json!({})), &json!({})));
    for (step, is_recorded) in [
        (UnbindStep::EvictUnready(pod("web-1")), false),
        (UnbindStep::Evict(pod("web-1")), true),
    ] {
        let (context, bodies) = recording_context(success.clone());
        let params = UnbindParams {
            availability: just_read(1),
            ..UnbindParams::default()
        };
        let unbound = unbind(&context, &observed.actor, &step, &params).await;
        let Some(Outcome::Deleting { changed_target, .. }) = unbound.unwrap() else {
            panic!("{step:?} ends unbinding");
        };
        assert_eq!(changed_target, is_recorded, "{step:?}");
        assert_eq!(bodies.lock()[0]["kind"], json!("Eviction"), "{step:?}");
    }
}
