//! RabbitMQ-specific behaviour, against the real server.

use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use futures::StreamExt;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::contract::{Real, serves, standing, until_queued};
use super::*;
use crate::broker::{Count, Emptied, QueueCheck};

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
    let answer = request.send().await.unwrap();
    let status = answer.status();
    (status, answer.json().await.unwrap_or_default())
}

pub async fn get(config: &Value, path: &str) -> Value {
    call(config, Method::GET, path, &Value::Null).await.1
}

pub async fn put(config: &Value, path: &str, body: &Value) {
    let (status, answer) = call(config, Method::PUT, path, body).await;
    assert!(status.is_success(), "{status} {answer}");
}

pub async fn post(config: &Value, path: &str, body: &Value) {
    let (status, answer) = call(config, Method::POST, path, body).await;
    assert!(status.is_success(), "{status} {answer}");
}

pub async fn publish(config: &Value, exchange: &str, key: &str) -> bool {
    let message = json!({"properties": {"delivery_mode": 2}, "routing_key": key, "payload": "x", "payload_encoding": "string"});
    let path = format!("exchanges/%2F/{exchange}/publish");
    let (status, answer) = call(config, Method::POST, &path, &message).await;
    assert!(status.is_success(), "{status} {answer}");
    answer["routed"] == true
}

pub async fn send(config: &Value, queue: &str, count: usize) {
    for _ in 0..count {
        assert!(publish(config, "amq.default", queue).await);
    }
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
    assert_eq!(standing(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(publish(&real.config, &exchange, &keys[0]).await);

    let whole = format!("exchanges/%2F/{exchange}");
    call(&real.config, Method::DELETE, &whole, &Value::Null).await;
    assert_eq!(standing(&client, &queue).await, QueueCheck::Drifted);
    client.update(&queue).await.unwrap();
    assert!(
        publish(&real.config, &exchange, &keys[1]).await,
        "the exchange is declared again"
    );
    until_queued(&client, &queue, 4).await;
    client
        .delete(&queue.names.queue, &owner(&queue))
        .await
        .unwrap();
}

/// RMQ-3, RMQ-5, QUE-6
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn foreign_queues_serve_or_report_what_differs() {
    let real = Real::rabbitmq();
    let dlq = json!({"dlq": {"enabled": true, "retentionDays": 1}});
    let (transport, client) = real.with(&dlq).await;
    let declare = async |queue: &QueueOf, body: Value| {
        let path = format!("queues/%2F/{}", queue.names.queue);
        let (status, _) = call(&real.config, Method::PUT, &path, &body).await;
        assert!(status.is_success());
    };
    let classic = queue_of(&transport, &fresh("classic"));
    let target = classic.names.dlq.clone().unwrap();
    let arguments = json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target});
    declare(&classic, json!({"durable": true, "arguments": arguments})).await;
    assert_eq!(
        standing(&client, &classic).await,
        QueueCheck::Drifted,
        "no dead letter queue yet"
    );
    let serving = client.update(&classic).await.unwrap();
    assert!(
        serving.delivery_limit_inactive,
        "nobody counts the deliveries of a classic queue"
    );

    let plain = queue_of(&transport, &fresh("plain"));
    declare(&plain, json!({"durable": true})).await;
    real.send(&plain, 1).await;
    let QueueCheck::Differs { wanted, found } = standing(&client, &plain).await else {
        panic!()
    };
    assert!(wanted.contains("x-dead-letter-routing-key") && found.contains("none"));
    let refused = client.create(&plain).await;
    assert!(
        matches!(refused, Err(BrokerError::Mismatch(_))),
        "{refused:?}"
    );
    until_queued(&client, &plain, 1).await;

    let ours = queue_of(&transport, &fresh("quorum"));
    let serving = client.create(&ours).await.unwrap();
    assert!(!serving.delivery_limit_inactive);
    for queue in [&classic, &plain, &ours] {
        client
            .delete(&queue.names.queue, &owner(queue))
            .await
            .unwrap();
    }
}

/// RMQ-6, QUE-14
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn only_an_empty_queue_is_deleted_on_condition_whatever_its_type() {
    let real = Real::rabbitmq();
    for kind in ["classic", "quorum"] {
        let (transport, client) = real.with(&json!({"type": kind})).await;
        let queue = queue_of(&transport, &fresh(kind));
        let (name, owner) = (queue.names.queue.as_str(), owner(&queue));
        client.create(&queue).await.unwrap();
        // Before the broker updates its counts: only a get shows the message.
        real.send(&queue, 1).await;
        let mut answer = client.delete_if_empty(name, &owner).await.unwrap();
        if let Emptied::Later(delay) = answer {
            sleep(delay).await;
            answer = client.delete_if_empty(name, &owner).await.unwrap();
        }
        assert_eq!(answer, Emptied::Kept, "{kind}");
        until_queued(&client, &queue, 1).await;
        assert_eq!(
            client.delete_if_empty(name, &owner).await,
            Ok(Emptied::Kept),
            "{kind}"
        );

        let contents = format!("queues/%2F/{name}/contents");
        call(&real.config, Method::DELETE, &contents, &Value::Null).await;
        until_queued(&client, &queue, 0).await;
        let first = client.delete_if_empty(name, &owner).await.unwrap();
        if kind == "quorum" {
            assert_eq!(first, Emptied::Later(Duration::from_secs(10)));
            assert!(serves(&standing(&client, &queue).await));
            sleep(Duration::from_secs(10)).await;
            assert_eq!(
                client.delete_if_empty(name, &owner).await,
                Ok(Emptied::Gone)
            );
        } else {
            assert_eq!(first, Emptied::Gone);
        }
        assert_eq!(standing(&client, &queue).await, QueueCheck::Absent);
    }
}

/// RMQ-1, RMQ-2
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn refused_users_and_unknown_vhosts_are_distinguished() {
    let mut real = Real::rabbitmq();
    real.config["username"] = "nobody".into();
    let (transport, client) = real.with(&json!({})).await;
    let refused = client
        .observe(&queue_of(&transport, "q"))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, BrokerError::AuthFailed(text) if text.contains("\"nobody\"") && text.contains("tag management"))
    );

    let mut real = Real::rabbitmq();
    real.config["vhost"] = "no/where".into();
    let (transport, client) = real.with(&json!({})).await;
    let refused = client.create(&queue_of(&transport, "q")).await.unwrap_err();
    assert!(
        matches!(&refused, BrokerError::NotThereYet(text) if text.contains("no/where")),
        "{refused:?}"
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
    assert!(serves(&standing(&trusting, &queue).await));

    let stranger = client_trusting(&transport, None).await.unwrap();
    let refused = stranger.observe(&queue).await;
    assert!(
        matches!(&refused, Err(BrokerError::Unreachable(text)) if text.contains("https://")),
        "{refused:?}"
    );
    let mut config = real.config.clone();
    config["management"]["insecureSkipVerify"] = json!(true);
    let careless = super::transport("rabbitmq", &config);
    let careless = client_trusting(&careless, None).await.unwrap();
    assert!(serves(&standing(&careless, &queue).await));
    trusting
        .delete(&queue.names.queue, &owner(&queue))
        .await
        .unwrap();
}

/// QUE-7
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn unmanaged_rabbitmq_queue_is_only_observed() {
    let mut real = Real::rabbitmq();
    real.config["exchange"] = fresh("nobodys").into();
    let theirs = json!({"autoCreate": false});
    let (transport, client) = real.with(&theirs).await;
    let name = fresh("users");
    let queue = queue_of(&transport, &name);
    assert_eq!(standing(&client, &queue).await, QueueCheck::Absent);
    let path = format!("queues/%2F/{}", queue.names.queue);
    let body = json!({"durable": true, "arguments": {"x-max-length": 7}});
    let (status, _) = call(&real.config, Method::PUT, &path, &body).await;
    assert!(status.is_success());
    assert!(
        serves(&standing(&client, &queue).await),
        "bound to nothing of ours, with arguments that we would not give it"
    );
    let dead_letters = json!({"autoCreate": false, "dlq": {"enabled": true}});
    let (strict, client) = real.with(&dead_letters).await;
    let differs = standing(&client, &queue_of(&strict, &name)).await;
    assert!(matches!(differs, QueueCheck::Differs { .. }), "{differs:?}");
    let exchange = format!(
        "exchanges/%2F/{}",
        real.config["exchange"].as_str().unwrap()
    );
    let (status, _) = call(&real.config, Method::GET, &exchange, &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "nothing was made");
    call(&real.config, Method::DELETE, &path, &Value::Null).await;
}

/// RMQ-6
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn queues_on_a_later_page_of_the_list_are_seen() {
    const FIRST_PAGE: usize = 500;
    let mut real = Real::rabbitmq();
    let vhost = fresh("pages");
    real.config["vhost"] = vhost.clone().into();
    let config = &real.config;
    let at = format!("vhosts/{vhost}");
    call(config, Method::PUT, &at, &json!({})).await;
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
    let (transport, client) = real.with(&json!({})).await;
    let queues: Vec<_> = (0..21)
        .map(|number| queue_of(&transport, &format!("z{number}")))
        .collect();
    for queue in &queues {
        client.create(queue).await.unwrap();
    }
    let names: Vec<_> = queues
        .iter()
        .map(|queue| queue.names.queue.clone())
        .collect();
    let began = tokio::time::Instant::now();
    let counted = loop {
        let counted = client.depths(&names).await;
        let whole = counted
            .iter()
            .all(|depth| matches!(depth, Ok(Count::Messages(_))));
        if whole || began.elapsed() > Duration::from_secs(15) {
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
    for seen in client.survey(&queues).await {
        assert!(serves(&seen.unwrap().standing));
    }
    call(config, Method::DELETE, &at, &Value::Null).await;
}
