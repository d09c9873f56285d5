//! Observes many queues together, through paged lists (RMQ-6). A virtual host may hold many more queues of other
//! clients, which cost neither requests nor memory.

use std::collections::{HashMap, HashSet};

use asya_shared::transport::ActorQueue;
use asya_shared::transport::rabbitmq::{FoundQueue, QueueDeclaration};
use futures::FutureExt;
use futures::future::ready;
use reqwest::Method;
use serde::Deserialize;

use super::{QueueBindings, Rabbitmq, count_of};
use crate::broker::limiter::Operation;
use crate::broker::{BrokerError, Count, QueueCheck, QueueObservation, limiter};

/// Maximum page size of the API.
const PAGE: usize = 500;
/// Up to this many queues are read one by one.
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
        let wanted: Vec<QueueDeclaration> = queues
            .iter()
            .map(|queue| self.config.declaration(&queue.names))
            .collect();
        let dlqs = wanted.iter().filter_map(|it| it.dlq.as_ref());
        let names = wanted.iter().map(|it| &*it.name);
        let names = names.chain(dlqs.map(|dlq| &*dlq.name)).collect();
        let (listed, bindings) = match self.lists(&names).await {
            Ok(Some(lists)) => lists,
            Ok(None) => return self.observe_each(queues).await,
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
            return self.count_each(queues).await;
        }
        let names = queues.iter().map(|queue| &**queue).collect();
        let listed = match self.list_queues(&names).await {
            Ok(Some(listed)) => listed,
            Ok(None) => return self.count_each(queues).await,
            Err(error) => return queues.iter().map(|_| Err(error.clone())).collect(),
        };
        let counts = queues.iter().map(|queue| match listed.get(queue) {
            Some(found) => ready(Ok(count_of(Some(found)))).boxed(),
            // A queue created or deleted during the listing shifts the pages of others.
            None => self.count(queue).boxed(),
        });
        limiter::run_limited(counts.collect()).await
    }

    async fn count_each(&self, queues: &[String]) -> Vec<Result<Count, BrokerError>> {
        let counts = queues.iter().map(|queue| self.count(queue).boxed());
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

    async fn lists(
        &self,
        names: &HashSet<&str>,
    ) -> Result<Option<(HashMap<String, FoundQueue>, QueueBindings)>, BrokerError> {
        let Some(queues) = self.list_queues(names).await? else {
            return Ok(None);
        };
        Ok(Some((queues, self.list_queue_bindings(names).await?)))
    }

    /// Those of the queues with these names that exist; `None` if listing them takes more requests than reading each.
    async fn list_queues(
        &self,
        names: &HashSet<&str>,
    ) -> Result<Option<HashMap<String, FoundQueue>>, BrokerError> {
        let mut all = HashMap::new();
        let prefix = common_prefix(names);
        let mut number = 1;
        loop {
            let mut url = self.api.url(&["queues", &self.config.vhost]);
            url.query_pairs_mut()
                .append_pair("page", &number.to_string())
                .append_pair("page_size", &PAGE.to_string())
                .append_pair("sort", "name")
                .append_pair("columns", COLUMNS);
            if !prefix.is_empty() {
                // The server leaves out names that do not contain it, before it splits the list into pages.
                url.query_pairs_mut().append_pair("name", prefix);
            }
            let what = format!("the queues of vhost {:?}", self.config.vhost);
            let operation = Operation::read("list");
            let response = self.api.send(operation, Method::GET, url, None).await?;
            // The list has shrunk since the previous page.
            if response.is_absent() || (number > 1 && response.is_past_the_end()) {
                break;
            }
            let page: Page = self.api.decode(&what, &response)?;
            if page.page_count > names.len() {
                return Ok(None);
            }
            let ours = page.items.into_iter();
            let ours = ours.filter(|found| names.contains(&*found.name));
            all.extend(ours.map(|found| (found.name, found.queue)));
            if number >= page.page_count {
                break;
            }
            number += 1;
        }
        Ok(Some(all))
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
        let dlq = dlq.and_then(|dlq| listed.get(&dlq.name));
        let topology = self.topology_state(&declaration, queue, dlq, bindings);
        self.check(&declaration, found, &topology)
    }
}

/// The longest text that all names begin with.
fn common_prefix<'a>(names: &HashSet<&'a str>) -> &'a str {
    let (Some(first), Some(last)) = (names.iter().min(), names.iter().max()) else {
        return "";
    };
    let same = first.chars().zip(last.chars());
    let same = same.take_while(|(one, other)| one == other);
    &first[..same.map(|(one, _)| one.len_utf8()).sum()]
}

#[cfg(test)]
mod tests {
    use super::common_prefix;

    #[test]
    fn common_prefix_is_what_all_names_begin_with() {
        for (names, prefix) in [
            (&["asya-one", "asya-other", "asya-on"][..], "asya-o"),
            (&["asya-é", "asya-è"], "asya-"),
            (&["one", "two"], ""),
            (&["one"], "one"),
            (&[], ""),
        ] {
            assert_eq!(common_prefix(&names.iter().copied().collect()), prefix);
        }
    }
}
