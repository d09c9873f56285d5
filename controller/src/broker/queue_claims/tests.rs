mod crowd;

use asya_shared::config::TransportsConfig;
use asya_shared::queue_claims::ClaimKind;
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

struct Fixture {
    claims: QueueClaims,
    transports: TransportsConfig,
}

impl Fixture {
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
        let owner = self.claims.other_holder(&Key::new(namespace, name))?;
        let verb = match owner.contested {
            ClaimKind::DeadLetters => "blocks",
            _ => "has",
        };
        Some(format!("{} {verb} {}", owner.key, owner.queue))
    }
}

/// QUE-3
#[test]
fn older_actor_owns_the_queue_and_the_other_takes_over_after_its_deletion() {
    let fixture = Fixture::new();
    assert_eq!(fixture.add("b", "foo", "mq", 1), [""; 0]);
    assert_eq!(fixture.add("a", "foo", "mq", 2), ["b/foo"]);
    assert_eq!(
        fixture.owner("a", "foo").as_deref(),
        Some("b/foo has asya-foo")
    );
    assert_eq!(fixture.owner("b", "foo"), None);
    assert_eq!(
        fixture.add("a", "foo", "mq", 2),
        [""; 0],
        "unchanged, so no actor is enqueued"
    );
    assert_eq!(fixture.refresh("b", "foo", None), ["a/foo"]);
    assert_eq!(fixture.owner("a", "foo"), None);
}

/// QUE-3
#[test]
fn smaller_uid_wins_between_actors_created_in_the_same_second() {
    let fixture = Fixture::new();
    fixture.add("b", "foo", "mq", 1);
    fixture.add("a", "foo", "mq", 1);
    assert_eq!(fixture.owner("a", "foo"), None);
    assert_eq!(
        fixture.owner("b", "foo").as_deref(),
        Some("a/foo has asya-foo")
    );
}

/// QUE-3
#[test]
fn queue_conflicts_with_the_dead_letter_queue_of_another_actor() {
    let fixture = Fixture::new();
    fixture.add("a", "foo-dlq", "mq", 2);
    assert_eq!(fixture.add("a", "foo", "mq", 1), ["a/foo-dlq"]);
    assert_eq!(
        fixture.owner("a", "foo-dlq").as_deref(),
        Some("a/foo has asya-foo-dlq")
    );
    assert_eq!(fixture.owner("a", "foo"), None);
    fixture.add("a", "foo-dlq", "mq", 0);
    assert_eq!(
        fixture.owner("a", "foo").as_deref(),
        Some("a/foo-dlq blocks asya-foo"),
        "it still owns its own queue"
    );

    fixture.add("a", "one", "shared", 1);
    fixture.add("a", "two", "shared", 2);
    assert_eq!(
        fixture.owner("a", "two"),
        None,
        "dead letters may be shared"
    );
    fixture.add("a", "dlq", "shared", 3);
    assert_eq!(
        fixture.owner("a", "dlq").as_deref(),
        Some("a/one has asya-dlq")
    );
}

/// QUE-3
#[test]
fn transports_to_the_same_broker_share_names() {
    let fixture = Fixture::new();
    fixture.add("a", "foo", "mq", 1);
    assert_eq!(fixture.add("b", "foo", "twin", 2), ["a/foo"]);
    let has = Some("a/foo has asya-foo");
    assert_eq!(fixture.owner("b", "foo").as_deref(), has);
    let owner = |transport| {
        let name = (transport, "asya-foo");
        fixture
            .claims
            .queue_name_holder_for(&fixture.transports, name, &Key::new("b", "foo"))
    };
    assert_eq!(owner("twin"), Some(Key::new("a", "foo")));
    assert_eq!(owner("other"), None, "another broker");
}

/// QUE-3, QUE-13: an earlier process may have created it, and no status says so.
#[test]
fn name_that_an_actor_does_not_claim_belongs_to_whoever_claims_it() {
    let fixture = Fixture::new();
    fixture.add("a", "foo", "mq", 2);
    fixture.add("b", "foo", "other", 1);
    fixture.add("c", "foo", "own", 3);
    for (namespace, transport, queue, expected) in [
        ("b", "mq", "asya-foo", Some("a")),
        ("b", "twin", "asya-foo", Some("a")),
        ("a", "other", "asya-foo", Some("b")),
        ("b", "other", "asya-foo", None),
        ("b", "own", "asya-b-foo", None),
        ("new", "mq", "asya-foo", Some("a")),
    ] {
        let key = Key::new(namespace, "foo");
        let holder =
            fixture
                .claims
                .queue_name_holder_for(&fixture.transports, (transport, queue), &key);
        let expected = expected.map(|namespace| Key::new(namespace, "foo"));
        assert_eq!(holder, expected, "{namespace} {transport}");
    }
}

/// QUE-3
#[test]
fn existing_queue_is_kept_despite_an_older_claimant() {
    let fixture = Fixture::new();
    let has = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    fixture.add_with("a", "foo", "mq", 2, &has);
    fixture.add("b", "foo", "mq", 1);
    assert_eq!(fixture.owner("a", "foo"), None);
    let owner = fixture.owner("b", "foo");
    assert_eq!(owner.as_deref(), Some("a/foo has asya-foo"));
    fixture.add_with("b", "foo", "twin", 1, &has);
    let owner = fixture.owner("a", "foo");
    assert_eq!(owner.as_deref(), Some("b/foo has asya-foo"), "both have it");
}

/// QUE-1, QUE-3
#[test]
fn other_transports_and_templates_with_the_namespace_do_not_collide() {
    let fixture = Fixture::new();
    fixture.add("a", "foo", "mq", 1);
    fixture.add("b", "foo", "other", 2);
    fixture.add("c", "foo", "own", 3);
    fixture.add("d", "foo", "own", 4);
    for namespace in ["a", "b", "c", "d"] {
        assert_eq!(fixture.owner(namespace, "foo"), None, "{namespace}");
    }
}

#[test]
fn actor_releases_its_name_when_it_changes_its_transport() {
    let fixture = Fixture::new();
    fixture.add("a", "foo", "mq", 1);
    fixture.add("b", "foo", "mq", 2);
    assert_eq!(fixture.add("a", "foo", "other", 1), ["b/foo"]);
    assert_eq!(fixture.owner("b", "foo"), None);
    fixture.add("a", "foo", "nowhere", 1);
    assert_eq!(
        fixture.add("b", "foo", "other", 2),
        [""; 0],
        "an unknown transport claims no names"
    );
}

/// QUE-13
#[test]
fn retired_queue_stays_claimed_until_removed_from_status() {
    let fixture = Fixture::new();
    let previous = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    let retired = json!({
        "queue": {"transport": "other", "name": "asya-foo"},
        "retiredQueues": [{"transport": "mq", "name": "asya-foo"}],
    });
    fixture.add_with("a", "foo", "mq", 2, &previous);
    fixture.add_with("a", "foo", "other", 2, &previous);
    assert_eq!(
        fixture.add("b", "foo", "mq", 3),
        ["a/foo"],
        "the verified queue stays claimed"
    );
    assert_eq!(
        fixture.owner("b", "foo").as_deref(),
        Some("a/foo has asya-foo")
    );
    fixture.add_with("a", "foo", "other", 2, &retired);
    fixture.add("d", "foo-dlq", "mq", 3);
    assert_eq!(
        fixture.owner("d", "foo-dlq").as_deref(),
        Some("a/foo has asya-foo-dlq")
    );
    fixture.add("c", "foo", "mq", 1);
    for waiting in ["b", "c"] {
        assert_eq!(
            fixture.owner(waiting, "foo").as_deref(),
            Some("a/foo has asya-foo"),
            "the retired queue still holds messages"
        );
    }
    assert_eq!(fixture.owner("a", "foo"), None);
    let forgotten = json!({"queue": {"transport": "other", "name": "asya-foo"}});
    assert_eq!(
        fixture.add_with("a", "foo", "other", 2, &forgotten),
        ["b/foo", "c/foo", "d/foo-dlq"]
    );
    assert_eq!(fixture.owner("c", "foo"), None);
    assert_eq!(
        fixture.owner("b", "foo").as_deref(),
        Some("c/foo has asya-foo")
    );
}

/// QUE-3, QUE-13
#[test]
fn lost_name_stays_lost_after_a_transport_change() {
    let fixture = Fixture::new();
    let status = json!({"queue": {"transport": "mq", "name": "asya-foo"}});
    fixture.add_with("a", "foo", "mq", 2, &status);
    fixture.add_with("b", "foo", "mq", 1, &status);
    let owner = |key: &Key| {
        let name = ("mq", "asya-foo");
        fixture
            .claims
            .queue_name_holder_for(&fixture.transports, name, key)
    };
    let (younger, older) = (Key::new("a", "foo"), Key::new("b", "foo"));
    fixture.add_with("a", "foo", "other", 2, &status);
    assert_eq!(owner(&younger).as_ref(), Some(&older));
    assert_eq!(owner(&older), None);
    assert_eq!(fixture.owner("a", "foo"), None, "its new name is free");
}

/// QUE-3, QUE-14
#[test]
fn unconfigured_dead_letter_queue_stays_claimed() {
    let fixture = Fixture::new();
    let status = json!({"queue": {"transport": "other", "name": "asya-foo", "deadLetters": ["asya-foo-dlq"]}});
    fixture.add_with("a", "foo", "other", 2, &status);
    fixture.add("a", "foo-dlq", "other", 1);
    let owner = fixture.owner("a", "foo-dlq");
    assert_eq!(owner.as_deref(), Some("a/foo has asya-foo-dlq"));
}

/// QUE-35: the older actor was created while the queue was kept for the younger one.
#[test]
fn actor_whose_queue_is_marked_for_another_does_not_hold_its_name() {
    let fixture = Fixture::new();
    let refused = json!({"queueMarkedForOther": true});
    let holder = |namespace: &str| {
        let holder = fixture.claims.other_holder(&Key::new(namespace, "x"));
        holder.map(|it| it.key.to_string())
    };
    fixture.add("b", "x", "mq", 1);
    fixture.add("a", "x", "mq", 2);
    assert_eq!(holder("a").as_deref(), Some("b/x"), "the older one");
    let affected = fixture.add_with("b", "x", "mq", 1, &refused);
    assert_eq!(affected, ["a/x"], "may have the queue now");
    assert_eq!(
        (holder("a"), holder("b")),
        (None, None),
        "both ask the broker"
    );

    // It belongs to neither.
    fixture.add_with("a", "x", "mq", 2, &refused);
    assert_eq!(
        (holder("a"), holder("b")),
        (None, None),
        "neither defers to the other"
    );

    let has_queue = json!({"queue": {"transport": "mq", "name": "asya-x"}});
    fixture.add_with("a", "x", "mq", 2, &has_queue);
    assert_eq!(holder("a"), None);
    assert_eq!(holder("b").as_deref(), Some("a/x"));
}
