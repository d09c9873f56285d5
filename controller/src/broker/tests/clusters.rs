//! Two clusters on one broker (QUE-32 to QUE-35, QUE-39), against the real servers.

use asya_shared::transport::ownership::DeletionRefusal;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::contract::{Real, check_of, serves, until_queued};
use super::*;
use crate::broker::{DeleteIfEmptyOutcome, DeleteOutcome, QueueCheck};

const THERE: &str = "cluster-a";

fn name_is_taken<T: std::fmt::Debug>(result: Result<T, BrokerError>) {
    let error = result.unwrap_err();
    assert!(
        matches!(&error, BrokerError::QueueNameTaken(text)
            if text.contains(HERE) && text.contains("asya.sh/adopt-queue-from=cluster-b")),
        "{error:?}"
    );
}

fn of_cluster(cluster: &str) -> DeletionRefusal {
    DeletionRefusal::OtherCluster(cluster.to_owned())
}

fn belongs_to<T: std::fmt::Debug>(queue: &ActorQueue, result: &Result<T, BrokerError>) {
    let owner = format!("belongs to {}/{}", queue.namespace, queue.actor);
    assert!(
        matches!(result, Err(BrokerError::QueueNameTaken(text)) if text.contains(&owner)),
        "{result:?}"
    );
}

/// A retained queue of another namespace is a conflict, and outlives the newcomer.
async fn kept_for_its_actor(real: &Real) {
    let queues = json!({"dlq": {"enabled": true, "name": "{queue}-dlq"}});
    let (transport, client) = real.with(&queues).await;
    let queue = queue_of(&transport, &fresh("kept"));
    let name = &*queue.names.queue;
    client.create(&queue).await.unwrap();
    real.send(&queue, 3).await;
    until_queued(&client, &queue, 3).await;
    let newcomer = ActorQueue {
        namespace: "newcomers".to_owned(),
        ..queue.clone()
    };
    belongs_to(&queue, &client.observe(&newcomer).await);
    belongs_to(&queue, &client.update(&newcomer).await);
    let outcome = client.delete(name, &owner(&newcomer), &Confirmed).await;
    assert!(
        matches!(
            outcome,
            Ok(DeleteOutcome::NotOwned(DeletionRefusal::OtherOwner(_)))
        ),
        "{outcome:?}"
    );
    until_queued(&client, &queue, 3).await;
    let again = ActorQueue {
        uid: "of-its-successor".to_owned(),
        ..queue.clone()
    };
    client.update(&again).await.unwrap();
    assert!(serves(&check_of(&client, &again).await));
    assert_eq!(
        client.delete(name, &owner(&again), &Confirmed).await,
        Ok(DeleteOutcome::Deleted)
    );
}

/// QUE-35, SQS-7
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn queue_at_rabbitmq_is_kept_for_its_actor() {
    kept_for_its_actor(&Real::rabbitmq()).await;
}

/// QUE-35, SQS-7
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn queue_at_sqs_is_kept_for_its_actor() {
    kept_for_its_actor(&Real::sqs()).await;
}

async fn belongs_to_the_cluster_that_created_it(real: &Real) {
    let queues = json!({"dlq": {"enabled": true, "name": "{queue}-dlq"}});
    let (transport, here) = real.with(&queues).await;
    let there = client_of(&transport, None, THERE).await.unwrap();
    let queue = queue_of(&transport, &fresh("mine"));
    let (name, dlq) = (&*queue.names.queue, queue.names.dlq.as_deref().unwrap());
    here.create(&queue).await.unwrap();
    real.send(&queue, 100).await;
    until_queued(&here, &queue, 100).await;

    name_is_taken(there.observe(&queue).await);
    name_is_taken(there.update(&queue).await);
    name_is_taken(there.create(&queue).await);
    name_is_taken(
        there
            .observe_many(std::slice::from_ref(&queue))
            .await
            .remove(0),
    );
    let not_owned = Ok(DeleteOutcome::NotOwned(of_cluster(HERE)));
    assert_eq!(
        there.delete(name, &owner(&queue), &Confirmed).await,
        not_owned
    );
    for name in [name, dlq] {
        let not_owned = Ok(DeleteIfEmptyOutcome::NotOwned(of_cluster(HERE)));
        assert_eq!(
            there
                .delete_if_empty(name, &owner(&queue), Untagged::Keep, 1, &Confirmed)
                .await,
            not_owned
        );
    }
    assert!(
        serves(&check_of(&here, &queue).await),
        "the queue is unchanged"
    );
    until_queued(&here, &queue, 100).await;

    // The actor adopts the queue that the other cluster has released.
    let adopting = ActorQueue {
        adopts: Some(HERE.to_owned()),
        ..queue.clone()
    };
    assert_eq!(check_of(&there, &adopting).await, QueueCheck::NotTaggedYet);
    there.update(&adopting).await.unwrap();
    assert!(serves(&check_of(&there, &adopting).await));
    assert!(
        serves(&check_of(&there, &queue).await),
        "also without the annotation"
    );
    let result = here.observe(&queue).await;
    assert!(
        matches!(&result, Err(BrokerError::QueueNameTaken(text)) if text.contains(THERE)),
        "{result:?}"
    );
    assert_eq!(
        here.delete(name, &owner(&queue), &Confirmed).await,
        Ok(DeleteOutcome::NotOwned(of_cluster(THERE)))
    );
    until_queued(&there, &queue, 100).await;
    assert_eq!(
        there.delete(name, &owner(&queue), &Confirmed).await,
        Ok(DeleteOutcome::Deleted)
    );
    let mut outcome = there
        .delete_if_empty(dlq, &owner(&queue), Untagged::Keep, 1, &Confirmed)
        .await
        .unwrap();
    if real.kind == "rabbitmq"
        && let DeleteIfEmptyOutcome::Recheck(wait) = outcome
    {
        sleep(wait).await;
        outcome = there
            .delete_if_empty(dlq, &owner(&queue), Untagged::Keep, 1, &Confirmed)
            .await
            .unwrap();
    }
    assert!(
        matches!(
            outcome,
            DeleteIfEmptyOutcome::Deleted | DeleteIfEmptyOutcome::Recheck(_)
        ),
        "{outcome:?}"
    );
}

async fn may_be_shared_if_configured(real: &Real) {
    let stem = fresh("shared");
    let (transport, here) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &stem);
    here.create(&queue).await.unwrap();
    let (users, _) = real.with(&json!({"autoCreate": false})).await;
    let there = client_of(&users, None, THERE).await.unwrap();
    assert!(serves(&check_of(&there, &queue_of(&users, &stem)).await));
    assert_eq!(
        here.delete(&queue.names.queue, &owner(&queue), &Confirmed)
            .await,
        Ok(DeleteOutcome::Deleted)
    );

    let queues = json!({"dlq": {"enabled": true, "name": fresh("asya-dead")}});
    let (transport, here) = real.with(&queues).await;
    let there = client_of(&transport, None, THERE).await.unwrap();
    for (client, name) in [(here, "here"), (there, "there")] {
        let queue = queue_of(&transport, &format!("{stem}-{name}"));
        client.create(&queue).await.unwrap();
        assert!(serves(&check_of(&client, &queue).await), "{name}");
        assert_eq!(
            client
                .delete(&queue.names.queue, &owner(&queue), &Confirmed)
                .await,
            Ok(DeleteOutcome::Deleted)
        );
    }
}

/// QUE-32, QUE-33, QUE-34, QUE-39
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn queue_at_rabbitmq_belongs_to_one_cluster() {
    belongs_to_the_cluster_that_created_it(&Real::rabbitmq()).await;
    may_be_shared_if_configured(&Real::rabbitmq()).await;
}

/// QUE-32, QUE-33, QUE-34, QUE-39
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn queue_at_sqs_belongs_to_one_cluster() {
    belongs_to_the_cluster_that_created_it(&Real::sqs()).await;
    may_be_shared_if_configured(&Real::sqs()).await;
}

/// QUE-34, QUE-35
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn existing_rabbitmq_queue_is_marked_once_and_a_foreign_one_is_never_deleted() {
    let mut real = Real::rabbitmq();
    real.config["exchange"] = fresh("exchange").into();
    let exchange = real.config["exchange"].as_str().unwrap().to_owned();
    let (transport, client) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("before"));
    let name = &*queue.names.queue;
    let durable = json!({"durable": true, "type": "topic", "auto_delete": false});
    super::rabbitmq::put(&real.config, &format!("exchanges/%2F/{exchange}"), &durable).await;
    super::rabbitmq::put(
        &real.config,
        &format!("queues/%2F/{name}"),
        &json!({"durable": true}),
    )
    .await;

    let untagged = Ok(DeleteOutcome::NotOwned(DeletionRefusal::NoOwnerTag));
    assert_eq!(
        client.delete(name, &owner(&queue), &Confirmed).await,
        untagged,
        "even if a status names it"
    );
    let kept = Ok(DeleteIfEmptyOutcome::NotOwned(DeletionRefusal::NoOwnerTag));
    assert_eq!(
        client
            .delete_if_empty(name, &owner(&queue), Untagged::Keep, 1, &Confirmed)
            .await,
        kept
    );

    for key in [&queue.names.actor, &queue.names.queue] {
        let path = format!("bindings/%2F/e/{exchange}/q/{name}");
        super::rabbitmq::post(&real.config, &path, &json!({"routing_key": key})).await;
    }
    assert_eq!(
        check_of(&client, &queue).await,
        QueueCheck::NotTaggedYet,
        "it has the operator's bindings"
    );
    client.update(&queue).await.unwrap();
    assert!(serves(&check_of(&client, &queue).await));
    let tags = tags(&real.config, name).await;
    let expected =
        json!({"asya.sh/cluster": HERE, "asya.sh/namespace": "ns", "asya.sh/actor": queue.actor});
    assert_eq!(tags, std::slice::from_ref(&expected));

    // The queue is kept for this actor, also while no actor of its name exists.
    let other = ActorQueue {
        namespace: "others".to_owned(),
        ..queue.clone()
    };
    belongs_to(&queue, &client.observe(&other).await);
    belongs_to(&queue, &client.update(&other).await);
    belongs_to(&queue, &client.create(&other).await);
    let outcome = client.delete(name, &owner(&other), &Confirmed).await;
    let owned_by_it = DeletionRefusal::OtherOwner(format!("ns/{}", queue.actor));
    assert_eq!(outcome, Ok(DeleteOutcome::NotOwned(owned_by_it)));

    // Whoever administers the broker can hand it over, by marking it for the other actor as well.
    let mut arguments = expected.clone();
    arguments["asya.sh/namespace"] = json!("others");
    let path = format!("bindings/%2F/e/{exchange}/q/{name}");
    let body = json!({"routing_key": name, "arguments": arguments});
    super::rabbitmq::post(&real.config, &path, &body).await;
    assert_eq!(check_of(&client, &other).await, QueueCheck::NotTaggedYet);
    client.update(&other).await.unwrap();
    assert!(serves(&check_of(&client, &other).await));
    belongs_to(&other, &client.observe(&queue).await);

    // A published message arrives once, although two bindings by the queue's name match it.
    for key in [&queue.names.actor, &queue.names.queue] {
        assert!(super::rabbitmq::publish(&real.config, &exchange, key).await);
    }
    sleep(Duration::from_secs(6)).await;
    until_queued(&client, &other, 2).await;
    assert_eq!(
        client.delete(name, &owner(&other), &Confirmed).await,
        Ok(DeleteOutcome::Deleted)
    );
}

async fn tags(config: &Value, queue: &str) -> Vec<Value> {
    let path = format!("queues/%2F/{queue}/bindings");
    let bindings = super::rabbitmq::get(config, &path).await;
    let arguments = bindings
        .as_array()
        .unwrap()
        .iter()
        .map(|binding| binding["arguments"].clone());
    arguments
        .filter(|arguments| arguments.get("asya.sh/cluster").is_some())
        .collect()
}
