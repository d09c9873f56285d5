//! A transport as one namespace uses it. Reads credentials again, once, when the broker refuses them (SQS-8, SEC-2).

use std::sync::Arc;

use asya_shared::config::Transport;
use asya_shared::transport::QueueOf;
use asya_shared::transport::sqs::Owner;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::gate::Entry;
use super::pool::Pool;
use super::{BrokerError, Count, Deleted, Emptied, QueueClient, QueueObservation, Serving};

/// Looks up its client on each call, so that it can be kept across credential changes.
pub struct RenewingClient {
    pub(super) pool: Arc<Pool>,
    pub(super) transport: Transport,
    pub(super) namespace: String,
}

impl RenewingClient {
    async fn call<A, T, F>(&self, entry: Entry, arguments: &A, call: F) -> Result<T, BrokerError>
    where
        A: ?Sized,
        F: for<'c> Fn(&'c dyn QueueClient, &'c A) -> BoxFuture<'c, Result<T, BrokerError>>,
    {
        let _inside = self.pool.gate(&self.transport.name).enter(entry)?;
        let client = self.client().await?;
        match call(&*client, arguments).await {
            Err(error @ BrokerError::AuthFailed(_)) => {
                self.pool.forget_credentials(&self.transport);
                let renewed = self.client().await?;
                if Arc::ptr_eq(&client, &renewed) {
                    return Err(error);
                }
                call(&*renewed, arguments).await
            }
            result => result,
        }
    }

    async fn client(&self) -> Result<Arc<dyn QueueClient>, BrokerError> {
        self.pool.client(&self.transport, &self.namespace).await
    }
}

impl QueueClient for RenewingClient {
    fn observe<'a>(
        &'a self,
        queue: &'a QueueOf,
    ) -> BoxFuture<'a, Result<QueueObservation, BrokerError>> {
        self.call(Entry::First, queue, |client, queue| client.observe(queue))
            .boxed()
    }

    fn create<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.call(Entry::Again, queue, |client, queue| client.create(queue))
            .boxed()
    }

    fn update<'a>(&'a self, queue: &'a QueueOf) -> BoxFuture<'a, Result<Serving, BrokerError>> {
        self.call(Entry::Again, queue, |client, queue| client.update(queue))
            .boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Deleted, BrokerError>> {
        async move {
            self.call(Entry::First, &(queue, owner), |client, (queue, owner)| {
                client.delete(queue, owner)
            })
            .await
        }
        .boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a Owner,
    ) -> BoxFuture<'a, Result<Emptied, BrokerError>> {
        async move {
            self.call(Entry::First, &(queue, owner), |client, (queue, owner)| {
                client.delete_if_empty(queue, owner)
            })
            .await
        }
        .boxed()
    }

    /// Credentials refused here are renewed by the reconcile that follows.
    fn survey<'a>(
        &'a self,
        queues: &'a [QueueOf],
    ) -> BoxFuture<'a, Vec<Result<QueueObservation, BrokerError>>> {
        async move {
            match self.client().await {
                Ok(client) => client.survey(queues).await,
                Err(error) => queues.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    }

    fn depths<'a>(
        &'a self,
        queues: &'a [String],
    ) -> BoxFuture<'a, Vec<Result<Count, BrokerError>>> {
        async move {
            match self.client().await {
                Ok(client) => client.depths(queues).await,
                Err(error) => queues.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    }
}
