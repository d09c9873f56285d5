//! Who owns an actor's queue, according to the actor's status. Reads single fields instead of decoding the status, so
//! that a field in the format of another release cannot hide whose messages these are.

use serde_json::Value;

/// The reason of a condition: the queue belongs to another actor (QUE-3).
pub const CONFLICT: &str = "QueueConflict";
/// The reason of a condition: the operator does not manage queues (QUE-12).
const UNMANAGED: &str = "TransportValidated";

/// Why the actor has no queue of its own; `None` unless another actor or cluster is known to own it.
pub fn queue_conflict(actor: &Value) -> Option<&str> {
    let status = &actor["status"];
    let conflict = transport_condition(actor, "False").filter(|it| it["reason"] == CONFLICT);
    if let Some(conflict) = conflict {
        return Some(conflict["message"].as_str().unwrap_or("it is another's"));
    }
    // While the broker does not answer, the condition reports that instead; this field stays.
    let is_marked = !matches!(
        status["queueMarkedForOther"],
        Value::Null | Value::Bool(false)
    );
    is_marked.then_some(
        "the broker marks it as that of another actor or cluster (status.queueMarkedForOther)",
    )
}

/// Whether the operator has confirmed that the queue, on the transport in the spec, is the actor's. If it manages no
/// queues, it has at least found no other actor with the same queue name.
pub fn has_confirmed_queue(actor: &Value) -> bool {
    let (transport, queue) = (&actor["spec"]["transport"], &actor["status"]["queue"]);
    let is_named = queue["name"].is_string() && queue["transport"].is_string();
    if is_named && queue["transport"] == *transport {
        return true;
    }
    let unmanaged = transport_condition(actor, "True").filter(|it| it["reason"] == UNMANAGED);
    let generation = &actor["metadata"]["generation"];
    unmanaged.is_some_and(|it| it["observedGeneration"] == *generation)
}

/// Whether the operator neither creates nor deletes queues (QUE-12).
pub fn is_queue_unmanaged(actor: &Value) -> bool {
    transport_condition(actor, "True").is_some_and(|it| it["reason"] == UNMANAGED)
}

/// The condition `TransportReady`, if it has this status.
fn transport_condition<'a>(actor: &'a Value, status: &str) -> Option<&'a Value> {
    let mut conditions = actor["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == "TransportReady" && it["status"] == *status)
}
