//! RabbitMQ through its management API (RMQ-2): one HTTP client, no channel state.

mod http;
mod identity;
mod lists;
mod queue_bindings;
mod removal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::{ActorOwnership, QueueOwner};
use asya_shared::transport::rabbitmq::{Comparison, FoundQueue, KeptSetting, QueueDeclaration};
use futures::FutureExt;
use reqwest::Method;
use serde_json::{Value, json};

use super::empty_confirmations::EmptyConfirmations;
use super::http_client::BuildHttpClient;
use super::limiter::{BrokerLimiter, Operation};
use super::{
    BrokerError, BrokerResponse, BrokerResponses, Count, DeleteIfEmptyOutcome, DeleteOutcome,
    DeletionGuard, Depth, QueueCheck, QueueClient, QueueId, QueueObservation, ReadyQueue, Untagged,
};
use http::Api;
use queue_bindings::{QueueBindings, refuse_owned_by_other};

pub use http::Login;

/// RabbitMQ's counts lag by 5 s; wait twice as long (RMQ-6).
const LAG: Duration = Duration::from_secs(10);

/// Client of one RabbitMQ broker.
pub struct Rabbitmq {
    config: RabbitmqConfig,
    api: Api,
    /// Uid of `kube-system`, which identifies this cluster at the broker.
    cluster: Arc<str>,
    /// Whether the exchange was declared. The operator never deletes it.
    exchange: AtomicBool,
    empty_confirmations: EmptyConfirmations,
}

/// Observed state of the broker objects that belong to a queue: its dead letter queue, queue bindings and tags.
struct TopologyState {
    /// Whether its dead letter queue and its queue bindings exist.
    complete: bool,
    /// Its owner according to its tags.
    ownership: ActorOwnership,
    /// Settings that its dead letter queue keeps from an earlier configuration.
    kept_settings: Vec<KeptSetting>,
}

impl Rabbitmq {
    /// Builds a client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` if the address is unusable, `PrerequisiteMissing` if the certificate authority is.
    pub fn new(
        transport: &str,
        config: RabbitmqConfig,
        login: Login,
        cluster: Arc<str>,
        limiter: Arc<BrokerLimiter>,
        build: &BuildHttpClient,
    ) -> Result<Self, BrokerError> {
        Ok(Self {
            cluster,
            api: Api::new(transport, &config, login, limiter, build)?,
            config,
            exchange: AtomicBool::new(false),
            empty_confirmations: EmptyConfirmations::new(LAG),
        })
    }

    async fn find(&self, name: &str) -> Result<Option<FoundQueue>, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, name]);
        self.api.get("observe", &format!("queue {name}"), url).await
    }

    async fn observe_queue(&self, queue: &ActorQueue) -> Result<QueueObservation, BrokerError> {
        let declaration = self.config.declaration(&queue.names);
        let found = self.find(&declaration.name).await?;
        let topology = match &found {
            Some(_) => self.observe_topology(&declaration, queue).await?,
            None => TopologyState::NONE,
        };
        refuse_owned_by_other(&declaration.name, &topology.ownership)?;
        Ok(self.check(&declaration, found.as_ref(), &topology))
    }

    /// Observes the dead letter queue, the queue bindings and the tags of a queue.
    async fn observe_topology(
        &self,
        declaration: &QueueDeclaration,
        queue: &ActorQueue,
    ) -> Result<TopologyState, BrokerError> {
        if !self.config.queues.auto_create {
            return Ok(TopologyState::NONE);
        }
        let dlq = match &declaration.dlq {
            Some(dlq) => self.find(&dlq.name).await?,
            None => None,
        };
        let bindings = self.queue_bindings(&declaration.name).await?;
        Ok(self.topology_state(declaration, queue, dlq.as_ref(), &bindings))
    }

    fn topology_state(
        &self,
        declaration: &QueueDeclaration,
        queue: &ActorQueue,
        found_dlq: Option<&FoundQueue>,
        bindings: &QueueBindings,
    ) -> TopologyState {
        let tag = self.tag_of(&queue.namespace, &queue.actor);
        let dlq = declaration.dlq.as_ref();
        let dlq_exists = dlq.is_none() || found_dlq.is_some();
        let kept_settings = dlq
            .zip(found_dlq)
            .map_or_else(Vec::new, |(dlq, found)| dlq.kept_settings(found));
        TopologyState {
            complete: dlq_exists && bindings.has_wanted_routes(declaration),
            kept_settings,
            ownership: bindings.ownership(&declaration.name, &tag, queue.adopts.as_deref()),
        }
    }

    fn check(
        &self,
        declaration: &QueueDeclaration,
        found: Option<&FoundQueue>,
        topology: &TopologyState,
    ) -> QueueObservation {
        let Some(found) = found else {
            return QueueObservation {
                check: QueueCheck::NotFound,
                depth: None,
            };
        };
        let may_change = self.config.queues.auto_create;
        let check = match declaration.compare(found) {
            Comparison::Mismatch { desired, found } => QueueCheck::Mismatch { desired, found },
            Comparison::Matches { .. } if !topology.complete && may_change => QueueCheck::Drifted,
            Comparison::Matches { .. }
                if topology.ownership != ActorOwnership::Ours && may_change =>
            {
                QueueCheck::NotTaggedYet
            }
            Comparison::Matches {
                delivery_limit_inactive,
            } => QueueCheck::Ready(ReadyQueue {
                url: None,
                delivery_limit_inactive,
                kept_settings: if may_change {
                    let own = declaration.kept_settings(found).into_iter();
                    own.chain(topology.kept_settings.iter().cloned()).collect()
                } else {
                    Vec::new()
                },
            }),
        };
        QueueObservation {
            check,
            depth: depth_of(found),
        }
    }

    async fn create(&self, queue: &ActorQueue) -> Result<ReadyQueue, BrokerError> {
        let declaration = self.config.declaration(&queue.names);
        // Another cluster may have created it first.
        let bindings = self.check_ownership(&declaration.name, queue).await?;
        self.declare_dlq(&declaration, queue).await?;
        self.put_queue(&declaration.name, &declaration.body())
            .await?;
        self.route(&declaration, queue, &bindings).await?;
        // Or it may have done so at the same moment.
        self.check_ownership(&declaration.name, queue).await?;
        Ok(ReadyQueue::default())
    }

    async fn update(&self, queue: &ActorQueue) -> Result<ReadyQueue, BrokerError> {
        let declaration = self.config.declaration(&queue.names);
        let bindings = self.check_ownership(&declaration.name, queue).await?;
        self.declare_dlq(&declaration, queue).await?;
        self.route(&declaration, queue, &bindings).await?;
        match self.observe_queue(queue).await?.check {
            QueueCheck::Ready(ready) => Ok(ready),
            QueueCheck::Mismatch { desired, found } => Err(BrokerError::Mismatch(format!(
                "queue {} has {found}, expected {desired}",
                queue.names.queue
            ))),
            QueueCheck::NotFound | QueueCheck::Drifted | QueueCheck::NotTaggedYet => {
                Err(BrokerError::Throttled(format!(
                    "queue {} is being changed by another client",
                    queue.names.queue
                )))
            }
        }
    }

    /// Declares the dead letter queue. An existing one may have other arguments, since it accepts dead letters anyway.
    /// A shared one is never deleted, so it needs no tag (QUE-39).
    async fn declare_dlq(
        &self,
        declaration: &QueueDeclaration,
        queue: &ActorQueue,
    ) -> Result<(), BrokerError> {
        let Some(dlq) = &declaration.dlq else {
            return Ok(());
        };
        let bindings = if dlq.shared {
            QueueBindings::default()
        } else {
            self.check_dlq_ownership(&dlq.name, queue).await?
        };
        match self.put_queue(&dlq.name, &dlq.body()).await {
            Err(BrokerError::Mismatch(_)) => {}
            result => result?,
        }
        if dlq.shared {
            return Ok(());
        }
        let key = dlq.owner_tag_routing_key();
        match self.tag((&dlq.name, &key), queue, &bindings).await {
            // Tagging needs a permission that older versions did not need for dead letter queues. The only effect of a
            // missing tag is that the queue is never deleted.
            Err(BrokerError::AuthFailed(_)) => Ok(()),
            result => result,
        }
    }

    async fn put_queue(&self, name: &str, body: &Value) -> Result<(), BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, name]);
        let what = format!("queue {name}");
        let operation = Operation::write("create");
        self.api
            .send_checked(operation, &what, Method::PUT, url, body)
            .await
    }

    /// Binds the queue for its senders (RMQ-4). The queue binding by the queue's name also carries the tag.
    async fn route(
        &self,
        declaration: &QueueDeclaration,
        queue: &ActorQueue,
        bindings: &QueueBindings,
    ) -> Result<(), BrokerError> {
        let name = &declaration.name;
        self.tag((name, name), queue, bindings).await?;
        for key in declaration.routing_keys.iter().filter(|key| *key != name) {
            let body = json!({"routing_key": key});
            self.bind_with_retry(name, &body).await?;
        }
        Ok(())
    }

    async fn bind_with_retry(&self, queue: &str, body: &Value) -> Result<(), BrokerError> {
        let exchange = &self.config.exchange;
        if !self.exchange.load(Ordering::Acquire) {
            self.declare_exchange(exchange).await?;
        }
        if self.bind(queue, body).await? {
            return Ok(());
        }
        // The exchange was deleted in the meantime.
        self.declare_exchange(exchange).await?;
        if self.bind(queue, body).await? {
            return Ok(());
        }
        let text = format!("queue {queue} or its exchange keeps disappearing");
        Err(BrokerError::Throttled(text))
    }

    async fn declare_exchange(&self, exchange: &str) -> Result<(), BrokerError> {
        let url = self.api.url(&["exchanges", &self.config.vhost, exchange]);
        let body = json!({"type": "topic", "durable": true, "auto_delete": false});
        let (what, operation) = (format!("exchange {exchange}"), Operation::write("exchange"));
        self.api
            .send_checked(operation, &what, Method::PUT, url, &body)
            .await?;
        self.exchange.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns `false` if the exchange or the queue does not exist.
    async fn bind(&self, queue: &str, body: &Value) -> Result<bool, BrokerError> {
        let exchange = &self.config.exchange;
        let segments = ["bindings", &self.config.vhost, "e", exchange, "q", queue];
        let url = self.api.url(&segments);
        let operation = Operation::write("bind");
        let response = self
            .api
            .send(operation, Method::POST, url, Some(body))
            .await?;
        match response.status {
            _ if response.is_absent() => Ok(false),
            status if status.is_success() => Ok(true),
            _ => {
                let what = format!("binding of queue {queue} to exchange {exchange}");
                Err(self.api.response_error(&what, &response))
            }
        }
    }
}

impl TopologyState {
    /// State of a queue that does not exist, or that the operator must not change.
    const NONE: Self = Self {
        complete: true,
        ownership: ActorOwnership::Ours,
        kept_settings: Vec::new(),
    };
}

fn count_of(found: Option<&FoundQueue>) -> Count {
    match found.map(depth_of) {
        None => Count::NotFound,
        Some(None) => Count::Unknown,
        Some(Some(depth)) => Count::Messages(depth),
    }
}

fn depth_of(found: &FoundQueue) -> Option<Depth> {
    Some(Depth {
        queued: found.messages_ready?,
        processing: found.messages_unacknowledged?,
    })
}

impl QueueClient for Rabbitmq {
    fn observe<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, QueueObservation> {
        self.observe_queue(queue).boxed()
    }

    fn create<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.create(queue).boxed()
    }

    fn update<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.update(queue).boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteOutcome> {
        self.delete(queue, owner, guard).boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteIfEmptyOutcome> {
        self.delete_if_empty(queue, owner, untagged, generation, guard)
            .boxed()
    }

    fn id<'a>(&'a self, queue: &'a str) -> BrokerResponse<'a, Option<QueueId>> {
        self.id(queue).boxed()
    }

    fn observe_many<'a>(
        &'a self,
        queues: &'a [ActorQueue],
    ) -> BrokerResponses<'a, QueueObservation> {
        self.observe_many(queues).boxed()
    }

    fn depths<'a>(&'a self, queues: &'a [String]) -> BrokerResponses<'a, Count> {
        self.depths(queues).boxed()
    }
}
