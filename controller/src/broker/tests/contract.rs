//! The contract of all broker clients (FW-36), tested against real servers: `ASYA_TEST_RABBITMQ` (`HOST:PORT` of the
//! management API), `ASYA_TEST_RABBITMQ_TLS` (the same over TLS, with the authority in the file
//! `ASYA_TEST_RABBITMQ_CA`) and `ASYA_TEST_SQS` (its endpoint).

use std::env;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::Transport;
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::DeletionRefusal;
use serde_json::{Value, json};
use tokio::time::{Instant, advance, pause, resume, sleep};

use super::*;
use crate::broker::{Count, DeleteIfEmptyOutcome, DeleteOutcome, Depth, QueueCheck};

/// A real broker.
pub struct Real {
    pub kind: &'static str,
    pub config: Value,
}

impl Real {
    pub fn rabbitmq() -> Self {
        let address = env::var("ASYA_TEST_RABBITMQ").unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        Self {
            kind: "rabbitmq",
            config: json!({"host": host, "username": LOGIN, "management": {"port": port}}),
        }
    }

    /// Over TLS, with the authority that verifies its certificate.
    pub fn rabbitmq_by_tls() -> (Self, String) {
        let address = env::var("ASYA_TEST_RABBITMQ_TLS").unwrap();
        let ca = std::fs::read_to_string(env::var("ASYA_TEST_RABBITMQ_CA").unwrap()).unwrap();
        let (host, port) = address.rsplit_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        let management = json!({"scheme": "https", "port": port});
        let config = json!({"host": host, "username": LOGIN, "management": management});
        let kind = "rabbitmq";
        (Self { kind, config }, ca)
    }

    pub fn sqs() -> Self {
        let endpoint = env::var("ASYA_TEST_SQS").unwrap();
        Self {
            kind: "sqs",
            config: json!({"endpoint": endpoint, "region": "us-east-1"}),
        }
    }

    /// A client with these queue settings.
    pub async fn with(&self, queues: &Value) -> (Transport, Arc<dyn QueueClient>) {
        let mut config = self.config.clone();
        config["queues"] = queues.clone();
        let transport = transport(self.kind, &config);
        let client = client(&transport).await.unwrap();
        (transport, client)
    }

    /// Sends messages, bypassing the client.
    pub async fn send(&self, queue: &ActorQueue, count: usize) {
        match self.kind {
            "sqs" => super::sqs::send(&self.config, &queue.names.queue, count).await,
            _ => super::rabbitmq::send(&self.config, &queue.names.queue, count).await,
        }
    }

    /// Creates a queue as the client would, without tags, bypassing it.
    async fn create_untagged(&self, queue: &str) {
        match self.kind {
            "sqs" => super::sqs::create(&self.config, queue).await,
            _ => super::rabbitmq::create(&self.config, queue).await,
        }
    }

    async fn purge(&self, queue: &str) {
        match self.kind {
            "sqs" => super::sqs::purge(&self.config, queue).await,
            _ => super::rabbitmq::purge(&self.config, queue).await,
        }
    }

    pub async fn delete_dlq(&self, client: &Arc<dyn QueueClient>, queue: &ActorQueue) {
        let dlq = queue.names.dlq.as_deref().unwrap();
        // On SQS the client's `delete` rejects dead letter queues, so bypass it.
        if self.kind == "sqs" {
            super::sqs::delete(&self.config, dlq).await;
        } else {
            let deleted = client.delete(dlq, &owner(queue), &Confirmed).await;
            assert_eq!(deleted, Ok(DeleteOutcome::Deleted));
        }
    }
}

pub async fn check_of(client: &Arc<dyn QueueClient>, queue: &ActorQueue) -> QueueCheck {
    client.observe(queue).await.unwrap().check
}

pub fn serves(check: &QueueCheck) -> bool {
    matches!(check, QueueCheck::Ready(_))
}

/// Polls, because counts lag behind.
pub async fn until_queued(client: &Arc<dyn QueueClient>, queue: &ActorQueue, count: u64) {
    let expected = Depth {
        queued: count,
        processing: 0,
    };
    let started = Instant::now();
    loop {
        let depth = client.observe(queue).await.unwrap().depth;
        if depth == Some(expected) {
            break;
        }
        assert!(
            started.elapsed() < Duration::from_secs(15),
            "{depth:?}, not {count}"
        );
        sleep(Duration::from_millis(200)).await;
    }
}

async fn queue_lifecycle(real: &Real) {
    let (transport, client) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("life"));
    assert_eq!(check_of(&client, &queue).await, QueueCheck::NotFound);
    let depths = client
        .depths(std::slice::from_ref(&queue.names.queue))
        .await;
    assert_eq!(depths, [Ok(Count::NotFound)]);

    let ready = client.create(&queue).await.unwrap();
    assert_eq!(ready.url.is_some(), real.kind == "sqs");
    assert_eq!(
        check_of(&client, &queue).await,
        QueueCheck::Ready(ready.clone())
    );
    assert_eq!(
        client.create(&queue).await,
        Ok(ready.clone()),
        "creating it is idempotent"
    );

    real.send(&queue, 3).await;
    until_queued(&client, &queue, 3).await;
    assert_eq!(client.create(&queue).await, Ok(ready.clone()));
    assert_eq!(client.update(&queue).await, Ok(ready));
    until_queued(&client, &queue, 3).await;
    let depths = client
        .depths(std::slice::from_ref(&queue.names.queue))
        .await;
    let three = Depth {
        queued: 3,
        processing: 0,
    };
    assert_eq!(depths, [Ok(Count::Messages(three))]);

    let kept = client
        .delete_if_empty(
            &queue.names.queue,
            &owner(&queue),
            Untagged::Keep,
            1,
            &Confirmed,
        )
        .await;
    assert_eq!(kept, Ok(DeleteIfEmptyOutcome::InUse));
    for _ in 0..2 {
        let deleted = client
            .delete(&queue.names.queue, &owner(&queue), &Confirmed)
            .await;
        assert_eq!(deleted, Ok(DeleteOutcome::Deleted));
        assert_eq!(check_of(&client, &queue).await, QueueCheck::NotFound);
    }
    let deleted = client
        .delete_if_empty(
            &queue.names.queue,
            &owner(&queue),
            Untagged::Keep,
            1,
            &Confirmed,
        )
        .await;
    assert_eq!(
        deleted,
        Ok(DeleteIfEmptyOutcome::Deleted),
        "a missing queue counts as deleted"
    );
}

async fn dead_letter_queue_is_created_first_and_restored(real: &Real) {
    let name = fresh("dead");
    let queues = json!({"dlq": {"enabled": true, "name": "{queue}-dlq"}});
    let (transport, client) = real.with(&queues).await;
    let queue = queue_of(&transport, &name);
    client.create(&queue).await.unwrap();
    assert!(serves(&check_of(&client, &queue).await));
    real.send(&queue, 2).await;
    real.delete_dlq(&client, &queue).await;
    assert_eq!(check_of(&client, &queue).await, QueueCheck::Drifted);
    if real.kind == "sqs" {
        // SQS rejects the name for a minute.
        let result = client.update(&queue).await;
        assert!(
            matches!(result, Err(BrokerError::DeletedRecently(_))),
            "{result:?}"
        );
    } else {
        client.update(&queue).await.unwrap();
        assert!(serves(&check_of(&client, &queue).await));
    }
    until_queued(&client, &queue, 2).await;
}

async fn many_observations_keep_their_order(real: &Real) {
    let (transport, client) = real.with(&json!({})).await;
    let stem = fresh("many");
    let queues: Vec<ActorQueue> = (0..25)
        .map(|number| queue_of(&transport, &format!("{stem}-{number}")))
        .collect();
    let absent = |number: usize| number % 5 == 3;
    for (number, queue) in queues.iter().enumerate() {
        if !absent(number) {
            client.create(queue).await.unwrap();
        }
    }
    for some in [&queues[..], &queues[..7]] {
        let observations = client.observe_many(some).await;
        assert_eq!(observations.len(), some.len());
        for (number, observation) in observations.into_iter().enumerate() {
            let check = observation.unwrap().check;
            assert_eq!(
                check == QueueCheck::NotFound,
                absent(number),
                "{number}: {check:?}"
            );
            assert!(absent(number) || serves(&check), "{number}: {check:?}");
        }
    }
    real.send(&queues[1], 4).await;
    until_queued(&client, &queues[1], 4).await;
    let names: Vec<String> = queues
        .iter()
        .map(|queue| queue.names.queue.clone())
        .collect();
    let depths = client.depths(&names).await;
    let four = Depth {
        queued: 4,
        processing: 0,
    };
    let expected = (&Ok(Count::Messages(four)), &Ok(Count::NotFound));
    assert_eq!((&depths[1], &depths[3]), expected);
    for queue in &queues {
        client
            .delete(&queue.names.queue, &owner(queue), &Confirmed)
            .await
            .unwrap();
    }
}

/// Confirms a deletion until now, or not at all.
struct Late(Result<(), BrokerError>);

impl DeletionGuard for Late {
    fn confirm(&self) -> BrokerResponse<'_, Instant> {
        ready(self.0.clone().map(|()| Instant::now())).boxed()
    }
}

/// QUE-30
async fn queue_is_deleted_only_if_that_is_confirmed_in_time(real: &Real) {
    let kinds = if real.kind == "sqs" {
        [None].as_slice()
    } else {
        &[Some("classic"), Some("quorum")]
    };
    for kind in kinds {
        let (transport, client) = real
            .with(&kind.map_or(json!({}), |kind| json!({"type": kind})))
            .await;
        let queue = queue_of(&transport, &fresh("guarded"));
        let (name, owner) = (&*queue.names.queue, owner(&queue));
        client.create(&queue).await.unwrap();
        until_queued(&client, &queue, 0).await;
        let outcome = client
            .delete_if_empty(name, &owner, Untagged::Keep, 1, &Late(Ok(())))
            .await;
        if let Ok(DeleteIfEmptyOutcome::Recheck(wait)) = outcome {
            pause();
            advance(wait).await;
            resume();
        }
        for guard in [
            Late(Ok(())),
            Late(Err(BrokerError::Unconfirmed("changed".to_owned()))),
        ] {
            let emptied = client
                .delete_if_empty(name, &owner, Untagged::Keep, 1, &guard)
                .await;
            assert!(
                matches!(emptied, Err(BrokerError::Unconfirmed(_))),
                "{kind:?}: {emptied:?}"
            );
            let deleted = client.delete(name, &owner, &guard).await;
            assert!(
                matches!(deleted, Err(BrokerError::Unconfirmed(_))),
                "{kind:?}: {deleted:?}"
            );
        }
        assert!(serves(&check_of(&client, &queue).await));
        let emptied = client
            .delete_if_empty(name, &owner, Untagged::Keep, 1, &Confirmed)
            .await;
        assert_eq!(emptied, Ok(DeleteIfEmptyOutcome::Deleted), "{kind:?}");
    }
}

/// QUE-13, QUE-34: such a queue may be someone else's.
async fn untagged_queue_is_deleted_only_on_request_and_if_it_is_empty(real: &Real) {
    let (transport, client) = real.with(&json!({})).await;
    let queue = queue_of(&transport, &fresh("untagged"));
    let (name, owner) = (&*queue.names.queue, owner(&queue));
    real.create_untagged(name).await;
    until_queued(&client, &queue, 0).await;
    let delete = |untagged, guard| client.delete_if_empty(name, &owner, untagged, 1, guard);
    let kept = DeleteIfEmptyOutcome::NotOwned(DeletionRefusal::NoOwnerTag);
    assert_eq!(delete(Untagged::Keep, &Confirmed).await, Ok(kept.clone()));
    real.send(&queue, 1).await;
    until_queued(&client, &queue, 1).await;
    let outcome = delete(Untagged::Delete, &Confirmed).await;
    assert_eq!(outcome, Ok(DeleteIfEmptyOutcome::InUse));
    assert_eq!(
        delete(Untagged::Keep, &Confirmed).await,
        Ok(kept),
        "not tagged for that"
    );
    real.purge(name).await;
    until_queued(&client, &queue, 0).await;
    if let Ok(DeleteIfEmptyOutcome::Recheck(wait)) = delete(Untagged::Delete, &Confirmed).await {
        pause();
        advance(wait).await;
        resume();
    }
    let outcome = delete(Untagged::Delete, &Confirmed).await;
    assert_eq!(outcome, Ok(DeleteIfEmptyOutcome::Deleted));
    assert_eq!(check_of(&client, &queue).await, QueueCheck::NotFound);
}

async fn contract(real: Real) {
    untagged_queue_is_deleted_only_on_request_and_if_it_is_empty(&real).await;
    queue_is_deleted_only_if_that_is_confirmed_in_time(&real).await;
    queue_lifecycle(&real).await;
    dead_letter_queue_is_created_first_and_restored(&real).await;
    many_observations_keep_their_order(&real).await;
}

/// FW-36, QUE-20, RMQ-3, RMQ-5
#[tokio::test]
#[ignore = "needs the broker that ASYA_TEST_RABBITMQ names"]
async fn rabbitmq_fulfils_the_contract() {
    contract(Real::rabbitmq()).await;
}

/// FW-36, QUE-20, SQS-2, SQS-6
#[tokio::test]
#[ignore = "needs the server that ASYA_TEST_SQS names"]
async fn sqs_fulfils_the_contract() {
    contract(Real::sqs()).await;
}
