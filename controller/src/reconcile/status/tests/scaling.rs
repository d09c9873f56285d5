use asya_shared::api::{AsyncActorStatus, State};
use asya_shared::resolve::GroupKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{active_actor, condition, report, running, with_ready_queue};
use crate::fault::{Fault, Reason, Requeue};
use crate::reconcile::apply::inventory_entry;
use crate::reconcile::model::child::Child;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{
    QueueState, ScalingOutcome, StandaloneOutcome, StoppedWorkloads,
};
use crate::reconcile::status::common::Report;
use crate::reconcile::tests::fixtures::{
    actor, deployment, observed, spec, workload as workload_record,
};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

/// Outcome of a reconcile that observed this `ScaledObject`.
fn scaled(observed: &Observed, extra: &serde_json::Value) -> StandaloneOutcome {
    let mut outcome = running(observed);
    outcome.common.scaling = Some(Box::new(ScalingOutcome {
        scaled_object: Some(scaled_object(extra)),
        fault: None,
        waits_for: None,
    }));
    outcome
}

/// KEDA-8, KEDA-10, STA-8, STA-10, API-7
#[test]
fn scaled_actor_reports_its_autoscaler_with_limits_and_health() {
    let enabled = json!({"scaling": {"enabled": true, "minReplicas": 1, "maxReplicas": 7}});
    let mut observed = observed(&actor(&json!({}), &spec(&enabled), &json!({})));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let Report {
        status, requeue, ..
    } = report(&observed, scaled(&observed, &ready));
    assert_eq!(
        (status.status, requeue),
        (Some(State::Running), Requeue::AwaitChange)
    );
    assert_eq!(condition(&status, "ScalingReady").1, "ScaledObjectReady");
    assert_eq!(condition(&status, "Ready").0, "True");
    let json_status = serde_json::to_value(&status).unwrap();
    for (field, value) in [
        ("scalingMode", json!("KEDA")),
        ("minReplicas", json!(1)),
        ("maxReplicas", json!(7)),
        ("readySummary", json!("3/3")),
        (
            "scaledObjectRef",
            json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a", "namespace": "ns"}),
        ),
    ] {
        assert_eq!(json_status[field], value, "{field}");
    }

    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no trigger"}]}});
    let failing = report(&observed, scaled(&observed, &not_ready)).status;
    assert_eq!(failing.status, Some(State::ScalingError));
    assert_eq!(condition(&failing, "Ready").1, "ScaledObjectNotReady");
    assert_eq!(failing.ready_summary.as_deref(), Some("2/3"));

    let mut disabled = active_actor();
    disabled.previous = failing;
    let status = report(&disabled, running(&disabled)).status;
    assert!(
        status.conditions.iter().all(|c| c.type_ != "ScalingReady"),
        "no condition while scaling is off"
    );
    assert_eq!(
        (
            status.scaled_object_ref,
            status.max_replicas,
            status.ready_summary.as_deref()
        ),
        (None, None, Some("2/2"))
    );

    observed.desired = Err(Fault::until_change(Reason::ValidationError, "text"));
    observed.previous = report(&active_actor(), running(&active_actor())).status;
    observed.previous.max_replicas = Some(7);
    let invalid = report(&observed, StandaloneOutcome::default()).status;
    assert_eq!(
        invalid.max_replicas,
        Some(7),
        "the previous limits are kept"
    );
}

/// STA-9, KEDA-11
#[test]
fn change_of_desired_replicas_is_recorded_with_time_and_direction() {
    let mut observed = active_actor();
    let first = report(&observed, running(&observed)).status;
    assert_eq!(
        (
            first.last_scale_time.clone(),
            first.last_scale_formatted.as_deref()
        ),
        (None, Some("-"))
    );
    observed.previous = AsyncActorStatus {
        desired_replicas: Some(3),
        ..first
    };
    let fewer = report(&observed, running(&observed)).status;
    assert_eq!(fewer.last_scale_direction.as_deref(), Some("down"));
    assert_eq!(
        fewer.last_scale_formatted.as_deref(),
        Some("2026-01-01T00:01:00Z (down)")
    );
}

/// KEDA-10, SAFE-43
#[test]
fn clock_that_was_ahead_does_not_hide_missing_metrics() {
    let enabled = json!({"scaling": {"enabled": true}});
    let mut observed = observed(&actor(&json!({}), &spec(&enabled), &json!({})));
    observed.scaling.hpas = vec![hpa(&json!({"status": {"conditions": [{
        "type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric",
        "lastTransitionTime": "2025-12-31T00:00:00Z",
    }]}}))];
    let ready = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}], "hpaName": "keda-hpa-a",
    }});
    for (scaled_at, expected) in [
        ("2026-01-01T00:01:00Z", "ScaledObjectReady"),
        ("2026-01-01T00:06:00Z", "ScaledObjectReady"),
        ("2026-01-01T00:06:01Z", "MetricsUnavailable"),
    ] {
        observed.previous = AsyncActorStatus {
            desired_replicas: Some(3),
            last_scale_time: Some(Time(scaled_at.parse().unwrap())),
            ..AsyncActorStatus::default()
        };
        let status = report(&observed, scaled(&observed, &ready)).status;
        let reason = condition(&status, "ScalingReady").1;
        assert_eq!(reason, expected, "{scaled_at}");
    }
}

/// FW-25
#[test]
fn inventory_lists_every_child_in_order_until_it_is_deleted() {
    let mut observed = active_actor();
    let mut outcome = running(&observed);
    let scaled = scaled_object(&json!({}));
    let applied = inventory_entry(
        GroupKind {
            group: "keda.sh",
            kind: "ScaledObject",
        },
        &scaled.metadata,
        &scaled.last_applied,
        "h",
    );
    outcome.common.applied.push(applied);
    observed.scaling.scaled_object = Child::Ours(scaled);
    let kinds = |status: &AsyncActorStatus| {
        let entries = status.inventory.iter();
        let entries =
            entries.map(|entry| (entry.kind.clone(), entry.phase.clone().unwrap_or_default()));
        entries.collect::<Vec<_>>()
    };
    let is = |kind: &str, phase: &str| (kind.to_owned(), phase.to_owned());
    observed.previous = report(&observed, outcome).status;
    assert_eq!(
        kinds(&observed.previous),
        [is("Deployment", "Applied"), is("ScaledObject", "Applied")]
    );
    let later_kinds = |observed: &Observed| {
        let outcome = StandaloneOutcome {
            common: with_ready_queue(),
            ..running(observed)
        };
        kinds(&report(observed, outcome).status)
    };
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    observed.scaling.scaled_object = Child::Ours(scaled_object(&terminating));
    assert_eq!(
        later_kinds(&observed),
        [is("Deployment", "Applied"), is("ScaledObject", "Deleting")]
    );
    observed.scaling.scaled_object = Child::NotFound;
    assert_eq!(later_kinds(&observed), [is("Deployment", "Applied")]);
}

/// QUE-3, KEDA-8, FW-21
#[test]
fn stopped_workload_is_not_scaled_and_will_be_applied_again() {
    let enabled = json!({"scaling": {"enabled": true}});
    let once = json!({"annotations": {"asya.sh/reconcile": "Once"}});
    let mut observed = observed(&actor(&once, &spec(&enabled), &json!({})));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let mut scaled_outcome = scaled(&observed, &ready);
    let workload = scaled_outcome.workload.clone().unwrap();
    let applied = inventory_entry(
        GroupKind {
            group: "apps",
            kind: "Deployment",
        },
        &workload.metadata,
        &workload.last_applied,
        "h",
    );
    scaled_outcome.common.applied.push(applied);
    observed.previous = report(&observed, scaled_outcome).status;
    assert!(observed.previous.scaled_object_ref.is_some());
    observed.previous.ready_generation = Some(2);

    observed.desired = Err(Fault::until_change(Reason::QueueConflict, "owned by b"));
    let mut outcome = running(&observed);
    outcome.common.queue = QueueState::NotChecked;
    outcome.common.applied.clear();
    outcome.stopped = Some(StoppedWorkloads {
        kinds: vec!["Deployment"],
    });
    let status = report(&observed, outcome).status;
    assert_eq!(status.status, Some(State::TransportError));
    assert!(status.conditions.iter().all(|c| c.type_ != "ScalingReady"));
    assert_eq!(status.scaled_object_ref, None);
    assert_eq!(status.ready_generation, None);
    let entries = status.inventory.iter();
    let hashes: Vec<_> = entries.map(|entry| (&*entry.kind, &entry.hash)).collect();
    assert_eq!(
        hashes,
        [("Deployment", &None)],
        "listed, but without a hash"
    );
}

/// SAFE-25
#[test]
fn foreign_autoscaler_is_a_fault_only_if_replicas_are_requested() {
    let status_with = |template: &serde_json::Value, is_empty: bool| {
        let mut workload = spec(&json!({}))["workload"].clone();
        workload
            .as_object_mut()
            .unwrap()
            .extend(template.as_object().unwrap().clone());
        let mut observed = observed(&actor(
            &json!({}),
            &spec(&json!({"workload": workload})),
            &json!({}),
        ));
        let foreign = json!({"metadata": {"name": "theirs", "ownerReferences": []}});
        observed.scaling.hpas = vec![hpa(&foreign)];
        let mut object = deployment(&observed);
        if is_empty {
            object["spec"]["replicas"] = json!(0);
        }
        let outcome = StandaloneOutcome {
            workload: Some(workload_record(&object)),
            ..running(&observed)
        };
        report(&observed, outcome).status
    };
    let conflicting = status_with(&json!({"replicas": 3}), false);
    assert_eq!(
        condition(&conflicting, "ScalingReady"),
        (
            "False",
            "RivalAutoscaler",
            "HorizontalPodAutoscaler theirs scales Deployment a, so spec.workload.replicas (3) has no effect; delete HorizontalPodAutoscaler theirs, or remove spec.workload.replicas to leave the number of pods to it"
        )
    );
    assert_eq!(conflicting.status, Some(State::ScalingError));
    assert_eq!(conflicting.ready_summary.as_deref(), Some("2/3"));

    let accepted = status_with(&json!({}), false);
    let (status, reason, text) = condition(&accepted, "ScalingReady");
    assert_eq!((status, reason), ("True", "ScaledByOther"));
    assert!(text.ends_with("set spec.scaling.enabled to true"), "{text}");
    assert_eq!(accepted.status, Some(State::Running));

    // Nobody starts its first pod.
    for template in [json!({"replicas": 3}), json!({})] {
        let empty = status_with(&template, true);
        let text = condition(&empty, "ScalingReady").2;
        assert!(text.ends_with("scale Deployment a to at least 1"), "{text}");
    }
}
