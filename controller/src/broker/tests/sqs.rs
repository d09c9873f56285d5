//! SQS-specific behaviour, against the real server.

use asya_shared::transport::ActorQueue;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use serde_json::{Value, json};

use super::contract::{Real, check_of, serves, until_queued};
use super::*;
use crate::broker::QueueCheck;

/// An SQS client that bypasses the tested one.
fn raw_client(config: &Value) -> Client {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(config["endpoint"].as_str().unwrap())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "test"));
    Client::from_conf(config.build())
}

async fn url(sqs: &Client, queue: &str) -> String {
    let response = sqs.get_queue_url().queue_name(queue).send().await.unwrap();
    response.queue_url.unwrap()
}

pub async fn send(config: &Value, queue: &str, count: usize) {
    let sqs = raw_client(config);
    let url = url(&sqs, queue).await;
    let message = |number: usize| {
        let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
        entry.message_body("x").build().unwrap()
    };
    for first in (0..count).step_by(10) {
        let batch = (first..count.min(first + 10)).map(message).collect();
        let call = sqs
            .send_message_batch()
            .queue_url(&url)
            .set_entries(Some(batch));
        assert!(call.send().await.unwrap().failed.is_empty());
    }
}

pub async fn delete(config: &Value, queue: &str) {
    let sqs = raw_client(config);
    let url = url(&sqs, queue).await;
    sqs.delete_queue().queue_url(url).send().await.unwrap();
}

/// Creates a queue without tags, bypassing the client.
pub async fn create(config: &Value, queue: &str) {
    let sqs = raw_client(config);
    sqs.create_queue().queue_name(queue).send().await.unwrap();
}

pub async fn purge(config: &Value, queue: &str) {
    let sqs = raw_client(config);
    let url = url(&sqs, queue).await;
    sqs.purge_queue().queue_url(url).send().await.unwrap();
}

async fn attribute(config: &Value, queue: &ActorQueue, name: QueueAttributeName) -> Option<String> {
    let sqs = raw_client(config);
    let url = url(&sqs, &queue.names.queue).await;
    let call = sqs
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(name.clone());
    call.send().await.unwrap().attributes?.remove(&name)
}

async fn tag(config: &Value, queue: &ActorQueue, key: &str, value: &str) {
    let sqs = raw_client(config);
    let url = url(&sqs, &queue.names.queue).await;
    sqs.tag_queue()
        .queue_url(url)
        .tags(key, value)
        .send()
        .await
        .unwrap();
}

/// QUE-36: only AWS gives a queue an ARN of its own.
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn queue_of_a_server_that_is_not_aws_has_no_id() {
    let (transport, client) = Real::sqs().with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("id"));
    client.create(&queue).await.unwrap();
    assert_eq!(client.id(&queue.names.queue).await, Ok(None));
}

/// SQS-4, QUE-6
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn thousand_messages_survive_a_new_visibility_timeout_and_dead_letter_queue() {
    let mut real = Real::sqs();
    let name = fresh("thousand");
    let (previous, client) = real.with(&json!({})).await;
    client.create(&queue_of(&previous, &name)).await.unwrap();
    real.send(&queue_of(&previous, &name), 1000).await;

    real.config["visibilityTimeout"] = 77.into();
    real.config["tags"] = json!({"team": "nlp"});
    let (after, client) = real
        .with(&json!({"dlq": {"enabled": true, "name": "{queue}-dlq"}}))
        .await;
    let queue = queue_of(&after, &name);
    assert_eq!(check_of(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(serves(&check_of(&client, &queue).await));
    let visibility = attribute(&real.config, &queue, QueueAttributeName::VisibilityTimeout).await;
    assert_eq!(visibility.as_deref(), Some("77"));
    let policy = attribute(&real.config, &queue, QueueAttributeName::RedrivePolicy)
        .await
        .unwrap();
    assert!(
        policy.contains(queue.names.dlq.as_deref().unwrap()),
        "{policy}"
    );
    until_queued(&client, &queue, 1000).await;

    // The dead letter queue is disabled again.
    let (off, client) = real.with(&json!({"dlq": {"name": "{queue}-dlq"}})).await;
    let queue = queue_of(&off, &name);
    assert_eq!(check_of(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(serves(&check_of(&client, &queue).await));
    until_queued(&client, &queue, 1000).await;
    client
        .delete(&queue.names.queue, &owner(&queue), &Confirmed)
        .await
        .unwrap();
}

/// SQS-7, FW-35
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn tags_determine_the_owner_of_a_queue() {
    let real = Real::sqs();
    let (transport, client) = real.with(&json!({})).await;
    let name = fresh("tagged");
    let queue_of_actor = queue_of(&transport, &name);
    client.create(&queue_of_actor).await.unwrap();

    let restored = ActorQueue {
        uid: "another uid".to_owned(),
        ..queue_of_actor.clone()
    };
    assert_eq!(check_of(&client, &restored).await, QueueCheck::Drifted);
    client.update(&restored).await.unwrap();
    assert!(
        serves(&check_of(&client, &restored).await),
        "a restored actor owns its queue again"
    );

    let queue_of_other = ActorQueue {
        namespace: "other".to_owned(),
        ..queue_of_actor.clone()
    };
    for result in [
        client.observe(&queue_of_other).await.map(drop),
        client.update(&queue_of_other).await.map(drop),
    ] {
        assert!(
            matches!(&result, Err(BrokerError::QueueNameTaken(text)) if text.contains(&format!("ns/{name}"))),
            "{result:?}"
        );
    }
    client
        .delete(
            &queue_of_actor.names.queue,
            &owner(&queue_of_other),
            &Confirmed,
        )
        .await
        .unwrap();
    assert!(
        serves(&check_of(&client, &restored).await),
        "another actor cannot delete the queue"
    );

    let untagged = queue_of(&transport, &fresh("untagged"));
    let sqs = raw_client(&real.config);
    sqs.create_queue()
        .queue_name(&untagged.names.queue)
        .send()
        .await
        .unwrap();
    assert_eq!(check_of(&client, &untagged).await, QueueCheck::Drifted);
    client.update(&untagged).await.unwrap();
    assert!(
        serves(&check_of(&client, &untagged).await),
        "a queue without an owner is adopted"
    );
    tag(&real.config, &untagged, "asya.sh/actor", "other").await;
    assert!(matches!(
        client.observe(&untagged).await,
        Err(BrokerError::QueueNameTaken(_))
    ));
    for queue in [&queue_of_actor, &untagged] {
        delete(&real.config, &queue.names.queue).await;
    }
}

/// SQS-8, FW-28
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn recently_deleted_name_is_reported_and_existing_queue_is_compared() {
    let real = Real::sqs();
    let (transport, client) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("deleted"));
    let sqs = raw_client(&real.config);
    let other = sqs.create_queue().queue_name(&queue.names.queue);
    other
        .attributes(QueueAttributeName::VisibilityTimeout, "11")
        .send()
        .await
        .unwrap();
    // Created between the observation and the call, with another attribute.
    client.create(&queue).await.unwrap();
    assert!(serves(&check_of(&client, &queue).await));
    client
        .delete(&queue.names.queue, &owner(&queue), &Confirmed)
        .await
        .unwrap();
    let result = client.create(&queue).await;
    assert!(
        matches!(result, Err(BrokerError::DeletedRecently(_))),
        "{result:?}"
    );
}

/// SQS-5, QUE-7
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn unmanaged_sqs_queue_is_only_compared() {
    let mut real = Real::sqs();
    let (transport, _) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("users"));
    let sqs = raw_client(&real.config);
    sqs.create_queue()
        .queue_name(&queue.names.queue)
        .send()
        .await
        .unwrap();
    let (_, client) = real.with(&json!({"autoCreate": false})).await;
    assert!(serves(&check_of(&client, &queue).await));
    real.config["visibilityTimeout"] = 99.into();
    let (_, client) = real.with(&json!({"autoCreate": false})).await;
    let differs = QueueCheck::Mismatch {
        desired: "VisibilityTimeout=99".to_owned(),
        found: "VisibilityTimeout=30".to_owned(),
    };
    assert_eq!(check_of(&client, &queue).await, differs);
    delete(&real.config, &queue.names.queue).await;
}
