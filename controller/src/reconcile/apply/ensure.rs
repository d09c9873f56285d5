//! Brings queue, script and workload to what is wanted.

use std::sync::Arc;

use super::finalizer::add_finalizer;
use super::{Ensured, QueueState, seen_workload};
use crate::events::Note;
use crate::queue::BrokerError;
use crate::queue::health::Finding;
use crate::reconcile::desired::Desired;
use crate::reconcile::error::refused;
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::{Ensure, QueueStep, WorkloadStep};
use crate::reconcile::{Context, Error, Fault};
use crate::record::WorkloadRecord;

/// Runs the plan of an actor that lives.
pub(super) async fn ensure(
    context: &Context,
    observed: &Observed,
    plan: Ensure,
) -> Result<Ensured, Error> {
    if plan.add_finalizer {
        add_finalizer(context, &observed.actor).await?;
    }
    let mut ensured = Ensured {
        workload: seen_workload(observed),
        ..Ensured::default()
    };
    let Ok(desired) = &observed.desired else {
        return Ok(ensured);
    };
    ensured.queue = ensure_queue(context, observed, desired, plan.queue).await?;
    if plan.workload == WorkloadStep::Create && !ensured.queue.is_usable() {
        return Ok(ensured);
    }
    if let Err(fault) = ensure_script(context, observed).await? {
        ensured.fault = Some(fault);
        return Ok(ensured);
    }
    let applied = match plan.workload {
        WorkloadStep::Keep => None,
        WorkloadStep::Refuse(fault) => Some(Err(fault)),
        WorkloadStep::Create => Some(apply_workload(context, observed, desired).await?),
        WorkloadStep::Update {
            take_over,
            hand_over,
        } => {
            prepare_update(context, observed, take_over, hand_over).await?;
            Some(apply_workload(context, observed, desired).await?)
        }
    };
    match applied {
        Some(Ok(workload)) => {
            ensured.workload = Some(workload);
            ensured.applied = true;
        }
        Some(Err(fault)) => ensured.fault = Some(fault),
        None => {}
    }
    if let Some(former) = plan.former.filter(|_| ensured.workload.is_some()) {
        context.workloads.delete(&former).await?;
    }
    Ok(ensured)
}

/// What must be so before an apply, or else it would change more than it says.
async fn prepare_update(
    context: &Context,
    observed: &Observed,
    take_over: Option<usize>,
    hand_over: bool,
) -> Result<(), Error> {
    let Some(workload) = seen_workload(observed) else {
        return Ok(());
    };
    if hand_over {
        context
            .workloads
            .hand_over_replicas(&workload)
            .await
            .map_err(Error::Api)?;
    }
    if let Some(index) = take_over {
        context.workloads.take_over_fields(&workload, index).await?;
    }
    Ok(())
}

async fn ensure_queue(
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
            context.doubts.settle(observed.key());
            return Ok(QueueState::Ready(serving));
        }
        QueueStep::Await => return Ok(QueueState::Unanswered),
        QueueStep::Unmanaged => return Ok(QueueState::Unmanaged),
        QueueStep::Refuse(fault) => return Ok(QueueState::Fault(fault)),
        QueueStep::Create => client.create(&queue).await,
        QueueStep::Update => client.update(&queue).await,
    };
    match made {
        Ok(serving) => {
            if creates {
                tell_creation(context, observed, desired);
            }
            context.doubts.settle(observed.key());
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
    let (note, verb) = match context.doubts.about(observed.key()) {
        Some(Finding::Vanished) => (Note::QueueRecreated, "created again"),
        _ => (Note::QueueCreated, "created"),
    };
    let text = format!(
        "{verb} queue {} on transport {}",
        desired.names.queue, desired.transport.name
    );
    context.events.tell(&observed.actor, note, text);
}

/// The script comes before the workload: pods mount it.
async fn ensure_script(context: &Context, observed: &Observed) -> Result<Result<(), Fault>, Error> {
    let (store, namespace) = (&context.stores.config_maps, &observed.key().namespace);
    context.runtime.ensure(store, namespace).await
}

async fn apply_workload(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
) -> Result<Result<Arc<WorkloadRecord>, Fault>, Error> {
    let key = observed.key();
    let applied = context
        .workloads
        .apply(desired.kind, key, &desired.workload.object)
        .await;
    applied.map_or_else(
        |error| refused(&format!("{:?} {key}", desired.kind), error).map(Err),
        |workload| Ok(Ok(workload)),
    )
}
