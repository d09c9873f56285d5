//! RabbitMQ by its management API (RMQ-2): one HTTP client, no channel state.

use std::sync::Arc;

use asya_shared::config::RabbitmqConfig;
use asya_shared::transport::QueueNames;
use asya_shared::transport::rabbitmq::{Comparison, FoundQueue};
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::{Method, Response, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

use super::error::{CALL_TIMEOUT, CONNECT_TIMEOUT};
use super::{BrokerError, QueueClient, Standing};
use crate::fence::Fence;
use crate::metrics::Metrics;

/// Who we are at a broker.
pub struct Login {
    /// Password of the configured user.
    pub password: Arc<str>,
    /// PEM bundle that the management API's certificate is checked against.
    pub ca: Option<Arc<str>>,
}

/// A broker and who we are there.
pub struct Rabbitmq {
    transport: String,
    config: RabbitmqConfig,
    password: Arc<str>,
    http: reqwest::Client,
    base: Url,
    /// The calls to one broker that may run at once (QUE-9); shared by its clients.
    calls: Arc<Semaphore>,
    exchange: OnceCell<()>,
    fence: Fence,
    metrics: Arc<Metrics>,
}

/// The body of an answer that is no success.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Refusal {
    reason: String,
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
        calls: Arc<Semaphore>,
        fence: Fence,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BrokerError> {
        let invalid = |error: &dyn std::fmt::Display| {
            BrokerError::ConfigInvalid(format!("transport {transport:?}: management API: {error}"))
        };
        let base = Url::parse(&config.management.url()).map_err(|error| invalid(&error))?;
        let mut http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tls_danger_accept_invalid_certs(config.management.insecure_skip_verify);
        if let Some(ca) = &login.ca {
            let bundle = reqwest::Certificate::from_pem_bundle(ca.as_bytes())
                .map_err(|error| invalid(&error))?;
            http = http.tls_certs_merge(bundle);
        }
        let http = http.build().map_err(|error| invalid(&error))?;
        Ok(Self {
            transport: transport.to_owned(),
            config,
            password: login.password,
            http,
            base,
            calls,
            exchange: OnceCell::new(),
            fence,
            metrics,
        })
    }

    /// Each segment is percent-encoded: the default vhost is called `/`.
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push("api").extend(segments);
        }
        url
    }

    /// Sends one call; an answer of any status is `Ok`.
    async fn send(
        &self,
        operation: &'static str,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Response, BrokerError> {
        let permit = self.calls.acquire().await;
        let writes = method != Method::GET;
        let mut request = self
            .http
            .request(method, url)
            .basic_auth(&self.config.username, Some(&self.password));
        if let Some(body) = &body {
            request = request.json(body);
        }
        let call = async {
            request
                .send()
                .await
                .map_err(|error| self.unreachable(&error))
        };
        let answer = if writes {
            self.fence.guard(call).await
        } else {
            call.await
        };
        drop(permit);
        let result = answer.as_ref().map_or_else(
            |error| error.reason().to_string(),
            |answer| answer.status().as_str().to_owned(),
        );
        self.metrics
            .broker_request(&self.transport, operation, &result);
        self.metrics.transport_up(&self.transport, answer.is_ok());
        answer
    }

    /// The error's own text may hold ports and times; ours may not (QUE-11).
    fn unreachable(&self, error: &reqwest::Error) -> BrokerError {
        let what = if error.is_timeout() {
            "does not answer in time"
        } else if error.is_connect() {
            "cannot be connected to"
        } else {
            "broke the connection"
        };
        BrokerError::Unreachable(format!(
            "RabbitMQ's management API at {} {what}",
            self.config.management.url()
        ))
    }

    /// What an answer that is no success means.
    async fn refusal(&self, what: &str, answer: Response) -> BrokerError {
        let status = answer.status();
        let reason = answer.json::<Refusal>().await.unwrap_or_default().reason;
        let RabbitmqConfig {
            username, vhost, ..
        } = &self.config;
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BrokerError::AuthFailed(format!(
                "RabbitMQ refuses user {username:?}: it needs the right password, the tag management, and permissions \
                 to configure, write and read in vhost {vhost:?}"
            )),
            StatusCode::TOO_MANY_REQUESTS => {
                BrokerError::Throttled("RabbitMQ asks us to slow down".to_owned())
            }
            status if status.is_server_error() => BrokerError::Throttled(format!(
                "RabbitMQ fails at {what} with HTTP {}",
                status.as_u16()
            )),
            StatusCode::NOT_FOUND => BrokerError::ConfigInvalid(format!(
                "{what}: not found; does vhost {vhost:?} exist at the broker?"
            )),
            StatusCode::BAD_REQUEST if reason.contains("inequivalent arg") => {
                BrokerError::Mismatch(format!("{what}: {reason}"))
            }
            status => {
                BrokerError::ConfigInvalid(format!("{what}: HTTP {}: {reason}", status.as_u16()))
            }
        }
    }

    async fn must(
        &self,
        operation: &'static str,
        what: &str,
        method: Method,
        url: Url,
        body: Value,
    ) -> Result<(), BrokerError> {
        let answer = self.send(operation, method, url, Some(body)).await?;
        if answer.status().is_success() {
            Ok(())
        } else {
            Err(self.refusal(what, answer).await)
        }
    }

    async fn observe(&self, names: &QueueNames) -> Result<Standing, BrokerError> {
        let url = self.url(&["queues", &self.config.vhost, &names.queue]);
        let answer = self.send("observe", Method::GET, url, None).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(Standing::Absent);
        }
        let what = format!("queue {}", names.queue);
        if !answer.status().is_success() {
            return Err(self.refusal(&what, answer).await);
        }
        let found: FoundQueue = answer.json().await.map_err(|_| {
            BrokerError::Throttled(format!(
                "{what}: what answers at {} is not RabbitMQ",
                self.config.management.url()
            ))
        })?;
        Ok(match self.config.declaration(names).compare(&found) {
            Comparison::Matches { .. } => Standing::Serves,
            Comparison::Mismatch { wanted, found } => Standing::Differs { wanted, found },
        })
    }

    async fn create(&self, names: &QueueNames) -> Result<(), BrokerError> {
        let wanted = self.config.declaration(names);
        if let Some(dlq) = &wanted.dlq {
            self.put_queue(&dlq.name, dlq.body()).await?;
        }
        self.put_queue(&wanted.name, wanted.body()).await
    }

    async fn put_queue(&self, name: &str, body: Value) -> Result<(), BrokerError> {
        let url = self.url(&["queues", &self.config.vhost, name]);
        self.must("create", &format!("queue {name}"), Method::PUT, url, body)
            .await
    }

    async fn route(&self, names: &QueueNames) -> Result<(), BrokerError> {
        let wanted = self.config.declaration(names);
        let (vhost, exchange) = (self.config.vhost.as_str(), wanted.exchange.as_str());
        self.exchange
            .get_or_try_init(|| {
                let url = self.url(&["exchanges", vhost, exchange]);
                let body = json!({"type": "topic", "durable": true, "auto_delete": false});
                async move {
                    self.must(
                        "exchange",
                        &format!("exchange {exchange}"),
                        Method::PUT,
                        url,
                        body,
                    )
                    .await
                }
            })
            .await?;
        for key in &wanted.bindings {
            let url = self.url(&["bindings", vhost, "e", exchange, "q", &names.queue]);
            let what = format!("binding of queue {} to exchange {exchange}", names.queue);
            self.must(
                "bind",
                &what,
                Method::POST,
                url,
                json!({"routing_key": key}),
            )
            .await?;
        }
        Ok(())
    }

    async fn delete(&self, queue: &str) -> Result<(), BrokerError> {
        let url = self.url(&["queues", &self.config.vhost, queue]);
        let answer = self.send("delete", Method::DELETE, url, None).await?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.refusal(&format!("queue {queue}"), answer).await),
        }
    }
}

impl QueueClient for Rabbitmq {
    fn observe<'a>(
        &'a self,
        names: &'a QueueNames,
    ) -> BoxFuture<'a, Result<Standing, BrokerError>> {
        self.observe(names).boxed()
    }

    fn create<'a>(&'a self, names: &'a QueueNames) -> BoxFuture<'a, Result<(), BrokerError>> {
        self.create(names).boxed()
    }

    fn route<'a>(&'a self, names: &'a QueueNames) -> BoxFuture<'a, Result<(), BrokerError>> {
        self.route(names).boxed()
    }

    fn delete<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<(), BrokerError>> {
        self.delete(queue).boxed()
    }
}
