//! The KEDA objects of an actor.

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, QueueStatus};
use asya_shared::config::{QueueNames, Transport};
use asya_shared::scaling::{
    ScaleTarget, ScalingInputs, ScalingObjects, TriggerError, scaling_objects,
};

use crate::record::ActorRecord;

pub fn build_scaling_objects(
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    spec: &AsyncActorSpec,
    transport: &Transport,
    names: &QueueNames,
    target: ScaleTarget<'_>,
) -> Option<Result<ScalingObjects, TriggerError>> {
    let is_current =
        |queue: &&QueueStatus| (&queue.transport, &queue.name) == (&transport.name, &names.queue);
    let queue = previous.queue.as_ref().filter(is_current);
    let key = &actor.metadata.key;
    Some(scaling_objects(&ScalingInputs {
        namespace: &key.namespace,
        actor: &key.name,
        uid: &actor.metadata.uid,
        scaling: spec.effective_scaling()?,
        target,
        transport,
        names,
        queue_url: queue.and_then(|queue| queue.url.as_deref()),
    }))
}
