//! Pool of clients by transport and credentials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::config::{RabbitmqConfig, SecretKeyRef, SqsConfig, Transport, TransportKind};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::cluster::ClusterIdentity;
use super::credentials::Credentials;
use super::http_client::BuildHttpClients;
use super::limiter::{BrokerLimiter, WorkerShare};
use super::rabbitmq::{Login, Rabbitmq};
use super::sqs::{self, Keys, Sqs};
use super::{BrokerError, QueueClient};
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

/// Clients unused for this long are dropped: their credentials have been replaced.
const UNUSED: Duration = Duration::from_mins(30);

/// The clients, one per transport and credential (QUE-8), each with a circuit of its own (QUE-9), and the limiters, one
/// per transport.
pub(super) struct Pool {
    cluster: ClusterIdentity,
    pub(super) credentials: Credentials,
    fence: Fence,
    metrics: Arc<Metrics>,
    share: Arc<WorkerShare>,
    build_http_clients: BuildHttpClients,
    clients: Mutex<HashMap<ClientKey, Used>>,
    limiters: Mutex<HashMap<String, Arc<BrokerLimiter>>>,
}

/// A transport's name, and the credentials used there.
type ClientKey = (String, Vec<Arc<str>>);

struct Used {
    limiter: Arc<BrokerLimiter>,
    /// `None` until it is connected.
    client: Option<Arc<dyn QueueClient>>,
    last: Instant,
}

impl Pool {
    pub(super) fn new(
        client: Client,
        operator_namespace: &str,
        fence: Fence,
        metrics: Arc<Metrics>,
        workers: usize,
        build_http_clients: BuildHttpClients,
    ) -> Self {
        Self {
            cluster: ClusterIdentity::new(client.clone()),
            credentials: Credentials::new(client, operator_namespace),
            fence,
            metrics,
            share: WorkerShare::of(workers),
            build_http_clients,
            clients: Mutex::default(),
            limiters: Mutex::default(),
        }
    }

    /// Returns the client for the current credentials.
    ///
    /// # Errors
    /// `CredentialsMissing`, `ConfigInvalid` for unusable configuration, or the reason why this cluster's identity is
    /// unknown.
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

    /// Makes the next call for this namespace read the Secrets again, after the broker rejected the credentials.
    pub(super) fn forget_credentials(&self, transport: &Transport, namespace: &str) {
        let references: Vec<&SecretKeyRef> = match &transport.kind {
            TransportKind::Rabbitmq(config) => config.password_secret_ref.iter().collect(),
            TransportKind::Sqs(config) => config
                .credentials
                .iter()
                .flat_map(|keys| [&keys.access_key_id, &keys.secret_access_key])
                .collect(),
        };
        for reference in references {
            self.credentials.forget(reference, namespace);
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
        let secrets = [Arc::clone(&password)].into_iter().chain(ca.clone());
        let identity = (name.to_owned(), secrets.collect());
        if let Some(client) = self.known(&identity) {
            return Ok(client);
        }
        let login = Login { password, ca };
        let cluster = self.cluster.uid().await?;
        let limiter = self.client_limiter(&identity);
        let client = Rabbitmq::new(
            name,
            config.clone(),
            login,
            cluster,
            Arc::clone(&limiter),
            &self.build_http_clients.management_api,
        )?;
        Ok(self.get_or_insert(identity, limiter, Arc::new(client)))
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
        let secrets = keys
            .iter()
            .flat_map(|keys| [Arc::clone(&keys.id), Arc::clone(&keys.secret)]);
        let identity = (name.to_owned(), secrets.chain(ca.clone()).collect());
        if let Some(client) = self.known(&identity) {
            return Ok(client);
        }
        let cluster = self.cluster.uid().await?;
        let limiter = self.client_limiter(&identity);
        let login = sqs::Login { keys, ca };
        let client = Sqs::connect(
            name,
            config.clone(),
            login,
            cluster,
            Arc::clone(&limiter),
            &self.build_http_clients.sqs,
        )
        .await?;
        Ok(self.get_or_insert(identity, limiter, Arc::new(client)))
    }

    fn known(&self, identity: &ClientKey) -> Option<Arc<dyn QueueClient>> {
        let mut clients = lock(&self.clients);
        let used = clients.get_mut(identity)?;
        used.last = Instant::now();
        used.client.clone()
    }

    /// Keeps the first of two clients that were created concurrently.
    fn get_or_insert(
        &self,
        identity: ClientKey,
        limiter: Arc<BrokerLimiter>,
        client: Arc<dyn QueueClient>,
    ) -> Arc<dyn QueueClient> {
        let mut clients = lock(&self.clients);
        let used = clients.entry(identity).or_insert_with(|| Used {
            limiter,
            client: None,
            last: Instant::now(),
        });
        Arc::clone(used.client.get_or_insert(client))
    }

    /// The limiter of a client, also while it cannot be connected. Drops clients that are no longer used.
    fn client_limiter(&self, identity: &ClientKey) -> Arc<BrokerLimiter> {
        let transport = self.limiter(&identity.0);
        let now = Instant::now();
        let mut clients = lock(&self.clients);
        clients.retain(|_, used| now - used.last < UNUSED);
        let used = clients.entry(identity.clone()).or_insert_with(|| Used {
            limiter: Arc::new(transport.with_own_circuit()),
            client: None,
            last: now,
        });
        used.last = now;
        Arc::clone(&used.limiter)
    }

    pub(super) fn limiter(&self, transport: &str) -> Arc<BrokerLimiter> {
        let mut limiters = lock(&self.limiters);
        let limiter = limiters.entry(transport.to_owned()).or_insert_with(|| {
            let fence = self.fence.clone();
            let metrics = Arc::clone(&self.metrics);
            Arc::new(BrokerLimiter::new(transport, &self.share, fence, metrics))
        });
        Arc::clone(limiter)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}
