//! Which queues would be created, or no longer used.

use asya_shared::api::QueueStatus;
use asya_shared::config::{QueueNames, Transport};

use super::change::{Change, ChangeKind};

/// The actor's queues on this transport, compared with the queue in its status.
pub fn changes(
    names: &QueueNames,
    transport: &Transport,
    before: Option<&QueueStatus>,
) -> Vec<Change> {
    let (queue, on) = (&names.queue, &transport.name);
    let is_same = before.is_some_and(|it| (&it.transport, &it.name) == (on, queue));
    let queues = transport.queues();
    let of_user = if queues.auto_create {
        ""
    } else {
        " (by you: autoCreate is off)"
    };
    let action = if is_same {
        ChangeKind::Unchanged
    } else {
        ChangeKind::Create
    };
    let mut changes = vec![Change::bare(
        format!("queue {queue} on {on}{of_user}"),
        action,
    )];
    if let Some(dlq) = &names.dlq {
        let shared = if queues.dlq.is_shared() {
            ", shared, unless it exists"
        } else {
            ""
        };
        let object = format!("dead letter queue {dlq} on {on}{shared}");
        changes.push(Change::bare(object, action));
    }
    if let Some(replaced) = before.filter(|_| !is_same) {
        let object = format!("queue {} on {}", replaced.name, replaced.transport);
        changes.push(Change::bare(object, ChangeKind::Retire));
    }
    changes
}

#[cfg(test)]
mod tests {
    use asya_shared::config::TransportsConfig;
    use serde_json::{Value, json};

    use super::*;

    fn status(transport: &str, name: &str) -> QueueStatus {
        serde_json::from_value(json!({"transport": transport, "name": name})).unwrap()
    }

    /// QUE-13, QUE-14
    #[test]
    fn queues_are_created_kept_or_retired() {
        let transports = |queues: &Value| {
            let config = json!({"host": "b", "queues": queues});
            let all = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": config}}});
            TransportsConfig::parse(&all.to_string()).unwrap()
        };
        let (plain, dlq, own) = (
            json!({}),
            json!({"dlq": {"enabled": true}}),
            json!({"autoCreate": false}),
        );
        let (same, other) = (status("mq", "asya-embed"), status("sqs", "asya-embed"));
        let create = "queue asya-embed on mq: create";
        for (queues, before, expected) in [
            (&plain, None, vec![create]),
            (
                &plain,
                Some(&same),
                vec!["queue asya-embed on mq: unchanged"],
            ),
            (
                &plain,
                Some(&other),
                vec![create, "queue asya-embed on sqs: retire"],
            ),
            (
                &dlq,
                None,
                vec![create, "dead letter queue asya-embed-dlq on mq: create"],
            ),
            (
                &own,
                None,
                vec!["queue asya-embed on mq (by you: autoCreate is off): create"],
            ),
        ] {
            let config = transports(queues);
            let transport = config.usable("mq").unwrap();
            let names = transport.names_of("models", "embed");
            let found = changes(&names, transport, before);
            let found: Vec<_> = found
                .iter()
                .map(|it| format!("{}: {}", it.object, it.action.as_str()))
                .collect();
            assert_eq!(found, expected, "{queues}");
        }
    }
}
