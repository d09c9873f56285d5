//! A broker that does not answer when a queue is created or updated.

use std::sync::Arc;

use asya_shared::config::TransportsConfig;
use serde_json::json;

use crate::broker::rechecks::RecheckSequence;
use crate::reconcile::apply::queue::ensure_queue;
use crate::reconcile::desired::desired;
use crate::reconcile::model::outcome::QueueState;
use crate::reconcile::plan::queue::QueuePlan;
use crate::reconcile::plan::steps::QueueStep;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, spec};

/// QUE-10, QUE-5
#[tokio::test]
async fn failed_update_of_a_verified_queue_is_reported_at_the_third_failure_in_a_row() {
    for (step, was_verified, are_reported) in [
        (QueueStep::Update, true, [false, false, true, true]),
        (QueueStep::Update, false, [true; 4]),
        // It is known to be missing.
        (QueueStep::Create, true, [true; 4]),
    ] {
        let mut context = context_with(|request| {
            let is_cluster = request == "GET /api/v1/namespaces/kube-system";
            let cluster = json!({"metadata": {"name": "kube-system", "uid": "cluster-uid"}});
            is_cluster.then_some((200, cluster))
        });
        // Nothing listens there.
        let config = json!({"transports": {"mq": {
            "type": "rabbitmq", "enabled": true,
            "config": {"host": "127.0.0.1", "management": {"port": 1}},
        }}});
        context.installation.transports = TransportsConfig::parse(&config.to_string()).unwrap();
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        let actor = &observed.actor;
        let desired = desired(&context.installation, actor, &observed.previous, &[]).unwrap();
        let mut plan = QueuePlan {
            desired: Arc::clone(&desired),
            step,
            recheck_sequence: RecheckSequence::default(),
            was_verified,
            was_recorded: was_verified,
        };
        for (attempt, is_reported) in are_reported.into_iter().enumerate() {
            let state = ensure_queue(&context, actor, &plan).await;
            assert_eq!(
                matches!(state, QueueState::Fault(_)),
                is_reported,
                "{attempt}: {state:?}"
            );
            assert_eq!(
                matches!(state, QueueState::Deferred(_)),
                !is_reported,
                "{attempt}: {state:?}"
            );
        }
        // Once the broker has answered, the next failures are the first ones again.
        plan.step = QueueStep::Keep(None);
        let answered = ensure_queue(&context, actor, &plan).await;
        assert!(matches!(answered, QueueState::Ready(_)), "{answered:?}");
        assert_eq!(context.queue_rechecks.failures(&actor.metadata.key), 0);
    }
}
