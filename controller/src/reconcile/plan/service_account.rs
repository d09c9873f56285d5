//! Plans the `ServiceAccount` of a standalone actor's pods.

use asya_shared::inject::service_account_name;
use k8s_openapi::api::core::v1::ServiceAccount;

use super::child::{ChildStep, PlannedChild, plan_child};
use crate::reconcile::desired::Standalone;
use crate::reconcile::model::observed::Observed;
use crate::record::{ChildRecord, Key};

pub(super) fn plan_service_account(observed: &Observed) -> ChildStep {
    let Some(standalone) = observed.standalone() else {
        return ChildStep::Keep;
    };
    let desired = standalone.service_account.as_ref();
    let inventory = &observed.previous.inventory;
    let has_old_pods = has_old_pods(observed, standalone);
    match plan_child(&observed.service_account, desired, inventory) {
        // Old pods renew their tokens with the `ServiceAccount` for as long as they run.
        ChildStep::Delete(_) if has_old_pods => ChildStep::Wait,
        step => step,
    }
}

/// The planned step, with its parameters.
pub(super) fn planned_service_account(
    observed: &Observed,
) -> PlannedChild<ChildRecord<ServiceAccount>> {
    let Key { namespace, name } = observed.key();
    let standalone = observed.standalone();
    PlannedChild::new(
        &observed.ownership,
        Key::new(namespace, &service_account_name(name)),
        &plan_service_account(observed),
        &observed.service_account,
        standalone.and_then(|standalone| standalone.service_account.as_ref()),
    )
}

fn has_old_pods(observed: &Observed, standalone: &Standalone) -> bool {
    let current = Some(&*standalone.workload.template_hash);
    let mut pods = observed.consuming_pods();
    pods.any(|pod| !pod.finished && pod.template_hash.as_deref() != current)
}
