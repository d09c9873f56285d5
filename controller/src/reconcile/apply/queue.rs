//! Reconciles a queue.

use crate::broker::health::Moment;
use crate::context::Context;
use crate::reconcile::desired::Desired;
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::queue::{creation_event, failed_state, serving_state};
use crate::reconcile::plan::steps::QueueStep;
use crate::record::ActorRecord;

/// Executes the queue step; `began` is when the queue was observed, and `recreates` whether it was verified before.
pub(super) async fn ensure_queue(
    context: &Context,
    (actor, desired): (&ActorRecord, &Desired),
    step: QueueStep,
    (began, recreates): (Moment, bool),
) -> QueueState {
    let key = &actor.metadata.key;
    let created = step == QueueStep::Create;
    let client = || context.brokers.client(&desired.transport, &key.namespace);
    let queue = desired.queue_of(actor);
    let written = match step {
        QueueStep::Keep(serving) => Ok(serving),
        QueueStep::Await(retry) => return QueueState::Unanswered(retry),
        QueueStep::Unmanaged => return QueueState::Unmanaged,
        QueueStep::Leave => return QueueState::Untouched,
        QueueStep::Refuse(fault) => return QueueState::Fault(fault),
        QueueStep::Create => client().create(&queue).await.map(Some),
        QueueStep::Update => client().update(&queue).await.map(Some),
    };
    let serving = match written {
        Ok(serving) => serving,
        Err(error) => return failed_state(&error),
    };
    if created {
        let (reason, text) = creation_event(desired, recreates);
        context.events.tell(actor, reason, &text);
    }
    context.queue_rechecks.settle(key, began);
    serving_state(desired, serving, created)
}
