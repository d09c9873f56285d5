//! Whose an actor's queue is, as its status says. The status is not decoded for that: a field of it that another
//! release wrote otherwise must not hide whose messages these are.

use serde_json::Value;

/// The reason of an actor whose queue belongs to another actor (QUE-3).
pub const CONFLICT: &str = "QueueConflict";
/// The reason of an actor of an operator that manages no queues (QUE-12).
const UNMANAGED: &str = "TransportValidated";

/// Why the actor has no queue of its own; `None` if no other actor or cluster is known to have it.
pub fn queue_conflict(actor: &Value) -> Option<&str> {
    let status = &actor["status"];
    let conflict = transport_condition(actor, "False").filter(|it| it["reason"] == CONFLICT);
    if let Some(conflict) = conflict {
        return Some(conflict["message"].as_str().unwrap_or("it is another's"));
    }
    // The condition says something else while the broker does not answer; this field stays.
    let is_marked = !matches!(
        status["queueMarkedForOther"],
        Value::Null | Value::Bool(false)
    );
    is_marked.then_some(
        "the broker marks it as that of another actor or cluster (status.queueMarkedForOther)",
    )
}

/// Whether the operator has found the queue, on the transport that the spec names, to be the actor's. If it manages no
/// queues, it has at least found no other actor with the name.
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

/// Condition `TransportReady` if it has this status.
fn transport_condition<'a>(actor: &'a Value, status: &str) -> Option<&'a Value> {
    let mut conditions = actor["status"]["conditions"].as_array()?.iter();
    conditions.find(|it| it["type"] == "TransportReady" && it["status"] == *status)
}
