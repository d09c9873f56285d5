//! A client for RabbitMQ's management API, for tests.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{ADMIN, AccessLog, OPERATOR_PASSWORD};
use crate::cluster::RabbitMqState;
use crate::error::{Error, Result};
use crate::eventually::{check, eventually};

/// The administrator's client for a cluster's virtual host.
#[derive(Debug, Clone)]
pub struct RabbitMq {
    state: RabbitMqState,
    client: reqwest::Client,
}

/// A queue as reported by the management API.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Queue {
    /// The queue's name.
    pub name: String,
    /// Whether it survives a broker restart.
    #[serde(default)]
    pub durable: bool,
    /// Whether it is deleted with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// `classic` or `quorum`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// The queue's arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The number of messages. Absent right after the declaration, and about a second out of date.
    pub messages: Option<u64>,
    /// The messages ready for delivery.
    pub messages_ready: Option<u64>,
    /// The messages delivered but not acknowledged.
    pub messages_unacknowledged: Option<u64>,
}

/// A queue binding: from an exchange to a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct QueueBinding {
    /// The exchange; empty for the default exchange.
    pub source: String,
    /// The queue.
    pub destination: String,
    /// The routing key.
    pub routing_key: String,
}

impl RabbitMq {
    pub(crate) fn new(state: &RabbitMqState) -> Result<Self> {
        Ok(Self {
            state: state.clone(),
            client: crate::http_client()?,
        })
    }

    /// The broker's addresses.
    #[must_use]
    pub fn state(&self) -> &RabbitMqState {
        &self.state
    }

    /// The user of the cluster's operator, which identifies the operator's requests in the access log.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.state.user
    }

    fn vhost(&self) -> &str {
        &self.state.vhost
    }

    /// The path prefix of the management API for objects of this kind in the virtual host, as it appears in the access
    /// log.
    #[must_use]
    pub fn path_of(&self, kind: &str) -> String {
        let vhost = self.vhost().replace('/', "%2F");
        format!("/api/{kind}/{vhost}")
    }

    /// The URL of the management API: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn management_url(&self) -> String {
        format!("http://{}:{}", self.state.host, self.state.management_port)
    }

    /// The same client, through a proxy on this port.
    ///
    /// # Errors
    /// When the client cannot be created.
    pub fn through(&self, port: u16) -> Result<Self> {
        Self::new(&RabbitMqState {
            management_port: port,
            ..self.state.clone()
        })
    }

    /// The access log of the management API.
    #[must_use]
    pub fn access_log(&self) -> AccessLog {
        AccessLog::new(self.state.access_log.clone())
    }

    /// Lists all queues.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn queues(&self) -> Result<Vec<Queue>> {
        self.get(&["queues", self.vhost()])
            .await
            .map(Option::unwrap_or_default)
    }

    /// Returns a queue, if it exists.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        self.get(&["queues", self.vhost(), name]).await
    }

    /// Declares a queue.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn declare(&self, name: &str, arguments: Value) -> Result<()> {
        let body = json!({"durable": true, "auto_delete": false, "arguments": arguments});
        self.send(
            self.request(Method::PUT, &["queues", self.vhost(), name])?
                .json(&body),
        )
        .await
        .map(drop)
    }

    /// Deletes a queue; returns whether it existed.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn delete_queue(&self, name: &str) -> Result<bool> {
        let answer = self
            .request(Method::DELETE, &["queues", self.vhost(), name])?
            .send()
            .await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(false),
            status if status.is_success() => Ok(true),
            status => Err(Error::Other(format!(
                "RabbitMQ: DELETE of queue {name}: {status}"
            ))),
        }
    }

    /// Publishes a message; returns whether it was routed to a queue.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn publish(&self, exchange: &str, routing_key: &str, payload: &str) -> Result<bool> {
        let exchange = if exchange.is_empty() {
            "amq.default"
        } else {
            exchange
        };
        let body = json!({
            "properties": {"delivery_mode": 2}, "routing_key": routing_key, "payload": payload, "payload_encoding": "string",
        });
        let request = self
            .request(
                Method::POST,
                &["exchanges", self.vhost(), exchange, "publish"],
            )?
            .json(&body);
        let answer: Value = self.send(request).await?.json().await?;
        Ok(answer["routed"] == true)
    }

    /// Gets up to `count` messages from a queue and returns their payloads; with `requeue` they are put back. Unlike
    /// [`Queue::messages`], this is exact.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn messages(&self, queue: &str, count: usize, requeue: bool) -> Result<Vec<String>> {
        let mode = if requeue {
            "ack_requeue_true"
        } else {
            "ack_requeue_false"
        };
        self.messages_by(queue, count, mode).await
    }

    /// Rejects the first message of a queue, which a quorum queue counts as a failed delivery, and puts it back.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn reject(&self, queue: &str) -> Result<()> {
        eventually(
            format!("a message is in {queue}"),
            Duration::from_secs(10),
            async || {
                let found = self.messages_by(queue, 1, "reject_requeue_true").await?;
                check(!found.is_empty(), "none is")
            },
        )
        .await
    }

    async fn messages_by(&self, queue: &str, count: usize, mode: &str) -> Result<Vec<String>> {
        let body = json!({"count": count, "ackmode": mode, "encoding": "auto"});
        let request = self
            .request(Method::POST, &["queues", self.vhost(), queue, "get"])?
            .json(&body);
        let answer: Vec<Value> = self.send(request).await?.json().await?;
        Ok(answer
            .iter()
            .filter_map(|message| message["payload"].as_str().map(str::to_owned))
            .collect())
    }

    /// Waits for at least `count` messages in a queue, and takes all that are there.
    ///
    /// # Errors
    /// After the timeout, or when a message is not JSON.
    pub async fn take(&self, queue: &str, count: usize, timeout: Duration) -> Result<Vec<Value>> {
        let mut found: Vec<Value> = Vec::new();
        let what = format!("{count} messages are in {queue}");
        eventually(what, timeout, async || {
            for message in self.messages(queue, 1000, false).await? {
                found.push(serde_json::from_str(&message)?);
            }
            check(found.len() >= count, format_args!("{} are", found.len()))
        })
        .await?;
        Ok(found)
    }

    /// Lists the queue bindings of a queue.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn queue_bindings(&self, queue: &str) -> Result<Vec<QueueBinding>> {
        let found: Option<Vec<QueueBinding>> = self
            .get(&["queues", self.vhost(), queue, "bindings"])
            .await?;
        let mut bindings = found.unwrap_or_default();
        bindings.sort();
        Ok(bindings)
    }

    /// Returns an exchange, if it exists.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn exchange(&self, name: &str) -> Result<Option<Value>> {
        self.get(&["exchanges", self.vhost(), name]).await
    }

    /// Creates the virtual host, the administrator and the operator's user.
    ///
    /// # Errors
    /// When a request fails.
    pub(crate) async fn set_up(&self) -> Result<()> {
        let vhost = self.request(Method::PUT, &["vhosts", self.vhost()])?;
        self.send(vhost.json(&json!({}))).await?;
        self.add_user(ADMIN, ADMIN, "administrator").await?;
        self.add_user(self.user(), OPERATOR_PASSWORD, "management")
            .await
    }

    /// Creates a user with all permissions on the virtual host, or updates its password and tags.
    ///
    /// # Errors
    /// When a request fails.
    pub async fn add_user(&self, name: &str, password: &str, tags: &str) -> Result<()> {
        let user = json!({"password": password, "tags": tags});
        self.send(self.request(Method::PUT, &["users", name])?.json(&user))
            .await?;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.send(
            self.request(Method::PUT, &["permissions", self.vhost(), name])?
                .json(&all),
        )
        .await
        .map(drop)
    }

    /// Builds a request to the management API. The segments of the path below `/api` are percent-encoded.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn request(&self, method: Method, path: &[&str]) -> Result<RequestBuilder> {
        let mut url = Url::parse(&self.management_url()).map_err(Error::other)?;
        url.path_segments_mut()
            .map_err(|()| Error::other("not a base URL"))?
            .push("api")
            .extend(path);
        Ok(self
            .client
            .request(method, url)
            .basic_auth(ADMIN, Some(ADMIN)))
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>> {
        let answer = self.request(Method::GET, path)?.send().await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(answer.error_for_status()?.json().await?))
    }

    async fn send(&self, request: RequestBuilder) -> Result<reqwest::Response> {
        let answer = request.send().await?;
        let (status, url) = (answer.status(), answer.url().clone());
        if status.is_success() {
            return Ok(answer);
        }
        Err(Error::Other(format!(
            "RabbitMQ: {url}: {status} {}",
            answer.text().await?
        )))
    }
}
