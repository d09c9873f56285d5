//! Queue bindings, which route messages to a queue (RMQ-4) and carry its owner tag (QUE-32).

use std::collections::{HashMap, HashSet};
use std::fmt;

use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::{
    self, ActorOwnership, DeletionRefusal, OwnerTag, QueueOwner,
};
use asya_shared::transport::rabbitmq::{QueueDeclaration, routing_keys};
use reqwest::Method;
use serde::de::{DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use super::Rabbitmq;
use crate::broker::BrokerError;
use crate::broker::limiter::Operation;

/// A queue binding as the management API returns it.
#[derive(Deserialize)]
pub(super) struct FoundQueueBinding {
    #[serde(default)]
    source: String,
    #[serde(default)]
    destination: String,
    #[serde(default)]
    destination_type: String,
    #[serde(default)]
    routing_key: String,
    #[serde(default)]
    arguments: Value,
    #[serde(default)]
    properties_key: String,
}

/// A queue binding that carries an owner tag.
#[derive(Clone, Debug)]
struct TaggedQueueBinding {
    exchange: String,
    routing_key: String,
    properties_key: String,
    tag: OwnerTag,
}

/// The bindings of one queue, or of many.
#[derive(Default)]
pub(super) struct QueueBindings {
    /// Exchange, queue and routing key.
    routes: HashSet<(String, String, String)>,
    tagged: HashMap<String, Vec<TaggedQueueBinding>>,
}

impl FromIterator<FoundQueueBinding> for QueueBindings {
    fn from_iter<I: IntoIterator<Item = FoundQueueBinding>>(found: I) -> Self {
        let mut all = Self::default();
        for binding in found {
            all.add(binding);
        }
        all
    }
}

/// Decodes a list of bindings, and keeps those of these queues.
struct BindingsOf<'a>(&'a HashSet<&'a str>);

impl<'de> DeserializeSeed<'de> for BindingsOf<'_> {
    type Value = QueueBindings;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for BindingsOf<'_> {
    type Value = QueueBindings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of bindings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = QueueBindings::default();
        while let Some(binding) = list.next_element::<FoundQueueBinding>()? {
            if self.0.contains(&*binding.destination) {
                kept.add(binding);
            }
        }
        Ok(kept)
    }
}

impl QueueBindings {
    fn add(&mut self, binding: FoundQueueBinding) {
        if !binding.destination_type.is_empty() && binding.destination_type != "queue" {
            return;
        }
        if let Some(tag) = OwnerTag::of_arguments(&binding.arguments) {
            let tagged = self.tagged.entry(binding.destination.clone());
            tagged.or_default().push(TaggedQueueBinding {
                exchange: binding.source.clone(),
                routing_key: binding.routing_key.clone(),
                properties_key: binding.properties_key,
                tag,
            });
        }
        let route = (binding.source, binding.destination, binding.routing_key);
        self.routes.insert(route);
    }

    /// Whether all desired routes exist.
    pub(super) fn has_wanted_routes(&self, declaration: &QueueDeclaration) -> bool {
        self.has_routes(
            &declaration.exchange,
            &declaration.name,
            &declaration.routing_keys,
        )
    }

    fn has_routes(&self, exchange: &str, queue: &str, keys: &[String]) -> bool {
        keys.iter().all(|key| {
            let route = (exchange.to_owned(), queue.to_owned(), key.clone());
            self.routes.contains(&route)
        })
    }

    fn tagged(&self, queue: &str) -> &[TaggedQueueBinding] {
        self.tagged.get(queue).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue belongs to the actor of `tag`, according to the queue's tags.
    pub(super) fn ownership(
        &self,
        queue: &str,
        tag: &OwnerTag,
        adopts: Option<&str>,
    ) -> ActorOwnership {
        let tags: Vec<&OwnerTag> = self
            .tagged(queue)
            .iter()
            .map(|binding| &binding.tag)
            .collect();
        tag.evaluate(&tags, adopts)
    }

    /// Whether a dead letter queue belongs to the actor of `tag`. One that another actor of this cluster has left may
    /// be taken, because it is deleted only when it is empty; a queue from which that actor consumes may not.
    pub(super) fn dlq_ownership(
        &self,
        dlq: &str,
        tag: &OwnerTag,
        adopts: Option<&str>,
    ) -> ActorOwnership {
        let is_left = || {
            let mut tagged = self.tagged(dlq).iter();
            tagged.all(|it| it.routing_key != dlq && it.tag.cluster == tag.cluster)
        };
        match self.ownership(dlq, tag, adopts) {
            ActorOwnership::OtherActor(_) if is_left() => ActorOwnership::Available,
            ownership => ownership,
        }
    }

    /// Why the actor of `tag` must not delete a queue. An untagged queue, from before owner tags existed, must have the
    /// operator's queue bindings: anyone who can write a status could name an arbitrary queue.
    fn deletion_refusal(
        &self,
        exchange: &str,
        queue: &str,
        tag: &OwnerTag,
    ) -> Option<DeletionRefusal> {
        let tags: Vec<&OwnerTag> = self
            .tagged(queue)
            .iter()
            .map(|binding| &binding.tag)
            .collect();
        if tags.is_empty() && self.has_routes(exchange, queue, &routing_keys(queue)) {
            return None;
        }
        tag.deletion_refusal(&tags)
    }
}

impl Rabbitmq {
    /// The tag of an actor's queues.
    pub(super) fn tag_of(&self, namespace: &str, actor: &str) -> OwnerTag {
        OwnerTag {
            cluster: self.cluster.to_string(),
            namespace: namespace.to_owned(),
            actor: actor.to_owned(),
        }
    }

    /// All bindings of a queue, including those to other exchanges: another cluster may use a different one.
    pub(super) async fn queue_bindings(&self, queue: &str) -> Result<QueueBindings, BrokerError> {
        let url = self
            .api
            .url(&["queues", &self.config.vhost, queue, "bindings"]);
        let what = format!("the bindings of queue {queue}");
        let found: Option<Vec<FoundQueueBinding>> = self.api.get("bindings", &what, url).await?;
        Ok(found.unwrap_or_default().into_iter().collect())
    }

    /// Bindings of these queues to the exchange that senders publish to. The API has no pages of bindings.
    pub(super) async fn list_queue_bindings(
        &self,
        queues: &HashSet<&str>,
    ) -> Result<QueueBindings, BrokerError> {
        let (vhost, exchange) = (&self.config.vhost, &self.config.exchange);
        let segments = ["exchanges", vhost, exchange, "bindings", "source"];
        let what = format!("the bindings of exchange {exchange}");
        let url = self.api.url(&segments);
        let wanted = BindingsOf(queues);
        let found = self.api.get_seed("bindings", &what, url, wanted).await?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the bindings of a queue that the actor is about to create, adopt or keep.
    ///
    /// # Errors
    /// `QueueNameTaken` if the queue belongs to another actor or cluster.
    pub(super) async fn check_ownership(
        &self,
        name: &str,
        queue: &ActorQueue,
    ) -> Result<QueueBindings, BrokerError> {
        self.check_rule(name, queue, QueueBindings::ownership).await
    }

    /// Like [`Self::check_ownership`], for a dead letter queue.
    pub(super) async fn check_dlq_ownership(
        &self,
        name: &str,
        queue: &ActorQueue,
    ) -> Result<QueueBindings, BrokerError> {
        self.check_rule(name, queue, QueueBindings::dlq_ownership)
            .await
    }

    async fn check_rule(
        &self,
        name: &str,
        queue: &ActorQueue,
        ownership: fn(&QueueBindings, &str, &OwnerTag, Option<&str>) -> ActorOwnership,
    ) -> Result<QueueBindings, BrokerError> {
        let bindings = self.queue_bindings(name).await?;
        let tag = self.tag_of(&queue.namespace, &queue.actor);
        let ownership = ownership(&bindings, name, &tag, queue.adopts.as_deref());
        refuse_owned_by_other(name, &ownership)?;
        Ok(bindings)
    }

    /// Tags a queue as the actor's through a queue binding with this key, and removes the tags that this one replaces.
    pub(super) async fn tag(
        &self,
        (name, key): (&str, &str),
        queue: &ActorQueue,
        bindings: &QueueBindings,
    ) -> Result<(), BrokerError> {
        let tag = self.tag_of(&queue.namespace, &queue.actor);
        let body = json!({"routing_key": key, "arguments": tag.arguments()});
        self.bind_with_retry(name, &body).await?;
        let adopts = queue.adopts.as_deref();
        for other in bindings.tagged(name) {
            if tag.supersedes(&other.tag, adopts) {
                self.unbind(name, other).await?;
            }
        }
        Ok(())
    }

    async fn unbind(&self, queue: &str, tagged: &TaggedQueueBinding) -> Result<(), BrokerError> {
        let TaggedQueueBinding {
            exchange,
            properties_key,
            ..
        } = tagged;
        let vhost = &self.config.vhost;
        let segments = ["bindings", vhost, "e", exchange, "q", queue, properties_key];
        let url = self.api.url(&segments);
        let operation = Operation::write("unbind");
        let response = self.api.send(operation, Method::DELETE, url, None).await?;
        if response.is_absent() || response.status.is_success() {
            return Ok(());
        }
        let what = format!("binding of queue {queue} to exchange {exchange}");
        Err(self.api.response_error(&what, &response))
    }

    /// Why the actor must not delete a queue; `None` if it may (QUE-34).
    pub(super) async fn deletion_refusal(
        &self,
        queue: &str,
        owner: &QueueOwner,
    ) -> Result<Option<DeletionRefusal>, BrokerError> {
        let bindings = self.queue_bindings(queue).await?;
        let tag = self.tag_of(&owner.namespace, &owner.actor);
        Ok(bindings.deletion_refusal(&self.config.exchange, queue, &tag))
    }
}

/// # Errors
/// `QueueNameTaken` if the queue belongs to another actor or cluster.
pub(super) fn refuse_owned_by_other(
    queue: &str,
    ownership: &ActorOwnership,
) -> Result<(), BrokerError> {
    let text = match ownership {
        ActorOwnership::Ours | ActorOwnership::Available => return Ok(()),
        ActorOwnership::OtherCluster(cluster) => {
            let shown_by = format!("the argument {} of one of its bindings", ownership::CLUSTER);
            ownership::other_cluster_message(queue, cluster, &shown_by)
        }
        ActorOwnership::OtherActor(owner) => {
            let shown_by =
                "the arguments asya.sh/namespace and asya.sh/actor of one of its bindings";
            ownership::other_actor_message(queue, owner, shown_by)
        }
    };
    Err(BrokerError::QueueNameTaken(text))
}

#[cfg(test)]
mod tests;
