//! Queue settings that both transports share (QUE-1, QUE-7, QUE-14).

use asya_wire::queue::{Naming, Template, TemplateError, check_literals};
use serde::Deserialize;

use super::{ConfigError, KeyPath, non_empty};

const QUEUE: &str = "{queue}";

/// Settings for the queues of a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuesConfig {
    /// Whether the operator creates, changes and deletes queues (QUE-7).
    pub auto_create: bool,
    /// Accepted without effect: an existing queue is never replaced (QUE-6).
    pub force_recreate: bool,
    /// Template of queue names.
    pub name_template: Template,
    /// How routes name actors.
    pub names: RouteNames,
    /// Dead letter queues, for messages that failed too often.
    pub dlq: DlqConfig,
    /// Type of RabbitMQ queues (RMQ-5).
    pub queue_type: QueueType,
}

/// Names of an actor's queues, and the names by which its sidecar addresses other actors (QUE-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueNames {
    /// The actor's queue.
    pub queue: String,
    /// The dead letter queue, if any.
    pub dlq: Option<String>,
    /// The actor's name in routes: the queue's name without `asya-`, or the actor's own ([`RouteNames`]).
    pub actor: String,
    /// Name in messages of the actor that receives completed messages.
    pub happy_end: String,
    /// Name in messages of the actor that receives failed messages.
    pub error_end: String,
}

/// Dead letter queues (QUE-14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DlqConfig {
    /// Whether each queue gets a dead letter queue.
    pub enabled: bool,
    /// Number of deliveries before a message is dead-lettered.
    pub max_retry_count: u32,
    /// Days for which the dead letter queue keeps a message; `None`: unlimited.
    pub retention_days: Option<u32>,
    name: String,
}

/// How messages name the actors in their route (QUE-1, SC-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum RouteNames {
    /// By the name of their queue, without the prefix `asya-`.
    #[default]
    Queue,
    /// By their own name; sidecars add the namespace themselves.
    Bare,
}

/// Type of a RabbitMQ queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueType {
    /// New queues with a dead letter queue are quorum queues; an existing queue may be either.
    #[default]
    Auto,
    /// Classic, even if the virtual host has another default.
    Classic,
    /// Quorum, the only type that counts deliveries.
    Quorum,
}

/// Properties of queues that depend on the type of transport.
pub(super) struct QueueConstraints {
    pub(super) dlq_name: &'static str,
    pub(super) dlq_retention_days: Option<u32>,
    /// `None`: unlimited.
    pub(super) max_retention_days: Option<u32>,
    pub(super) has_types: bool,
    pub(super) naming: Naming,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawQueues {
    auto_create: Option<bool>,
    force_recreate: Option<bool>,
    name_template: Option<String>,
    names: Option<RouteNames>,
    dlq: Option<RawDlq>,
    #[serde(rename = "type")]
    queue_type: Option<QueueType>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawDlq {
    enabled: Option<bool>,
    max_retry_count: Option<u32>,
    retention_days: Option<u32>,
    name: Option<String>,
}

impl RawQueues {
    pub(super) fn build(
        self,
        at: &KeyPath,
        constraints: &QueueConstraints,
    ) -> Result<QueuesConfig, ConfigError> {
        if self.queue_type.is_some() && !constraints.has_types {
            return Err(at
                .key("type")
                .error("only for transports of type rabbitmq; remove it"));
        }
        let name_template = match non_empty(self.name_template) {
            Some(template) => Template::parse(&template, constraints.naming)
                .map_err(|wrong| at.key("nameTemplate").error(wrong.to_string()))?,
            None => Template::default(),
        };
        Ok(QueuesConfig {
            auto_create: self.auto_create.unwrap_or(true),
            force_recreate: self.force_recreate.unwrap_or(false),
            name_template,
            names: self.names.unwrap_or_default(),
            dlq: self
                .dlq
                .unwrap_or_default()
                .build(&at.key("dlq"), constraints)?,
            queue_type: self.queue_type.unwrap_or_default(),
        })
    }
}

impl RawDlq {
    /// Zero counts as "not set", for compatibility.
    fn build(self, at: &KeyPath, constraints: &QueueConstraints) -> Result<DlqConfig, ConfigError> {
        let retention_days = self.retention_days.filter(|days| *days > 0);
        if let (Some(days), Some(max)) = (retention_days, constraints.max_retention_days)
            && days > max
        {
            return Err(at
                .key("retentionDays")
                .error(format!("must be at most {max}")));
        }
        let name = non_empty(self.name).unwrap_or_else(|| constraints.dlq_name.to_owned());
        check_literals(&name.replace(QUEUE, ""), constraints.naming).map_err(|wrong| {
            let wrong = match wrong {
                TemplateError::Placeholder => format!("knows only the places {QUEUE}"),
                other => other.to_string(),
            };
            at.key("name").error(wrong)
        })?;
        if name == QUEUE {
            return Err(at
                .key("name")
                .error("a queue cannot be its own dead letter queue; try {queue}-dlq"));
        }
        Ok(DlqConfig {
            enabled: self.enabled.unwrap_or(false),
            max_retry_count: self.max_retry_count.filter(|count| *count > 0).unwrap_or(3),
            retention_days: retention_days.or(constraints.dlq_retention_days),
            name,
        })
    }
}

impl DlqConfig {
    /// Returns the name of the dead letter queue of `queue`.
    #[must_use]
    pub fn name_for(&self, queue: &str) -> String {
        self.name.replace(QUEUE, queue)
    }

    /// Whether all queues of the transport share one dead letter queue, which then outlives every actor.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        !self.name.contains(QUEUE)
    }
}

#[cfg(test)]
mod tests;
