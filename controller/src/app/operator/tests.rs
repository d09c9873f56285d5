use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::binding::probes::Failure;
use crate::cluster::watch::WatchSink;
use crate::reconcile::tests::fixtures::context;
use crate::record::{ActorRecord, Enqueue, Projected, QuotaRecord};
use crate::work_queue::Settings;

/// An operator without a cluster.
pub(crate) fn operator() -> Operator {
    let context = Arc::new(context());
    Operator {
        queue: WorkQueue::observed(Settings::default(), context.metrics.clone()),
        context,
        pace: RequeuePolicy {
            resync: Duration::ZERO,
            longest: Duration::ZERO,
        },
        schedule: Schedule {
            check: Duration::ZERO,
            count: Duration::ZERO,
        },
        readiness: Readiness::default(),
        tasks: asya_process::tasks::Tasks::default(),
    }
}

/// Actor `a` in `namespace`, created in that second.
fn seen(namespace: &str, second: u32, status: &Value) -> Projected<ActorRecord> {
    let version = if status.get("queue").is_some() {
        "2"
    } else {
        "1"
    };
    let object = json!({
        "metadata": {
            "name": "a", "namespace": namespace, "uid": namespace, "resourceVersion": version, "generation": 1,
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": {"transport": "mq", "workload": {}},
        "status": status,
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

/// SAFE-37, QUE-3: a status update enqueues nothing, so it does not update claims while another replica leads.
#[tokio::test]
async fn new_leader_refreshes_claims_before_the_first_reconcile() {
    let operator = operator();
    let actors = &operator.context.stores.actors;
    let shown = |namespace: &str, second, status: &Value| {
        let concerned = actors.show(&None, &seen(namespace, second, status));
        for concerns in &concerned {
            operator.reclaim(concerns.clone());
        }
        concerned
    };
    let due = || operator.queue.numbers();
    let wanted = |namespace: &str| Enqueue::Actor(Key::new(namespace, "a"));
    assert_eq!(shown("older", 1, &json!({})), [wanted("older")]);
    assert_eq!(shown("younger", 2, &json!({})), [wanted("younger")]);
    let has = json!({"queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 1}});
    assert_eq!(shown("younger", 2, &has), [], "a status is no event");

    assert_eq!(due().ready, 0, "SAFE-37: a standby works nothing off");
    operator.begin();
    assert_eq!(due().ready, 3, "both actors, and the script at home");
    let claims = &operator.context.claims;
    assert_eq!(claims.owner_before(&Key::new("younger", "a")), None);
    let owner = claims.owner_before(&Key::new("older", "a")).unwrap();
    assert_eq!(owner.key, Key::new("younger", "a"));
}

/// FW-14
#[tokio::test]
async fn every_store_reports_its_size() {
    let operator = operator();
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let seen: Projected<ActorRecord> = serde_json::from_str(&object.to_string()).unwrap();
    let actor = Key::new("ns", "a");
    let bindings = &operator.context.bindings;
    bindings.refresh(&actor, Some(&seen.record));
    bindings.wrote(&actor);
    let quota = json!({
        "metadata": {"name": "all", "namespace": "ns", "uid": "all", "resourceVersion": "1"},
        "spec": {"hard": {"limits.cpu": "4"}},
    });
    let quota: Projected<QuotaRecord> = serde_json::from_str(&quota.to_string()).unwrap();
    bindings.show(&None, &quota);
    operator.measure();
    let text = operator.context.metrics.text().unwrap();
    for (kind, count) in [
        ("Binding", 1),
        ("Target", 1),
        ("Object (metadata)", 0),
        ("Pod (metadata)", 0),
        ("CustomResourceDefinition (metadata)", 0),
        ("CustomResourceDefinition", 0),
        ("ResourceQuota", 1),
        ("LimitRange", 0),
        ("Namespace labels", 0),
    ] {
        let line = format!(r#"asya_operator_records{{kind="{kind}"}} {count}"#);
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

/// SAFE-5
#[tokio::test]
async fn answered_dry_run_enqueues_all_actors_waiting_for_the_webhook() {
    let operator = operator();
    let due = || operator.queue.numbers().ready;
    let [first, second, refused] = ["first", "second", "refused"].map(|name| Key::new("ns", name));
    let probes = &operator.context.bindings.probes;
    for actor in [&first, &second] {
        probes.failed(actor, Failure::Unasked("no endpoints".to_owned()), false);
    }
    probes.failed(&refused, Failure::Refused("no".to_owned()), false);
    operator.refresh_claim(&first);
    assert_eq!(due(), 0, "the webhook is away");
    probes.admitted(&first);
    operator.refresh_claim(&first);
    assert_eq!(due(), 1, "the second");
}
