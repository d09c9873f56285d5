//! Handles messages left in the queue of an actor being deleted (QUE-44, QUE-45).
//!
//! Reads the namespace here, and not when observing: once it terminates, which may be now, Events can be created only
//! outside it, and a queue that is still in use no longer blocks the deletion.

use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, QueueStatus};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::Api;

use crate::broker::{Count, Depth, QueueClient};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::drain::{KeptQueues, RemainingQueues, format_depth};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Requeue interval for a queue that turned out not to be empty.
const RECHECK_INTERVAL: Duration = Duration::from_secs(15);

/// Counts the messages in a queue about to be deleted. Returns `None` if it is empty or the count is unknown, which
/// does not block the deletion.
pub(super) async fn count(client: &dyn QueueClient, queue: &str) -> Option<Depth> {
    let queues = [queue.to_owned()];
    match client.depths(&queues).await.pop()?.ok()? {
        Count::Messages(depth) if depth != Depth::default() => Some(depth),
        Count::Messages(_) | Count::NotFound | Count::Unknown => None,
    }
}

/// Reports messages that were deleted with a queue of ours.
pub(super) async fn report_deleted_messages(
    context: &Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
    depth: Option<Depth>,
) {
    let Some(depth) = depth else {
        return;
    };
    let QueueStatus {
        name, transport, ..
    } = queue;
    let text = format!(
        "deleted queue {name} on transport {transport} with {} (queue.deletionPolicy: Delete)",
        format_depth(depth)
    );
    let reason = EventReason::MessagesDeleted;
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.ok().flatten().map(|it| it.metadata);
    match namespace.filter(|it| it.deletion_timestamp.is_some()) {
        Some(namespace) => {
            publish_on_namespace(context, actor, namespace.uid.as_deref(), reason, &text);
        }
        None => context.events.publish(actor, reason, &text),
    }
}

/// Reports queues that remain at their brokers because the namespace is being deleted.
pub(super) fn report_kept_queues(
    context: &Context,
    actor: &ActorRecord,
    policy: QueueDeletionPolicy,
    kept: &KeptQueues,
) {
    let text = format!(
        "{}; it stays at the broker, because the namespace is being deleted (queue.deletionPolicy: {policy:?})",
        kept.queues.describe(),
    );
    let uid = kept.namespace_uid.as_deref();
    publish_on_namespace(context, actor, uid, EventReason::QueueKept, &text);
}

/// Keeps a queue that is still in use, and reports that, if the actor's namespace is being deleted.
pub(super) async fn keep_in_terminating_namespace(
    context: &Context,
    actor: &ActorRecord,
    policy: QueueDeletionPolicy,
    queue: &QueueStatus,
) -> Result<bool, Error> {
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.map_err(Error::Api)?;
    let queues = RemainingQueues {
        uncounted: vec![queue.clone()],
        ..RemainingQueues::default()
    };
    let kept = KeptQueues::of_terminating(namespace.as_ref(), queues);
    if let Some(kept) = &kept {
        report_kept_queues(context, actor, policy, kept);
    }
    Ok(kept.is_some())
}

/// Records the Event on the Namespace, because none can be created inside a terminating namespace, nor would it
/// survive.
fn publish_on_namespace(
    context: &Context,
    actor: &ActorRecord,
    uid: Option<&str>,
    reason: EventReason,
    text: &str,
) {
    let key = &actor.metadata.key;
    let namespace = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some(key.namespace.to_string()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    let text = format!("AsyncActor {key}: {text}");
    context.events.publish_about(namespace, reason, &text);
}

/// The fault of a queue that must be empty to be deleted, but holds messages or still has consumers.
pub(super) fn not_empty_fault(queue: &str) -> Fault {
    Fault {
        reason: Reason::QueueNotEmpty,
        message: format!(
            "queue {queue} holds messages or still has consumers, so it is not deleted. Stop its producers and \
             consumers, or set spec.queue.deletionPolicy to Retain, which deletes the actor now and keeps the queue \
             with its messages"
        ),
        requeue: Requeue::After(RECHECK_INTERVAL),
    }
}
