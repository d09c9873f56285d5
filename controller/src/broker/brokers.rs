//! Entry point to the message brokers of all configured transports.

use std::collections::HashMap;
use std::sync::Arc;

use asya_shared::config::Transport;
use asya_shared::transport::QueueOf;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;

use super::health::{Answers, Surveyor};
use super::pool::Pool;
use super::session::RenewingClient;
use super::{Count, QueueClient, QueueObservation};
use crate::cluster::fence::Fence;
use crate::telemetry::metrics::Metrics;

/// Clients for the brokers of all transports. Clones share one pool.
#[derive(Clone)]
pub struct Brokers(Arc<Pool>);

impl Brokers {
    /// Reads credentials through `client`. Every call that changes a broker passes `fence`, and a hanging broker
    /// occupies at most half of the reconcile `workers`.
    pub fn new(
        client: Client,
        own_namespace: &str,
        fence: Fence,
        metrics: Arc<Metrics>,
        workers: usize,
    ) -> Self {
        let pool = Pool::new(client, own_namespace, fence, metrics, workers);
        Self(Arc::new(pool))
    }

    /// Returns a client for `transport` with the credentials of `namespace`. Does no I/O: the first call reads
    /// credentials and connects.
    pub fn client(&self, transport: &Transport, namespace: &str) -> Arc<dyn QueueClient> {
        Arc::new(RenewingClient {
            pool: Arc::clone(&self.0),
            transport: transport.clone(),
            namespace: namespace.to_owned(),
        })
    }

    /// Groups a transport's queues by the client that reaches them, so that one list serves all namespaces that share a
    /// credential.
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

/// Queues grouped by client, and the results so far.
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
    ) -> BoxFuture<'a, Answers<QueueObservation>> {
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
