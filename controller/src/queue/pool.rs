//! Finds the client for a transport and an actor's namespace.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use asya_shared::config::{RabbitmqConfig, Transport, TransportKind};
use kube::Client;
use tokio::sync::Semaphore;

use super::credentials::Credentials;
use super::rabbitmq::{Login, Rabbitmq};
use super::{BrokerError, QueueClient};
use crate::fence::Fence;
use crate::metrics::Metrics;

/// Calls to one broker at once (QUE-9).
const CALLS_AT_ONCE: usize = 10;

/// The clients of all brokers, one per transport and credential (QUE-8).
pub struct Brokers {
    credentials: Credentials,
    fence: Fence,
    metrics: Arc<Metrics>,
    pool: Mutex<Pool>,
}

#[derive(Default)]
struct Pool {
    clients: HashMap<(String, Arc<str>), Arc<dyn QueueClient>>,
    calls: HashMap<String, Arc<Semaphore>>,
}

impl Brokers {
    /// Reads credentials by `client`; every call that changes a broker passes `fence`.
    pub fn new(client: Client, own_namespace: &str, fence: Fence, metrics: Arc<Metrics>) -> Self {
        let credentials = Credentials::new(client, own_namespace);
        Self {
            credentials,
            fence,
            metrics,
            pool: Mutex::default(),
        }
    }

    /// The client by which an actor of `namespace` reaches `transport`.
    ///
    /// # Errors
    /// `CredentialsMissing`, or `ConfigInvalid` for what cannot be used.
    pub async fn client(
        &self,
        transport: &Transport,
        namespace: &str,
    ) -> Result<Arc<dyn QueueClient>, BrokerError> {
        match &transport.kind {
            TransportKind::Rabbitmq(config) => {
                self.rabbitmq(&transport.name, config, namespace).await
            }
            TransportKind::Sqs(_) => Err(BrokerError::ConfigInvalid(format!(
                "transport {:?}: queues of type sqs are not served by this version; use a transport of type rabbitmq",
                transport.name
            ))),
        }
    }

    /// The broker refused our credentials: the Secrets are read again next time.
    pub fn forget_credentials(&self, transport: &Transport) {
        if let TransportKind::Rabbitmq(config) = &transport.kind {
            config
                .password_secret_ref
                .iter()
                .for_each(|reference| self.credentials.forget(reference));
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
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), Arc::clone(&password));
        if let Some(client) = pool.clients.get(&key) {
            return Ok(Arc::clone(client));
        }
        let calls = Arc::clone(
            pool.calls
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(CALLS_AT_ONCE))),
        );
        let login = Login { password, ca };
        let client = Rabbitmq::new(
            name,
            config.clone(),
            login,
            calls,
            self.fence.clone(),
            Arc::clone(&self.metrics),
        )?;
        let client: Arc<dyn QueueClient> = Arc::new(client);
        pool.clients.insert(key, Arc::clone(&client));
        Ok(client)
    }
}
