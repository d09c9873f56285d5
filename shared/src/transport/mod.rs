//! What a transport means for an actor: the names of its queues, the sidecar's environment, and the queue to declare at
//! the broker. One file per type; all other code goes through [`Broker`].

mod env;
pub mod mark;
pub mod rabbitmq;
pub mod sqs;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use asya_wire::queue::less_prefix;
use serde_json::Value;

use crate::api::{EnvVar, TimeoutInForce};
use crate::config::{QueuesConfig, Transport, TransportKind};
use crate::hash;
use crate::names::{ERROR_END, HAPPY_END};
use crate::scaling::{Trigger, TriggerRequest, Untriggerable};

pub use env::{from_secret, text};

/// What every transport type implements.
pub trait Broker {
    /// The type's name in configurations and for sidecars.
    fn type_name(&self) -> &'static str;
    /// The product name as its vendor writes it.
    fn product(&self) -> &'static str;
    /// The queue settings.
    fn queues(&self) -> &QueuesConfig;
    /// How users can resolve a queue that differs from the configuration and that we must not change.
    fn way_out_of_mismatch(&self) -> &'static str;
    /// Whether the broker accepts this queue name (VAL-11).
    fn accepts_name(&self, name: &str) -> bool;
    /// Why the queue at this address is not where the configuration says it is; sidecars or KEDA would look in the
    /// wrong place.
    fn misplaced(&self, _queue: &str, _url: &str) -> Option<String> {
        None
    }
    /// The environment with which a sidecar reaches the broker, in order (POD-3, POD-4).
    fn sidecar_env(&self) -> Vec<EnvVar>;
    /// Where a queue of this name is, including its account: two transports may use the same broker.
    fn place(&self, queue: &str) -> Value;
    /// The location and all desired properties of an actor's queue: a queue that was verified against the same value
    /// need not be checked again (QUE-8).
    fn wanted(&self, queue: &QueueOf) -> Value;
    /// The trigger with which KEDA reads the depth of an actor's queue (KEDA-4 to KEDA-6).
    ///
    /// # Errors
    /// When a value that KEDA needs is not known.
    fn trigger(&self, request: &TriggerRequest<'_>) -> Result<Trigger, Untriggerable>;
}

/// Names of an actor's queues, and the names by which its sidecar addresses other actors (QUE-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNames {
    /// The actor's queue.
    pub queue: String,
    /// The dead letter queue, if any.
    pub dlq: Option<String>,
    /// The actor's name in messages: the queue's name without `asya-`.
    pub actor: String,
    /// Name in messages of the actor that receives completed messages.
    pub happy_end: String,
    /// Name in messages of the actor that receives failed messages.
    pub error_end: String,
}

/// An actor's queue, and what its broker needs to know of the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOf {
    /// Names of the queues.
    pub names: QueueNames,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// UID of the actor; it changes when the actor is restored from a backup (FW-35).
    pub uid: String,
    /// The actor's timeouts.
    pub timeout: TimeoutInForce,
    /// UID of namespace `kube-system` of the cluster from which the actor takes over its queue (QUE-33).
    pub adopts: Option<String>,
}

impl Transport {
    /// The implementation for the transport's type.
    #[must_use]
    pub fn broker(&self) -> &dyn Broker {
        match &self.kind {
            TransportKind::Rabbitmq(config) => config,
            TransportKind::Sqs(config) => config,
        }
    }

    /// The queue settings.
    #[must_use]
    pub fn queues(&self) -> &QueuesConfig {
        self.broker().queues()
    }

    /// Hash of [`Broker::wanted`], as stored in status.
    #[must_use]
    pub fn hash_of(&self, queue: &QueueOf) -> String {
        hash::of_value(&self.broker().wanted(queue))
    }

    /// The dead letter queue that belongs to `queue` alone, if any (QUE-14).
    #[must_use]
    pub fn own_dead_letters(&self, queue: &str) -> Option<String> {
        let dlq = &self.queues().dlq;
        (dlq.enabled && !dlq.is_shared()).then(|| dlq.name_for(queue))
    }

    /// [`Self::own_dead_letters`], plus those of `before` that an earlier configuration made. Leaves out the one that
    /// all queues now share.
    #[must_use]
    pub fn all_own_dead_letters(&self, queue: &str, before: &[String]) -> Vec<String> {
        let dlq = &self.queues().dlq;
        let shared = (dlq.enabled && dlq.is_shared()).then(|| dlq.name_for(queue));
        let own = self.own_dead_letters(queue);
        let mut all: Vec<String> = own.into_iter().chain(before.iter().cloned()).collect();
        all.retain(|name| Some(name) != shared.as_ref());
        all.sort();
        all.dedup();
        all
    }

    /// The names of an actor's queues on this transport.
    #[must_use]
    pub fn names_of(&self, namespace: &str, actor: &str) -> QueueNames {
        let queues = self.queues();
        let render = |actor| queues.name_template.render(namespace, actor);
        let queue = render(actor);
        QueueNames {
            dlq: queues.dlq.enabled.then(|| queues.dlq.name_for(&queue)),
            actor: less_prefix(&queue).to_owned(),
            happy_end: less_prefix(&render(HAPPY_END)).to_owned(),
            error_end: less_prefix(&render(ERROR_END)).to_owned(),
            queue,
        }
    }

    /// The IAM role of an actor's pods, if any (SA-1). `own` is the actor's annotation.
    #[must_use]
    pub fn role_of_pods<'a>(&'a self, own: Option<&'a str>) -> Option<&'a str> {
        match &self.kind {
            TransportKind::Sqs(config) => own
                .filter(|role| !role.is_empty())
                .or(config.actor_role_arn.as_deref()),
            TransportKind::Rabbitmq(_) => None,
        }
    }

    /// The actor's queue names that the broker would reject (VAL-11).
    #[must_use]
    pub fn illegal_names(&self, namespace: &str, actor: &str) -> Vec<String> {
        let names = self.names_of(namespace, actor);
        let all = [Some(names.queue), names.dlq];
        all.into_iter()
            .flatten()
            .filter(|name| !self.broker().accepts_name(name))
            .collect()
    }
}
