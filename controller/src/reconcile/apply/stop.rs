//! Scales workloads to zero while their queue belongs to another actor (QUE-3).

use std::sync::Arc;

use super::scaling;
use crate::context::Context;
use crate::fault::{Error, Fault, StepError};
use crate::reconcile::model::outcome::{Ensured, Stopped};
use crate::reconcile::plan::scaling_children::ScalingChildren;
use crate::reconcile::plan::steps::ScalingStep;
use crate::record::{ActorRecord, WorkloadRecord};
use crate::telemetry::events::EventReason;

/// Removes KEDA's objects first, then scales the workloads to zero because of `fault`.
pub(super) async fn stop(
    context: &Context,
    actor: &ActorRecord,
    (step, children): (Option<ScalingStep>, &ScalingChildren),
    (workloads, fault): (Vec<Arc<WorkloadRecord>>, &Fault),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let Some(ScalingStep::Unwanted(removal)) = step else {
        return Ok(());
    };
    ensured.released_by = removal.until;
    scaling::remove(context, children).await?;
    let mut done = Stopped::default();
    for workload in workloads {
        let what = format!("{} {}", workload.kind.name(), workload.metadata.key);
        match context.workloads.set_replicas(&workload, 0).await {
            Ok(stopped) => {
                let text = format!("{what} gets no pods: {}", fault.message);
                let event = EventReason::WorkloadStopped;
                context.events.tell(actor, event, &text);
                done.kinds.push(workload.kind.name());
                let shown = ensured.workload.as_ref();
                if shown.is_some_and(|shown| shown.kind == stopped.kind) {
                    ensured.workload = Some(stopped);
                }
            }
            Err(error) => ensured.fault = Some(StepError::of_write(&what, error).fault()?),
        }
    }
    ensured.stopped = Some(Box::new(done));
    Ok(())
}
