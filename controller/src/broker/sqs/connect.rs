//! The SDK's client: credentials, region and timeouts.

use std::sync::Arc;

use asya_shared::config::SqsConfig;
use aws_config::default_provider::region::default_provider;
use aws_config::environment::EnvironmentVariableRegionProvider;
use aws_config::meta::region::{ProvideRegion, RegionProviderChain};
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Credentials;
use aws_smithy_http_client::tls::{TlsContext, TrustStore};
use tokio::time::timeout;

use crate::broker::BrokerError;
use crate::broker::ca_bundle::certificates;
use crate::broker::error::{CALL_TIMEOUT, CONNECT_TIMEOUT};
use crate::broker::http_client::BuildSqsHttpClient;
use crate::broker::limiter::{BrokerLimiter, Labelled, Operation};

/// Region for servers other than AWS when none is configured.
const ANY_REGION: &str = "us-east-1";

/// An AWS access key; without one AWS' default credential chain applies.
pub struct Keys {
    pub id: Arc<str>,
    pub secret: Arc<str>,
}

/// Credentials for SQS, and the certificate authority of its endpoint.
#[derive(Default)]
pub struct Login {
    pub keys: Option<Keys>,
    /// PEM bundle to verify the endpoint's certificate with, besides the system's.
    pub ca: Option<Arc<str>>,
}

/// Returns a client and its region.
///
/// # Errors
/// If the region is unknown, or the bundle holds no valid certificates.
pub async fn connect(
    transport: &str,
    config: &SqsConfig,
    login: Login,
    limiter: &BrokerLimiter,
    build: &BuildSqsHttpClient,
) -> Result<(Client, Region), BrokerError> {
    let Login { keys, ca } = login;
    let tls = match ca {
        Some(ca) => Some(tls_context(transport, &ca)?),
        None => None,
    };
    let region = match configured_region(config).await {
        Some(region) => region,
        // Falls back to AWS' metadata service, which does not respond outside AWS.
        None => look_up_region(limiter, transport, default_provider().region()).await?,
    };
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .operation_timeout(CALL_TIMEOUT)
        .build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region.clone())
        .timeout_config(timeouts)
        // Only the work queue decides when to retry.
        .retry_config(RetryConfig::disabled());
    if let Some(endpoint) = &config.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    if let Some(Keys { id, secret }) = keys {
        let credentials = Credentials::new(&*id, &*secret, None, None, "Secret");
        loader = loader.credentials_provider(credentials);
    }
    // The bundle applies to SQS only, not to the endpoints that provide AWS credentials.
    let mut client = aws_sdk_sqs::config::Builder::from(&loader.load().await);
    client.set_http_client(build(tls));
    Ok((Client::from_conf(client.build()), region))
}

/// The TLS settings that trust a bundle. The SDK assumes that it is valid.
fn tls_context(transport: &str, ca: &str) -> Result<TlsContext, BrokerError> {
    let invalid = |reason: &dyn std::fmt::Display| {
        BrokerError::PrerequisiteMissing(format!(
            "transport {transport:?}: caSecretRef is not a usable CA bundle: {reason}"
        ))
    };
    certificates(ca).map_err(|reason| invalid(&reason))?;
    let store = TrustStore::default().with_pem_certificate(ca);
    let context = TlsContext::builder().with_trust_store(store).build();
    context.map_err(|error| invalid(&error))
}

/// The region, if known without a network call.
async fn configured_region(config: &SqsConfig) -> Option<Region> {
    let configured = config.region.clone().map(Region::new);
    let custom_endpoint = config.endpoint.as_ref().map(|_| Region::new(ANY_REGION));
    RegionProviderChain::first_try(configured)
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(custom_endpoint)
        .region()
        .await
}

struct Known(Region);

impl Labelled for Known {
    fn label(&self) -> String {
        "ok".to_owned()
    }
}

/// Looks up the region over the network, as a call through the limiter (QUE-9).
async fn look_up_region(
    limiter: &BrokerLimiter,
    transport: &str,
    lookup: impl Future<Output = Option<Region>>,
) -> Result<Region, BrokerError> {
    let unknown = |detail: &str| {
        format!("transport {transport:?}: the AWS region is unknown{detail}; set config.region")
    };
    let call = async {
        match timeout(CONNECT_TIMEOUT, lookup).await {
            Ok(Some(region)) => Ok(Known(region)),
            Ok(None) => Err(BrokerError::PrerequisiteMissing(unknown(""))),
            Err(_) => {
                let detail = ", and the AWS metadata service did not respond in time";
                Err(BrokerError::Unreachable(unknown(detail)))
            }
        }
    };
    let known = limiter.call(Operation::read("region"), call).await?;
    Ok(known.0)
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use asya_shared::config::{TransportKind, TransportsConfig};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::broker::limiter::WorkerShare;
    use crate::cluster::fence::Fence;

    /// QUE-9
    #[tokio::test(start_paused = true)]
    async fn unresponsive_metadata_service_times_out_and_opens_the_circuit() {
        let limiter = BrokerLimiter::new(
            "t",
            &WorkerShare::of(32),
            Fence::unrestricted(),
            Arc::default(),
        );
        let mut errors = Vec::new();
        for _ in 0..5 {
            let started = Instant::now();
            errors.push(look_up_region(&limiter, "t", pending()).await.unwrap_err());
            assert_eq!(started.elapsed(), CONNECT_TIMEOUT);
        }
        errors.dedup();
        assert!(
            matches!(&errors[..], [BrokerError::Unreachable(text)] if text.contains("set config.region")),
            "{errors:?}"
        );
        let call = async { panic!("called") };
        let rejected = look_up_region(&limiter, "t", call).await;
        assert!(
            matches!(&rejected, Err(BrokerError::CircuitOpen(last, _)) if **last == errors[0]),
            "{rejected:?}"
        );
    }

    /// QUE-9, SQS-1
    #[tokio::test]
    async fn unknown_region_is_looked_up_again() {
        let limiter = BrokerLimiter::new(
            "t",
            &WorkerShare::of(32),
            Fence::unrestricted(),
            Arc::default(),
        );
        let unknown = look_up_region(&limiter, "t", ready(None)).await;
        assert!(
            matches!(&unknown, Err(BrokerError::PrerequisiteMissing(text)) if text.contains("set config.region")),
            "{unknown:?}"
        );
        let known = look_up_region(&limiter, "t", ready(Some(Region::new("r")))).await;
        assert_eq!(known, Ok(Region::new("r")));
    }

    /// SQS-1
    #[test]
    fn bundle_without_certificates_is_rejected() {
        let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for ca in ["", "no PEM", wrong] {
            let result = tls_context("t", ca);
            assert!(
                matches!(&result, Err(BrokerError::PrerequisiteMissing(text)) if text.contains("caSecretRef")),
                "{result:?}"
            );
        }
    }

    /// QUE-9: a configured region or endpoint needs no network call.
    #[tokio::test(start_paused = true)]
    async fn configured_region_or_endpoint_needs_no_lookup() {
        let with = |config: Value| {
            let transports =
                json!({"transports": {"t": {"type": "sqs", "enabled": true, "config": config}}});
            let transports = TransportsConfig::parse(&transports.to_string()).unwrap();
            match &transports.usable("t").unwrap().kind {
                TransportKind::Sqs(config) => config.clone(),
                TransportKind::Rabbitmq(_) => panic!(),
            }
        };
        let started = Instant::now();
        let custom_endpoint = configured_region(&with(json!({"endpoint": "http://sqs"}))).await;
        assert!(custom_endpoint.is_some());
        let configured = configured_region(&with(json!({"region": "eu-west-1"}))).await;
        assert_eq!(configured, Some(Region::new("eu-west-1")));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
