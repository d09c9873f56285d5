//! Computes the metrics about actors from precomputed fields of their records.

use std::collections::HashMap;

use asya_shared::api::ConflictStatus;

use crate::cluster::store::Store;
use crate::reconcile::{is_drift_reported, part_of};
use crate::record::ActorRecord;
use crate::telemetry::metrics::Metrics;

/// Sets the gauges of actors by transport and status, of pods and conflicts of bindings, of undecodable actors and of
/// halted rollouts, and drops what is known of those `transports` that no actor uses.
pub fn update<'a>(
    actors: &Store<ActorRecord>,
    transports: impl IntoIterator<Item = &'a str>,
    metrics: &Metrics,
) {
    let mut all = Vec::with_capacity(actors.len());
    // Clone first, so that counting does not hold the store's lock, which every reconcile takes.
    actors.each(|actor| all.push(actor.clone()));
    let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
    for actor in &all {
        let transport = actor.transport.as_deref().unwrap_or_default();
        *counts
            .entry((transport, &actor.metric_fields.status))
            .or_default() += 1;
    }
    let is_used = |name: &str| counts.keys().any(|(transport, _)| *transport == name);
    transports
        .into_iter()
        .filter(|name| !is_used(name))
        .for_each(|unused| metrics.forget_transport(unused));
    let labels = counts.into_iter();
    metrics.actors(labels.map(|((transport, status), count)| (transport, status, count)));
    let actor_fields = || {
        all.iter()
            .map(|actor| (&actor.metadata.key, &actor.metric_fields))
    };
    metrics
        .bound_pods(actor_fields().filter_map(|(key, fields)| Some((key, fields.pods.as_ref()?))));
    metrics.conflicts(actor_fields().flat_map(|(key, fields)| {
        let is_binding = fields.pods.is_some();
        let reported = move |it: &&ConflictStatus| is_binding || is_drift_reported(it);
        let conflicts = fields.conflicts.iter().filter(reported);
        conflicts.filter_map(move |conflict| {
            let count = u64::try_from(conflict.count).ok()?;
            Some((key, part_of(conflict)?.name(), count))
        })
    }));
    metrics.undecodable(
        actor_fields()
            .filter(|(_, fields)| fields.undecodable)
            .count(),
    );
    let halted =
        actor_fields().filter(|(_, fields)| fields.rollout.halted || fields.rollout.stalled);
    metrics.rollouts_halted(halted.map(|(key, _)| key));
}

#[cfg(test)]
mod tests {
    use asya_process::metrics::ExposedMetrics;
    use std::sync::Arc;

    use serde_json::json;

    use super::update;
    use crate::cluster::store::Store;
    use crate::cluster::watch_scope::WatchScope;
    use crate::record::{ActorRecord, Projected};
    use crate::telemetry::metrics::Metrics;

    /// OPS-4, OPS-24
    #[test]
    fn actors_are_counted_by_transport_and_status() {
        let store = Store::default();
        let actors = [
            (
                "a",
                json!({"transport": "mq"}),
                json!({"status": "Running"}),
            ),
            (
                "b",
                json!({"transport": "mq"}),
                json!({"status": "Running", "conflicts": [
                    {"field": "x", "part": "Workload", "count": 1},
                    {"field": "y", "part": "ScaledObject", "count": 6, "state": "Waiting"},
                ]}),
            ),
            (
                "c",
                json!({"transport": "mq", "workload": 5}),
                json!({"status": "WorkloadError", "rollout": {"halted": true}}),
            ),
            ("d", json!({"transport": 5}), json!(null)),
            (
                "e",
                json!({"transport": "mq"}),
                json!({"status": "Updating", "pods": {"matched": 3, "injected": 2, "notInjected": 1, "outdated": 0}, "conflicts": [
                    {"field": "x", "part": "Roll", "count": 5}, {"field": "y", "part": "of another version", "count": 2},
                ]}),
            ),
        ];
        for (name, spec, status) in actors {
            let metadata =
                json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"});
            let json = json!({"metadata": metadata, "spec": spec, "status": status});
            let mut object: Projected<ActorRecord> =
                serde_json::from_str(&json.to_string()).unwrap();
            let mut record = ActorRecord::clone(&object.record);
            // A scrape must need neither.
            (record.spec, record.status) = (None, None);
            object.record = Arc::new(record);
            store.apply(&WatchScope::Cluster, &object);
        }
        let metrics = Arc::new(Metrics::new());
        for transport in ["mq", "unused"] {
            metrics.transport_up(transport, false);
        }
        update(&store, ["mq", "unused"], &metrics);
        let text = metrics.text().unwrap();
        for line in [
            r#"asya_operator_actors{transport="mq",status="Running"} 2"#,
            r#"asya_operator_actors{transport="mq",status="WorkloadError"} 1"#,
            r#"asya_operator_actors{transport="",status=""} 1"#,
            r#"asya_operator_bound_pods{namespace="ns",actor="e",state="injected"} 2"#,
            r#"asya_operator_bound_pods{namespace="ns",actor="e",state="not_injected"} 1"#,
            r#"asya_operator_conflicts_total{namespace="ns",actor="e",field="Roll"} 5"#,
            r#"asya_operator_conflicts_total{namespace="ns",actor="b",field="ScaledObject"} 6"#,
            "asya_operator_undecodable_objects 1",
            r#"asya_operator_rollout_halted{namespace="ns",actor="c"} 1"#,
            r#"asya_operator_transport_up{transport="mq"} 0"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("unused"), "no call will show that it is up");
        let occasional = r#"actor="b",field="Workload""#;
        assert!(!text.contains(occasional), "restored at once: {text}");
    }
}
