//! Whether two transports lead to the same queue (QUE-36).

use std::collections::BTreeSet;

/// Identifies a queue regardless of the transport by which it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueId {
    /// The ARN of an SQS queue.
    Arn(String),
    /// A queue of `RabbitMQ`.
    Rabbitmq(RabbitmqQueueId),
}

/// What RabbitMQ reports about the location of a queue. None of it is unique: brokers in different places may have the
/// same names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RabbitmqQueueId {
    /// Name of the broker's cluster, if the broker reports it.
    pub cluster: Option<String>,
    pub vhost: String,
    pub queue: String,
    /// Names of the nodes that have the queue; empty if the broker does not report them.
    pub nodes: BTreeSet<String>,
}

/// Whether two queues are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueIdMatch {
    Same,
    /// Nothing distinguishes them.
    Possible,
    Different,
}

impl QueueId {
    /// Compares two queues.
    pub fn compare(&self, other: &Self) -> QueueIdMatch {
        match (self, other) {
            (Self::Arn(arn), Self::Arn(other)) if arn == other => QueueIdMatch::Same,
            (Self::Rabbitmq(queue), Self::Rabbitmq(other)) if !queue.differs_from(other) => {
                QueueIdMatch::Possible
            }
            _ => QueueIdMatch::Different,
        }
    }
}

impl RabbitmqQueueId {
    fn differs_from(&self, other: &Self) -> bool {
        let in_other_cluster = match (&self.cluster, &other.cluster) {
            (Some(cluster), Some(other)) => cluster != other,
            _ => false,
        };
        let are_known = !self.nodes.is_empty() && !other.nodes.is_empty();
        let on_other_nodes = are_known && self.nodes.is_disjoint(&other.nodes);
        let has_other_name = (&self.vhost, &self.queue) != (&other.vhost, &other.queue);
        has_other_name || in_other_cluster || on_other_nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rabbitmq(cluster: Option<&str>, vhost: &str, nodes: &[&str]) -> QueueId {
        QueueId::Rabbitmq(RabbitmqQueueId {
            cluster: cluster.map(str::to_owned),
            vhost: vhost.to_owned(),
            queue: "asya-a".to_owned(),
            nodes: nodes.iter().map(|it| (*it).to_owned()).collect(),
        })
    }

    /// QUE-36: names of brokers are not unique, so equal ones prove nothing, but different ones do.
    #[test]
    fn queues_of_rabbitmq_are_different_only_if_something_tells_them_apart() {
        use QueueIdMatch::{Different, Possible};
        let id = rabbitmq(Some("one"), "/", &["a", "b", "c"]);
        for (other, expected) in [
            (id.clone(), Possible),
            (rabbitmq(Some("one"), "/", &["c", "d"]), Possible),
            (rabbitmq(Some("one"), "/", &["d"]), Different),
            (rabbitmq(Some("one"), "/", &[]), Possible),
            (rabbitmq(None, "/", &["a"]), Possible),
            (rabbitmq(None, "/", &[]), Possible),
            (rabbitmq(None, "/", &["d"]), Different),
            (rabbitmq(Some("two"), "/", &["a", "b", "c"]), Different),
            (rabbitmq(Some("two"), "/", &[]), Different),
            (rabbitmq(Some("one"), "team", &["a"]), Different),
            (QueueId::Arn("arn".to_owned()), Different),
        ] {
            assert_eq!(id.compare(&other), expected, "{other:?}");
            assert_eq!(other.compare(&id), expected, "{other:?}");
        }
    }

    /// QUE-36
    #[test]
    fn equal_arns_are_one_queue() {
        let arn = |arn: &str| QueueId::Arn(arn.to_owned());
        assert_eq!(arn("a").compare(&arn("a")), QueueIdMatch::Same);
        assert_eq!(arn("a").compare(&arn("b")), QueueIdMatch::Different);
    }
}
