//! The HTTP clients behind management APIs and the AWS SDK.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::config::SharedHttpClient;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext};
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::RETRY_AFTER;
use reqwest::{ClientBuilder, Method, StatusCode, Url};
use serde_json::Value;

use super::error::retry_after;

/// Sends requests to a management API.
pub trait HttpClient: Send + Sync {
    /// Sends one request; a response with any status is `Ok`.
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>>;
}

/// A request.
pub struct HttpRequest<'a> {
    /// HTTP method.
    pub method: Method,
    /// Full address.
    pub url: Url,
    /// User and password.
    pub login: (&'a str, &'a str),
    /// JSON body.
    pub body: Option<&'a Value>,
}

/// A response with any status.
pub struct HttpResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Body.
    pub body: Vec<u8>,
    /// The delay that `Retry-After` requests.
    pub retry_after: Option<Duration>,
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoResponse {
    /// None arrived in time.
    TimedOut,
    /// No connection could be established.
    NotConnected,
    /// The connection was closed.
    Closed,
}

/// Makes the client of one management API from its settings.
pub type BuildHttpClient =
    Arc<dyn Fn(ClientBuilder) -> reqwest::Result<Arc<dyn HttpClient>> + Send + Sync>;

/// Makes the client of one SQS endpoint, with its TLS settings if it has any; `None` is the SDK's own client.
pub type BuildSqsHttpClient =
    Arc<dyn Fn(Option<TlsContext>) -> Option<SharedHttpClient> + Send + Sync>;

/// Makes the clients of all brokers.
#[derive(Clone)]
pub struct BuildHttpClients {
    /// For `RabbitMQ`'s management APIs.
    pub management_api: BuildHttpClient,
    /// For SQS.
    pub sqs: BuildSqsHttpClient,
}

/// Makes clients that use the network.
#[must_use]
pub fn over_network() -> BuildHttpClients {
    BuildHttpClients {
        management_api: Arc::new(|settings| Ok(Arc::new(settings.build()?))),
        sqs: Arc::new(|tls| tls.map(https_client)),
    }
}

fn https_client(tls: TlsContext) -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::AwsLc))
        .tls_context(tls)
        .build_https()
}

impl HttpClient for reqwest::Client {
    fn send<'a>(
        &'a self,
        request: HttpRequest<'a>,
    ) -> BoxFuture<'a, Result<HttpResponse, NoResponse>> {
        let (user, password) = request.login;
        let mut builder = self
            .request(request.method, request.url)
            .basic_auth(user, Some(password));
        if let Some(body) = request.body {
            builder = builder.json(body);
        }
        let call = async {
            let response = builder.send().await?;
            let status = response.status();
            let wait = response.headers().get(RETRY_AFTER);
            let wait = wait.and_then(|wait| retry_after(wait.to_str().ok()?));
            let body = response.bytes().await?.to_vec();
            Ok(HttpResponse {
                status,
                body,
                retry_after: wait,
            })
        };
        call.map(|response| response.map_err(|error| no_response(&error)))
            .boxed()
    }
}

fn no_response(error: &reqwest::Error) -> NoResponse {
    if error.is_timeout() {
        NoResponse::TimedOut
    } else if error.is_connect() {
        NoResponse::NotConnected
    } else {
        NoResponse::Closed
    }
}
