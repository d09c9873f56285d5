//! The SDK client, and a cache of queue URLs.

use std::collections::HashMap;
use std::time::Duration;

use aws_config::Region;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::config::{
    BehaviorVersion, Builder, IdentityCache, SharedCredentialsProvider,
    StalledStreamProtectionConfig,
};
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::{Client, Config};
use parking_lot::Mutex;

use super::credentials::CachedCredentials;
use super::error;
use crate::broker::Refusal;
use crate::config;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Request timeout, in addition to the wait time of a long poll.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client without retries, except after expired credentials.
#[derive(Clone)]
pub(super) struct Api {
    sdk: Client,
    credentials: CachedCredentials,
    /// Config override with the timeouts of long polls.
    poll: Builder,
}

impl Api {
    pub(super) fn new(settings: &config::SqsConfig, credentials: CachedCredentials) -> Self {
        let mut config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(settings.region.clone()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts(RESPONSE_TIMEOUT))
            // Requests are in memory and have a timeout; this protection would wake the process ten times a second
            // during a long poll (SC-104).
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .credentials_provider(SharedCredentialsProvider::new(credentials.clone()));
        if let Some(endpoint) = &settings.endpoint {
            config = config.endpoint_url(endpoint);
        }
        Self {
            sdk: Client::from_conf(config.build()),
            credentials,
            poll: Config::builder().timeout_config(timeouts(settings.wait + RESPONSE_TIMEOUT)),
        }
    }

    /// Sends a request. If the credentials have expired, renews them and repeats the request once (SC-35).
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(super) async fn send<T, E, F>(
        &self,
        request: impl Fn(&Client) -> F,
    ) -> Result<T, SdkError<E, HttpResponse>>
    where
        E: ProvideErrorMetadata,
        F: Future<Output = Result<T, SdkError<E, HttpResponse>>>,
    {
        match request(&self.sdk).await {
            Err(error) if error::is_expired(&error) => {
                self.credentials.invalidate();
                request(&self.sdk).await
            }
            result => result,
        }
    }

    pub(super) fn poll(&self) -> Builder {
        self.poll.clone()
    }
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_attempt_timeout(attempt)
        .build()
}

/// A cache of queue URLs.
pub(super) struct Queues {
    api: Api,
    endpoint: Option<String>,
    known: Mutex<HashMap<String, String>>,
}

impl Queues {
    pub(super) fn new(api: Api, endpoint: Option<String>) -> Self {
        Self {
            api,
            endpoint,
            known: Mutex::default(),
        }
    }

    pub(super) async fn url(&self, queue: &str) -> Result<String, error::Failure> {
        if let Some(url) = self.known.lock().get(queue) {
            return Ok(url.clone());
        }
        let response = self
            .api
            .send(|sqs| sqs.get_queue_url().queue_name(queue).send())
            .await
            .map_err(|error| error::classify(&error))?;
        let url = response
            .queue_url()
            .ok_or(error::Failure::Refused(Refusal::NoQueue))?;
        let url = at_endpoint(self.endpoint.as_deref(), url);
        self.known.lock().insert(queue.to_owned(), url.clone());
        Ok(url)
    }

    /// Evicts a deleted queue: a recreated one may have another URL.
    pub(super) fn forget(&self, queue: &str) {
        self.known.lock().remove(queue);
    }
}

/// Replaces scheme and host of a queue URL by those of the endpoint: the host name that the server reports may not be
/// reachable.
pub(super) fn at_endpoint(endpoint: Option<&str>, url: &str) -> String {
    let path = url
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    let authority = endpoint.and_then(|endpoint| endpoint.split_once("://"));
    match (authority, path) {
        (Some((scheme, rest)), Some((_, path))) => {
            let host = rest.split('/').next().unwrap_or(rest);
            format!("{scheme}://{host}/{path}")
        }
        _ => url.to_owned(),
    }
}
