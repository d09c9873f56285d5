//! A workload that cannot become what is wanted, because fields of it can never change (FW-22).

use asya_shared::names::annotation;
use serde_json::Value;

use crate::reconcile::observe::Observed;
use crate::reconcile::{Context, Error, Fault, Reason, Retry};
use crate::record::WorkloadRecord;
use crate::workload::SELECTOR;

/// Why `object` was refused, if that is because of fields which can never change. Where the actor allows it
/// the workload is deleted; its end is an event, and then it is made anew.
pub(super) async fn if_allowed(
    context: &Context,
    observed: &Observed,
    workload: &WorkloadRecord,
    object: &Value,
) -> Result<Option<Fault>, Error> {
    let (key, workloads) = (observed.key(), &context.workloads);
    let kind = workload.kind;
    let fields = workloads.immutable_differences(kind, key, object).await;
    let fields = fields.map_err(Error::Api)?;
    if fields.is_empty() {
        return Ok(None);
    }
    let what = format!(
        "{} {key} cannot be changed in {}",
        kind.name(),
        fields.join(", ")
    );
    // Pods that the new one does not select would be nobody's.
    let selects_others = fields.iter().any(|field| field == SELECTOR);
    if !observed.actor.annotations.allow_recreate {
        let its_pods = if selects_others {
            "deletes it with its pods"
        } else {
            "deletes it, leaves its pods at work"
        };
        let hint = format!(
            "annotation {}: \"true\" on the actor {its_pods} and makes it anew",
            annotation::ALLOW_RECREATE
        );
        return Ok(Some(fault(format!("{what}; {hint}"), Retry::Slowly)));
    }
    if selects_others {
        workloads.delete(workload).await?;
    } else {
        workloads.delete_leaving_pods(workload).await?;
    }
    let text = format!("{what}; it is being made anew");
    Ok(Some(fault(text, Retry::OnChange)))
}

fn fault(message: String, retry: Retry) -> Fault {
    Fault {
        reason: Reason::ReconcileError,
        message,
        retry,
    }
}
