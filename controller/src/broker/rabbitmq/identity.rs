//! Where a queue is (QUE-36).

use std::collections::BTreeSet;

use reqwest::Method;
use serde::Deserialize;

use super::Rabbitmq;
use crate::broker::limiter::Operation;
use crate::broker::{BrokerError, QueueId, RabbitmqQueueId};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Overview {
    cluster_name: Option<String>,
}

#[derive(Deserialize)]
struct FoundNodes {
    /// Of a classic queue, or of the leader of a quorum queue.
    #[serde(default)]
    node: Option<String>,
    /// Of a quorum queue.
    #[serde(default)]
    members: Vec<String>,
}

impl Rabbitmq {
    pub(super) async fn id(&self, name: &str) -> Result<Option<QueueId>, BrokerError> {
        let vhost = &self.config.vhost;
        let url = self.api.url(&["queues", vhost, name]);
        let what = format!("queue {name}");
        let Some(found) = self.api.get::<FoundNodes>("observe", &what, url).await? else {
            return Ok(None);
        };
        let nodes: BTreeSet<String> = found.members.into_iter().chain(found.node).collect();
        Ok(Some(QueueId::Rabbitmq(RabbitmqQueueId {
            cluster: self.cluster_name().await?,
            vhost: vhost.clone(),
            queue: name.to_owned(),
            nodes,
        })))
    }

    /// The name of the broker's cluster; `None` if the broker, or a proxy in front of it, does not reveal it to this
    /// user. A broker that cannot answer at the moment hides nothing.
    async fn cluster_name(&self) -> Result<Option<String>, BrokerError> {
        let mut url = self.api.url(&["overview"]);
        url.query_pairs_mut().append_pair("columns", "cluster_name");
        let operation = Operation::read("overview");
        let response = self.api.send(operation, Method::GET, url, None).await?;
        if response.is_temporary_failure() {
            return Err(self.api.response_error("overview", &response));
        }
        let overview: Option<Overview> = response
            .status
            .is_success()
            .then(|| serde_json::from_slice(&response.body).ok())
            .flatten();
        Ok(overview.and_then(|it| it.cluster_name))
    }
}
