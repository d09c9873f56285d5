//! Observes many queues together, through paged lists (RMQ-6).

use std::collections::HashMap;

use asya_shared::transport::ActorQueue;
use asya_shared::transport::rabbitmq::FoundQueue;
use futures::FutureExt;
use futures::future::ready;
use reqwest::Method;
use serde::Deserialize;

use super::{QueueBindings, Rabbitmq, count_of};
use crate::broker::limiter::Operation;
use crate::broker::{BrokerError, Count, QueueCheck, QueueObservation, limiter};

/// Maximum page size of the API.
const PAGE: usize = 500;
/// Up to this many queues are read one by one: a vhost may hold many queues of other clients.
const MAX_SINGLE_READS: usize = 20;
/// Only the columns needed: full objects include statistics.
const COLUMNS: &str =
    "name,durable,auto_delete,arguments,type,messages_ready,messages_unacknowledged,consumers";

#[derive(Deserialize)]
struct Page {
    page_count: usize,
    items: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    queue: FoundQueue,
}

impl Rabbitmq {
    pub(super) async fn observe_many(
        &self,
        queues: &[ActorQueue],
    ) -> Vec<Result<QueueObservation, BrokerError>> {
        if queues.len() <= MAX_SINGLE_READS {
            return self.observe_each(queues).await;
        }
        let (listed, bindings) = match self.lists().await {
            Ok(lists) => lists,
            Err(error) => return queues.iter().map(|_| Err(error.clone())).collect(),
        };
        let observations = queues.iter().map(|queue| {
            let found = listed.get(&queue.names.queue);
            let observation = self.observation_from_lists(queue, found, &listed, &bindings);
            match observation.check {
                // A queue created or deleted during the listing shifts the pages of others: confirm these results with
                // a read.
                QueueCheck::NotFound | QueueCheck::Drifted | QueueCheck::NotTaggedYet => {
                    self.observe_queue(queue).boxed()
                }
                QueueCheck::Ready(_) | QueueCheck::Mismatch { .. } => {
                    ready(Ok(observation)).boxed()
                }
            }
        });
        limiter::run_limited(observations.collect()).await
    }

    pub(super) async fn depths(&self, queues: &[String]) -> Vec<Result<Count, BrokerError>> {
        if queues.len() <= MAX_SINGLE_READS {
            let counts = queues.iter().map(|queue| self.count(queue).boxed());
            return limiter::run_limited(counts.collect()).await;
        }
        let listed = match self.list_queues().await {
            Ok(listed) => listed,
            Err(error) => return queues.iter().map(|_| Err(error.clone())).collect(),
        };
        let counts = queues.iter().map(|queue| match listed.get(queue) {
            Some(found) => ready(Ok(count_of(Some(found)))).boxed(),
            // A queue created or deleted during the listing shifts the pages of others.
            None => self.count(queue).boxed(),
        });
        limiter::run_limited(counts.collect()).await
    }

    async fn count(&self, queue: &str) -> Result<Count, BrokerError> {
        Ok(count_of(self.find(queue).await?.as_ref()))
    }

    async fn observe_each(
        &self,
        queues: &[ActorQueue],
    ) -> Vec<Result<QueueObservation, BrokerError>> {
        let observations = queues.iter().map(|queue| self.observe_queue(queue).boxed());
        limiter::run_limited(observations.collect()).await
    }

    async fn lists(&self) -> Result<(HashMap<String, FoundQueue>, QueueBindings), BrokerError> {
        Ok((self.list_queues().await?, self.list_queue_bindings().await?))
    }

    async fn list_queues(&self) -> Result<HashMap<String, FoundQueue>, BrokerError> {
        let mut all = HashMap::new();
        let mut number = 1;
        loop {
            let mut url = self.api.url(&["queues", &self.config.vhost]);
            url.query_pairs_mut()
                .append_pair("page", &number.to_string())
                .append_pair("page_size", &PAGE.to_string())
                .append_pair("sort", "name")
                .append_pair("columns", COLUMNS);
            let what = format!("the queues of vhost {:?}", self.config.vhost);
            let operation = Operation::read("list");
            let response = self.api.send(operation, Method::GET, url, None).await?;
            // The list has shrunk since the previous page.
            if response.is_absent() || (number > 1 && response.is_past_the_end()) {
                break;
            }
            let page: Page = self.api.decode(&what, &response)?;
            let named = page.items.into_iter();
            all.extend(named.map(|named| (named.name, named.queue)));
            if number >= page.page_count {
                break;
            }
            number += 1;
        }
        Ok(all)
    }

    /// State of a queue according to the lists. They lack bindings to other exchanges, so no owner is reported yet.
    fn observation_from_lists(
        &self,
        queue: &ActorQueue,
        found: Option<&FoundQueue>,
        listed: &HashMap<String, FoundQueue>,
        bindings: &QueueBindings,
    ) -> QueueObservation {
        let declaration = self.config.declaration(&queue.names);
        let dlq = declaration.dlq.as_ref();
        let dlq_exists = dlq.is_none_or(|dlq| listed.contains_key(&dlq.name));
        let topology = self.topology_state(&declaration, queue, dlq_exists, bindings);
        self.check(&declaration, found, &topology)
    }
}
