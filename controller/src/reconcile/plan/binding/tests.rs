mod template;

use std::time::Duration;

use asya_shared::resolve::{AutoscalerHandoff, Scale, Target};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::binding::rollout_slots::RefusedEviction;
use crate::fault::{Fault, Reason};
use crate::reconcile::model::binding::{ObservedBinding, Resolved};
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::ScalingWait;
use crate::reconcile::model::rollout::{ObservedRollout, TargetObject};
use crate::reconcile::model::target_pods::PodToReplace;
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::observe::binding::target_scaling;
use crate::reconcile::plan::rollout::inputs::RolloutDecision;
use crate::reconcile::plan::rollout::params::SlotChange;
use crate::reconcile::plan::scale_from_zero::ScaleFromZeroStep;
use crate::reconcile::plan::scaling::ScalingPlan;
use crate::reconcile::plan::steps::ScalingStep;
use crate::reconcile::plan::template::TemplateStep;
use crate::reconcile::plan::{ChildStep, plan};
use crate::reconcile::tests::bindings::{binding_to, refused, resolved};
use crate::reconcile::tests::fixtures::{actor, observed, record, target, verified_status};
use crate::record::{ActorRecord, UninjectedPodRecord};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

const APPLY: ChildStep = ChildStep::Apply { take_over: None };

/// Actor `ns/a`, which binds this target and scales it.
fn scaling(target: Result<Target, Fault>) -> Observed {
    bound(&json!({"enabled": true}), target)
}

fn bound(scaling: &Value, target: Result<Target, Fault>) -> Observed {
    let spec = json!({
        "transport": "mq", "scaling": scaling,
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let mut observed = observed(&actor(&json!({}), &spec, &verified_status()));
    let desired = observed.desired.as_ref().unwrap();
    let pods = Some(TargetPods::default());
    observed.binding = Some(match target {
        Ok(target) => {
            let target = Resolved {
                replicas: Some(0),
                ..resolved(target)
            };
            let scaling = target_scaling(&observed.actor, &observed.previous, desired, &target);
            let mut binding = binding_to(target);
            binding.injection.pods = pods;
            binding.scaling = scaling;
            binding.into()
        }
        Err(fault) => {
            let mut binding = refused(fault);
            binding.injection.pods = pods;
            binding.into()
        }
    });
    observed
}

fn step(observed: &Observed) -> Option<ScalingStep> {
    plan(observed, Timestamp::UNIX_EPOCH)
        .active()
        .common
        .scaling
}

fn enabled(observed: &Observed) -> ScalingPlan {
    match step(observed) {
        Some(ScalingStep::Enabled(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

/// SO-1, SO-2
#[test]
fn scaled_object_is_created_for_the_workload_of_the_target() {
    let observed = scaling(Ok(target()));
    let plan = enabled(&observed);
    assert_eq!((plan.scaled_object, plan.fault), (APPLY, None));
    let objects = observed.scaling_objects().unwrap().unwrap();
    let spec = &objects.scaled_object.object["spec"];
    assert_eq!(
        spec["scaleTargetRef"],
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
    );
    let trigger = &spec["triggers"][0];
    assert!(
        !trigger["name"].as_str().unwrap().contains('-'),
        "{trigger}"
    );
    assert!(
        !trigger["metadata"].to_string().contains("FromEnv"),
        "{trigger}"
    );
}

/// SAFE-20, SAFE-21
#[test]
fn first_scaled_object_waits_until_pods_have_the_sidecar() {
    let uninjected = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"}});
    let serving = || {
        let mut observed = scaling(Ok(target()));
        let pods = observed.resolved_mut().injection.pods.as_mut();
        pods.unwrap().uninjected = vec![record::<UninjectedPodRecord>(&uninjected)];
        observed
    };
    let plan = enabled(&serving());
    assert_eq!((plan.scaled_object, plan.fault), (ChildStep::Wait, None));
    let Some(ScalingWait::Sidecar(text)) = plan.waits_for else {
        panic!("{:?}", plan.waits_for);
    };
    assert!(text.contains("a Ready pod of the target has the sidecar"));

    let mut unverified = scaling(Ok(target()));
    unverified.previous.injection = None;
    assert_eq!(enabled(&unverified).scaled_object, ChildStep::Wait);
    let mut unlisted = scaling(Ok(target()));
    unlisted.resolved_mut().injection.pods = None;
    assert_eq!(enabled(&unlisted).scaled_object, ChildStep::Wait);

    let mut exists = serving();
    exists.previous.injection = None;
    let outdated = json!({"spec": {"scaleTargetRef": {"name": "web"}}});
    exists.scaling.scaled_object = Child::Ours(scaled_object(&outdated));
    let plan = enabled(&exists);
    assert_eq!((plan.scaled_object, plan.waits_for), (APPLY, None));
}

/// SAFE-20, KEDA-9
#[test]
fn scaling_fault_takes_precedence_over_what_scaling_waits_for() {
    let mut observed = scaling(Ok(target()));
    observed.previous.conditions.clear();
    observed.scaling.installed = false;
    let plan = enabled(&observed);
    assert_eq!(
        (plan.fault.unwrap().reason, plan.waits_for),
        (Reason::KedaNotInstalled, None)
    );
}

/// SAFE-27, FW-21
#[test]
fn binding_with_reconcile_once_leaves_its_target_alone_after_it_was_ready() {
    let planned = |ready: Option<i64>| {
        let mut target = target();
        target.server.url = Some("http://127.0.0.1:8000".to_owned());
        let mut observed = scaling(Ok(target));
        let mut actor = ActorRecord::clone(&observed.actor);
        actor.annotations.once = true;
        observed.actor = std::sync::Arc::new(actor);
        observed.previous.ready_generation = ready;
        let outdated = PodToReplace {
            name: "old".into(),
            uid: "old".into(),
            ..PodToReplace::default()
        };
        let mut rollout = ObservedRollout {
            has_slot: true,
            ..ObservedRollout::default()
        };
        rollout.pod_counts.pods.matched = 1;
        rollout.pod_counts.total = 1;
        rollout.pod_counts.outdated = vec![outdated];
        observed.resolved_mut().rollout = Some(rollout);
        plan(&observed, Timestamp::UNIX_EPOCH).active()
    };
    let previous = planned(Some(1));
    assert!(!previous.common.leaves_objects_alone);
    let previous = previous.binding();
    assert!(
        previous.target.actor_annotation.is_some()
            && previous.target.scaled_object_contention.is_some()
    );
    assert!(matches!(
        previous.rollout.map(|it| it.decision),
        Some(RolloutDecision::Act(_))
    ));

    let done = planned(Some(2));
    assert!(done.common.leaves_objects_alone && done.retired.queues.is_empty());
    let done = done.binding();
    assert_eq!(
        (
            &done.target.actor_annotation,
            &done.target.handoff,
            &done.target.scale_from_zero
        ),
        (&None, &None, &None)
    );
    assert_eq!(done.target.template, TemplateStep::default());
    assert!(
        done.target.scaled_object_contention.is_none() && done.target.replicas_contention.is_none()
    );
    assert!(done.rollout.is_none(), "no pod is replaced");
}

/// SO-5, SAFE-15: where no rollout is due, its step changes the slot for the handoff.
#[test]
fn slot_of_a_handoff_by_itself_goes_with_the_rollout_that_is_not_due() {
    let slot = |has_slot| {
        let mut target = target();
        target.server.url = Some("http://127.0.0.1:8000".to_owned());
        let handoff = AutoscalerHandoff {
            owner: target.workload.clone(),
            is_set: false,
            is_propagated: true,
        };
        target.scale = Scale::HandedOff(target.workload.clone(), handoff);
        let mut observed = scaling(Ok(target));
        let mut rollout = ObservedRollout {
            has_slot,
            ..ObservedRollout::default()
        };
        rollout.pod_counts.pods.matched = 2;
        rollout.availability.active = 2;
        observed.resolved_mut().rollout = Some(rollout);
        let plan = plan(&observed, Timestamp::UNIX_EPOCH).active().binding();
        let rollout = plan.rollout.unwrap();
        assert_eq!(rollout.decision, RolloutDecision::NotNeeded);
        rollout.params.slot
    };
    let until = Timestamp::from_second(600).unwrap();
    assert_eq!(slot(true), Some(SlotChange::Acquire(until)));
    assert_eq!(slot(false), Some(SlotChange::Wait));
}

/// ROLL-4 (c)
#[test]
fn rollout_of_a_binding_waits_after_a_refused_eviction() {
    let mut target = target();
    target.server.url = Some("http://127.0.0.1:8000".to_owned());
    let mut observed = scaling(Ok(target));
    let mut rollout = ObservedRollout {
        has_slot: true,
        refused_eviction: Some(RefusedEviction {
            message: "the budget allows none".to_owned(),
            retry_at: Timestamp::from_second(7).unwrap(),
        }),
        objects: vec![TargetObject {
            needs_eviction: true,
            ..TargetObject::default()
        }],
        ..ObservedRollout::default()
    };
    rollout.pod_counts.pods.matched = 1;
    rollout.pod_counts.total = 1;
    rollout.pod_counts.outdated = vec![PodToReplace::default()];
    observed.resolved_mut().rollout = Some(rollout);
    let plan = plan(&observed, Timestamp::UNIX_EPOCH).active().binding();
    let waits = RolloutDecision::Wait {
        message: "the budget allows none".to_owned(),
        requeue_after: Duration::from_secs(7),
    };
    assert_eq!(plan.rollout.unwrap().decision, waits);
}

/// SO-8
#[test]
fn scaled_object_is_retargeted_in_place_to_a_new_workload() {
    let mut observed = scaling(Ok(target()));
    let previous = json!({"spec": {"scaleTargetRef": {"name": "web-of-before"}}});
    observed.scaling.scaled_object = Child::Ours(scaled_object(&previous));
    let plan = enabled(&observed);
    assert_eq!((plan.scaled_object, plan.fault), (APPLY, None));
}

/// SO-3
#[test]
fn competing_autoscaler_on_the_same_object_is_a_fault() {
    let hpa_on = |name: &str| {
        let mut observed = scaling(Ok(target()));
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        let competing = json!({"metadata": {"name": "theirs", "ownerReferences": []}, "spec": {"scaleTargetRef": target}});
        observed.scaling.hpas = vec![hpa(&competing)];
        enabled(&observed)
    };
    let plan = hpa_on("web");
    assert_eq!(plan.scaled_object, ChildStep::Keep);
    let fault = plan.fault.unwrap();
    assert_eq!(fault.reason, Reason::RivalAutoscaler);
    assert!(
        fault
            .message
            .starts_with("HorizontalPodAutoscaler theirs already scales Deployment web"),
        "{fault:?}"
    );
    assert_eq!(hpa_on("other").fault, None);
}

/// SO-4
#[test]
fn unscalable_target_loses_its_scaled_object_with_a_reason() {
    let mut target = target();
    assert!(target.scale.object().is_some());
    target.scale = Scale::Refused("its owner scales it".to_owned());
    let mut observed = scaling(Ok(target));
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Blocked(teardown, fault)) = step(&observed) else {
        panic!()
    };
    assert_eq!(teardown.scaled_object, ChildStep::Delete("u-so".into()));
    assert_eq!(
        (fault.reason, &*fault.message),
        (Reason::ScalingNotSupported, "its owner scales it")
    );
}

/// BIND-42
#[test]
fn scaled_object_is_deleted_with_its_target_but_not_when_that_cannot_be_read() {
    for (reason, is_removed) in [
        (Reason::TargetNotFound, true),
        (Reason::TargetStopped, true),
        (Reason::KindNotInstalled, true),
        (Reason::AlreadyBound, true),
        (Reason::TargetNotReady, false),
        (Reason::KindForbidden, false),
        (Reason::Ambiguous, false),
    ] {
        let mut observed = scaling(Err(Fault::until_change(reason, "")));
        observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        let step = step(&observed);
        let removes = matches!(&step, Some(ScalingStep::Disabled(teardown)) if teardown.scaled_object == ChildStep::Delete("u-so".into()));
        assert_eq!(removes, is_removed, "{reason}: {step:?}");
        assert_eq!(step.is_none(), !is_removed, "{reason}");
    }
}

/// SO-6
#[test]
fn target_is_scaled_up_once_after_scaling_ends() {
    let off = |status: &Value, min: i32, exists: bool| {
        let mut observed = bound(
            &json!({"enabled": false, "minReplicas": min, "maxReplicas": 9}),
            Ok(target()),
        );
        observed.previous = serde_json::from_value(status.clone()).unwrap();
        if exists {
            observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        }
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .scale_from_zero
    };
    let scaled = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
    let scale_up = |status: &Value, min: i32| match off(status, min, false) {
        Some(ScaleFromZeroStep::Now(scale_up)) => scale_up,
        other => panic!("{other:?}"),
    };
    assert_eq!(off(&scaled, 0, true), None, "KEDA still scales it");
    let step = scale_up(&scaled, 0);
    assert_eq!((&*step.object.name, step.replicas), ("web", 1));
    assert_eq!(scale_up(&scaled, 3).replicas, 3);
    assert_eq!(off(&json!({}), 0, false), None, "not scaled by the queue");
}

/// SO-6: seed 32 of the simulation, in which a user lets the HPA of an `InferenceService` scale it at 0 pods.
#[test]
fn target_without_pods_is_scaled_up_once_its_owner_decides_who_scales() {
    let scale_from_zero = |scale: Scale, exists: bool| {
        let target = Target { scale, ..target() };
        let mut observed = scaling(Ok(target));
        let previous = json!({"scaledObjectRef": {"kind": "ScaledObject", "name": "a"}});
        observed.previous = serde_json::from_value(previous).unwrap();
        if exists {
            observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
        }
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .scale_from_zero
    };
    let refused = || Scale::Refused("its owner scales it".to_owned());
    assert_eq!(
        scale_from_zero(refused(), true),
        None,
        "KEDA still scales it"
    );
    let Some(ScaleFromZeroStep::Now(scale_up)) = scale_from_zero(refused(), false) else {
        panic!()
    };
    assert_eq!((&*scale_up.object.name, scale_up.replicas), ("web", 1));
}

/// KEDA-8
#[test]
fn scaled_object_is_deleted_when_scaling_is_switched_off() {
    let mut observed = bound(&json!({"enabled": false}), Ok(target()));
    observed.scaling.scaled_object = Child::Ours(scaled_object(&json!({})));
    let Some(ScalingStep::Disabled(teardown)) = step(&observed) else {
        panic!()
    };
    assert_eq!(teardown.scaled_object, ChildStep::Delete("u-so".into()));
}

/// BIND-47
#[test]
fn workload_is_annotated_once_and_a_custom_resource_never() {
    let annotated = |target: Target, uid: Option<&str>| {
        let mut observed = bound(&json!({}), Ok(target));
        let previous = uid.map(
            |uid| json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": uid}),
        );
        observed.previous = serde_json::from_value(json!({"resolvedTarget": previous})).unwrap();
        plan(&observed, Timestamp::UNIX_EPOCH)
            .active()
            .binding()
            .target
            .actor_annotation
            .map(|it| it.to_string())
    };
    let web = Some("Deployment/web".to_owned());
    assert_eq!(annotated(target(), None), web);
    assert_eq!(annotated(target(), Some("of-before")), web);
    assert_eq!(annotated(target(), Some("web-uid")), None);
    let mut group = target();
    group.workload.kind = "RayCluster".to_owned();
    group.workload.api_version = "ray.io/v1".to_owned();
    assert_eq!(annotated(group, None), None);
}

/// SAFE-42: not read again at each reconcile.
#[test]
fn secrets_of_pods_are_looked_for_until_pods_start_with_the_sidecar() {
    let secrets = |strategy: &str, verified: bool| {
        let spec = json!({
            "transport": "sealed", "runtime": {"targetURL": "http://127.0.0.1:8000"},
            "binding": {"strategy": strategy},
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        });
        let mut observed = observed(&actor(&json!({}), &spec, &verified_status()));
        let hash = observed
            .desired_binding()
            .unwrap()
            .injected_hash
            .clone()
            .unwrap();
        let status = match strategy {
            _ if !verified => {
                json!({"template": {"uid": "u", "hash": "other.x", "target": "t", "fingerprint": "f"}})
            }
            "Template" => {
                json!({"template": {"uid": "u", "hash": hash, "target": "t", "fingerprint": "f"}})
            }
            _ => {
                let actor = hash.split('.').next();
                json!({"injection": {"proved": actor}})
            }
        };
        observed.previous = serde_json::from_value(status).unwrap();
        observed.binding = Some(ObservedBinding::Unknown);
        let plan = plan(&observed, Timestamp::UNIX_EPOCH).active().binding();
        let names = plan.secrets_to_find.into_iter().map(|it| it.name);
        names.collect::<Vec<_>>().join(" ")
    };
    for strategy in ["Pod", "Template"] {
        assert_eq!(secrets(strategy, false), "mq-password", "{strategy}");
        assert_eq!(secrets(strategy, true), "", "{strategy}");
    }
}
