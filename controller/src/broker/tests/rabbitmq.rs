//! RabbitMQ-specific behaviour, against the real server.

use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use futures::StreamExt;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::contract::{Real, check_of, serves, until_queued};
use super::*;
use crate::broker::{Count, DeleteIfEmptyOutcome, QueueCheck};

/// Calls the management API, bypassing the client.
async fn call(config: &Value, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
    let TransportKind::Rabbitmq(config) = transport("rabbitmq", config).kind else {
        panic!()
    };
    let config: RabbitmqConfig = config;
    let url = format!("{}/api/{path}", config.management.url());
    let request = Client::new()
        .request(method, url)
        .basic_auth(LOGIN, Some(LOGIN))
        .json(body);
    let response = request.send().await.unwrap();
    let status = response.status();
    (status, response.json().await.unwrap_or_default())
}

pub async fn get(config: &Value, path: &str) -> Value {
    call(config, Method::GET, path, &Value::Null).await.1
}

pub async fn put(config: &Value, path: &str, body: &Value) {
    let (status, response) = call(config, Method::PUT, path, body).await;
    assert!(status.is_success(), "{status} {response}");
}

pub async fn post(config: &Value, path: &str, body: &Value) {
    let (status, response) = call(config, Method::POST, path, body).await;
    assert!(status.is_success(), "{status} {response}");
}

pub async fn publish(config: &Value, exchange: &str, key: &str) -> bool {
    let message = json!({"properties": {"delivery_mode": 2}, "routing_key": key, "payload": "x", "payload_encoding": "string"});
    let path = format!("exchanges/%2F/{exchange}/publish");
    let (status, response) = call(config, Method::POST, &path, &message).await;
    assert!(status.is_success(), "{status} {response}");
    response["routed"] == true
}

pub async fn send(config: &Value, queue: &str, count: usize) {
    for _ in 0..count {
        assert!(publish(config, "amq.default", queue).await);
    }
}

/// Creates a queue of the default type without bindings, bypassing the client.
pub async fn create(config: &Value, queue: &str) {
    let body = json!({"durable": true, "arguments": {"x-queue-type": "quorum"}});
    put(config, &format!("queues/%2F/{queue}"), &body).await;
}

pub async fn purge(config: &Value, queue: &str) {
    let contents = format!("queues/%2F/{queue}/contents");
    call(config, Method::DELETE, &contents, &Value::Null).await;
}

/// RMQ-4
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn lost_binding_is_restored_and_both_keys_reach_the_queue() {
    let mut real = Real::rabbitmq();
    real.config["exchange"] = fresh("exchange").into();
    let exchange = real.config["exchange"].as_str().unwrap().to_owned();
    let (transport, client) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("routed"));
    let keys = [queue.names.actor.clone(), queue.names.queue.clone()];
    client.create(&queue).await.unwrap();
    for key in &keys {
        assert!(publish(&real.config, &exchange, key).await, "{key}");
    }
    let binding = format!(
        "bindings/%2F/e/{exchange}/q/{}/{}",
        queue.names.queue, keys[0]
    );
    call(&real.config, Method::DELETE, &binding, &Value::Null).await;
    assert_eq!(check_of(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(publish(&real.config, &exchange, &keys[0]).await);

    let exchange_path = format!("exchanges/%2F/{exchange}");
    call(&real.config, Method::DELETE, &exchange_path, &Value::Null).await;
    assert_eq!(check_of(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(
        publish(&real.config, &exchange, &keys[1]).await,
        "the exchange is declared again"
    );
    until_queued(&client, &queue, 4).await;
    client
        .delete(&queue.names.queue, &owner(&queue), &Confirmed)
        .await
        .unwrap();
}

/// RMQ-3, RMQ-5, QUE-6
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn foreign_queues_are_usable_or_report_their_differences() {
    let real = Real::rabbitmq();
    let dlq = json!({"dlq": {"enabled": true, "retentionDays": 1}});
    let (transport, client) = real.with(&dlq).await;
    let declare = async |queue: &ActorQueue, body: Value| {
        let path = format!("queues/%2F/{}", queue.names.queue);
        let (status, _) = call(&real.config, Method::PUT, &path, &body).await;
        assert!(status.is_success());
    };
    let classic = queue_of(&transport, &fresh("classic"));
    let target = classic.names.dlq.clone().unwrap();
    let arguments = json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target});
    declare(&classic, json!({"durable": true, "arguments": arguments})).await;
    assert_eq!(
        check_of(&client, &classic).await,
        QueueCheck::Drifted,
        "no dead letter queue yet"
    );
    let ready = client.update(&classic).await.unwrap();
    assert!(
        ready.delivery_limit_inactive,
        "classic queues do not count deliveries"
    );

    let plain = queue_of(&transport, &fresh("plain"));
    declare(&plain, json!({"durable": true})).await;
    real.send(&plain, 1).await;
    let QueueCheck::Mismatch { desired, found } = check_of(&client, &plain).await else {
        panic!()
    };
    assert!(desired.contains("x-dead-letter-routing-key") && found.contains("none"));
    let result = client.create(&plain).await;
    assert!(
        matches!(result, Err(BrokerError::Mismatch(_))),
        "{result:?}"
    );
    until_queued(&client, &plain, 1).await;

    let created = queue_of(&transport, &fresh("quorum"));
    let ready = client.create(&created).await.unwrap();
    assert!(!ready.delivery_limit_inactive);
    for queue in [&classic, &plain, &created] {
        client
            .delete(&queue.names.queue, &owner(queue), &Confirmed)
            .await
            .unwrap();
    }
}

/// RMQ-6, QUE-14
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn only_an_empty_queue_of_any_type_is_deleted_if_empty() {
    let real = Real::rabbitmq();
    for kind in ["classic", "quorum"] {
        let (transport, client) = real.with(&json!({"type": kind})).await;
        let queue = queue_of(&transport, &fresh(kind));
        let (name, owner) = (queue.names.queue.as_str(), owner(&queue));
        client.create(&queue).await.unwrap();
        // The broker has not updated its counts yet, so only a get returns the message.
        real.send(&queue, 1).await;
        let mut outcome = client
            .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
            .await
            .unwrap();
        if let DeleteIfEmptyOutcome::Recheck(delay) = outcome {
            sleep(delay).await;
            outcome = client
                .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
                .await
                .unwrap();
        }
        assert_eq!(outcome, DeleteIfEmptyOutcome::InUse, "{kind}");
        until_queued(&client, &queue, 1).await;
        assert_eq!(
            client
                .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
                .await,
            Ok(DeleteIfEmptyOutcome::InUse),
            "{kind}"
        );

        purge(&real.config, name).await;
        until_queued(&client, &queue, 0).await;
        let first = client
            .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
            .await
            .unwrap();
        if kind == "quorum" {
            assert_eq!(
                first,
                DeleteIfEmptyOutcome::Recheck(Duration::from_secs(10))
            );
            assert!(serves(&check_of(&client, &queue).await));
            sleep(Duration::from_secs(10)).await;
            assert_eq!(
                client
                    .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
                    .await,
                Ok(DeleteIfEmptyOutcome::Deleted)
            );
        } else {
            assert_eq!(first, DeleteIfEmptyOutcome::Deleted);
        }
        assert_eq!(check_of(&client, &queue).await, QueueCheck::NotFound);
    }
}

/// RMQ-1, RMQ-2
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn rejected_users_and_unknown_vhosts_are_distinguished() {
    let mut real = Real::rabbitmq();
    real.config["username"] = "nobody".into();
    let (transport, client) = real.with(&json!({})).await;
    let error = client
        .observe(&queue_of(&transport, "q"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, BrokerError::AuthFailed(text) if text.contains("\"nobody\"") && text.contains("tag management"))
    );

    let mut real = Real::rabbitmq();
    real.config["vhost"] = "no/where".into();
    let (transport, client) = real.with(&json!({})).await;
    let error = client.create(&queue_of(&transport, "q")).await.unwrap_err();
    assert!(
        matches!(&error, BrokerError::PrerequisiteMissing(text) if text.contains("no/where")),
        "{error:?}"
    );
}

/// RMQ-1
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ_TLS names"]
async fn tls_requires_trust_in_the_brokers_authority() {
    let (real, ca) = Real::rabbitmq_by_tls();
    let transport = transport("rabbitmq", &real.config);
    let queue = queue_of(&transport, &fresh("secret"));
    let trusting = client_trusting(&transport, Some(&ca)).await.unwrap();
    trusting.create(&queue).await.unwrap();
    assert!(serves(&check_of(&trusting, &queue).await));

    let untrusting = client_trusting(&transport, None).await.unwrap();
    let result = untrusting.observe(&queue).await;
    assert!(
        matches!(&result, Err(BrokerError::Unreachable(text)) if text.contains("https://")),
        "{result:?}"
    );
    let mut config = real.config.clone();
    config["management"]["insecureSkipVerify"] = json!(true);
    let insecure = super::transport("rabbitmq", &config);
    let insecure = client_trusting(&insecure, None).await.unwrap();
    assert!(serves(&check_of(&insecure, &queue).await));
    trusting
        .delete(&queue.names.queue, &owner(&queue), &Confirmed)
        .await
        .unwrap();
}

/// QUE-7
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn unmanaged_rabbitmq_queue_is_only_observed() {
    let mut real = Real::rabbitmq();
    real.config["exchange"] = fresh("missing").into();
    let unmanaged = json!({"autoCreate": false});
    let (transport, client) = real.with(&unmanaged).await;
    let name = fresh("users");
    let queue = queue_of(&transport, &name);
    assert_eq!(check_of(&client, &queue).await, QueueCheck::NotFound);
    let path = format!("queues/%2F/{}", queue.names.queue);
    let body = json!({"durable": true, "arguments": {"x-max-length": 7}});
    let (status, _) = call(&real.config, Method::PUT, &path, &body).await;
    assert!(status.is_success());
    assert!(
        serves(&check_of(&client, &queue).await),
        "without the operator's bindings, and with other arguments"
    );
    let dead_letters = json!({"autoCreate": false, "dlq": {"enabled": true}});
    let (strict, client) = real.with(&dead_letters).await;
    let differs = check_of(&client, &queue_of(&strict, &name)).await;
    assert!(
        matches!(differs, QueueCheck::Mismatch { .. }),
        "{differs:?}"
    );
    let exchange = format!(
        "exchanges/%2F/{}",
        real.config["exchange"].as_str().unwrap()
    );
    let (status, _) = call(&real.config, Method::GET, &exchange, &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nothing was created");
    call(&real.config, Method::DELETE, &path, &Value::Null).await;
}

/// RMQ-6
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn queues_on_later_list_pages_are_observed() {
    const FIRST_PAGE: usize = 500;
    let mut real = Real::rabbitmq();
    let vhost = fresh("pages");
    real.config["vhost"] = vhost.clone().into();
    let (transport, client) = real.with(&json!({})).await;
    let config = &real.config;
    let vhost_path = format!("vhosts/{vhost}");
    call(config, Method::PUT, &vhost_path, &json!({})).await;
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    let permissions = format!("permissions/{vhost}/{LOGIN}");
    call(config, Method::PUT, &permissions, &all).await;
    let fill = futures::stream::iter(0..FIRST_PAGE).for_each_concurrent(8, |number| async move {
        let path = format!(
            "queues/{}/asya-a{number}",
            config["vhost"].as_str().unwrap()
        );
        let (status, _) = call(config, Method::PUT, &path, &json!({"durable": true})).await;
        assert!(status.is_success(), "{status}");
    });
    fill.await;
    // The first is on the first page, and keeps the others from being listed by a name that only they have.
    let first = queue_of(&transport, "a0");
    let others = (0..21).map(|number| queue_of(&transport, &format!("z{number}")));
    let queues: Vec<_> = std::iter::once(first).chain(others).collect();
    for queue in &queues {
        client.create(queue).await.unwrap();
    }
    let names: Vec<_> = queues
        .iter()
        .map(|queue| queue.names.queue.clone())
        .collect();
    let listed = get(
        config,
        &format!("queues/{vhost}?page=1&page_size=500&name=ASYA-z"),
    )
    .await;
    let count = (&listed["filtered_count"], &listed["page_count"]);
    assert_eq!(
        count,
        (&json!(21), &json!(1)),
        "RabbitMQ lists by a part of the name"
    );
    let started = tokio::time::Instant::now();
    let counted = loop {
        let counted = client.depths(&names).await;
        let complete = counted
            .iter()
            .all(|depth| matches!(depth, Ok(Count::Messages(_))));
        if complete || started.elapsed() > Duration::from_mins(1) {
            break counted;
        }
        sleep(Duration::from_millis(200)).await;
    };
    assert!(
        counted
            .iter()
            .all(|depth| matches!(depth, Ok(Count::Messages(_)))),
        "{counted:?}"
    );
    for observation in client.observe_many(&queues).await {
        assert!(serves(&observation.unwrap().check));
    }
    call(config, Method::DELETE, &vhost_path, &Value::Null).await;
}
