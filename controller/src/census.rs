//! Counts actors for the metrics, from what their records say as raw text.

use std::borrow::Cow;
use std::collections::HashMap;

use asya_shared::api::{BindingConflict, PodCounts};
use asya_shared::validate;
use serde::Deserialize;

use crate::metrics::Metrics;
use crate::reconcile::part_of;
use crate::record::ActorRecord;
use crate::store::Store;

#[derive(Deserialize, Default)]
struct Spec<'a> {
    #[serde(borrow, default)]
    transport: Cow<'a, str>,
}

#[derive(Deserialize, Default)]
struct Stored<'a> {
    #[serde(borrow, default)]
    status: Cow<'a, str>,
    #[serde(default)]
    pods: Option<PodCounts>,
    #[serde(default)]
    rollout: Rollout,
    #[serde(default)]
    conflicts: Vec<BindingConflict>,
}

#[derive(Deserialize, Default)]
struct Rollout {
    #[serde(default)]
    halted: bool,
}

/// Sets the numbers of actors by transport and status, of bindings' pods and conflicts, and of actors that cannot be read.
pub fn count(actors: &Store<ActorRecord>, metrics: &Metrics) {
    let mut by_label: HashMap<(String, String), usize> = HashMap::new();
    let (mut undecodable, mut halted) = (0, Vec::new());
    let (mut bound, mut contested) = (Vec::new(), Vec::new());
    actors.each(|actor| {
        let (spec, status) = (text(actor.spec.as_ref()), text(actor.status.as_ref()));
        let transport = serde_json::from_str::<Spec<'_>>(spec)
            .unwrap_or_default()
            .transport
            .into_owned();
        let Stored {
            status,
            pods,
            rollout,
            conflicts,
        } = serde_json::from_str(status).unwrap_or_default();
        let key = &actor.metadata.key;
        contested.extend(conflicts.iter().filter_map(|it| {
            let count = u64::try_from(it.count).ok()?;
            Some((key.clone(), part_of(it)?, count))
        }));
        halted.extend(rollout.halted.then(|| key.clone()));
        let status = status.into_owned();
        bound.extend(pods.map(|pods| (actor.metadata.key.clone(), pods)));
        // Reading all of 10,000 specs at each scrape would be dear, and only these can be unreadable.
        undecodable += usize::from(status == "WorkloadError" && validate::decode(spec).is_err());
        *by_label.entry((transport, status)).or_default() += 1;
    });
    metrics.actors(
        by_label
            .iter()
            .map(|((transport, status), count)| (&**transport, &**status, *count)),
    );
    metrics.bound_pods(bound.iter().map(|(key, pods)| (key, pods)));
    metrics.conflicts(
        contested
            .iter()
            .map(|(key, part, count)| (key, *part, *count)),
    );
    metrics.undecodable(undecodable);
    metrics.rollouts_halted(&halted);
}

fn text(raw: Option<&std::sync::Arc<serde_json::value::RawValue>>) -> &str {
    raw.map_or("null", |raw| raw.get())
}

#[cfg(test)]
mod tests {
    use asya_process::metrics::Exposed;
    use std::sync::Arc;

    use serde_json::json;

    use super::count;
    use crate::metrics::Metrics;
    use crate::store::Store;

    /// OPS-4
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
                json!({"status": "Running"}),
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
                    {"field": "x", "part": "Roll", "count": 5}, {"field": "y", "part": "of another release", "count": 2},
                ]}),
            ),
        ];
        for (name, spec, status) in actors {
            let metadata =
                json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"});
            let object = json!({"metadata": metadata, "spec": spec, "status": status});
            store.show(&None, &serde_json::from_str(&object.to_string()).unwrap());
        }
        let metrics = Arc::new(Metrics::new());
        count(&store, &metrics);
        let text = metrics.text().unwrap();
        for line in [
            r#"asya_operator_actors{transport="mq",status="Running"} 2"#,
            r#"asya_operator_actors{transport="mq",status="WorkloadError"} 1"#,
            r#"asya_operator_actors{transport="",status=""} 1"#,
            r#"asya_operator_bound_pods{namespace="ns",actor="e",state="injected"} 2"#,
            r#"asya_operator_bound_pods{namespace="ns",actor="e",state="not_injected"} 1"#,
            r#"asya_operator_conflicts_total{namespace="ns",actor="e",field="Roll"} 5"#,
            "asya_operator_undecodable_objects 1",
            r#"asya_operator_rollout_halted{namespace="ns",actor="c"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
