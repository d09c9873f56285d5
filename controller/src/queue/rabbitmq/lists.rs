//! Many queues at once, by paged lists (RMQ-6).

use std::collections::{HashMap, HashSet};

use asya_shared::transport::QueueOf;
use asya_shared::transport::rabbitmq::FoundQueue;
use futures::FutureExt;
use futures::future::ready;
use serde::Deserialize;

use super::{Binding, Bindings, Rabbitmq, depth_of, reaches};
use crate::queue::{BrokerError, Depth, Seen, Standing, gate};

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
                Standing::Absent | Standing::Drifted => self.look(queue).boxed(),
                Standing::Serves(_) | Standing::Differs { .. } => ready(Ok(seen)).boxed(),
            }
        });
        gate::all(looks.collect()).await
    }

    pub(super) async fn depths(
        &self,
        queues: &[String],
    ) -> Vec<Result<Option<Depth>, BrokerError>> {
        if queues.len() <= FEW {
            let looks = queues.iter().map(|queue| self.depth(queue).boxed());
            return gate::all(looks.collect()).await;
        }
        let known = self.list_queues().await;
        let depth = |name| match &known {
            Ok(known) => Ok(known.get(name).and_then(depth_of)),
            Err(error) => Err(error.clone()),
        };
        queues.iter().map(depth).collect()
    }

    async fn depth(&self, queue: &str) -> Result<Option<Depth>, BrokerError> {
        Ok(self.find(queue).await?.as_ref().and_then(depth_of))
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
            // Of a list that became shorter meanwhile the last page is no more.
            let Some(page) = self.api.get::<Page>("list", &what, url).await? else {
                break;
            };
            let named = page.items.into_iter();
            all.extend(named.map(|named| (named.name, named.queue)));
            if number >= page.page_count {
                break;
            }
            number += 1;
        }
        Ok(all)
    }

    /// Every binding of the exchange that senders publish to.
    async fn list_bindings(&self) -> Result<Bindings, BrokerError> {
        let (vhost, exchange) = (&self.config.vhost, &self.config.exchange);
        let segments = ["exchanges", vhost, exchange, "bindings", "source"];
        let what = format!("the bindings of exchange {exchange}");
        let url = self.api.url(&segments);
        let found: Option<Vec<Binding>> = self.api.get("bindings", &what, url).await?;
        Ok(found.unwrap_or_default().into_iter().collect())
    }

    fn judge(
        &self,
        queue: &QueueOf,
        found: Option<&FoundQueue>,
        known: &HashMap<String, FoundQueue>,
        bindings: &HashSet<Binding>,
    ) -> Seen {
        let wanted = self.config.declaration(&queue.names);
        let complete = wanted
            .dlq
            .as_ref()
            .is_none_or(|dlq| known.contains_key(&dlq.name))
            && reaches(&wanted, bindings);
        self.standing(&wanted, found, complete)
    }
}
