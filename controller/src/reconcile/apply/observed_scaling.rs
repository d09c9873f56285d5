//! Scaling and the queue as observed, without a write.

use crate::fault::Fault;
use crate::reconcile::model::known_queues::is_same;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState, ScalingOutcome};

/// Returns whether the queue in the previous status is not the one that serves now.
pub fn is_another_queue(observed: &Observed, ensured: &Ensured) -> bool {
    let before = observed.previous.queue.as_ref();
    let wanted = observed.desired.as_ref().map(|desired| desired.queue());
    matches!(ensured.queue, QueueState::Ready(_) | QueueState::Created(_))
        && matches!((before, wanted), (Some(before), Ok(wanted)) if !is_same(before, &wanted))
}

pub fn seen_scaling(observed: &Observed, fault: Option<Fault>) -> Option<Box<ScalingOutcome>> {
    observed.scales().then(|| {
        Box::new(ScalingOutcome {
            scaled_object: observed.scaling.scaled_object.ours().cloned(),
            fault,
            waits_for: None,
        })
    })
}
