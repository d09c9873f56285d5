//! What a transport means for an actor: the names of its queues, the sidecar's environment, and the queue to declare at
//! the broker. One file per type; all other code goes through [`Broker`].

mod env;
pub mod ownership;
pub mod rabbitmq;
pub mod sqs;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use asya_wire::queue::route_name;
use serde_json::Value;

use crate::api::{EffectiveTimeout, EnvVar};
use crate::config::{QueueNames, QueuesConfig, RouteNames, SecretKeyRef, Transport, TransportKind};
use crate::hash;
use crate::names::{ERROR_END, HAPPY_END};
use crate::scaling::{Trigger, TriggerError, TriggerRequest};

pub use env::{from_secret, required_secrets, text};

/// The interface that every transport type implements.
pub trait Broker {
    /// The type's name in configurations and for sidecars.
    fn type_name(&self) -> &'static str;
    /// The product name as its vendor writes it.
    fn product(&self) -> &'static str;
    /// The queue settings.
    fn queues(&self) -> &QueuesConfig;
    /// How users can resolve a queue that differs from the configuration and that we must not change.
    fn mismatch_remedy(&self) -> &'static str;
    /// Whether the broker accepts this queue name (VAL-11).
    fn accepts_name(&self, name: &str) -> bool;
    /// Why the queue at this address is not where the configuration says it is; sidecars or KEDA would look in the
    /// wrong place.
    fn location_mismatch(&self, _queue: &str, _url: &str) -> Option<String> {
        None
    }
    /// The environment with which a sidecar reaches the broker, in order (POD-3, POD-4).
    fn sidecar_env(&self) -> Vec<EnvVar>;
    /// The variables of [`Self::sidecar_env`] that say which broker it is.
    fn address_variables(&self) -> &'static [&'static str];
    /// Additional variables for `asya-sidecar`, in order (SC-111).
    fn own_sidecar_env(&self) -> Vec<EnvVar> {
        Vec::new()
    }
    /// Where a queue of this name is, including its account: two transports may use the same broker.
    fn address(&self, queue: &str) -> Value;
    /// The location and all desired properties of an actor's queue: a queue that was verified against the same value
    /// need not be checked again (QUE-8).
    fn desired(&self, queue: &ActorQueue) -> Value;
    /// The trigger with which KEDA reads the depth of an actor's queue (KEDA-4 to KEDA-6).
    ///
    /// # Errors
    /// When a value that KEDA needs is not known.
    fn trigger(&self, request: &TriggerRequest<'_>) -> Result<Trigger, TriggerError>;
}

/// An actor's queue, and what its broker needs to know about the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorQueue {
    /// Names of the queues.
    pub names: QueueNames,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// UID of the actor; it changes when the actor is restored from a backup (FW-35).
    pub uid: String,
    /// The actor's timeouts.
    pub timeout: EffectiveTimeout,
    /// UID of namespace `kube-system` of the cluster from which the actor adopts its queue (QUE-33).
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

    /// Hash of [`Broker::desired`], as stored in status.
    #[must_use]
    pub fn desired_hash(&self, queue: &ActorQueue) -> String {
        hash::of_value(&self.broker().desired(queue))
    }

    /// The dead letter queue that belongs to `queue` alone, if any (QUE-14).
    #[must_use]
    pub fn own_dead_letters(&self, queue: &str) -> Option<String> {
        let dlq = &self.queues().dlq;
        (dlq.enabled && !dlq.is_shared()).then(|| dlq.name_for(queue))
    }

    /// [`Self::own_dead_letters`], plus those in `previous`, which an earlier configuration made. Leaves out the one
    /// that all queues now share.
    #[must_use]
    pub fn all_own_dead_letters(&self, queue: &str, previous: &[String]) -> Vec<String> {
        let dlq = &self.queues().dlq;
        let shared = (dlq.enabled && dlq.is_shared()).then(|| dlq.name_for(queue));
        let own = self.own_dead_letters(queue);
        let mut all: Vec<String> = own.into_iter().chain(previous.iter().cloned()).collect();
        all.retain(|name| Some(name) != shared.as_ref());
        all.sort();
        all.dedup();
        all
    }

    /// The names of an actor's queues on this transport.
    #[must_use]
    pub fn names_of(&self, namespace: &str, actor: &str) -> QueueNames {
        let queues = self.queues();
        let render = |actor: &str| queues.name_template.render(namespace, actor);
        let in_routes = |actor: &str| match queues.names {
            RouteNames::Queue => route_name(&render(actor)).to_owned(),
            RouteNames::Bare => actor.to_owned(),
        };
        let queue = render(actor);
        QueueNames {
            dlq: queues.dlq.enabled.then(|| queues.dlq.name_for(&queue)),
            actor: in_routes(actor),
            happy_end: in_routes(HAPPY_END),
            error_end: in_routes(ERROR_END),
            queue,
        }
    }

    /// The Secret with the CA that sidecars check the broker's certificate against, if it is not a public one.
    #[must_use]
    pub fn ca_secret(&self) -> Option<&SecretKeyRef> {
        match &self.kind {
            TransportKind::Rabbitmq(config) => config.ca_secret_ref.as_ref(),
            TransportKind::Sqs(_) => None,
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
