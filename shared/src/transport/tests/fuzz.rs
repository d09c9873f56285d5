//! Descriptions of queues as a broker, or something else on its port, may send them (RMQ-3).

use asya_fuzz::check;
use asya_fuzz::input::{damaged, json, text};
use asya_fuzz::proptest::collection::btree_map;
use asya_fuzz::proptest::prelude::{Strategy, prop_assert, prop_assert_eq, prop_oneof};
use serde_json::{Map, Value, json};

use crate::config::testing::rabbitmq;
use crate::transport::ownership::OwnerTag;
use crate::transport::rabbitmq::{Comparison, FoundQueue};

/// A queue as declared, with a few bytes or arguments changed.
fn queues(declared: &Value) -> impl Strategy<Value = Vec<u8>> + use<> {
    let declared = declared.clone();
    let bytes = damaged(vec![declared.to_string().into_bytes()]);
    let arguments = btree_map(text(), json(), 0..4).prop_map(move |odd| {
        let mut queue = declared.clone();
        if let Some(arguments) = queue["arguments"].as_object_mut() {
            arguments.extend(odd.clone());
        }
        queue.to_string().into_bytes()
    });
    prop_oneof![bytes, arguments]
}

/// RMQ-3, QUE-4
#[test]
fn any_description_of_a_queue_is_compared_or_refused() {
    let config = rabbitmq(&json!({"host": "h", "queues": {"dlq": {"enabled": true}}}));
    let names = crate::config::testing::transport(
        "rabbitmq",
        &json!({"host": "h", "queues": {"dlq": {"enabled": true}}}),
    )
    .names_of("team-a", "foo");
    let desired = config.declaration(&names);
    let mut declared = desired.body();
    declared["name"] = json!("asya-foo");
    declared["type"] = json!("quorum");
    let same: FoundQueue = serde_json::from_value(declared.clone()).unwrap();
    assert!(matches!(desired.compare(&same), Comparison::Matches { .. }));
    check(&queues(&declared), |bytes| {
        let Ok(found) = serde_json::from_slice::<FoundQueue>(&bytes) else {
            return Ok(());
        };
        if let Comparison::Mismatch { desired, found } = desired.compare(&found) {
            prop_assert!(!desired.is_empty() && desired != found, "{found}");
        }
        Ok(())
    });
}

/// QUE-32
#[test]
fn any_arguments_of_a_binding_are_an_owner_tag_that_round_trips_or_none() {
    let ours = OwnerTag {
        cluster: "c".to_owned(),
        namespace: "team-a".to_owned(),
        actor: "foo".to_owned(),
    };
    let changed = (btree_map(text(), json(), 0..3), text(), text()).prop_map({
        let ours = ours.clone();
        move |(odd, cluster, actor)| {
            let tag = OwnerTag {
                cluster,
                actor,
                ..ours.clone()
            };
            let mut all: Map<String, Value> = odd.into_iter().collect();
            all.extend(tag.arguments().as_object().cloned().unwrap_or_default());
            (tag, Value::Object(all))
        }
    });
    check(&(changed, json()), |((tag, arguments), odd)| {
        prop_assert_eq!(OwnerTag::of_arguments(&arguments), Some(tag));
        prop_assert_eq!(OwnerTag::of_arguments(&odd), None);
        Ok(())
    });
}
