//! Bindings: how senders reach a queue (RMQ-4), and how ours mark its owner (QUE-32).

use std::collections::{HashMap, HashSet};

use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::{self, Belongs, Mark, NotOurs};
use asya_shared::transport::rabbitmq::{QueueDeclaration, bindings_of};
use asya_shared::transport::sqs::Owner;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Rabbitmq;
use crate::broker::BrokerError;
use crate::broker::gate::Operation;

/// A binding as the management API returns it.
#[derive(Deserialize)]
pub(super) struct FoundBinding {
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

/// A binding that carries an ownership mark.
#[derive(Clone, Debug)]
struct Marked {
    exchange: String,
    properties_key: String,
    mark: Mark,
}

/// Bindings of one queue, or of many.
#[derive(Default)]
pub(super) struct ExchangeBindings {
    /// Exchange, queue and routing key.
    routes: HashSet<(String, String, String)>,
    /// By queue.
    marked: HashMap<String, Vec<Marked>>,
}

impl FromIterator<FoundBinding> for ExchangeBindings {
    fn from_iter<I: IntoIterator<Item = FoundBinding>>(found: I) -> Self {
        let mut all = Self::default();
        let found = found.into_iter();
        for binding in
            found.filter(|it| it.destination_type == "queue" || it.destination_type.is_empty())
        {
            if let Some(mark) = Mark::of_arguments(&binding.arguments) {
                let marked = all.marked.entry(binding.destination.clone());
                marked.or_default().push(Marked {
                    exchange: binding.source.clone(),
                    properties_key: binding.properties_key,
                    mark,
                });
            }
            let route = (binding.source, binding.destination, binding.routing_key);
            all.routes.insert(route);
        }
        all
    }
}

impl ExchangeBindings {
    /// Whether all wanted routes exist.
    pub(super) fn reach(&self, wanted: &QueueDeclaration) -> bool {
        self.lead(&wanted.exchange, &wanted.name, &wanted.bindings)
    }

    fn lead(&self, exchange: &str, queue: &str, keys: &[String]) -> bool {
        keys.iter().all(|key| {
            let route = (exchange.to_owned(), queue.to_owned(), key.clone());
            self.routes.contains(&route)
        })
    }

    fn marked(&self, queue: &str) -> &[Marked] {
        self.marked.get(queue).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue belongs to the actor of `mark`, according to the queue's marks.
    pub(super) fn belongs(&self, queue: &str, mark: &Mark, adopts: Option<&str>) -> Belongs {
        let marks: Vec<&Mark> = self.marked(queue).iter().map(|it| &it.mark).collect();
        mark.among(&marks, adopts)
    }

    /// Why the actor of `mark` may not delete a queue. An unmarked queue, from before marks existed, must be bound as
    /// we bind queues: anyone who can write a status could name an arbitrary queue.
    fn withhold(&self, exchange: &str, queue: &str, mark: &Mark) -> Option<NotOurs> {
        let marks: Vec<&Mark> = self.marked(queue).iter().map(|it| &it.mark).collect();
        if marks.is_empty() && self.lead(exchange, queue, &bindings_of(queue)) {
            return None;
        }
        mark.withholds(&marks)
    }
}

impl Rabbitmq {
    /// The mark of an actor's queues.
    pub(super) fn mark_of(&self, namespace: &str, actor: &str) -> Mark {
        Mark {
            cluster: self.cluster.to_string(),
            namespace: namespace.to_owned(),
            actor: actor.to_owned(),
        }
    }

    /// All bindings of a queue, including those to other exchanges: another cluster may use a different one.
    pub(super) async fn bindings(&self, queue: &str) -> Result<ExchangeBindings, BrokerError> {
        let url = self
            .api
            .url(&["queues", &self.config.vhost, queue, "bindings"]);
        let what = format!("the bindings of queue {queue}");
        let found: Option<Vec<FoundBinding>> = self.api.get("bindings", &what, url).await?;
        Ok(found.unwrap_or_default().into_iter().collect())
    }

    /// All bindings of the exchange that senders publish to.
    pub(super) async fn list_bindings(&self) -> Result<ExchangeBindings, BrokerError> {
        let (vhost, exchange) = (&self.config.vhost, &self.config.exchange);
        let segments = ["exchanges", vhost, exchange, "bindings", "source"];
        let what = format!("the bindings of exchange {exchange}");
        let url = self.api.url(&segments);
        let found: Option<Vec<FoundBinding>> = self.api.get("bindings", &what, url).await?;
        Ok(found.unwrap_or_default().into_iter().collect())
    }

    /// Returns the bindings of a queue that the actor is about to claim or keep.
    ///
    /// # Errors
    /// `Conflict` when the queue belongs to another cluster.
    pub(super) async fn claimable(
        &self,
        name: &str,
        queue: &QueueOf,
    ) -> Result<ExchangeBindings, BrokerError> {
        let bindings = self.bindings(name).await?;
        let mark = self.mark_of(&queue.namespace, &queue.actor);
        match bindings.belongs(name, &mark, queue.adopts.as_deref()) {
            Belongs::Elsewhere(cluster) => Err(conflict(name, &cluster)),
            Belongs::Here | Belongs::Free => Ok(bindings),
        }
    }

    /// Marks a queue as the actor's through a binding with this key, and removes the marks that this one replaces.
    pub(super) async fn mark(
        &self,
        (name, key): (&str, &str),
        queue: &QueueOf,
        bindings: &ExchangeBindings,
    ) -> Result<(), BrokerError> {
        let mark = self.mark_of(&queue.namespace, &queue.actor);
        let body = json!({"routing_key": key, "arguments": mark.arguments()});
        self.bind_surely(name, &body).await?;
        let adopts = queue.adopts.as_deref();
        for other in bindings.marked(name) {
            if mark.replaces(&other.mark, adopts) {
                self.unbind(name, other).await?;
            }
        }
        Ok(())
    }

    async fn unbind(&self, queue: &str, marked: &Marked) -> Result<(), BrokerError> {
        let Marked {
            exchange,
            properties_key,
            ..
        } = marked;
        let vhost = &self.config.vhost;
        let segments = ["bindings", vhost, "e", exchange, "q", queue, properties_key];
        let url = self.api.url(&segments);
        let operation = Operation::write("unbind");
        let answer = self.api.send(operation, Method::DELETE, url, None).await?;
        if answer.is_absent() || answer.status.is_success() {
            return Ok(());
        }
        let what = format!("binding of queue {queue} to exchange {exchange}");
        Err(self.api.refusal(&what, &answer))
    }

    /// Why the actor may not delete a queue; `None` if it may (QUE-34).
    pub(super) async fn withheld(
        &self,
        queue: &str,
        owner: &Owner,
    ) -> Result<Option<NotOurs>, BrokerError> {
        let bindings = self.bindings(queue).await?;
        let mark = self.mark_of(&owner.namespace, &owner.actor);
        Ok(bindings.withhold(&self.config.exchange, queue, &mark))
    }
}

pub(super) fn conflict(queue: &str, cluster: &str) -> BrokerError {
    let shown_by = format!("the argument {} of one of its bindings", mark::CLUSTER);
    BrokerError::Conflict(mark::conflict(queue, cluster, &shown_by))
}
