//! What a transport means for an actor: its queues' names, what its sidecar must be told, and the queue
//! that must be at the broker. One file per type; the rest of the project asks through [`Broker`].

mod env;
pub mod mark;
pub mod rabbitmq;
pub mod sqs;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::api::{EnvVar, TimeoutInForce};
use crate::config::{PREFIX, QueuesConfig, Transport, TransportKind};
use crate::hash;
use crate::names::{ERROR_END, HAPPY_END};
use crate::scaling::{Trigger, TriggerRequest, Untriggerable};

pub use env::{from_secret, text};

/// What every type of transport answers.
pub trait Broker {
    /// The type, as configurations and sidecars name it.
    fn type_name(&self) -> &'static str;
    /// The type, as its vendor writes it.
    fn product(&self) -> &'static str;
    /// How its queues are made.
    fn queues(&self) -> &QueuesConfig;
    /// What users can do about a queue that is not as configured and that we may not change.
    fn way_out_of_mismatch(&self) -> &'static str;
    /// Whether a queue can have this name (VAL-11).
    fn accepts_name(&self, name: &str) -> bool;
    /// Why a queue that serves at this address is not where the configuration says; sidecars or KEDA would look
    /// elsewhere.
    fn misplaced(&self, _queue: &str, _url: &str) -> Option<String> {
        None
    }
    /// What a sidecar must know to reach it, in order (POD-3, POD-4).
    fn sidecar_env(&self) -> Vec<EnvVar>;
    /// Where a queue of this name is, and in whose account: two transports may lead to one broker.
    fn place(&self, queue: &str) -> Value;
    /// Where the queue of an actor must be, and all that it must be there: a queue that was verified for
    /// the same needs no other look (QUE-8).
    fn wanted(&self, queue: &QueueOf) -> Value;
    /// How KEDA reads the depth of an actor's queue (KEDA-4 to KEDA-6).
    ///
    /// # Errors
    /// When KEDA would need to know what is not known.
    fn trigger(&self, request: &TriggerRequest<'_>) -> Result<Trigger, Untriggerable>;
}

/// The names of one actor's queues, and those by which its sidecar addresses others (QUE-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNames {
    /// The actor's queue.
    pub queue: String,
    /// Its dead letter queue, if it has one.
    pub dlq: Option<String>,
    /// The actor, as messages name it: the queue's name less `asya-`.
    pub actor: String,
    /// Where messages go that are done, named alike.
    pub happy_end: String,
    /// Where messages go that failed, named alike.
    pub error_end: String,
}

/// An actor's queue, and what its broker must know of the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOf {
    /// The names of its queues.
    pub names: QueueNames,
    /// Namespace of the actor.
    pub namespace: String,
    /// Name of the actor.
    pub actor: String,
    /// Uid of the actor; a restore from a backup changes it (FW-35).
    pub uid: String,
    /// Its time limits.
    pub timeout: TimeoutInForce,
    /// Uid of `kube-system` of the cluster that the actor takes its queue over from (QUE-33).
    pub adopts: Option<String>,
}

impl Transport {
    /// The rules of its type.
    #[must_use]
    pub fn broker(&self) -> &dyn Broker {
        match &self.kind {
            TransportKind::Rabbitmq(config) => config,
            TransportKind::Sqs(config) => config,
        }
    }

    /// How its queues are made.
    #[must_use]
    pub fn queues(&self) -> &QueuesConfig {
        self.broker().queues()
    }

    /// Hash of [`Broker::wanted`], as status keeps it.
    #[must_use]
    pub fn hash_of(&self, queue: &QueueOf) -> String {
        hash::of_value(&self.broker().wanted(queue))
    }

    /// The dead letter queue that is `queue`'s alone (QUE-14).
    #[must_use]
    pub fn own_dead_letters(&self, queue: &str) -> Option<String> {
        let dlq = &self.queues().dlq;
        (dlq.enabled && !dlq.is_shared()).then(|| dlq.name_for(queue))
    }

    /// The same, and those of `before` that were so under an earlier configuration. One that all queues
    /// share by now is nobody's.
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

    /// The names that an actor has on this transport.
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

    /// The IAM role of an actor's pods, if they have one (SA-1). `own` is the actor's annotation.
    #[must_use]
    pub fn role_of_pods<'a>(&'a self, own: Option<&'a str>) -> Option<&'a str> {
        match &self.kind {
            TransportKind::Sqs(config) => own
                .filter(|role| !role.is_empty())
                .or(config.actor_role_arn.as_deref()),
            TransportKind::Rabbitmq(_) => None,
        }
    }

    /// Those of an actor's queue names that the broker would refuse (VAL-11).
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

/// A sidecar puts `asya-` before the name of an actor to find its queue.
pub(crate) fn less_prefix(queue: &str) -> &str {
    queue.strip_prefix(PREFIX).unwrap_or(queue)
}
