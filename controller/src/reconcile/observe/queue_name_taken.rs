//! Detects that another actor owns a queue name that this one needs (QUE-3).

use std::sync::Arc;

use asya_shared::api::{AsyncActorStatus, WorkloadKind};
use asya_shared::validate;

use crate::broker::queue_claims::QueueNameHolder;
use crate::context::Context;
use crate::fault::{Fault, Reason};
use crate::reconcile::desired::{Desired, desired};
use crate::reconcile::model::observed::QueueNameTaken;
use crate::record::ActorRecord;

/// What the actor's spec asks for.
pub(super) struct DesiredState {
    pub(super) desired: Result<Arc<Desired>, Fault>,
    /// Set if another actor owns a queue name that this one needs: what this one must not run.
    pub(super) queue_name_taken: Option<QueueNameTaken>,
}

/// The desired state, unless another actor owns a queue name that this one needs.
pub(super) fn desired_unless_name_taken(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: &[WorkloadKind],
) -> DesiredState {
    let desired = desired(&context.installation, actor, previous, scaled);
    let Some(owner) = context.queue_claims.other_holder(&actor.metadata.key) else {
        return DesiredState {
            desired,
            queue_name_taken: None,
        };
    };
    let desired = desired.ok();
    let standalone = desired.as_deref().and_then(Desired::standalone);
    let name_taken = QueueNameTaken {
        contested: owner.contested,
        workload_hash: standalone.map(|it| it.workload.applied.hash.clone()),
        kind: standalone.map(|it| it.kind),
    };
    DesiredState {
        desired: Err(name_taken_fault(&owner)),
        queue_name_taken: Some(name_taken),
    }
}

/// The fault that replaces the desired state.
fn name_taken_fault(QueueNameHolder { key, queue, .. }: &QueueNameHolder) -> Fault {
    let violation = validate::queue_in_use(queue, &key.namespace, &key.name);
    Fault::until_change(Reason::QueueConflict, violation.to_string())
}
