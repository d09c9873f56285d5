mod crowd;

use asya_shared::config::TransportsConfig;
use serde_json::{Value, json};

use super::QueueClaims;
use crate::record::{ActorRecord, Key, Projected};

fn transports() -> TransportsConfig {
    let dlq = json!({"dlq": {"enabled": true}});
    let config = json!({"transports": {
        "mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b", "queues": dlq}},
        "other": {"type": "rabbitmq", "enabled": true, "config": {"host": "c"}},
        "twin": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}},
        "own": {"type": "rabbitmq", "enabled": true, "config": {"host": "b", "queues": {"nameTemplate": "asya-{namespace}-{actor}"}}},
        "shared": {"type": "sqs", "enabled": true, "config": {"region": "r", "queues": dlq}},
    }});
    TransportsConfig::parse(&config.to_string()).unwrap()
}

struct World {
    claims: QueueClaims,
    transports: TransportsConfig,
}

impl World {
    fn new() -> Self {
        Self {
            claims: QueueClaims::default(),
            transports: transports(),
        }
    }

    /// Adds actor `namespace/name`, created at that second of the day.
    fn add(&self, namespace: &str, name: &str, transport: &str, second: u32) -> Vec<String> {
        self.add_with(namespace, name, transport, second, &json!({}))
    }

    /// Same, with a status.
    fn add_with(
        &self,
        namespace: &str,
        name: &str,
        transport: &str,
        second: u32,
        status: &Value,
    ) -> Vec<String> {
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "resourceVersion": "1",
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"transport": transport},
            "status": status,
        });
        let projected: Projected<ActorRecord> = serde_json::from_str(&object.to_string()).unwrap();
        self.refresh(namespace, name, Some(&projected.record))
    }

    fn refresh(&self, namespace: &str, name: &str, record: Option<&ActorRecord>) -> Vec<String> {
        let affected = self
            .claims
            .refresh(&self.transports, &Key::new(namespace, name), record);
        let mut affected: Vec<_> = affected.iter().map(ToString::to_string).collect();
        affected.sort();
        affected
    }

    fn owner(&self, namespace: &str, name: &str) -> Option<String> {
        let owner = self.claims.preceding_actor(&Key::new(namespace, name))?;
        let verb = if owner.of_queue { "has" } else { "blocks" };
        Some(format!("{} {verb} {}", owner.key, owner.queue))
    }
}

/// QUE-3
#[test]
fn older_actor_owns_the_queue_and_the_other_takes_over_after_its_deletion() {
    let world = World::new();
    assert_eq!(world.add("b", "foo", "mq", 1), [""; 0]);
    assert_eq!(world.add("a", "foo", "mq", 2), ["b/foo"]);
    assert_eq!(
        world.owner("a", "foo").as_deref(),
        Some("b/foo has asya-foo")
    );
    assert_eq!(world.owner("b", "foo"), None);
    assert_eq!(
        world.add("a", "foo", "mq", 2),
        [""; 0],
        "unchanged, so no actor is enqueued"
    );
    assert_eq!(world.refresh("b", "foo", None), ["a/foo"]);
    assert_eq!(world.owner("a", "foo"), None);
}

/// QUE-3
#[test]
fn smaller_uid_wins_between_actors_created_in_the_same_second() {
    let world = World::new();
    world.add("b", "foo", "mq", 1);
    world.add("a", "foo", "mq", 1);
    assert_eq!(world.owner("a", "foo"), None);
    assert_eq!(
        world.owner("b", "foo").as_deref(),
        Some("a/foo has asya-foo")
    );
}

/// QUE-3
#[test]
fn queue_conflicts_with_the_dead_letter_queue_of_another_actor() {
    let world = World::new();
    world.add("a", "foo-dlq", "mq", 2);
    assert_eq!(world.add("a", "foo", "mq", 1), ["a/foo-dlq"]);
    assert_eq!(
        world.owner("a", "foo-dlq").as_deref(),
        Some("a/foo has asya-foo-dlq")
    );
    assert_eq!(world.owner("a", "foo"), None);
    world.add("a", "foo-dlq", "mq", 0);
    assert_eq!(
        world.owner("a", "foo").as_deref(),
        Some("a/foo-dlq blocks asya-foo"),
        "it still owns its own queue"
    );

    world.add("a", "one", "shared", 1);
    world.add("a", "two", "shared", 2);
    assert_eq!(world.owner("a", "two"), None, "dead letters may be shared");
    world.add("a", "dlq", "shared", 3);
    assert_eq!(
        world.owner("a", "dlq").as_deref(),
        Some("a/one has asya-dlq")
    );
}

/// QUE-3
#[test]
fn transports_to_the_same_broker_share_names() {
    let world = World::new();
    world.add("a", "foo", "mq", 1);
    assert_eq!(world.add("b", "foo", "twin", 2), ["a/foo"]);
    let has = Some("a/foo has asya-foo");
    assert_eq!(world.owner("b", "foo").as_deref(), has);
    let owner = |transport| {
        let name = (transport, "asya-foo");
        world
            .claims
            .preceding_actor_for(&world.transports, name, &Key::new("b", "foo"))
    };
    assert_eq!(owner("twin"), Some(Key::new("a", "foo")));
    assert_eq!(owner("other"), None, "another broker");
}

/// QUE-3
#[test]
fn existing_queue_is_kept_despite_an_older_claimant() {
    let world = World::new();
    let has = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    world.add_with("a", "foo", "mq", 2, &has);
    world.add("b", "foo", "mq", 1);
    assert_eq!(world.owner("a", "foo"), None);
    let owner = world.owner("b", "foo");
    assert_eq!(owner.as_deref(), Some("a/foo has asya-foo"));
    world.add_with("b", "foo", "twin", 1, &has);
    let owner = world.owner("a", "foo");
    assert_eq!(owner.as_deref(), Some("b/foo has asya-foo"), "both have it");
}

/// QUE-1, QUE-3
#[test]
fn other_transports_and_templates_with_the_namespace_do_not_collide() {
    let world = World::new();
    world.add("a", "foo", "mq", 1);
    world.add("b", "foo", "other", 2);
    world.add("c", "foo", "own", 3);
    world.add("d", "foo", "own", 4);
    for namespace in ["a", "b", "c", "d"] {
        assert_eq!(world.owner(namespace, "foo"), None, "{namespace}");
    }
}

#[test]
fn actor_releases_its_name_when_it_changes_its_transport() {
    let world = World::new();
    world.add("a", "foo", "mq", 1);
    world.add("b", "foo", "mq", 2);
    assert_eq!(world.add("a", "foo", "other", 1), ["b/foo"]);
    assert_eq!(world.owner("b", "foo"), None);
    world.add("a", "foo", "nowhere", 1);
    assert_eq!(
        world.add("b", "foo", "other", 2),
        [""; 0],
        "an unknown transport claims no names"
    );
}

/// QUE-13
#[test]
fn retired_queue_stays_claimed_until_removed_from_status() {
    let world = World::new();
    let previous = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    let retired = json!({
        "queue": {"transport": "other", "name": "asya-foo"},
        "retiredQueues": [{"transport": "mq", "name": "asya-foo"}],
    });
    world.add_with("a", "foo", "mq", 2, &previous);
    world.add_with("a", "foo", "other", 2, &previous);
    assert_eq!(
        world.add("b", "foo", "mq", 3),
        ["a/foo"],
        "the verified queue stays claimed"
    );
    assert_eq!(
        world.owner("b", "foo").as_deref(),
        Some("a/foo has asya-foo")
    );
    world.add_with("a", "foo", "other", 2, &retired);
    world.add("d", "foo-dlq", "mq", 3);
    assert_eq!(
        world.owner("d", "foo-dlq").as_deref(),
        Some("a/foo has asya-foo-dlq")
    );
    world.add("c", "foo", "mq", 1);
    for waiting in ["b", "c"] {
        assert_eq!(
            world.owner(waiting, "foo").as_deref(),
            Some("a/foo has asya-foo"),
            "the retired queue still holds messages"
        );
    }
    assert_eq!(world.owner("a", "foo"), None);
    let forgotten = json!({"queue": {"transport": "other", "name": "asya-foo"}});
    assert_eq!(
        world.add_with("a", "foo", "other", 2, &forgotten),
        ["b/foo", "c/foo", "d/foo-dlq"]
    );
    assert_eq!(world.owner("c", "foo"), None);
    assert_eq!(
        world.owner("b", "foo").as_deref(),
        Some("c/foo has asya-foo")
    );
}

/// QUE-3, QUE-13
#[test]
fn lost_name_stays_lost_after_a_transport_change() {
    let world = World::new();
    let status = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    world.add_with("a", "foo", "mq", 2, &status);
    world.add_with("b", "foo", "mq", 1, &status);
    let owner = |key: &Key| {
        let name = ("mq", "asya-foo");
        world
            .claims
            .preceding_actor_for(&world.transports, name, key)
    };
    let (younger, older) = (Key::new("a", "foo"), Key::new("b", "foo"));
    world.add_with("a", "foo", "other", 2, &status);
    assert_eq!(owner(&younger).as_ref(), Some(&older));
    assert_eq!(owner(&older), None);
    assert_eq!(world.owner("a", "foo"), None, "its new name is free");
}

/// QUE-3, QUE-14
#[test]
fn unconfigured_dead_letter_queue_stays_claimed() {
    let world = World::new();
    let status = json!({"queue": {"transport": "other", "name": "asya-foo", "deadLetters": ["asya-foo-dlq"]}});
    world.add_with("a", "foo", "other", 2, &status);
    world.add("a", "foo-dlq", "other", 1);
    let owner = world.owner("a", "foo-dlq");
    assert_eq!(owner.as_deref(), Some("a/foo has asya-foo-dlq"));
}
