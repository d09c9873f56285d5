//! Reconciles a queue.

use crate::broker::Serving;
use crate::context::Context;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::Desired;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::steps::QueueStep;
use crate::telemetry::events::EventReason;

/// Executes the queue step.
pub(super) async fn ensure_queue(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
    step: QueueStep,
) -> QueueState {
    let client = context
        .brokers
        .client(&desired.transport, &observed.key().namespace);
    let queue = desired.queue_of(&observed.actor);
    let creates = step == QueueStep::Create;
    let made = match step {
        QueueStep::Keep(serving) => {
            context
                .queue_rechecks
                .settle(observed.key(), observed.began);
            let wrong = serving.as_ref().and_then(|it| misplaced(desired, it));
            return wrong.map_or(QueueState::Ready(serving), QueueState::Fault);
        }
        QueueStep::Await(retry) => return QueueState::Unanswered(retry),
        QueueStep::Unmanaged => return QueueState::Unmanaged,
        QueueStep::Leave => return QueueState::Untouched,
        QueueStep::Refuse(fault) => return QueueState::Fault(fault),
        QueueStep::Create => client.create(&queue).await,
        QueueStep::Update => client.update(&queue).await,
    };
    match made {
        Ok(serving) => {
            if creates {
                tell_creation(context, observed, desired);
            }
            context
                .queue_rechecks
                .settle(observed.key(), observed.began);
            if let Some(fault) = misplaced(desired, &serving) {
                QueueState::Fault(fault)
            } else if creates {
                QueueState::Created(serving)
            } else {
                QueueState::Ready(Some(serving))
            }
        }
        Err(error) if error.comes_again().is_some() => QueueState::Unanswered(error.retry()),
        Err(error) => QueueState::Fault(error.fault()),
    }
}

/// Reports a queue that is not where the configuration says it is. This does not affect its deletion with the actor.
fn misplaced(desired: &Desired, serving: &Serving) -> Option<Fault> {
    let queue = &desired.names.queue;
    let broker = desired.transport.broker();
    let message = broker.misplaced(queue, serving.url.as_deref()?)?;
    Some(Fault {
        reason: Reason::QueueConfigInvalid,
        message,
        retry: Requeue::SlowBackoff,
    })
}

fn tell_creation(context: &Context, observed: &Observed, desired: &Desired) {
    // A queue that was verified before and no longer exists was lost.
    let (note, verb) = if observed.is_verified(desired) {
        (EventReason::QueueRecreated, "created again")
    } else {
        (EventReason::QueueCreated, "created")
    };
    let text = format!(
        "{verb} queue {} on transport {}",
        desired.names.queue, desired.transport.name
    );
    context.events.tell(&observed.actor, note, &text);
}
