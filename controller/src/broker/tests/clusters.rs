//! Two clusters on one broker (QUE-32 to QUE-35, QUE-39), against the real servers.

use asya_shared::transport::mark::NotOurs;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::contract::{Real, serves, standing, until_queued};
use super::*;
use crate::broker::{Deleted, Emptied, QueueCheck};

const THERE: &str = "cluster-a";

fn conflicts<T: std::fmt::Debug>(answer: Result<T, BrokerError>) {
    let refused = answer.unwrap_err();
    assert!(
        matches!(&refused, BrokerError::Conflict(text)
            if text.contains(HERE) && text.contains("asya.sh/adopt-queue-from=cluster-b")),
        "{refused:?}"
    );
}

fn of_cluster(cluster: &str) -> NotOurs {
    NotOurs::OfCluster(cluster.to_owned())
}

async fn belongs_to_the_cluster_that_made_it(real: &Real) {
    let queues = json!({"dlq": {"enabled": true, "name": "{queue}-dlq"}});
    let (transport, here) = real.with(&queues).await;
    let there = client_of(&transport, None, THERE).await.unwrap();
    let queue = queue_of(&transport, &fresh("mine"));
    let (name, dlq) = (&*queue.names.queue, queue.names.dlq.as_deref().unwrap());
    here.create(&queue).await.unwrap();
    real.send(&queue, 100).await;
    until_queued(&here, &queue, 100).await;

    conflicts(there.observe(&queue).await);
    conflicts(there.update(&queue).await);
    conflicts(there.create(&queue).await);
    conflicts(there.survey(std::slice::from_ref(&queue)).await.remove(0));
    let left = Ok(Deleted::Left(of_cluster(HERE)));
    assert_eq!(there.delete(name, &owner(&queue)).await, left);
    for name in [name, dlq] {
        let left = Ok(Emptied::Left(of_cluster(HERE)));
        assert_eq!(there.delete_if_empty(name, &owner(&queue)).await, left);
    }
    assert!(
        serves(&standing(&here, &queue).await),
        "nothing was changed"
    );
    until_queued(&here, &queue, 100).await;

    // The actor adopts what the other cluster has given up.
    let adopting = QueueOf {
        adopts: Some(HERE.to_owned()),
        ..queue.clone()
    };
    assert_eq!(standing(&there, &adopting).await, QueueCheck::Unmarked);
    there.update(&adopting).await.unwrap();
    assert!(serves(&standing(&there, &adopting).await));
    assert!(
        serves(&standing(&there, &queue).await),
        "also without the annotation"
    );
    let lost = here.observe(&queue).await;
    assert!(
        matches!(&lost, Err(BrokerError::Conflict(text)) if text.contains(THERE)),
        "{lost:?}"
    );
    assert_eq!(
        here.delete(name, &owner(&queue)).await,
        Ok(Deleted::Left(of_cluster(THERE)))
    );
    until_queued(&there, &queue, 100).await;
    assert_eq!(there.delete(name, &owner(&queue)).await, Ok(Deleted::Gone));
    let mut gone = there.delete_if_empty(dlq, &owner(&queue)).await.unwrap();
    if real.kind == "rabbitmq"
        && let Emptied::Later(wait) = gone
    {
        sleep(wait).await;
        gone = there.delete_if_empty(dlq, &owner(&queue)).await.unwrap();
    }
    assert!(
        matches!(gone, Emptied::Gone | Emptied::Later(_)),
        "{gone:?}"
    );
}

async fn may_be_shared_where_that_is_what_the_configuration_says(real: &Real) {
    let stem = fresh("shared");
    let (transport, here) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &stem);
    here.create(&queue).await.unwrap();
    let (users, _) = real.with(&json!({"autoCreate": false})).await;
    let there = client_of(&users, None, THERE).await.unwrap();
    assert!(serves(&standing(&there, &queue_of(&users, &stem)).await));
    assert_eq!(
        here.delete(&queue.names.queue, &owner(&queue)).await,
        Ok(Deleted::Gone)
    );

    let queues = json!({"dlq": {"enabled": true, "name": fresh("asya-dead")}});
    let (transport, here) = real.with(&queues).await;
    let there = client_of(&transport, None, THERE).await.unwrap();
    for (client, name) in [(here, "here"), (there, "there")] {
        let queue = queue_of(&transport, &format!("{stem}-{name}"));
        client.create(&queue).await.unwrap();
        assert!(serves(&standing(&client, &queue).await), "{name}");
        assert_eq!(
            client.delete(&queue.names.queue, &owner(&queue)).await,
            Ok(Deleted::Gone)
        );
    }
}

/// QUE-32, QUE-33, QUE-34, QUE-39
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn queue_at_rabbitmq_belongs_to_one_cluster() {
    belongs_to_the_cluster_that_made_it(&Real::rabbitmq()).await;
    may_be_shared_where_that_is_what_the_configuration_says(&Real::rabbitmq()).await;
}

/// QUE-32, QUE-33, QUE-34, QUE-39
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn queue_at_sqs_belongs_to_one_cluster() {
    belongs_to_the_cluster_that_made_it(&Real::sqs()).await;
    may_be_shared_where_that_is_what_the_configuration_says(&Real::sqs()).await;
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

    let unmarked = Ok(Deleted::Left(NotOurs::Unmarked));
    assert_eq!(
        client.delete(name, &owner(&queue)).await,
        unmarked,
        "whatever a status says"
    );
    let kept = Ok(Emptied::Left(NotOurs::Unmarked));
    assert_eq!(client.delete_if_empty(name, &owner(&queue)).await, kept);

    for key in [&queue.names.actor, &queue.names.queue] {
        let path = format!("bindings/%2F/e/{exchange}/q/{name}");
        super::rabbitmq::post(&real.config, &path, &json!({"routing_key": key})).await;
    }
    assert_eq!(
        standing(&client, &queue).await,
        QueueCheck::Unmarked,
        "bound as we bind it"
    );
    client.update(&queue).await.unwrap();
    assert!(serves(&standing(&client, &queue).await));
    let marks = marks(&real.config, name).await;
    let wanted =
        json!({"asya.sh/cluster": HERE, "asya.sh/namespace": "ns", "asya.sh/actor": queue.actor});
    assert_eq!(marks, [wanted]);

    // Another actor of this cluster takes over the name, as QUE-3 allows.
    let heir = QueueOf {
        namespace: "heirs".to_owned(),
        ..queue.clone()
    };
    assert_eq!(standing(&client, &heir).await, QueueCheck::Unmarked);
    client.update(&heir).await.unwrap();
    assert!(serves(&standing(&client, &heir).await));
    let left = client.delete(name, &owner(&queue)).await;
    assert_eq!(
        left,
        Ok(Deleted::Left(NotOurs::Of(format!("heirs/{}", queue.actor))))
    );

    // A published message arrives once, although two bindings by the queue's name match it.
    for key in [&queue.names.actor, &queue.names.queue] {
        assert!(super::rabbitmq::publish(&real.config, &exchange, key).await);
    }
    sleep(Duration::from_secs(6)).await;
    until_queued(&client, &heir, 2).await;
    assert_eq!(client.delete(name, &owner(&heir)).await, Ok(Deleted::Gone));
}

async fn marks(config: &Value, queue: &str) -> Vec<Value> {
    let path = format!("queues/%2F/{queue}/bindings");
    let bindings = super::rabbitmq::get(config, &path).await;
    let arguments = bindings
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["arguments"].clone());
    arguments
        .filter(|it| it.get("asya.sh/cluster").is_some())
        .collect()
}
