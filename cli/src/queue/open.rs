//! Connects to a broker.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use asya_amqp::Stream;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::access::BrokerEndpoint;
use super::forward::{Forward, forward};
use super::rabbitmq::RabbitMq;
use super::sqs::{Account, Sqs};
use crate::answer::Failure;
use crate::cluster::Cluster;

/// A connection to a broker, and the port-forward through which it leads, if there is one.
pub enum Open {
    RabbitMq(RabbitMq, Option<Forward>),
    Sqs(Sqs, Option<Forward>),
}

/// Which CAs to trust.
#[derive(Clone, Copy)]
enum Trust<'a> {
    /// The system's CAs.
    System,
    /// Those of a PEM bundle.
    Bundle(&'a str),
}

/// Connects to a broker, through a port-forward if it is a Service in the cluster. `limit` is the delivery limit of its
/// queues, if configured.
///
/// # Errors
/// If it cannot be reached, or refuses.
pub async fn open(
    cluster: &Arc<Cluster>,
    server: &BrokerEndpoint,
    limit: Option<u64>,
    timeout: Duration,
) -> Result<Open, Failure> {
    match server {
        BrokerEndpoint::RabbitMq {
            host,
            port,
            tls,
            ca,
            credentials,
        } => {
            let attempt = forward(cluster, host, *port, timeout).await?;
            let address = attempt.forward.as_ref().map(|it| it.address);
            let trust = ca.as_deref().map_or(Trust::System, Trust::Bundle);
            let connecting = connect(host, *port, address, tls.then_some(trust));
            let stream = tokio::time::timeout(timeout, connecting).await;
            let stream = stream.unwrap_or_else(|_| Err(unreachable(host, *port, &"no answer")));
            let stream = stream.map_err(|why| attempt.explained(why))?;
            let broker = RabbitMq::open(stream, credentials, limit, timeout).await?;
            Ok(Open::RabbitMq(broker, attempt.forward))
        }
        BrokerEndpoint::Sqs(account) => {
            let mut account = account.clone();
            let forwarded = forwarded_endpoint(cluster, &mut account, timeout).await?;
            let broker = Sqs::open(&account, limit, timeout).await;
            Ok(Open::Sqs(broker, forwarded))
        }
    }
}

/// Replaces the address of an endpoint in the cluster by a port-forward. Leaves an endpoint with TLS alone, because its
/// certificate has another name.
async fn forwarded_endpoint(
    cluster: &Arc<Cluster>,
    account: &mut Account,
    timeout: Duration,
) -> Result<Option<Forward>, Failure> {
    let Some(address) = account
        .endpoint
        .as_ref()
        .and_then(|it| it.strip_prefix("http://"))
    else {
        return Ok(None);
    };
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let Ok(port) = port.parse() else {
        return Ok(None);
    };
    let forwarded = forward(cluster, host, port, timeout).await?.forward;
    if let Some(forward) = &forwarded {
        account.endpoint = Some(format!("http://{}/{path}", forward.address));
        account.is_forwarded = true;
    }
    Ok(forwarded)
}

/// Connects to a host, or to the address that is forwarded to it; without `tls`, unencrypted.
async fn connect(
    host: &str,
    port: u16,
    forwarded: Option<SocketAddr>,
    tls: Option<Trust<'_>>,
) -> Result<Box<dyn Stream>, Failure> {
    let host = host.trim_matches(['[', ']']);
    let connected = match forwarded {
        Some(address) => TcpStream::connect(address).await,
        None => TcpStream::connect((host, port)).await,
    };
    let stream = connected.map_err(|error| unreachable(host, port, &error))?;
    let Some(trust) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| unreachable(host, port, &error))?;
    let connecting = TlsConnector::from(trusting(trust)?).connect(name, stream);
    let stream = connecting.await.map_err(|error| {
        Failure::new(format!(
            "TLS connection to RabbitMQ at {host}:{port}: {error}; check --address and --ca-file"
        ))
    })?;
    Ok(Box::new(stream))
}

fn unreachable(host: &str, port: u16, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!(
        "cannot reach RabbitMQ at {host}:{port}: {why}; check --address, or whether this machine may connect to it"
    ))
}

/// TLS settings that trust these CAs.
fn trusting(trust: Trust<'_>) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = RootCertStore::empty();
    let invalid = |why: &dyn std::fmt::Display| Failure::new(format!("CAs of RabbitMQ: {why}"));
    match trust {
        Trust::Bundle(bundle) => {
            for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
                let certificate = certificate.map_err(|error| invalid(&error))?;
                roots.add(certificate).map_err(|error| invalid(&error))?;
            }
        }
        Trust::System => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| invalid(&error))?;
    Ok(Arc::new(
        config.with_root_certificates(roots).with_no_client_auth(),
    ))
}
