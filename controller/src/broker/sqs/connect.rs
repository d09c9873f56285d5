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
use aws_sdk_sqs::config::{Credentials, SharedHttpClient};
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::timeout;

use crate::broker::BrokerError;
use crate::broker::error::{CALL_TIMEOUT, CONNECT_TIMEOUT};
use crate::broker::gate::{BrokerLimiter, Labelled, Operation};

/// Region for servers other than AWS when none is configured.
const ANY_REGION: &str = "us-east-1";

/// An AWS access key; without one AWS' default credential chain applies.
pub struct Keys {
    pub id: Arc<str>,
    pub secret: Arc<str>,
}

/// Credentials for SQS, and the authority that verifies SQS itself.
#[derive(Default)]
pub struct Login {
    pub keys: Option<Keys>,
    /// PEM bundle to verify the endpoint's certificate with, besides the system's.
    pub ca: Option<Arc<str>>,
}

/// Returns a client and its region.
///
/// # Errors
/// When no region is known, or the bundle holds no valid certificates.
pub async fn connect(
    transport: &str,
    config: &SqsConfig,
    login: Login,
    gate: &BrokerLimiter,
) -> Result<(Client, Region), BrokerError> {
    let Login { keys, ca } = login;
    let trusted = match ca {
        Some(ca) => Some(trusting(transport, &ca)?),
        None => None,
    };
    let region = match given(config).await {
        Some(region) => region,
        // Falls back to AWS' metadata service, which does not answer outside AWS.
        None => ask(gate, transport, default_provider().region()).await?,
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
    // The bundle applies to SQS only, not to the endpoints that AWS credentials come from.
    let mut client = aws_sdk_sqs::config::Builder::from(&loader.load().await);
    client.set_http_client(trusted);
    Ok((Client::from_conf(client.build()), region))
}

/// The SDK's client assumes that the bundle holds certificates, so check it first.
fn trusting(transport: &str, ca: &str) -> Result<SharedHttpClient, BrokerError> {
    let refused = |why: &dyn std::fmt::Display| {
        BrokerError::NotThereYet(format!(
            "transport {transport:?}: caSecretRef contains no certificates: {why}"
        ))
    };
    let mut roots = RootCertStore::empty();
    for found in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        let certificate = found.map_err(|error| refused(&error))?;
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    if roots.is_empty() {
        return Err(refused(&"it contains no PEM data"));
    }
    let store = TrustStore::default().with_pem_certificate(ca);
    let context = TlsContext::builder().with_trust_store(store).build();
    let context = context.map_err(|error| refused(&error))?;
    let provider = Provider::Rustls(CryptoMode::AwsLc);
    Ok(aws_smithy_http_client::Builder::new()
        .tls_provider(provider)
        .tls_context(context)
        .build_https())
}

/// The region, if known without a network call.
async fn given(config: &SqsConfig) -> Option<Region> {
    let configured = config.region.clone().map(Region::new);
    let elsewhere = config.endpoint.as_ref().map(|_| Region::new(ANY_REGION));
    RegionProviderChain::first_try(configured)
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(elsewhere)
        .region()
        .await
}

struct Known(Region);

impl Labelled for Known {
    fn label(&self) -> String {
        "ok".to_owned()
    }
}

/// Looks up the region over the network, as a call through the gate (QUE-9).
async fn ask(
    gate: &BrokerLimiter,
    transport: &str,
    look: impl Future<Output = Option<Region>>,
) -> Result<Region, BrokerError> {
    let unknown = |why: &str| {
        format!("transport {transport:?}: the AWS region is unknown{why}; set config.region")
    };
    let call = async {
        match timeout(CONNECT_TIMEOUT, look).await {
            Ok(Some(region)) => Ok(Known(region)),
            Ok(None) => Err(BrokerError::NotThereYet(unknown(""))),
            Err(_) => {
                let why = ", and the AWS metadata service did not respond in time";
                Err(BrokerError::Unreachable(unknown(why)))
            }
        }
    };
    let known = gate.call(Operation::read("region"), call).await?;
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
    use crate::cluster::fence::Fence;

    /// QUE-9
    #[tokio::test(start_paused = true)]
    async fn unresponsive_metadata_service_times_out_and_opens_the_circuit() {
        let gate = BrokerLimiter::new("t", Fence::open(), Arc::default());
        let mut told = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            told.push(ask(&gate, "t", pending()).await.unwrap_err());
            assert_eq!(began.elapsed(), CONNECT_TIMEOUT);
        }
        told.dedup();
        assert!(
            matches!(&told[..], [BrokerError::Unreachable(text)] if text.contains("set config.region")),
            "{told:?}"
        );
        let called = async { panic!("called") };
        assert_eq!(ask(&gate, "t", called).await, Err(told.remove(0)));
    }

    /// QUE-9, SQS-1
    #[tokio::test]
    async fn unknown_region_is_looked_up_again() {
        let gate = BrokerLimiter::new("t", Fence::open(), Arc::default());
        let unknown = ask(&gate, "t", ready(None)).await;
        assert!(
            matches!(&unknown, Err(BrokerError::NotThereYet(text)) if text.contains("set config.region")),
            "{unknown:?}"
        );
        let known = ask(&gate, "t", ready(Some(Region::new("r")))).await;
        assert_eq!(known, Ok(Region::new("r")));
    }

    /// SQS-1
    #[test]
    fn bundle_without_certificates_is_refused_before_it_is_used() {
        let wrong = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for ca in ["", "no PEM", wrong] {
            let refused = trusting("t", ca);
            assert!(
                matches!(&refused, Err(BrokerError::NotThereYet(text)) if text.contains("caSecretRef")),
                "{refused:?}"
            );
        }
    }

    /// QUE-9: a configured region or endpoint needs no network call.
    #[tokio::test(start_paused = true)]
    async fn configured_region_or_endpoint_needs_no_lookup() {
        let with = |config: Value| {
            let all =
                json!({"transports": {"t": {"type": "sqs", "enabled": true, "config": config}}});
            let all = TransportsConfig::parse(&all.to_string()).unwrap();
            match &all.usable("t").unwrap().kind {
                TransportKind::Sqs(config) => config.clone(),
                TransportKind::Rabbitmq(_) => panic!(),
            }
        };
        let began = Instant::now();
        let elsewhere = given(&with(json!({"endpoint": "http://sqs"}))).await;
        assert!(elsewhere.is_some());
        let known = given(&with(json!({"region": "eu-west-1"}))).await;
        assert_eq!(known, Some(Region::new("eu-west-1")));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
