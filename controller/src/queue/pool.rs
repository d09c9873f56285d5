//! Finds the client for a transport and an actor's namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asya_shared::config::{RabbitmqConfig, SecretKeyRef, SqsConfig, Transport, TransportKind};
use asya_shared::transport::QueueOf;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::credentials::Credentials;
use super::gate::Gate;
use super::health::{Answers, Surveyor};
use super::rabbitmq::{Login, Rabbitmq};
use super::session::Session;
use super::sqs::{self, Keys, Sqs};
use super::{BrokerError, Count, QueueClient, Seen};
use crate::fence::Fence;
use crate::metrics::Metrics;

/// A client that nobody used for so long goes: its credentials have been replaced.
const UNUSED: Duration = Duration::from_mins(30);

/// The brokers of all transports; a clone is another handle to the same ones.
#[derive(Clone)]
pub struct Brokers(Arc<Pool>);

/// The clients, one per transport and credential (QUE-8), and the gates, one per transport.
pub(super) struct Pool {
    cluster: Cluster,
    credentials: Credentials,
    fence: Fence,
    metrics: Arc<Metrics>,
    workers: usize,
    clients: Mutex<HashMap<Identity, Used>>,
    gates: Mutex<HashMap<String, Arc<Gate>>>,
}

/// A transport's name, and what we prove ourselves by.
type Identity = (String, Vec<Arc<str>>);

struct Used {
    client: Arc<dyn QueueClient>,
    last: Instant,
}

impl Brokers {
    /// Reads credentials by `client`; every call that changes a broker passes `fence`, and no broker that
    /// hangs holds more than half of the `workers` of passes.
    pub fn new(
        client: Client,
        own_namespace: &str,
        fence: Fence,
        metrics: Arc<Metrics>,
        workers: usize,
    ) -> Self {
        Self(Arc::new(Pool {
            cluster: Cluster::new(client.clone()),
            credentials: Credentials::new(client, own_namespace),
            fence,
            metrics,
            workers,
            clients: Mutex::default(),
            gates: Mutex::default(),
        }))
    }

    /// `transport`, as an actor of `namespace` reaches it. Costs nothing: the first call reads credentials
    /// and connects.
    pub fn client(&self, transport: &Transport, namespace: &str) -> Arc<dyn QueueClient> {
        Arc::new(Session {
            pool: Arc::clone(&self.0),
            transport: transport.clone(),
            namespace: namespace.to_owned(),
        })
    }

    /// Groups the queues of one transport by the client that reaches them, so that one list serves all
    /// namespaces that share a credential.
    async fn grouped<T>(&self, transport: &Transport, queues: Vec<QueueOf>) -> Grouped<T> {
        let mut by_namespace: HashMap<String, Vec<QueueOf>> = HashMap::new();
        for queue in queues {
            by_namespace
                .entry(queue.namespace.clone())
                .or_default()
                .push(queue);
        }
        let mut grouped = Grouped {
            groups: Vec::new(),
            answers: Vec::new(),
        };
        for (namespace, queues) in by_namespace {
            match self.0.client(transport, &namespace).await {
                Ok(client) => grouped.add(client, queues),
                Err(error) => {
                    let refused = queues.into_iter().map(|queue| (queue, Err(error.clone())));
                    grouped.answers.extend(refused);
                }
            }
        }
        grouped
    }
}

/// Queues by the client that reaches them, and the answers so far.
struct Grouped<T> {
    groups: Vec<(Arc<dyn QueueClient>, Vec<QueueOf>)>,
    answers: Answers<T>,
}

impl<T> Grouped<T> {
    fn add(&mut self, client: Arc<dyn QueueClient>, queues: Vec<QueueOf>) {
        let known = self
            .groups
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &client));
        match known {
            Some((_, group)) => group.extend(queues),
            None => self.groups.push((client, queues)),
        }
    }
}

impl Surveyor for Brokers {
    fn survey<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Seen>> {
        async move {
            let Grouped {
                groups,
                mut answers,
            } = self.grouped(transport, queues).await;
            for (client, queues) in groups {
                let seen = client.survey(&queues).await;
                answers.extend(queues.into_iter().zip(seen));
            }
            answers
        }
        .boxed()
    }

    fn depths<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<QueueOf>,
    ) -> BoxFuture<'a, Answers<Count>> {
        async move {
            let Grouped {
                groups,
                mut answers,
            } = self.grouped(transport, queues).await;
            for (client, queues) in groups {
                let names = queues.iter().map(|queue| queue.names.queue.clone());
                let depths = client.depths(&names.collect::<Vec<_>>()).await;
                answers.extend(queues.into_iter().zip(depths));
            }
            answers
        }
        .boxed()
    }
}

impl Pool {
    /// The client for the credentials that are in force.
    ///
    /// # Errors
    /// `CredentialsMissing`, `ConfigInvalid` for what cannot be used, or why this cluster's identity is not known.
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

    /// The broker refused our credentials: the Secrets are read again next time.
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

    /// Of two that were made at the same time one stays.
    fn keep(&self, identity: Identity, client: Arc<dyn QueueClient>) -> Arc<dyn QueueClient> {
        let now = Instant::now();
        let mut clients = lock(&self.clients);
        clients.retain(|_, used| now - used.last < UNUSED);
        let used = clients
            .entry(identity)
            .or_insert(Used { client, last: now });
        Arc::clone(&used.client)
    }

    pub(super) fn gate(&self, transport: &str) -> Arc<Gate> {
        let mut gates = lock(&self.gates);
        let gate = gates.entry(transport.to_owned()).or_insert_with(|| {
            let gate = Gate::new(transport, self.fence.clone(), Arc::clone(&self.metrics));
            Arc::new(gate.for_workers(self.workers))
        });
        Arc::clone(gate)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
