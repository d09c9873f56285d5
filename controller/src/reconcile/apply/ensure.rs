//! Brings queue, script and workload to what is wanted.

use std::sync::Arc;

use asya_shared::names::manager;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::finalizer::add_finalizer;
use super::{Ensured, QueueState, seen_workload};
use crate::events::Note;
use crate::reconcile::desired::Desired;
use crate::reconcile::error::refused;
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::{Ensure, QueueStep, WorkloadStep};
use crate::reconcile::{Context, Error, Fault};
use crate::record::{Seen, WorkloadRecord};

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
    ensured.queue = ensure_queue(context, observed, desired, plan.queue).await;
    match plan.workload {
        WorkloadStep::Keep => {}
        WorkloadStep::Refuse(fault) => ensured.fault = Some(fault),
        WorkloadStep::Create if !ensured.queue.is_usable() => {}
        WorkloadStep::Create | WorkloadStep::Update => {
            match apply_workload(context, observed, desired).await? {
                Ok(workload) => {
                    ensured.workload = Some(workload);
                    ensured.applied = true;
                }
                Err(fault) => ensured.fault = Some(fault),
            }
        }
    }
    Ok(ensured)
}

async fn ensure_queue(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
    step: QueueStep,
) -> QueueState {
    let creates = step == QueueStep::Create;
    match step {
        QueueStep::Keep => return QueueState::Ready,
        QueueStep::Unmanaged => return QueueState::Unmanaged,
        QueueStep::Refuse(fault) => return QueueState::Fault(fault),
        QueueStep::Create | QueueStep::Route => {}
    }
    let made = async {
        let client = context
            .brokers
            .client(&desired.transport, &observed.key().namespace)
            .await?;
        if creates {
            client.create(&desired.names).await?;
        }
        client.route(&desired.names).await
    };
    match made.await {
        Ok(()) => {
            if creates {
                let text = format!(
                    "created queue {} on transport {}",
                    desired.names.queue, desired.transport.name
                );
                context
                    .events
                    .tell(&observed.actor, Note::QueueCreated, text);
            }
            QueueState::Ready
        }
        Err(error) => QueueState::Fault(error.fault()),
    }
}

/// The script comes first: pods mount it.
async fn apply_workload(
    context: &Context,
    observed: &Observed,
    desired: &Desired,
) -> Result<Result<Arc<WorkloadRecord>, Fault>, Error> {
    let key = observed.key();
    if let Err(fault) = context
        .runtime
        .ensure(&context.stores.config_maps, &key.namespace)
        .await?
    {
        return Ok(Err(fault));
    }
    let api: Api<Seen<WorkloadRecord>> = Api::namespaced(context.client.clone(), &key.namespace);
    let params = PatchParams::apply(manager::WORKLOAD).force();
    match api
        .patch(&key.name, &params, &Patch::Apply(&desired.workload.object))
        .await
    {
        Ok(seen) => {
            context.stores.workloads.wrote(&seen);
            Ok(Ok(seen.record))
        }
        Err(error) => Ok(Err(refused(&format!("Deployment {key}"), error)?)),
    }
}
