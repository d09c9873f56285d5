//! Counts the messages of an actor that is deleted only once its queues are empty.

use std::time::Duration;

use asya_shared::api::{AsyncActorStatus, QueueStatus, State};
use asya_shared::config::{Transport, TransportKind};
use asya_shared::names::FINALIZER;
use asya_shared::transport::{QueueNames, QueueOf};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::Api;

use crate::broker::depths::{Depths, ReportedDepth};
use crate::broker::{BrokerError, Depth, QueueCheck, QueueObservation};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::desired::drain::{Counted, Drain, DrainFacts, Messages, decide};
use crate::reconcile::model::known_queues::{KnownQueues, is_same};
use crate::reconcile::model::observed::DeletionPolicy;
use crate::record::{ActorRecord, Key};

/// Observes the queues of an actor whose deletion waits until they are empty; returns `None` for any other actor.
pub(super) async fn see(
    context: &Context,
    (actor, previous): (&ActorRecord, &AsyncActorStatus),
    (deletion, queues): (&DeletionPolicy, &KnownQueues),
    now: Timestamp,
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
        let one = count(context, actor, queue).await?;
        let (messages, lags) = match one {
            Ok((depth, transport)) => (depth, lag_of(transport)),
            Err(fault) => (Messages::Unknown(fault), Duration::ZERO),
        };
        lag = lag.max(lags);
        let serves = previous.queue.as_ref().is_none_or(|it| is_same(it, queue));
        let pace = match previous.status {
            _ if !serves => PollPace::Exact,
            Some(State::Terminating) => PollPace::AsTold,
            _ => PollPace::Anew,
        };
        counted.push(Counted {
            queue: queue.clone(),
            messages: messages.paced(&context.depths, &actor.metadata.key, pace),
        });
    }
    let released = previous.queue_released_since.as_ref().map(|time| time.0);
    let drain = decide(&DrainFacts {
        queues: &counted,
        released,
        lag,
        now,
    });
    let Drain::Works(held) = drain else {
        return Ok(Some(drain));
    };
    let namespaces: Api<Namespace> = Api::all(context.client.clone());
    let namespace = namespaces.get_opt(&actor.metadata.key.namespace).await;
    let namespace = namespace.map_err(Error::Api)?.map(|it| it.metadata);
    let ends = |it: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        it.deletion_timestamp.is_some()
    };
    Ok(Some(if namespace.as_ref().is_none_or(ends) {
        Drain::Abandoned {
            namespace_uid: namespace.and_then(|it| it.uid),
            held,
        }
    } else {
        Drain::Works(held)
    }))
}

/// Which message count to report.
#[derive(Clone, Copy)]
enum PollPace {
    /// The current count: status reports no count of this queue.
    Exact,
    /// The current count, which later reports start from. The Event at the start of the deletion is written only once,
    /// so it must not carry a stale count.
    Anew,
    /// The count that status may report now (QUE-20): small changes do not justify a write.
    AsTold,
}

impl Messages {
    fn paced(self, depths: &Depths, actor: &Key, pace: PollPace) -> Self {
        let Self::Known(depth) = self else {
            return self;
        };
        match pace {
            PollPace::Exact => return self,
            _ if depth == Depth::default() => return self,
            PollPace::Anew => depths.forget(actor),
            PollPace::AsTold => {}
        }
        depths.take(actor, Some(depth));
        match depths.told(actor) {
            ReportedDepth::Depth(told) if told != Depth::default() => Self::Known(told),
            _ => self,
        }
    }
}

async fn count<'a>(
    context: &'a Context,
    actor: &ActorRecord,
    queue: &QueueStatus,
) -> Result<Result<(Messages, &'a Transport), Fault>, Error> {
    let failed = |message: String, retry| Fault {
        reason: Reason::QueueDeletionFailed,
        message: format!(
            "the messages in queue {} cannot be counted: {message}",
            queue.name
        ),
        retry,
    };
    let transport = match context.installation.transports.usable(&queue.transport) {
        Ok(transport) => transport,
        Err(unusable) => {
            let hint = "configure it again, or set annotation asya.sh/skip-queue-deletion: \"true\" to leave the queue behind";
            return Ok(Err(failed(
                format!("{unusable}; {hint}"),
                Requeue::SlowBackoff,
            )));
        }
    };
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
        Err(error) => {
            if let Some(wait) = error.comes_again() {
                return Err(Error::Busy(error.to_string(), wait));
            }
            let retry = match error.retry() {
                asked @ Requeue::After(_) => asked,
                _ => Requeue::Backoff,
            };
            return Ok(Err(failed(error.to_string(), retry)));
        }
    };
    Ok(Ok((messages, transport)))
}

/// How far a broker's counts lag behind (RMQ-6).
fn lag_of(transport: &Transport) -> Duration {
    match transport.kind {
        TransportKind::Rabbitmq(_) => Duration::from_secs(10),
        TransportKind::Sqs(_) => Duration::from_mins(1),
    }
}

#[cfg(test)]
mod tests {
    use super::{Depths, Key, Messages, PollPace};
    use crate::broker::Depth;

    /// QUE-20, QUE-40
    #[test]
    fn message_count_is_exact_when_deletion_begins_and_damped_afterwards() {
        let (depths, actor) = (Depths::default(), Key::new("ns", "a"));
        let depth = |queued| Depth {
            queued,
            processing: 0,
        };
        depths.take(&actor, Some(depth(3)));
        for (counted, pace, told) in [
            (7, PollPace::Anew, 7),
            (6, PollPace::AsTold, 7),
            (6, PollPace::Exact, 6),
            (5, PollPace::AsTold, 7),
        ] {
            let paced = Messages::Known(depth(counted)).paced(&depths, &actor, pace);
            assert_eq!(paced, Messages::Known(depth(told)));
        }
    }
}
