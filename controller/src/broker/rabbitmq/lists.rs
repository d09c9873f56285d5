//! Many queues at once, by paged lists (RMQ-6).

use std::collections::HashMap;

use asya_shared::transport::QueueOf;
use asya_shared::transport::rabbitmq::FoundQueue;
use futures::FutureExt;
use futures::future::ready;
use reqwest::Method;
use serde::Deserialize;

use super::{Bindings, Rabbitmq, count_of};
use crate::broker::gate::Operation;
use crate::broker::{BrokerError, Count, Seen, Standing, gate};

/// The most that the API gives.
const PAGE: usize = 500;
/// Up to so many queues are asked for one by one: a vhost may hold many more than ours.
const FEW: usize = 20;
/// Less than the whole, which holds statistics.
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
    pub(super) async fn survey(&self, queues: &[QueueOf]) -> Vec<Result<Seen, BrokerError>> {
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
                // A queue that comes or goes shifts the pages of others: bad news is looked at again.
                Standing::Absent | Standing::Drifted | Standing::Unmarked => {
                    self.look(queue).boxed()
                }
                Standing::Serves(_) | Standing::Differs { .. } => ready(Ok(seen)).boxed(),
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
            // A queue that comes or goes shifts the pages of others.
            None => self.count(queue).boxed(),
        });
        gate::all(counts.collect()).await
    }

    async fn count(&self, queue: &str) -> Result<Count, BrokerError> {
        Ok(count_of(self.find(queue).await?.as_ref()))
    }

    async fn look_at_each(&self, queues: &[QueueOf]) -> Vec<Result<Seen, BrokerError>> {
        let looks = queues.iter().map(|queue| self.look(queue).boxed());
        gate::all(looks.collect()).await
    }

    async fn lists(&self) -> Result<(HashMap<String, FoundQueue>, Bindings), BrokerError> {
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
            // The list became shorter while it was read.
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

    /// What the lists show of a queue. The lists lack bindings of other exchanges, so nothing is a conflict yet.
    fn judge(
        &self,
        queue: &QueueOf,
        found: Option<&FoundQueue>,
        known: &HashMap<String, FoundQueue>,
        bindings: &Bindings,
    ) -> Seen {
        let wanted = self.config.declaration(&queue.names);
        let dlq = wanted.dlq.as_ref();
        let dlq_is_there = dlq.is_none_or(|dlq| known.contains_key(&dlq.name));
        let around = self.surroundings(&wanted, queue, dlq_is_there, bindings);
        self.standing(&wanted, found, &around)
    }
}
