//! The SDK's client: who we are at AWS, where, and how long a call may take.

use std::sync::Arc;

use asya_shared::config::SqsConfig;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use tokio::time::timeout;

use crate::queue::BrokerError;
use crate::queue::error::{CALL_TIMEOUT, CONNECT_TIMEOUT};

/// What servers other than AWS take for a region when none is configured.
const ANY_REGION: &str = "us-east-1";

/// An AWS access key; without one AWS' default chain decides who we are.
pub struct Keys {
    /// Its id.
    pub id: Arc<str>,
    /// Its secret part.
    pub secret: Arc<str>,
}

/// A client, and the region that it speaks to.
///
/// # Errors
/// `ConfigInvalid` when no region is known.
pub async fn connect(
    transport: &str,
    config: &SqsConfig,
    keys: Option<Keys>,
) -> Result<(Client, Region), BrokerError> {
    let region = region(config).await.ok_or_else(|| {
        BrokerError::ConfigInvalid(format!(
            "transport {transport:?}: no AWS region is known; set config.region"
        ))
    })?;
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region.clone())
        .timeout_config(timeouts)
        // One place decides when something is tried again: the work queue.
        .retry_config(RetryConfig::disabled());
    if let Some(endpoint) = &config.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(Keys { id, secret }) = keys {
        let credentials = Credentials::new(&*id, &*secret, None, None, "Secret");
        loader = loader.credentials_provider(credentials);
    }
    Ok((Client::new(&loader.load().await), region))
}

async fn region(config: &SqsConfig) -> Option<Region> {
    let configured = config.region.clone().map(Region::new);
    let given = RegionProviderChain::first_try(configured)
        .or_else(EnvironmentVariableRegionProvider::new());
    if config.endpoint.is_some() {
        return given.or_else(Region::new(ANY_REGION)).region().await;
    }
    // The last resort is AWS' own metadata service, which elsewhere does not answer at all.
    let region = given.or_default_provider();
    timeout(CALL_TIMEOUT, region.region()).await.ok().flatten()
}
