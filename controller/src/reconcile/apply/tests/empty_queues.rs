//! Deletion of empty queues.

use std::future::pending;
use std::sync::Arc;

use asya_shared::api::{QueueDeletionPolicy, QueueStatus};
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::QueueOwner;
use futures::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::broker::{
    BrokerResponse, BrokerResponses, Count, DeleteIfEmptyOutcome, DeleteOutcome, DeletionGuard,
    QueueClient, QueueId, QueueObservation, ReadyQueue, Untagged,
};
use crate::reconcile::apply::actor_queues::ActorQueues;
use crate::reconcile::apply::messages;
use crate::reconcile::apply::tests::ACTOR;
use crate::reconcile::apply::verify_unchanged::PlannedState;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, spec};

/// Records the generations for which empty queues are to be deleted, and answers nothing else.
#[derive(Default)]
struct Recorder(Mutex<Vec<i64>>);

impl QueueClient for Recorder {
    fn observe<'a>(&'a self, _: &'a ActorQueue) -> BrokerResponse<'a, QueueObservation> {
        pending().boxed()
    }

    fn create<'a>(&'a self, _: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        pending().boxed()
    }

    fn update<'a>(&'a self, _: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        pending().boxed()
    }

    fn delete<'a>(
        &'a self,
        _: &'a str,
        _: &'a QueueOwner,
        _: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteOutcome> {
        pending().boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        _: &'a str,
        _: &'a QueueOwner,
        _: Untagged,
        generation: i64,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteIfEmptyOutcome> {
        self.0.lock().push(generation);
        let confirmed = guard.confirm();
        confirmed.map_ok(|_| DeleteIfEmptyOutcome::Deleted).boxed()
    }

    fn id<'a>(&'a self, _: &'a str) -> BrokerResponse<'a, Option<QueueId>> {
        pending().boxed()
    }

    fn observe_many<'a>(&'a self, _: &'a [ActorQueue]) -> BrokerResponses<'a, QueueObservation> {
        pending().boxed()
    }

    fn depths<'a>(&'a self, _: &'a [String]) -> BrokerResponses<'a, Count> {
        pending().boxed()
    }
}

/// QUE-13, QUE-30: confirmed for each deletion, and counted as empty for the generation of its actor.
#[tokio::test]
async fn empty_queue_is_deleted_for_the_generation_of_an_actor_that_has_not_changed() {
    let context = context_with(|request| {
        let current = actor(&json!({"generation": 4}), &spec(&json!({})), &json!({}));
        (request == format!("GET {ACTOR}")).then_some((200, current))
    });
    let recorder = Arc::new(Recorder::default());
    for (generation, is_current) in [(3, false), (4, true)] {
        let metadata = json!({"generation": generation});
        let observed = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
        let transport = &observed.desired.as_ref().unwrap().transport;
        let planned = PlannedState::new(&context, &observed.actor, None);
        let mut queues = ActorQueues::new(&context, &observed.actor, transport, &planned);
        queues.client = recorder.clone();
        let removed = queues.delete_if_empty("asya-a", Untagged::Keep).await;
        assert_eq!(removed.is_ok(), is_current, "{removed:?}");
    }
    assert_eq!(*recorder.0.lock(), [3, 4]);
}

/// QUE-45: something else consumes from the queue, so the broker does not delete it.
#[tokio::test]
async fn queue_that_is_in_use_stays_only_if_the_namespace_is_being_deleted() {
    fn active(request: &str) -> Option<(u16, Value)> {
        let namespace = json!({"metadata": {"name": "ns", "uid": "n"}});
        (request == "GET /api/v1/namespaces/ns").then_some((200, namespace))
    }
    fn terminating(request: &str) -> Option<(u16, Value)> {
        let (code, mut namespace) = active(request)?;
        namespace["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Some((code, namespace))
    }
    type Responses = fn(&str) -> Option<(u16, Value)>;
    let actor = observed(&actor(&json!({}), &spec(&json!({})), &json!({}))).actor;
    for (responses, stays) in [(active as Responses, false), (terminating, true)] {
        let context = context_with(responses);
        let policy = QueueDeletionPolicy::Drain;
        let queue = QueueStatus::default();
        let kept = messages::keep_in_terminating_namespace(&context, &actor, policy, &queue).await;
        assert_eq!(kept.unwrap(), stays);
    }
}
