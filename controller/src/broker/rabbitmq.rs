//! RabbitMQ by its management API (RMQ-2): one HTTP client, no channel state.

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

use super::gate::{Gate, Operation};
use super::zeros::EmptyConfirmations;
use super::{BrokerError, Count, Deleted, Depth, Emptied, QueueClient, Seen, Serving, Standing};
use bindings::{Bindings, conflict};
use http::Api;

pub use http::Login;

/// RabbitMQ's counts lag by 5 s (RMQ-6).
const LAG: Duration = Duration::from_secs(10);

/// A broker, and who we are there.
pub struct Rabbitmq {
    config: RabbitmqConfig,
    api: Api,
    /// Uid of `kube-system`, by which the broker tells clusters apart.
    cluster: Arc<str>,
    /// Whether the exchange was declared; it goes with nothing that we do.
    exchange: AtomicBool,
    zeros: EmptyConfirmations,
}

/// What a look shows of what belongs to a queue.
struct Surroundings {
    /// Its dead letter queue is there, and the way to it.
    complete: bool,
    /// What its marks say.
    belongs: Belongs,
}

impl Rabbitmq {
    /// A client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` when address or certificate authority cannot be used.
    pub fn new(
        transport: &str,
        config: RabbitmqConfig,
        login: Login,
        cluster: Arc<str>,
        gate: Arc<Gate>,
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

    async fn look(&self, queue: &QueueOf) -> Result<Seen, BrokerError> {
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

    /// What belongs to a queue: its dead letter queue, the way to it, and its mark.
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
        bindings: &Bindings,
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
    ) -> Seen {
        let Some(found) = found else {
            return Seen {
                standing: Standing::Absent,
                depth: None,
            };
        };
        let changes = self.config.queues.auto_create;
        let standing = match wanted.compare(found) {
            Comparison::Mismatch { wanted, found } => Standing::Differs { wanted, found },
            Comparison::Matches { .. } if !around.complete && changes => Standing::Drifted,
            Comparison::Matches { .. } if around.belongs != Belongs::Here && changes => {
                Standing::Unmarked
            }
            Comparison::Matches {
                delivery_limit_inactive,
            } => Standing::Serves(Serving {
                url: None,
                delivery_limit_inactive,
            }),
        };
        Seen {
            standing,
            depth: depth_of(found),
        }
    }

    async fn create(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        // Another cluster may have been faster.
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
            Standing::Serves(serving) => Ok(serving),
            Standing::Differs { wanted, found } => Err(BrokerError::Mismatch(format!(
                "queue {} has {found}, wanted is {wanted}",
                queue.names.queue
            ))),
            Standing::Absent | Standing::Drifted | Standing::Unmarked => {
                Err(BrokerError::Throttled(format!(
                    "queue {} is being changed by somebody else",
                    queue.names.queue
                )))
            }
        }
    }

    /// One that exists may have other arguments: it takes what is dead all the same. One that all queues share is never
    /// deleted, so it needs no mark (QUE-39).
    async fn declare_dlq(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
    ) -> Result<(), BrokerError> {
        let Some(dlq) = &wanted.dlq else {
            return Ok(());
        };
        let bindings = if dlq.shared {
            Bindings::default()
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
            // It needs a right that dead letters did not need before; without its mark it is only never deleted.
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

    /// Lets senders reach the queue (RMQ-4). The binding by its name carries the mark, too.
    async fn route(
        &self,
        wanted: &QueueDeclaration,
        queue: &QueueOf,
        bindings: &Bindings,
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
        // Somebody deleted the exchange since.
        self.declare_exchange(exchange).await?;
        if self.bind(queue, body).await? {
            return Ok(());
        }
        let text = format!("queue {queue} or its exchange vanishes again and again");
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

    /// `false` when there is no such exchange, or no such queue.
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
    /// Of a queue that is not there, or that is not ours to change.
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
    fn observe<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Seen, BrokerError>> {
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
    ) -> BoxFuture<'a, Vec<Result<Seen, BrokerError>>> {
        self.survey(queues).boxed()
    }

    fn depths<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Count, BrokerError>>> {
        self.depths(queues).boxed()
    }
}
