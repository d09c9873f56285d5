//! Scales workloads to zero while their queue belongs to another actor (QUE-3).

use std::sync::Arc;

use super::scaling;
use crate::context::Context;
use crate::fault::{Error, Fault, refused};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, Stopped};
use crate::reconcile::plan::steps::ScalingStep;
use crate::record::WorkloadRecord;
use crate::telemetry::events::EventReason;

/// Removes KEDA's objects first, then scales the workloads to zero.
pub(super) async fn stop(
    context: &Context,
    observed: &Observed,
    unscaled: Option<ScalingStep>,
    workloads: &[Arc<WorkloadRecord>],
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let Some(ScalingStep::Unwanted(removal)) = unscaled else {
        return Ok(());
    };
    ensured.released_by = removal.until;
    scaling::remove(context, observed, &removal).await?;
    let mut done = Stopped::default();
    for workload in workloads {
        let (kind, key) = (workload.kind.name(), &workload.metadata.key);
        match context.workloads.set_replicas(workload, 0).await {
            Ok(stopped) => {
                let text = match &observed.desired {
                    Err(Fault { message, .. }) => format!("{kind} {key} gets no pods: {message}"),
                    Ok(_) => format!("{kind} {key} gets no pods"),
                };
                context
                    .events
                    .tell(&observed.actor, EventReason::WorkloadStopped, &text);
                done.kinds.push(kind);
                let shown = ensured.workload.as_ref();
                if shown.is_some_and(|shown| shown.kind == stopped.kind) {
                    ensured.workload = Some(stopped);
                }
            }
            Err(error) => ensured.fault = Some(refused(&format!("{kind} {key}"), error)?),
        }
    }
    ensured.stopped = Some(Box::new(done));
    Ok(())
}
