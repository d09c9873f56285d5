//! A common interface to both brokers.

use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::Cluster;
use asya_tests::eventually::{NotYet, check, eventually};
use serde_json::Value;

use crate::producer::Producer;

/// The broker that holds an actor's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broker {
    RabbitMq,
    Sqs,
}

impl Broker {
    pub(crate) fn transport(self) -> &'static str {
        match self {
            Self::RabbitMq => "rabbitmq",
            Self::Sqs => "sqs",
        }
    }

    pub(crate) async fn send(
        self,
        cluster: &Cluster,
        actor: &str,
        messages: &[String],
    ) -> Result<()> {
        match self {
            Self::RabbitMq => {
                let mut producer = Producer::connect(cluster).await?;
                producer.send(actor, messages).await?;
                producer.close().await;
                Ok(())
            }
            Self::Sqs => {
                cluster
                    .sqs()?
                    .send(&format!("asya-{actor}"), messages)
                    .await
            }
        }
    }

    /// Waits for this many messages for an actor, and removes them from its queue.
    pub(crate) async fn take(
        self,
        cluster: &Cluster,
        actor: &str,
        count: usize,
        timeout: Duration,
    ) -> Result<Vec<Value>> {
        let queue = format!("asya-{actor}");
        let mut found = Vec::new();
        let what = format!("{count} messages are in {queue}");
        eventually(what, timeout, async || {
            let some = match self {
                Self::RabbitMq => {
                    let rabbitmq = cluster.rabbitmq().map_err(NotYet::new)?;
                    rabbitmq.messages(&queue, 1000, false).await
                }
                Self::Sqs => {
                    let sqs = cluster.sqs().map_err(NotYet::new)?;
                    sqs.receive_all(&queue).await
                }
            };
            for message in some.map_err(NotYet::new)? {
                found.push(serde_json::from_str(&message)?);
            }
            check(
                found.len() >= count,
                format_args!("{}: {found:?}", found.len()),
            )
        })
        .await?;
        Ok(found)
    }
}
