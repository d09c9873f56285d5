//! Handles messages left in the queue of an actor being deleted (QUE-44, QUE-45).

use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, QueueStatus};
use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::Api;

use crate::broker::{Count, Depth, QueueClient};
use crate::context::Context;
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::desired::drain::{Held, text};
use crate::record::ActorRecord;
use crate::telemetry::events::EventReason;

/// Requeue interval for a queue that turned out not to be empty.
const AGAIN: Duration = Duration::from_secs(15);

/// Counts the messages in a queue about to be deleted. `None` if it is empty or the count is unknown, which does not
/// block the deletion.
pub(super) async fn count(client: &dyn QueueClient, queue: &str) -> Option<Depth> {
    let asked = [queue.to_owned()];
    match client.depths(&asked).await.pop()?.ok()? {
        Count::Messages(depth) if depth != Depth::default() => Some(depth),
        Count::Messages(_) | Count::Absent | Count::Unknown => None,
    }
}

/// Reports messages that were deleted with a queue of ours.
pub(super) async fn announce_lost(
    context: &Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
    lost: Option<Depth>,
) {
    let Some(depth) = lost else {
        return;
    };
    let QueueStatus {
        name, transport, ..
    } = queue;
    let text = format!(
        "deleted queue {name} on transport {transport} with {}, as queue.deletionPolicy: Delete asks",
        text(depth)
    );
    let note = EventReason::MessagesDeleted;
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.ok().flatten().map(|it| it.metadata);
    match namespace.filter(|it| it.deletion_timestamp.is_some()) {
        Some(ends) => tell_of_namespace(context, actor, ends.uid.as_deref(), (note, &text)),
        None => context.events.tell(actor, note, &text),
    }
}

/// Reports queues that stay at their brokers because the namespace is being deleted.
pub(super) fn announce_kept(
    context: &Context,
    (actor, policy): (&ActorRecord, QueueDeletionPolicy),
    (uid, held): (Option<&str>, &Held),
) {
    let text = format!(
        "{}; it stays at the broker, because the namespace is being deleted (queue.deletionPolicy: {policy:?})",
        held.text(),
    );
    tell_of_namespace(context, actor, uid, (EventReason::QueueKept, &text));
}

/// Records the Event on the Namespace: none can be created inside a terminating namespace, nor would it outlive it.
fn tell_of_namespace(
    context: &Context,
    actor: &ActorRecord,
    uid: Option<&str>,
    (note, text): (EventReason, &str),
) {
    let key = &actor.metadata.key;
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some(key.namespace.to_string()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    };
    let text = format!("AsyncActor {key}: {text}");
    context.events.tell_of(about, note, &text);
}

/// Fault of a queue that must be empty to be deleted, but holds messages or still has receivers.
pub(super) fn still_used(queue: &str) -> Fault {
    Fault {
        reason: Reason::QueueNotEmpty,
        message: format!(
            "queue {queue} holds messages, or something still receives from it: it is not deleted. Stop what sends to \
             it, or set spec.queue.deletionPolicy to Retain, which lets the actor go now and keeps the queue"
        ),
        retry: Requeue::After(AGAIN),
    }
}
