//! Scales workloads to zero while their queue belongs to another actor (QUE-3).

use std::sync::Arc;

use crate::context::Context;
use crate::fault::{Error, Fault, StepError};
use crate::reconcile::model::outcome::{StandaloneOutcome, StoppedWorkloads};
use crate::record::{ActorRecord, WorkloadRecord};
use crate::telemetry::events::EventReason;

/// Scales the workloads to zero because of `fault`, once KEDA's objects are removed.
pub(super) async fn stop(
    context: &Context,
    actor: &ActorRecord,
    workloads: Vec<Arc<WorkloadRecord>>,
    fault: &Fault,
    outcome: &mut StandaloneOutcome,
) -> Result<(), Error> {
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
            Err(error) => {
                outcome.common.fault = Some(StepError::of_write(&subject, error).fault()?);
            }
        }
    }
    outcome.stopped = Some(stopped_workloads);
    Ok(())
}
