use std::time::Duration;

use asya_shared::api::{QueueStatus, TemplateStatus};
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AccountRemoval, Delete, QueueRemoval, ScalingRemoval, SharedConfigMaps, Then, Unbind,
    WorkloadRemoval, plan, plan_deletion,
};
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::rollout::Live;
use crate::reconcile::model::rollout::UnbindingSeen;
use crate::reconcile::plan::ChildStep;
use crate::reconcile::plan::scaling::Removal;
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, pod, spec, stateful_set, workload,
};
use crate::record::{Key, PodRecord};
use crate::scaling::tests::fixtures::{scaled_object, trigger_authentication};

fn now() -> Timestamp {
    "2026-01-01T00:01:00Z".parse().unwrap()
}

/// An actor whose deletion began 50 s ago, with a verified queue.
fn going(metadata: &Value, extra: &Value) -> Observed {
    let mut all = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    all.as_object_mut()
        .unwrap()
        .extend(metadata.as_object().unwrap().clone());
    going_from(&json!({"queue": verified("mq")}), &all, extra)
}

fn going_from(status: &Value, metadata: &Value, extra: &Value) -> Observed {
    observed(&actor(metadata, &spec(extra), status))
}

fn verified(transport: &str) -> Value {
    json!({"transport": transport, "name": "asya-a", "verifiedGeneration": 2})
}

fn deletion(observed: &Observed) -> Delete {
    plan_deletion(observed, now())
}

fn finish(queue: Option<&str>) -> Delete {
    let queues = queue.map(|name| QueueRemoval {
        queue: QueueStatus {
            transport: "mq".to_owned(),
            name: name.to_owned(),
            verified_generation: Some(2),
            ..QueueStatus::default()
        },
        recorded: true,
    });
    Delete {
        scaling: ScalingRemoval::Delete(unscaled()),
        unbind: Unbind::Done,
        wake: None,
        workloads: Vec::new(),
        service_account: AccountRemoval::Delete,
        then: Then::Finish {
            queues: queues.into_iter().collect(),
        },
    }
}

/// The transports of the queues to delete, and whether status names them.
fn removed(observed: &Observed) -> Vec<(String, bool)> {
    let Then::Finish { queues } = deletion(observed).then else {
        panic!()
    };
    let each = queues.into_iter();
    each.map(|removal| (removal.queue.transport, removal.recorded))
        .collect()
}

fn wait(workloads: Vec<WorkloadRemoval>, seconds: Option<u64>) -> Delete {
    Delete {
        scaling: ScalingRemoval::Delete(unscaled()),
        unbind: Unbind::Done,
        wake: None,
        workloads,
        service_account: AccountRemoval::Keep,
        then: Then::Wait(seconds.map(Duration::from_secs)),
    }
}

/// The removal step if nothing scales.
fn unscaled() -> Removal {
    Removal {
        released: true,
        ..Removal::default()
    }
}

/// FIN-2, FW-24
#[test]
fn workload_is_deleted_after_keda_has_released_it_or_thirty_seconds() {
    let mut observed = going(&json!({}), &json!({}));
    let here = workload(&deployment(&observed));
    observed.workload = Child::Ours(here.clone());
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    observed.scaling.trigger_authentication = Child::Ours(trigger_authentication(&json!({})));
    let delete = |uid: &str| ChildStep::Delete(uid.into());
    let first = deletion(&observed);
    assert_eq!((first.workloads, first.then), (vec![], Then::Wait(None)));
    let ScalingRemoval::Delete(removal) = first.scaling else {
        panic!()
    };
    assert_eq!(
        (removal.scaled_object, removal.trigger_authentication),
        (delete("u-so"), ChildStep::Wait)
    );

    let began = |time| {
        Child::Ours(scaled_object(
            &json!({"metadata": {"deletionTimestamp": time}}),
        ))
    };
    observed.scaling.scaled_object = began("2026-01-01T00:00:50Z");
    let held = deletion(&observed);
    assert_eq!(
        (held.workloads, held.then),
        (vec![], Then::Wait(Some(Duration::from_secs(20))))
    );

    for gone in [began("2026-01-01T00:00:30Z"), Child::Absent] {
        observed.scaling.scaled_object = gone;
        let next = deletion(&observed);
        assert_eq!(next.workloads, [WorkloadRemoval::Delete(here.clone())]);
        let ScalingRemoval::Delete(removal) = next.scaling else {
            panic!()
        };
        assert_eq!(removal.trigger_authentication, delete("u-ta"));
    }
}

/// FIN-2
#[test]
fn deletion_order_is_workload_then_pods_then_queue() {
    let mut observed = going(&json!({}), &json!({}));
    let here = workload(&deployment(&observed));
    observed.workload = Child::Ours(here.clone());
    observed.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&observed),
        wait(vec![WorkloadRemoval::Delete(here)], None)
    );

    let mut object = deployment(&observed);
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(
        deletion(&observed),
        wait(vec![], None),
        "its end is an event"
    );

    observed.workload = Child::Absent;
    assert_eq!(
        deletion(&observed),
        wait(vec![], Some(10)),
        "grace and 30 s, counted from the deletion"
    );

    observed.pods = Vec::new();
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
}

/// The former operator's workload, which we never applied, lacks the label by which the watch selects (FIN-2).
#[test]
fn unwatched_workload_is_polled_until_it_is_deleted() {
    let mut observed = going(&json!({}), &json!({}));
    let mut object = deployment(&observed);
    object["metadata"]["labels"] = json!({"app": "a"});
    let unseen = workload(&object);
    observed.workload = Child::Ours(unseen.clone());
    let removal = vec![WorkloadRemoval::Delete(unseen)];
    assert_eq!(deletion(&observed), wait(removal, Some(2)));
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    observed.workload = Child::Ours(workload(&object));
    assert_eq!(deletion(&observed), wait(vec![], Some(2)));
}

/// FIN-2, WRK-6
#[test]
fn deletion_covers_workloads_of_both_kinds() {
    let mut observed = going(&json!({}), &json!({}));
    let (wanted, former) = (
        workload(&deployment(&observed)),
        stateful_set(&deployment(&observed)),
    );
    observed.workload = Child::Ours(wanted.clone());
    observed.former = Some(former.clone());
    let both = vec![
        WorkloadRemoval::Delete(wanted),
        WorkloadRemoval::Delete(former),
    ];
    assert_eq!(deletion(&observed), wait(both, None));
}

/// FIN-2
#[test]
fn pods_that_outlive_their_grace_period_do_not_hold_the_queue_forever() {
    let mut observed = going(
        &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        &json!({}),
    );
    observed.pods = vec![pod("p", "h")];
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
    let mut patient = going(
        &json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        &json!({"timeout": {"gracefulShutdown": 100}}),
    );
    patient.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&patient).then,
        Then::Wait(Some(Duration::from_secs(70)))
    );
}

/// FIN-2
#[test]
fn pods_get_their_grace_period_even_after_operator_downtime() {
    let long_ago = json!({"deletionTimestamp": "2025-01-01T00:00:00Z"});
    let mut seen = going(&long_ago, &json!({}));
    seen.pods = vec![pod("p", "h")];
    seen.leading_since = "2026-01-01T00:00:50Z".parse().unwrap();
    let wait = |seconds| Then::Wait(Some(Duration::from_secs(seconds)));
    assert_eq!(
        deletion(&seen).then,
        wait(50),
        "grace and 30 s, counted from then"
    );
    let mut stopping = PodRecord::clone(&pod("p", "h"));
    stopping.deleted = Some(Time("2026-01-01T00:00:40Z".parse().unwrap()));
    seen.pods = vec![stopping.into()];
    assert_eq!(deletion(&seen).then, wait(10), "its own grace counts");
}

/// FIN-4, FW-34
#[test]
fn queue_is_kept_when_retained_or_never_ours() {
    let skip = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
    assert_eq!(
        deletion(&going(&skip, &json!({}))),
        finish(None),
        "annotation"
    );
    assert_eq!(
        deletion(&going(
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
        let fixed = going_from(&json!({"queue": verified("fixed")}), &deleted, &extra);
        assert_eq!(deletion(&fixed), finish(None), "autoCreate: false, {extra}");
    }

    let mut unmanaged = going(&json!({}), &json!({}));
    unmanaged.queues_managed = false;
    assert_eq!(deletion(&unmanaged), finish(None), "management disabled");

    let unknown = going_from(&json!({}), &deleted, &json!({"transport": "nowhere"}));
    assert_eq!(
        deletion(&unknown),
        finish(None),
        "no queue known and no transport"
    );

    let mut retained = going(
        &json!({}),
        &json!({"queue": {"deletionPolicy": "Retain"}, "workload": {"replicas": "x"}}),
    );
    retained.pods = vec![pod("p", "h")];
    assert_eq!(
        deletion(&retained),
        finish(None),
        "also where the spec cannot be read otherwise, and without a wait"
    );
}

/// FIN-1, FIN-2
#[test]
fn actor_without_our_finalizer_is_left_alone() {
    let mut observed = going(&json!({"finalizers": ["other/finalizer"]}), &json!({}));
    observed.workload = Child::Ours(workload(&deployment(&observed)));
    assert_eq!(
        deletion(&observed),
        Delete {
            scaling: ScalingRemoval::Delete(Removal::default()),
            unbind: Unbind::Done,
            wake: None,
            workloads: Vec::new(),
            service_account: AccountRemoval::Keep,
            then: Then::Gone
        }
    );
}

/// SA-3
#[test]
fn foreign_workload_survives_the_actor() {
    let mut observed = going(&json!({}), &json!({}));
    observed.workload = Child::Foreign(workload(&deployment(&observed)));
    assert_eq!(deletion(&observed), finish(Some("asya-a")));
}

/// FW-23
#[test]
fn orphaned_workload_and_queue_stay() {
    let mut observed = going(&json!({}), &json!({"deletionPolicy": "Orphan"}));
    let here = workload(&deployment(&observed));
    observed.workload = Child::Ours(here.clone());
    observed.pods = vec![pod("p", "h")];
    let workloads = vec![WorkloadRemoval::Orphan(here)];
    assert_eq!(
        deletion(&observed),
        Delete {
            scaling: ScalingRemoval::Orphan,
            unbind: Unbind::Done,
            wake: None,
            workloads,
            service_account: AccountRemoval::Orphan,
            then: Then::Finish { queues: Vec::new() }
        }
    );
}

/// QUE-13, FIN-2, FIN-3, FIN-4
#[test]
fn every_current_and_retired_queue_is_deleted_with_the_actor() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:10Z"});
    let status = json!({"queue": verified("mq"), "retiredQueues": [verified("other"), verified("nowhere"), verified("fixed")]});
    let mut going = going_from(&status, &deleted, &json!({"transport": "dead"}));
    let (yes, no) = (true, false);
    let all = [("mq", yes), ("other", yes), ("nowhere", yes), ("dead", no)];
    let named = |rows: &[(&str, bool)]| -> Vec<(String, bool)> {
        let rows = rows.iter();
        rows.map(|(transport, recorded)| ((*transport).to_owned(), *recorded))
            .collect()
    };
    assert_eq!(
        removed(&going),
        named(&all),
        "verified, retired, out of reach, and made but not told; autoCreate: false is not ours"
    );
    going.queues.retired[0].hold = Hold::Lost(Key::new("b", "a"));
    assert_eq!(
        removed(&going),
        named(&[all[0], all[2], all[3]]),
        "another actor owns the name"
    );
    going.deletion.retains_queue = true;
    assert_eq!(removed(&going), named(&[]), "Retain is for all of them");
}

/// SO-6
#[test]
fn target_scaled_by_its_queue_is_woken_once_keda_has_released_it() {
    let object = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true, "minReplicas": 2, "maxReplicas": 4},
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let going = |status: &Value| {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut seen = observed(&actor(&deleted, &spec, status));
        seen.binding = Some(BindingSeen {
            unbinding: Some(UnbindingSeen {
                scaled: Some(object.clone()),
                ..UnbindingSeen::default()
            }),
            ..BindingSeen::default()
        });
        seen
    };
    let mut seen = going(&json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}}));
    let wake = deletion(&seen).wake.unwrap();
    assert_eq!((&wake.object, wake.replicas), (&object, 2));
    seen.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    assert_eq!(deletion(&seen).wake, None, "KEDA has not let go of it yet");
    assert_eq!(deletion(&going(&json!({}))).wake, None, "it was not scaled");
}

/// SAFE-24
#[test]
fn target_is_woken_only_after_its_pods_would_start_without_the_sidecar() {
    let object = ObjectRef {
        api_version: "serving.kserve.io/v1beta1".to_owned(),
        kind: "InferenceService".to_owned(),
        name: "web".to_owned(),
        uid: None,
    };
    let path = vec!["metadata", "annotations"];
    let spec = json!({
        "transport": "mq", "scaling": {"enabled": true},
        "workloadRef": {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "web"},
    });
    let status = |rollout: &Value| json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}, "rollout": rollout});
    let planned = |value: Option<&str>, rollout: &Value| {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let mut seen = observed(&actor(&deleted, &spec, &status(rollout)));
        let live = Live {
            object: object.clone(),
            value: value.map(str::to_owned),
            ..Live::default()
        };
        let unbinding = UnbindingSeen {
            asleep: true,
            scaled: Some(object.clone()),
            roll: Some(Roll::Annotate(object.clone(), path.clone())),
            live: vec![live],
            ..UnbindingSeen::default()
        };
        seen.binding = Some(BindingSeen {
            unbinding: Some(unbinding),
            ..BindingSeen::default()
        });
        let plan = deletion(&seen);
        (plan.unbind, plan.wake.is_some())
    };
    let asked = |value: &str, since: Option<&str>| json!({"value": value, "tries": 1, "generation": 2, "target": "spec", "since": since});
    let annotated = planned(Some("v"), &asked("v", None));
    assert_eq!(annotated, (Unbind::Release, false), "first the annotation");
    let released = asked("unbound", Some("2026-01-01T00:00:50Z"));
    let (unbind, woken) = planned(None, &released);
    assert!(matches!(unbind, Unbind::Wait(_)) && !woken, "{unbind:?}");
    let long_ago = asked("unbound", Some("2026-01-01T00:00:20Z"));
    assert_eq!(planned(None, &long_ago), (Unbind::Done, true));
}

/// SAFE-33, RUN-2, FW-23
#[test]
fn shared_config_maps_outlive_the_last_actor_while_something_needs_them() {
    let deletion = |orphans: bool, template_stays: bool| {
        let mut seen = going(&json!({}), &json!({}));
        seen.deletion.orphans = orphans;
        seen.previous.template = template_stays.then(TemplateStatus::default);
        seen.binding = template_stays.then(|| BindingSeen {
            unbinding: Some(UnbindingSeen {
                skip: true,
                ..UnbindingSeen::default()
            }),
            ..BindingSeen::default()
        });
        plan(&seen, now())
    };
    for (orphans, template_stays, others, mounted, wanted) in [
        (false, false, false, false, SharedConfigMaps::Delete),
        (false, false, true, false, SharedConfigMaps::Keep),
        (false, false, false, true, SharedConfigMaps::Keep),
        (true, false, false, false, SharedConfigMaps::Orphan),
        (true, false, true, false, SharedConfigMaps::Orphan),
        (false, true, false, false, SharedConfigMaps::Orphan),
        (false, true, false, true, SharedConfigMaps::Orphan),
    ] {
        let fate = deletion(orphans, template_stays).shared_config_maps(others, mounted);
        assert_eq!(
            fate, wanted,
            "{orphans} {template_stays} {others} {mounted}"
        );
    }
}
