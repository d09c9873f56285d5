use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::binding::dry_run::ProbeFailure;
use crate::binding::objects::ObjectWatch;
use crate::cluster::watch::WatchSink;
use crate::cluster::watch_scope::WatchScope;
use crate::reconcile::tests::fixtures::{context, slot_end};
use crate::record::{ActorRecord, Enqueue, ForeignRecord, Projected, QuotaRecord};
use crate::work_queue::WorkQueueSettings;

/// An operator without a cluster.
pub(crate) fn operator() -> Operator {
    operator_of(context())
}

pub(crate) fn operator_of(context: Context) -> Operator {
    let context = Arc::new(context);
    Operator {
        queue: WorkQueue::with_observer(WorkQueueSettings::default(), context.metrics.clone()),
        context,
        requeue_policy: RequeuePolicy {
            resync: Duration::ZERO,
            max_backoff: Duration::ZERO,
        },
        schedule: CheckIntervals {
            check: Duration::ZERO,
            count: Duration::ZERO,
        },
        readiness: Readiness::default(),
        tasks: asya_process::tasks::Tasks::default(),
    }
}

/// Actor `a` in `namespace`, created at that second.
fn projected(namespace: &str, second: u32, status: &Value) -> Projected<ActorRecord> {
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

/// FW-4 (a), SAFE-37, QUE-3, OPS-28: a status update causes no event, so a standby's claims are outdated.
#[tokio::test]
async fn new_leader_refreshes_claims_before_the_first_reconcile() {
    let operator = operator();
    let actors = &operator.context.stores.actors;
    let observe = |namespace: &str, second, status: &Value| {
        let affected = actors.apply(&WatchScope::Cluster, &projected(namespace, second, status));
        for enqueue in &affected {
            operator.on_actor_change(enqueue.clone());
        }
        affected
    };
    let queued = || operator.queue.sizes();
    let actor = |namespace: &str| Enqueue::Actor(Key::new(namespace, "a"));
    assert_eq!(observe("older", 1, &json!({})), [actor("older")]);
    assert_eq!(observe("younger", 2, &json!({})), [actor("younger")]);
    let with_queue =
        json!({"queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 1}});
    assert_eq!(
        observe("younger", 2, &with_queue),
        [],
        "a status update enqueues nothing"
    );

    assert_eq!(queued().ready, 0, "SAFE-37: a standby enqueues nothing");
    let is_leading = |value| {
        let line = format!("asya_operator_leading {value}\n");
        operator.context.metrics.text().unwrap().contains(&line)
    };
    assert!(is_leading(0), "OPS-28");
    operator.start_leading();
    assert!(is_leading(1), "OPS-28");
    assert_eq!(queued().ready, 3, "both actors and the runtime script");
    let claims = &operator.context.queue_claims;
    assert_eq!(claims.other_holder(&Key::new("younger", "a")), None);
    let owner = claims.other_holder(&Key::new("older", "a")).unwrap();
    assert_eq!(owner.key, Key::new("younger", "a"));
}

/// SAFE-37, BIND-61
#[tokio::test]
async fn only_the_leader_enqueues_bindings_whose_targets_change() {
    let operator = operator();
    let bindings = &operator.context.bindings;
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let projected: Projected<ActorRecord> = serde_json::from_str(&object.to_string()).unwrap();
    let affected = operator
        .context
        .stores
        .actors
        .apply(&WatchScope::Cluster, &projected);
    for enqueue in affected {
        operator.on_actor_change(enqueue);
    }
    let kind = bindings.target_of(&Key::new("ns", "a")).unwrap().kind;
    let watch = ObjectWatch::new(bindings, &kind);
    let scope = WatchScope::Namespace("ns".into());
    let change_target = |version: u32| {
        let target = json!({"metadata": {
            "name": "web", "namespace": "ns", "uid": "web", "resourceVersion": version.to_string(),
        }});
        let target: Projected<ForeignRecord> = serde_json::from_str(&target.to_string()).unwrap();
        let affected = watch.apply(&scope, &target);
        assert_eq!(affected, [Enqueue::Actor(Key::new("ns", "a"))]);
        for enqueue in affected {
            operator.on_bound_object_change(enqueue);
        }
    };
    let queued = || operator.queue.sizes().ready + operator.queue.sizes().waiting;

    watch.init(&scope);
    change_target(7);
    let listed = watch.init_done(&scope);
    assert_eq!(listed, [Enqueue::Actor(Key::new("ns", "a"))]);
    for enqueue in listed {
        operator.on_bound_object_change(enqueue);
    }
    change_target(8);
    assert_eq!(queued(), 0, "a standby enqueues nothing");

    operator.context.leading_since.get_or_init(clock::now);
    change_target(9);
    assert_eq!(queued(), 1);
}

/// FW-14
#[tokio::test]
async fn every_store_reports_its_size() {
    let operator = operator();
    let object = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1"},
        "spec": {"transport": "mq", "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    let projected: Projected<ActorRecord> = serde_json::from_str(&object.to_string()).unwrap();
    let actor = Key::new("ns", "a");
    let bindings = &operator.context.bindings;
    bindings.refresh(&actor, Some(&projected.record));
    bindings.invalidate_target(&actor);
    let quota = json!({
        "metadata": {"name": "all", "namespace": "ns", "uid": "all", "resourceVersion": "1"},
        "spec": {"hard": {"limits.cpu": "4"}},
    });
    let quota: Projected<QuotaRecord> = serde_json::from_str(&quota.to_string()).unwrap();
    bindings.apply(&WatchScope::Cluster, &quota);
    operator.register_gauges();
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
async fn admitted_dry_run_enqueues_all_actors_waiting_for_the_webhook() {
    let operator = operator();
    operator.start_leading();
    let queued = || operator.queue.sizes().ready;
    let before = queued();
    let [first, second, refused] = ["first", "second", "refused"].map(|name| Key::new("ns", name));
    let probes = &operator.context.bindings.probe_schedule;
    for actor in [&first, &second] {
        probes.record_failure(
            actor,
            ProbeFailure::NotCalled("no endpoints".to_owned()),
            false,
        );
    }
    probes.record_failure(&refused, ProbeFailure::Rejected("no".to_owned()), false);
    operator.refresh_indexes(&first);
    assert_eq!(queued(), before, "the webhook is unavailable");
    probes.record_admitted(&first);
    operator.refresh_indexes(&first);
    assert_eq!(queued(), before + 1, "the other actor that waits");
}

/// SAFE-15, SAFE-36
#[tokio::test]
async fn next_actors_are_enqueued_when_a_rollout_ends() {
    let operator = operator();
    operator.start_leading();
    let context = &operator.context;
    let [bound, waiting, workload, waiting_workload] =
        ["a", "b", "c", "d"].map(|name| Key::new("ns", name));
    context.rollout_slots.acquire(&bound, slot_end());
    context.rollout_slots.wait(&waiting);
    assert!(context.workload_rollouts.begin(&workload));
    assert!(!context.workload_rollouts.begin(&waiting_workload));
    let queued = || operator.queue.sizes().ready;
    let before = queued();
    operator.enqueue_next_rollouts();
    assert_eq!(queued(), before, "no slot is free");
    context.rollout_slots.release(&bound);
    context.workload_rollouts.forget(&workload);
    operator.enqueue_next_rollouts();
    assert_eq!(queued(), before + 2);
    operator.enqueue_next_rollouts();
    assert_eq!(queued(), before + 2, "none is waiting any more");
}
