//! Executes the queue step.

use crate::broker::CallFailure;
use crate::context::Context;
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::queue::{QueuePlan, creation_event, failed_state, ready_state};
use crate::reconcile::plan::steps::QueueStep;
use crate::record::ActorRecord;

pub(super) async fn ensure_queue(
    context: &Context,
    actor: &ActorRecord,
    plan: &QueuePlan,
) -> QueueState {
    let desired = &*plan.desired;
    let key = &actor.metadata.key;
    let created = plan.step == QueueStep::Create;
    let client = || context.brokers.client(&desired.transport, &key.namespace);
    let queue = desired.queue_of(actor);
    if plan.exists_unrecorded() {
        let status = desired.queue_with_dead_letters();
        context.unrecorded_queues.add(key, status, queue.clone());
    }
    let written = match &plan.step {
        QueueStep::Keep(ready) => Ok(ready.clone()),
        QueueStep::Await(requeue) => return QueueState::Deferred(*requeue),
        QueueStep::Unmanaged => return QueueState::Unmanaged,
        QueueStep::Skip => return QueueState::NotChecked,
        QueueStep::Blocked(fault) => return QueueState::Fault(fault.clone()),
        QueueStep::Create => client().create(&queue).await.map(Some),
        QueueStep::Update => client().update(&queue).await.map(Some),
    };
    let ready = match written {
        Ok(ready) => ready,
        Err(error) => {
            let failures = context.queue_rechecks.failures(key);
            let failure = CallFailure::classify(failures, plan.is_usable_before(), &error);
            if failure.is_counted() {
                context.queue_rechecks.record_failure(key, &error);
            }
            return failed_state(failure, &error);
        }
    };
    if created {
        let event = creation_event(desired, plan.was_recorded);
        context.events.publish(actor, event.reason, &event.message);
    }
    context.queue_rechecks.clear(key, plan.recheck_sequence);
    ready_state(desired, ready, created)
}
