//! Cost of claims when many actors share one dead letter queue.

use std::time::{Duration, Instant};

use asya_shared::config::TransportsConfig;
use serde_json::json;

use super::super::QueueClaims;
use crate::record::{ActorRecord, Key, Projected};

/// How many actors there are, in groups of different sizes so that memory and number of calls stay the same.
const ACTORS: usize = 50_000;

fn transports() -> TransportsConfig {
    let config = json!({"host": "b", "queues": {"dlq": {"enabled": true, "name": "dead"}}});
    let transports = json!({"mq": {"type": "rabbitmq", "enabled": true, "config": config}});
    TransportsConfig::parse(&json!({"transports": transports}).to_string()).unwrap()
}

fn actors(number: usize) -> Vec<(Key, Projected<ActorRecord>)> {
    let actor = |number| {
        let name = format!("a{number}");
        let object = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"transport": "mq"},
            "status": {"queue": {"transport": "mq", "name": format!("asya-{name}")}},
        });
        let projected = serde_json::from_str(&object.to_string()).unwrap();
        (Key::new("ns", &name), projected)
    };
    (0..number).map(actor).collect()
}

/// Adds all actors, in groups of `size`, then looks up which actor precedes each, as every message count does.
fn cost(actors: &[(Key, Projected<ActorRecord>)], size: usize) -> Duration {
    let transports = transports();
    let started = Instant::now();
    let groups = actors.chunks(size).map(|actors| {
        let claims = QueueClaims::default();
        for (key, projected) in actors {
            let affected = claims.refresh(&transports, key, Some(&projected.record));
            assert!(
                affected.is_empty(),
                "sharing a dead letter queue affects no actor"
            );
        }
        claims
    });
    let groups: Vec<QueueClaims> = groups.collect();
    for (claims, actors) in groups.iter().zip(actors.chunks(size)) {
        assert!(
            actors
                .iter()
                .all(|(key, _)| claims.other_holder(key).is_none())
        );
    }
    started.elapsed()
}

/// OPS-23. `make bench` prints its figures.
#[test]
#[ignore = "measures time, and so must run alone in its process"]
fn claims_of_crowds_cost_no_more_per_actor_than_those_of_a_few() {
    let actors = actors(ACTORS);
    let best = |size| (0..3).map(|_| cost(&actors, size)).min().unwrap();
    let few = best(100);
    println!("claims of actors that share a dead letter queue");
    for size in [100, 10_000, ACTORS] {
        let cost = best(size);
        let ratio = cost.as_secs_f64() / few.as_secs_f64();
        let each = cost / u32::try_from(ACTORS).unwrap();
        println!("{size:>6} actors: {each:?} per actor, {ratio:.2} times that of 100");
        assert!(ratio <= 2.0, "{size}");
    }
}
