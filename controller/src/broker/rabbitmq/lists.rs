//! Observes many queues at once through paged lists (RMQ-6).

use std::collections::HashMap;

use asya_shared::transport::QueueOf;
use asya_shared::transport::rabbitmq::FoundQueue;
use futures::FutureExt;
use futures::future::ready;
use reqwest::Method;
use serde::Deserialize;

use super::{ExchangeBindings, Rabbitmq, count_of};
use crate::broker::gate::Operation;
use crate::broker::{BrokerError, Count, QueueCheck, QueueObservation, gate};

/// Maximum page size of the API.
const PAGE: usize = 500;
/// Up to this many queues are read one by one: a vhost may hold many more than ours.
const FEW: usize = 20;
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
    pub(super) async fn survey(
        &self,
        queues: &[QueueOf],
    ) -> Vec<Result<QueueObservation, BrokerError>> {
        if queues.len() <= FEW {
            return self.look_at_each(queues).await;
        }
        let (known, bindings) = match self.lists().await {
            Ok(lists) => lists,
            Err(error) => return queues.iter().map(|_| Err(error.clone())).collect(),
        };
        let looks = queues.iter().map(|queue| {
            let found = known.get(&queue.names.queue);
            let seen = self.judge(queue, found, &known, &bindings);
            match seen.standing {
                // A queue created or deleted during the listing shifts the pages of others: confirm bad news with a
                // read.
                QueueCheck::Absent | QueueCheck::Drifted | QueueCheck::Unmarked => {
                    self.look(queue).boxed()
                }
                QueueCheck::Serves(_) | QueueCheck::Differs { .. } => ready(Ok(seen)).boxed(),
            }
        });
        gate::all(looks.collect()).await
    }

    pub(super) async fn depths(&self, queues: &[String]) -> Vec<Result<Count, BrokerError>> {
        if queues.len() <= FEW {
            let counts = queues.iter().map(|queue| self.count(queue).boxed());
            return gate::all(counts.collect()).await;
        }
        let known = match self.list_queues().await {
            Ok(known) => known,
            Err(error) => return queues.iter().map(|_| Err(error.clone())).collect(),
        };
        let counts = queues.iter().map(|queue| match known.get(queue) {
            Some(found) => ready(Ok(count_of(Some(found)))).boxed(),
            // A queue created or deleted during the listing shifts the pages of others.
            None => self.count(queue).boxed(),
        });
        gate::all(counts.collect()).await
    }

    async fn count(&self, queue: &str) -> Result<Count, BrokerError> {
        Ok(count_of(self.find(queue).await?.as_ref()))
    }

    async fn look_at_each(&self, queues: &[QueueOf]) -> Vec<Result<QueueObservation, BrokerError>> {
        let looks = queues.iter().map(|queue| self.look(queue).boxed());
        gate::all(looks.collect()).await
    }

    async fn lists(&self) -> Result<(HashMap<String, FoundQueue>, ExchangeBindings), BrokerError> {
        Ok((self.list_queues().await?, self.list_bindings().await?))
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
            let answer = self.api.send(operation, Method::GET, url, None).await?;
            // The list shrank while it was read.
            if answer.is_absent() || (number > 1 && answer.is_past_the_end()) {
                break;
            }
            let page: Page = self.api.decode(&what, &answer)?;
            let named = page.items.into_iter();
            all.extend(named.map(|named| (named.name, named.queue)));
            if number >= page.page_count {
                break;
            }
            number += 1;
        }
        Ok(all)
    }

    /// State of a queue according to the lists. They lack bindings to other exchanges, so no conflict is reported yet.
    fn judge(
        &self,
        queue: &QueueOf,
        found: Option<&FoundQueue>,
        known: &HashMap<String, FoundQueue>,
        bindings: &ExchangeBindings,
    ) -> QueueObservation {
        let wanted = self.config.declaration(&queue.names);
        let dlq = wanted.dlq.as_ref();
        let dlq_is_there = dlq.is_none_or(|dlq| known.contains_key(&dlq.name));
        let around = self.surroundings(&wanted, queue, dlq_is_there, bindings);
        self.standing(&wanted, found, &around)
    }
}
