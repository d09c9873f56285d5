//! Recreates a workload whose update needs to change immutable fields (FW-22).

use asya_shared::names::annotation;
use serde_json::Value;

use crate::cluster::workload::SELECTOR;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::child::unseen;
use crate::reconcile::model::observed::Observed;
use crate::record::WorkloadRecord;

/// Returns why `object` was refused, if immutable fields are the cause. If the actor allows it, the workload is
/// deleted, and recreated once the deletion has completed.
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
    // Pods that the new workload does not select would be left behind.
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
        return Ok(Some(fault(format!("{what}; {hint}"), Requeue::SlowBackoff)));
    }
    if selects_others {
        workloads.delete(workload).await?;
    } else {
        workloads.delete_leaving_pods(workload).await?;
    }
    Ok(Some(made_anew(workload, &what)))
}

/// The fault reported until the old workload is deleted.
fn made_anew(workload: &WorkloadRecord, what: &str) -> Fault {
    let text = format!("{what}; it is being made anew");
    fault(
        text,
        unseen(workload).map_or(Requeue::AwaitChange, Requeue::After),
    )
}

fn fault(message: String, retry: Requeue) -> Fault {
    Fault {
        reason: Reason::ReconcileError,
        message,
        retry,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::made_anew;
    use crate::fault::Requeue;
    use crate::reconcile::model::child::UNSEEN;
    use crate::reconcile::tests::fixtures::{actor, deployment, observed, spec, workload};

    /// FW-22: a workload that no watch shows was created by another controller and taken over.
    #[test]
    fn deletion_of_a_recreated_workload_is_watched_or_polled() {
        let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let mut object = deployment(&seen);
        let retry = |object: &Value| made_anew(&workload(object), "it cannot be changed").retry;
        assert_eq!(retry(&object), Requeue::AwaitChange);
        object["metadata"]["labels"] = json!({});
        assert_eq!(retry(&object), Requeue::After(UNSEEN));
    }
}
