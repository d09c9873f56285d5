//! Requests to the management API, and what its errors mean (RMQ-2).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, StatusCode, Url, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::broker::BrokerError;
use crate::broker::error::{CALL_TIMEOUT, CONNECT_TIMEOUT, retry_after};
use crate::broker::gate::{BrokerLimiter, Labelled, Operation};

/// Identifies the operator in the broker's access log: KEDA may log in as the same user.
const AGENT: &str = concat!("asya-operator/", env!("CARGO_PKG_VERSION"));
/// Credentials for a broker.
pub struct Login {
    /// Password of the configured user.
    pub password: Arc<str>,
    /// PEM bundle to verify the management API's certificate with.
    pub ca: Option<Arc<str>>,
}

/// A broker's management API.
pub struct Api {
    http: reqwest::Client,
    base: Url,
    username: String,
    password: Arc<str>,
    vhost: String,
    gate: Arc<BrokerLimiter>,
}

/// A response with any status.
pub struct Answer {
    pub status: StatusCode,
    body: Vec<u8>,
    /// The delay that `Retry-After` asks for.
    wait: Option<Duration>,
}

/// Body of an error response.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Refusal {
    error: Value,
    reason: Value,
}

/// The `error` in RabbitMQ's own 404 responses. A 404 page of a proxy or another server says nothing about queues
/// (FIN-3).
const NOT_FOUND: [&str; 2] = ["Object Not Found", "not_found"];

/// The `error` in responses for a page past the last one.
const PAST_THE_END: &str = "page_out_of_range";

impl Labelled for Answer {
    fn label(&self) -> String {
        self.status.as_str().to_owned()
    }
}

impl Answer {
    /// Whether RabbitMQ reports that the requested object does not exist.
    pub fn is_absent(&self) -> bool {
        let says = |error: &Value| NOT_FOUND.iter().any(|known| error == known);
        self.status == StatusCode::NOT_FOUND && says(&self.refusal().error)
    }

    /// Whether RabbitMQ reports that a list has no such page.
    pub fn is_past_the_end(&self) -> bool {
        let says = |error: &Value| error == PAST_THE_END;
        self.status == StatusCode::BAD_REQUEST && says(&self.refusal().error)
    }

    /// Returns the reason why RabbitMQ rejected a request.
    pub fn reason(&self) -> String {
        let refusal = self.refusal();
        refusal
            .reason
            .as_str()
            .map_or_else(String::new, str::to_owned)
    }

    fn refusal(&self) -> Refusal {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Api {
    /// A client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` when the address cannot be used, `NotThereYet` when the certificate authority cannot.
    pub fn new(
        transport: &str,
        config: &RabbitmqConfig,
        login: Login,
        gate: Arc<BrokerLimiter>,
    ) -> Result<Self, BrokerError> {
        let invalid = |error: &dyn fmt::Display| {
            BrokerError::ConfigInvalid(format!("transport {transport:?}: management API: {error}"))
        };
        let base = Url::parse(&config.management.url()).map_err(|error| invalid(&error))?;
        let mut http = reqwest::Client::builder()
            .user_agent(AGENT)
            .timeout(CALL_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tls_danger_accept_invalid_certs(config.management.insecure_skip_verify);
        if let Some(ca) = &login.ca {
            let bundle = reqwest::Certificate::from_pem_bundle(ca.as_bytes());
            let bundle = bundle.map_err(|error| {
                let what = "management.caSecretRef contains no certificates";
                BrokerError::NotThereYet(format!("transport {transport:?}: {what}: {error}"))
            })?;
            http = http.tls_certs_merge(bundle);
        }
        Ok(Self {
            http: http.build().map_err(|error| invalid(&error))?,
            base,
            username: config.username.clone(),
            password: login.password,
            vhost: config.vhost.clone(),
            gate,
        })
    }

    /// Percent-encodes each segment: the default vhost is called `/`.
    pub fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.push("api").extend(segments);
        }
        url
    }

    /// Sends one request; a response with any status is `Ok`.
    pub async fn send(
        &self,
        operation: Operation,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<Answer, BrokerError> {
        let mut request = self
            .http
            .request(method, url)
            .basic_auth(&self.username, Some(&self.password));
        if let Some(body) = body {
            request = request.json(body);
        }
        let call = async {
            let answer = request.send().await?;
            let status = answer.status();
            let wait = answer.headers().get(RETRY_AFTER);
            let wait = wait.and_then(|wait| retry_after(wait.to_str().ok()?));
            let body = answer.bytes().await?.to_vec();
            Ok(Answer { status, body, wait })
        };
        let call = async { call.await.map_err(|error| self.unreachable(&error)) };
        self.gate.call(operation, call).await
    }

    /// Sends one request that must succeed; `what` names its subject in errors.
    pub async fn must(
        &self,
        operation: Operation,
        what: &str,
        method: Method,
        url: Url,
        body: &Value,
    ) -> Result<(), BrokerError> {
        let answer = self.send(operation, method, url, Some(body)).await?;
        if answer.status.is_success() {
            Ok(())
        } else {
            Err(self.refusal(what, &answer))
        }
    }

    /// Reads an object, which `what` names in errors; `None` if it does not exist.
    pub async fn get<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        what: &str,
        url: Url,
    ) -> Result<Option<T>, BrokerError> {
        let operation = Operation::read(operation);
        let answer = self.send(operation, Method::GET, url, None).await?;
        if answer.is_absent() {
            return Ok(None);
        }
        self.decode(what, &answer).map(Some)
    }

    /// Decodes a response that must be a success.
    pub fn decode<T: DeserializeOwned>(
        &self,
        what: &str,
        answer: &Answer,
    ) -> Result<T, BrokerError> {
        if !answer.status.is_success() {
            return Err(self.refusal(what, answer));
        }
        serde_json::from_slice(&answer.body).map_err(|_| {
            let address = self.address();
            BrokerError::Throttled(format!("the server at {address} is not RabbitMQ"))
        })
    }

    /// The error's own text may contain ports and times, which status must not (QUE-11).
    fn unreachable(&self, error: &reqwest::Error) -> BrokerError {
        let what = if error.is_timeout() {
            "did not respond in time"
        } else if error.is_connect() {
            "cannot be reached"
        } else {
            "closed the connection"
        };
        let address = self.address();
        BrokerError::Unreachable(format!("RabbitMQ's management API at {address} {what}"))
    }

    /// What an error response means.
    pub fn refusal(&self, what: &str, answer: &Answer) -> BrokerError {
        let (username, vhost) = (&self.username, &self.vhost);
        match answer.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BrokerError::AuthFailed(format!(
                "RabbitMQ rejects user {username:?}: it needs the right password, the tag management, and permissions \
                 to configure, write and read in vhost {vhost:?}"
            )),
            StatusCode::TOO_MANY_REQUESTS => {
                let text = "RabbitMQ is throttling requests".to_owned();
                BrokerError::throttled(text, answer.wait)
            }
            status if status.is_server_error() => {
                let text = format!("{what}: RabbitMQ returned HTTP {}", status.as_u16());
                BrokerError::throttled(text, answer.wait)
            }
            _ if answer.is_absent() => BrokerError::NotThereYet(format!(
                "{what}: not found; does vhost {vhost:?} exist at the broker?"
            )),
            StatusCode::BAD_REQUEST if answer.reason().contains("inequivalent arg") => {
                BrokerError::Mismatch(format!("{what}: {}", answer.reason()))
            }
            // RabbitMQ also returns 400 when a node is down or a limit is reached, and no event announces when that is
            // over.
            StatusCode::BAD_REQUEST => {
                BrokerError::NotThereYet(format!("{what}: {}", answer.reason()))
            }
            status => BrokerError::Throttled(format!(
                "{what}: the server at {} returned HTTP {}, which RabbitMQ never does",
                self.address(),
                status.as_u16()
            )),
        }
    }

    fn address(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }
}
