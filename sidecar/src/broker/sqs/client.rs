//! The client, and the URLs of queues.

use std::collections::HashMap;
use std::time::Duration;

use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::SharedCredentialsProvider;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::error;
use crate::broker::Refusal;
use crate::config;

const CONNECT: Duration = Duration::from_secs(3);
/// How long a request may take beyond the time that a poll waits.
const ANSWER: Duration = Duration::from_secs(10);

/// A client that retries nothing by itself.
pub(super) fn connect(settings: &config::Sqs) -> Client {
    let region = Region::new(settings.region.clone());
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(settings.wait + ANSWER)
        .build();
    let mut config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(region.clone())
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .credentials_provider(SharedCredentialsProvider::new(Credentials {
            region,
            chain: OnceCell::new(),
        }));
    if let Some(endpoint) = &settings.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}

/// Where credentials come from (SC-35): no profiles, single sign-on or processes. What needs requests is built with the
/// first one.
#[derive(Debug)]
struct Credentials {
    region: Region,
    chain: OnceCell<CredentialsProviderChain>,
}

impl ProvideCredentials for Credentials {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(async {
            let chain = self.chain.get_or_init(|| async {
                let provider = aws_config::provider_config::ProviderConfig::default()
                    .with_region(Some(self.region.clone()));
                let web_identity = WebIdentityTokenCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                let container = EcsCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                let instance = ImdsCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                CredentialsProviderChain::first_try(
                    "Environment",
                    EnvironmentVariableCredentialsProvider::new(),
                )
                .or_else("WebIdentityToken", web_identity)
                .or_else("Container", container)
                .or_else("Instance", instance)
            });
            chain.await.provide_credentials().await
        })
    }
}

/// URLs of queues, asked for once.
pub(super) struct Queues {
    client: Client,
    endpoint: Option<String>,
    known: Mutex<HashMap<String, String>>,
}

impl Queues {
    pub(super) fn new(client: Client, endpoint: Option<String>) -> Self {
        Self {
            client,
            endpoint,
            known: Mutex::default(),
        }
    }

    /// The URL of a queue.
    pub(super) async fn url(&self, queue: &str) -> Result<String, error::Failure> {
        if let Some(url) = self.known.lock().get(queue) {
            return Ok(url.clone());
        }
        let answer = self.client.get_queue_url().queue_name(queue).send().await;
        let answer = answer.map_err(|error| error::classify(&error))?;
        let url = answer
            .queue_url()
            .ok_or(error::Failure::Refused(Refusal::NoQueue))?;
        let url = at_endpoint(self.endpoint.as_deref(), url);
        self.known.lock().insert(queue.to_owned(), url.clone());
        Ok(url)
    }

    /// The queue is gone; one of the same name may have another URL.
    pub(super) fn forget(&self, queue: &str) {
        self.known.lock().remove(queue);
    }
}

/// The URL with scheme and host of the endpoint, which may be reached by another name than the server knows.
pub(super) fn at_endpoint(endpoint: Option<&str>, url: &str) -> String {
    let path = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    let place = endpoint.and_then(|endpoint| endpoint.split_once("://"));
    match (place, path) {
        (Some((scheme, rest)), Some((_, path))) => {
            let host = rest.split('/').next().unwrap_or(rest);
            format!("{scheme}://{host}/{path}")
        }
        _ => url.to_owned(),
    }
}
