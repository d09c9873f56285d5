//! What a test asks of RabbitMQ, by the management API.

use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{ADMIN, AccessLog, OPERATOR_PASSWORD};
use crate::cluster::RabbitMqState;
use crate::error::{Error, Result};

/// The administrator's client, for the virtual host of its cluster.
#[derive(Debug, Clone)]
pub struct RabbitMq {
    state: RabbitMqState,
    client: reqwest::Client,
}

/// A queue as the management API tells it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether it outlives the broker.
    #[serde(default)]
    pub durable: bool,
    /// Whether it goes with its last consumer.
    #[serde(default)]
    pub auto_delete: bool,
    /// `classic` or `quorum`.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// Messages in it; absent just after the declaration, about a second late.
    pub messages: Option<u64>,
    /// Of these, ready.
    pub messages_ready: Option<u64>,
    /// Of these, with a consumer.
    pub messages_unacknowledged: Option<u64>,
}

/// A binding of a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Binding {
    /// The exchange; empty for the default one.
    pub source: String,
    /// The queue.
    pub destination: String,
    /// The key.
    pub routing_key: String,
}

impl RabbitMq {
    pub(crate) fn new(state: &RabbitMqState) -> Result<Self> {
        Ok(Self {
            state: state.clone(),
            client: crate::http_client()?,
        })
    }

    /// Addresses.
    #[must_use]
    pub fn state(&self) -> &RabbitMqState {
        &self.state
    }

    /// The user of the cluster's operator, by whom the access log tells its calls.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.state.user
    }

    fn vhost(&self) -> &str {
        &self.state.vhost
    }

    /// The start of a path of the management API about this kind of objects of the virtual host, as the access log has it.
    #[must_use]
    pub fn path_of(&self, kind: &str) -> String {
        let vhost = self.vhost().replace('/', "%2F");
        format!("/api/{kind}/{vhost}")
    }

    /// `http://127.0.0.1:PORT` of the management API.
    #[must_use]
    pub fn management_url(&self) -> String {
        format!("http://{}:{}", self.state.host, self.state.management_port)
    }

    /// The same through a proxy on this port.
    ///
    /// # Errors
    /// When no client can be made.
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

    /// All queues.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn queues(&self) -> Result<Vec<Queue>> {
        self.get(&["queues", self.vhost()])
            .await
            .map(Option::unwrap_or_default)
    }

    /// One queue, if it is there.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn queue(&self, name: &str) -> Result<Option<Queue>> {
        self.get(&["queues", self.vhost(), name]).await
    }

    /// Declares a queue.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn declare(&self, name: &str, arguments: Value) -> Result<()> {
        let body = json!({"durable": true, "auto_delete": false, "arguments": arguments});
        self.send(
            self.request(Method::PUT, &["queues", self.vhost(), name])?
                .json(&body),
        )
        .await
        .map(drop)
    }

    /// Deletes a queue; true if it was there.
    ///
    /// # Errors
    /// When the call fails.
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

    /// Publishes a message; true if it reached a queue.
    ///
    /// # Errors
    /// When the call fails.
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

    /// Takes up to `count` messages out of a queue and returns their payloads;
    /// with `requeue` they stay in it. Unlike [`Queue::messages`] this is exact.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn messages(&self, queue: &str, count: usize, requeue: bool) -> Result<Vec<String>> {
        let mode = if requeue {
            "ack_requeue_true"
        } else {
            "ack_requeue_false"
        };
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

    /// The bindings of a queue.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn bindings(&self, queue: &str) -> Result<Vec<Binding>> {
        let found: Option<Vec<Binding>> = self
            .get(&["queues", self.vhost(), queue, "bindings"])
            .await?;
        let mut bindings = found.unwrap_or_default();
        bindings.sort();
        Ok(bindings)
    }

    /// An exchange, if it is there.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn exchange(&self, name: &str) -> Result<Option<Value>> {
        self.get(&["exchanges", self.vhost(), name]).await
    }

    /// Makes the virtual host and its operator's user.
    ///
    /// # Errors
    /// When a call fails.
    pub(crate) async fn set_up(&self) -> Result<()> {
        let vhost = self.request(Method::PUT, &["vhosts", self.vhost()])?;
        self.send(vhost.json(&json!({}))).await?;
        self.add_user(ADMIN, ADMIN, "administrator").await?;
        self.add_user(self.user(), OPERATOR_PASSWORD, "management")
            .await
    }

    /// Makes a user with all rights on the virtual host, or changes its
    /// password and tags.
    ///
    /// # Errors
    /// When a call fails.
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

    /// A call of the management API: the path's segments below `/api` are escaped.
    ///
    /// # Errors
    /// When the address is wrong.
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
