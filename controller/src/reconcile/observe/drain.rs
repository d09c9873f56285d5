//! Counts the messages of an actor that is deleted only once its queues are empty.
//!
//! The pure [`decide`] is here and not in *plan*, because what else is observed depends on it: an actor that still
//! waits receives messages like any other.

mod decision;

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::config::{QueueNames, Transport, TransportKind};
use asya_shared::names::FINALIZER;
use asya_shared::transport::ActorQueue;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use decision::{CountReport, DrainInputs, decide};

use crate::broker::deletion_fault::{broker_step_error, unusable_transport_fault};
use crate::broker::{BrokerError, QueueCheck, QueueObservation};
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::model::drain::{
    DrainState, KeptQueues, Messages, QueueCount, RemainingQueues,
};
use crate::reconcile::model::known_queues::KnownQueues;
use crate::reconcile::model::observed::{CountedDepth, DeletionSettings};
use crate::record::{ActorRecord, Key};

/// The queues of an actor whose deletion waits until they are empty.
#[derive(Debug, Default)]
pub(super) struct ObservedDrain {
    /// `None` for any other actor.
    pub(super) state: Option<DrainState>,
    /// Messages counted by this reconcile.
    pub(super) depths: Vec<CountedDepth>,
}

/// Observes the queues of an actor whose deletion waits until they are empty.
pub(super) async fn observe(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    deletion: &DeletionSettings,
    queues: &KnownQueues,
    now: Timestamp,
) -> Result<ObservedDrain, Error> {
    if !actor.metadata.deleting
        || !actor.has_finalizer(FINALIZER)
        || deletion.orphans
        || !actor.queue_policy.waits_until_empty()
    {
        return Ok(ObservedDrain::default());
    }
    let keeps_queues =
        actor.annotations.skip_queue_deletion || !context.installation.queues_managed;
    let mut counted = Vec::new();
    let mut depths = Vec::new();
    let mut lag = Duration::ZERO;
    for (queue, _) in queues.to_delete().filter(|_| !keeps_queues) {
        let messages = match count(context, actor, queue).await {
            Ok(messages) => messages,
            Err(error) => Messages::Unknown(error.fault()?),
        };
        // Even if this count failed, in which case it confirms nothing.
        lag = lag.max(count_lag(context, &queue.transport));
        let report = CountReport::of(previous, queue);
        if let (Messages::Known(depth), Some(resets)) = (&messages, report.recording(&messages)) {
            let depth = *depth;
            depths.push(CountedDepth { depth, resets });
        }
        counted.push(QueueCount {
            queue: queue.clone(),
            messages: messages.reported(report, |depth, reset| {
                context
                    .depths
                    .reported_after(&actor.metadata.key, depth, reset)
            }),
        });
    }
    let released_at = previous.queue_released_since.as_ref().map(|time| time.0);
    let drain = decide(&DrainInputs {
        queues: &counted,
        released_at,
        lag,
        now,
    });
    let Some(remaining) = RemainingQueues::of(&counted) else {
        let state = Some(drain);
        return Ok(ObservedDrain { state, depths });
    };
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.map_err(Error::Api)?;
    let kept = KeptQueues::of_terminating(namespace.as_ref(), remaining);
    Ok(ObservedDrain {
        state: Some(kept.map_or(drain, DrainState::KeepQueues)),
        depths,
    })
}

async fn count(
    context: &Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
) -> Result<Messages, StepError> {
    let failure = format!("the messages in queue {} cannot be counted", queue.name);
    let transports = &context.installation.transports;
    let transport = transports
        .usable(&queue.transport)
        .map_err(|unusable| unusable_transport_fault(&failure, &unusable))?;
    let client = context
        .brokers
        .client(transport, &actor.metadata.key.namespace);
    match client.observe(&to_count(actor, transport, queue)).await {
        Ok(QueueObservation {
            check: QueueCheck::NotFound,
            ..
        })
        | Err(BrokerError::QueueNameTaken(_)) => Ok(Messages::NoQueue),
        Ok(QueueObservation { depth, .. }) => {
            Ok(depth.map_or(Messages::Uncounted, Messages::Known))
        }
        Err(error) => Err(broker_step_error(&failure, &error)),
    }
}

/// The queue without its dead letter queue, which says nothing about these messages, even if it is another actor's
/// (QUE-42).
fn to_count(actor: &ActorRecord, transport: &Transport, queue: &QueueStatus) -> ActorQueue {
    let Key { namespace, name } = &actor.metadata.key;
    let timeout = actor.timeout.clone().unwrap_or_default();
    ActorQueue {
        names: QueueNames {
            queue: queue.name.clone(),
            dlq: None,
            ..transport.names_of(namespace, name)
        },
        namespace: namespace.to_string(),
        actor: name.to_string(),
        uid: actor.metadata.uid.to_string(),
        timeout: timeout.effective(),
        adopts: actor.annotations.adopts().map(str::to_owned),
    }
}

/// How far a broker's counts lag behind (RMQ-6). An unknown transport has the longest lag.
fn count_lag(context: &Context, transport: &str) -> Duration {
    let transport = context.installation.transports.usable(transport).ok();
    match transport.map(|transport| &transport.kind) {
        Some(TransportKind::Rabbitmq(_)) => Duration::from_secs(10),
        Some(TransportKind::Sqs(_)) | None => Duration::from_mins(1),
    }
}

#[cfg(test)]
mod tests {
    use asya_shared::config::TransportsConfig;
    use serde_json::{Value, json};

    use super::to_count;
    use crate::reconcile::tests::fixtures::{actor, observed};

    /// QUE-42: the dead letter queue may be another actor's.
    #[test]
    fn messages_are_counted_without_the_dead_letter_queue() {
        let queues = json!({"dlq": {"enabled": true, "name": "asya-dlq"}});
        let sqs = json!({"type": "sqs", "enabled": true, "config": {"region": "eu-north-1", "queues": queues}});
        let config = json!({"transports": {"sqs": sqs}}).to_string();
        let transports = TransportsConfig::parse(&config).unwrap();
        let transport = transports.usable("sqs").unwrap();
        let observed = observed(&actor(
            &json!({}),
            &json!({"transport": "sqs"}),
            &Value::Null,
        ));
        let queue =
            serde_json::from_value(json!({"transport": "sqs", "name": "asya-old"})).unwrap();
        let counted = to_count(&observed.actor, transport, &queue);
        assert_eq!(
            (&*counted.names.queue, counted.names.dlq),
            ("asya-old", None)
        );
    }
}
