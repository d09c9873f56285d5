//! RabbitMQ through its management API (RMQ-2): one HTTP client, no channel state.

mod bindings;
mod http;
mod lists;
mod removal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use asya_shared::transport::QueueOf;
use asya_shared::transport::mark::Belongs;
use asya_shared::transport::rabbitmq::{Comparison, FoundQueue, QueueDeclaration};
use asya_shared::transport::sqs::Owner;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::empty_confirmations::EmptyConfirmations;
use super::gate::{BrokerLimiter, Operation};
use super::{
    BrokerError, Count, Deleted, Depth, Emptied, QueueCheck, QueueClient, QueueObservation, Serving,
};
use bindings::{ExchangeBindings, conflict};
use http::Api;

pub use http::Login;

/// RabbitMQ's counts lag by 5 s; wait twice as long (RMQ-6).
const LAG: Duration = Duration::from_secs(10);

/// Client of one RabbitMQ broker.
pub struct Rabbitmq {
    config: RabbitmqConfig,
    api: Api,
    /// Uid of `kube-system`, which identifies this cluster at the broker.
    cluster: Arc<str>,
    /// Whether the exchange was declared. Nothing we do deletes it.
    exchange: AtomicBool,
    zeros: EmptyConfirmations,
}

/// What an observation shows besides the queue itself.
struct Surroundings {
    /// Whether its dead letter queue and its bindings exist.
    complete: bool,
    /// Its owner according to its marks.
    belongs: Belongs,
}

impl Rabbitmq {
    /// A client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` when the address cannot be used, `NotThereYet` when the certificate authority cannot.
    pub fn new(
        transport: &str,
        config: RabbitmqConfig,
        login: Login,
        cluster: Arc<str>,
        gate: Arc<BrokerLimiter>,
    ) -> Result<Self, BrokerError> {
        Ok(Self {
            cluster,
            api: Api::new(transport, &config, login, gate)?,
            config,
            exchange: AtomicBool::new(false),
            zeros: EmptyConfirmations::new(LAG),
        })
    }

    async fn find(&self, name: &str) -> Result<Option<FoundQueue>, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, name]);
        self.api.get("observe", &format!("queue {name}"), url).await
    }

    async fn look(&self, queue: &QueueOf) -> Result<QueueObservation, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        let found = self.find(&wanted.name).await?;
        let around = match &found {
            Some(_) => self.look_around(&wanted, queue).await?,
            None => Surroundings::NONE,
        };
        if let Belongs::Elsewhere(cluster) = &around.belongs {
            return Err(conflict(&wanted.name, cluster));
        }
        Ok(self.standing(&wanted, found.as_ref(), &around))
    }

    /// Observes the dead letter queue, the bindings and the marks of a queue.
    async fn look_around(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
    ) -> Result<Surroundings, BrokerError> {
        if !self.config.queues.auto_create {
            return Ok(Surroundings::NONE);
        }
        let dlq_is_there = match &wanted.dlq {
            Some(dlq) => self.find(&dlq.name).await?.is_some(),
            None => true,
        };
        let bindings = self.bindings(&wanted.name).await?;
        Ok(self.surroundings(wanted, queue, dlq_is_there, &bindings))
    }

    fn surroundings(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
        dlq_is_there: bool,
        bindings: &ExchangeBindings,
    ) -> Surroundings {
        let mark = self.mark_of(&queue.namespace, &queue.actor);
        Surroundings {
            complete: dlq_is_there && bindings.reach(wanted),
            belongs: bindings.belongs(&wanted.name, &mark, queue.adopts.as_deref()),
        }
    }

    fn standing(
        &self,
        wanted: &QueueDeclaration,
        found: Option<&FoundQueue>,
        around: &Surroundings,
    ) -> QueueObservation {
        let Some(found) = found else {
            return QueueObservation {
                standing: QueueCheck::Absent,
                depth: None,
            };
        };
        let changes = self.config.queues.auto_create;
        let standing = match wanted.compare(found) {
            Comparison::Mismatch { wanted, found } => QueueCheck::Differs { wanted, found },
            Comparison::Matches { .. } if !around.complete && changes => QueueCheck::Drifted,
            Comparison::Matches { .. } if around.belongs != Belongs::Here && changes => {
                QueueCheck::Unmarked
            }
            Comparison::Matches {
                delivery_limit_inactive,
            } => QueueCheck::Serves(Serving {
                url: None,
                delivery_limit_inactive,
            }),
        };
        QueueObservation {
            standing,
            depth: depth_of(found),
        }
    }

    async fn create(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        // Another cluster may have created it first.
        let bindings = self.claimable(&wanted.name, queue).await?;
        self.declare_dlq(&wanted, queue).await?;
        self.put_queue(&wanted.name, &wanted.body()).await?;
        self.route(&wanted, queue, &bindings).await?;
        Ok(Serving::default())
    }

    async fn update(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        let bindings = self.claimable(&wanted.name, queue).await?;
        self.declare_dlq(&wanted, queue).await?;
        self.route(&wanted, queue, &bindings).await?;
        match self.look(queue).await?.standing {
            QueueCheck::Serves(serving) => Ok(serving),
            QueueCheck::Differs { wanted, found } => Err(BrokerError::Mismatch(format!(
                "queue {} has {found}, expected {wanted}",
                queue.names.queue
            ))),
            QueueCheck::Absent | QueueCheck::Drifted | QueueCheck::Unmarked => {
                Err(BrokerError::Throttled(format!(
                    "queue {} is being changed by another client",
                    queue.names.queue
                )))
            }
        }
    }

    /// An existing dead letter queue may have other arguments; it takes dead letters all the same. A shared one is
    /// never deleted, so it needs no mark (QUE-39).
    async fn declare_dlq(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
    ) -> Result<(), BrokerError> {
        let Some(dlq) = &wanted.dlq else {
            return Ok(());
        };
        let bindings = if dlq.shared {
            ExchangeBindings::default()
        } else {
            self.claimable(&dlq.name, queue).await?
        };
        match self.put_queue(&dlq.name, &dlq.body()).await {
            Err(BrokerError::Mismatch(_)) => {}
            result => result?,
        }
        if dlq.shared {
            return Ok(());
        }
        let key = dlq.mark_key();
        match self.mark((&dlq.name, &key), queue, &bindings).await {
            // Marking needs a permission that dead letter queues did not need before. Without its mark the queue is
            // merely never deleted.
            Err(BrokerError::AuthFailed(_)) => Ok(()),
            result => result,
        }
    }

    async fn put_queue(&self, name: &str, body: &Value) -> Result<(), BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, name]);
        let what = format!("queue {name}");
        let operation = Operation::write("create");
        self.api
            .must(operation, &what, Method::PUT, url, body)
            .await
    }

    /// Binds the queue for its senders (RMQ-4). The binding by the queue's name also carries the mark.
    async fn route(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
        bindings: &ExchangeBindings,
    ) -> Result<(), BrokerError> {
        let name = &wanted.name;
        self.mark((name, name), queue, bindings).await?;
        for key in wanted.bindings.iter().filter(|key| *key != name) {
            let body = json!({"routing_key": key});
            self.bind_surely(name, &body).await?;
        }
        Ok(())
    }

    async fn bind_surely(&self, queue: &str, body: &Value) -> Result<(), BrokerError> {
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
            .must(operation, &what, Method::PUT, url, &body)
            .await?;
        self.exchange.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns `false` when the exchange or the queue does not exist.
    async fn bind(&self, queue: &str, body: &Value) -> Result<bool, BrokerError> {
        let exchange = &self.config.exchange;
        let segments = ["bindings", &self.config.vhost, "e", exchange, "q", queue];
        let url = self.api.url(&segments);
        let operation = Operation::write("bind");
        let answer = self
            .api
            .send(operation, Method::POST, url, Some(body))
            .await?;
        match answer.status {
            _ if answer.is_absent() => Ok(false),
            status if status.is_success() => Ok(true),
            _ => {
                let what = format!("binding of queue {queue} to exchange {exchange}");
                Err(self.api.refusal(&what, &answer))
            }
        }
    }
}

impl Surroundings {
    /// Of a queue that does not exist, or that we may not change.
    const NONE: Self = Self {
        complete: true,
        belongs: Belongs::Here,
    };
}

fn count_of(found: Option<&FoundQueue>) -> Count {
    match found.map(depth_of) {
        None => Count::Absent,
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
    fn observe<'a>(
        &'a self,
        queue: &'a QueueOf,
    ) -> BoxFuture<'a, Result<QueueObservation, BrokerError>> {
        self.look(queue).boxed()
    }

    fn create<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.create(queue).boxed()
    }

    fn update<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.update(queue).boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Deleted, BrokerError>> {
        self.delete(queue, owner).boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Emptied, BrokerError>> {
        self.delete_if_empty(queue, owner).boxed()
    }

    fn survey<'a>(
        &'a self,
        queues: &'a [QueueOf],
    ) -> BoxFuture<'a, Vec<Result<QueueObservation, BrokerError>>> {
        self.survey(queues).boxed()
    }

    fn depths<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Count, BrokerError>>> {
        self.depths(queues).boxed()
    }
}
