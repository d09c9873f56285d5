use serde_json::json;

use super::warnings;
use crate::api::AsyncActorSpec;
use crate::config::TransportsConfig;
use crate::validate::{Recorded, Subject, Write};

fn spec(transport: &str) -> AsyncActorSpec {
    serde_json::from_value(json!({"transport": transport})).unwrap()
}

/// VAL-17, RMQ-4
#[test]
fn new_queue_whose_messages_another_queue_may_copy_is_warned_about() {
    let transports = TransportsConfig::parse(
        r#"{"transports": {
            "rabbitmq": {"type": "rabbitmq", "enabled": true, "config": {"host": "h"}},
            "by-namespace": {"type": "rabbitmq", "enabled": true, "config": {
                "host": "h", "queues": {"nameTemplate": "asya-{namespace}_{actor}"}
            }},
            "sqs": {"type": "sqs", "enabled": true, "config": {"region": "eu-central-1"}}
        }}"#,
    )
    .unwrap();
    let (here, elsewhere) = (spec("rabbitmq"), spec("sqs"));
    let stored = Write::Stored(Recorded::default());
    for (transport, namespace, name, write, copied_to) in [
        ("rabbitmq", "ns", "asya-x", Write::Create, Some("asya-x")),
        ("rabbitmq", "ns", "x", Write::Create, None),
        ("rabbitmq", "ns", "asyax", Write::Create, None),
        ("rabbitmq", "asya-prod", "x", Write::Create, None),
        (
            "rabbitmq",
            "ns",
            "asya-x",
            Write::Update { old: &elsewhere },
            Some("asya-x"),
        ),
        (
            "rabbitmq",
            "ns",
            "asya-x",
            Write::Update { old: &here },
            None,
        ),
        ("rabbitmq", "ns", "asya-x", stored, None),
        (
            "by-namespace",
            "asya-prod",
            "x",
            Write::Create,
            Some("asya-prod_x"),
        ),
        ("by-namespace", "prod", "asya-x", Write::Create, None),
        ("sqs", "ns", "asya-x", Write::Create, None),
    ] {
        let found = warnings(&Subject {
            name,
            namespace,
            spec: &spec(transport),
            role_arn: None,
            write,
            transports: &transports,
            privileged_sidecars: false,
        });
        let mut found = found.iter().filter(|it| it.path == "metadata.name");
        let text = found.next().map(|it| it.text.clone());
        let expected = copied_to
            .map(|other| format!("has the routing key {other}, which queue {other} has as well"));
        assert_eq!(
            text.is_some(),
            expected.is_some(),
            "{namespace}/{name} {text:?}"
        );
        let contains = expected.is_none_or(|expected| text.unwrap().contains(&expected));
        assert!(contains, "{namespace}/{name}");
    }
}
