//! KEDA's objects for an actor.

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, QueueStatus};
use asya_shared::config::Transport;
use asya_shared::scaling::{
    ScaleTarget, ScalingInputs, ScalingObjects, Untriggerable, scaling_objects,
};
use asya_shared::transport::QueueNames;

use crate::record::ActorRecord;

pub fn scaling_of(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    spec: &AsyncActorSpec,
    (transport, names): (&Transport, &QueueNames),
    target: ScaleTarget<'_>,
) -> Option<Result<ScalingObjects, Untriggerable>> {
    let is_it =
        |queue: &&QueueStatus| (&queue.transport, &queue.name) == (&transport.name, &names.queue);
    let queue = previous.queue.as_ref().filter(is_it);
    let key = &actor.metadata.key;
    Some(scaling_objects(&ScalingInputs {
        namespace: &key.namespace,
        actor: &key.name,
        uid: &actor.metadata.uid,
        scaling: spec.scaling_in_force()?,
        target,
        transport,
        names,
        queue_url: queue.and_then(|queue| queue.url.as_deref()),
    }))
}
