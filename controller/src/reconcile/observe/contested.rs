//! An actor that needs a name at a broker which is another actor's (QUE-3).

use asya_shared::api::{AsyncActorStatus, WorkloadKind};
use asya_shared::validate;

use crate::claims::Owner;
use crate::reconcile::desired::{Desired, desired};
use crate::reconcile::{Context, Fault, Reason};
use crate::record::ActorRecord;

/// What another actor has of this one's.
#[derive(Clone, Debug, PartialEq)]
pub struct Contested {
    /// Whether it is the queue itself, and not only its dead letter queue.
    pub queue: bool,
    /// Hash of the workload that would receive from it.
    pub workload: Option<String>,
    /// The kind of that: one without our labels is in no watch, and has to be looked for by its kind.
    pub kind: Option<WorkloadKind>,
}

/// What the spec asks for, unless another owns a name that it needs; then also what that keeps the actor from.
pub(super) fn uncontested(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: &[WorkloadKind],
) -> (Result<Box<Desired>, Fault>, Option<Contested>) {
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

/// There is nothing to make for this one.
fn conflict(Owner { key, queue, .. }: &Owner) -> Fault {
    let violation = validate::queue_taken(queue, &key.namespace, &key.name);
    Fault::until_change(Reason::QueueConflict, violation.to_string())
}
