//! Counts the messages of an actor that is deleted only once its queues are empty.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus};
use asya_shared::config::{Transport, TransportKind};
use asya_shared::names::FINALIZER;
use asya_shared::transport::{QueueNames, QueueOf};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use crate::broker::{BrokerError, QueueCheck, QueueObservation};
use crate::context::Context;
use crate::fault::{Error, StepError};
use crate::reconcile::desired::deletion::{unanswered, unreachable};
use crate::reconcile::desired::drain::{CountReport, Counted, Drain, DrainFacts, Messages, decide};
use crate::reconcile::model::known_queues::KnownQueues;
use crate::reconcile::model::observed::{DeletionPolicy, Learned};
use crate::record::{ActorRecord, Key};

/// Observes the queues of an actor whose deletion waits until they are empty; returns `None` for any other actor.
pub(super) async fn see(
    context: &Context,
    (actor, previous): (&ActorRecord, &AsyncActorStatus),
    (deletion, queues): (&DeletionPolicy, &KnownQueues),
    (learned, now): (&mut Learned, Timestamp),
) -> Result<Option<Drain>, Error> {
    let is_held = actor.finalizers.iter().any(|it| **it == *FINALIZER);
    if !actor.metadata.deleting
        || !is_held
        || deletion.orphans
        || !deletion.queue.waits_until_empty()
    {
        return Ok(None);
    }
    let keeps = actor.annotations.skip_queue_deletion || !context.installation.queues_managed;
    let (mut counted, mut lag) = (Vec::new(), Duration::ZERO);
    for (queue, _) in queues.to_delete().filter(|_| !keeps) {
        let (messages, lags) = match count(context, actor, queue).await {
            Ok((messages, transport)) => (messages, lag_of(transport)),
            Err(refused) => (Messages::Unknown(refused.fault()?), Duration::ZERO),
        };
        lag = lag.max(lags);
        let report = CountReport::of(previous, queue);
        if let (Messages::Known(depth), Some(anew)) = (&messages, report.records(&messages)) {
            learned.depths.push((*depth, anew));
        }
        counted.push(Counted {
            queue: queue.clone(),
            messages: messages.reported(report, |depth, anew| {
                context.depths.told_after(&actor.metadata.key, depth, anew)
            }),
        });
    }
    let released = previous.queue_released_since.as_ref().map(|time| time.0);
    let drain = decide(&DrainFacts {
        queues: &counted,
        released,
        lag,
        now,
    });
    if !matches!(drain, Drain::Works(_)) {
        return Ok(Some(drain));
    }
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.map_err(Error::Api)?;
    Ok(Some(drain.unless_ending(namespace.as_ref())))
}

async fn count<'a>(
    context: &'a Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
) -> Result<(Messages, &'a Transport), StepError> {
    let what = format!("the messages in queue {} cannot be counted", queue.name);
    let transports = &context.installation.transports;
    let transport = transports
        .usable(&queue.transport)
        .map_err(|unusable| unreachable(&what, &unusable))?;
    let Key { namespace, name } = &actor.metadata.key;
    let timeout = actor.timeout.clone().unwrap_or_default();
    let wanted = QueueOf {
        names: QueueNames {
            queue: queue.name.clone(),
            ..transport.names_of(namespace, name)
        },
        namespace: namespace.to_string(),
        actor: name.to_string(),
        uid: actor.metadata.uid.to_string(),
        timeout: timeout.in_force(),
        adopts: actor.annotations.adopts().map(str::to_owned),
    };
    let client = context.brokers.client(transport, namespace);
    let messages = match client.observe(&wanted).await {
        Ok(QueueObservation {
            standing: QueueCheck::Absent,
            ..
        })
        | Err(BrokerError::Conflict(_)) => Messages::NoQueue,
        Ok(QueueObservation { depth, .. }) => depth.map_or(Messages::Uncounted, Messages::Known),
        Err(error) => return Err(unanswered(&what, &error)),
    };
    Ok((messages, transport))
}

/// How far a broker's counts lag behind (RMQ-6).
fn lag_of(transport: &Transport) -> Duration {
    match transport.kind {
        TransportKind::Rabbitmq(_) => Duration::from_secs(10),
        TransportKind::Sqs(_) => Duration::from_mins(1),
    }
}
