use asya_shared::transport::ownership::{ActorOwnership, DeletionRefusal, OwnerTag};
use asya_shared::transport::rabbitmq::routing_keys;
use serde_json::{Value, json};

use super::{FoundQueueBinding, QueueBindings};

const QUEUE: &str = "asya-orders";

fn tag(cluster: &str, actor: &str) -> OwnerTag {
    OwnerTag {
        cluster: cluster.to_owned(),
        namespace: "ns".to_owned(),
        actor: actor.to_owned(),
    }
}

fn binding(exchange: &str, key: &str, arguments: &Value) -> Value {
    json!({
        "source": exchange, "destination": QUEUE, "destination_type": "queue",
        "routing_key": key, "arguments": arguments, "properties_key": key,
    })
}

fn found(bindings: &[Value]) -> QueueBindings {
    let found = bindings.iter().cloned();
    found
        .map(|binding| serde_json::from_value::<FoundQueueBinding>(binding).unwrap())
        .collect()
}

fn refusal(bindings: &[Value]) -> Option<DeletionRefusal> {
    found(bindings).deletion_refusal("asya", QUEUE, &tag("here", "orders"))
}

/// QUE-35: an actor's queue outlives it for its successor, and a dead letter queue is deleted only when it is empty.
#[test]
fn dead_letter_queue_of_another_actor_may_be_taken_but_its_queue_may_not() {
    let ours = tag("here", "orders");
    let marked = |key: &str, actor: &str| {
        let mark = binding("asya", key, &tag("here", actor).arguments());
        let bindings = found(&[binding("", QUEUE, &json!({})), mark]);
        (
            bindings.ownership(QUEUE, &ours, None),
            bindings.dlq_ownership(QUEUE, &ours, None),
        )
    };
    let theirs = || ActorOwnership::OtherActor("ns/refunds".to_owned());
    assert_eq!(marked(QUEUE, "refunds"), (theirs(), theirs()));
    let key = "asya.sh/owner-0123456789abcdef";
    assert_eq!(
        marked(key, "refunds"),
        (theirs(), ActorOwnership::Available)
    );
    assert_eq!(
        marked(key, "orders"),
        (ActorOwnership::Ours, ActorOwnership::Ours)
    );
}

/// QUE-34: whoever can write a status could name any queue in it.
#[test]
fn queue_is_deleted_only_if_marked_for_the_actor_or_bound_as_we_bind_queues() {
    let none = json!({});
    let ours = |exchange: &str| -> Vec<Value> {
        let keys = routing_keys(QUEUE);
        keys.iter()
            .map(|key| binding(exchange, key, &none))
            .collect()
    };
    let untagged = Some(DeletionRefusal::NoOwnerTag);
    // RabbitMQ binds every queue to the default exchange by its name.
    let default = binding("", QUEUE, &none);
    assert_eq!(refusal(&[]), untagged);
    assert_eq!(refusal(std::slice::from_ref(&default)), untagged);
    assert_eq!(refusal(&[default, binding("theirs", "#", &none)]), untagged);
    assert_eq!(refusal(&ours("theirs")), untagged, "another exchange");
    assert_eq!(refusal(&ours("asya")[..1]), untagged, "bound in part");
    assert_eq!(
        refusal(&ours("asya")),
        None,
        "from before queues were marked"
    );

    let marked = |cluster: &str, actor: &str| {
        let mark = binding("asya", QUEUE, &tag(cluster, actor).arguments());
        let bindings = [ours("asya"), vec![mark]].concat();
        refusal(&bindings)
    };
    assert_eq!(marked("here", "orders"), None);
    let other = DeletionRefusal::OtherOwner("ns/refunds".to_owned());
    assert_eq!(marked("here", "refunds"), Some(other));
    let other = DeletionRefusal::OtherCluster("there".to_owned());
    assert_eq!(marked("there", "orders"), Some(other));
}
