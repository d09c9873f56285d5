//! Tests the clients against real brokers, and against servers that fail in ways that real brokers cannot be forced to.

mod clusters;
mod contract;
mod creation;
mod credentials;
mod default_chain;
mod faults;
mod isolation;
mod pool;
mod rabbitmq;
mod reasons;
mod shared_dlq;
mod sqs;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::EffectiveTimeout;
use asya_shared::config::{Transport, TransportKind, TransportsConfig};
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::QueueOwner;
use futures::FutureExt;
use futures::future::ready;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::http_client::over_network;
use super::limiter::{BrokerLimiter, WorkerShare};
use super::rabbitmq::{Login, Rabbitmq};
use super::sqs::{Keys, Login as SqsLogin, Sqs};
use super::{BrokerError, BrokerResponse, DeletionGuard, QueueClient, Untagged};
use crate::cluster::fence::Fence;

/// Uid of `kube-system` in the clients' cluster.
const HERE: &str = "cluster-b";

/// User and password of the test cluster's RabbitMQ.
const LOGIN: &str = "admin";

/// An enabled transport called `t`.
fn transport(kind: &str, config: &Value) -> Transport {
    let all = json!({"transports": {"t": {"type": kind, "enabled": true, "config": config}}});
    let parsed = TransportsConfig::parse(&all.to_string()).unwrap();
    parsed.usable("t").unwrap().clone()
}

/// A client for the transport, with its own limiter.
async fn client(transport: &Transport) -> Result<Arc<dyn QueueClient>, BrokerError> {
    client_trusting(transport, None).await
}

/// Same, with certificates verified against `ca`.
async fn client_trusting(
    transport: &Transport,
    ca: Option<&str>,
) -> Result<Arc<dyn QueueClient>, BrokerError> {
    client_of(transport, ca, HERE).await
}

/// A client in the cluster whose `kube-system` has this uid.
async fn client_of(
    transport: &Transport,
    ca: Option<&str>,
    cluster: &str,
) -> Result<Arc<dyn QueueClient>, BrokerError> {
    let cluster: Arc<str> = cluster.into();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let limiter = Arc::new(BrokerLimiter::new(
        &transport.name,
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::default(),
    ));
    Ok(match &transport.kind {
        TransportKind::Rabbitmq(config) => {
            let login = Login {
                password: LOGIN.into(),
                ca: ca.map(Into::into),
            };
            Arc::new(Rabbitmq::new(
                "t",
                config.clone(),
                login,
                cluster,
                limiter,
                &over_network().management_api,
            )?)
        }
        TransportKind::Sqs(config) => {
            let keys = Keys {
                id: "id".into(),
                secret: "secret".into(),
            };
            let login = SqsLogin {
                keys: Some(keys),
                ca: None,
            };
            Arc::new(
                Sqs::connect(
                    "t",
                    config.clone(),
                    login,
                    cluster,
                    limiter,
                    &over_network().sqs,
                )
                .await?,
            )
        }
    })
}

/// The queue of actor `ns/NAME`.
fn queue_of(transport: &Transport, name: &str) -> ActorQueue {
    ActorQueue {
        names: transport.names_of("ns", name),
        namespace: "ns".to_owned(),
        actor: name.to_owned(),
        uid: "uid".to_owned(),
        timeout: EffectiveTimeout {
            processing: Some(300),
            graceful_shutdown: 30,
            progress: None,
        },
        adopts: None,
    }
}

fn owner(queue: &ActorQueue) -> QueueOwner {
    QueueOwner {
        namespace: queue.namespace.clone(),
        actor: queue.actor.clone(),
        uid: queue.uid.clone(),
    }
}

/// A name unique to this run: SQS rejects recently deleted ones.
fn fresh(stem: &str) -> String {
    format!("{stem}-{:08x}", fastrand::u32(..))
}

/// Confirms every deletion.
struct Confirmed;

impl DeletionGuard for Confirmed {
    fn confirm(&self) -> BrokerResponse<'_, Instant> {
        ready(Ok(Instant::now() + Duration::from_mins(1))).boxed()
    }
}
