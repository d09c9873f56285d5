//! RabbitMQ by its management API (RMQ-2): one HTTP client, no channel state.

mod http;
mod lists;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use asya_shared::transport::QueueOf;
use asya_shared::transport::rabbitmq::{Comparison, FoundQueue, QueueDeclaration};
use asya_shared::transport::sqs::Owner;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::gate::{Gate, Operation};
use super::zeros::Zeros;
use super::{BrokerError, Depth, Emptied, QueueClient, Seen, Serving, Standing};
use http::Api;

pub use http::Login;

/// RabbitMQ's counts lag by 5 s (RMQ-6).
const LAG: Duration = Duration::from_secs(10);

/// A broker, and who we are there.
pub struct Rabbitmq {
    config: RabbitmqConfig,
    api: Api,
    /// Whether the exchange was declared; it goes with nothing that we do.
    exchange: AtomicBool,
    zeros: Zeros,
}

/// A queue that an exchange reaches, and by which key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
struct Binding {
    source: String,
    destination: String,
    routing_key: String,
}

type Bindings = HashSet<Binding>;

impl Rabbitmq {
    /// A client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` when address or certificate authority cannot be used.
    pub fn new(
        transport: &str,
        config: RabbitmqConfig,
        login: Login,
        gate: Arc<Gate>,
    ) -> Result<Self, BrokerError> {
        Ok(Self {
            api: Api::new(transport, &config, login, gate)?,
            config,
            exchange: AtomicBool::new(false),
            zeros: Zeros::new(LAG),
        })
    }

    async fn find(&self, name: &str) -> Result<Option<FoundQueue>, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, name]);
        self.api.get("observe", &format!("queue {name}"), url).await
    }

    async fn look(&self, queue: &QueueOf) -> Result<Seen, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        let found = self.find(&wanted.name).await?;
        let complete = found.is_none() || self.is_complete(&wanted).await?;
        Ok(self.standing(&wanted, found.as_ref(), complete))
    }

    /// Whether what belongs to a queue is there: its dead letter queue, and the way to it.
    async fn is_complete(&self, wanted: &QueueDeclaration) -> Result<bool, BrokerError> {
        if !self.config.queues.auto_create {
            return Ok(true);
        }
        if let Some(dlq) = &wanted.dlq
            && self.find(&dlq.name).await?.is_none()
        {
            return Ok(false);
        }
        let segments = ["queues", &self.config.vhost, &wanted.name, "bindings"];
        let what = format!("the bindings of queue {}", wanted.name);
        let url = self.api.url(&segments);
        let bindings: Option<Bindings> = self.api.get("bindings", &what, url).await?;
        Ok(reaches(wanted, &bindings.unwrap_or_default()))
    }

    fn standing(
        &self,
        wanted: &QueueDeclaration,
        found: Option<&FoundQueue>,
        complete: bool,
    ) -> Seen {
        let Some(found) = found else {
            return Seen {
                standing: Standing::Absent,
                depth: None,
            };
        };
        let standing = match wanted.compare(found) {
            Comparison::Mismatch { wanted, found } => Standing::Differs { wanted, found },
            Comparison::Matches { .. } if !complete && self.config.queues.auto_create => {
                Standing::Drifted
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
        self.declare_dlq(&wanted).await?;
        self.put_queue(&wanted.name, &wanted.body()).await?;
        self.route(&wanted).await?;
        Ok(Serving::default())
    }

    async fn update(&self, queue: &QueueOf) -> Result<Serving, BrokerError> {
        let wanted = self.config.declaration(&queue.names);
        self.declare_dlq(&wanted).await?;
        self.route(&wanted).await?;
        match self.look(queue).await?.standing {
            Standing::Serves(serving) => Ok(serving),
            Standing::Differs { wanted, found } => Err(BrokerError::Mismatch(format!(
                "queue {} has {found}, wanted is {wanted}",
                queue.names.queue
            ))),
            Standing::Absent | Standing::Drifted => Err(BrokerError::Throttled(format!(
                "queue {} is being changed by somebody else",
                queue.names.queue
            ))),
        }
    }

    /// One that exists may have other arguments: it takes what is dead all the same.
    async fn declare_dlq(&self, wanted: &QueueDeclaration) -> Result<(), BrokerError> {
        let Some(dlq) = &wanted.dlq else {
            return Ok(());
        };
        match self.put_queue(&dlq.name, &dlq.body()).await {
            Err(BrokerError::Mismatch(_)) => Ok(()),
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

    /// Lets senders reach the queue (RMQ-4).
    async fn route(&self, wanted: &QueueDeclaration) -> Result<(), BrokerError> {
        if !self.exchange.load(Ordering::Acquire) {
            self.declare_exchange(&wanted.exchange).await?;
        }
        for key in &wanted.bindings {
            if self.bind(wanted, key).await? {
                continue;
            }
            // Somebody deleted the exchange since.
            self.declare_exchange(&wanted.exchange).await?;
            if !self.bind(wanted, key).await? {
                let text = format!(
                    "queue {} or its exchange vanishes again and again",
                    wanted.name
                );
                return Err(BrokerError::Throttled(text));
            }
        }
        Ok(())
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
    async fn bind(&self, wanted: &QueueDeclaration, key: &str) -> Result<bool, BrokerError> {
        let (queue, exchange) = (&wanted.name, &wanted.exchange);
        let segments = ["bindings", &self.config.vhost, "e", exchange, "q", queue];
        let (url, body) = (self.api.url(&segments), json!({"routing_key": key}));
        let operation = Operation::write("bind");
        let answer = self
            .api
            .send(operation, Method::POST, url, Some(&body))
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

    async fn delete(&self, queue: &str) -> Result<(), BrokerError> {
        self.remove(queue, &[]).await.map(drop)
    }

    /// Whether it is gone: on conditions the broker may refuse.
    async fn remove(&self, queue: &str, conditions: &[&str]) -> Result<bool, BrokerError> {
        let mut url = self.api.url(&["queues", &self.config.vhost, queue]);
        for condition in conditions {
            url.query_pairs_mut().append_pair(condition, "true");
        }
        let operation = Operation::write("delete");
        let answer = self.api.send(operation, Method::DELETE, url, None).await?;
        match answer.status {
            _ if answer.is_absent() => Ok(true),
            status if status.is_success() => Ok(true),
            StatusCode::BAD_REQUEST if !conditions.is_empty() => Ok(false),
            _ => Err(self.api.refusal(&format!("queue {queue}"), &answer)),
        }
    }

    async fn delete_if_empty(&self, queue: &str) -> Result<Emptied, BrokerError> {
        let Some(found) = self.find(queue).await? else {
            return Ok(Emptied::Gone);
        };
        let used = found.consumers > 0 || depth_of(&found).unwrap_or_default() != Depth::default();
        if used {
            self.zeros.forget(queue);
            return Ok(Emptied::Kept);
        }
        if found.knows_if_empty() {
            let gone = self.remove(queue, &["if-empty", "if-unused"]).await?;
            return Ok(if gone { Emptied::Gone } else { Emptied::Kept });
        }
        if let Some(left) = self.zeros.again(queue) {
            return Ok(Emptied::Later(left));
        }
        if self.holds_a_message(queue).await? {
            return Ok(Emptied::Kept);
        }
        self.remove(queue, &[]).await?;
        Ok(Emptied::Gone)
    }

    /// A message that is there goes back to where it was.
    async fn holds_a_message(&self, queue: &str) -> Result<bool, BrokerError> {
        let url = self.api.url(&["queues", &self.config.vhost, queue, "get"]);
        let body =
            json!({"count": 1, "ackmode": "ack_requeue_true", "encoding": "base64", "truncate": 1});
        let operation = Operation::write("get");
        let answer = self
            .api
            .send(operation, Method::POST, url, Some(&body))
            .await?;
        if answer.is_absent() {
            return Ok(false);
        }
        let messages: Vec<Value> = self.api.decode(&format!("queue {queue}"), &answer)?;
        Ok(!messages.is_empty())
    }
}

/// Whether all wanted bindings are among these.
fn reaches(wanted: &QueueDeclaration, bindings: &Bindings) -> bool {
    wanted.bindings.iter().all(|key| {
        bindings.contains(&Binding {
            source: wanted.exchange.clone(),
            destination: wanted.name.clone(),
            routing_key: key.clone(),
        })
    })
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
        _owner: &'a Owner,
    ) -> BoxFuture<'a, Result<(), BrokerError>> {
        self.delete(queue).boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        _owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Emptied, BrokerError>> {
        self.delete_if_empty(queue).boxed()
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
    ) -> BoxFuture<'a, Vec<Result<Option<Depth>, BrokerError>>> {
        self.depths(queues).boxed()
    }
}
