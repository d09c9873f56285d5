//! Finds the client for a transport and an actor's namespace.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::{RabbitmqConfig, SecretKeyRef, SqsConfig, Transport, TransportKind};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::cluster::Cluster;
use super::credentials::Credentials;
use super::gate::BrokerLimiter;
use super::rabbitmq::{Login, Rabbitmq};
use super::sqs::{self, Keys, Sqs};
use super::{BrokerError, QueueClient};
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

/// Drop clients that were not used for this long: their credentials have been replaced.
const UNUSED: Duration = Duration::from_mins(30);

/// The clients, one per transport and credential (QUE-8), and the gates, one per transport.
pub(super) struct Pool {
    cluster: Cluster,
    credentials: Credentials,
    fence: Fence,
    metrics: Arc<Metrics>,
    workers: usize,
    clients: Mutex<HashMap<Identity, Used>>,
    gates: Mutex<HashMap<String, Arc<BrokerLimiter>>>,
}

/// A transport's name, and the credentials used there.
type Identity = (String, Vec<Arc<str>>);

struct Used {
    client: Arc<dyn QueueClient>,
    last: Instant,
}

impl Pool {
    pub(super) fn new(
        client: Client,
        own_namespace: &str,
        fence: Fence,
        metrics: Arc<Metrics>,
        workers: usize,
    ) -> Self {
        Self {
            cluster: Cluster::new(client.clone()),
            credentials: Credentials::new(client, own_namespace),
            fence,
            metrics,
            workers,
            clients: Mutex::default(),
            gates: Mutex::default(),
        }
    }

    /// Returns the client for the current credentials.
    ///
    /// # Errors
    /// `CredentialsMissing`, `ConfigInvalid` for unusable configuration, or why this cluster's identity is unknown.
    pub(super) async fn client(
        &self,
        transport: &Transport,
        namespace: &str,
    ) -> Result<Arc<dyn QueueClient>, BrokerError> {
        let name = &transport.name;
        match &transport.kind {
            TransportKind::Rabbitmq(config) => self.rabbitmq(name, config, namespace).await,
            TransportKind::Sqs(config) => self.sqs(name, config, namespace).await,
        }
    }

    /// Makes the next call read the Secrets again, after the broker refused the credentials.
    pub(super) fn forget_credentials(&self, transport: &Transport) {
        let references: Vec<&SecretKeyRef> = match &transport.kind {
            TransportKind::Rabbitmq(config) => config.password_secret_ref.iter().collect(),
            TransportKind::Sqs(config) => config
                .credentials
                .iter()
                .flat_map(|keys| [&keys.access_key_id, &keys.secret_access_key])
                .collect(),
        };
        for reference in references {
            self.credentials.forget(reference);
        }
    }

    async fn rabbitmq(
        &self,
        name: &str,
        config: &RabbitmqConfig,
        namespace: &str,
    ) -> Result<Arc<dyn QueueClient>, BrokerError> {
        let password = match &config.password_secret_ref {
            Some(reference) => self.credentials.read(reference, namespace).await?,
            None => "guest".into(),
        };
        let ca = match &config.management.ca_secret_ref {
            Some(reference) => Some(self.credentials.read(reference, namespace).await?),
            None => None,
        };
        let proof = [Arc::clone(&password)].into_iter().chain(ca.clone());
        let identity = (name.to_owned(), proof.collect());
        if let Some(client) = self.known(&identity) {
            return Ok(client);
        }
        let login = Login { password, ca };
        let cluster = self.cluster.uid().await?;
        let client = Rabbitmq::new(name, config.clone(), login, cluster, self.gate(name))?;
        Ok(self.keep(identity, Arc::new(client)))
    }

    async fn sqs(
        &self,
        name: &str,
        config: &SqsConfig,
        namespace: &str,
    ) -> Result<Arc<dyn QueueClient>, BrokerError> {
        let keys = match &config.credentials {
            Some(references) => Some(Keys {
                id: self
                    .credentials
                    .read(&references.access_key_id, namespace)
                    .await?,
                secret: self
                    .credentials
                    .read(&references.secret_access_key, namespace)
                    .await?,
            }),
            None => None,
        };
        let ca = match &config.ca_secret_ref {
            Some(reference) => Some(self.credentials.read(reference, namespace).await?),
            None => None,
        };
        let proof = keys
            .iter()
            .flat_map(|keys| [Arc::clone(&keys.id), Arc::clone(&keys.secret)]);
        let identity = (name.to_owned(), proof.chain(ca.clone()).collect());
        if let Some(client) = self.known(&identity) {
            return Ok(client);
        }
        let cluster = self.cluster.uid().await?;
        let login = sqs::Login { keys, ca };
        let client = Sqs::connect(name, config.clone(), login, cluster, self.gate(name)).await?;
        Ok(self.keep(identity, Arc::new(client)))
    }

    fn known(&self, identity: &Identity) -> Option<Arc<dyn QueueClient>> {
        let mut clients = lock(&self.clients);
        let used = clients.get_mut(identity)?;
        used.last = Instant::now();
        Some(Arc::clone(&used.client))
    }

    /// Keeps the first of two clients that were created concurrently.
    fn keep(&self, identity: Identity, client: Arc<dyn QueueClient>) -> Arc<dyn QueueClient> {
        let now = Instant::now();
        let mut clients = lock(&self.clients);
        clients.retain(|_, used| now - used.last < UNUSED);
        let used = clients
            .entry(identity)
            .or_insert(Used { client, last: now });
        Arc::clone(&used.client)
    }

    pub(super) fn gate(&self, transport: &str) -> Arc<BrokerLimiter> {
        let mut gates = lock(&self.gates);
        let gate = gates.entry(transport.to_owned()).or_insert_with(|| {
            let gate = BrokerLimiter::new(transport, self.fence.clone(), Arc::clone(&self.metrics));
            Arc::new(gate.for_workers(self.workers))
        });
        Arc::clone(gate)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
