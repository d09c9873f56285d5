//! What stands of scaling, and of the queue, where nothing is written.

use crate::fault::Fault;
use crate::reconcile::model::known_queues::is_same;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, QueueState, Scaled};

/// Whether status told of another queue than the one that serves now.
pub fn is_another_queue(observed: &Observed, ensured: &Ensured) -> bool {
    let before = observed.previous.queue.as_ref();
    let wanted = observed.desired.as_ref().map(|desired| desired.queue());
    matches!(ensured.queue, QueueState::Ready(_) | QueueState::Created(_))
        && matches!((before, wanted), (Some(before), Ok(wanted)) if !is_same(before, &wanted))
}

pub fn seen_scaling(observed: &Observed, fault: Option<Fault>) -> Option<Box<Scaled>> {
    observed.scales().then(|| {
        Box::new(Scaled {
            scaled_object: observed.scaling.scaled_object.ours().cloned(),
            fault,
            waits_for: None,
        })
    })
}
