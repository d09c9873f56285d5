//! Requests to the management API, and the meaning of its errors (RMQ-2).

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::RabbitmqConfig;
use reqwest::{Method, StatusCode, Url, redirect};
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde_json::Value;

use crate::broker::BrokerError;
use crate::broker::ca_bundle::certificates;
use crate::broker::error::{CALL_TIMEOUT, CONNECT_TIMEOUT};
use crate::broker::http_client::{
    BuildHttpClient, HttpClient, HttpRequest, HttpResponse, NoResponse,
};
use crate::broker::limiter::{BrokerLimiter, Labelled, Operation};

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
    http: Arc<dyn HttpClient>,
    base: Url,
    username: String,
    password: Arc<str>,
    vhost: String,
    limiter: Arc<BrokerLimiter>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ErrorBody {
    error: Value,
    reason: Value,
}

/// The `error` in RabbitMQ's own 404 responses. A 404 page of a proxy or another server says nothing about queues
/// (FIN-3).
const NOT_FOUND: [&str; 2] = ["Object Not Found", "not_found"];

/// The `error` in responses for a page past the last one.
const PAST_THE_END: &str = "page_out_of_range";

impl Labelled for HttpResponse {
    fn label(&self) -> String {
        self.status.as_str().to_owned()
    }
}

impl HttpResponse {
    /// Whether RabbitMQ reports that the requested object does not exist.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        let is_not_found = |error: &Value| NOT_FOUND.iter().any(|known| error == known);
        self.status == StatusCode::NOT_FOUND && is_not_found(&self.error_body().error)
    }

    /// Whether RabbitMQ reports that a list has no such page.
    #[must_use]
    pub fn is_past_the_end(&self) -> bool {
        let is_out_of_range = |error: &Value| error == PAST_THE_END;
        self.status == StatusCode::BAD_REQUEST && is_out_of_range(&self.error_body().error)
    }

    /// Whether the same request may succeed a little later.
    #[must_use]
    pub fn is_temporary_failure(&self) -> bool {
        self.status == StatusCode::TOO_MANY_REQUESTS || self.status.is_server_error()
    }

    /// How long to send no requests, if RabbitMQ or a proxy in front of it asks for a pause.
    fn requested_pause(&self) -> Option<Duration> {
        self.retry_after.filter(|_| self.is_temporary_failure())
    }

    fn throttling(&self) -> String {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "RabbitMQ is throttling requests".to_owned(),
            status => format!("RabbitMQ returned HTTP {}", status.as_u16()),
        }
    }

    /// Returns the reason why RabbitMQ rejected a request.
    pub fn reason(&self) -> String {
        let body = self.error_body();
        body.reason.as_str().map_or_else(String::new, str::to_owned)
    }

    fn error_body(&self) -> ErrorBody {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Api {
    /// Builds a client for the transport of that name. Opens no connection.
    ///
    /// # Errors
    /// `ConfigInvalid` if the address is unusable, `PrerequisiteMissing` if the certificate authority is.
    pub fn new(
        transport: &str,
        config: &RabbitmqConfig,
        login: Login,
        limiter: Arc<BrokerLimiter>,
        build: &BuildHttpClient,
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
            let unusable = |reason: &dyn fmt::Display| {
                let what = "management.caSecretRef is not a usable CA bundle";
                BrokerError::PrerequisiteMissing(format!(
                    "transport {transport:?}: {what}: {reason}"
                ))
            };
            let bundle = certificates(ca).map_err(|reason| unusable(&reason))?;
            let bundle = bundle
                .iter()
                .map(|certificate| reqwest::Certificate::from_der(certificate));
            let bundle: Vec<_> = bundle
                .collect::<Result<_, _>>()
                .map_err(|error| unusable(&error))?;
            http = http.tls_certs_merge(bundle);
        }
        Ok(Self {
            http: build(http).map_err(|error| invalid(&error))?,
            base,
            username: config.username.clone(),
            password: login.password,
            vhost: config.vhost.clone(),
            limiter,
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

    /// Sends one request; a response with any status is `Ok`, unless it asks for a pause.
    pub async fn send(
        &self,
        operation: Operation,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<HttpResponse, BrokerError> {
        let request = HttpRequest {
            method,
            url,
            login: (&self.username, &self.password),
            body,
        };
        let call = async {
            let response = self.http.send(request).await;
            let response = response.map_err(|reason| self.unreachable(reason))?;
            // An error here, so that no call of the transport reaches the broker until then (FW-28).
            match response.requested_pause() {
                Some(wait) => Err(BrokerError::RetryAfter(response.throttling(), wait)),
                None => Ok(response),
            }
        };
        self.limiter.call(operation, call).await
    }

    /// Sends one request that must succeed; `what` names its subject in errors.
    pub async fn send_checked(
        &self,
        operation: Operation,
        what: &str,
        method: Method,
        url: Url,
        body: &Value,
    ) -> Result<(), BrokerError> {
        let response = self.send(operation, method, url, Some(body)).await?;
        if response.status.is_success() {
            Ok(())
        } else {
            Err(self.response_error(what, &response))
        }
    }

    /// Reads an object, which `what` names in errors; `None` if it does not exist.
    pub async fn get<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        what: &str,
        url: Url,
    ) -> Result<Option<T>, BrokerError> {
        self.get_seed(operation, what, url, PhantomData).await
    }

    /// Like [`Self::get`], decoded by a seed.
    pub async fn get_seed<T>(
        &self,
        operation: &'static str,
        what: &str,
        url: Url,
        seed: impl for<'de> DeserializeSeed<'de, Value = T>,
    ) -> Result<Option<T>, BrokerError> {
        let operation = Operation::read(operation);
        let response = self.send(operation, Method::GET, url, None).await?;
        if response.is_absent() {
            return Ok(None);
        }
        self.decode_seed(what, &response, seed).map(Some)
    }

    /// Decodes a response that must be a success.
    pub fn decode<T: DeserializeOwned>(
        &self,
        what: &str,
        response: &HttpResponse,
    ) -> Result<T, BrokerError> {
        self.decode_seed(what, response, PhantomData)
    }

    fn decode_seed<T>(
        &self,
        what: &str,
        response: &HttpResponse,
        seed: impl for<'de> DeserializeSeed<'de, Value = T>,
    ) -> Result<T, BrokerError> {
        if !response.status.is_success() {
            return Err(self.response_error(what, response));
        }
        let mut json = serde_json::Deserializer::from_slice(&response.body);
        let decoded = seed.deserialize(&mut json);
        let complete = decoded.and_then(|decoded| json.end().map(|()| decoded));
        complete.map_err(|_| {
            let address = self.address();
            BrokerError::Throttled(format!("the server at {address} is not RabbitMQ"))
        })
    }

    /// The client's own error text may contain ports and times, which status must not (QUE-11).
    fn unreachable(&self, reason: NoResponse) -> BrokerError {
        let what = match reason {
            NoResponse::TimedOut => "did not respond in time",
            NoResponse::NotConnected => "cannot be reached",
            NoResponse::Closed => "closed the connection",
        };
        let address = self.address();
        BrokerError::Unreachable(format!("RabbitMQ's management API at {address} {what}"))
    }

    pub fn response_error(&self, what: &str, response: &HttpResponse) -> BrokerError {
        let (username, vhost) = (&self.username, &self.vhost);
        match response.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BrokerError::AuthFailed(format!(
                "RabbitMQ rejects user {username:?}: it needs the right password, the tag management, and permissions \
                 to configure, write and read in vhost {vhost:?}"
            )),
            StatusCode::TOO_MANY_REQUESTS => BrokerError::Throttled(response.throttling()),
            status if status.is_server_error() => {
                BrokerError::Throttled(format!("{what}: {}", response.throttling()))
            }
            _ if response.is_absent() => BrokerError::PrerequisiteMissing(format!(
                "{what}: not found; does vhost {vhost:?} exist at the broker?"
            )),
            StatusCode::BAD_REQUEST if response.reason().contains("inequivalent arg") => {
                BrokerError::Mismatch(format!("{what}: {}", response.reason()))
            }
            // RabbitMQ also returns 400 when a node is down or a limit is reached, and no event announces when that is
            // over.
            StatusCode::BAD_REQUEST => {
                BrokerError::PrerequisiteMissing(format!("{what}: {}", response.reason()))
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
