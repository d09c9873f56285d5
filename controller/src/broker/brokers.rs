//! Entry point to the message brokers of all configured transports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asya_shared::config::{SecretKeyRef, Transport};
use asya_shared::transport::ActorQueue;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;

use super::credential_reloading_client::CredentialReloadingClient;
use super::health::{QueueObserver, QueueResults};
use super::http_client::BuildHttpClients;
use super::pool::Pool;
use super::{BrokerError, Count, QueueClient, QueueObservation};
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

/// Clients for the brokers of all transports. Clones share one pool.
#[derive(Clone)]
pub struct Brokers(Arc<Pool>);

impl Brokers {
    /// Reads credentials through `client`. Every call that changes a broker passes `fence`, and a hanging broker
    /// occupies at most half of the reconcile `workers`. `build_http_clients` reaches the brokers.
    pub fn new(
        client: Client,
        operator_namespace: &str,
        fence: Fence,
        metrics: Arc<Metrics>,
        workers: usize,
        build_http_clients: BuildHttpClients,
    ) -> Self {
        let pool = Pool::new(
            client,
            operator_namespace,
            fence,
            metrics,
            workers,
            build_http_clients,
        );
        Self(Arc::new(pool))
    }

    /// Returns a client for `transport` with the credentials of `namespace`. Does no I/O: the first call reads
    /// credentials and connects.
    pub fn client(&self, transport: &Transport, namespace: &str) -> Arc<dyn QueueClient> {
        Arc::new(CredentialReloadingClient {
            pool: Arc::clone(&self.0),
            transport: transport.clone(),
            namespace: namespace.to_owned(),
        })
    }

    /// Returns the first of these Secrets that the namespace lacks, as far as the operator may read them: its pods
    /// cannot start without it.
    ///
    /// # Errors
    /// If the API server does not respond.
    pub async fn missing_secret<'a>(
        &self,
        namespace: &str,
        secrets: &'a [SecretKeyRef],
    ) -> Result<Option<&'a SecretKeyRef>, kube::Error> {
        for secret in secrets {
            if self.0.credentials.is_missing_in(namespace, secret).await? {
                return Ok(Some(secret));
            }
        }
        Ok(None)
    }

    /// Groups a transport's queues by the client that reaches them, so that one list serves all namespaces that share a
    /// credential.
    async fn grouped<T>(&self, transport: &Transport, queues: Vec<ActorQueue>) -> Grouped<T> {
        let mut by_namespace: BTreeMap<String, Vec<ActorQueue>> = BTreeMap::new();
        for queue in queues {
            by_namespace
                .entry(queue.namespace.clone())
                .or_default()
                .push(queue);
        }
        let mut grouped = Grouped {
            groups: Vec::new(),
            results: Vec::new(),
        };
        for (namespace, queues) in by_namespace {
            match self.0.client(transport, &namespace).await {
                Ok(client) => grouped.add(client, queues),
                Err(error) => {
                    let failed = queues.into_iter().map(|queue| (queue, Err(error.clone())));
                    grouped.results.extend(failed);
                }
            }
        }
        grouped
    }

    /// Makes the next list read the Secrets again if the broker rejected their credentials (SEC-2): no reconcile
    /// follows that would do so (QUE-20).
    fn forget_rejected<T>(
        &self,
        transport: &Transport,
        queues: &[ActorQueue],
        results: &[Result<T, BrokerError>],
    ) {
        let is_rejected = |result: &Result<T, _>| matches!(result, Err(BrokerError::AuthFailed(_)));
        if results.iter().any(is_rejected) {
            let namespaces: BTreeSet<&str> = queues.iter().map(|it| &*it.namespace).collect();
            for namespace in namespaces {
                self.0.forget_credentials(transport, namespace);
            }
        }
    }
}

/// Queues grouped by client, and the results so far.
struct Grouped<T> {
    groups: Vec<(Arc<dyn QueueClient>, Vec<ActorQueue>)>,
    results: QueueResults<T>,
}

impl<T> Grouped<T> {
    fn add(&mut self, client: Arc<dyn QueueClient>, queues: Vec<ActorQueue>) {
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

impl QueueObserver for Brokers {
    fn observe_many<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<QueueObservation>> {
        async move {
            let Grouped {
                groups,
                mut results,
            } = self.grouped(transport, queues).await;
            for (client, queues) in groups {
                let observations = client.observe_many(&queues).await;
                self.forget_rejected(transport, &queues, &observations);
                results.extend(queues.into_iter().zip(observations));
            }
            results
        }
        .boxed()
    }

    fn depths<'a>(
        &'a self,
        transport: &'a Transport,
        queues: Vec<ActorQueue>,
    ) -> BoxFuture<'a, QueueResults<Count>> {
        async move {
            let Grouped {
                groups,
                mut results,
            } = self.grouped(transport, queues).await;
            for (client, queues) in groups {
                let names = queues.iter().map(|queue| queue.names.queue.clone());
                let depths = client.depths(&names.collect::<Vec<_>>()).await;
                self.forget_rejected(transport, &queues, &depths);
                results.extend(queues.into_iter().zip(depths));
            }
            results
        }
        .boxed()
    }
}
