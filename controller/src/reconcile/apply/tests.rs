mod adoption;
mod autoscaler_handoff;
mod contested_replicas;
mod empty_queues;
mod events;
mod impersonation;
mod planned_state;
mod preconditions;
mod queue_failures;
mod retired_queues;
mod same_queue;
mod shared;
mod template_handoff;
mod unbinding;

use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::resolve::ObjectRef;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::verify_unchanged::PlannedState;
use super::{apply, evict, retired, rollout, standalone, template};
use crate::broker::depths::ReportedDepth;
use crate::broker::rechecks::RecheckReason;
use crate::broker::{BrokerError, Depth, ReadyQueue};
use crate::context::Context;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::drain::{DrainState, RemainingQueues};
use crate::reconcile::model::observed::ObservedQueue;
use crate::reconcile::model::outcome::{
    CommonOutcome, Outcome, QueueState, RolloutOutcome, TemplateOutcome,
};
use crate::reconcile::model::target_pods::PodToReplace;
use crate::reconcile::model::template_handoff::{TemplateHandoff, TemplateRecipient};
use crate::reconcile::plan::plan;
use crate::reconcile::plan::retired::RetiredCheck;
use crate::reconcile::plan::rollout::inputs::RolloutDecision;
use crate::reconcile::plan::rollout::params::{RolloutParams, SlotChange};
use crate::reconcile::plan::rollout_slot::RolloutSlotStep;
use crate::reconcile::plan::template::{HandoffProbe, TemplateStep};
use crate::reconcile::tests::fixtures::{
    actor, context, context_with, just_read, observed, slot_end, spec,
};
use crate::reconcile::{reconcile, remember_outcome};
use crate::record::Key;
use crate::work_queue::Attempt;

const MESSAGES: Depth = Depth {
    queued: 5,
    processing: 0,
};

/// QUE-20: nothing else drops the counts if queue health checks are off.
#[tokio::test]
async fn recreated_actor_does_not_inherit_message_counts() {
    let context = context();
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let gone = observed(&actor(&deleted, &spec(&json!({})), &json!({})));
    context.depths.record(gone.key(), Some(MESSAGES));
    let plan = plan(&gone, Timestamp::now());
    let outcome = apply(&context, &gone.actor, plan).await.unwrap();
    assert!(matches!(outcome, Outcome::Finalized));
    remember_outcome(&context, &gone, &outcome);
    assert_eq!(
        context.depths.reported(gone.key()),
        ReportedDepth::Unchanged
    );
}

/// QUE-20: earlier counts do not apply to the new queue.
#[tokio::test]
async fn recreated_queue_does_not_inherit_message_counts() {
    for (queue, expected) in [
        (QueueState::Ready(None), ReportedDepth::Depth(MESSAGES)),
        (
            QueueState::Created(ReadyQueue::default()),
            ReportedDepth::Unchanged,
        ),
    ] {
        let context = context();
        let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
        context.depths.record(observed.key(), Some(MESSAGES));
        let common = CommonOutcome {
            queue,
            ..CommonOutcome::default()
        };
        let outcome = Outcome::Active(common.into());
        remember_outcome(&context, &observed, &outcome);
        assert_eq!(context.depths.reported(observed.key()), expected);
    }
}

/// QUE-20, FW-14, SAFE-15
#[tokio::test]
async fn state_of_a_deleted_actor_is_dropped() {
    let context = context();
    let other = Key::new("ns", "other");
    let now = Timestamp::now();
    let gone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let key = gone.key();
    context.depths.record(key, Some(MESSAGES));
    context.queue_rechecks.request(key, RecheckReason::Missing);
    context.retired_queue_schedule.record_check(key, None);
    context.rollout_slots.acquire(key, slot_end());
    assert!(context.workload_rollouts.begin(key) && !context.workload_rollouts.begin(&other));
    context.stores.foreign_names.record(key, true);
    let attempt = Attempt {
        failures: 0,
        last: false,
    };
    let requeue = reconcile(&context, key, attempt).await;
    assert_eq!(requeue.unwrap(), None);
    assert_eq!(context.depths.reported(key), ReportedDepth::Unchanged);
    assert_eq!(context.queue_rechecks.reason(key), None);
    assert_eq!(context.retired_queue_schedule.wait(key), Duration::ZERO);
    assert!(context.rollout_slots.can_acquire(&other, now));
    assert!(context.workload_rollouts.begin(&other));
    assert_eq!(context.stores.foreign_names.is_taken(key), None);
}

/// FIN-1, QUE-43
#[tokio::test]
async fn nothing_is_created_for_an_actor_that_is_gone_when_its_finalizers_are_patched() {
    let not_found = |_: &str| {
        let status =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        Some((404, status))
    };
    let draining = json!({
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["foregroundDeletion", "asya.sh/finalizer"],
    });
    for metadata in [json!({"finalizers": []}), draining] {
        let mut gone = observed(&actor(&metadata, &spec(&json!({})), &json!({})));
        let is_deleted = gone.actor.metadata.deleting;
        gone.drain = is_deleted.then(|| DrainState::Waiting(RemainingQueues::default()));
        let plan = plan(&gone, Timestamp::now());
        let context = context_with(not_found);
        let outcome = apply(&context, &gone.actor, plan).await.unwrap();
        assert!(
            matches!(outcome, Outcome::Finalized),
            "{metadata}: {outcome:?}"
        );
    }
}

/// ROLL-2 (e)
#[tokio::test]
async fn paused_or_invalid_actor_frees_its_rollout_slot() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let unknown = json!({"transport": "unknown", "workloadRef": target});
    for (metadata, spec) in [(&paused, &bound), (&json!({}), &unknown)] {
        let context = context();
        let other = Key::new("ns", "other");
        let mut observed = observed(&actor(metadata, spec, &json!({})));
        observed.binding = Some(ObservedBinding::Unknown);
        let now = Timestamp::now();
        context.rollout_slots.acquire(observed.key(), slot_end());
        assert!(!context.rollout_slots.can_acquire(&other, now));
        let plan = plan(&observed, now);
        // Requests fail, because no API server responds; only the slot matters here.
        let _ = apply(&context, &observed.actor, plan).await;
        assert!(
            context.rollout_slots.can_acquire(&other, now),
            "{metadata} {spec}"
        );
    }
}

const ACTOR: &str = "/apis/asya.sh/v1alpha1/namespaces/ns/asyncactors/a";

/// QUE-31: nothing would delete the children of such an actor.
#[tokio::test]
async fn nothing_is_created_for_an_actor_deleted_before_it_has_our_finalizer() {
    let context = context_with(|request| {
        let not_found =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        (request == format!("PATCH {ACTOR}")).then_some((404, not_found))
    });
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    for spec in [spec(&json!({})), bound] {
        let mut observed = observed(&actor(&json!({"finalizers": []}), &spec, &json!({})));
        observed.binding = observed
            .actor
            .binds_to
            .as_ref()
            .map(|_| ObservedBinding::Unbinding(None));
        let plan = plan(&observed, Timestamp::now());
        let outcome = apply(&context, &observed.actor, plan).await.unwrap();
        assert!(matches!(outcome, Outcome::Finalized), "{outcome:?}");
    }
}

/// QUE-30
#[tokio::test]
async fn queue_is_kept_if_the_actor_has_changed_at_the_api_server() {
    const DELETED: &str = "2026-01-01T00:00:00Z";
    fn deleted(metadata: &serde_json::Value, spec: &serde_json::Value) -> (u16, serde_json::Value) {
        let mut current = actor(metadata, spec, &json!({}));
        current["metadata"]["deletionTimestamp"] = DELETED.into();
        current["metadata"]["resourceVersion"] = "9".into();
        (200, current)
    }
    type Responses = fn(&str) -> Option<(u16, serde_json::Value)>;
    let get = format!("GET {ACTOR}");
    let changed: [(&str, Responses); 3] = [
        ("retained", |_| {
            let retained = spec(&json!({"queue": {"deletionPolicy": "Retain"}}));
            Some(deleted(&json!({"generation": 7}), &retained))
        }),
        ("annotated", |_| {
            let skips = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
            Some(deleted(&skips, &spec(&json!({}))))
        }),
        ("recreated", |_| {
            let recreated = json!({"uid": "another"});
            Some(deleted(&recreated, &spec(&json!({}))))
        }),
    ];
    for (case, responses) in changed {
        assert!(responses(&get).is_some());
        let context = context_with(responses);
        let status = json!({"queue": {"transport": "mq", "name": "asya-a"}});
        let deleting = json!({"deletionTimestamp": DELETED});
        let observed = observed(&actor(&deleting, &spec(&json!({})), &status));
        let plan = plan(&observed, Timestamp::now());
        assert!(plan.is_final_step(), "{plan:?}");
        let result = apply(&context, &observed.actor, plan).await;
        assert!(matches!(result, Err(Error::Stale(_))), "{case}: {result:?}");
        let stored = context.stores.actors.get(observed.key()).unwrap();
        assert_eq!(
            &*stored.metadata.resource_version.to_string(),
            "9",
            "{case}: the next reconcile uses it"
        );
    }
}

/// QUE-30: the plan keeps the queue, but the spec that the watch has not reported yet may not.
#[tokio::test]
async fn actor_that_keeps_its_queue_is_not_let_go_if_it_has_changed_at_the_api_server() {
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let context = context_with(|request| {
        let changed = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "generation": 7});
        let current = actor(&changed, &spec(&json!({})), &json!({}));
        (request == format!("GET {ACTOR}")).then_some((200, current))
    });
    let retained = spec(&json!({"queue": {"deletionPolicy": "Retain"}}));
    let status = json!({"queue": {"transport": "mq", "name": "asya-a"}});
    let observed = observed(&actor(&deleting, &retained, &status));
    let plan = plan(&observed, Timestamp::now());
    assert!(plan.is_final_step(), "{plan:?}");
    let result = apply(&context, &observed.actor, plan).await;
    assert!(
        matches!(result, Err(Error::Stale("the actor"))),
        "{result:?}"
    );
}

/// SAFE-15, ROLL-4 (c)
#[tokio::test]
async fn rollout_slot_is_held_for_a_bounded_time_while_our_rollout_progresses() {
    const EVICTION: &str = "POST /api/v1/namespaces/ns/pods/web-1/eviction";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let hour = Duration::from_hours(1);
    let minute = Duration::from_mins(1);
    let requested_at = Timestamp::now();
    let with_rollout = |progress: Option<u32>, rollout: bool| {
        let bound =
            json!({"transport": "mq", "workloadRef": target, "timeout": {"progress": progress}});
        let since = requested_at.to_string();
        let status = if rollout {
            json!({"rollout": {"value": "v", "tries": 1, "generation": 2, "target": "spec", "since": since}})
        } else {
            json!({})
        };
        let mut observed = observed(&actor(&json!({}), &bound, &status));
        observed.binding = Some(ObservedBinding::Unknown);
        observed
    };
    let other = Key::new("elsewhere", "other");
    let at = |after: Duration| requested_at.checked_add(after).unwrap();
    for (progress, rollout, decision, held_for) in [
        (
            Some(300),
            true,
            RolloutDecision::InProgress,
            Some(minute * 5),
        ),
        (None, true, RolloutDecision::InProgress, Some(minute * 10)),
        (Some(0), true, RolloutDecision::InProgress, Some(hour)),
        (Some(36_000), true, RolloutDecision::InProgress, Some(hour)),
        // A rollout that another controller started.
        (Some(300), false, RolloutDecision::InProgress, None),
        (Some(300), true, RolloutDecision::wait("text"), None),
        (Some(300), true, RolloutDecision::AwaitSlot, None),
        (
            Some(300),
            true,
            RolloutDecision::Stalled("text".to_owned()),
            None,
        ),
        (
            Some(300),
            true,
            RolloutDecision::Halted("text".to_owned()),
            None,
        ),
        (Some(300), true, RolloutDecision::NotNeeded, None),
    ] {
        let context = context();
        let observed = with_rollout(progress, rollout);
        context.rollout_slots.acquire(observed.key(), slot_end());
        let case = format!("{progress:?} {rollout} {decision:?}");
        let params = RolloutParams::new(
            &observed,
            &decision,
            Some(SlotChange::ReleaseAndReset),
            Timestamp::now(),
        );
        let outcome = rollout::roll_out(&context, &observed.actor, decision, params, None);
        outcome.await.unwrap();
        let has_free_slot = |now| context.rollout_slots.can_acquire(&other, now);
        match held_for {
            None => assert!(has_free_slot(requested_at), "{case}"),
            Some(held_for) => {
                let end = at(held_for);
                assert!(!has_free_slot(end - SignedDuration::from_secs(5)), "{case}");
                assert!(has_free_slot(end + SignedDuration::from_secs(5)), "{case}");
            }
        }
    }
    let context = context_with(|request| {
        let refused = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429});
        (request == EVICTION).then_some((429, refused))
    });
    let observed = with_rollout(None, true);
    let pod = pod("web-1");
    let mut backoffs = Vec::new();
    for _ in 0..3 {
        context.rollout_slots.acquire(observed.key(), slot_end());
        let RolloutOutcome::Waiting(Fault {
            requeue: Requeue::After(backoff),
            ..
        }) = evict::evict(&context, observed.key(), &pod, &just_read(1))
            .await
            .unwrap()
        else {
            panic!()
        };
        assert!(
            context.rollout_slots.can_acquire(&other, requested_at),
            "the slot is returned"
        );
        backoffs.push(backoff.as_secs());
    }
    assert_eq!(backoffs, [10, 20, 40]);
}

/// Deployment `web`, of a kind that the API server serves from now on.
fn serve_deployment(context: &Context) -> ObjectRef {
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    context.bindings.kinds.serve("apps", "Deployment", resource);
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    }
}

fn pod(name: &str) -> PodToReplace {
    PodToReplace {
        name: name.into(),
        uid: "uid-of-pod".into(),
        ..PodToReplace::default()
    }
}

fn check(queue: QueueStatus) -> RetiredCheck {
    RetiredCheck {
        queues: vec![queue],
        ..RetiredCheck::default()
    }
}

/// QUE-13
#[tokio::test]
async fn retired_queues_are_not_checked_before_they_are_due() {
    let context = context();
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let wait = context
        .retired_queue_schedule
        .record_check(observed.key(), None);
    // Any request would fail, because no API server responds.
    let checked = retired::check(&context, &observed.actor, check(QueueStatus::default()));
    let recheck_after = checked.await.unwrap().recheck_after.unwrap();
    assert!(!recheck_after.is_zero() && recheck_after <= wait);
}

/// SAFE-36
#[tokio::test]
async fn only_updates_caused_by_the_installation_wait_for_a_slot() {
    let context = context();
    let observed = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let acquire_rollout_slot = |needs_slot: bool| {
        let slot_step = if needs_slot {
            RolloutSlotStep::Acquire
        } else {
            RolloutSlotStep::NotNeeded
        };
        standalone::acquire_rollout_slot(&context.workload_rollouts, observed.key(), slot_step)
    };
    let other = Key::new("ns", "other");
    assert!(context.workload_rollouts.begin(&other), "one at a time");
    assert!(!acquire_rollout_slot(true));
    assert!(acquire_rollout_slot(false), "the actor's spec changed");
    context.workload_rollouts.forget(&other);
    assert!(acquire_rollout_slot(true));
    assert!(!context.workload_rollouts.begin(&other));
}

/// QUE-30
#[tokio::test]
async fn queue_is_kept_while_the_api_server_has_a_pod_that_the_watch_has_not_reported() {
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let of_status = json!({"queue": {"transport": "mq", "name": "asya-a"}});
    let responses = |request: &str| {
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let pod = json!({
            "metadata": {
                "name": "a-1", "namespace": "ns", "uid": "new", "resourceVersion": "9",
                "labels": {"asya.sh/asya": "a"},
            },
            "status": {"phase": "Pending"},
        });
        let pods = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]});
        match request.split('?').next() {
            Some("GET /apis/asya.sh/v1alpha1/namespaces/ns/asyncactors/a") => {
                Some((200, actor(&deleting, &spec(&json!({})), &json!({}))))
            }
            Some("GET /api/v1/namespaces/ns/pods") => Some((200, pods)),
            _ => None,
        }
    };
    let context = context_with(responses);
    let observed = observed(&actor(&deleting, &spec(&json!({})), &of_status));
    let deletion = plan(&observed, Timestamp::now());
    assert!(deletion.is_final_step(), "{deletion:?}");
    let result = apply(&context, &observed.actor, deletion).await;
    assert!(
        matches!(result, Err(Error::Stale("the pods"))),
        "{result:?}"
    );
    assert_eq!(
        context.stores.pods.of_actor(observed.key()).len(),
        1,
        "the next reconcile waits for it"
    );
    let context = context_with(responses);
    let planned = PlannedState::new(&context, &observed.actor, Some(&[]));
    let result = planned.verify().await;
    assert!(
        matches!(result, Err(Error::Stale("the pods"))),
        "{result:?}"
    );
}
