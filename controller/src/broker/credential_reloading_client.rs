//! A transport with the credentials of one namespace. If the broker rejects them, reads them again once (SQS-8, SEC-2).

use std::sync::Arc;

use asya_shared::config::Transport;
use asya_shared::transport::ActorQueue;
use asya_shared::transport::ownership::QueueOwner;
use futures::FutureExt;

use super::limiter::CallStage;
use super::pool::Pool;
use super::{
    BrokerError, BrokerResponse, BrokerResponses, Count, DeleteIfEmptyOutcome, DeleteOutcome,
    DeletionGuard, QueueClient, QueueId, QueueObservation, ReadyQueue, Untagged,
};

/// Looks up its client on each call, so that it can be kept across credential changes.
pub struct CredentialReloadingClient {
    pub(super) pool: Arc<Pool>,
    pub(super) transport: Transport,
    pub(super) namespace: String,
}

impl CredentialReloadingClient {
    async fn call<A, T, F>(
        &self,
        stage: CallStage,
        arguments: &A,
        call: F,
    ) -> Result<T, BrokerError>
    where
        A: ?Sized,
        F: for<'c> Fn(&'c dyn QueueClient, &'c A) -> BrokerResponse<'c, T>,
    {
        let _permit = self.pool.limiter(&self.transport.name).acquire(stage)?;
        let client = self.client().await?;
        match call(&*client, arguments).await {
            Err(error @ BrokerError::AuthFailed(_)) => {
                self.pool
                    .forget_credentials(&self.transport, &self.namespace);
                let reloaded = self.client().await?;
                if Arc::ptr_eq(&client, &reloaded) {
                    return Err(error);
                }
                call(&*reloaded, arguments).await
            }
            result => result,
        }
    }

    async fn client(&self) -> Result<Arc<dyn QueueClient>, BrokerError> {
        self.pool.client(&self.transport, &self.namespace).await
    }
}

impl QueueClient for CredentialReloadingClient {
    fn observe<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, QueueObservation> {
        self.call(CallStage::Initial, queue, |client, queue| {
            client.observe(queue)
        })
        .boxed()
    }

    fn create<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.call(CallStage::FollowUp, queue, |client, queue| {
            client.create(queue)
        })
        .boxed()
    }

    fn update<'a>(&'a self, queue: &'a ActorQueue) -> BrokerResponse<'a, ReadyQueue> {
        self.call(CallStage::FollowUp, queue, |client, queue| {
            client.update(queue)
        })
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteOutcome> {
        async move {
            self.call(
                CallStage::Initial,
                &(queue, owner, guard),
                |client, (queue, owner, guard)| client.delete(queue, owner, *guard),
            )
            .await
        }
        .boxed()
    }

    fn delete_if_empty<'a>(
        &'a self,
        queue: &'a str,
        owner: &'a QueueOwner,
        untagged: Untagged,
        generation: i64,
        guard: &'a dyn DeletionGuard,
    ) -> BrokerResponse<'a, DeleteIfEmptyOutcome> {
        async move {
            self.call(
                CallStage::Initial,
                &(queue, owner, guard),
                |client, (queue, owner, guard)| {
                    client.delete_if_empty(queue, owner, untagged, generation, *guard)
                },
            )
            .await
        }
        .boxed()
    }

    fn id<'a>(&'a self, queue: &'a str) -> BrokerResponse<'a, Option<QueueId>> {
        async move {
            self.call(CallStage::Initial, queue, |client, queue| client.id(queue))
                .await
        }
        .boxed()
    }

    /// Does not reload rejected credentials: the reconcile that follows does.
    fn observe_many<'a>(
        &'a self,
        queues: &'a [ActorQueue],
    ) -> BrokerResponses<'a, QueueObservation> {
        async move {
            match self.client().await {
                Ok(client) => client.observe_many(queues).await,
                Err(error) => queues.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    }

    fn depths<'a>(&'a self, queues: &'a [String]) -> BrokerResponses<'a, Count> {
        async move {
            match self.client().await {
                Ok(client) => client.depths(queues).await,
                Err(error) => queues.iter().map(|_| Err(error.clone())).collect(),
            }
        }
        .boxed()
    }
}
