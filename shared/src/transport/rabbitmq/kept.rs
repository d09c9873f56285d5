//! Settings of a transport that an existing queue keeps from an earlier configuration, because its arguments cannot be
//! changed (RMQ-5). They make no queue unusable, so they are no mismatch.

use std::fmt;

use serde_json::{Map, Value};

use super::{DELIVERY_LIMIT, DlqDeclaration, FoundQueue, MESSAGE_TTL, QueueDeclaration, shown};

/// A setting of the transport that has no effect on an existing queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSetting {
    /// The queue, or the dead letter queue.
    pub queue: String,
    /// Name of the setting, in `config.queues`.
    pub setting: &'static str,
    /// The argument of the queue.
    pub argument: &'static str,
    /// The value that the setting asks for, as the argument has it.
    pub desired: String,
    /// The value in effect: of the argument, or of a policy of the broker.
    pub found: String,
}

impl fmt::Display for KeptSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            setting,
            argument,
            desired,
            found,
        } = self;
        write!(
            f,
            "queue {queue} has {argument}={found}, {setting} of the transport asks for {desired}"
        )
    }
}

impl QueueDeclaration {
    /// The settings that an existing queue keeps. That a classic queue does not count deliveries is reported
    /// separately.
    #[must_use]
    pub fn kept_settings(&self, found: &FoundQueue) -> Vec<KeptSetting> {
        let counts_deliveries =
            found.kind() == "quorum" && self.arguments.contains_key(DELIVERY_LIMIT);
        let kept = counts_deliveries.then(|| {
            let setting = "dlq.maxRetryCount";
            compare(
                &self.name,
                (setting, DELIVERY_LIMIT),
                &self.arguments,
                found,
            )
        });
        kept.flatten().into_iter().collect()
    }
}

impl DlqDeclaration {
    /// The settings that an existing dead letter queue keeps.
    #[must_use]
    pub fn kept_settings(&self, found: &FoundQueue) -> Vec<KeptSetting> {
        let setting = ("dlq.retentionDays", MESSAGE_TTL);
        let kept = compare(&self.name, setting, &self.arguments, found);
        kept.into_iter().collect()
    }
}

fn compare(
    queue: &str,
    (setting, argument): (&'static str, &'static str),
    desired: &Map<String, Value>,
    found: &FoundQueue,
) -> Option<KeptSetting> {
    let desired = shown(desired.get(argument));
    let found = shown(in_effect(argument, found).as_ref());
    (desired != found).then(|| KeptSetting {
        queue: queue.to_owned(),
        setting,
        argument,
        desired,
        found,
    })
}

/// The value of an argument, or of a policy if that is lower: RabbitMQ takes the lower one of these two.
fn in_effect(argument: &str, found: &FoundQueue) -> Option<Value> {
    let set = found.arguments.get(argument).cloned();
    let policy = found.policy.get(argument.trim_start_matches("x-")).cloned();
    match (
        set.as_ref().and_then(Value::as_u64),
        policy.as_ref().and_then(Value::as_u64),
    ) {
        (Some(set), Some(policy)) => Some(set.min(policy).into()),
        (None, Some(_)) => policy,
        _ => set,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{declared, found};
    use super::*;

    fn settings(kept: &[KeptSetting]) -> Vec<(&str, &str, &str)> {
        kept.iter()
            .map(|it| (it.setting, &*it.found, &*it.desired))
            .collect()
    }

    /// RMQ-5
    #[test]
    fn other_delivery_limit_of_an_existing_quorum_queue_is_kept() {
        let limit = json!({"x-delivery-limit": 3});
        let kept = ("dlq.maxRetryCount", "3", "5");
        for (case, queues, kind, arguments, policy, expected) in [
            (
                "changed",
                json!({"dlq": {"enabled": true, "maxRetryCount": 5}}),
                "quorum",
                &limit,
                json!({}),
                vec![kept],
            ),
            (
                "equal",
                json!({"dlq": {"enabled": true}}),
                "quorum",
                &limit,
                json!([]),
                vec![],
            ),
            (
                "no dead letters",
                json!({"type": "quorum"}),
                "quorum",
                &limit,
                json!({}),
                vec![],
            ),
            (
                "classic",
                json!({"dlq": {"enabled": true, "maxRetryCount": 5}}),
                "classic",
                &limit,
                json!({}),
                vec![],
            ),
            (
                "lowered by a policy",
                json!({"dlq": {"enabled": true, "maxRetryCount": 2}}),
                "quorum",
                &limit,
                json!({"delivery-limit": 2}),
                vec![],
            ),
            (
                "not raised by a policy",
                json!({"dlq": {"enabled": true, "maxRetryCount": 5}}),
                "quorum",
                &limit,
                json!({"delivery-limit": 5}),
                vec![kept],
            ),
            (
                "only a policy",
                json!({"dlq": {"enabled": true, "maxRetryCount": 5}}),
                "quorum",
                &json!({}),
                json!({"delivery-limit": 5}),
                vec![],
            ),
            (
                "none",
                json!({"dlq": {"enabled": true, "maxRetryCount": 5}}),
                "quorum",
                &json!({}),
                Value::Null,
                vec![("dlq.maxRetryCount", "none", "5")],
            ),
        ] {
            let queue = json!({"durable": true, "type": kind, "arguments": arguments, "effective_policy_definition": policy});
            let kept = declared(&queues).kept_settings(&found(&queue));
            assert_eq!(settings(&kept), expected, "{case}");
        }
    }

    /// RMQ-5
    #[test]
    fn other_retention_of_an_existing_dead_letter_queue_is_kept() {
        let day = 86_400_000;
        let name = "dlq.retentionDays";
        for (days, arguments, expected) in [
            (json!(1), json!({"x-message-ttl": day}), vec![]),
            (Value::Null, json!({}), vec![]),
            (json!(1), json!({}), vec![(name, "none", "86400000")]),
            (
                json!(2),
                json!({"x-message-ttl": day}),
                vec![(name, "86400000", "172800000")],
            ),
            (
                Value::Null,
                json!({"x-message-ttl": day}),
                vec![(name, "86400000", "none")],
            ),
        ] {
            let mut queues = json!({"dlq": {"enabled": true}});
            if !days.is_null() {
                queues["dlq"]["retentionDays"] = days.clone();
            }
            let dlq = declared(&queues).dlq.unwrap();
            let queue = found(&json!({"durable": true, "arguments": arguments}));
            assert_eq!(
                settings(&dlq.kept_settings(&queue)),
                expected,
                "{days} {arguments}"
            );
        }
    }
}
