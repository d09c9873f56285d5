//! Brings a queue to what is wanted.

use super::QueueState;
use crate::events::Note;
use crate::queue::BrokerError;
use crate::reconcile::desired::Desired;
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::QueueStep;
use crate::reconcile::{Context, Error};

/// Does about the queue what the plan says.
pub(super) async fn ensure_queue(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
    step: QueueStep,
) -> Result<QueueState, Error> {
    let client = context
        .brokers
        .client(&desired.transport, &observed.key().namespace);
    let queue = desired.queue_of(&observed.actor);
    let creates = step == QueueStep::Create;
    let made = match step {
        QueueStep::Keep(serving) => {
            context.doubts.settle(observed.key(), observed.began);
            return Ok(QueueState::Ready(serving));
        }
        QueueStep::Await(retry) => return Ok(QueueState::Unanswered(retry)),
        QueueStep::Unmanaged => return Ok(QueueState::Unmanaged),
        QueueStep::Leave => return Ok(QueueState::Untouched),
        QueueStep::Refuse(fault) => return Ok(QueueState::Fault(fault)),
        QueueStep::Create => client.create(&queue).await,
        QueueStep::Update => client.update(&queue).await,
    };
    match made {
        Ok(serving) => {
            if creates {
                tell_creation(context, observed, desired);
            }
            context.doubts.settle(observed.key(), observed.began);
            Ok(if creates {
                QueueState::Created(serving)
            } else {
                QueueState::Ready(Some(serving))
            })
        }
        Err(BrokerError::Busy(text)) => Err(Error::Busy(text)),
        Err(error) => Ok(QueueState::Fault(error.fault())),
    }
}

fn tell_creation(context: &Context, observed: &Observed, desired: &Desired) {
    // One that was verified and is not there any more has been lost.
    let (note, verb) = if observed.is_verified(desired) {
        (Note::QueueRecreated, "created again")
    } else {
        (Note::QueueCreated, "created")
    };
    let text = format!(
        "{verb} queue {} on transport {}",
        desired.names.queue, desired.transport.name
    );
    context.events.tell(&observed.actor, note, &text);
}
