//! Scales workloads to zero while their queue belongs to another actor (QUE-3).

use std::sync::Arc;

use super::scaling;
use crate::context::Context;
use crate::fault::{Error, Fault, StepError};
use crate::reconcile::model::outcome::{ActiveOutcome, StoppedWorkloads};
use crate::reconcile::plan::scaling_children::ScalingChildren;
use crate::reconcile::plan::steps::ScalingStep;
use crate::record::{ActorRecord, WorkloadRecord};
use crate::telemetry::events::EventReason;

/// Removes KEDA's objects first, then scales the workloads to zero because of `fault`.
pub(super) async fn stop(
    context: &Context,
    actor: &ActorRecord,
    (step, children): (Option<ScalingStep>, &ScalingChildren),
    workloads: Vec<Arc<WorkloadRecord>>,
    fault: &Fault,
    outcome: &mut ActiveOutcome,
) -> Result<(), Error> {
    let Some(ScalingStep::Disabled(removal)) = step else {
        return Ok(());
    };
    outcome.keda_deadline = removal.deadline;
    scaling::remove(context, children).await?;
    let mut stopped_workloads = StoppedWorkloads::default();
    for workload in workloads {
        let subject = format!("{} {}", workload.kind.name(), workload.metadata.key);
        match context.workloads.set_replicas(&workload, 0).await {
            Ok(stopped) => {
                let text = format!("{subject} gets no pods: {}", fault.message);
                let event = EventReason::WorkloadStopped;
                context.events.publish(actor, event, &text);
                stopped_workloads.kinds.push(workload.kind.name());
                let reported = outcome.workload.as_ref();
                if reported.is_some_and(|reported| reported.kind == stopped.kind) {
                    outcome.workload = Some(stopped);
                }
            }
            Err(error) => outcome.fault = Some(StepError::of_write(&subject, error).fault()?),
        }
    }
    outcome.stopped = Some(Box::new(stopped_workloads));
    Ok(())
}
