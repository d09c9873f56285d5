//! RabbitMQ: names, the sidecar's environment, the queue to declare, and how an existing one differs (RMQ-3 to RMQ-5,
//! POD-3).

mod kept;

use asya_wire::env as variable;
use asya_wire::percent;
use asya_wire::queue::{Naming, PREFIX, route_name};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

use super::env::referring;
use super::ownership::{CLUSTER, OwnerTag};
use super::{ActorQueue, Broker, from_secret, text};
use crate::api::EnvVar;
use crate::config::{QueueNames, QueueType, QueuesConfig, RabbitmqConfig};
use crate::hash;
use crate::scaling::{self, Trigger, TriggerError, TriggerRequest};

pub use kept::KeptSetting;

const MILLISECONDS_PER_DAY: u64 = 86_400_000;

const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
const DEAD_LETTER_KEY: &str = "x-dead-letter-routing-key";
const DELIVERY_LIMIT: &str = "x-delivery-limit";
const MESSAGE_TTL: &str = "x-message-ttl";
const QUEUE_TYPE: &str = "x-queue-type";

/// Arguments of the queue binding that carries an owner tag, besides [`CLUSTER`].
const NAMESPACE: &str = "asya.sh/namespace";
const ACTOR: &str = "asya.sh/actor";

/// Routing keys by which a queue is bound to the exchange that senders publish to (RMQ-4).
#[must_use]
pub fn routing_keys(queue: &str) -> Vec<String> {
    vec![route_name(queue).to_owned(), queue.to_owned()]
}

/// The other queue that may have this queue's first routing key, because the key could be its name: queue `asya-x` gets
/// a copy of every message that senders publish to the exchange for queue `asya-asya-x` (RMQ-4).
#[must_use]
pub fn queue_with_same_key(queue: &str) -> Option<&str> {
    let key = route_name(queue);
    (key != queue && key.starts_with(PREFIX)).then_some(key)
}

/// The queue to declare. It is durable and never deleted automatically.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueDeclaration {
    /// The queue's name.
    pub name: String,
    /// Whether the queue survives a broker restart.
    pub durable: bool,
    /// Whether the queue is deleted with its last consumer.
    pub auto_delete: bool,
    /// The queue's arguments.
    pub arguments: Map<String, Value>,
    /// The durable topic exchange that senders publish to.
    pub exchange: String,
    /// Routing keys that bind the queue to that exchange.
    pub routing_keys: Vec<String>,
    /// The dead letter queue, to be declared first.
    pub dlq: Option<DlqDeclaration>,
    queue_type: QueueType,
}

/// The dead letter queue to declare first. It is durable and never deleted automatically.
#[derive(Clone, Debug, PartialEq)]
pub struct DlqDeclaration {
    /// The queue's name.
    pub name: String,
    /// The queue's arguments.
    pub arguments: Map<String, Value>,
    /// Whether all queues of the transport share it, so that it belongs to no cluster.
    pub shared: bool,
}

/// A queue as the management API returns it, reduced to what we compare.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct FoundQueue {
    /// Whether the queue survives a broker restart.
    #[serde(default)]
    pub durable: bool,
    /// Whether the queue is deleted with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// The queue's arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The queue's type, even if it is the vhost's default.
    #[serde(default, rename = "type")]
    pub queue_type: Option<String>,
    /// The values that policies of the broker set; empty if they were not read.
    #[serde(
        default,
        rename = "effective_policy_definition",
        deserialize_with = "object_or_empty"
    )]
    pub policy: Map<String, Value>,
    /// Ready messages; missing until the broker has collected statistics.
    #[serde(default)]
    pub messages_ready: Option<u64>,
    /// Unacknowledged messages; missing until the broker has collected statistics.
    #[serde(default)]
    pub messages_unacknowledged: Option<u64>,
    /// Number of consumers.
    #[serde(default)]
    pub consumers: u64,
}

/// How an existing queue compares with the declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The queue can be used.
    Matches {
        /// Failing messages are redelivered without limit (Event `DeliveryLimitInactive`).
        delivery_limit_inactive: bool,
    },
    /// The queue cannot be used, and we do not recreate it (QUE-6).
    Mismatch {
        /// The declared values that differ.
        desired: String,
        /// The existing values.
        found: String,
    },
}

impl Broker for RabbitmqConfig {
    fn type_name(&self) -> &'static str {
        "rabbitmq"
    }

    fn product(&self) -> &'static str {
        "RabbitMQ"
    }

    fn queues(&self) -> &QueuesConfig {
        &self.queues
    }

    fn mismatch_remedy(&self) -> &'static str {
        "a queue cannot be changed without losing its messages: delete it when it is empty, or change the transport's configuration"
    }

    fn accepts_name(&self, name: &str) -> bool {
        Naming::RabbitMq.accepts(name)
    }

    fn sidecar_env(&self) -> Vec<EnvVar> {
        let password = self.password_secret_ref.as_ref();
        [
            Some(text(variable::TRANSPORT, self.type_name())),
            Some(text(variable::RABBITMQ_HOST, &self.host)),
            Some(text(variable::RABBITMQ_PORT, &self.port.to_string())),
            Some(text(variable::RABBITMQ_USERNAME, &self.username)),
            password.map(|secret| from_secret(variable::RABBITMQ_PASSWORD, secret)),
            Some(text(variable::RABBITMQ_EXCHANGE, &self.exchange)),
            Some(text(
                variable::QUEUE_AUTO_CREATE,
                &self.queues.auto_create.to_string(),
            )),
            Some(text(variable::QUEUE_RETRY_MAX_ATTEMPTS, "1")),
            self.sidecar_url(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn address_variables(&self) -> &'static [&'static str] {
        &[
            variable::TRANSPORT,
            variable::RABBITMQ_HOST,
            variable::RABBITMQ_PORT,
            variable::RABBITMQ_URL,
        ]
    }

    fn own_sidecar_env(&self) -> Vec<EnvVar> {
        let vhost = (self.vhost != "/").then(|| text(variable::RABBITMQ_VHOST, &self.vhost));
        let tls = self.tls.then(|| text(variable::RABBITMQ_TLS, "true"));
        vhost.into_iter().chain(tls).collect()
    }

    fn address(&self, queue: &str) -> Value {
        let address = &self.management;
        json!([
            self.type_name(),
            address.host,
            address.port,
            self.vhost,
            queue
        ])
    }

    fn desired(&self, queue: &ActorQueue) -> Value {
        let desired = self.declaration(&queue.names);
        json!({
            "at": self.address(&desired.name),
            "created": self.queues.auto_create,
            "type": format!("{:?}", desired.queue_type),
            "queue": desired.body(),
            "exchange": [desired.exchange, desired.routing_keys],
            "dlq": desired.dlq.as_ref().map(|dlq| json!([dlq.name, dlq.body()])),
        })
    }

    fn trigger(&self, request: &TriggerRequest<'_>) -> Result<Trigger, TriggerError> {
        Ok(scaling::rabbitmq::trigger(self, request))
    }
}

impl RabbitmqConfig {
    /// Sidecars build `amqp://USER:PASSWORD@HOST:PORT/` themselves; any other URL must be passed to them.
    fn sidecar_url(&self) -> Option<EnvVar> {
        if let Some(secret) = &self.url_secret_ref {
            return Some(from_secret(variable::RABBITMQ_URL, secret));
        }
        if !self.tls && self.vhost == "/" {
            return None;
        }
        let scheme = if self.tls { "amqps" } else { "amqp" };
        let user = percent::encode(&self.username);
        // by reference where possible, so that spec.sidecar.env can override it
        let user = if user == self.username {
            "$(ASYA_RABBITMQ_USERNAME)"
        } else {
            &user
        };
        let password = if self.password_secret_ref.is_some() {
            "$(ASYA_RABBITMQ_PASSWORD)"
        } else {
            variable::DEFAULT_RABBITMQ_USER
        };
        let vhost = percent::encode(&self.vhost);
        let url = format!(
            "{scheme}://{user}:{password}@$(ASYA_RABBITMQ_HOST):$(ASYA_RABBITMQ_PORT)/{vhost}"
        );
        Some(referring(variable::RABBITMQ_URL, &url))
    }

    /// The declaration of an actor's queue.
    #[must_use]
    pub fn declaration(&self, names: &QueueNames) -> QueueDeclaration {
        QueueDeclaration {
            name: names.queue.clone(),
            durable: true,
            auto_delete: false,
            arguments: self.arguments(names.dlq.as_deref()),
            exchange: self.exchange.clone(),
            routing_keys: routing_keys(&names.queue),
            dlq: names.dlq.as_ref().map(|name| self.dlq_declaration(name)),
            queue_type: self.queues.queue_type,
        }
    }

    fn arguments(&self, dlq: Option<&str>) -> Map<String, Value> {
        let mut arguments = Map::new();
        if let Some(dlq) = dlq {
            arguments.insert(DEAD_LETTER_EXCHANGE.to_owned(), Value::from(""));
            arguments.insert(DEAD_LETTER_KEY.to_owned(), Value::from(dlq));
        }
        match (self.queues.queue_type, dlq) {
            (QueueType::Classic, _) => {
                arguments.insert(QUEUE_TYPE.to_owned(), Value::from("classic"));
            }
            (QueueType::Auto, None) => {}
            (QueueType::Auto | QueueType::Quorum, _) => {
                arguments.insert(QUEUE_TYPE.to_owned(), Value::from("quorum"));
                if dlq.is_some() {
                    let limit = Value::from(self.queues.dlq.max_retry_count);
                    arguments.insert(DELIVERY_LIMIT.to_owned(), limit);
                }
            }
        }
        arguments
    }

    fn dlq_declaration(&self, name: &str) -> DlqDeclaration {
        let mut arguments = Map::new();
        if let Some(days) = self.queues.dlq.retention_days {
            let milliseconds = Value::from(u64::from(days) * MILLISECONDS_PER_DAY);
            arguments.insert(MESSAGE_TTL.to_owned(), milliseconds);
        }
        DlqDeclaration {
            name: name.to_owned(),
            arguments,
            shared: self.queues.dlq.is_shared(),
        }
    }
}

impl QueueDeclaration {
    /// The body of the request that creates it.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({"durable": self.durable, "auto_delete": self.auto_delete, "arguments": self.arguments})
    }

    /// Compares an existing queue with the declaration. A queue is immutable, so a mismatch would be permanent: only
    /// report one for what makes a queue lose or loop messages and for an explicitly configured type.
    #[must_use]
    pub fn compare(&self, found: &FoundQueue) -> Comparison {
        let mut difference = Difference::default();
        difference.compare(
            "durable",
            &self.durable.to_string(),
            &found.durable.to_string(),
        );
        difference.compare(
            "auto_delete",
            &self.auto_delete.to_string(),
            &found.auto_delete.to_string(),
        );
        for key in [DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY] {
            difference.compare(
                key,
                &shown(self.arguments.get(key)),
                &shown(found.arguments.get(key)),
            );
        }
        let kind = found.kind();
        match self.queue_type {
            QueueType::Auto if kind == "stream" => {
                difference.compare("type", "classic or quorum", kind);
            }
            QueueType::Auto => {}
            QueueType::Classic => difference.compare("type", "classic", kind),
            QueueType::Quorum => difference.compare("type", "quorum", kind),
        }
        if !difference.desired.is_empty() {
            return Comparison::Mismatch {
                desired: difference.desired,
                found: difference.found,
            };
        }
        Comparison::Matches {
            delivery_limit_inactive: self.dlq.is_some() && kind != "quorum",
        }
    }
}

impl OwnerTag {
    /// The arguments of the queue binding that carries the owner tag. A topic exchange ignores these arguments, so they
    /// can tag a queue whose own arguments are immutable.
    #[must_use]
    pub fn arguments(&self) -> Value {
        json!({CLUSTER: self.cluster, NAMESPACE: self.namespace, ACTOR: self.actor})
    }

    /// Reads an owner tag from the arguments of a queue binding; `None` if they contain none.
    #[must_use]
    pub fn of_arguments(arguments: &Value) -> Option<Self> {
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        Some(Self {
            cluster: text(CLUSTER)?.to_owned(),
            namespace: text(NAMESPACE).unwrap_or_default().to_owned(),
            actor: text(ACTOR).unwrap_or_default().to_owned(),
        })
    }
}

impl DlqDeclaration {
    /// Routing key of the queue binding that carries the queue's owner tag. No sender publishes with it. Every queue
    /// has its own key, because a topic exchange keeps all bindings of one key in one place, which must not grow with
    /// the number of queues.
    #[must_use]
    pub fn owner_tag_routing_key(&self) -> String {
        format!("asya.sh/owner-{}", hash::of_bytes(self.name.as_bytes()))
    }

    /// The body of the request that creates it.
    #[must_use]
    pub fn body(&self) -> Value {
        json!({"durable": true, "auto_delete": false, "arguments": self.arguments})
    }
}

impl FoundQueue {
    /// Whether the broker can delete the queue conditionally, only if it is empty (RMQ-6).
    #[must_use]
    pub fn supports_delete_if_empty(&self) -> bool {
        self.kind() == "classic"
    }

    /// Brokers before 3.8 have a single queue type and do not report it.
    fn kind(&self) -> &str {
        let argument = || self.arguments.get(QUEUE_TYPE).and_then(Value::as_str);
        self.queue_type
            .as_deref()
            .or_else(argument)
            .unwrap_or("classic")
    }
}

/// The two sides of a mismatch, each as `key=value, key=value`.
#[derive(Default)]
struct Difference {
    desired: String,
    found: String,
}

impl Difference {
    fn compare(&mut self, key: &str, desired: &str, found: &str) {
        if desired == found {
            return;
        }
        for (side, value) in [(&mut self.desired, desired), (&mut self.found, found)] {
            let comma = if side.is_empty() { "" } else { ", " };
            // writing to a String cannot fail
            let _ = write!(side, "{comma}{key}={value}");
        }
    }
}

/// RabbitMQ shows an object without fields as an empty list, or as null.
fn object_or_empty<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Map<String, Value>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Object(fields) => fields,
        _ => Map::new(),
    })
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "none".to_owned(), Value::to_string)
}

#[cfg(test)]
mod tests;
