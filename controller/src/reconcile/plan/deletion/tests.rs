mod scale_up;
mod unmanaged_pods;

use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{QueueDeletionPolicy, QueueStatus, TemplateStatus};
use asya_shared::resolve::{ObjectRef, RolloutMethod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    DeletionSteps, NextPhase, QueueMessages, QueueRemoval, ScalingRemoval, ServiceAccountRemoval,
    SharedConfigMapAction, UnbindStep, WorkloadRemoval, plan_deletion, plan_deletion_steps,
};
use crate::reconcile::model::binding::ObservedBinding;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::known_queues::{DeletePermission, QueueEvidence};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::{ObservedUnbinding, TargetObject, Unresolved};
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::scaling::ScalingTeardown;
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, pod, spec, stateful_set, workload,
};
use crate::record::{Key, PodRecord};
use crate::scaling::tests::fixtures::{scaled_object, trigger_authentication};

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// An actor whose deletion began 50 s ago, with a verified queue.
fn deleting(metadata: &Value, extra: &Value) -> Observed {
    let mut all = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    all.as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    deleting_with_status(&json!({"queue": verified("mq")}), &all, extra)
}

fn deleting_with_status(status: &Value, metadata: &Value, extra: &Value) -> Observed {
    observed(&actor(metadata, &spec(extra), status))
}

fn verified(transport: &str) -> Value {
    json!({"transport": transport, "name": "asya-a", "verifiedGeneration": 2})
}

/// FIN-4, QUE-44
#[test]
fn messages_are_deleted_with_their_queue_only_under_policy_delete() {
    for (policy, expected) in [
        ("Delete", QueueMessages::Delete),
        ("DeleteIfEmpty", QueueMessages::Keep),
        ("Drain", QueueMessages::Keep),
    ] {
        let policy_of_spec = json!({"queue": {"deletionPolicy": policy}});
        let observed = deleting(&json!({}), &policy_of_spec);
        let messages = plan_deletion(&observed, now()).queue_messages;
        assert_eq!(messages, expected, "{policy}");
    }
}

fn deletion(observed: &Observed) -> DeletionSteps {
    plan_deletion_steps(observed, now())
}

fn finish(queue: Option<&str>) -> DeletionSteps {
    let queues = queue.map(|name| QueueRemoval {
        queue: QueueStatus {
            transport: "mq".to_owned(),
            name: name.to_owned(),
            verified_generation: Some(2),
            ..QueueStatus::default()
        },
        evidence: QueueEvidence::Confirmed,
    });
    DeletionSteps {
        scaling: ScalingRemoval::Delete(unscaled()),
        unbind: UnbindStep::Done,
        scale_from_zero: None,
        workloads: Vec::new(),
        service_account: ServiceAccountRemoval::Delete,
        next: NextPhase::FinalStep {
            queues: queues.into_iter().collect(),
        },
    }
}

/// The transports of the queues to delete, and whether status names them.
fn removed(observed: &Observed) -> Vec<(String, bool)> {
    let NextPhase::FinalStep { queues } = deletion(observed).next else {
        panic!()
    };
    let each = queues.into_iter();
    each.map(|removal| {
        let recorded = removal.evidence == QueueEvidence::Confirmed;
        (removal.queue.transport, recorded)
    })
    .collect()
}

fn wait(workloads: Vec<WorkloadRemoval>, seconds: Option<u64>) -> DeletionSteps {
    DeletionSteps {
        scaling: ScalingRemoval::Delete(unscaled()),
        unbind: UnbindStep::Done,
        scale_from_zero: None,
        workloads,
        service_account: ServiceAccountRemoval::Keep,
        next: NextPhase::Wait(seconds.map(Duration::from_secs)),
    }
}

/// The teardown if there is nothing to remove.
fn unscaled() -> ScalingTeardown {
    ScalingTeardown {
        completed: true,
        ..ScalingTeardown::default()
    }
}

/// FIN-2, FW-24
#[test]
fn workload_is_deleted_after_keda_has_released_it_or_thirty_seconds() {
    let mut observed = deleting(&json!({}), &json!({}));
    let existing = workload(&deployment(&observed));
    observed.workload = Child::Ours(existing.clone());
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    observed.scaling.trigger_authentication = Child::Ours(trigger_authentication(&json!({})));
    let delete = |uid: &str| ChildStep::Delete(uid.into());
    let first = deletion(&observed);
    assert_eq!(
        (first.workloads, first.next),
        (vec![], NextPhase::Wait(None))
    );
    let ScalingRemoval::Delete(teardown) = first.scaling else {
        panic!()
    };
    assert_eq!(
        (teardown.scaled_object, teardown.trigger_authentication),
        (delete("u-so"), ChildStep::Wait)
    );

    let deleted_at = |time| {
        Child::Ours(scaled_object(
            &json!({"metadata": {"deletionTimestamp": time}}),
        ))
    };
    observed.scaling.scaled_object = deleted_at("2026-01-01T00:00:50Z");
    let waiting = deletion(&observed);
    assert_eq!(
        (waiting.workloads, waiting.next),
        (vec![], NextPhase::Wait(Some(Duration::from_secs(20))))
    );

    for gone in [deleted_at("2026-01-01T00:00:30Z"), Child::NotFound] {
        observed.scaling.scaled_object = gone;
        let next = deletion(&observed);
        assert_eq!(next.workloads, [WorkloadRemoval::Delete(existing.clone())]);
        let ScalingRemoval::Delete(teardown) = next.scaling else {
            panic!()
        };
        assert_eq!(teardown.trigger_authentication, delete("u-ta"));
    }
}

/// FIN-2
#[test]
fn deletion_order_is_workload_then_pods_then_queue() {
    let mut observed = deleting(&json!({}), &json!({}));
    let existing = workload(&deployment(&observed));
    observed.workload = Child::Ours(existing.clone());
    observed.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&observed),
        wait(vec![WorkloadRemoval::Delete(existing)], None)
    );

    let mut object = deployment(&observed);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(
        deletion(&observed),
        wait(vec![], None),
        "its deletion triggers a reconcile"
    );

    observed.workload = Child::NotFound;
    assert_eq!(
        deletion(&observed),
        wait(vec![], Some(10)),
        "grace period and 30 s since the deletion"
    );

    observed.pods = Vec::new();
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
}

/// A workload of the Go operator that we never applied lacks the label that our watch selects (FIN-2).
#[test]
fn unwatched_workload_is_polled_until_it_is_deleted() {
    let mut observed = deleting(&json!({}), &json!({}));
    let mut object = deployment(&observed);
    object["metadata"]["labels"] = json!({"app": "a"});
    let unwatched = workload(&object);
    observed.workload = Child::Ours(unwatched.clone());
    let removal = vec![WorkloadRemoval::Delete(unwatched)];
    assert_eq!(deletion(&observed), wait(removal, Some(2)));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(deletion(&observed), wait(vec![], Some(2)));
}

/// FIN-2, WRK-6
#[test]
fn deletion_covers_workloads_of_both_kinds() {
    let mut observed = deleting(&json!({}), &json!({}));
    let desired = workload(&deployment(&observed));
    let previous = stateful_set(&deployment(&observed));
    observed.workload = Child::Ours(desired.clone());
    observed.previous_workload = Some(previous.clone());
    let both = vec![
        WorkloadRemoval::Delete(desired),
        WorkloadRemoval::Delete(previous),
    ];
    assert_eq!(deletion(&observed), wait(both, None));
}

/// FIN-2
#[test]
fn pods_that_outlive_their_grace_period_do_not_block_the_queue_forever() {
    let mut observed = deleting(
        &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        &json!({}),
    );
    observed.pods = vec![pod("p", "h")];
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
    let mut patient = deleting(
        &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        &json!({"timeout": {"gracefulShutdown": 100}}),
    );
    patient.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&patient).next,
        NextPhase::Wait(Some(Duration::from_secs(70)))
    );
}

/// FIN-2
#[test]
fn pods_get_their_grace_period_even_after_operator_downtime() {
    let long_ago = json!({"deletionTimestamp": "2025-01-01T00:00:00Z"});
    let mut observed = deleting(&long_ago, &json!({}));
    observed.pods = vec![pod("p", "h")];
    observed.leading_since = "2026-01-01T00:00:50Z".parse().unwrap();
    let wait = |seconds| NextPhase::Wait(Some(Duration::from_secs(seconds)));
    assert_eq!(
        deletion(&observed).next,
        wait(50),
        "grace period and 30 s since leadership began"
    );
    let mut stopping = PodRecord::clone(&pod("p", "h"));
    stopping.deleted = Some(Time("2026-01-01T00:00:40Z".parse().unwrap()));
    observed.pods = vec![stopping.into()];
    assert_eq!(
        deletion(&observed).next,
        wait(10),
        "its own grace period counts"
    );
}

/// FIN-4, FW-34
#[test]
fn queue_is_kept_when_retained_or_never_ours() {
    let skip = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
    assert_eq!(
        deletion(&deleting(&skip, &json!({}))),
        finish(None),
        "annotation"
    );
    assert_eq!(
        deletion(&deleting(
            &json!({}),
            &json!({"queue": {"deletionPolicy": "Retain"}})
        )),
        finish(None),
        "Retain"
    );
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    for extra in [
        json!({"transport": "fixed"}),
        json!({"transport": "fixed", "workload": {"replicas": "x"}}),
    ] {
        let fixed = deleting_with_status(&json!({"queue": verified("fixed")}), &deleted, &extra);
        assert_eq!(deletion(&fixed), finish(None), "autoCreate: false, {extra}");
    }

    let mut unmanaged = deleting(&json!({}), &json!({}));
    unmanaged.queues_managed = false;
    assert_eq!(deletion(&unmanaged), finish(None), "management disabled");

    let unknown = deleting_with_status(&json!({}), &deleted, &json!({"transport": "nowhere"}));
    assert_eq!(
        deletion(&unknown),
        finish(None),
        "no queue known and no transport"
    );

    let mut retained = deleting(
        &json!({}),
        &json!({"queue": {"deletionPolicy": "Retain"}, "workload": {"replicas": "x"}}),
    );
    retained.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&retained),
        finish(None),
        "even if the rest of the spec is invalid, and without a wait"
    );
}

/// FIN-1, FIN-2
#[test]
fn actor_without_our_finalizer_is_left_alone() {
    let mut observed = deleting(&json!({"finalizers": ["other/finalizer"]}), &json!({}));
    observed.workload = Child::Ours(workload(&deployment(&observed)));
    assert_eq!(
        deletion(&observed),
        DeletionSteps {
            scaling: ScalingRemoval::Delete(ScalingTeardown::default()),
            unbind: UnbindStep::Done,
            scale_from_zero: None,
            workloads: Vec::new(),
            service_account: ServiceAccountRemoval::Keep,
            next: NextPhase::Finalized
        }
    );
}

/// SA-3
#[test]
fn foreign_workload_survives_the_actor() {
    let mut observed = deleting(&json!({}), &json!({}));
    observed.workload = Child::Foreign(workload(&deployment(&observed)));
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
}

/// FW-23 (a)
#[test]
fn orphaned_workload_and_queue_stay() {
    let mut observed = deleting(&json!({}), &json!({"deletionPolicy": "Orphan"}));
    let existing = workload(&deployment(&observed));
    observed.workload = Child::Ours(existing.clone());
    observed.pods = vec![pod("p", "h")];
    let workloads = vec![WorkloadRemoval::Orphan(existing)];
    assert_eq!(
        deletion(&observed),
        DeletionSteps {
            scaling: ScalingRemoval::Orphan,
            unbind: UnbindStep::Done,
            scale_from_zero: None,
            workloads,
            service_account: ServiceAccountRemoval::Orphan,
            next: NextPhase::FinalStep { queues: Vec::new() }
        }
    );
}

/// QUE-13, FIN-2, FIN-3, FIN-4
#[test]
fn every_current_and_retired_queue_is_deleted_with_the_actor() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    let status = json!({"queue": verified("mq"), "retiredQueues": [verified("other"), verified("nowhere"), verified("fixed")]});
    let mut deleting = deleting_with_status(&status, &deleted, &json!({"transport": "dead"}));
    let yes = true;
    let no = false;
    let all = [("mq", yes), ("other", yes), ("nowhere", yes), ("dead", no)];
    let expected = |rows: &[(&str, bool)]| -> Vec<(String, bool)> {
        let rows = rows.iter();
        rows.map(|(transport, recorded)| ((*transport).to_owned(), *recorded))
            .collect()
    };
    assert_eq!(
        removed(&deleting),
        expected(&all),
        "verified, retired, unreachable, and created but unrecorded; autoCreate: false is not ours"
    );
    deleting.queues.retired[0].permission = DeletePermission::HeldBy(Key::new("b", "a"));
    assert_eq!(
        removed(&deleting),
        expected(&[all[0], all[2], all[3]]),
        "another actor owns the name"
    );
    Arc::make_mut(&mut deleting.actor).queue_policy = QueueDeletionPolicy::Retain;
    assert_eq!(removed(&deleting), expected(&[]), "Retain applies to all");
}

/// BIND-44
#[test]
fn deletion_waits_for_the_right_to_read_the_kind_of_a_target_that_was_written_to() {
    let unbind = |status: &Value| {
        let metadata = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
        let mut observed = deleting_with_status(status, &metadata, &json!({}));
        observed.binding = Some(
            ObservedUnbinding {
                unresolved: Some(Unresolved::Forbidden("add this rule".to_owned())),
                ..ObservedUnbinding::default()
            }
            .into(),
        );
        deletion(&observed).unbind
    };
    // A resolved target has the annotation that names the actor, even before the queue exists (BIND-47).
    let resolved = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    for written in [
        json!({"boundSince": "2026-01-01T00:00:00Z"}),
        json!({"resolvedTarget": resolved}),
    ] {
        let blocked = unbind(&written);
        assert!(matches!(blocked, UnbindStep::Blocked(_)), "{blocked:?}");
    }
    assert_eq!(unbind(&json!({})), UnbindStep::Done, "nothing was written");
}

/// FIN-2, BIND-43: a watch that is behind must not hide a pod that still has the sidecar, nor one that consumes from
/// the queue.
#[test]
fn last_step_requires_that_no_other_pod_exists_if_one_would_matter() {
    let requires = |retains_queue: bool, unbinding: Option<bool>| {
        let mut observed = deleting(&json!({}), &json!({}));
        if retains_queue {
            Arc::make_mut(&mut observed.actor).queue_policy = QueueDeletionPolicy::Retain;
        }
        observed.binding = unbinding.map(|skip| {
            ObservedBinding::from(ObservedUnbinding {
                skip,
                ..ObservedUnbinding::default()
            })
        });
        plan_deletion(&observed, now()).known_pods.is_some()
    };
    let standalone = None;
    let skipped = Some(true);
    let unbound = Some(false);
    for (retains_queue, unbinding, expected) in [
        (false, standalone, true),
        (true, standalone, false),
        (false, skipped, true),
        (true, skipped, false),
        (false, unbound, true),
        (true, unbound, true),
    ] {
        let actual = requires(retains_queue, unbinding);
        assert_eq!(actual, expected, "{retains_queue} {unbinding:?}");
    }
}

/// SAFE-33, RUN-2, FW-23 (a)
#[test]
fn shared_config_maps_outlive_the_last_actor_while_something_needs_them() {
    let plain = deleting(&json!({}), &json!({}));
    let mut orphans = deleting(&json!({}), &json!({}));
    orphans.deletion.orphans = true;
    let mut template_stays = deleting(&json!({}), &json!({}));
    template_stays.previous.template = Some(TemplateStatus::default());
    let unbinding = ObservedUnbinding {
        skip: true,
        ..ObservedUnbinding::default()
    };
    template_stays.binding = Some(unbinding.into());
    let action = |observed: &Observed, others: bool, mounted: bool| {
        plan_deletion(observed, now()).shared_config_maps(others, mounted)
    };
    assert_eq!(action(&plain, false, false), SharedConfigMapAction::Delete);
    assert_eq!(action(&plain, true, false), SharedConfigMapAction::Keep);
    assert_eq!(action(&plain, false, true), SharedConfigMapAction::Keep);
    for others in [false, true] {
        let orphaned = action(&orphans, others, false);
        assert_eq!(orphaned, SharedConfigMapAction::Orphan, "others: {others}");
    }
    for mounted in [false, true] {
        let orphaned = action(&template_stays, false, mounted);
        assert_eq!(
            orphaned,
            SharedConfigMapAction::Orphan,
            "mounted: {mounted}"
        );
    }
}
