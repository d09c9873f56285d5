//! Detects that another actor owns a queue name that this one needs (QUE-3).

use std::sync::Arc;

use asya_shared::api::{AsyncActorStatus, WorkloadKind};
use asya_shared::validate;

use crate::broker::claims::Owner;
use crate::context::Context;
use crate::fault::{Fault, Reason};
use crate::reconcile::desired::{Desired, desired};
use crate::reconcile::model::observed::Contested;
use crate::record::ActorRecord;

/// The desired state, unless another actor owns a queue name that this one needs; then also what this actor must not
/// run.
pub(super) fn uncontested(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: &[WorkloadKind],
) -> (Result<Arc<Desired>, Fault>, Option<Contested>) {
    let desired = desired(&context.installation, actor, previous, scaled);
    let Some(owner) = context.claims.owner_before(&actor.metadata.key) else {
        return (desired, None);
    };
    let desired = desired.ok();
    let own = desired.as_deref().and_then(Desired::standalone);
    let contested = Contested {
        queue: owner.of_queue,
        workload: own.map(|own| own.workload.kept.hash.clone()),
        kind: own.map(|own| own.kind),
    };
    (Err(conflict(&owner)), Some(contested))
}

/// The fault that replaces the desired state.
fn conflict(Owner { key, queue, .. }: &Owner) -> Fault {
    let violation = validate::queue_taken(queue, &key.namespace, &key.name);
    Fault::until_change(Reason::QueueConflict, violation.to_string())
}
